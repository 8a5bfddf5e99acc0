"""The service that all routes share: the store, the model behind its batches, limits and counters."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import numpy as np
from fastapi import Depends, HTTPException, Request, Response, UploadFile
from PIL import Image

from channelhash.errors import InputError, JobError
from channelhash.search.index import compile_loops
from channelhash.search.match import find_reference
from channelhash.search.query_encoder import QueryEncoder, learn_close
from channelhash.search.store import Item, Store
from channelhash.serve.audit import AuditLog
from channelhash.serve.auth import Tokens
from channelhash.serve.batching import Batcher, Outputs
from channelhash.serve.bit_labels import BitLabelCache
from channelhash.serve.browsing import Browser
from channelhash.serve.encoding import Encoding, done, make_encoding
from channelhash.serve.limits import Limits
from channelhash.serve.metrics import Metrics
from channelhash.serve.places import Places, Room
from channelhash.serve.thumbnails import Thumbnails
from channelhash.serve.uploads import open_upload
from channelhash.serve.warm_up import WarmUp

# Quick searches that one thread answers before the next that arrived.
_TOGETHER = 16


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
        thumbnails: small copies of the images of stored items.
        image_folder: folder of the copies of uploaded images; None keeps none.
        thread: thread that runs the model.
        search_thread: thread of quick searches.
        bit_labels: labels that go with bits, counted at their first use.
        browser: the items in an order, and how many are of each folder and month.
        places: places for requests at one time.
        uploading: places for large bodies at one time, which are kept in memory.
        reading: bodies of JSON that are read at one time.
        reading_forms: forms that are read at one time.
        quick_searches: searches that take milliseconds: those that arrive while some run are answered together by
            one thread, as each change of threads costs as much as a search.
        searching: other searches at one time; more threads would only keep the event loop from the interpreter.
        decoding: images that are decoded at one time.
        pixels: room for pixels of decoded images.
        drawing: thumbnails that are drawn at one time.
        monitoring: threads for ``/health`` and ``/metrics``, which wait for no other request.
        grouping: duplicates are looked for one request at a time: of many codes that takes seconds.
        explaining: an explanation encodes hundreds of items, so only a few run at one time.
        warm_up: what is made ready when the server starts.
    """

    store: Store
    encoding: Future[Encoding]
    limits: Limits
    tokens: Tokens
    audit: AuditLog | None
    metrics: Metrics
    thumbnails: Thumbnails
    image_folder: Path | None
    thread: ThreadPoolExecutor
    search_thread: ThreadPoolExecutor
    bit_labels: BitLabelCache
    browser: Browser
    places: Places
    pixels: Room
    quick_searches: Batcher[Callable[[], Response], Response | Exception]
    uploading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    reading: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    reading_forms: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    searching: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    decoding: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    drawing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    monitoring: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    grouping: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    explaining: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    warm_up: WarmUp = field(default_factory=lambda: WarmUp({}))

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
        """Return an uploaded image and its file's content, checked by `uploads.open_upload`, with room to decode it."""
        content = await upload.read()
        check = partial(open_upload, content, self.limits.pixels, self.limits.side)
        image = await anyio.to_thread.run_sync(check, limiter=self.decoding)
        async with self.pixels.take(image.width * image.height):
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
            logging.getLogger("channelhash.serve").error("%s", error)


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

    here = copy_context().run  # with the caller's consent to code that a model's folder names
    encoding = thread.submit(here, lambda: encoding_of(load())) if load else done(encoding_of(model))
    service = Service(
        store,
        encoding,
        limits,
        tokens,
        audit,
        metrics,
        thumbnails=Thumbnails(limits.pixels),
        image_folder=image_folder,
        thread=thread,
        search_thread=search_thread,
        bit_labels=BitLabelCache(store),
        browser=Browser(store),
        places=Places(limits.concurrency),
        pixels=Room(2 * limits.pixels),
        quick_searches=Batcher(_answer_all, search_thread, _TOGETHER),
    )
    service.warm_up = WarmUp(
        {
            "the model": partial(wait, [encoding]),
            "the compiled search": compile_loops,
            "the order of the items": service.browser.catalogue,
            "what is close": partial(_learn_close, service),
        }
    )
    return service


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


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


#: The parameter through which a route gets the service.
CurrentService = Annotated[Service, Depends(_service)]
