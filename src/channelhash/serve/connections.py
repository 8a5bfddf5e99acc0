"""Connections: time for a header, for an answer to be read, and a number that the system's files allow."""

import asyncio
import json
import sys
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Seconds for a request's header, and for a client to take an answer's next bytes.
HEADER_SECONDS, READING_SECONDS = 10, 30
#: Largest header in bytes.
HEADER_BYTES = 16_384
#: Connections at one time, of which half of the process's files may be.
MAX_CONNECTIONS = 1000
# Files of the process: these, as many that wait to be closed, and the store's.
_FILES = 4 * MAX_CONNECTIONS
# Windows' limit cannot be asked for: this is how many sockets Python waits for at once there in any case.
_FILES_OF_WINDOWS = 512
# Pieces of a body in chunks that may be small; on average the others have at least so many bytes.
_FREE_CHUNKS, _CHUNK_BYTES = 256, 64
# Bytes that are read from a connection before it is others' turn.
_TURN = 16_384


class Connection(H11Protocol):
    """A connection that holds nothing for long without a whole request, and tells in JSON what was wrong with one.

    Beyond the number of connections the one that has waited longest for its request to be complete is closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Pieces(h11.SERVER, HEADER_BYTES)
        self._since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, in the place of another if there are too many."""
        super().connection_made(transport)
        transport.max_size = _TURN  # type: ignore[attr-defined]
        self._wait_for_header()
        if len(self.connections) > most_connections():
            waiting = [other for other in self.connections if isinstance(other, Connection) and other.incomplete]
            oldest = min(waiting, key=lambda other: other._since, default=self)
            self.connections.discard(oldest)  # at once: its end comes later
            oldest.transport.abort()

    @property
    def incomplete(self) -> bool:
        """Return whether no request, or only a part of one, has arrived."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def data_received(self, data: bytes) -> None:
        """Read what has arrived."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read; not for ever."""
        super().pause_writing()
        self._start(READING_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Answer to what is no request with the status that fits, as JSON, and close the connection."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        line = f"the request's header is larger than {HEADER_BYTES} bytes" if status == 431 else f"no HTTP: {error}"
        self._refuse(status, line)

    def _wait_for_header(self) -> None:
        if self._timer is None:
            self._since = time.monotonic()
            line = f"no whole request in {HEADER_SECONDS} seconds"
            self._start(HEADER_SECONDS, lambda: self._refuse(408, line))

    def _start(self, seconds: float, end: Any) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, line: str) -> None:
        """Send an error and close the connection; only close it where an answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": " ".join(line.split())[:500]}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Pieces(h11.Connection):
    """Events of a connection; bodies in many tiny chunks, which cost more than their bytes, are refused."""

    _chunks = 0
    _bytes = 0

    def next_event(self) -> Any:
        """Return the next event; see `h11.Connection.next_event`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks, self._bytes = self._chunks + event.chunk_end, self._bytes + len(event.data)
            if self._chunks > _FREE_CHUNKS + self._bytes / _CHUNK_BYTES:
                raise h11.RemoteProtocolError("a body of many tiny chunks", error_status_hint=400)
        return event


def allow_connections() -> None:
    """Allow this process as many files as `MAX_CONNECTIONS` need, or as the system lets it have."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        enough = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def most_connections() -> int:
    """Return the number of connections that may be open at one time.

    >>> 0 < most_connections() <= 1000
    True
    """
    return min(MAX_CONNECTIONS, _files() // 2)


def most_accepted() -> int:
    """Return how many connections may be accepted at once, before one of them can be closed.

    >>> most_accepted() + most_connections() <= 4000
    True
    """
    return (_files() - most_connections()) * 2 // 3


def _files() -> int:
    """Return how many files this process may have open, of those that it needs."""
    if resource is None:
        return _FILES_OF_WINDOWS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _FILES if soft == resource.RLIM_INFINITY else min(_FILES, soft)
