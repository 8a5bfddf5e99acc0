"""Files and folders in an object store, with the calls of `pathlib.Path` that bulk jobs need.

An object appears when all of it has been sent, so an upload takes the place of the renaming in `utils.files`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from channelhash.errors import InputError, check_address
from channelhash.utils.addresses import is_remote, open_system, reaching, read_bytes, star_expression
from channelhash.utils.files import atomic_path


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder at an address such as ``s3://bucket/codes``.

    >>> path = RemotePath("memory://codes") / "a.txt"
    >>> path.create(b"first"), path.create(b"second"), path.read_bytes()
    (True, False, b'first')
    >>> str(path), path.name, [file.name for file in path.parent.glob("*.txt")]
    ('memory://codes/a.txt', 'a.txt', ['a.txt'])
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.address.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder that holds it."""
        return RemotePath(self.address.rstrip("/").rpartition("/")[0])

    def resolve(self) -> "RemotePath":
        """Return itself: an address is the same on every machine."""
        return self

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        return self._kind() != ""

    def is_file(self) -> bool:
        """Return whether there is a file."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Return whether there is a folder, which has at least one file."""
        return self._kind() == "directory"

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yield the files of this folder whose names match; of a folder that does not exist, none."""
        system, path = self._fresh()
        matches = star_expression(pattern).fullmatch
        try:
            with reaching(self.address):
                names = [str(name).rpartition("/")[2] for name in system.ls(path, detail=False)]
        except FileNotFoundError:
            return
        yield from (self / name for name in names if matches(name))

    def read_bytes(self) -> bytes:
        """Return the content; errors as in `utils.addresses.open_address`."""
        return read_bytes(self.address)

    def read_text(self, encoding: str) -> str:
        """Return the content as text."""
        return self.read_bytes().decode(encoding)

    def upload(self, file: Path) -> None:
        """Send a local file; errors as in `utils.addresses.open_address`."""
        system, path = self._fresh()
        with self._writing():
            system.put_file(str(file), path)

    def create(self, content: bytes) -> bool:
        """Write unless there is a file already; return whether the file now has this content."""
        system, path = self._fresh()
        with self._writing():
            try:
                system.pipe_file(path, content, mode="create")
            except OSError:  # servers refuse in different words, also where an earlier try of this request had arrived
                if not self.is_file():
                    raise
        return self.read_bytes() == content

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with reaching(self.address):
                yield
        except FileNotFoundError as error:
            raise InputError(f"{self.address}: cannot be written ({error}); create the bucket first") from None

    def _kind(self) -> str:
        system, path = self._fresh()
        try:
            with reaching(self.address):
                return str(system.info(path)["type"])
        except FileNotFoundError:
            return ""

    def _fresh(self) -> tuple[Any, str]:
        """Return the file system and the path in it, without what is remembered of former listings."""
        system, path = open_system(self.address)
        system.invalidate_cache(path)
        return system, path


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
    if is_remote(str(address)):
        return RemotePath(str(address))
    return Path(str(address).removeprefix("file://").removeprefix("local://"))


@contextmanager
def whole_file(target: Place) -> Iterator[Path]:
    """Yield a temporary local file that becomes ``target`` when the block ends without an error, whole or not at all.

    Raises:
        NoSpaceError: see `utils.files.atomic_path`.
        InputError, JobError: see `utils.addresses.open_address`.
    """
    if isinstance(target, Path):
        with atomic_path(target) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        yield file
        target.upload(file)


def write_whole_text(target: Place, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step.

    >>> write_whole_text(RemotePath("memory://notes/a.txt"), "a dog")
    >>> RemotePath("memory://notes/a.txt").read_text("utf-8")
    'a dog'
    """
    with whole_file(target) as file:
        file.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system
