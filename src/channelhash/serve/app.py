"""The web application: its routes, its lifetime, and how it is opened for a store."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.security import HTTPBearer

from channelhash._version import __version__
from channelhash.data.folder import no_such
from channelhash.errors import InputError, JobError, argument
from channelhash.models.description import QueryEncoder
from channelhash.search import Address, open_store
from channelhash.search.query import load_encoder, load_query_encoder
from channelhash.search.store import Store
from channelhash.serve import (
    explain,
    fields,
    item_schemas,
    items,
    middleware,
    schemas,
    search,
    several,
)
from channelhash.serve.access import Access
from channelhash.serve.routing import PROBLEMS, TOKEN_PROBLEM, Route, content_tag
from channelhash.serve.service import (
    CurrentService,
    CurrentServices,
    Limits,
    Service,
    freeze,
    services,
)
from channelhash.utils.decode import decode_text
from channelhash.utils.watch import Report

#: Module -> its routes that only read; each module of routes is an entry.
READERS: dict[str, APIRouter] = {
    "search": search.router,
    "explain": explain.router,
    "items": items.readers,
}
#: Seconds between two looks whether another store has taken the place of one.
_LOOK = 1.0
#: How many times as long as a look, which may open a store, is waited for the next.
_REST = 10
_log = logging.getLogger("channelhash.serve")
_TOKEN = re.compile(r"[!-~]{16,}")
#: How a token is sent, for the API's description; `Service.check_access` checks it.
_BEARER = HTTPBearer(
    auto_error=False, description="The token in the file of --token-file or --read-token-file."
)


def create_app(*services: Service) -> FastAPI:
    """Create a web application that searches a store, or several by their names, and closes them
    when it ends.

    Where there are several, the API of each begins at ``stores/NAME/``.
    """
    first = services[0]
    apps: dict[str, FastAPI] = {}
    for service in services:
        readers = (*READERS.values(), _router)
        app = _assemble(first, readers, (items.writers, items.deciders), "index.html")
        app.state.service = service
        app.state.apps = {service.name: app}
        apps |= app.state.apps
    if len(apps) > 1:
        app = _assemble(first, (several.router,), (), "stores.html")
        app.state.apps = apps
        for name, each in apps.items():
            app.mount(f"/stores/{name}", each)
    app.add_middleware(middleware.surround, metrics=first.metrics, hosts=first.access.hosts)
    limits = first.limits
    app.add_middleware(
        middleware.read_on, upload_bytes=limits.upload_bytes, seconds=limits.upload_seconds
    )
    return app


def _assemble(
    service: Service, readers: Sequence[APIRouter], writers: Sequence[APIRouter], home: str
) -> FastAPI:
    """Make an application of routes that read, routes that write, and the page at ``/``."""
    needs_token: dict[str, Any] = {"dependencies": [Depends(_BEARER)], "responses": TOKEN_PROBLEM}
    of_readers = needs_token if service.access.read_token else {}
    routers = [(router, of_readers) for router in (*readers, _metrics_router)]
    routers += [(router, needs_token) for router in writers]
    routers += [(router, {}) for router in (_health_router, _make_page_router(home))]
    app = FastAPI(
        title="channelhash",
        version=__version__,
        description="Search images and texts by the Hamming distance of their hash codes.",
        docs_url=None,  # its pages load scripts from another host; /docs is one of ours
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        exception_handlers=middleware.error_handlers([router for router, _ in routers]),
    )
    for router, options in routers:
        app.include_router(router, **options)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    for service in services(app):
        service.warm_up.start()
    following = [asyncio.create_task(_follow(each)) for each in app.state.apps.values()]
    yield
    for task in following:
        task.cancel()
    await asyncio.wait(following)
    for service in services(app):
        service.close()


async def _follow(app: FastAPI) -> None:
    """Let each store that takes the place of an application's answer from then on, once it is
    ready. The one before it is closed after its last question.
    """
    while True:
        start = time.monotonic()
        successor = await run_sync(app.state.service.successor)
        pause = max(_LOOK, _REST * (time.monotonic() - start))
        if successor is not None:
            former: Service = app.state.service
            app.state.service = successor
            _log.warning("%s: answers from the store that is there now", successor.store.address)
            while former.users:
                await asyncio.sleep(_LOOK)
            await run_sync(former.retire)
            del former
            await run_sync(freeze)
        await asyncio.sleep(pause)


def open_app(
    addresses: Mapping[str, str],
    model: Path | None,
    limits: Limits,
    token_file: Path | None,
    hosts: Collection[str] | None,
    read_token_file: Path | None = None,
    mapped: bool = False,
    reports: Mapping[str, Report] = {},
) -> FastAPI:
    """Open stores and create their application; see `create_app`.

    Args:
        addresses: name -> address of a store; the name of one alone is empty.
        model: the model of all; None for that of each store.
        limits: of requests.
        token_file: has the token of those who write.
        hosts: host names that requests may name; None for any.
        read_token_file: has the token of those who read.
        mapped: as in `open_store`.
        reports: name -> progress of indexing the folder that is watched.
    """
    access = _read_access(token_file, read_token_file, hosts)
    models: dict[str, QueryEncoder] = {}
    opened: list[Service] = []
    for name, address in addresses.items():
        store = _open(address, mapped)
        if token_file and not store.writable:
            raise InputError(
                f"{argument('token_file')}: {address} can only be read; make a store with "
                "`channelhash index create`"
            )
        folder = model or store.model_folder
        # Uploaded images are kept beside the codes where the store is a folder of its own.
        folder_of_store = store.folder if store.writable else None
        image_folder = folder_of_store and folder_of_store.resolve() / "pictures"
        load = partial(_load, models, store, folder, token_file is not None)
        first = opened[0] if opened else None
        report = reports.get(name)
        opened.append(Service(store, load, limits, access, image_folder, report, name, first))
    return create_app(*opened)


def _open(address: str, mapped: bool) -> Store:
    """Open a store, and make none where there is nothing."""
    place = Address.parse(address)
    if place.path is not None and not place.path.exists():
        raise no_such(address)
    return open_store(place, mapped=mapped)


def _load(
    models: dict[str, QueryEncoder], store: Store, folder: Path | None, writes: bool
) -> QueryEncoder | None:
    """Load the model that is in a folder, unless another store has it already.

    Its exported encoders are enough for a server that writes nothing; codes that are stored come
    from the model itself.
    """
    if folder is None:
        return None
    key = store.model or str(folder)
    if key not in models:
        models[key] = (load_encoder if writes else load_query_encoder)(store, folder)
    if writes and store.model in models[key].code_spaces:
        raise InputError(
            f"{argument('token_file')}: {folder} may search {store.address}, whose codes another "
            "model made; leave one of them out"
        )
    return models[key]


def _read_access(
    token_file: Path | None, read_token_file: Path | None, hosts: Collection[str] | None
) -> Access:
    token = _read_token(token_file, "token_file") if token_file else None
    read_token = _read_token(read_token_file, "read_token_file") if read_token_file else None
    if token is not None and token == read_token:
        raise InputError(
            f"{argument('read_token_file')}: holds the token of {argument('token_file')}, so that "
            "whoever reads could write"
        )
    return Access(token, read_token, hosts)


def _read_token(path: Path, name: str) -> str:
    """Read the token in a file, its only line."""
    try:
        token = decode_text(path.read_bytes()).strip()
    except UnicodeDecodeError:
        token = ""
    except FileNotFoundError:
        raise InputError(
            f"{argument(name)} {path}: no such file; write one with: openssl rand -hex 32 > {path}"
        ) from None
    if not _TOKEN.fullmatch(token):
        raise InputError(
            f"{argument(name)} {path}: a token is one line of at least 16 ASCII characters without "
            "spaces"
        )
    return token


_STATUSES: dict[int | str, dict[str, Any]] = {500: PROBLEMS[500], 503: PROBLEMS[503]}
_METRICS = {
    "content": {"text/plain": {"schema": {"type": "string"}}},
    "description": "Prometheus's text format.",
}
_MEDIA_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "svg": "image/svg+xml",
    "js": "text/javascript",
}
_router = APIRouter(tags=["server"], responses=_STATUSES, route_class=Route)
#: ``/metrics`` is answered however busy the server is.
_metrics_router = APIRouter(tags=["server"], responses=_STATUSES)
#: ``/health`` and ``/ready``, too. They need no token: a balancer or a container's check has none.
_health_router = APIRouter(tags=["server"], responses=_STATUSES)


@_router.get("/info")
def info(request: Request, service: CurrentService) -> schemas.Info:
    """Return what is searched, which queries can be encoded, and the limits of requests."""
    encoding = service.encoding.result() if service.encoding.done() else None
    is_local = service.access.is_local(request)
    problem = service.report.problem.decode(errors="replace")
    if problem and not is_local:  # lines about files are for this machine alone
        problem = "the folder could not be read; the server's log says why"
    return schemas.Info(
        **service.store.info(),
        asks=list(encoding.batchers) if encoding else ["text", "image"],
        words_alone=encoding is not None and encoding.words_alone,
        writable=service.access.token is not None and service.store.writable,
        loading=list(service.warm_up.steps),
        version=service.store.version,
        indexing=_indexing(service),
        problem=problem,
        local=is_local,
        decides=service.may_decide(request),
        limits=vars(service.limits) | fields.MOST,
    )


def _indexing(service: Service) -> schemas.Indexing | None:
    """Return how far the indexing is that is under way; None if none is."""
    if not service.report.stage:
        return None
    return schemas.Indexing.model_validate(service.report, from_attributes=True)


@_router.get("/labels")
def labels(service: CurrentService) -> item_schemas.Labels:
    """Return the labels of all items."""
    return item_schemas.Labels(labels=service.store.label_counts())


@_health_router.get("/health", response_model_exclude_none=True)
async def health(services: CurrentServices) -> schemas.Health:
    """Return ``ok`` if the server works and what it searches can be read. Needs no token and waits
    for no other request.
    """
    items = sum((await _count(services)).values())
    runs = filter(None, map(_indexing, services))
    return schemas.Health(status="ok", items=items, indexing=next(runs, None))


async def _count(services: Sequence[Service]) -> dict[str, int]:
    """Return name -> number of items of stores."""

    def count() -> dict[str, int]:
        return {service.name: len(service.store) for service in services}

    try:
        return await run_sync(count, limiter=services[0].monitoring)
    except InputError as error:  # nothing is wrong with the request
        raise JobError(str(error)) from None


@_health_router.get("/ready", response_model_exclude_none=True)
async def ready(services: CurrentServices) -> schemas.Health:
    """Return what ``/health`` does once nothing is loading, and 503 before; a folder that is being
    indexed is ready. Needs no token and waits for no other request.
    """
    steps = dict.fromkeys(chain.from_iterable(list(each.warm_up.steps) for each in services))
    if steps:
        raise HTTPException(
            503, f"still loading {', '.join(steps)}; ask again in a second", {"Retry-After": "1"}
        )
    return await health(services)


@_metrics_router.get("/metrics", response_class=Response, responses={200: _METRICS})
async def _metrics(request: Request, services: CurrentServices) -> Response:
    """Return counts and seconds of requests, batch sizes and the number of items, for Prometheus.
    Waits for no other request.
    """
    services[0].check_access(request, writes=False)
    counts = await _count(services)
    text = await run_sync(services[0].metrics.text, counts, limiter=services[0].monitoring)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _make_page_router(home: str) -> APIRouter:
    """Return routes to the page's files, which are read once; no other file can be requested."""
    page = APIRouter(include_in_schema=False)
    for file in Path(__file__).with_name("page").iterdir():
        media_type = _MEDIA_TYPES[file.name.rpartition(".")[2]]
        address = {home: "/", "docs.html": "/docs"}.get(file.name, f"/{file.name}")
        page.add_api_route(address, partial(_send, file.read_bytes(), media_type), methods=["GET"])
    return page


async def _send(content: bytes, media_type: str) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": content_tag(content)}
    return Response(content, media_type=media_type, headers=headers)
