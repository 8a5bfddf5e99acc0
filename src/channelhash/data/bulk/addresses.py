"""Files at any address: a path, or a URL that fsspec knows (``s3://…``, ``gs://…``, ``https://…``, ``memory://…``)."""

import os
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, cast

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from channelhash.errors import InputError

# What file systems call the time or the version of a file's content.
_VERSIONS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "created")


class File(NamedTuple):
    """A file, with the version of its content as far as the file system knows.

    >>> File("s3://bucket/a.tar", size=10240, version="etag 1").address
    's3://bucket/a.tar'
    """

    address: str
    size: int
    version: str


def list_files(address: str) -> Iterator[File]:
    """Yield the file at an address, the files that a pattern with ``*`` matches, or all files below a folder.

    The order is always the same. Hidden files and folders are skipped, and links to folders are not followed. Memory
    grows with the largest single folder.

    Raises:
        InputError: the address holds nothing, or cannot be used.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/docs/a.txt", b"text")
    >>> [(file.address, file.size) for file in list_files("memory://docs")]
    [('memory:///docs/a.txt', 4)]
    """
    system, path = _system(address)
    infos: Iterator[dict[str, Any]]
    if "*" in path:
        fixed = path.partition("*")[0]
        names = sorted(name for name in cast(list[str], system.glob(path)) if not _hidden(name.removeprefix(fixed)))
        infos = (info for name in names if (info := system.info(name))["type"] == "file")
    elif system.isfile(path):
        infos = iter([system.info(path)])
    elif system.isdir(path):
        infos = _below(system, path)
    else:
        raise InputError(f"{address}: no such file or folder")
    for info in infos:
        version = next((str(info[key]) for key in _VERSIONS if key in info), "")
        yield File(_address(system, info["name"]), int(info["size"] or 0), version)


def folder_of(address: str) -> str:
    """Return the folder at an address, or the folder that holds its file or all that its pattern matches.

    >>> folder_of("memory://docs/*.txt")
    'memory:///docs'
    """
    system, path = _system(address)
    folder = path if system.isdir(path) else path.partition("*")[0].rpartition("/")[0]
    return _address(system, folder).rstrip("/")


def open_address(address: str) -> IO[bytes]:
    """Open a file for reading; the caller closes it."""
    system, path = _system(address)
    return cast(IO[bytes], system.open(path, "rb"))


def read_bytes(address: str) -> bytes:
    """Read all of a file.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/words/b.txt", b"a dog")
    >>> read_bytes("memory://words/b.txt")
    b'a dog'
    """
    system, path = _system(address)
    return cast(bytes, system.cat_file(path))


def _system(address: str) -> tuple[AbstractFileSystem, str]:
    try:
        system, path = url_to_fs(address)
    except (ImportError, ValueError) as error:  # the protocol is unknown, or its library missing
        raise InputError(f"{address}: cannot be opened ({error})") from None
    return system, str(path)


def _address(system: AbstractFileSystem, path: str) -> str:
    return path if isinstance(system, LocalFileSystem) else str(system.unstrip_protocol(path))


def _hidden(path: str) -> bool:
    """Return whether a file, or a folder on the way to it, begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def _below(system: AbstractFileSystem, folder: str) -> Iterator[dict[str, Any]]:
    """Yield the files below a folder at any depth, folder by folder in the order of names, without hidden ones."""
    for info in _entries(system, folder):
        if _hidden(info["name"].rstrip("/").rpartition("/")[2]):
            continue
        if info["type"] == "directory":
            yield from _below(system, info["name"])
        elif info["type"] == "file":
            yield info


def _entries(system: AbstractFileSystem, folder: str) -> Iterator[dict[str, Any]]:
    if not isinstance(system, LocalFileSystem):
        infos = sorted(system.ls(folder, detail=True), key=lambda info: str(info["name"]))
        yield from (info for info in infos if info["name"].rstrip("/") != folder.rstrip("/"))
        return
    # fsspec's list of a local folder takes ten times the memory.
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield {"name": entry.path, "type": "directory"}
            elif entry.is_file():
                status = entry.stat()
                yield {"name": entry.path, "type": "file", "size": status.st_size, "mtime": status.st_mtime_ns}
