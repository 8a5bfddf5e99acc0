"""Running the application: a socket, signals, and an end that lets running requests finish."""

import ipaddress
import signal
import socket
from collections.abc import Callable, Collection

import uvicorn
from fastapi import FastAPI

from channelhash.errors import InputError
from channelhash.serve.middleware import LOOPBACK

# Seconds that running requests have to finish after the signal to stop.
_GRACE = 30


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free.

    Raises:
        InputError: the port is taken, or the host is no address of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}; choose others with --host, --port") from None
    # Taken over by every connection; without it an answer's body waits 40 ms for the receipt of its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket) -> str:
    """What to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def allowed_hosts(host: str, names: Collection[str]) -> frozenset[str] | None:
    """Names that the server may be asked under: on loopback those of loopback and ``names``, elsewhere ``names``, or
    any if there are none."""
    if is_loopback(host):
        return LOOPBACK | {host.lower(), *map(str.lower, names)}
    return frozenset({host.lower(), *map(str.lower, names)}) if names else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def run_server(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or SIGINT; then finish those that run and end the application.

    Args:
        app: the application.
        listening: from `listen`.
        ready: called before the first request is taken.
    """
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE, lifespan="on"
    )
    # The server raises the signal that stopped it once more after its end: that is no failure here.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: None)
    ready()
    uvicorn.Server(config).run(sockets=[listening])
