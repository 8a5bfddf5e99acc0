"""Read a file that SQLite has open in this process, without taking SQLite's locks away.

POSIX drops all locks of a process on a file as soon as the process closes *any* descriptor of it. So a descriptor of
ours is opened before SQLite's, shared by all of this process that need one, and closed after SQLite's.
"""

import hashlib
import os
import threading
from pathlib import Path

_CHUNK = 1 << 20
# Windows translates the ends of lines otherwise.
_BINARY = getattr(os, "O_BINARY", 0)

_lock = threading.Lock()
# Device and inode -> the descriptors of that file, one for each holder but closed together.
_held: dict[tuple[int, int], list[int]] = {}
_holders: dict[tuple[int, int], int] = {}


class HeldFile:
    """One file, also after another one has taken its name.

    Raises:
        OSError: there is no such file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a")
    ...     _ = path.write_bytes(b"abc")
    ...     held = HeldFile(path)
    ...     held.changed(path) == path.stat().st_mtime_ns, held.sha256()[0]
    ...     held.close()
    (True, 3)
    """

    def __init__(self, path: Path) -> None:
        with _lock:
            self._key = _key(os.stat(path))
            if self._key not in _held:
                descriptor = os.open(path, os.O_RDONLY | _BINARY)
                self._key = _key(os.fstat(descriptor))
                _held.setdefault(self._key, []).append(descriptor)
            self._descriptor = _held[self._key][0]
            _holders[self._key] = _holders.get(self._key, 0) + 1
        self._closed = False

    def changed(self, path: Path | str) -> int | None:
        """Return when the file was last changed, in ns, or None if a path does not name it any more."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_mtime_ns if _key(status) == self._key else None

    def read(self, n_bytes: int) -> bytes:
        """Return the file's first bytes."""
        return _read_at(self._descriptor, n_bytes, 0)

    def sha256(self) -> tuple[int, str]:
        """Return the number of bytes and their SHA-256 as hex digits."""
        digest, offset = hashlib.sha256(), 0
        while chunk := _read_at(self._descriptor, _CHUNK, offset):
            digest.update(chunk)
            offset += len(chunk)
        return offset, digest.hexdigest()

    def close(self) -> None:
        """Let go of the file; call this after all connections of SQLite to it are closed."""
        with _lock:
            if self._closed:
                return
            self._closed = True
            _holders[self._key] -= 1
            if not _holders[self._key]:
                del _holders[self._key]
                for descriptor in _held.pop(self._key):
                    os.close(descriptor)


def _read_at(descriptor: int, n_bytes: int, offset: int) -> bytes:
    """Read from a place. Forks share the position of a descriptor, so it is left alone; Windows has no forks."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, n_bytes, offset)
    with _lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, n_bytes)


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
