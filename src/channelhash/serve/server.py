"""Run the application: a socket, signals, and an end that lets running requests finish."""

import gc
import ipaddress
import socket
import sys
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import uvicorn
from fastapi import FastAPI

from channelhash.errors import InputError
from channelhash.serve.connections import Connection, allow_connections, most_accepted
from channelhash.serve.middleware import LOOPBACK

#: Seconds that running requests have to finish after the signal to stop.
GRACE = 30
# Seconds after which a thread that works lets the event loop go on; Python's own 0.005 add up.
_SWITCH = 0.001


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes any free port.

    Raises:
        InputError: the port is taken, or the host is not an address of this machine.

    >>> with listen("127.0.0.1", 0) as listening:
    ...     format_address(listening)[:17]
    'http://127.0.0.1:'
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}; choose others with --host, --port") from None
    # Inherited by every connection; without it a response's body waits 40 ms until its header is acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def format_address(listening: socket.socket) -> str:
    """Return the address to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def allowed_hosts(host: str, names: Collection[str]) -> frozenset[str] | None:
    """Return the host names that requests may name, None for any.

    These are ``names`` and, on loopback, the names of loopback. Elsewhere no ``names`` allow any.

    >>> sorted(allowed_hosts("127.0.0.1", ["photos.local"]))
    ['127.0.0.1', '::1', 'localhost', 'photos.local']
    """
    if is_loopback(host):
        return LOOPBACK | {host.lower(), *map(str.lower, names)}
    return frozenset({host.lower(), *map(str.lower, names)}) if names else None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def run_server(
    app: FastAPI, listening: socket.socket, ready: Callable[[], None], needed: Future[Any] | None = None
) -> None:
    """Answer requests until SIGTERM or SIGINT; then finish the running ones and end the application.

    The signal that stopped the server is raised again after that.

    Args:
        app: the application.
        listening: from `listen`.
        ready: called before the first request is accepted.
        needed: what the server cannot do without and is still on its way; if it fails, the server ends, too.

    Raises:
        InputError, JobError: what ``needed`` raised.
    """
    allow_connections()
    app.state.service.warm_up.add("the memory", _keep_for_good)
    sys.setswitchinterval(_SWITCH)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        lifespan="on",
        backlog=most_accepted(),
    )
    ready()
    server = uvicorn.Server(config)
    if needed is not None:
        needed.add_done_callback(lambda it: setattr(server, "should_exit", not it.cancelled() and bool(it.exception())))
    server.run(sockets=[listening])
    if needed is not None and needed.done() and not needed.cancelled():
        needed.result()


def _keep_for_good() -> None:
    """Let the garbage collector look no more at what is there: it would stop every request for a fifth of a second."""
    gc.collect()
    gc.freeze()
