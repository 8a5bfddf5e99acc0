"""The service that all routes share: the store, the model behind its batches, limits and counters."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import numpy as np
from fastapi import Depends, HTTPException, Request, UploadFile
from PIL import Image

from channelhash.errors import InputError, JobError
from channelhash.explanation.sides import encode_items
from channelhash.search.fused import ALONE
from channelhash.search.match import find_reference, learn_nonsense, nonsense
from channelhash.search.store import Item, Store
from channelhash.serve.audit import AuditLog
from channelhash.serve.auth import Tokens
from channelhash.serve.batching import Batcher, Outputs
from channelhash.serve.bit_labels import BitLabelCache
from channelhash.serve.browsing import Browser
from channelhash.serve.limits import Limits
from channelhash.serve.metrics import Metrics
from channelhash.serve.places import Places, Room
from channelhash.serve.thumbnails import Thumbnails
from channelhash.serve.uploads import open_upload
from channelhash.serve.warm_up import WarmUp

if TYPE_CHECKING:
    from channelhash.models import HashModel

_MAX_BATCH = 64


@dataclass
class Service:
    """One application's parts.

    Attributes:
        store: the store to search.
        batchers: modality -> encoder of its items.
        problems: modality -> why the model cannot encode its items, where it cannot.
        words_alone: whether texts, which the model does not encode, are looked for by their words.
        limits: limits of one request.
        tokens: tokens that requests must send.
        audit: log of the writes; None keeps none.
        metrics: counters.
        thumbnails: small copies of the images of stored items.
        image_folder: folder of the copies of uploaded images; None keeps none.
        thread: thread that runs the model.
        bit_labels: labels that go with bits, counted at their first use.
        browser: the items in an order, and how many are of each folder and month.
        places: places for requests at one time.
        uploading: places for large bodies at one time, which are kept in memory.
        reading: bodies of JSON that are read at one time.
        reading_forms: forms that are read at one time.
        searching: searches at one time; more threads would only keep the event loop from the interpreter.
        decoding: images that are decoded at one time.
        pixels: room for pixels of decoded images.
        drawing: thumbnails that are drawn at one time.
        monitoring: threads for ``/health`` and ``/metrics``, which wait for no other request.
        grouping: duplicates are looked for one request at a time: of many codes that takes seconds.
        explaining: an explanation encodes hundreds of items, so only a few run at one time.
        warm_up: what is made ready when the server starts.
    """

    store: Store
    batchers: dict[str, Batcher]
    problems: dict[str, str]
    words_alone: bool
    limits: Limits
    tokens: Tokens
    audit: AuditLog | None
    metrics: Metrics
    thumbnails: Thumbnails
    image_folder: Path | None
    thread: ThreadPoolExecutor
    bit_labels: BitLabelCache
    browser: Browser
    places: Places
    pixels: Room
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

    async def encode(self, modality: str, item: Any) -> Outputs:
        """Encode a text or an image to real-valued outputs ``(k,)``, in a batch shared with other requests.

        Raises:
            InputError: the model cannot encode it.
        """
        if modality in self.problems:
            raise InputError(f"this server cannot encode a new {modality}: {self.problems[modality]}")
        return await self.batchers[modality](item)

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
        self.thread.shutdown()
        try:
            self.store.close()
        except JobError as error:
            logging.getLogger("channelhash.serve").error("%s", error)


def make_service(
    store: Store,
    model: "HashModel | None",
    limits: Limits,
    tokens: Tokens,
    image_folder: Path | None,
    audit: AuditLog | None,
) -> Service:
    """Make the parts of an application.

    The model encodes a first text and a first image, so that no request waits while it loads.

    Raises:
        InputError: the store holds codes of another model.
    """
    if model is not None:
        check_model(store, model)
    metrics = Metrics(lambda: len(store))
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode")
    problems = {modality: _problem(model, modality) for modality in ("text", "image")}
    problems = {modality: problem for modality, problem in problems.items() if problem}
    batchers = {
        modality: Batcher(
            partial(encode_items, model, modality), thread, _MAX_BATCH, metrics.batches.labels(modality).observe
        )
        for modality in ("text", "image")
        if model is not None and modality not in problems
    }
    service = Service(
        store,
        batchers,
        problems,
        model is not None and "text" not in model.modalities and store.has_words,
        limits,
        tokens,
        audit,
        metrics,
        thumbnails=Thumbnails(limits.pixels),
        image_folder=image_folder,
        thread=thread,
        bit_labels=BitLabelCache(store),
        browser=Browser(store),
        places=Places(limits.concurrency),
        pixels=Room(2 * limits.pixels),
    )
    steps: dict[str, Callable[[], object]] = {"the order of the items": service.browser.catalogue}
    if model is not None:
        steps["what is close"] = partial(_learn_close, service, model)
    service.warm_up = WarmUp(steps)
    return service


def _learn_close(service: Service, model: "HashModel") -> None:
    """Find out what is close to the questions that can be encoded; see `channelhash.search.match`."""
    store = service.store
    for modality in service.batchers if store.modalities else ():
        if modality == "text" and modality not in store.modalities:
            outputs = service.thread.submit(encode_items, model, modality, nonsense()).result()
            learn_nonsense(store, modality, outputs)
        find_reference(store, modality, store.choose_modality())


def check_model(store: Store, model: "HashModel") -> None:
    """Raise `InputError` unless the store's codes can be compared with the model's."""
    if store.model and not model.comparable(store.model):
        raise InputError(
            f"{store.address}: its codes were made by the model {store.model}, not by this one "
            f"({model.fingerprint()}); codes of two models cannot be compared: give that model with --model, or make "
            "the store again"
        )
    if store.n_bits is not None and store.n_bits != model.n_bits:
        raise InputError(f"{store.address}: holds codes of {store.n_bits} bits, the model makes {model.n_bits}")


def _problem(model: "HashModel | None", modality: str) -> str:
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


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


#: The parameter through which a route gets the service.
CurrentService = Annotated[Service, Depends(_service)]
