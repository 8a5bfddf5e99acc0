"""Files at any address: a path, or a URL that fsspec knows (``s3://…``, ``gs://…``, ``https://…``,
``memory://…``).
"""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from channelhash.errors import (
    InputError,
    JobError,
    RefusedError,
    check_address,
    hide_secrets,
    naming,
)
from channelhash.utils.decode import one_line
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import library

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


# What file systems call the time or the version of a file's content.
_VERSIONS = (
    "mtime",
    "ETag",
    "etag",
    "Last-Modified",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
# Errors that say which file or how much, and not that the network or a server failed.
_PLAIN = (InputError, JobError, FileNotFoundError, IsADirectoryError, MemoryError)
# Errors of boto3 that come again and again, since a name or a setting is wrong.
_SETTINGS = ("ParamValidationError", "ProfileNotFound")
# Bytes read ahead of each read of a remote file. The libraries' own 5 to 50 MB would be sent again
# for each row group.
_AHEAD = 1 << 16
# What follows the path in an address of the web, and names a version in an object store.
_OPTIONS_OF_WEB = re.compile(r"[?#].*", re.DOTALL)
_OPTIONS_OF_STORE = re.compile(r"\?versionId=[^/?]*$|#\d+$")
_ABSENT = (404, 410)  # status of an answer
_BUSY = 429
# Levels of folders that are looked through.
_ENDLESS = float("inf")


class File(NamedTuple):
    """A file, with the version of its content as far as the file system knows.

    >>> File("s3://bucket/a.tar", size=10240, version="etag 1").address
    's3://bucket/a.tar'
    """

    address: str
    size: int
    version: str


def cut_options(address: str) -> tuple[str, str]:
    """Return the path of an address, and what follows it: a signature, a version, a fragment.

    >>> cut_options("https://host/a.tar?sig=1a%2F2b"), cut_options("data/why?.tar")
    (('https://host/a.tar', '?sig=1a%2F2b'), ('data/why?.tar', ''))
    """
    if not _is_remote(address):
        return address, ""
    pattern = _OPTIONS_OF_WEB if _is_web(address) else _OPTIONS_OF_STORE
    options = pattern.search(address)
    start = options.start() if options else len(address)
    return address[:start], address[start:]


def without_signature(address: str) -> str:
    """Return an address as it may be kept: without the options that sign it, which open a file to
    anyone for hours.

    >>> without_signature("https://host/a.tar?se=2026&sig=1a")
    'https://host/a.tar'
    """
    path, options = cut_options(address)
    return path if hide_secrets(address) != address else path + options


def ending_of(address: str) -> str:
    """Return the ending of an address's path in small letters, with its dot.

    >>> ending_of("https://host/a.TAR?sig=1a.2b"), ending_of("data/why?.parquet")
    ('.tar', '.parquet')
    """
    return PurePosixPath(cut_options(address)[0]).suffix.lower()


def list_files(address: str) -> Iterator[File]:
    """Yield the file at an address, the files that a pattern with ``*`` matches, or all files below
    a folder.

    The order is always the same. Hidden files and folders are skipped, and links to folders are not
    followed. Memory grows with the largest single folder.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/docs/a.txt", b"text")
    >>> [(file.address, file.size) for file in list_files("memory://docs")]
    [('memory:///docs/a.txt', 4)]
    """
    names, options = cut_options(address)
    if options and "*" in names:
        raise InputError(
            f"{address}: what follows {options[0]} belongs to one file, not to a pattern"
        )
    with _reaching(address) as (system, path):
        system.invalidate_cache()  # another listing in this process may be older than the files
        infos = _matching(system, path) if "*" in names else _at(system, path, address)
        for info in infos:
            version = next((str(info[key]) for key in _VERSIONS if key in info), "")
            found = _address(system, info["name"])
            if options not in found:  # s3fs leaves out the version of a file that is asked for
                found += options
            yield File(found, int(info["size"] or 0), version)


def _at(system: "AbstractFileSystem", path: str, address: str) -> Iterable[dict[str, Any]]:
    """Return the file at a path, or the files below it."""
    info = _info(system, path)
    if info is None:
        raise InputError(f"{address}: no such folder or file")
    return _below(system, path, path) if info["type"] == "directory" else [info]


def folder_of(address: str) -> str:
    """Return the folder at an address, or the folder that holds its file or all that its pattern
    matches.

    >>> folder_of("memory://docs/*.txt")
    'memory:///docs'
    """
    with _reaching(address) as (system, path):
        info = None if "*" in cut_options(address)[0] else _info(system, path)
    if info is None or info["type"] != "directory":
        path = cut_options(path)[0].partition("*")[0].rpartition("/")[0]
    return _address(system, path).rstrip("/")


def open_address(address: str, ahead: int = _AHEAD) -> IO[bytes]:
    """Open a file for reading; the caller closes it."""
    with _reaching(address) as (system, path):
        file = cast(IO[bytes], system.open(path, "rb", block_size=ahead))
    if _is_remote(address):
        read = file.read

        def read_or_say(size: int = -1) -> bytes:
            with _reaching(address):
                return read(size)

        file.read = read_or_say  # type: ignore[method-assign]
    return file


def read_bytes(address: str) -> bytes:
    """Read all of a file. Errors as in `open_address`.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/words/b.txt", b"a dog")
    >>> read_bytes("memory://words/b.txt")
    b'a dog'
    """
    with _reaching(address) as (system, path):
        return cast(bytes, system.cat_file(path))


def _is_remote(address: str) -> bool:
    """Return whether an address is no path of this machine's file systems.

    >>> _is_remote("s3://bucket/a.tar"), _is_remote("file:///data/a.tar"), _is_remote("data/a.tar")
    (True, False, False)
    """
    return "://" in address and not address.startswith(("file://", "local://"))


def _is_web(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))


