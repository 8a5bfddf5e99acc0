"""Tell a process or a machine that has run out of file handles or memory from files that are damaged."""

import errno
import os

from channelhash.errors import JobError

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def check_exhausted(error: OSError, name: object) -> None:
    """Raise `JobError` if the system could not open or read something for want of file handles or memory.

    >>> check_exhausted(OSError(errno.EMFILE, "Too many open files"), "items.sqlite")
    Traceback (most recent call last):
    channelhash.errors.JobError: items.sqlite: not now (Too many open files); close others, or raise the limit
    """
    if error.errno in _EXHAUSTED:
        raise JobError(f"{name}: not now ({os.strerror(error.errno)}); close others, or raise the limit") from None
