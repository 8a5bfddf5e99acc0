"""Search a store with words, an image or one of its items.

`search_store` answers a single question. Code that answers many loads the model once with
`load_encoder`, makes queries with `encode_queries`, and finds the items nearest to each with
`channelhash.search.hits.search_hits`.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import binarize, pack
from channelhash.data.records import QUESTION, VECTOR
from channelhash.errors import InputError, argument
from channelhash.models.description import Model, QueryEncoder
from channelhash.models.exported import DESCRIPTION, FOLDER, ExportedModel
from channelhash.search.checks import check_vectors
from channelhash.search.hits import Hits
from channelhash.search.plan import Search, choose_rows
from channelhash.search.question import (
    WORDS,
    ImageSource,
    Query,
    Question,
    SearchOptions,
    query_like as query_like,  # for those who encode and search by themselves
)
from channelhash.search.rank import KeyedAnswers
from channelhash.search.store import Store
from channelhash.utils.optional_imports import naming_extra


def load_encoder(
    store: Store, model: Path | Model | None = None, trust_code: bool = False
) -> Model:
    """Load the model that encodes queries to a store.

    Args:
        store: the store to search.
        model: a run or saved model, or one that is loaded; the store's own if None.
        trust_code: consent to run code of this machine that the model's folder names
            (``python:module:NAME``).

    Raises:
        InputError: the store has no model and none is given, it cannot be loaded, it names code and
            ``trust_code`` is false, or another model made the codes.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is None:
        remedy = f"to encode a question, add {argument('model')} with the run that made these codes"
        problem = f"the store holds no model, and only words ({argument('by')} words) need none"
        raise InputError(f"{store.address}: {remedy}; {problem}")
    with naming_extra():
        from channelhash.models import load_model  # seconds to load, which words alone do not need

        encoder = load_model(folder, trust_code, device="auto")
    check_model(store, encoder, folder)
    return encoder


