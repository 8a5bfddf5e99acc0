"""The service that all routes share: the store, the model behind its batches, limits, counters, and
what it keeps.
"""

import asyncio
import hmac
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
from anyio import CapacityLimiter, from_thread, to_thread
from fastapi import Depends, HTTPException, Request, Response, UploadFile
from numpy.typing import NDArray
from PIL import Image

from channelhash.errors import InputError, JobError
from channelhash.explanation.api import BitLabels
from channelhash.explanation.occlusion import Outputs
from channelhash.models.description import QueryEncoder
from channelhash.models.fitted import FittedModel
from channelhash.search.answer import ALONE
from channelhash.search.browsing import Catalogue
from channelhash.search.index import compile_loops
from channelhash.search.items import Order
from channelhash.search.match import find_reference
from channelhash.search.query import check_model, encode_items, has_unknown_words
from channelhash.search.store import Item, Store
from channelhash.serve.images import Thumbnails, open_upload
from channelhash.serve.middleware import Metrics, is_loopback
from channelhash.utils.typed_settings import naming_own_code
from channelhash.utils.watch import Report

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MODALITIES = ("text", "image")
_NO_MODEL = "it has no model; start it with --model, or search by id or code"
# Items that go through the model together; quick searches that one thread answers before the next
# that arrived.
_MAX_BATCH = 64
_TOGETHER = 16
# Seconds that a text takes at most which quick searches encode themselves.
_QUICK_TEXT = 0.002
# Words of codes that a search compares on one core, in about 0.3 ms.
_ON_ONE_CORE = 1 << 21
# Pixels of an uploaded image beyond which only two are decoded at one time.
_LARGE_IMAGE = 4_000_000
# Relative change of the number of items after which bit labels are counted again.
_CHANGE = 0.1
# A catalogue that takes longer to make than this is made again when it is this many times as old:
# an indexing run changes the store every few seconds.
_QUICK = 0.2
_TIMES = 10
#: A proxy on this machine adds one of them: its clients are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_log = logging.getLogger("channelhash.serve")


@dataclass(frozen=True)
class Limits:
    """Upper bounds, inclusive. Beyond them a request is refused rather than the server slow.

    Attributes:
        upload_bytes: size of a body with a picture, or of a write.
        question_bytes: size of any other body.
        upload_seconds: time for a body with a picture, or of a write, to arrive.
        question_seconds: time for any other body to arrive.
        pixels: width times height of an image, read from its header before anything is decoded.
        side: longer side of an image, read likewise.
        concurrency: requests processed at one time; a request counts as soon as its body is there.
        patches: patches of an image that one explanation may hide in turn.
        words: words of a text that one explanation leaves out in turn.

    >>> Limits(concurrency=8).patches
    400
    """

    upload_bytes: int = 16_000_000
    question_bytes: int = 64_000
    upload_seconds: int = 60
    question_seconds: int = 10
    pixels: int = 40_000_000
    side: int = 20_000
    concurrency: int = 64
    patches: int = 400
    words: int = 100