@contextmanager
def _reaching(address: str) -> Iterator[tuple["AbstractFileSystem", str]]:
    """Yield the file system of an address, and the path in it.

    What the library of a remote file system raises in the block becomes an error of one line.
    Errors of local files pass.

    >>> with _reaching("memory://bucket/a.tar"):
    ...     raise TimeoutError("no answer")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    channelhash.errors.JobError: memory://bucket/a.tar: the server failed (no answer); run the ...
    """
    check_address(address)
    if address.startswith(("s3://", "s3a://")):
        library("s3fs", "s3")
    from fsspec.core import url_to_fs  # takes longer than all that a search imports

    try:
        yield url_to_fs(address, **({"encoded": True} if _is_encoded(address) else {}))
    except _PLAIN:
        raise
    except ImportError as error:  # the protocol's library is missing
        raise InputError(f"{address}: cannot be opened ({error})") from None
    except Exception as error:
        if not _is_remote(address):
            raise
        raise _in_words(address, error) from error


def _is_encoded(address: str) -> bool:
    """Return whether an address is sent as it is written: some servers would take a signature in
    another spelling for another one.
    """
    is_written = _is_web(address) and address.isascii() and not re.search(r"\s", address)
    return is_written and bool(cut_options(address)[1])


def _in_words(address: str, error: Exception) -> InputError | JobError:
    """Return what to raise where the library of a remote file system raises an error."""
    kind = type(error).__name__
    status = getattr(error, "status", None)
    if isinstance(error, PermissionError) or "Credential" in kind:
        return InputError(f"{address}: no access ({one_line(error)}); check the credentials")
    if isinstance(status, int):  # of a web server; its message repeats the whole address
        answer = f"{status} {getattr(error, 'message', '')}".strip()
        if status == _BUSY or status >= 500:
            return JobError(f"{address}: the server failed ({answer}); run the command again later")
        remedy = "check the address; if it is signed, perhaps that has expired"
        return RefusedError(f"{address}: the server refuses ({answer}); {remedy}")
    if kind.startswith("ClientConnector"):
        remedy = "check its name and the network, then run the command again"
        return JobError(f"{address}: the server cannot be reached ({one_line(error)}); {remedy}")
    if isinstance(error, ValueError) or kind in _SETTINGS:
        return InputError(
            f"{address}: cannot be opened ({one_line(error)}); check the address and the settings "
            "of its server"
        )
    return JobError(
        f"{address}: the server failed ({one_line(error)}); run the command again to go on"
    )


def _address(system: "AbstractFileSystem", path: str) -> str:
    return path if _is_local(system) else str(system.unstrip_protocol(path))


def _is_local(system: "AbstractFileSystem") -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(system, LocalFileSystem)


