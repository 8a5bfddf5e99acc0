"""The web application: routes, middleware around them, and an orderly end."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from channelhash._version import __version__
from channelhash.models import HashModel
from channelhash.search.store import Store
from channelhash.serve.error_handlers import handle_errors
from channelhash.serve.limits import Limits
from channelhash.serve.metrics import measure_requests
from channelhash.serve.middleware import add_security_headers, check_host, limit_body_size, limit_concurrency
from channelhash.serve.routes import explain as explain_routes
from channelhash.serve.routes import info as info_routes
from channelhash.serve.routes import items as item_routes
from channelhash.serve.routes import search as search_routes
from channelhash.serve.routes.page import make_page_router
from channelhash.serve.service import make_service


def create_app(
    store: Store,
    model: HashModel | None,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    image_folder: Path | None = None,
) -> FastAPI:
    """Create a web application that searches a store, and closes the store when it ends.

    Args:
        store: the store to search.
        model: encoder of queries; without one, only ids and codes are queries.
        limits: limits of one request.
        token: token that write calls must send; None allows no writing.
        hosts: host names that requests may name; None allows any.
        image_folder: folder for small copies of uploaded images; None keeps none.

    Raises:
        InputError: the store holds codes of another model.
    """
    limits = limits or Limits()
    service = make_service(store, model, limits, token, image_folder)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
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
    handle_errors(app)
    routers = (search_routes.router, explain_routes.router, item_routes.readers, item_routes.writers)
    for router in (*routers, info_routes.router, make_page_router()):
        app.include_router(router)
    # The last one is the outermost.
    app.add_middleware(limit_body_size, limit=limits.upload_bytes)
    app.add_middleware(limit_concurrency, limit=limits.concurrency)
    app.add_middleware(check_host, hosts=hosts)
    app.add_middleware(measure_requests, metrics=service.metrics)
    app.add_middleware(add_security_headers)
    return app
