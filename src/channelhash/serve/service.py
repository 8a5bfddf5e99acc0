"""The service that all routes share: the store, the model behind its batches, limits, counters, and what it keeps."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import numpy as np
from fastapi import Depends, HTTPException, Request, Response, UploadFile
from numpy.typing import NDArray
from PIL import Image

from channelhash.errors import InputError, JobError
from channelhash.explanation.bit_labels import BitLabels, load_bit_labels
from channelhash.search.catalogue import KEYS, Catalogue, Order, make_catalogue, month_filter
from channelhash.search.index import compile_loops
from channelhash.search.match import find_reference
from channelhash.search.query_encoder import QueryEncoder, learn_close
from channelhash.search.store import Item, Store
from channelhash.serve.access import AuditLog, Tokens
from channelhash.serve.encoding import Batcher, Encoding, Outputs, make_encoding
from channelhash.serve.images import Thumbnails, open_upload
from channelhash.serve.limits import Limits
from channelhash.serve.middleware import Metrics

# Quick searches that one thread answers before the next that arrived.
_TOGETHER = 16
# Pixels of an uploaded image beyond which only two are decoded at one time.
_LARGE_IMAGE = 4_000_000
# Relative change of the number of items after which bit labels are counted again.
_CHANGE = 0.1
# Selections that are kept, 4 bytes an item each.
_KEPT = 8
# A catalogue that takes longer to make than this is made again when it is this many times as old: an indexing run
# changes the store every few seconds.
_QUICK, _TIMES = 0.2, 10
_log = logging.getLogger("channelhash.serve")


@dataclass
class Service:
    """One application's parts.

    Attributes:
        store: the store to search.
        encoding: how new items become codes, perhaps still on its way.
        limits: limits of one request.
        tokens: tokens that requests must send.
        audit: log of the writes; None keeps none.
        metrics: counters.
        image_folder: folder of the copies of uploaded images; None keeps none.
        thread: thread that runs the model.
        search_thread: thread of quick searches.
        thumbnails: small copies of the images of stored items.
        bit_labels: labels that go with bits, counted at their first use.
        browser: the items in an order, and how many are of each folder and month.
        places: places for requests at one time.
        quick_searches: searches that take milliseconds: those that arrive while some run are answered together by
            one thread, as each change of threads costs as much as a search.
        warm_up: what is made ready when the server starts.
        uploading: places for large bodies at one time, which are kept in memory.
        large_images: places for uploaded images of many pixels at one time.
        reading_forms: forms that are read at one time.
        searching: other searches at one time; more threads would only keep the event loop from the interpreter.
        decoding: images that are decoded at one time.
        drawing: thumbnails that are drawn at one time.
        monitoring: threads for ``/health`` and ``/metrics``, which wait for no other request.
        grouping: duplicates are looked for one request at a time: of many codes that takes seconds.
        explaining: an explanation encodes hundreds of items, so only a few run at one time.
    """

    store: Store
    encoding: Future[Encoding]
    limits: Limits
    tokens: Tokens
    audit: AuditLog | None
    metrics: Metrics
    image_folder: Path | None
    thread: ThreadPoolExecutor
    search_thread: ThreadPoolExecutor

    def __post_init__(self) -> None:
        self.thumbnails = Thumbnails(self.limits.pixels)
        self.bit_labels = BitLabelCache(self.store)
        self.browser = Browser(self.store)
        self.places = asyncio.Semaphore(self.limits.concurrency)
        self.uploading, self.large_images = asyncio.Semaphore(8), asyncio.Semaphore(2)
        self.quick_searches: Batcher[Callable[[], Response], Response | Exception] = Batcher(
            _answer_all, self.search_thread, _TOGETHER
        )
        self.warm_up = WarmUp(
            {
                "the model": partial(wait, [self.encoding]),
                "the compiled search": compile_loops,
                "the order of the items": self.browser.catalogue,
                "what is close": partial(_learn_close, self),
            }
        )
        limiter = anyio.CapacityLimiter
        self.reading_forms, self.decoding, self.explaining = limiter(2), limiter(2), limiter(2)
        self.searching, self.drawing, self.monitoring = limiter(4), limiter(4), limiter(4)
        self.grouping = limiter(1)

    @property
    def writable(self) -> bool:
        """Return whether requests with the token may write."""
        return self.tokens.write is not None and self.store.writable

    def check_access(self, authorization: str, writes: bool) -> None:
        """Refuse a request to a store that it may not read or write; see `Tokens.check`."""
        if writes and not self.store.writable:
            line = "this store can only be read: make one to write to with `channelhash index create`"
            raise HTTPException(403, line)
        self.tokens.check(authorization, writes)

    async def encoded(self) -> Encoding:
        """Return how new items become codes, once the model is there; raise what its loading raised."""
        if self.encoding.done():
            return self.encoding.result()
        return await asyncio.shield(asyncio.wrap_future(self.encoding))

    async def encode(self, modality: str, item: Any) -> Outputs:
        """Encode a text or an image to real-valued outputs ``(k,)``, in a batch shared with other requests.

        A request waits for a model that is still loaded.

        Raises:
            InputError: the model cannot encode it.
        """
        encoding = await self.encoded()
        encoding.refuse(modality)
        return await encoding.batchers[modality](item)

    async def search(self, call: Callable[[], Response], quick: bool) -> Response:
        """Answer a search in a thread; what ``call`` raises is raised here.

        Args:
            call: searches and writes the answer.
            quick: whether that takes milliseconds.
        """
        if not quick:
            return await anyio.to_thread.run_sync(call, limiter=self.searching)
        answer = await self.quick_searches(call)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def encode_from_thread(self, modality: str, items: Sequence[Any]) -> Outputs:
        """Encode ``n`` items to ``(n, k)`` from a worker thread of the application."""

        async def encode_all() -> list[Outputs]:
            return await asyncio.gather(*[self.encode(modality, item) for item in items])

        return np.stack(anyio.from_thread.run(encode_all))

    @asynccontextmanager
    async def open_image(self, upload: UploadFile) -> AsyncIterator[tuple[Image.Image, bytes]]:
        """Return an uploaded image and its file's content, checked by `open_upload`, with room to decode it."""
        content = await upload.read()
        check = partial(open_upload, content, self.limits.pixels, self.limits.side)
        image = await anyio.to_thread.run_sync(check, limiter=self.decoding)
        is_large = image.width * image.height > _LARGE_IMAGE
        async with self.large_images if is_large else nullcontext():
            yield image, content

    @contextmanager
    def noted(self, request: Request, ids: Sequence[str]) -> Iterator[None]:
        """Note a write in the audit log, if there is one; see `AuditLog.noted`."""
        if self.audit is None:
            yield
            return
        route = getattr(request.scope.get("route"), "path_format", "")
        address = request.client.host if request.client else ""
        with self.audit.noted(
            method=request.method, route=route, address=address, token=self.tokens.writer, items=len(ids), ids=list(ids)
        ):
            yield

    def get_item(self, item_id: str) -> Item:
        """Return a stored item, or refuse with status 404."""
        try:
            return self.store.get([item_id])[0]
        except InputError:
            raise HTTPException(404, f"there is no item {item_id[:100]!r}") from None

    def close(self) -> None:
        """Let the model finish, then close the store; a store that is gone is a line in the log."""
        self.warm_up.stop()
        self.thread.shutdown(cancel_futures=True)
        self.search_thread.shutdown(cancel_futures=True)
        try:
            self.store.close()
        except JobError as error:
            _log.error("%s", error)


