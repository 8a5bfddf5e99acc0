"""An embedded store's folder: ``store.json`` describes the store, beside it lie the other files."""

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import InputError
from channelhash.search.items import check_opened_as
from channelhash.search.sqlite.tables import connect, one_line_errors, read_description
from channelhash.utils.files import check_exhausted, dump_checked, load_checked, locked, write_text
from channelhash.utils.progress import StageProgress

_FORMAT = "channelhash store 6"

# Windows knows no other than the process's own user.
_EFFECTIVE = os.access in os.supports_effective_ids


class StoreFolder:
    """Where the files of a store are.

    Args:
        path: the folder.
        mapped: whether the codes of a snapshot are searched where they are, see `snapshots.Snapshot`.

    >>> StoreFolder(Path("photos.store")).database.name
    'items.sqlite'
    """

    def __init__(self, path: Path, mapped: bool = False) -> None:
        self.path, self.mapped = path, mapped
        #: Holds a `Manifest`.
        self.description = path / "store.json"
        #: The record of truth.
        self.database = path / "items.sqlite"
        #: Says how often the database was written to, at least; a log that is lost shows by that.
        self.writes = path / ".writes"
        #: Held while a process opens or seals the database, so that only one checks it.
        self.gate = path / ".gate"
        #: Held while the store or a snapshot is made.
        self.lock = path / ".lock"
        #: The model that made the codes, if somebody has put it there with ``save_pretrained``.
        self.model = path / "model"
        #: Says which photographs the items are, if they are those of a folder.
        self.source = path / "source.json"
        #: Held by the indexing run that writes to the store, see `hold_run`.
        self.run_lock = path / ".indexing"

    @property
    def writable(self) -> bool:
        """Whether the files can be written to, or are yet to be made."""
        needed = (self.path, self.database, self.gate)
        return all(os.access(path, os.W_OK, effective_ids=_EFFECTIVE) for path in needed if path.exists())

    def check_own(self) -> None:
        """Raise `InputError` if the folder holds something else than a store."""
        if self.path.is_file():
            raise InputError(f"{self.path}: is a file, neither a store's folder nor a Parquet file of codes")
        if self.path.is_dir() and not self.description.exists() and not self.database.exists():
            prefixes = (self.database.name, self.model.name, self.source.name, ".")
            foreign = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith(prefixes))
            if foreign:
                raise InputError(
                    f"{self.path}: holds {foreign[0]}, but no store; if these are pictures to search, make one of them "
                    f"with `channelhash search {self.path} WORDS`, otherwise choose a new folder"
                )

    def n_bytes(self) -> int:
        """Add up the sizes of all files but the model's. Other processes may remove some meanwhile."""
        total = 0
        for folder, folders, names in os.walk(self.path):
            if Path(folder) == self.path and self.model.name in folders:
                folders.remove(self.model.name)
            for name in names:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).stat().st_size
        return total


@contextmanager
def hold_run(store: Path, progress: StageProgress) -> Iterator[None]:
    """Wait until no other run writes to a store, and keep others waiting within the block.

    Where nothing can be written, or the file system has no locks, nobody waits.

    Args:
        store: the store's folder, which is made, and removed again if the block leaves nothing in it.
        progress: stage -> its callback; one stage is to wait.
    """
    folder = StoreFolder(store)
    with ExitStack() as stack:
        with suppress(OSError):
            try:
                stack.enter_context(locked(folder.run_lock, wait=False))
            except BlockingIOError:
                progress(f"waiting for another command that indexes {folder.path}")(0, 0)
                stack.enter_context(locked(folder.run_lock))
            stack.callback(_remove_empty, folder)
        yield


def _remove_empty(folder: StoreFolder) -> None:
    """Remove the lock and the folder of a run that has left no store."""
    with suppress(OSError):
        if os.listdir(folder.path) == [folder.run_lock.name]:
            folder.run_lock.unlink()  # still locked, so nobody has begun meanwhile
            folder.path.rmdir()


