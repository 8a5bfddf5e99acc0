"""The web application: routes, middleware around them, and an orderly end."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from channelhash._version import __version__
from channelhash.search.query_encoder import QueryEncoder
from channelhash.search.store import Store
from channelhash.serve.access import BEARER, AuditLog, Tokens
from channelhash.serve.limits import Limits
from channelhash.serve.middleware import (
    TOKEN_PROBLEM,
    add_security_headers,
    answer_without_body,
    check_host,
    handle_errors,
    measure_requests,
)
from channelhash.serve.routes import explain, info, items, search
from channelhash.serve.service import make_service


def create_app(
    store: Store,
    model: QueryEncoder | None,
    limits: Limits | None = None,
    token: str | Tokens | None = None,
    hosts: Collection[str] | None = None,
    image_folder: Path | None = None,
    audit: AuditLog | None = None,
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
        audit: log of the writes; None keeps none.
        load: returns the encoder instead, called in the background while requests are answered.

    Raises:
        InputError: the store holds codes of another model.
    """
    limits = limits or Limits()
    tokens = token if isinstance(token, Tokens) else Tokens(token)
    service = make_service(store, model, limits, tokens, image_folder, audit, load)

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
    _include_routes(app, tokens)
    # The last one is the outermost.
    app.add_middleware(answer_without_body)
    app.add_middleware(check_host, hosts=hosts)
    app.add_middleware(measure_requests, metrics=service.metrics)
    app.add_middleware(add_security_headers)
    return app


def _include_routes(app: FastAPI, tokens: Tokens) -> None:
    """Add all routes and the answers to requests that none of them takes."""
    needs_token: dict[str, Any] = {"dependencies": [Depends(BEARER)], "responses": TOKEN_PROBLEM}
    readers = (search.router, explain.router, items.readers, info.router)
    for router in readers:
        app.include_router(router, **(needs_token if tokens.read else {}))
    app.include_router(items.writers, **needs_token)
    page = info.make_page_router()
    for router in (info.health_router, page):
        app.include_router(router)
    handle_errors(app, partial(_allowed_methods, (*readers, items.writers, info.health_router, page)))


def _allowed_methods(routers: Sequence[APIRouter], path: str) -> set[str]:
    """Return the methods of all routes whose pattern a path matches."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return methods | {"HEAD"} if "GET" in methods else methods