def load_query_encoder(
    store: Store,
    model: "Path | QueryEncoder | None" = None,
    modalities: Collection[str] | None = None,
) -> QueryEncoder:
    """Load the exported encoders of a store's model if there are any, else the model.

    `channelhash export` writes them to the subfolder ``onnx`` of the run or the store. Those of
    another model than the one that made the store's codes are ignored.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is None:
        return load_encoder(store, model)
    folder = Path(folder)
    if (folder / DESCRIPTION).exists():
        encoder = ExportedModel(folder)
        check_model(store, encoder, folder)
        if not encoder.is_complete:
            encoder.check_encodes(modalities or ())
        return encoder
    if (folder / FOLDER / DESCRIPTION).exists():
        encoder = ExportedModel(folder / FOLDER)
        if _does_for(store, encoder, modalities):
            return encoder
    return load_encoder(store, model)


def _does_for(store: Store, encoder: ExportedModel, modalities: Collection[str] | None) -> bool:
    """Return whether exported encoders are those of a store's codes and encode enough.

    A run may have exported them before it was trained further.
    """
    needed = encoder.modalities if encoder.is_complete else modalities
    if needed is None or not encoder.reads(needed):
        return False
    return bool(store.model) and encoder.comparable(store.model)


def check_model(store: Store, encoder: QueryEncoder, folder: str | Path) -> None:
    """Raise `InputError` unless an encoder's codes can be compared with those of a store.

    The error names the folder of the encoder.
    """
    if store.model and not encoder.comparable(store.model):
        problem = (
            f"these codes were made by another model than {folder}, and codes of two models "
            "cannot be compared"
        )
        raise InputError(
            f"{store.address}: {problem}; name the model that made them, or encode them again"
        )


def encode_items(encoder: QueryEncoder, modality: str, items: Any) -> NDArray[np.float32]:
    """Encode ``n`` raw items of one modality as real-valued outputs, those of the code first.

    Errors are those of `HashModel.outputs`.

    Raises:
        InputError: items are vectors, and the encoder reads images and texts of this modality.
    """
    are_rows = [isinstance(item, np.ndarray) for item in items]
    if any(are_rows) and not all(are_rows):  # words and a vector in a store of one side
        return np.concatenate([encode_items(encoder, modality, [item]) for item in items])
    if any(are_rows):
        if modality == VECTOR and QUESTION in encoder.modalities:
            modality = QUESTION
        takes_rows = getattr(encoder, "takes_rows", None)
        if takes_rows is None or not takes_rows(modality):
            raise InputError(
                f"{argument('vector')}: the encoder of this store reads the {modality}s "
                "themselves; ask with one of these"
            )
        items = np.stack(items)
    return np.asarray(encoder.outputs(modality, items), np.float32)


def encode_codes(encoder: QueryEncoder, modality: str, items: Any) -> NDArray[np.float32]:
    """Encode items as `encode_items` does, to the outputs ``(n, n_bits)`` of their codes alone."""
    return encode_items(encoder, modality, items)[:, : encoder.n_bits]


def encode_queries(
    encoder: QueryEncoder, modality: str, items: Sequence[str | Path | Image.Image]
) -> list[Query]:
    """Encode texts or images as queries, in one batch.

    Args:
        encoder: the store's model, see `load_encoder`.
        modality: modality of the items, ``"text"`` or ``"image"``.
        items: strings; or image files and opened images.

    Raises:
        InputError: an image cannot be read, or the model does not encode this modality.
    """
    rows = encode_items(encoder, modality, items)
    codes = pack(binarize(rows[:, : encoder.n_bits]))
    return [Query(code, row, modality) for code, row in zip(codes, rows, strict=True)]


def search_store(
    store: Store,
    options: SearchOptions | None = None,
    *,
    text: str | None = None,
    image: ImageSource | None = None,
    like: str | None = None,
    vector: NDArray[Any] | None = None,
    by: str | None = None,
    minus: Sequence[str | ImageSource] = (),
    minus_like: Sequence[str] = (),
    model: Path | QueryEncoder | None = None,
) -> Hits:
    """Search a store with a question: words, an image, a stored item, or several of them together.

    Dates and places in the words narrow the search (`channelhash.search.question.narrow`); the
    answers to these alone are sorted newest first. A search by words alone (``by="words"``) needs
    no model. If the model does not encode texts, words are searched as such, and `Hits.note` says
    so.

    Args:
        store: a store with items.
        options: which items are returned.
        text: words that are wanted.
        image: an image or its file.
        like: id of a stored item.
        vector: ``(d,)``, of the encoder whose vectors the store was made of.
        by: as in `SearchOptions`; with ``like`` alone, the modality of its code to search with.
        minus: words and images that are not wanted.
        minus_like: ids of stored items that are not wanted.
        model: a run or saved model, or one that is loaded; the store's own if None.
    """
    options = options or SearchOptions()
    question = Question(text, image, like, vector=vector, minus=minus, minus_like=minus_like)
    question.check()
    if not store.has_codes:
        raise InputError(
            f"{store.address}: this store has no items yet; add some with `channelhash index add`"
        )
    store.choose_modality(options.modality)  # before a model is loaded in vain
    if by not in (None, "all", WORDS) and question.is_item_alone:
        question = replace(question, like_modality=by)
    else:
        options = replace(options, by=by or options.by)
    search = Search.of(store, question, options)
    encoder = None
    if search.to_encode:
        encoder = load_query_encoder(store, model, search.to_encode)
    hits = search.answer(_encode(encoder, search), encoder)
    corrected = search.corrections(encoder)
    search.suggest_to(hits, [(plan, _encode(encoder, plan)) for plan in corrected])
    return hits


def search_vectors(
    store: Store,
    vectors: NDArray[Any],
    options: SearchOptions | None = None,
    model: Path | QueryEncoder | None = None,
) -> list[Hits]:
    """Search a store of vectors with each of some vectors, as `search_store` does with one.

    Args:
        store: a store that was made of vectors or features, with items.
        vectors: ``(nq, d)``, of the same encoder.
        options: which items are returned.
        model: the model of the store's codes; its own if None.

    Raises:
        InputError: vectors have another width, are zero or not finite, or the store is not of
            vectors.

    Example::

        search_vectors(store, np.load("questions.npy"), SearchOptions(k=10))
    """
    rows = check_vectors(vectors, argument("vectors"))
    encoder = load_query_encoder(store, model)
    return [search_store(store, options, vector=row, model=encoder) for row in rows]


def find_vectors(
    store: Store,
    encoder: QueryEncoder | None,
    vectors: NDArray[Any],
    k: int,
    modality: str | None = None,
    where: str | None = None,
) -> KeyedAnswers:
    """Find the nearest items of each of some vectors ``(nq, d)``, without reading the items.

    Raises:
        InputError: there is no encoder, vectors have another width, are zero or not finite, or the
            store is not of vectors.
    """
    if encoder is None:
        raise InputError(f"{store.address}: has no model, which vectors need; name it")
    rows = check_vectors(vectors, argument("vectors"))
    outputs = encode_items(encoder, choose_rows(store, modality), list(rows))
    if store.stage is not None:
        return store.search_projections(outputs, k, modality, where)
    return store.search_outputs(outputs[:, : store.n_bits], k, modality, where)


def _encode(encoder: QueryEncoder | None, search: Search) -> dict[str, NDArray[np.float32]]:
    """Encode the items of a search, one batch per modality, as far as the encoder can."""
    outputs = {}
    for modality, items in search.to_encode.items():
        if encoder is not None and (modality != "text" or modality in encoder.modalities):
            outputs[modality] = encode_items(encoder, modality, items)
    return outputs
