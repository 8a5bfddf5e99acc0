"""Run the application: a socket, connections that end in time, one process or several, and an
orderly end.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import SIGNALS

from channelhash.errors import InputError, JobError, argument
from channelhash.serve.access import is_loopback
from channelhash.serve.middleware import SHARED
from channelhash.serve.service import freeze, services
from channelhash.utils.machine import end_with_parent, hold_interrupts
from channelhash.utils.typed_settings import trusting

if sys.platform != "win32":
    import resource

#: Host names by which this machine reaches a server of its own.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Seconds that running requests have to finish after the signal to stop.
_GRACE = 30
#: Seconds within which the whole header of a request must arrive.
_HEADER_SECONDS = 10
#: Seconds within which a client must take the next bytes of an answer.
_READING_SECONDS = 30
#: Bytes of a header, at most.
_HEADER_BYTES = 16_384
#: Bytes that are read from a connection before it is another one's turn.
_TURN = 16_384
#: Open files, and so connections, that a process may have if the system lets it choose.
_FILES = 8192
#: The log: one line for each message, on stderr, in every process.
_LOGS: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
}
#: Signals that end a server of several processes. All others do what they do to one process.
_ENDS = frozenset(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP")
    if hasattr(signal, name)
)
#: Seconds after which a working thread lets the event loop go on; Python's own 0.005 add up.
_SWITCH = 0.001


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes any free port.

    >>> with listen("127.0.0.1", 0) as listening:
    ...     format_address(listening)[:17]
    'http://127.0.0.1:'
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose others with "
            f"{argument('host')}, {argument('port')}"
        ) from None
    # Inherited by every connection; without it a response's body waits 40 ms until its header is
    # acknowledged.
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
        return _LOOPBACK | {host.lower(), *map(str.lower, names)}
    return frozenset({host.lower(), *map(str.lower, names)}) if names else None


class _Connection(H11Protocol):
    """A connection that is closed if no request begins in time, or if its client does not read."""

    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Take a connection, and wait for its first request."""
        super().connection_made(transport)
        transport.max_size = _TURN  # type: ignore[attr-defined]
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what has arrived."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._stop_timer()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_timer()

    def _watch(self) -> None:
        """Limit the time that this connection waits for its client, unless a request is at work."""
        reads = self.flow.write_paused
        works = self.cycle is not None and not self.cycle.response_complete
        if works and not reads:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(
                _READING_SECONDS if reads else _HEADER_SECONDS, self.transport.abort
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def run_server(
    app: FastAPI, listening: socket.socket, ready: Callable[[], None], log_level: str = "warning"
) -> None:
    """Answer requests until SIGTERM or SIGINT; then finish the running ones and end the
    application.

    The signal that stopped the server is raised again after that.
    """
    _prepare(app)
    ready()
    server = uvicorn.Server(_server_config(app, log_level))
    encodings: list[Future[Any]] = [service.encoding for service in services(app)]

    def end_without_model(loaded: Future[Any]) -> None:
        if not loaded.cancelled() and loaded.exception():
            server.should_exit = True

    for encoding in encodings:
        encoding.add_done_callback(end_without_model)
    server.run(sockets=[listening])
    for encoding in encodings:
        if encoding.done() and not encoding.cancelled():
            encoding.result()


def run_workers(
    number: int,
    make: Callable[[], FastAPI],
    trust_code: bool,
    listening: socket.socket,
    ready: Callable[[], None],
    log_level: str = "warning",
) -> None:
    """Answer requests in several processes until SIGTERM, SIGINT or SIGHUP, which is raised again
    after that. A terminal sends SIGHUP when its window is closed.

    A worker that ends is replaced. Workers share the files of a store and the counters.
    """
    # PyTorch and our loops take no more threads than this in each process.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // number)))
    former = {each: signal.getsignal(each) for each in SIGNALS}
    context = multiprocessing.get_context("spawn")
    reports = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="channelhash-") as counters:
        os.environ[SHARED] = counters
        worker = partial(_make_worker, make, trust_code, reports)
        config = _server_config(worker, log_level, factory=True, workers=number)
        workers = _WorkerProcesses(config, listening, reports, ready)
        for each, handler in former.items():
            # Uvicorn would restart or add workers; `nohup` has SIGHUP ignored.
            if each not in _ENDS or handler == signal.SIG_IGN:
                signal.signal(each, handler)
        workers.run()
    for each, handler in former.items():
        signal.signal(each, handler)
    if workers.failure is not None:
        raise workers.failure
    signal.raise_signal(workers.stopped_by)


class _WorkerProcesses(Multiprocess):
    """Uvicorn's processes. They report when all are ready, why they cannot go on, and which were
    replaced.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        reports: Any,
        ready: Callable[[], None],
    ):
        super().__init__(config, [listening])
        self._reports = reports
        self._ready = ready
        self._loading = config.workers
        self.failure: Exception | None = None
        self.stopped_by = signal.SIGTERM

    def init_processes(self) -> None:
        """Start all. A terminal sends Ctrl-C to them, too, but only this process ends them."""
        with hold_interrupts():
            super().init_processes()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that ended; end all if one could not begin or lost its model."""
        self._read_reports()
        before = {process.pid for process in self.processes}
        if self.failure is None:
            with hold_interrupts():
                super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
            self._read_reports()
            if self._loading > 0 or self.failure is not None:
                self.failure = self.failure or JobError(
                    "serve: a worker ended before it could answer"
                )
            else:
                logging.getLogger("channelhash.serve").error(
                    "worker %s ended; another one takes its place", pid
                )
        if self.failure is not None:
            self.should_exit.set()

    def _read_reports(self) -> None:
        while self.failure is None and not self._reports.empty():
            self.failure = self._reports.get()
            self._loading -= 1
            if self._loading == 0 and self.failure is None:
                self._ready()

    def handle_int(self) -> None:
        """End at Ctrl-C."""
        super().handle_int()
        self.stopped_by = signal.SIGINT

    def handle_hup(self) -> None:
        """End when the terminal is closed."""
        self.should_exit.set()
        self.stopped_by = signal.SIGHUP


def _make_worker(make: Callable[[], FastAPI], trust_code: bool, reports: Any) -> FastAPI:
    """Make the application of a worker, in its process. Report None once it is made, and why it
    cannot be made or has no model.
    """
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    if hasattr(signal, "SIGHUP"):  # a terminal sends it to all; requests at work are finished
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with trusting(trust_code):
            app = make()
    except (InputError, JobError) as error:
        reports.put(error)
        os._exit(1)
    _prepare(app)
    reports.put(None)
    for service in services(app):
        service.encoding.add_done_callback(
            lambda job: job.cancelled() or job.exception() is None or reports.put(job.exception())
        )
    return app


def _server_config(app: Any, log_level: str = "warning", **options: Any) -> uvicorn.Config:
    """Return how Uvicorn runs an application, or a function that makes one, and what it logs."""
    loggers = {
        name: {"level": log_level.upper(), "handlers": ["stderr"]}
        for name in ("uvicorn", "channelhash.serve")
    }
    return uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        log_config={**_LOGS, "loggers": loggers},
        log_level="error",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_graceful_shutdown=_GRACE,
        timeout_worker_healthcheck=_GRACE,
        lifespan="on",
        **options,
    )


def _prepare(app: FastAPI) -> None:
    """Let this process have many connections, and keep its threads and its memory from holding
    requests up.
    """
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < _FILES:
            enough = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    for service in services(app):
        service.warm_up.steps["the garbage collector"] = freeze
    sys.setswitchinterval(_SWITCH)
