"""What surrounds every route: host names, counters, headers, HEAD and 304, errors.

If the environment names a folder, `SHARED`, when Prometheus's client is imported, the client keeps
its counters in files there, and any process can add up those of all.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from channelhash.errors import InputError, JobError
from channelhash.search.question import UnknownItemError

#: Environment variable of the folder through which processes share their counters.
SHARED = "PROMETHEUS_MULTIPROC_DIR"
_PROTECTION = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64)
#: Addresses that a balancer or a container's check asks, which knows no name of the server.
_PROBES = ("/health", "/ready")
#: Bytes of a refused body that are read, or twice the largest upload if that is more.
_READ_ON = 64_000_000
#: Seconds for which its client may be silent meanwhile.
_SILENCE = 5
#: Argument of the library -> what a request calls it, where that is another name.
_NAMES = {"like": "id", "minus_like": "minus_ids"}
#: The answer to a request that names another server.
_REFUSAL = JSONResponse(
    {
        "error": (
            "the header Host names another server than this one; allow the name with "
            "`channelhash serve --allow-host`"
        )
    },
    400,
)
_log = logging.getLogger("channelhash.serve")


def read_on(app: ASGIApp, upload_bytes: int, seconds: float) -> ASGIApp:
    """Read on what a refused request still sends, before its connection may be closed.

    The system resets a connection that is closed with bytes unread, and its client, or the proxy
    before it, loses the answer (RFC 9112, 9.6). Bytes and time are bounded.
    """
    most = max(_READ_ON, 2 * upload_bytes)

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        is_left = scope["type"] == "http" and _sends_body(Headers(scope=scope))

        async def receive_on() -> Message:
            nonlocal is_left
            message = await receive()
            is_left = message.get("more_body", False)
            return message

        async def read_rest() -> None:
            count = 0
            clock = asyncio.get_running_loop().time
            end = clock() + seconds
            with suppress(TimeoutError):
                while is_left and count < most:
                    async with asyncio.timeout_at(min(end, clock() + _SILENCE)):
                        count += len((await receive_on()).get("body", b""))

        async def send_on(message: Message) -> None:
            nonlocal is_left
            if message["type"] == "http.response.start":
                # A client that was too slow is not waited for.
                is_left = is_left and message["status"] != 408
            elif is_left and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await read_rest()
                message = {"type": "http.response.body"}
            await send(message)

        await app(scope, receive_on, send_on)

    return middleware


def _sends_body(headers: Headers) -> bool:
    """Return whether a request sends a body without waiting for "100 Continue"."""
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return has_body and headers.get("expect", "").lower() != "100-continue"


def surround(app: ASGIApp, metrics: "Metrics", hosts: Collection[str] | None) -> ASGIApp:
    """Count and time every request by its route's pattern, check its host name, and add headers
    that protect browsers.

    HEAD is answered as GET is, without the body. A client that has already what it asks for gets
    status 304 (RFC 9110, 9.3.2 and 13.1.2).

    Host names other than ``hosts`` are refused with status 400. A page from elsewhere can point a
    name of its own at this machine and then has the same origin (DNS rebinding); the header
    ``Host`` reveals it. `_PROBES` are answered under any name, as they come by the machine's
    address.
    """

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status = 500
        start = time.perf_counter()
        asked = scope["method"]
        bodiless = asked == "HEAD"
        if bodiless:  # no part of a file is asked for (RFC 9110, 14.2)
            headers = [pair for pair in scope["headers"] if pair[0] != b"range"]
            scope = {**scope, "method": "GET", "headers": headers}
        is_refused = (
            hosts is not None and scope["path"] not in _PROBES and _host(scope) not in hosts
        )

        async def send_on(message: Message) -> None:
            nonlocal status, bodiless
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                if scope["method"] == "GET" and _is_current(scope, message):
                    status = 304
                    bodiless = True
                    headers = [
                        pair
                        for pair in headers
                        if pair[0] not in (b"content-length", b"content-type")
                    ]
                message = {
                    **message,
                    "status": status,
                    "headers": [*headers, *Headers(_PROTECTION).raw],
                }
            elif message["type"] == "http.response.body" and bodiless:
                message = {**message, "body": b""}
            await send(message)

        with metrics.running.track_inprogress():
            try:
                await (_REFUSAL if is_refused else app)(scope, receive, send_on)
            finally:
                metrics.count_request(scope, asked, status, time.perf_counter() - start)

    return middleware


def _host(scope: Scope) -> str:
    """Return the header ``Host`` without its port: ``[::1]:80`` is ``::1``."""
    host = Headers(scope=scope).get("host", "").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_current(scope: Scope, start: Message) -> bool:
    """Return whether a client has a successful response already, by its tag, be it a weak one."""
    tags = ",".join(Headers(scope=scope).getlist("if-none-match"))
    tag = Headers(raw=start["headers"]).get("etag", "").removeprefix("W/")
    return (
        start["status"] in (200, 206)
        and bool(tag)
        and (tags.strip() == "*" or tag in re.findall(r'"[^"]*"', tags))
    )


class Metrics:
    """Counters of one application, in a registry of their own.

    >>> 'channelhash_items{store="photos"} 3.0' in Metrics().text({"photos": 3}).decode()
    True
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "channelhash_requests",
            "Answered requests.",
            ("route", "method", "status", "store"),
            registry=registry,
        )
        self._seconds = Histogram(
            "channelhash_request_seconds",
            "Seconds from a request's first byte to its answer's last.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "channelhash_encode_batch_items",
            "Items that went through the model together.",
            ("modality",),
            buckets=_SIZES,
            registry=registry,
        )
        self.running = Gauge(
            "channelhash_running_requests",
            "Requests at work.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._items = Gauge(
            "channelhash_items",
            "Items in the store.",
            ("store",),
            registry=registry,
            multiprocess_mode="mostrecent",
        )

    def count_request(self, scope: Scope, asked: str, status: int, seconds: float) -> None:
        """Count and log one request, by the method that was asked for."""
        # The pattern, as there is no end of ids.
        route = getattr(scope.get("route"), "path_format", "other")
        method = asked if asked in ("GET", "POST", "DELETE", "HEAD") else "other"
        store = scope.get("root_path", "").rpartition("/")[2]  # where that of one of several begins
        self._requests.labels(route, method, str(status), store).inc()
        self._seconds.labels(route).observe(seconds)
        if _log.isEnabledFor(logging.INFO):
            path = quote(scope["path"])
            _log.info("method=%s path=%s status=%d ms=%.1f", asked, path, status, 1000 * seconds)

    def count_batch(self, modality: str, n_items: int) -> None:
        """Count the items of one modality that went through the model together."""
        self._batches.labels(modality).observe(n_items)

    def text(self, n_items: Mapping[str, int]) -> bytes:
        """Return all counters in Prometheus's text format, of all processes if they share them.

        Args:
            n_items: name of a store -> number of its items.
        """
        for store, number in n_items.items():
            self._items.labels(store).set(number)
        registry = self._registry
        if os.environ.get(SHARED):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def error_handlers(routers: Sequence[APIRouter]) -> dict[Any, Any]:
    """Turn every exception that reaches the application into ``{"error": "one line"}`` with the
    status that fits.
    """
    routes = list(chain.from_iterable(router.routes for router in routers))

    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        line = str(error.detail)
        headers = dict(error.headers or {})
        if error.status_code == 404 and line == "Not Found":
            line = "no such address; /docs lists them all"
        elif error.status_code == 405:  # several routes may share the path
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            allowed = _methods_at(path, routes)
            headers["Allow"] = ", ".join(sorted(allowed)) or headers.get("Allow", "")
            line = f"{request.method} is not possible here, only {headers['Allow']}; see /docs"
        return _problem(error.status_code, line, headers)

    failures = dict.fromkeys((InputError, JobError, Exception), _on_failure)
    return {HTTPException: on_http_error, RequestValidationError: _on_invalid_request, **failures}