class _Batcher(Generic[_Item, _Result]):
    """Collect items and work on them in batches, one batch at a time.

    No item waits for others: a single item is taken at once, and those that arrive meanwhile are
    the next batch. All calls come from one event loop.

    >>> async def measure_both():
    ...     with ThreadPoolExecutor(1) as thread:
    ...         batcher = _Batcher(lambda words: [(len(word), len(words)) for word in words], thread, 64)
    ...         return await asyncio.gather(batcher("a"), batcher("dog"))
    >>> asyncio.run(measure_both())
    [(1, 2), (3, 2)]
    """

    def __init__(
        self,
        work: Callable[[Sequence[_Item]], Sequence[_Result] | NDArray[Any]],
        thread: Executor,
        max_items: int,
    ) -> None:
        self._work = work
        self._thread = thread
        self._max_items = max_items
        self._waiting: list[tuple[_Item, asyncio.Future[_Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: _Item) -> _Result:
        """Return the result of one item; raise what ``work`` raises for it."""
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._empty())
        return await future

    async def _empty(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._max_items]
            self._waiting = self._waiting[self._max_items :]
            batch = [(item, future) for item, future in batch if not future.cancelled()]
            call = partial(self._try, [item for item, _ in batch])
            results = await asyncio.get_running_loop().run_in_executor(self._thread, call)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():  # by the end of its request
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._task = None

    def _try(self, items: Sequence[_Item]) -> Sequence[_Result | Exception] | NDArray[Any]:
        """Work on items; where that fails, on each alone: one may be at fault, and the others get
        their results.
        """
        try:
            return self._work(items) if items else []
        except Exception as error:
            return (
                [error]
                if len(items) == 1
                else [result for item in items for result in self._try([item])]
            )


class Words(NamedTuple):
    """What a quick search has to encode, and how it is answered with the outputs."""

    texts: list[str]
    answer: Callable[[list[Outputs]], Response]


@dataclass(frozen=True)
class _Encoding:
    """How new items become codes.

    Attributes:
        model: the model; None if there is none.
        batchers: modality -> encoder of its items.
        problems: modality -> why the model cannot encode its items, where it cannot.
        words_alone: whether texts, which the model does not encode, are looked for by their words.
        quick: whether a text is encoded in less time than another thread takes to wake.

    >>> _Encoding(None, {}, {"image": "it has no model"}, False).quick
    False
    """

    model: QueryEncoder | None
    batchers: Mapping[str, _Batcher[Any, Outputs]]
    problems: Mapping[str, str]
    words_alone: bool
    quick: bool = False


@dataclass
class Service:
    """One application's parts.

    Attributes:
        store: the store to search.
        load: returns the model, or None if there is none; called in the background, and its error
            is that of ``encoding``.
        limits: limits of one request.
        token: token of requests that write, and may read too; None forbids writing.
        read_token: token of requests that read; None allows everybody to read.
        image_folder: folder of the copies of uploaded images; None keeps none.
        hosts: host names that requests may name; None for any.
        report: of the indexing of the folder that is watched, if one is.
        metrics: counters.
        thread: thread that runs the model.
        search_thread: thread of quick searches.
        encoding: how new items become codes, perhaps still on its way.
        thumbnails: small copies of the images of stored items.
        browser: the items in an order, and how many are of each folder and month.
        places: places for requests at one time.
        quick_searches: searches that take milliseconds: those that arrive while some run are
            answered together by one thread, which encodes their words too, as each change of
            threads costs as much as a search.
        steps: what is still to be made ready, one after the other, from the start of the server on.
        warm_up: the thread that does it.
        uploading: places for large bodies at one time, which are kept in memory.
        large_images: places for uploaded images of many pixels at one time.
        reading_forms: forms that are read at one time.
        searching: other searches at one time; more threads would only keep the event loop from the
            interpreter.
        decoding: images that are decoded at one time.
        drawing: thumbnails that are drawn at one time.
        monitoring: threads for ``/health``, ``/ready`` and ``/metrics``, which wait for no other
            request.
        grouping: duplicates are looked for one request at a time: of many codes that takes seconds.
        explaining: an explanation encodes hundreds of items, so only a few run at one time.
    """

    store: Store
    load: Callable[[], QueryEncoder | None] = lambda: None
    limits: Limits = Limits()
    token: str | None = None
    read_token: str | None = None
    image_folder: Path | None = None
    hosts: Collection[str] | None = None
    report: Report = field(default_factory=Report.new)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.thread = ThreadPoolExecutor(1, "encode")
        self.search_thread = ThreadPoolExecutor(1, "search")
        # With the caller's consent to code that a model's folder names.
        self.encoding = self.thread.submit(copy_context().run, self._make_encoding)
        self.thumbnails = Thumbnails(self.limits.pixels)
        self._counting = threading.Lock()
        self._counted: tuple[int, BitLabels | None] = (-1, None)
        self.browser = _Browser(self.store)
        self.places = asyncio.Semaphore(self.limits.concurrency)
        self.uploading = asyncio.Semaphore(8)
        self.large_images = asyncio.Semaphore(2)
        self.quick_searches: _Batcher[Callable[[], Response | Words | None], Response | None] = (
            _Batcher(self._answer_together, self.search_thread, _TOGETHER)
        )
        self._locks = {modality: threading.Lock() for modality in _MODALITIES}
        self.steps: dict[str, Callable[[], object]] = {
            "the model": partial(wait, [self.encoding]),
            "the compiled search": lambda: compile_loops(
                len(self.store) * -(-(self.store.n_bits or 0) // 64), on_one_core=_ON_ONE_CORE
            ),
            "the order of the items": self.browser.catalogue,
            "the limit of close answers": self._find_references,
        }
        self.warm_up = threading.Thread(target=self._make_ready, name="warm-up")
        self.reading_forms, self.decoding, self.explaining = (CapacityLimiter(2) for _ in range(3))
        self.searching, self.drawing, self.monitoring = (CapacityLimiter(4) for _ in range(3))
        self.grouping = CapacityLimiter(1)

    @naming_own_code()
    def _make_encoding(self) -> _Encoding:
        """Load the model, and encode a first text and mostly a first image: no request waits while
        it loads.
        """
        model = self.load()
        store = self.store
        if model is None:
            return _Encoding(None, {}, dict.fromkeys(_MODALITIES, _NO_MODEL), words_alone=False)
        check_model(store, model, model.fingerprint())
        if store.n_bits not in (None, model.n_bits):
            raise InputError(
                f"{store.address}: holds codes of {store.n_bits} bits, the model makes "
                f"{model.n_bits}"
            )
        has_unknown_words(model, "words")  # which reads the words that it knows
        problems = {
            modality: problem for modality in _MODALITIES if (problem := _problem(model, modality))
        }
        batchers: dict[str, _Batcher[Any, Outputs]] = {
            modality: _Batcher(
                partial(self._encode_batch, model, modality), self.thread, _MAX_BATCH
            )
            for modality in _MODALITIES
            if modality not in problems
        }
        words_alone = "text" not in model.modalities and store.has_words
        start = time.thread_time()  # of this thread: a busy machine makes no model slow
        if "text" in batchers:
            encode_items(model, "text", ["a picture"])
        quick = "text" in batchers and time.thread_time() - start < _QUICK_TEXT
        return _Encoding(model, batchers, problems, words_alone, quick)

    def _encode_batch(
        self, model: QueryEncoder, modality: str, items: Sequence[Any]
    ) -> NDArray[np.float32]:
        with self._locks[modality]:  # the thread of quick searches encodes texts, too
            self.metrics.batches.labels(modality).observe(len(items))
            return encode_items(model, modality, items)

    def _answer_together(
        self, calls: Sequence[Callable[[], Response | Words | None]]
    ) -> list[Response | None]:
        """Call all, encode the words of all in one batch, and answer with these."""
        done = [call() for call in calls]
        texts = [text for words in done if isinstance(words, Words) for text in words.texts]
        model = self.encoding.result().model if texts else None
        rows = iter(self._encode_batch(model, "text", texts) if model else ())
        return [
            each.answer([next(rows) for _ in each.texts]) if isinstance(each, Words) else each
            for each in done
        ]

    def _find_references(self) -> None:
        """Find out what fits the questions that can be encoded; see `channelhash.search.match`."""
        # the server stops, and says why; or it is empty
        if self.encoding.exception() or not self.store.modalities:
            return
        for modality in self.encoding.result().batchers:
            find_reference(self.store, modality, self.store.choose_modality())

    def _make_ready(self) -> None:
        """Take the steps; what fails is a line in the log, and requests that need it say so,
        too.
        """
        for what, step in list(self.steps.items()):
            try:
                if what in self.steps:  # not stopped meanwhile
                    step()
            except (InputError, JobError) as error:
                _log.warning("%s: %s", what, error)
            self.steps.pop(what, None)

    def check_access(self, authorization: str, writes: bool) -> None:
        """Refuse a request: 403 if nobody may write here, 401 if the token sent is missing or
        wrong.

        The comparison takes as long for a nearly correct token as for any other.
        """
        if writes and not self.store.writable:
            line = (
                "this store can only be read: make one to write to with `channelhash index create`"
            )
            raise HTTPException(403, line)
        if writes and self.token is None:
            raise HTTPException(
                403,
                "this server can only be read; start it with --token-file FILE to allow writing",
            )
        if not writes and self.read_token is None:
            return
        headers = {"WWW-Authenticate": "Bearer"}
        scheme, _, sent = authorization.partition(" ")
        if scheme.lower() != "bearer" or not sent:
            action = "writing" if writes else "reading"
            raise HTTPException(
                401, f"{action} needs the header Authorization: Bearer TOKEN", headers
            )
        allowed = [
            token
            for token in (self.token, None if writes else self.read_token)
            if token is not None
        ]
        content = sent.strip().encode("latin-1", "replace")
        # all are compared
        if not sum(hmac.compare_digest(token.encode(), content) for token in allowed):
            raise HTTPException(401, "the token is wrong", headers)

    def is_local(self, request: Request) -> bool:
        """Return whether a request comes from this machine, to a server that no other one
        reaches.
        """
        is_local = self.hosts is not None and all(map(is_loopback, self.hosts))
        forwarded = any(name in request.headers for name in _FORWARDED)
        return (
            is_local
            and not forwarded
            and is_loopback(request.client.host if request.client else "")
        )

    async def get_encoding(self) -> _Encoding:
        """Return how new items become codes, once the model is there; raise what its loading
        raised.
        """
        if self.encoding.done():  # a wrapped future would wake the loop once more for each question
            return self.encoding.result()
        return await asyncio.shield(asyncio.wrap_future(self.encoding))

    async def encode(self, modality: str, item: Any) -> Outputs:
        """Encode a text or an image to real-valued outputs ``(k,)``, in a batch shared with other
        requests.
        """
        encoding = await self.get_encoding()
        if modality in encoding.problems:
            raise InputError(
                f"this server cannot encode a new {modality}: {encoding.problems[modality]}"
            )
        return await encoding.batchers[modality](item)

    async def search(self, call: Callable[[], Response], quick: bool) -> Response:
        """Answer a search in a thread; what ``call`` raises is raised here."""
        if not quick:
            return await to_thread.run_sync(call, limiter=self.searching)
        response = await self.quick_searches(call)
        assert response is not None
        return response

    def encode_from_thread(self, modality: str, items: Sequence[Any]) -> Outputs:
        """Encode ``n`` items to ``(n, k)`` from a worker thread of the application."""

        async def encode_all() -> list[Outputs]:
            return await asyncio.gather(*[self.encode(modality, item) for item in items])

        return np.stack(from_thread.run(encode_all))

    @asynccontextmanager
    async def open_image(self, upload: UploadFile) -> AsyncIterator[tuple[Image.Image, bytes]]:
        """Return an uploaded image and its file's content, checked by `open_upload`, with room to
        decode it.
        """
        content = await upload.read()
        limits = self.limits
        image = await to_thread.run_sync(
            open_upload, content, limits.pixels, limits.side, limiter=self.decoding
        )
        is_large = image.width * image.height > _LARGE_IMAGE
        async with self.large_images if is_large else nullcontext():
            yield image, content

    def bit_labels(self) -> BitLabels | None:
        """Return the labels that go with bits, counted at their first use and again after many
        items have changed.
        """
        with self._counting:  # others wait for the thread that counts
            n_items = len(self.store)
            if abs(n_items - self._counted[0]) > _CHANGE * self._counted[0]:
                self._counted = n_items, BitLabels.load(self.store)
            return self._counted[1]

    def get_item(self, item_id: str) -> Item:
        """Return a stored item, or refuse with status 404."""
        try:
            return self.store.get([item_id])[0]
        except InputError:
            raise HTTPException(404, f"there is no item {item_id[:100]!r}") from None

    def close(self) -> None:
        """Let the model and the step that runs finish, then close the store; a line in the log if
        that is gone.
        """
        self.steps.clear()
        if self.warm_up.is_alive():
            self.warm_up.join()
        self.thread.shutdown(cancel_futures=True)
        self.search_thread.shutdown(cancel_futures=True)
        try:
            self.store.close()
        except JobError as error:
            _log.error("%s", error)


def _problem(model: QueryEncoder, modality: str) -> str:
    """Return why new items of a modality cannot be encoded, or nothing: a model of features may
    name no extractor.
    """
    if modality == "text" and modality not in model.modalities:
        return ALONE
    if modality == "image" and isinstance(model, FittedModel) and not model.takes_rows(modality):
        return ""  # the first image opens the network: 75 MB that a server of words does without
    probe: Any = "a picture" if modality == "text" else Image.new("RGB", (64, 64))
    try:
        encode_items(model, modality, [probe])
    except InputError as error:
        return str(error)
    return ""


class _Browser:
    """The catalogue of a store. Several threads may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None
        self._version = -1
        self._due = 0.0

    def catalogue(self) -> Catalogue:
        """Return the catalogue as of now; of a large store that is being written to, as of some
        seconds ago.
        """
        with self._lock:
            version = self._store.version
            if self._catalogue is None or (
                version != self._version and time.monotonic() >= self._due
            ):
                # of this thread: a busy machine does not make a store large
                start = time.thread_time()
                self._catalogue = Catalogue.of(
                    (item.id, item.metadata) for item in self._store.listed()
                )
                seconds = time.thread_time() - start
                self._version = version
                self._due = time.monotonic() + (0 if seconds < _QUICK else _TIMES * seconds)
            return self._catalogue

    def read(
        self, where: str | None, order: Order, seed: int, part: slice
    ) -> tuple[int, list[Item]]:
        """Return how many items pass a filter, and some of them in an order; see
        `Catalogue.places`.

        Where one of them was deleted since the catalogue was made, this is done with a new one.
        """
        total, ids = self._select(where, order, seed, part)
        items = self._store.get(ids, missing_ok=True)
        if len(items) < len(ids):
            with self._lock:
                self._catalogue = None
            total, ids = self._select(where, order, seed, part)
            items = self._store.get(ids, missing_ok=True)
        return total, items

    def _select(
        self, where: str | None, order: Order, seed: int, part: slice
    ) -> tuple[int, list[str]]:
        catalogue = self.catalogue()
        places = catalogue.places(
            order, seed, None if where is None else set(self._store.ids(where))
        )
        return len(places), [catalogue.ids[place] for place in places[part].tolist()]


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


#: The parameter through which a route gets the service.
CurrentService = Annotated[Service, Depends(_service)]
