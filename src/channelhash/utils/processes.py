"""Processes that work for this one: Ctrl-C is not theirs, and they end with it."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

# Processes of a pool on Windows, which waits for no more handles at once.
_MOST = 61


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back while the block starts processes: they never see it, this thread sees it after the block.

    A terminal sends Ctrl-C to all of them at once; each would print a traceback, and the loss of one is an error.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where the processes of `process_pool` ignore it instead
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def process_pool(
    workers: int, start: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of fresh processes, which are ended if the block raises, or if this process is killed.

    The first ``submit`` starts them all; it belongs into `interrupts_held`.

    Args:
        workers: number of processes.
        start: called with ``arguments`` first of all in each of them.
        arguments: see ``start``.
    """
    others = multiprocessing.active_children()
    workers = min(workers, _MOST) if sys.platform == "win32" else workers
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (start, arguments)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _begin(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if start is not None:
        start(*arguments)


def _end_with_parent() -> None:
    """End this process when its parent is killed: it would hold the folders that the next call goes on with."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
