"""What an address names: a store of `STORES`, or a path with a store, a run, codes or images."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from channelhash.data.folder import STORE_FOLDER
from channelhash.errors import InputError, check_address
from channelhash.search.milvus import MilvusStore
from channelhash.search.postgres import PostgresStore
from channelhash.search.store import Store
from channelhash.utils.files import cache_folder

if TYPE_CHECKING:
    from channelhash.search.sqlite.folder import StoreFolder

#: Beginning of an address -> the class of its stores. Every other address is a path.
STORES: dict[str, type[Store]] = {
    "postgresql://": PostgresStore,
    "milvus+": MilvusStore,
}

_Kind = Literal["run", "store", "model", "codes", "folder", ""]
# Bytes of a file in which its mark stands.
_HEAD = 1 << 16
# Other programs write a config.json, too.
_MODEL = rb'(?s)(?=.*"name":)(?=.*"n_bits":)(?=.*"architecture":)'
# Kind of folder -> file -> pattern of what it begins with.
_MARKS: dict[_Kind, dict[str, bytes]] = {
    "run": {
        # the sections stand in any order
        "config.yaml": rb"(?ms)\A(?=.*^data:)(?=.*^model:)(?=.*^loss:)(?=.*^train:)"
    },
    "store": {
        "store.json": rb'"channelhash store',
        "items.sqlite": rb"CREATE TABLE removed \(serial",
        "model/config.json": _MODEL,
    },
    "model": {"config.json": _MODEL},
}


@dataclass(frozen=True)
class Address:
    """The address of a store, or of what can be searched as one.

    Attributes:
        text: the address as it was given.
        scheme: the key of `STORES` that it begins with; empty for a path.
        path: the path; None for an address with a scheme.

    >>> Address.parse("photos.store").path.name, Address.parse("milvus+http://host:1/c").scheme
    ('photos.store', 'milvus+')
    """

    text: str
    scheme: str
    path: Path | None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, address: "str | Path | Address") -> "Address":
        """Read an address; an `Address` stays as it is.

        Raises:
            InputError: it holds a password, or no store is opened by it.
        """
        if isinstance(address, Address):
            return address
        text = str(address)
        check_address(text)
        scheme = next(filter(text.startswith, STORES), "")
        if scheme:
            return cls(text, scheme, None)
        if "://" in text:
            schemes = ", ".join(sorted(STORES))
            raise InputError(
                f"no store is opened by {text!r}; expected a folder, or an address that begins "
                f"with: {schemes}"
            )
        return cls(text, "", Path(address))

    @property
    def kind(self) -> _Kind:
        """What is at a path now; empty if nothing is, and for an address with a scheme.

        A store may be damaged, or still without items. A plain folder is a ``"folder"``.

        >>> Address.parse(os.sep).kind, Address.parse("lost.store").kind
        ('folder', '')
        """
        return "" if self.path is None else _kind_of(self.path)

    @property
    def store(self) -> "Address":
        """The address of the store of a plain folder that has one; otherwise this address."""
        if self.path is None or self.kind != "folder":
            return self
        path = find_store(self.path)
        return self if path is None else Address(str(path), "", path)

    @property
    def folder(self) -> "StoreFolder | None":
        """The files of the store that a path is or will be; None for an address with a scheme."""
        from channelhash.search.sqlite.folder import StoreFolder

        return None if self.path is None else StoreFolder(self.path)

    @property
    def writable(self) -> bool:
        """Whether the files of a store at a path can be written to, or are yet to be made."""
        return self.folder is not None and self.folder.writable

    @property
    def codes_file(self) -> Path | None:
        """The file of codes that a run's folder holds or that the path is; None for a store.

        Raises:
            InputError: the run has no codes yet.

        >>> Address.parse("items.parquet").codes_file.name
        'items.parquet'
        """
        if self.path is None or self.kind != "run":
            return self.path if self.kind == "codes" else None
        codes = self.path / "codes" / "test-retrieval.parquet"
        if not codes.exists():
            raise InputError(
                f"{self}: this run has no codes yet; write them with `channelhash evaluate {self}`"
            )
        return codes

    @property
    def holds_files(self) -> bool:
        """Whether it is a plain folder with files that are not hidden."""
        return self.path is not None and self.kind == "folder" and any(self.path.glob("[!.]*"))

    @property
    def keeps_projections(self) -> bool:
        """Whether a new store there can keep projections."""
        return not self.scheme or STORES[self.scheme].keeps_projections


def _kind_of(path: Path) -> _Kind:
    if not path.is_dir():
        return "codes" if path.suffix == ".parquet" else ""
    for kind, marks in _MARKS.items():
        if any(_begins_with(path / name, mark) for name, mark in marks.items()):
            return kind
    return "folder"


def _begins_with(file: Path, mark: bytes) -> bool:
    """Return whether a file begins with what only this package writes."""
    with suppress(OSError), open(file, "rb") as opened:
        return re.search(mark, opened.read(_HEAD)) is not None
    return False


def find_store(folder: Path) -> Path | None:
    """Return the store of a plain folder: in it, or in the user's cache; None if it has none."""
    for place in _places(folder):
        if _kind_of(place) == "store":
            return place
    return None


def choose_place(folder: Path) -> Path:
    """Return where the new store of a plain folder belongs: in it, or in the user's cache if the
    folder is read-only.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     choose_place(Path(photos)).name
    '.channelhash'
    """
    for place in _places(folder):
        try:
            place.mkdir(parents=True, exist_ok=True)  # the only sure test
            if os.access(place, os.W_OK):
                return place
            reason: str | None = "Permission denied"
        except OSError as error:
            reason = error.strerror
        finally:
            with suppress(OSError):
                place.rmdir()
    where = f"{place}: no store can be made here or in {folder} ({reason})"
    raise InputError(f"{where}; name one: `channelhash index create STORE {folder}`")


def _places(folder: Path) -> Iterator[Path]:
    """Yield where the store of a plain folder may be: in it, or in the user's cache."""
    yield folder / STORE_FOLDER
    where = os.path.realpath(folder)
    digest = hashlib.sha256(os.fsencode(where)).hexdigest()[:16]
    with suppress(InputError):  # a user without a cache
        yield cache_folder() / f"{Path(where).name}-{digest}"
