"""The state of the server: ``/info``, ``/labels``, ``/health``, ``/metrics``."""

from dataclasses import asdict

from fastapi import APIRouter, Response

from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.schemas import Health, Info, Labels
from channelhash.serve.service import CurrentService

router = APIRouter(tags=["server"], responses={500: PROBLEMS[500], 503: PROBLEMS[503]})


@router.get("/info")
def info(service: CurrentService) -> Info:
    """Return what is searched, which queries can be encoded, and the limits of requests."""
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
def labels(service: CurrentService) -> Labels:
    """Return the labels of all items."""
    return Labels(labels=service.store.label_counts())


@router.get("/health")
def health(service: CurrentService) -> Health:
    """Return ``ok`` if the server works and its store can be read."""
    return Health(status="ok", items=len(service.store))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format."}},
)
def metrics(service: CurrentService) -> Response:
    """Return requests, seconds, batch sizes and items, for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
