"""Other processes: workers, which leave Ctrl-C to this one; and forked children.

A forked child has its parent's memory but not its threads. PyTorch hangs or ends a child that works on several, so it
works on one.
"""

import os
import signal
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back while the block starts processes: they never see it, this thread sees it after the block.

    A terminal sends Ctrl-C to all of them at once; each would print a traceback, and the loss of one is an error.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where the processes of a grid ignore it instead
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_told: "weakref.WeakSet[Any]" = weakref.WeakSet()


def install() -> None:
    """Make forked children of this process safe to work in. Call it once a process."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=_after_fork)


def tell_of_fork(thing: Any) -> None:
    """Call ``thing.after_fork()`` in every forked child while the object lives."""
    _told.add(thing)


def _after_fork() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    for thing in list(_told):
        thing.after_fork()
