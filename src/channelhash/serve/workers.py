"""Several processes that answer at one address.

This process accepts connections and hands each to the next worker in turn: whichever worker came first would take many
at once, and the others none. Workers share the files of a store and the counters.
"""

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, NamedTuple

from fastapi import FastAPI

from channelhash.errors import InputError, JobError
from channelhash.serve.encoding import Encoding
from channelhash.serve.metrics import SHARED, forget_process
from channelhash.serve.server import GRACE, run_server
from channelhash.utils.processes import interrupts_held
from channelhash.utils.python_names import trusting

# What OpenMP and Numba read as the number of their threads, in each worker.
_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
# Seconds beyond `GRACE` after which a worker is killed.
_LONGER = 5
# Seconds before another one takes the place of a worker that ended while it started.
_PAUSE = 1


class Task(NamedTuple):
    """What every worker does; it is sent to new processes.

    Attributes:
        make: makes the application.
        loaded: called in the first worker when its model is there.
        trust_code: consent to code that the model's folder names.
    """

    make: Callable[[], FastAPI]
    loaded: Callable[[Future[Encoding]], object]
    trust_code: bool


@dataclass
class _Worker:
    """A process, the socket over which it gets connections, and the pipe over which it says that it is ready."""

    process: SpawnProcess
    channel: socket.socket
    reports: Connection
    ready: bool = False

    def hand(self, connection: socket.socket) -> bool:
        """Give a connection away; return whether that was possible."""
        try:
            return socket.send_fds(self.channel, [b"c"], [connection.fileno()]) == 1
        except OSError:  # it has ended, or takes no more
            return False

    def close(self) -> None:
        """Forget a process that has ended."""
        self.process.join()
        if self.process.pid:
            forget_process(self.process.pid)
        self.channel.close()
        self.reports.close()


class HandedConnections(socket.socket):
    """What a worker has in the place of a listening socket: the end of a pair to which connections are handed."""

    _ended = False

    def listen(self, backlog: int = 0, /) -> None:
        """Do nothing: others listen."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and its client's address; ask this process to end if nobody hands any more."""
        _, descriptors, _, _ = socket.recv_fds(self, 1, 1)
        if descriptors:
            connection = socket.socket(fileno=descriptors[0])
            try:
                return connection, connection.getpeername()
            except OSError:
                connection.close()
        elif not self._ended:
            self._ended = True
            signal.raise_signal(signal.SIGTERM)
        raise ConnectionAbortedError


def can_have_workers() -> bool:
    """Return whether this system lets a process hand connections to others; Windows does not."""
    return hasattr(socket, "send_fds")


def run_workers(number: int, task: Task, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests in several processes until SIGTERM or SIGINT, which is raised again after that.

    A worker that ends is replaced.

    Args:
        number: of workers.
        task: what they do.
        listening: from `server.listen`.
        ready: called when all of them can answer.

    Raises:
        InputError, JobError: a worker cannot be started, or its model cannot be loaded.
    """
    threads = str(max(1, (os.cpu_count() or 1) // number))
    listening.setblocking(False)
    with (
        tempfile.TemporaryDirectory(prefix="channelhash-") as counters,
        _signals() as (arrived, wake),
        _environment({SHARED: counters, **dict.fromkeys(_THREADS, threads)}),
    ):
        workers = [_start(task, place == 0) for place in range(number)]
        try:
            _hand_over(workers, task, listening, ready, arrived, wake)
        finally:
            _stop(workers, arrived)


def _hand_over(
    workers: list[_Worker],
    task: Task,
    listening: socket.socket,
    ready: Callable[[], None],
    arrived: Sequence[int],
    wake: socket.socket,
) -> None:
    """Hand connections to workers in turn, until a signal has arrived."""
    said = False
    turns = cycle(range(len(workers)))
    while not arrived:
        sources: list[Any] = [
            wake,
            *(source for worker in workers for source in (worker.process.sentinel, worker.reports)),
        ]
        events = wait(sources + [listening] * any(worker.ready for worker in workers))
        for place, worker in enumerate(workers):
            if worker.reports in events:
                with suppress(EOFError):  # its end follows
                    if (error := worker.reports.recv()) is not None:
                        raise error
                    worker.ready = True
            if worker.process.sentinel in events:
                worker.close()
                line = f"a worker ended with status {worker.process.exitcode}"
                if not said:
                    raise JobError(f"serve: {line} before it could answer")
                logging.getLogger("channelhash.serve").error("%s; another one takes its place", line)
                if not worker.ready:
                    time.sleep(_PAUSE)
                workers[place] = _start(task, False)
        if not said and all(worker.ready for worker in workers):
            said = True
            ready()
        if listening in events:
            with suppress(BlockingIOError, ConnectionAbortedError):
                connection, _ = listening.accept()
                with connection:
                    any(worker.ready and worker.hand(connection) for worker in _from_next(workers, turns))


def _from_next(workers: Sequence[_Worker], turns: Iterator[int]) -> Iterator[_Worker]:
    """Yield each worker once; the next call goes on behind the last that was taken."""
    for _ in workers:
        yield workers[next(turns)]


def _start(task: Task, is_first: bool) -> _Worker:
    """Start a worker. It does not see Ctrl-C, which a terminal sends to every process: it is told to end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reports, reporting = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs, reporting, is_first), name="channelhash worker")
    with interrupts_held():
        process.start()
    theirs.close()
    reporting.close()
    return _Worker(process, ours, reports)


def _work(task: Task, channel: socket.socket, reports: Connection, is_first: bool) -> None:
    """Answer, in a process of its own, the requests of the connections that are handed to it."""
    try:
        with trusting(task.trust_code), HandedConnections(fileno=channel.detach()) as handed:
            app = task.make()
            encoding: Future[Encoding] = app.state.service.encoding
            if is_first:
                encoding.add_done_callback(task.loaded)
            run_server(app, handed, lambda: reports.send(None), encoding)
    except (InputError, JobError) as error:
        reports.send(error)


def _stop(workers: Sequence[_Worker], arrived: Sequence[int]) -> None:
    """End all workers: in order, unless that takes too long or a second signal arrives."""
    for worker in workers:
        if worker.process.is_alive():
            worker.process.terminate()
    end = time.monotonic() + GRACE + _LONGER
    while any(worker.process.is_alive() for worker in workers) and time.monotonic() < end and len(arrived) < 2:
        wait([worker.process.sentinel for worker in workers if worker.process.is_alive()], 0.2)
    for worker in workers:
        if worker.process.is_alive():
            worker.process.kill()
        worker.close()


@contextmanager
def _signals() -> Iterator[tuple[list[int], socket.socket]]:
    """Yield the signals that have arrived, and a socket that can be read then; raise the first at the end."""
    arrived: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        arrived.append(number)

    wake, woken = socket.socketpair()
    woken.setblocking(False)
    former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    former_wakeup = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    try:
        yield arrived, wake
    finally:
        signal.set_wakeup_fd(former_wakeup)
        for number, handler in former.items():
            signal.signal(number, handler)
        wake.close()
        woken.close()
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that are not set yet, for the processes that start within the block."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
