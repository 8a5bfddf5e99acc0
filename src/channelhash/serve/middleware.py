"""Middleware: checks of every request before a route sees it, and headers of every response."""

import json
from collections.abc import Collection

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
    """Refuse requests for another host name with status 400.

    A page from elsewhere can point a name of its own at this machine and then has the same origin (DNS rebinding); the
    header ``Host`` reveals it.

    Args:
        app: the application.
        hosts: names without port; None allows any.
    """

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and hosts is not None and _host(scope) not in hosts:
            line = "the header Host names another server than this one; allow the name with --allow-host"
            await send_error(send, 400, line)
        else:
            await app(scope, receive, send)

    return middleware


async def send_error(send: Send, status: int, line: str) -> None:
    """Send an error response as JSON, from outside the routes."""
    body = json.dumps({"error": line}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host(scope: Scope) -> str:
    """Return the header ``Host`` without its port: ``[::1]:80`` is ``::1``."""
    host = _header(scope, b"host").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
