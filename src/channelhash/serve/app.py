"""The web application: routes, middleware around them, an orderly end; and how it is made of a store's address."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from channelhash._version import __version__
from channelhash.data.folder import no_such
from channelhash.errors import InputError, check_address
from channelhash.models.exported import ExportedModel
from channelhash.search import STORES, open_store
from channelhash.search.photo_folders import find_or_keep
from channelhash.search.query import QueryEncoder, load_encoder, load_query_encoder
from channelhash.search.store import Store
from channelhash.serve import explain, info, items, middleware, search
from channelhash.serve.middleware import BEARER, TOKEN_PROBLEM, Tokens, read_token
from channelhash.serve.service import Limits, Service


def create_app(
    store: Store,
    model: QueryEncoder | None,
    limits: Limits | None = None,
    token: str | Tokens | None = None,
    hosts: Collection[str] | None = None,
    image_folder: Path | None = None,
    load: Callable[[], QueryEncoder] | None = None,
) -> FastAPI:
    """Create a web application that searches a store, and closes the store when it ends.

    Args:
        store: the store to search.
        model: encoder of queries; without one, only ids and codes are queries.
        limits: limits of one request.
        token: token that write calls must send, or the tokens of writing and reading; None allows no writing.
        hosts: host names that requests may name; None allows any.
        image_folder: folder for small copies of uploaded images; None keeps none.
        load: returns the encoder instead, called in the background while requests are answered.

    Raises:
        InputError: the store holds codes of another model.
    """
    tokens = token if isinstance(token, Tokens) else Tokens(token)
    service = Service(store, limits or Limits(), tokens, image_folder, load or (lambda: model))
    if load is None:
        service.encoding.result()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.warm_up.start()
        yield
        service.close()

    app = FastAPI(
        title="channelhash",
        version=__version__,
        description="Search pictures and texts by the Hamming distance of their hash codes.",
        docs_url=None,  # its pages load scripts from another host; /docs is one of ours
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    needs_token: dict[str, Any] = {"dependencies": [Depends(BEARER)], "responses": TOKEN_PROBLEM}
    readers, page = (search.router, explain.router, items.readers, info.router), info.make_page_router()
    for router in readers:
        app.include_router(router, **(needs_token if tokens.read else {}))
    app.include_router(items.writers, **needs_token)
    for router in (info.health_router, page):
        app.include_router(router)
    middleware.handle_errors(app, partial(_allowed_methods, (*readers, items.writers, info.health_router, page)))
    # The last one is the outermost.
    app.add_middleware(middleware.answer_without_body)
    app.add_middleware(middleware.surround, metrics=service.metrics, hosts=hosts)
    return app


def _allowed_methods(routers: Sequence[APIRouter], path: str) -> set[str]:
    """Return the methods of all routes whose pattern a path matches."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return methods | {"HEAD"} if "GET" in methods else methods


def open_app(
    address: str,
    model: Path | None,
    limits: Limits,
    token_file: Path | None,
    hosts: Collection[str] | None,
    read_token_file: Path | None = None,
    mapped: bool = False,
) -> FastAPI:
    """Open a store and create its application; see `create_app`.

    Args:
        address: address of an existing store, see `open_store`.
        model: a run or saved model; the store's own if None, and none at all if it has none.
        limits: limits of one request.
        token_file: file of the token that write calls need.
        hosts: host names that requests may name.
        read_token_file: file of the token that other calls need; None allows everybody to read.
        mapped: see `open_store`.

    Raises:
        InputError: there is no such store, its codes are another model's, or a token is given for a store that can only
            be read.
    """
    check_address(address)
    is_path = not address.startswith(tuple(STORES))
    if is_path and not Path(address).exists():
        raise no_such(address)
    token = read_token(token_file) if token_file else None
    tokens = Tokens(token, read_token(read_token_file, "--read-token-file") if read_token_file else None)
    if token is not None and token == tokens.read:
        raise InputError("--read-token-file: holds the token of --token-file, so that whoever reads could write")
    store = open_store(address, mapped=mapped)
    if token is not None and not store.writable:
        raise InputError(f"--token-file: {address} can only be read; make a store with `channelhash index create`")
    folder = model or store.model_folder
    # Uploaded images are kept beside the codes where the store is a folder of its own.
    image_folder = find_or_keep(Path(address)).resolve() / "pictures" if is_path and store.writable else None
    load = partial(_load, store, folder, token is not None) if folder else None
    return create_app(store, None, limits, tokens, hosts, image_folder, load)


def _load(store: Store, folder: Path, writes: bool) -> QueryEncoder:
    """Load the model; its exported encoders do where nothing is written, so that stored codes are the model's own."""
    model: Any = load_encoder(store, folder) if writes else load_query_encoder(store, folder)
    if isinstance(model, ExportedModel):
        return model
    if writes and store.model in model.code_spaces:
        raise InputError(
            f"--token-file: {folder} may search {store.address}, whose codes another model made; leave one of them out"
        )
    from channelhash.utils.environment import pick_device

    encoder: QueryEncoder = model.to(pick_device("auto"))
    return encoder
