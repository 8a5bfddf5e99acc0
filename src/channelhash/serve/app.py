"""The application: routes, guards around them, and an orderly end."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from channelhash._version import __version__
from channelhash.models import HashModel
from channelhash.search.store import Store
from channelhash.serve.error_handlers import handle_problems
from channelhash.serve.limits import Limits
from channelhash.serve.metrics import measured
from channelhash.serve.middleware import bounded_bodies, bounded_concurrency, known_hosts, security_headers
from channelhash.serve.routes import explain as explain_routes
from channelhash.serve.routes import info as info_routes
from channelhash.serve.routes import items as item_routes
from channelhash.serve.routes import search as search_routes
from channelhash.serve.routes.page import page_router
from channelhash.serve.service import make_service


def create_app(
    store: Store,
    model: HashModel | None,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    pictures: Path | None = None,
) -> FastAPI:
    """A web application that searches a store. It closes the store when it ends.

    Args:
        store: what is searched.
        model: what encodes questions; without one, ids and codes can be searched with.
        limits: what one request may ask for.
        token: what write calls have to send; None allows no writing.
        hosts: names that the server may be asked under; None allows any.
        pictures: folder for small copies of uploaded pictures; None keeps none.

    Raises:
        InputError: the store holds codes of another model.
    """
    limits = limits or Limits()
    service = make_service(store, model, limits, token, pictures)

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
    handle_problems(app)
    routers = (search_routes.router, explain_routes.router, item_routes.readers, item_routes.writers)
    for router in (*routers, info_routes.router, page_router()):
        app.include_router(router)
    # The last one stands outermost.
    app.add_middleware(bounded_bodies, limit=limits.upload_bytes)
    app.add_middleware(bounded_concurrency, limit=limits.concurrency)
    app.add_middleware(known_hosts, hosts=hosts)
    app.add_middleware(measured, metrics=service.metrics)
    app.add_middleware(security_headers)
    return app