def make_service(
    store: Store,
    model: QueryEncoder | None,
    limits: Limits,
    tokens: Tokens,
    image_folder: Path | None,
    audit: AuditLog | None,
    load: Callable[[], QueryEncoder] | None = None,
) -> Service:
    """Make the parts of an application.

    ``load`` returns the model instead and is called in the background: its error is that of `Service.encoding`.

    Raises:
        InputError: the store holds codes of another model.
    """
    metrics = Metrics(lambda: len(store))
    thread, search_thread = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("encode", "search"))

    def encoding_of(model: QueryEncoder | None) -> Encoding:
        return make_encoding(store, model, thread, lambda modality: metrics.batches.labels(modality).observe)

    encoding: Future[Encoding] = Future()
    if load is None:
        encoding.set_result(encoding_of(model))
    else:  # with the caller's consent to code that a model's folder names
        encoding = thread.submit(copy_context().run, lambda: encoding_of(load()))
    return Service(store, encoding, limits, tokens, audit, metrics, image_folder, thread, search_thread)


def _answer_all(calls: Sequence[Callable[[], Response]]) -> list[Response | Exception]:
    """Return each call's answer, or what it raised."""
    answers: list[Response | Exception] = []
    for call in calls:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)
    return answers


def _learn_close(service: Service) -> None:
    """Find out what is close to the questions that can be encoded; see `channelhash.search.match`."""
    if service.encoding.exception():  # the server stops, and says why
        return
    store, encoding = service.store, service.encoding.result()
    if encoding.model is None or not store.modalities:
        return
    for modality in encoding.batchers:
        if modality == "text":
            service.thread.submit(learn_close, store, encoding.model).result()
        find_reference(store, modality, store.choose_modality())


