"""Middleware: checks of every request before a route sees it, and headers of every response."""

import json
import re
from collections.abc import Collection
from email.utils import mktime_tz, parsedate_tz

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Host names by which this machine reaches a server of its own.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def add_security_headers(app: ASGIApp) -> ASGIApp:
    """Tell browsers in every response to load nothing from elsewhere and to frame or reinterpret nothing."""

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return middleware


def check_host(app: ASGIApp, hosts: Collection[str] | None) -> ASGIApp:
    """Refuse requests for another host name with status 400, but to ``/health``: probes name an address of the machine.

    A page from elsewhere can point a name of its own at this machine and then has the same origin (DNS rebinding); the
    header ``Host`` reveals it.

    Args:
        app: the application.
        hosts: names without port; None allows any.
    """

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        checked = scope["type"] == "http" and hosts is not None and scope["path"] != "/health"
        if checked and _host(scope) not in (hosts or ()):
            line = "the header Host names another server than this one; allow the name with --allow-host"
            await send_error(send, 400, line)
        else:
            await app(scope, receive, send)

    return middleware


def answer_without_body(app: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET is, and with status 304 a client that has what it asks for (RFC 9110, 9.3.2 and 13.2)."""

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        bodiless = scope["method"] == "HEAD"

        async def send_without_body(message: Message) -> None:
            nonlocal bodiless
            if message["type"] == "http.response.start" and _has_it(scope, message):
                bodiless = True
                headers = [pair for pair in message["headers"] if pair[0] not in (b"content-length", b"content-type")]
                message = {**message, "status": 304, "headers": headers}
            elif message["type"] == "http.response.body" and bodiless:
                message = {**message, "body": b""}
            await send(message)

        got = {**scope, "method": "GET"}
        try:
            await app(got, receive, send_without_body)
        finally:
            scope["route"] = got.get("route")  # for those that count requests

    return middleware


async def send_error(send: Send, status: int, line: str) -> None:
    """Send an error response as JSON, from outside the routes."""
    body = json.dumps({"error": line}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _has_it(scope: Scope, start: Message) -> bool:
    """Return whether a client has a successful response already, by its tag or else its date."""
    if start["status"] not in (200, 206):
        return False
    asked, answer = Headers(scope=scope), Headers(raw=start["headers"])
    tags = ",".join(asked.getlist("if-none-match"))
    if tags:  # a weak tag is as good here
        sent = answer.get("etag", "").removeprefix("W/")
        return tags.strip() == "*" or (bool(sent) and sent in re.findall(r'"[^"]*"', tags))
    since, modified = (
        _seconds(headers.get(name, "")) for headers, name in ((asked, "if-modified-since"), (answer, "last-modified"))
    )
    return since is not None and modified is not None and modified <= since


def _seconds(date: str) -> int | None:
    """Return a date of HTTP in seconds since 1970; None for anything else."""
    try:
        parts = parsedate_tz(date)
        return parts and mktime_tz(parts)
    except (ValueError, OverflowError):
        return None


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host(scope: Scope) -> str:
    """Return the header ``Host`` without its port: ``[::1]:80`` is ``::1``."""
    host = _header(scope, b"host").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
