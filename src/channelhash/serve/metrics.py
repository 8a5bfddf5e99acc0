"""The server's counters, in Prometheus's text format; of several processes, their sums.

Prometheus's client keeps counters in files where the environment names a folder for them, `SHARED`, when the client is
imported, and any process can then add up those of all.
"""

import os
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Environment variable of the folder through which processes share their counters.
SHARED = "PROMETHEUS_MULTIPROC_DIR"

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
        self._items = _Items(n_items)
        self._registry = CollectorRegistry()
        self._registry.register(self._items)
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
        self.running = Gauge(
            "channelhash_running_requests", "Requests at work.", registry=self._registry, multiprocess_mode="livesum"
        )

    def text(self) -> bytes:
        """Return all counters in Prometheus's text format, of all processes if they share them."""
        if not os.environ.get(SHARED):
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        shared.register(self._items)
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


class _Items(Collector):
    """The number of items, which is the same in every process."""

    def __init__(self, n_items: Callable[[], int]) -> None:
        self._n_items = n_items

    def collect(self) -> Iterator[Metric]:
        """Yield the number."""
        yield GaugeMetricFamily("channelhash_items", "Items in the store.", self._n_items())


def forget_process(pid: int) -> None:
    """Count the requests of a process that has ended as no longer running."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


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