def _methods_at(path: str, routes: Sequence[BaseRoute]) -> set[str]:
    """Return the methods that an address takes."""
    allowed: set[str] = set()
    for route in routes:
        if isinstance(route, APIRoute) and route.path_regex.match(path):
            allowed |= route.methods or set()
    return allowed | {"HEAD"} if "GET" in allowed else allowed


async def _on_failure(_: Request, error: Exception) -> JSONResponse:
    return _problem(*refusal(error))


def refusal(error: BaseException) -> tuple[int, str]:
    """Return the status of an error, and what it tells the client.

    >>> refusal(InputError("k: is less than 1"))
    (422, 'k: is less than 1')
    """
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, UnknownItemError):
        return 404, f"there is no item {error.item_id[:100]!r}"
    if isinstance(error, InputError):
        return 422, error.spelled(lambda name: _NAMES.get(name, name))
    if not isinstance(error, JobError):
        return 500, "an error inside the server; its log has the details"
    _log.error("%s", error)
    return 500, str(error)


async def _on_invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    if (
        first["type"] == "json_invalid"
        and len(first["loc"]) == 2
        and isinstance(first["loc"][1], int)
    ):
        return _problem(
            422, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        )
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    return _problem(422, f"{where or 'the body'}: {first['msg'].removeprefix('Value error, ')}")


def _problem(status: int, line: str, headers: Any = None) -> JSONResponse:
    # The request may quote text that cannot be encoded, or a whole document.
    one_line = " ".join(line.encode("utf-8", "replace").decode().split())
    return JSONResponse({"error": one_line[:500]}, status, headers)
