"""Encode what requests send, in batches that they share."""

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.occlusion import Outputs
from channelhash.models.description import QueryEncoder
from channelhash.models.fitted import FittedModel
from channelhash.search.plan import has_unknown_words
from channelhash.search.query import check_model, encode_items
from channelhash.search.rankings import why_no_text
from channelhash.search.store import Store

_BatchItem = TypeVar("_BatchItem")
_BatchResult = TypeVar("_BatchResult")
#: Modalities whose items a server encodes.
_MODALITIES = ("text", "image")
#: Model and modality -> held while it encodes: several stores may share a model.
_locks = defaultdict[tuple[int, str], threading.Lock](threading.Lock)
#: Why a server without a model encodes nothing.
_NO_MODEL = "it has no model; start it with `channelhash serve --model`, or search by id or code"
#: Items that go through the model together: more take longer than they save.
_MAX_BATCH = 64
#: Seconds below which a text is encoded by quick searches themselves.
_QUICK_TEXT = 0.002


class Batcher(Generic[_BatchItem, _BatchResult]):
    """Collect items and work on them in batches, one batch at a time.

    No item waits for a batch to fill: the first one is worked on at once, and those that arrive
    meanwhile are the next batch. All calls come from one event loop.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def measure_both():
    ...     with ThreadPoolExecutor(1) as thread:
    ...         measure = lambda words: [(len(word), len(words)) for word in words]
    ...         batcher = Batcher(measure, thread, 64)
    ...         return await asyncio.gather(batcher("a"), batcher("dog"))
    >>> asyncio.run(measure_both())
    [(1, 2), (3, 2)]
    """

    def __init__(
        self,
        work: Callable[[Sequence[_BatchItem]], Sequence[_BatchResult] | NDArray[Any]],
        thread: Executor,
        max_items: int,
    ) -> None:
        self.work = work
        self._thread = thread
        self._max_items = max_items
        self._waiting: deque[tuple[_BatchItem, asyncio.Future[_BatchResult]]] = deque()
        self._busy = False  # whether the thread has a batch, or will begin one

    async def __call__(self, item: _BatchItem) -> _BatchResult:
        """Return the result of one item; raise what ``work`` raises for it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_BatchResult] = loop.create_future()
        self._waiting.append((item, future))
        if not self._busy:  # items of other requests that are being read now go with it
            self._busy = True
            loop.call_soon(self._thread.submit, self._work_on_batch, loop)
        return await future

    def _work_on_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work on what waits, in the thread, which begins the next batch itself: until the event
        loop did so, it would do nothing.
        """
        size = min(len(self._waiting), self._max_items)
        batch = [self._waiting.popleft() for _ in range(size)]
        batch = [(item, future) for item, future in batch if not future.cancelled()]
        results = self._try([item for item, _ in batch])
        goes_on = bool(self._waiting)
        futures = [future for _, future in batch]
        loop.call_soon_threadsafe(self._return, loop, futures, results, goes_on)
        if goes_on:
            self._thread.submit(self._work_on_batch, loop)

    def _return(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: Sequence[asyncio.Future[_BatchResult]],
        results: Sequence[_BatchResult | Exception] | NDArray[Any],
        goes_on: bool,
    ) -> None:
        """Return the results of a batch, in the event loop, and begin another if the thread found
        nothing to go on with.
        """
        for future, result in zip(futures, results, strict=True):
            if future.done():  # its request has ended
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        if not goes_on:
            self._busy = bool(self._waiting)
            if self._busy:
                self._thread.submit(self._work_on_batch, loop)

    def _try(
        self, items: Sequence[_BatchItem]
    ) -> Sequence[_BatchResult | Exception] | NDArray[Any]:
        """Work on items together, or, if that fails, on each alone: one may be at fault, and the
        others get their results.
        """
        try:
            return self.work(items) if items else []
        except Exception as error:
            if len(items) == 1:
                return [error]
        results: list[_BatchResult | Exception] = []
        for item in items:
            results.extend(self._try([item]))
        return results


