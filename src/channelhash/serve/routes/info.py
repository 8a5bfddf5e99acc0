"""What the server is and how it does: ``/info``, ``/labels``, ``/health``, ``/metrics``."""

from dataclasses import asdict

from fastapi import APIRouter, Response

from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.schemas import Health, Info, Labels
from channelhash.serve.service import Shared

router = APIRouter(tags=["server"], responses={500: PROBLEMS[500], 503: PROBLEMS[503]})


@router.get("/info")
def info(service: Shared) -> Info:
    """What is searched, what may ask, and the limits of requests."""
    facts = service.store.info()
    return Info(
        items=facts["items"],
        n_bits=facts["n_bits"],
        codes=facts["codes"],
        model=facts["model"],
        asks=list(service.batchers),
        writable=service.writable,
        limits=asdict(service.limits),
    )


@router.get("/labels")
def labels(service: Shared) -> Labels:
    """The labels of all items."""
    return Labels(labels=service.store.label_counts())


@router.get("/health")
def health(service: Shared) -> Health:
    """Answers when the server works and its store can be read."""
    return Health(status="ok", items=len(service.store))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text form."}},
)
def metrics(service: Shared) -> Response:
    """Requests, seconds, batch sizes and items, for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
