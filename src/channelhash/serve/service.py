"""The service that all routes share: a store, a model behind batches, limits and counters."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from anyio import CapacityLimiter, from_thread
from fastapi import Depends, FastAPI, HTTPException, Request

from channelhash.errors import InputError, JobError
from channelhash.explanation.occlusion import Outputs
from channelhash.models.description import QueryEncoder
from channelhash.search.index import compile_loops
from channelhash.search.match import find_reference
from channelhash.search.store import Item, Store
from channelhash.serve.access import Access
from channelhash.serve.caches import Browser, LabelCache
from channelhash.serve.encoding import Encoding, wait_for
from channelhash.serve.images import Thumbnails, Uploads
from channelhash.serve.middleware import Metrics
from channelhash.serve.searcher import Searcher
from channelhash.utils.typed_settings import naming_own_code
from channelhash.utils.watch import Report

#: Words of codes that a search compares on one core, in about 0.3 ms.
_ON_ONE_CORE = 1 << 21
_log = logging.getLogger("channelhash.serve")


@dataclass(frozen=True)
class Limits:
    """Upper bounds, inclusive. Beyond them, a request is refused so that the server stays quick.

    Attributes:
        upload_bytes: size of a body with an image, of a write, or with many vectors.
        question_bytes: size of any other body.
        upload_seconds: time for a body of this size to arrive.
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


