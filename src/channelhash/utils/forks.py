"""Forked processes: a child has its parent's memory but not its threads, so some libraries must be told.

OpenMP, which Numba and PyTorch share, ends or hangs a child that works on several threads after its parent did. So a
child of a fork works on one thread (`utils.parallel_loops`), as the workers of PyTorch's data loaders do anyway.
"""

import ctypes
import os
import sys
import weakref
from typing import Protocol


class ToldOfFork(Protocol):
    """An object that a forked process inherits and must not use as it is."""

    def after_fork(self) -> None:
        """Take place in the child, before anything else runs there."""
        ...


_told: "weakref.WeakSet[ToldOfFork]" = weakref.WeakSet()
_forked = False


def install() -> None:
    """Make forked children of this process safe to work in. Call it once a process."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=_after_fork)


def is_forked() -> bool:
    """Return whether this process was forked from one that had imported the package.

    >>> is_forked()
    False
    """
    return _forked


def tell_of_fork(thing: ToldOfFork) -> None:
    """Call ``thing.after_fork()`` in every forked child while the object lives."""
    _told.add(thing)


def keep_forever(thing: object) -> None:
    """Keep an object from being destroyed, also when the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _forked
    _forked = True
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    for thing in list(_told):
        thing.after_fork()
