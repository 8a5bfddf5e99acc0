"""What a server encodes new items with, in batches: what arrives while a thread is busy is its next batch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.api import encode_items
from channelhash.search.fused import ALONE
from channelhash.search.query_encoder import QueryEncoder
from channelhash.search.store import Store

#: Real-valued outputs of a model.
Outputs = NDArray[np.float32]
Item = TypeVar("Item")
Result = TypeVar("Result")
_MAX_BATCH = 64
_MODALITIES = ("text", "image")


class Batcher(Generic[Item, Result]):
    """Collect items and work on them in batches, one batch at a time.

    No item waits for others: a single item is taken at once, and those that arrive meanwhile are the next batch. All
    calls come from one event loop.

    Args:
        work: maps ``n`` items to ``n`` results, such as outputs ``(n, k)`` of a model.
        thread: executor that runs ``work``.
        max_items: largest size of a batch.
        observe: called with the size of every batch.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def encode_both():
    ...     with ThreadPoolExecutor(1) as thread:
    ...         batcher = Batcher(lambda words: np.array([[len(word)] for word in words]), thread, 64, print)
    ...         return await asyncio.gather(batcher("a"), batcher("dog"))
    >>> [outputs.tolist() for outputs in asyncio.run(encode_both())]
    2
    [[1], [3]]
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result] | NDArray[Any]],
        thread: Executor,
        max_items: int,
        observe: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._thread = thread
        self._max_items = max_items
        self._observe = observe
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """Return the result of one item; raise what ``work`` raises for it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._empty())
        return await future

    async def _empty(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._max_items], self._waiting[self._max_items :]
            await self._answer([(item, future) for item, future in batch if not future.cancelled()])
        self._task = None

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        self._observe(len(batch))
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0][1], error)
            else:  # one item is at fault: the others get their results
                for entry in batch:
                    await self._answer([entry])
            return
        for (_, future), row in zip(batch, results, strict=True):
            _settle(future, row)


def _settle(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    """Deliver a result, unless the request was cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


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
