"""Take from this process what Windows lacks, and give it a Windows with the calls that locks are made of.

Only the package is deprived of whole modules: other libraries have ways of their own on Windows, not installed here.
"""

import asyncio  # noqa: F401  # these ask for the calls when they are imported, by the name of the system
import builtins
import ctypes
import fcntl
import multiprocessing.util  # noqa: F401
import os
import random  # noqa: F401
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import types
from typing import ClassVar

import fsspec  # noqa: F401
import numba  # noqa: F401
import pyarrow.parquet  # noqa: F401

MODULES = {"fcntl", "resource", "pwd", "grp", "termios"}
CALLS = (
    *("posix_fallocate", "register_at_fork", "fork", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "pread", "pwrite"),
    *("sched_getaffinity", "sysconf", "getuid", "geteuid", "statvfs", "uname", "mkfifo", "killpg", "setsid"),
)
flock, LOCKS, import_any, open_file = fcntl.flock, fcntl, builtins.__import__, os.open


def _import(name, scope=None, *rest):
    if name in MODULES and str((scope or {}).get("__name__")).startswith("channelhash"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_any(name, scope, *rest)


def _open_no_folder(path, flags, *rest, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return open_file(path, flags, *rest, **options)


class _Kernel:
    """Windows' locks on ranges of bytes, made of `flock`, whose upgrades are looser."""

    error = 0
    held: ClassVar[dict[int, int]] = {}

    def LockFileEx(self, handle, flags, reserved, low, high, place):  # noqa: N802
        assert (low, high) == (1, 0)
        assert place._obj.OffsetHigh > 0, "in the file's content"
        assert flags & 1, "a call that waits cannot be interrupted"
        assert handle.value not in self.held, "a handle's own lock is in the way"
        try:
            flock(handle.value, (LOCKS.LOCK_EX if flags & 2 else LOCKS.LOCK_SH) | LOCKS.LOCK_NB)
        except BlockingIOError:
            _Kernel.error = 33
            return 0
        self.held[handle.value] = flags
        return 1

    def UnlockFileEx(self, handle, reserved, low, high, place):  # noqa: N802
        if self.held.pop(handle.value, None) is None:
            return 0
        flock(handle.value, LOCKS.LOCK_UN)
        return 1


def _close(descriptor, close=os.close):
    _Kernel.held.pop(descriptor, None)
    close(descriptor)


def deprive():
    """Be like Windows from now on."""
    for name in CALLS:
        delattr(os, name)
    del signal.pthread_sigmask
    builtins.__import__ = _import
    os.open, os.close = _open_no_folder, _close
    ctypes.WinDLL = lambda name, use_last_error: _Kernel()
    ctypes.get_last_error = lambda: _Kernel.error
    sys.modules["msvcrt"] = types.SimpleNamespace(get_osfhandle=lambda descriptor: descriptor)