@dataclass(frozen=True)
class Encoding:
    """How new items become codes.

    Attributes:
        model: the model; None if there is none.
        batchers: modality -> encoder of its items.
        problems: modality -> why the model cannot encode its items, where it cannot.
        words_alone: whether texts, which the model does not encode, are looked for by their words.
        quick: whether a text is encoded in less time than another thread takes to wake.

    >>> Encoding(None, {}, {"image": "it has no model"}, False).quick
    False
    """

    model: QueryEncoder | None
    batchers: Mapping[str, Batcher[Any, Outputs]]
    problems: Mapping[str, str]
    words_alone: bool
    quick: bool = False

    async def encode(self, modality: str, item: Any) -> Outputs:
        """Encode a text or an image to real-valued outputs ``(k,)``, in a batch shared with other
        requests; or a vector, which takes less time than another thread takes to wake.
        """
        if isinstance(item, np.ndarray):
            return self.encode_vectors({modality: [item]})[modality][0]
        if modality in self.problems:
            raise InputError(
                f"this server cannot encode a new {modality}: {self.problems[modality]}"
            )
        return await self.batchers[modality](item)

    def encode_vectors(self, items: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Outputs]]:
        """Encode the vectors among the items of a search: modality -> outputs."""
        outputs: dict[str, Sequence[Outputs]] = {}
        for modality, values in items.items():
            if not isinstance(values[0], np.ndarray):
                continue
            if self.model is None:
                raise InputError(f"this server cannot encode a vector: {_NO_MODEL}")
            outputs[modality] = list(encode_items(self.model, modality, values))
        return outputs

    @classmethod
    def prepare(
        cls,
        model: QueryEncoder | None,
        store: Store,
        thread: Executor,
        count: Callable[[str, int], None],
    ) -> "Encoding":
        """Check a model, and encode a first text and mostly a first image, so that no request waits
        for what a model loads with its first items.

        Args:
            model: the model of the server, if it has one.
            store: the store that is searched.
            thread: runs the model.
            count: gets the modality and the number of items of each batch.
        """
        if model is None:
            return cls(None, {}, dict.fromkeys(_MODALITIES, _NO_MODEL), words_alone=False)
        check_model(store, model, model.fingerprint())
        if store.n_bits not in (None, model.n_bits):
            raise InputError(
                f"{store.address}: holds codes of {store.n_bits} bits, the model makes "
                f"{model.n_bits}"
            )
        has_unknown_words(model, "words")  # reads the words that the model knows
        problems: dict[str, str] = {}
        batchers: dict[str, Batcher[Any, Outputs]] = {}
        for modality in _MODALITIES:
            problem = _problem(store, model, modality)
            if problem:
                problems[modality] = problem
            else:
                encode = _locked_encoder(model, modality, count)
                batchers[modality] = Batcher(encode, thread, _MAX_BATCH)
        words_alone = "text" not in model.modalities and store.has_words
        is_quick = "text" in batchers and _seconds_of_a_text(model) < _QUICK_TEXT
        return cls(model, batchers, problems, words_alone, is_quick)


#: The encoding of what needs none.
NO_ENCODING = Encoding(None, {}, {}, words_alone=False)


async def wait_for(encoding: Future[Encoding]) -> Encoding:
    """Return how new items become codes, once the model is there; raise what its loading raised."""
    if encoding.done():  # a wrapped future would wake the loop once more for each question
        return encoding.result()
    return await asyncio.shield(asyncio.wrap_future(encoding))


def _locked_encoder(
    model: QueryEncoder, modality: str, count: Callable[[str, int], None]
) -> Callable[[Sequence[Any]], NDArray[np.float32]]:
    """Return an encoder of one modality that one thread uses at a time: the thread of the model, or
    that of quick searches.
    """
    lock = _locks[id(model), modality]

    def encode(items: Sequence[Any]) -> NDArray[np.float32]:
        with lock:
            count(modality, len(items))
            return encode_items(model, modality, items)

    return encode


def _seconds_of_a_text(model: QueryEncoder) -> float:
    """Return the processor time of one text, which a busy machine does not lengthen."""
    start = time.thread_time()
    encode_items(model, "text", ["a picture"])
    return time.thread_time() - start


def _opens_images_later(model: QueryEncoder) -> bool:
    """Return whether the first image opens the network: 75 MB that a server of words does
    without.
    """
    return isinstance(model, FittedModel) and not model.takes_rows("image")


def _problem(store: Store, model: QueryEncoder, modality: str) -> str:
    """Return why new items of a modality cannot be encoded; empty if they can. A model of features
    may name no extractor.
    """
    if modality not in model.modalities:
        encoded = " and ".join(model.modalities)
        return why_no_text(store) if modality == "text" else f"its model encodes {encoded}s"
    if modality == "image" and _opens_images_later(model):
        return ""
    probe: Any = "a picture" if modality == "text" else Image.new("RGB", (64, 64))
    try:
        encode_items(model, modality, [probe])
    except InputError as error:
        return str(error)
    return ""
