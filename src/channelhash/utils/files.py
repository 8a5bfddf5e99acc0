"""Files are written in one step: a reader sees the old file or the new one, never a part."""

import errno
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from channelhash.errors import InputError, JobError, NoSpaceError
from channelhash.utils.locks import lock

#: What the system says of a disk or a quota that is full, and of a file that may not grow.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Likewise libraries that write by themselves: PyArrow, safetensors and FAISS, then PyTorch, SQLite
#: and NumPy.
_FULL_WORDS = re.compile(
    "|".join(map(os.strerror, _FULL))
    + r"|failed writing file|unexpected pos|disk is full|requested and \d+ written"
)
#: Names of temporary files and folders, and of the locks beside them.
_TEMPORARY = re.compile(r"(\..+\.[0-9a-f]{32}\.tmp)(\.lock)?", re.DOTALL)
#: Whether folders can be opened, and open files be renamed and removed. On Windows neither can.
_POSIX = hasattr(os, "O_DIRECTORY")
#: Seconds in which Windows' other readers of a file let go of it.
_PATIENCE = 2.0
#: Seconds between two attempts.
_PAUSE = 0.02


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``, which is renamed to it when the block ends without
    an error.

    The content is flushed to the disk before the rename, so after a power cut ``target`` is the
    complete old file or the complete new one. If the block raises, the temporary file is removed
    and ``target`` stays as it is.

    Raises:
        NoSpaceError: there is none for the file.
    """
    with _hold(target, is_folder=False) as temporary:
        yield temporary
        sync(temporary)
        _replace(temporary, target)


def temporary_folder(target: Path) -> AbstractContextManager[Path]:
    """Yield a new folder beside ``target``, which the block renames to it; otherwise the folder
    goes.
    """
    return _hold(target, is_folder=True)


@contextmanager
def space_for(target: Path) -> Iterator[None]:
    """Name ``target`` if the block finds the disk full.

    >>> with space_for(Path("codes.parquet")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    channelhash.errors.NoSpaceError: codes.parquet: No space left on device; make room
    """
    try:
        yield
    except (InputError, JobError):
        raise
    except Exception as error:  # libraries that write by themselves have errors of their own
        if getattr(error, "errno", None) not in _FULL and not _FULL_WORDS.search(str(error)):
            raise
        reason = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
        raise NoSpaceError(f"{target}: {reason}; make room") from error


@contextmanager
def _hold(target: Path, is_folder: bool) -> Iterator[Path]:
    """Yield a new temporary file or folder, and lock a file beside it, so that nobody takes it for
    a leftover.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    with space_for(target), ExitStack() as stack:
        while True:
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
            lock_path = _lock_of(temporary)
            stack.callback(lock_path.unlink, missing_ok=True)
            handle = stack.enter_context(open(lock_path, "xb"))
            with suppress(OSError):  # not every file system has locks
                lock(handle.fileno())
            if lock_path.exists():  # nobody has swept it away before it was locked
                break
        stack.callback(_remove, temporary)
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        yield temporary


def _lock_of(temporary: Path) -> Path:
    return temporary.with_name(f"{temporary.name}.lock")  # a folder could not be locked on Windows


def sweep(folder: Path) -> None:
    """Remove, anywhere below a folder, the temporary files and folders that killed processes left.

    Those of living processes are locked and stay, and so do all where the file system has no locks.
    """
    for parent, _, _ in os.walk(folder):
        _sweep(Path(parent))


def _sweep(folder: Path) -> None:
    with suppress(OSError):  # a folder that may be written to, not read
        for entry in folder.iterdir():
            match = _TEMPORARY.fullmatch(entry.name)
            if match:
                _remove_dead(entry.with_name(match[1]))


# Before the first file that this process writes into a folder.
_sweep_once = cache(_sweep)


def _remove_dead(temporary: Path) -> None:
    lock_path = _lock_of(temporary)
    with suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(lock_path, flags, 0o666), "r+b") as handle:
            lock(handle.fileno(), wait=False)
            _remove(temporary)
        lock_path.unlink()


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _replace(source: Path, target: Path) -> None:
    """Rename a file to a name that may be taken. Windows waits for others to close that file."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            os.replace(source, target)
        except PermissionError:
            if _POSIX or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    if not _POSIX and path.is_dir():  # Windows has no such call, and logs names itself
        return
    # Windows flushes only what may be written
    handle = os.open(path, os.O_RDONLY if _POSIX else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(target: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step (see `atomic_path`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "sub", "a.txt"), "a dog")
    ...     Path(folder, "sub", "a.txt").read_text(encoding="utf-8")
    'a dog'
    """
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def cache_folder() -> Path:
    """Return the folder of files that can be computed again: ``$CHANNELHASH_CACHE``, or one in the
    user's cache folder.

    That is ``$XDG_CACHE_HOME`` where it is set, else ``~/.cache``, ``~/Library/Caches`` (macOS) or
    ``%LOCALAPPDATA%``.
    """
    own = os.environ.get("CHANNELHASH_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base, "channelhash")
    try:
        home = Path.home()
    except RuntimeError:
        raise InputError(
            "this user has no home folder; name a folder for caches in CHANNELHASH_CACHE"
        ) from None
    if sys.platform == "win32":
        return Path(
            os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "channelhash", "Cache"
        )
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "channelhash"
