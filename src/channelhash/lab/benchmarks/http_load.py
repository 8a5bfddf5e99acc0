"""Clients of an HTTP server, all in one thread, so that they take little of the machine that the server runs on."""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from urllib.parse import urlsplit

_END_OF_HEADER = b"\r\n\r\n"
_LENGTH = b"content-length:"
# Seconds without any response after which the others are errors.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Load:
    """What clients measured together: seconds of each response, and how many requests failed."""

    seconds: list[float]
    errors: int


class _Client:
    """One connection that sends its next request when it has the response to the last."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes]) -> None:
        self._address = address
        self._requests = requests
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._began = 0.0

    def send(self) -> None:
        """Send the next request."""
        self._received, self._began = b"", time.perf_counter()
        self.socket.sendall(next(self._requests))

    def receive(self) -> tuple[float, bool] | None:
        """Read what is there; return the seconds and whether the status is 200 once the response is whole.

        Raises:
            OSError: the connection has ended.
        """
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionAbortedError
        self._received += part
        header, end, body = self._received.partition(_END_OF_HEADER)
        if not end or len(body) < _length(header):
            return None
        return time.perf_counter() - self._began, header.split(b" ", 2)[1] == b"200"


def load(address: str, bodies: Sequence[bytes], clients: int, seconds: float, path: str = "/search") -> Load:
    """Send ``POST`` requests over several connections until the time is over; one that ends is an error, once.

    Args:
        address: of the server, ``http://host:port``.
        bodies: JSON, sent in turn; every client begins elsewhere.
        clients: number of connections.
        seconds: no request starts later than this.
        path: of the requests.

    Raises:
        OSError: the server takes no connections.
    """
    host = urlsplit(address)
    requests = [
        b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (path.encode(), host.netloc.encode(), len(body), body)
        for body in bodies
    ]
    waits: list[float] = []
    errors = 0
    where = (host.hostname or "", host.port or 80)
    orders = (number * 7 % len(requests) for number in range(clients))
    open_clients = [_Client(where, cycle([*requests[first:], *requests[:first]])) for first in orders]
    with selectors.DefaultSelector() as selector:
        end = time.perf_counter() + seconds
        for client in open_clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        while selector.get_map():
            ready = selector.select(_PATIENCE)
            if not ready:
                errors += len(selector.get_map())
                break
            for key, _ in ready:
                client = key.data
                try:
                    answer = client.receive()
                    if answer is None:
                        continue
                    if answer[1]:
                        waits.append(answer[0])
                    else:
                        errors += 1
                    if time.perf_counter() < end:
                        client.send()
                        continue
                except OSError:
                    errors += 1
                selector.unregister(client.socket)
    for client in open_clients:
        client.socket.close()
    return Load(waits, errors)


def _length(header: bytes) -> int:
    """Return the number of bytes of a response's body."""
    lower = header.lower()
    start = lower.index(_LENGTH) + len(_LENGTH)
    return int(lower[start:].split(b"\r\n", 1)[0])
