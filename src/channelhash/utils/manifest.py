"""Sizes and SHA-256 of the files of a folder, to notice later that one of them is not as it was written.

SHA-256 takes about 0.6 s a gigabyte on one core, without the interpreter's lock: several files go at once.
"""

import hashlib
import mmap
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from channelhash.utils.exhausted import check_exhausted

_THREADS = 4


class FileFacts(NamedTuple):
    """What a file is known by.

    >>> FileFacts(size=0, sha256=hashlib.sha256().hexdigest()).sha256[:8]
    'e3b0c442'
    """

    size: int
    sha256: str


#: Files by their path in a folder, with ``/`` between its parts.
Files = Mapping[str, FileFacts]


def list_files(folder: Path) -> dict[str, FileFacts]:
    """Return every file below a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     Path(name, "a.txt").touch()
    ...     list_files(Path(name))["a.txt"].size
    0
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(_THREADS) as pool:
        digests = list(pool.map(_digest, paths))
    return {
        path.relative_to(folder).as_posix(): FileFacts(path.stat().st_size, digest)
        for path, digest in zip(paths, digests, strict=True)
    }


def parse_files(described: Any) -> dict[str, FileFacts]:
    """Return files from their JSON, ``{path: {"size": …, "sha256": …}}``.

    Raises:
        ValueError: it is something else, or a path leads out of the folder.

    >>> parse_files({"a.txt": {"size": 0, "sha256": "e3b0"}})
    {'a.txt': FileFacts(size=0, sha256='e3b0')}
    """
    try:
        files = {name: FileFacts(int(facts["size"]), str(facts["sha256"])) for name, facts in described.items()}
    except (AttributeError, KeyError, TypeError, OverflowError):
        raise ValueError("files are listed by path, with size and sha256") from None
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} does not lie in the folder")
    return files


def find_lost(folder: Path, files: Files) -> list[str]:
    """Return a line for each file that is missing or has another size; nothing is read.

    >>> find_lost(Path("."), {"none.txt": FileFacts(3, "")})
    ['none.txt: is missing']
    """
    return [f"{name}: {trouble}" for name, facts in files.items() if (trouble := _lost(folder / name, facts))]


def find_damaged(folder: Path, files: Files) -> list[str]:
    """Return a line for each file that is not as it is listed; all of them are read.

    >>> find_damaged(Path("."), {"none.txt": FileFacts(3, "")})
    ['none.txt: is missing']
    """

    def damage(name: str) -> str | None:
        path, facts = folder / name, files[name]
        if lost := _lost(path, facts):
            return f"{name}: {lost}"
        try:
            return None if _digest(path) == facts.sha256 else f"{name}: has changed since it was written"
        except OSError as error:
            check_exhausted(error, path)
            return f"{name}: cannot be read ({error.strerror})"

    with ThreadPoolExecutor(_THREADS) as pool:
        return [line for line in pool.map(damage, files) if line]


def read_checked(folder: Path, names: Iterable[str], files: Files, mapped: bool = False) -> list[bytes | mmap.mmap]:
    """Read some of the files. What is returned is what was checked, whatever happens to the files from now on.

    Args:
        folder: of the files.
        names: of those that are read.
        files: what they should be.
        mapped: leave the content in the files, shared with other processes, after it was checked. Such a file may be
            removed or replaced by another, but not written to.

    Raises:
        ValueError: a file is not listed, or not as it is listed.
        OSError: a file cannot be read.

    >>> read_checked(Path("."), ["none.txt"], {"none.txt": FileFacts(3, "")})
    Traceback (most recent call last):
      ...
    ValueError: none.txt: is missing
    """

    def read(name: str) -> bytes | mmap.mmap:
        if name not in files:
            raise ValueError(f"{name}: is not listed")
        if lost := _lost(folder / name, files[name]):
            raise ValueError(f"{name}: {lost}")
        with open(folder / name, "rb") as file:
            size = files[name].size
            content = (
                mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if mapped and size else file.read(size + 1)
            )
        if hashlib.sha256(content).hexdigest() != files[name].sha256:
            raise ValueError(f"{name}: has changed since it was written")
        return content

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, names))


def _lost(path: Path, facts: FileFacts) -> str | None:
    """Return what can be said against a file that is not opened: a pipe would wait for its other end."""
    try:
        status = path.stat()
    except OSError:
        return "is missing"
    if not stat.S_ISREG(status.st_mode):
        return "is no file"
    return None if status.st_size == facts.size else f"has {status.st_size} bytes, not {facts.size}"


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
