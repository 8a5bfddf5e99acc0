"""The server's counters, in Prometheus's text format."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one application, in a registry of their own.

    Args:
        n_items: returns the number of items in the store; called at every reading.

    >>> metrics = Metrics(lambda: 3)
    >>> "channelhash_items 3.0" in metrics.text().decode()
    True
    """

    def __init__(self, n_items: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "channelhash_requests", "Answered requests.", ("route", "method", "status"), registry=self._registry
        )
        self.seconds = Histogram(
            "channelhash_request_seconds",
            "Seconds from a request's first byte to its answer's last.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batches = Histogram(
            "channelhash_encode_batch_items",
            "Items that went through the model together.",
            ("modality",),
            buckets=_SIZES,
            registry=self._registry,
        )
        self.running = Gauge("channelhash_running_requests", "Requests at work.", registry=self._registry)
        Gauge("channelhash_items", "Items in the store.", registry=self._registry).set_function(n_items)

    def text(self) -> bytes:
        """Return all counters in Prometheus's text format."""
        return generate_latest(self._registry)


def measure_requests(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """Count and time every request by its route's pattern, so that ids do not become an endless number of labels."""

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status, start = 500, time.perf_counter()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with metrics.running.track_inprogress():
            try:
                await app(scope, receive, send_noting_status)
            finally:
                route = getattr(scope.get("route"), "path_format", "other")
                method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "HEAD") else "other"
                metrics.requests.labels(route, method, str(status)).inc()
                metrics.seconds.labels(route).observe(time.perf_counter() - start)

    return middleware