class WarmUp(threading.Thread):
    """A thread that makes a server ready, step by step.

    Attributes:
        steps: what is still to be done, by its name for users.
    """

    def __init__(self, steps: dict[str, Callable[[], object]]) -> None:
        super().__init__(name="warm-up")
        self.steps = steps

    def stop(self) -> None:
        """Let the step that runs finish, and drop the others."""
        self.steps.clear()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Take the steps. One that fails is a line in the log; requests that need it fail, too."""
        for what, step in list(self.steps.items()):
            try:
                if what in self.steps:  # not stopped meanwhile
                    step()
            except (InputError, JobError) as error:
                _log.warning("%s: %s", what, error)
            self.steps.pop(what, None)


class Service:
    """What answers from one store. Those of one server share limits, access, counters, threads and
    places.

    Attributes:
        name: the name of the store among several; empty of one alone.
        store: the store to search.
        limits: limits of one request.
        access: who may read and write, and from where.
        image_folder: folder of the copies of uploaded images; None keeps none.
        report: progress of indexing the folder that is watched, if one is.
        metrics: counters.
        encoding: how new items become codes, perhaps still on its way.
        thumbnails: small copies of the images of stored items.
        uploads: opens uploaded images.
        browser: the items in an order, and how many are of each folder and month.
        searcher: answers searches.
        labels: the labels that go with bits.
        warm_up: what makes the server ready in the background.
        places: places for requests at work.
        searching: searches that are not quick, and pages of items, at one time; more threads would
            only keep the event loop from the interpreter.
        explaining: an explanation encodes hundreds of items, so only a few run at one time.
        drawing: thumbnails that are drawn at one time.
        grouping: duplicates are looked for one request at a time: of many codes that takes seconds.
        monitoring: threads for ``/health``, ``/ready`` and ``/metrics``, which wait for no other
            request.
        users: number of requests at work in this store.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[], QueryEncoder | None] = lambda: None,
        limits: Limits = Limits(),
        access: Access | None = None,
        image_folder: Path | None = None,
        report: Report | None = None,
        name: str = "",
        first: "Service | None" = None,
    ) -> None:
        """Begin to load the model in the background: ``load`` returns it, or None if there is none.
        Its error is raised by `encoding`. ``first`` is the first service of a server.
        """
        if first is None:
            self._begin(limits, access or Access())
        else:
            vars(self).update(vars(first))
        self.name = name
        self.image_folder = image_folder
        self.report = report or Report.new()
        # With the caller's consent to code that a model's folder names.
        self.encoding: Future[Encoding] = self._threads[0].submit(
            copy_context().run, self._prepare, load, store
        )
        self._refusal = ""
        self._take(store)

    def _begin(self, limits: Limits, access: Access) -> None:
        """Make what all services of a server share."""
        self.limits = limits
        self.access = access
        self.metrics = Metrics()
        self.thumbnails = Thumbnails(limits.pixels)
        self.uploads = Uploads(limits.pixels, limits.side)
        self._threads = (ThreadPoolExecutor(1, "encode"), ThreadPoolExecutor(1, "search"))
        self.places = asyncio.Semaphore(limits.concurrency)
        self.searching = CapacityLimiter(4)
        self.explaining = CapacityLimiter(2)
        self.drawing = CapacityLimiter(4)
        self.grouping = CapacityLimiter(1)
        self.monitoring = CapacityLimiter(4)

    def _take(self, store: Store) -> None:
        """Take the store to answer from."""
        self.store = store
        self.browser = Browser(store)
        self.labels = LabelCache(store)
        self.searcher = Searcher(
            store, self.browser, self.encoding, self._threads[1], self.searching
        )
        self.warm_up = WarmUp(
            {
                "the model": partial(wait, [self.encoding]),
                "the compiled search": self._compile_search,
                "the order of the items": self.browser.catalogue,
                "the limit of close answers": self._find_references,
            }
        )
        self.users = 0

    def successor(self) -> "Service | None":
        """Return the service of the store that has taken the place of this one's, ready to answer;
        None if none has.

        It encodes as this one does. A store that cannot be opened, or holds codes of another
        encoder, is a line in the log.
        """
        store = None
        try:
            store = self.store.successor()
        except (InputError, JobError, OSError) as error:
            if str(error) != self._refusal:
                _log.error("%s; the store before it goes on answering", error)
            self._refusal = str(error)
        if store is None:
            return None
        other = copy(self)
        other._take(store)
        other.warm_up.run()
        return other

    @naming_own_code()
    def _prepare(self, load: Callable[[], QueryEncoder | None], store: Store) -> Encoding:
        return Encoding.prepare(load(), store, self._threads[0], self.metrics.count_batch)

    def _compile_search(self) -> None:
        words_a_code = -(-(self.store.n_bits or 0) // 64)
        compile_loops(len(self.store) * words_a_code, on_one_core=_ON_ONE_CORE)

    def _find_references(self) -> None:
        """Find out which answers fit the questions that can be encoded, see
        `channelhash.search.match`.
        """
        # Without its model the server stops and says why; an empty store has no answers.
        if self.encoding.exception() or not self.store.modalities:
            return
        for modality in self.encoding.result().batchers:
            find_reference(self.store, modality, self.store.choose_modality())

    def check_access(self, request: Request, writes: bool, decides: bool = False) -> None:
        """Refuse a request with status 403 or 401; see `Access.check`.

        Where nobody has a token to write, decisions about copies are taken from the page of this
        server on its own machine.
        """
        if writes and not self.store.writable:
            line = (
                "this store can only be read: make one to write to with `channelhash index create`"
            )
            raise HTTPException(403, line)
        access = self.access
        needs_no_token = decides and access.token is None and access.is_own_page(request)
        access.check(request.headers.get("authorization", ""), writes and not needs_no_token)

    def may_decide(self, request: Request) -> bool:
        """Return whether the page that asks may decide about copies, perhaps with a token."""
        has_way = self.access.token is not None or self.access.is_local(request)
        return self.store.writable and has_way

    async def encode(self, modality: str, item: Any) -> Outputs:
        """Encode a text or an image once the model is there, see `Encoding.encode`."""
        return await (await wait_for(self.encoding)).encode(modality, item)

    def encode_from_thread(self, modality: str, items: Sequence[Any]) -> Outputs:
        """Encode ``n`` items to the outputs ``(n, k)`` of their codes from a worker thread of the
        application.
        """

        async def encode_all() -> list[Outputs]:
            return await asyncio.gather(*[self.encode(modality, item) for item in items])

        return np.stack(from_thread.run(encode_all))[:, : self.store.n_bits]

    def get_item(self, item_id: str) -> Item:
        """Return a stored item, or refuse with status 404."""
        try:
            return self.store.get([item_id])[0]
        except InputError:
            raise HTTPException(404, f"there is no item {item_id[:100]!r}") from None

    def close(self) -> None:
        """Let the model and the step that runs finish, then close the store."""
        self.warm_up.stop()
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)
        self.retire()

    def retire(self) -> None:
        """Close the store, which nobody uses any more; log a line if it is gone."""
        self.warm_up.stop()
        try:
            self.store.close()
        except JobError as error:
            _log.error("%s", error)


def freeze() -> None:
    """Free what is not used any more, and freeze all other objects: collecting them again would
    stop every request for a fifth of a second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def services(app: FastAPI) -> list[Service]:
    """Return the services of an application: that of its store, or of each of several."""
    return [each.state.service for each in app.state.apps.values()]


async def _services(request: Request) -> AsyncIterator[list[Service]]:
    """Yield the services of an application, whose stores stay open meanwhile."""
    used = services(request.app)
    for service in used:
        service.users += 1
    try:
        yield used
    finally:
        for service in used:
            service.users -= 1


#: The parameter through which a route gets the services of all stores that it may be asked about.
CurrentServices = Annotated[list[Service], Depends(_services)]


async def _service(used: CurrentServices) -> Service:
    return used[0]


#: The same of a route of one store.
CurrentService = Annotated[Service, Depends(_service)]
