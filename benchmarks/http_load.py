"""Clients of an HTTP server, all in one thread, so that they take little of the machine that the
server runs on.

``python benchmarks/http_load.py http://HOST:PORT CLIENTS SECONDS`` reads bodies, one a line, posts
them to /search, and prints the seconds of each response and how many requests failed, as JSON.
"""

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from urllib.parse import urlsplit

# Seconds without any response after which the others are errors.
PATIENCE = 60.0


class Client:
    """One connection that sends its next request when it has the response to the last."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes]) -> None:
        self._requests, self._received, self._began = requests, b"", 0.0
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        """Send the next request."""
        self._received, self._began = b"", time.perf_counter()
        self.socket.sendall(next(self._requests))

    def receive(self) -> tuple[float, bool] | None:
        """Read what is there; return the seconds and whether the status is 200 once the response is
        whole.
        """
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionAbortedError
        self._received += part
        header, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < int(
            header.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        ):
            return None
        return time.perf_counter() - self._began, header.split(b" ", 2)[1] == b"200"


def load(
    address: str, bodies: list[bytes], clients: int, seconds: float
) -> tuple[list[float], int]:
    """Send requests until the time is over; a connection that ends is an error, once."""
    host = urlsplit(address)
    head = (
        "POST /search HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n"
    )
    requests = [head.format(host.netloc, len(body)).encode() + body for body in bodies]
    waits, errors = [], 0
    # every client begins elsewhere
    firsts = (number * 7 % len(requests) for number in range(clients))
    with selectors.DefaultSelector() as selector:
        end = time.perf_counter() + seconds
        for first in firsts:
            client = Client(
                (host.hostname or "", host.port or 80),
                cycle([*requests[first:], *requests[:first]]),
            )
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        while selector.get_map():
            ready = selector.select(PATIENCE)
            if not ready:
                return waits, errors + len(selector.get_map())
            for key, _ in ready:
                try:
                    if (answer := key.data.receive()) is None:
                        continue
                    waits += [answer[0]] * answer[1]
                    errors += not answer[1]
                    if time.perf_counter() < end:
                        key.data.send()
                        continue
                except OSError:
                    errors += 1
                selector.unregister(key.fileobj)
                key.data.socket.close()
    return waits, errors


if __name__ == "__main__":
    print(
        json.dumps(
            load(
                sys.argv[1],
                sys.stdin.buffer.read().split(b"\n"),
                int(sys.argv[2]),
                float(sys.argv[3]),
            )
        )
    )
