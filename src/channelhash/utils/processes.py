"""Other processes: workers, which end with this one and leave Ctrl-C to it; and forked children.

A forked child has its parent's memory but not its threads. PyTorch hangs or ends a child that works on several, so it
works on one.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

# Processes of a pool on Windows, which waits for no more handles at once.
_MOST = 61


@contextmanager
def hold_interrupts() -> Iterator[None]:
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
    workers: int, start: Callable[..., None], arguments: tuple[Any, ...]
) -> Iterator["ProcessPoolExecutor"]:
    """Yield a pool of fresh processes, which are ended if the block raises, or if this process is killed.

    Each begins with ``start(*arguments)``. The first ``submit`` starts them all; it belongs into `hold_interrupts`.
    """
    import multiprocessing  # takes longer than the rest of this file, which every command imports
    from concurrent.futures import ProcessPoolExecutor

    before = multiprocessing.active_children()
    workers = min(workers, _MOST) if sys.platform == "win32" else workers
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (start, arguments)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in before:
                    process.terminate()
            raise


def _begin(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(lambda: os._exit(1))  # it would hold the folders that the next call goes on with
    start(*arguments)


def end_with_parent(end: Callable[[], object]) -> None:
    """Call ``end`` in a thread once the process that started this one has ended, in whatever way."""
    import multiprocessing

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()


def install() -> None:
    """Make forked children of this process safe to work in. Call it once a process."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
