"""Write files in one step: a reader sees the old file or the new one, never a part."""

import errno
import fcntl
import glob
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from channelhash.errors import InputError, JobError, NoSpaceError

#: What the system says of a disk or a quota that is full, and of a file that may not grow.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Likewise libraries that write by themselves: PyArrow, safetensors and FAISS, then PyTorch, SQLite and NumPy.
_FULL_WORDS = re.compile(
    "|".join(map(os.strerror, FULL)) + r"|failed writing file|unexpected pos|disk is full|requested and \d+ written"
)
#: Names of temporary files and folders.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``, which is renamed to it when the block ends without an error.

    The content is flushed to the disk before the rename, so after a power cut ``target`` is the complete old file or
    the complete new one. If the block raises, the temporary file is removed and ``target`` stays as it is.

    Raises:
        NoSpaceError: there is none for the file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    with space_for(target), _held(target, is_folder=False) as temporary:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target``, which the block renames to it; otherwise the folder goes.

    Raises:
        NoSpaceError: there is none for a file in it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    with space_for(target), _held(target, is_folder=True) as temporary:
        yield temporary


@contextmanager
def space_for(target: Path) -> Iterator[None]:
    """Name ``target`` if the block finds the disk full.

    Raises:
        NoSpaceError: it does.

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
        if getattr(error, "errno", None) not in FULL and not _FULL_WORDS.search(str(error)):
            raise
        reason = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
        raise NoSpaceError(f"{target}: {reason}; make room") from error


@contextmanager
def _held(target: Path, is_folder: bool) -> Iterator[Path]:
    """Yield a new temporary file or folder that is locked, so that nobody takes it for a leftover; remove it."""
    with ExitStack() as stack:
        while True:
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
            if is_folder:
                temporary.mkdir()
            flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
            handle = os.open(temporary, flags, 0o666)
            stack.callback(os.close, handle)
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if temporary.exists():  # nobody has swept it away before it was locked
                break
        stack.callback(_remove, temporary)
        yield temporary


def sweep(folder: Path) -> None:
    """Remove, anywhere below a folder, the temporary files and folders that killed processes left.

    Those of living processes are locked and stay, and so do all where the file system has no locks.
    """
    for parent, _, _ in os.walk(folder):
        _sweep(Path(parent))


def _sweep(folder: Path) -> None:
    for entry in folder.iterdir():
        if _TEMPORARY.fullmatch(entry.name):
            _remove_dead(entry)


@cache
def _sweep_once(folder: Path) -> None:
    """Sweep a folder before the first file that this process writes into it."""
    with suppress(OSError):  # a folder that may be written to, not read
        _sweep(folder)


def remove_leftovers(target: Path) -> None:
    """Remove the temporary files that killed processes left beside ``target``, see `sweep`."""
    for temporary in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}.tmp"):
        _remove_dead(temporary)


def _remove_dead(temporary: Path) -> None:
    with suppress(OSError), ExitStack() as stack:
        flags = os.O_RDONLY if temporary.is_dir() else os.O_RDWR
        handle = os.open(temporary, flags | os.O_NOFOLLOW)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(temporary)


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step (see `atomic_path`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "sub", "a.txt"), "a dog")
    ...     Path(folder, "sub", "a.txt").read_text()
    'a dog'
    """
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def content_hash(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of ``parts`` as 64 hex digits; each part is preceded by its length, so that no lists collide.

    >>> content_hash(b"ab", b"c") == content_hash(b"a", b"bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock file; the lock is released when the process ends, in whatever way.

    Raises:
        BlockingIOError: another process holds it, and ``wait`` is False.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        holder = os.getpid()
        try:
            yield
        finally:
            if os.getpid() == holder:  # a child that was forked meanwhile has the file open too, and is not the holder
                fcntl.flock(handle, fcntl.LOCK_UN)


def cache_folder() -> Path:
    """Return the folder of files that can be computed again: ``$CHANNELHASH_CACHE``, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CHANNELHASH_CACHE") or Path(base) / "channelhash")
