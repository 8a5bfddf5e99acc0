"""The state of the server (``/info``, ``/labels``, ``/health``, ``/metrics``), and the files of the page."""

from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Response

from channelhash.serve.middleware import PROBLEMS, content_tag
from channelhash.serve.routing import MonitoringRoute, Route
from channelhash.serve.schemas import MOST, Health, Info, Labels
from channelhash.serve.service import CurrentService

_STATUSES: dict[int | str, dict[str, Any]] = {500: PROBLEMS[500], 503: PROBLEMS[503]}
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "svg": "image/svg+xml", "js": "text/javascript"}
router = APIRouter(tags=["server"], responses=_STATUSES, route_class=Route)
#: ``/health`` needs no token: a balancer or a container's check has none.
health_router = APIRouter(tags=["server"], responses=_STATUSES)


@router.get("/info")
def info(service: CurrentService) -> Info:
    """Return what is searched, which queries can be encoded, and the limits of requests."""
    facts = service.store.info()
    encoding = service.encoding.result() if service.encoding.done() else None
    return Info(
        items=facts["items"],
        n_bits=facts["n_bits"],
        codes=facts["codes"],
        model=facts["model"],
        asks=list(encoding.batchers) if encoding else ["text", "image"],
        words_alone=encoding is not None and encoding.words_alone,
        writable=service.tokens.write is not None and service.store.writable,
        loading=list(service.warm_up.steps),
        limits=asdict(service.limits) | MOST,
    )


@router.get("/labels")
def labels(service: CurrentService) -> Labels:
    """Return the labels of all items."""
    return Labels(labels=service.store.label_counts())


@health_router.get("/health")
async def health(service: CurrentService) -> Health:
    """Return ``ok`` if the server works and its store can be read. Needs no token and waits for no other request."""
    items = await anyio.to_thread.run_sync(len, service.store, limiter=service.monitoring)
    return Health(status="ok", items=items)


async def _metrics(service: CurrentService) -> Response:
    """Return requests, seconds, batch sizes and items, for Prometheus. Waits for no other request."""
    text = await anyio.to_thread.run_sync(service.metrics.text, limiter=service.monitoring)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


router.add_api_route(
    "/metrics",
    _metrics,
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus's text format."}
    },
    route_class_override=MonitoringRoute,
)


def make_page_router() -> APIRouter:
    """Return routes to the page's files, which are read once; no other file can be requested."""
    page = APIRouter(include_in_schema=False)
    for file in (files("channelhash.serve") / "page").iterdir():
        media_type = _MEDIA_TYPES[file.name.rpartition(".")[2]]
        address = {"index.html": "/", "docs.html": "/docs"}.get(file.name, f"/{file.name}")
        page.add_api_route(address, partial(_send, file.read_bytes(), media_type), methods=["GET"])
    return page


async def _send(content: bytes, media_type: str) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": content_tag(content)}
    return Response(content, media_type=media_type, headers=headers)
