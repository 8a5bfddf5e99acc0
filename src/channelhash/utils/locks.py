"""Locks that the system releases when their process ends."""

import errno
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from channelhash.errors import InputError

if sys.platform != "win32":
    import fcntl

#: The byte that is locked on Windows. It lies far beyond the end of any file, as nobody can read or
#: write what is locked.
_FAR = 1 << 30
#: Seconds between two attempts.
_PAUSE = 0.02


def lock(descriptor: int, wait: bool = True) -> None:
    """Lock an open file alone, or raise BlockingIOError; the system releases the lock when the
    process ends.
    """
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    windows: Any = importlib.import_module("msvcrt")
    while True:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except PermissionError:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "locked by another process") from None
            time.sleep(_PAUSE)  # Ctrl-C would not interrupt a call that waits
        else:
            return


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock file; the lock is released when the process ends, in whatever way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as handle:
        lock(handle.fileno(), wait)
        holder = os.getpid()
        try:
            yield
        finally:
            # A child that was forked meanwhile has the file open too, and is not the holder.
            if sys.platform != "win32" and os.getpid() == holder:
                fcntl.flock(handle.fileno(), fcntl.LOCK_UN)


@contextmanager
def locked_folder(folder: Path, activity: str, name: str = ".lock") -> Iterator[None]:
    """Hold a folder by a file in it; ``activity`` says what another process that holds it is
    doing.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / name, wait=False))
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process is {activity}; wait for it to end"
            ) from None
        yield
