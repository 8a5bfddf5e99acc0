"""Write files in one step: a reader sees the old file or the new one, never a part."""

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``, which is renamed to it when the block ends without an error.

    The content is flushed to the disk before the rename, so after a power cut ``target`` is the complete old file or
    the complete new one. If the block raises, the temporary file is removed and ``target`` stays as it is.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")  # as `remove_leftovers` expects
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(target: Path) -> None:
    """Remove temporary files that killed processes left beside ``target``; the caller holds its lock."""
    for temporary in target.parent.glob(f".{target.name}.{'[0-9a-f]' * 32}.tmp"):
        temporary.unlink()


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
        yield


def cache_folder() -> Path:
    """Return the folder of files that can be computed again: ``$CHANNELHASH_CACHE``, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CHANNELHASH_CACHE") or Path(base) / "channelhash")