class WarmUp:
    """Steps that run one after the other in a thread of their own.

    Args:
        steps: what is loaded, in words -> the step.

    >>> warm_up = WarmUp({"the items": list})
    >>> warm_up.start()
    >>> warm_up.stop()
    >>> warm_up.loading
    []
    """

    def __init__(self, steps: Mapping[str, Callable[[], object]]) -> None:
        self._steps = dict(steps)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="warm-up")
        #: What is not ready yet, in words.
        self.loading = list(steps)

    def add(self, what: str, step: Callable[[], object]) -> None:
        """Add a last step, before `start`."""
        self._steps[what] = step
        self.loading.append(what)

    def start(self) -> None:
        """Begin with the first step."""
        self._thread.start()

    def stop(self) -> None:
        """Let the step that runs finish, and leave the others."""
        self._stopped = True
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        for what, step in self._steps.items():
            try:
                if not self._stopped:
                    step()
            except (InputError, JobError) as error:  # requests that need it say so, too
                _log.warning("%s: %s", what, error)
            self.loading = self.loading[1:]


class BitLabelCache:
    """The bit labels of a store, counted once, and again when many items have been added or deleted.

    Several threads may call it: the others wait for the one that counts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counted: tuple[int, BitLabels | None] | None = None

    def __call__(self) -> BitLabels | None:
        """Return the bit labels, None where no labels are known."""
        with self._lock:
            n_items = len(self._store)
            if self._counted is None or abs(n_items - self._counted[0]) > _CHANGE * self._counted[0]:
                self._counted = n_items, load_bit_labels(self._store)
            return self._counted[1]


class Browser:
    """The catalogue of a store, and the selections that were asked for last. Several threads may call it.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None
        self._version, self._made, self._seconds = -1, 0.0, 0.0
        self._kept: dict[tuple[str | None, Order, int], NDArray[np.int32]] = {}
        #: Whether the catalogue is being made.
        self.busy = False

    def catalogue(self) -> Catalogue:
        """Return the catalogue as of now; of a large store that is being written to, as of some seconds ago."""
        with self._lock:
            version, age = self._store.version, time.monotonic() - self._made
            due = self._seconds < _QUICK or age > _TIMES * self._seconds
            if self._catalogue is None or (version != self._version and due):
                self._make(version)
            assert self._catalogue is not None
            return self._catalogue

    def forget(self) -> None:
        """Make the catalogue again at its next use."""
        with self._lock:
            self._version, self._seconds = -1, 0.0

    def select(self, where: str | None, order: Order, seed: int, part: slice) -> tuple[int, list[str]]:
        """Return how many items pass a filter, and the ids of some of them in an order; see `Catalogue.places`."""
        catalogue, key = self.catalogue(), (where, order, seed if order == "random" else 0)
        with self._lock:
            places = self._kept.get(key) if catalogue is self._catalogue else None
        if places is None:
            among = None if where is None else set(self._store.ids(where))
            places = catalogue.places(order, seed, among)
            with self._lock:
                if catalogue is self._catalogue:
                    self._kept[key] = places
                    if len(self._kept) > _KEPT:
                        del self._kept[next(iter(self._kept))]
        return len(places), [catalogue.ids[place] for place in places[part].tolist()]

    def narrow(self, where: str | None, labels: Sequence[str], folder: str | None, month: str | None) -> str | None:
        """Return the filter of all of these together; None where there are none.

        Args:
            where: a filter.
            labels: items of any of these.
            folder: items in or below it.
            month: items of a month, a year or a day.

        Raises:
            InputError: the filter is wrong, or no item has a date.
        """
        parts = []
        if labels:
            parts.append(f"label IN ({', '.join(map(_quoted, labels))})")
        if folder:
            parts.append(f"(id >= {_quoted(f'{folder}/')} AND id < {_quoted(f'{folder}0')})")  # 0 comes after /
        if month:
            parts.append(month_filter(month, self.catalogue().date_keys))
            if not parts[-1]:
                raise InputError("month: no item of this store has a date")
        if where and parts:
            self._store.check_filter(where)  # alone: what is unbalanced may be balanced among the others
            parts.append(f"({where})")
        return " AND ".join(parts) or where or None

    def _make(self, version: int) -> None:
        start, self.busy = time.monotonic(), True
        try:
            self._catalogue = make_catalogue(self._store.metadata(KEYS))
        finally:
            self.busy = False
        self._version, self._made, self._kept = version, time.monotonic(), {}
        self._seconds = self._made - start


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


#: The parameter through which a route gets the service.
CurrentService = Annotated[Service, Depends(_service)]