def _info(system: "AbstractFileSystem", path: str) -> dict[str, Any] | None:
    """Return what is known of a file or folder, None if there is none; raise if a server fails."""
    try:
        return cast(dict[str, Any], system.info(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        # fsspec raises the same for web servers that refuse, fail or do not exist
        cause = error.__cause__
        status = getattr(cause, "status", None)
        if _is_web(path) and isinstance(cause, Exception) and status not in _ABSENT:
            raise cause from None
        return None


def _matching(system: "AbstractFileSystem", path: str) -> list[dict[str, Any]]:
    """Return the files that a pattern matches, in the order of their paths."""
    from fsspec.utils import glob_translate

    fixed, _, names = path.partition("*")
    root = fixed.rpartition("/")[0] or "/"
    if _info(system, root) is None:
        return []
    # Only ``*`` is special, within a name, or as ``**`` across folders; not brackets as in fsspec.
    with naming(path, ValueError):
        matches = re.compile(glob_translate(re.sub(r"[\[?]", r"[\g<0>]", path))).fullmatch
    # Not `find`, which passes over folders that cannot be listed, and servers that fall silent.
    files = _below(system, root, fixed, depth=_ENDLESS if "**" in path else names.count("/") + 1)
    return sorted(
        (info for info in files if matches(info["name"])), key=lambda info: str(info["name"])
    )


def _below(
    system: "AbstractFileSystem", folder: str, known: str, depth: float = _ENDLESS
) -> Iterator[dict[str, Any]]:
    """Yield the files below a folder, folder by folder in the order of names.

    Hidden ones are left out: a name behind the ``known`` start of their path begins with a dot.
    """
    for info in _entries(system, folder):
        if any(name.startswith(".") for name in info["name"].removeprefix(known).split("/")):
            continue
        if info["type"] == "file":
            yield info
        elif info["type"] == "directory" and depth > 1:
            yield from _below(system, info["name"], known, depth - 1)


def _entries(system: "AbstractFileSystem", folder: str) -> Iterator[dict[str, Any]]:
    if not _is_local(system):
        infos = sorted(system.ls(folder, detail=True), key=lambda info: str(info["name"]))
        yield from (info for info in infos if info["name"].rstrip("/") != folder.rstrip("/"))
        return
    # fsspec's list of a local folder takes ten times the memory.
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = f"{folder.rstrip('/')}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield {"name": name, "type": "directory"}
            elif entry.is_file():
                status = entry.stat()
                yield {
                    "name": name,
                    "type": "file",
                    "size": status.st_size,
                    "mtime": status.st_mtime_ns,
                }


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder at an address such as ``s3://bucket/codes``.

    >>> path = RemotePath("memory://codes") / "a.txt"
    >>> path.create(b"first"), path.create(b"second"), path.read_bytes()
    (True, False, b'first')
    >>> str(path), path.name, [file.name for file in RemotePath("memory://codes").glob("*.txt")]
    ('memory://codes/a.txt', 'a.txt', ['a.txt'])
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "RemotePath":
        path, options = cut_options(self.address)
        return RemotePath(f"{path.rstrip('/')}/{name}{options}")

    @property
    def name(self) -> str:
        """The last part of the address's path."""
        return cut_options(self.address)[0].rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    def resolve(self) -> "RemotePath":
        """Return itself: an address is the same on every machine."""
        return self

    def is_file(self) -> bool:
        """Return whether there is a file."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Return whether there is a folder, which has at least one file."""
        return self._kind() == "directory"

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yield the files of this folder whose names match; of a folder that does not exist,
        none.
        """
        return (RemotePath(file.address) for file in list_files(str(self / pattern)))

    def read_bytes(self) -> bytes:
        """Return the content; errors as in `utils.addresses.open_address`."""
        return read_bytes(self.address)

    def upload(self, file: Path) -> None:
        """Send a local file; errors as in `utils.addresses.open_address`."""
        with self._writing() as (system, path):
            system.put_file(str(file), path)

    def create(self, content: bytes) -> bool:
        """Write unless there is a file already; return whether the file now has this content."""
        with self._writing() as (system, path):
            try:
                system.pipe_file(path, content, mode="create")
            except OSError:  # in other words from each server; perhaps an earlier try had arrived
                if not self.is_file():
                    raise
        return self.read_bytes() == content

    @contextmanager
    def _writing(self) -> Iterator[tuple[Any, str]]:
        try:
            with self._reaching() as opened:
                yield opened
        except FileNotFoundError as error:
            raise InputError(
                f"{self.address}: cannot be written ({error}); create the bucket first"
            ) from None

    def _kind(self) -> str:
        with self._reaching() as (system, path):
            info = _info(system, path)
        return info["type"] if info else ""

    @contextmanager
    def _reaching(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the path in it, without remembered listings."""
        with _reaching(self.address) as (system, path):
            system.invalidate_cache(path)
            yield system, path


#: A path of this machine, or one in an object store.
Place = Path | RemotePath


def place(address: str | Path | RemotePath) -> Place:
    """Return the place that a path or an address names.

    >>> place("s3://bucket/codes").name, place("file:///codes") == Path("/codes")
    ('codes', True)
    """
    if isinstance(address, RemotePath):
        return address
    check_address(str(address))
    if _is_remote(str(address)):
        return RemotePath(str(address))
    return Path(str(address).removeprefix("file://").removeprefix("local://"))


@contextmanager
def whole_file(target: Place) -> Iterator[Path]:
    """Yield a temporary local file that becomes ``target`` when the block ends without an error,
    whole or not at all.
    """
    if isinstance(target, Path):
        with atomic_path(target) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        yield file
        target.upload(file)
