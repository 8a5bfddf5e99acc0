"""What a server encodes new items with: a model that is there, or one that is loaded while requests are answered."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.sides import encode_items
from channelhash.search.fused import ALONE
from channelhash.search.query_encoder import QueryEncoder
from channelhash.search.store import Store
from channelhash.serve.batching import Batcher, Outputs

_MAX_BATCH = 64
_MODALITIES = ("text", "image")


@dataclass(frozen=True)
class Encoding:
    """How new items become codes.

    Attributes:
        model: the model; None if there is none.
        batchers: modality -> encoder of its items.
        problems: modality -> why the model cannot encode its items, where it cannot.
        words_alone: whether texts, which the model does not encode, are looked for by their words.

    >>> Encoding(None, {}, {"image": "it has no model"}, False).refuse("image")
    Traceback (most recent call last):
    channelhash.errors.InputError: this server cannot encode a new image: it has no model
    """

    model: QueryEncoder | None
    batchers: Mapping[str, Batcher[Any, Outputs]]
    problems: Mapping[str, str]
    words_alone: bool

    def refuse(self, modality: str) -> None:
        """Raise `InputError` if new items of a modality cannot be encoded."""
        if modality in self.problems:
            raise InputError(f"this server cannot encode a new {modality}: {self.problems[modality]}")


def make_encoding(
    store: Store, model: QueryEncoder | None, thread: Executor, observe: Callable[[str], Callable[[int], None]]
) -> Encoding:
    """Make the encoding of a model, which encodes a first text and a first image: no request waits while it loads.

    Args:
        store: the store that is searched.
        model: the model; None if there is none.
        thread: runs the model.
        observe: modality -> what is called with the size of every batch.

    Raises:
        InputError: the store holds codes of another model.
    """
    if model is not None:
        check_model(store, model)
    problems = {modality: problem for modality in _MODALITIES if (problem := _problem(model, modality))}
    batchers: dict[str, Batcher[Any, Outputs]] = {
        modality: Batcher(partial(encode_items, model, modality), thread, _MAX_BATCH, observe(modality))
        for modality in _MODALITIES
        if model is not None and modality not in problems
    }
    words_alone = model is not None and "text" not in model.modalities and store.has_words
    return Encoding(model, batchers, problems, words_alone)


def done(encoding: Encoding) -> Future[Encoding]:
    """Return an encoding that is there, as one that is loaded would be.

    >>> done(Encoding(None, {}, {}, False)).result().words_alone
    False
    """
    future: Future[Encoding] = Future()
    future.set_result(encoding)
    return future


def check_model(store: Store, model: QueryEncoder) -> None:
    """Raise `InputError` unless the store's codes can be compared with the model's."""
    if store.model and not model.comparable(store.model):
        raise InputError(
            f"{store.address}: its codes were made by the model {store.model}, not by this one "
            f"({model.fingerprint()}); codes of two models cannot be compared: give that model with --model, or make "
            "the store again"
        )
    if store.n_bits is not None and store.n_bits != model.n_bits:
        raise InputError(f"{store.address}: holds codes of {store.n_bits} bits, the model makes {model.n_bits}")


def _problem(model: QueryEncoder | None, modality: str) -> str:
    """Return why new items of a modality cannot be encoded, or nothing: a model of features may name no extractor."""
    if model is None:
        return "it has no model; start it with --model, or search by id or code"
    if modality == "text" and modality not in model.modalities:
        return ALONE
    probe: Any = "a picture" if modality == "text" else Image.new("RGB", (64, 64))
    try:
        encode_items(model, modality, [probe])
    except InputError as error:
        return str(error)
    return ""