class Facts(NamedTuple):
    """What all codes of a store have in common.

    Attributes:
        n_bits: their length.
        model: fingerprint of their model, empty if unknown.
        projected: whether each has a projection beside it.

    >>> Facts(n_bits=64, model="a1b2").projected
    False
    """

    n_bits: int
    model: str
    projected: bool = False

    @property
    def projection_size(self) -> int | None:
        """Bytes of a projection; None where there are none."""
        return self.n_bits if self.projected else None


class Manifest(NamedTuple):
    """What a store says of itself, in ``store.json`` and, as it was when the store was made, in the database.

    Attributes:
        facts: what its codes have in common.
        store: a random name, by which a file of another store is told.
        writes: `State.writes` when the database was sealed; nobody has written since if it is that still.
        digest: `tables.digest` of the database then, empty if it was not sealed yet.

    >>> Manifest(Facts(64, "a1b2"), "4f", writes=2, digest="4096 89abcdef").writes
    2
    """

    facts: Facts
    store: str
    writes: int = 0
    digest: str = ""

    @classmethod
    def new(cls, facts: Facts) -> "Manifest":
        """Return the manifest of a store that is being made."""
        return cls(facts, uuid.uuid4().hex)

    def to_json(self) -> str:
        """Return the text of ``store.json``."""
        values = {"format": _FORMAT, **self.facts._asdict()}
        return dump_checked({**values, "store": self.store, "writes": self.writes, "digest": self.digest})


def parse_manifest(text: str) -> Manifest | None:
    """Return what `Manifest.to_json` wrote; None if it is damaged.

    Raises:
        InputError: another version wrote it.
    """
    try:
        values = load_checked(text)
        written_as = values.pop("format")
        if written_as != _FORMAT:
            raise InputError(
                f"written as {written_as!r}, this version reads {_FORMAT!r}; remove the folder and add the items again"
            )
        rest = [values.pop(name) for name in ("store", "writes", "digest")]
        return Manifest(Facts(**values), *rest)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def read_manifest(folder: StoreFolder) -> Manifest | None:
    """Return what a store's description says; None if it is missing or damaged.

    Raises:
        InputError: it cannot be read, or is one of another version.
    """
    try:
        return parse_manifest(folder.description.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None
    except OSError as error:
        check_exhausted(error, folder.description)
        raise InputError(f"{folder.description}: cannot be read ({error.strerror}); restore it") from None
    except InputError as error:
        raise InputError(f"{folder.description}: {error}") from None


def find_manifest(folder: StoreFolder) -> Manifest | None:
    """Return what a store's description says, which is made again from the database if need be; None without a store.

    Raises:
        InputError: the database is missing or damaged, or as `read_manifest`.
    """
    if not folder.database.exists():
        if folder.description.exists() and not folder.database.exists():  # else another process has just made it
            raise InputError(f"{folder.database}: is missing; restore it, or remove the folder and add the items again")
        return None
    if manifest := read_manifest(folder):
        return manifest
    if not folder.writable:
        raise InputError(f"{folder.description}: is missing or damaged; open the store where it can be written to")
    with locked(folder.lock):  # another process may be making the store
        if manifest := read_manifest(folder):
            return manifest
        with one_line_errors(str(folder.database)), closing(connect(folder.database)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return None  # the process that made it was killed
            manifest = parse_manifest(read_description(connection))
            if manifest is None:
                raise sqlite3.DatabaseError("its description is not as it was written")
        write_text(folder.description, manifest.to_json())
        return manifest


def read_facts(folder: StoreFolder) -> Facts:
    """Return what all codes of a store that is there have in common; errors as `find_manifest`."""
    manifest = find_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder.path}: holds no store")
    return manifest.facts


def check_opened(address: str, facts: Facts, expected: Facts) -> None:
    """Raise `InputError` unless a store may be opened as what is expected: any length of 0, any model that is empty.

    >>> check_opened("photos.store", Facts(64, "a1b2"), Facts(0, "a1b2"))
    """
    check_opened_as(address, facts[:2], expected.n_bits or None, expected.model)
    if expected.projected and not facts.projected:
        raise InputError(f"{address}: keeps no projections beside its codes; choose another store")
