"""Locks on open files: shared by several, or held alone. The system releases them when the process ends.

POSIX's `flock` binds only those who ask for the lock. A lock of Windows binds everybody: the bytes under it can neither
be read nor written through another handle. So there one byte is locked, far beyond the end of any file.
"""

import ctypes
import errno
import importlib
import time
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# The byte that is locked on Windows: the upper half of its place in the file.
_FAR = 1 << 30
# LockFileEx: flags, and what it says where somebody else has the lock.
_AT_ONCE, _ALONE, _TAKEN = 1, 2, 33
# Seconds between two attempts on Windows; Ctrl-C would not interrupt a call that waits.
_PAUSE = 0.05


def lock_shared(descriptor: int) -> None:
    """Lock an open file together with others who share it; wait while somebody has it alone.

    A lock that this descriptor has becomes the new one.

    Raises:
        OSError: the file system has no locks.
    """
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    else:
        _lock_far_byte(descriptor, 0, wait=True)


def lock_alone(descriptor: int, wait: bool = True) -> None:
    """Lock an open file for oneself; a shared lock that this descriptor has is lost, also where this fails.

    Raises:
        BlockingIOError: somebody else has it, and ``wait`` is False.
        OSError: the file system has no locks.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as ours, open(ours.name) as theirs:
    ...     lock_shared(ours.fileno())
    ...     lock_alone(theirs.fileno(), wait=False)
    Traceback (most recent call last):
    BlockingIOError: [Errno 11] Resource temporarily unavailable
    """
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    else:
        _lock_far_byte(descriptor, _ALONE, wait)


def unlock(descriptor: int) -> None:
    """Release the lock that a descriptor has, if any."""
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    else:
        _unlock_far_byte(descriptor)


class _Overlapped(ctypes.Structure):
    """The structure OVERLAPPED of Windows, of which a lock takes the place in the file."""

    _fields_ = (
        ("Internal", ctypes.c_size_t),
        ("InternalHigh", ctypes.c_size_t),
        ("Offset", ctypes.c_uint32),
        ("OffsetHigh", ctypes.c_uint32),
        ("hEvent", ctypes.c_void_p),
    )


def _kernel(descriptor: int) -> tuple[Any, Any, Any]:
    """Return Windows' functions, the file's handle and the place of the byte."""
    windows: Any = ctypes  # type checkers know these names on Windows alone
    handle = importlib.import_module("msvcrt").get_osfhandle(descriptor)
    place = ctypes.byref(_Overlapped(OffsetHigh=_FAR))
    return windows.WinDLL("kernel32", use_last_error=True), ctypes.c_void_p(handle), place


def _lock_far_byte(descriptor: int, flags: int, wait: bool) -> None:
    windows: Any = ctypes
    _unlock_far_byte(descriptor)  # a handle's own lock would stand in its way
    kernel, handle, place = _kernel(descriptor)
    while not kernel.LockFileEx(handle, flags | _AT_ONCE, 0, 1, 0, place):
        code = windows.get_last_error()
        if code != _TAKEN:
            raise windows.WinError(code)
        if not wait:
            raise BlockingIOError(errno.EAGAIN, "locked by another process")
        time.sleep(_PAUSE)


def _unlock_far_byte(descriptor: int) -> None:
    kernel, handle, place = _kernel(descriptor)
    kernel.UnlockFileEx(handle, 0, 1, 0, place)
