"""What this machine gives a job: its device, cores and memory, and processes of its own.

Workers end with the process that started them and leave Ctrl-C to it. A forked child has its
parent's memory but not its threads. PyTorch hangs or ends a child that works on several, so it
works on one.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import threadpoolctl

from channelhash.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    import torch

if sys.platform != "win32":
    import resource

#: Most processes of a pool on Windows, which waits for no more handles at once.
_MOST = 61


def usable_cores() -> int:
    """Return the number of cores that this process may run on; a cluster's job often has few of the
    machine's.

    >>> usable_cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pick_device(name: str) -> "torch.device":
    """Return the device that a name stands for: ``auto`` is the GPU if there is one, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        first = str(error).strip().splitlines()[0]
        line = (
            f"device {name!r} is not there ({first}); use auto, cpu, or cuda where there is a GPU"
        )
        raise InputError(line) from None
    return device


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep NumPy's products to one thread: these are small, and threads that wait for each other
    took ten times as long beside other work.

    >>> with one_blas_thread():
    ...     float(sum([1.0, 2.0]))
    3.0
    """
    limits: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limits


@cache
def _blas() -> Any:
    return threadpoolctl.ThreadpoolController()


def peak_bytes() -> int | None:
    """Return the most resident memory that this process has had; None if unknown.

    >>> peak_bytes() is None or peak_bytes() > 1_000_000
    True
    """
    if sys.platform == "win32":
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, all others 1024 of them.
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Hold SIGINT back while the block starts processes: they never see it, this thread sees it
    after the block.

    A terminal sends Ctrl-C to all of them at once; each would print a traceback, and the loss of
    one is an error.
    """
    # Windows, where the processes of `process_pool` ignore it instead
    if not hasattr(signal, "pthread_sigmask"):
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
    """Yield a pool of fresh processes, which are ended if the block raises, or if this process is
    killed.

    Each begins with ``start(*arguments)``. The first ``submit`` starts them all; it belongs into
    `hold_interrupts`.
    """
    import multiprocessing  # takes longer than the rest of this file, which every command imports
    from concurrent.futures import ProcessPoolExecutor

    before = multiprocessing.active_children()
    workers = min(workers, _MOST) if sys.platform == "win32" else workers
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _begin, (start, arguments)
    ) as pool:
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
    # an orphan would hold the folders that the next call needs
    end_with_parent(lambda: os._exit(1))
    start(*arguments)


def end_with_parent(end: Callable[[], object]) -> None:
    """Call ``end`` in a thread once the process that started this one has ended, in whatever
    way.
    """
    import multiprocessing

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent:
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()


def install() -> None:
    """Make forked children of this process safe to work in; called once a process."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    torch = sys.modules.get("torch")
    if torch:
        torch.set_num_threads(1)
