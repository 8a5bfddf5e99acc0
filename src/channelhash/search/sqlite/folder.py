"""An embedded store's folder: its files, their description in ``store.json``, and connections to
its database.

SQLite checks none of what it reads. Each row of truth carries a CRC-32 of what it says, against
damage, not against people. A row that is gone is missing in an index or leaves a hole in its page,
which SQLite's own check finds.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.errors import InputError, JobError, NoSpaceError
from channelhash.search.checks import check_format
from channelhash.search.items import Facts
from channelhash.search.sqlite.words import WordIndex
from channelhash.utils.decode import check_exhausted
from channelhash.utils.files import write_text
from channelhash.utils.hashes import dump_checked, load_checked
from channelhash.utils.locks import locked
from channelhash.utils.progress import StageProgress

#: How long a call waits for another writer before it gives up.
_BUSY_SECONDS = 30.0

#: How SQLite files of a store are told from others: "chst".
APPLICATION = 0x63687374

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "cell_size_check = ON",
    "trusted_schema = ON",  # views may call functions of ours
)


def connect(
    path: Path | None, create: bool = False, read_only: bool = False, alone: bool = False
) -> sqlite3.Connection:
    """Open a database in autocommit mode.

    >>> connect(None).execute("PRAGMA cell_size_check").fetchone()
    (1,)
    """
    name = ":memory:"
    if path is not None:
        name = f"{path.absolute().as_uri()}?mode={_read_only(path) if read_only else 'rwc' if create else 'rw'}"
    seconds = 0.0 if alone else _BUSY_SECONDS
    connection = sqlite3.connect(
        name, timeout=seconds, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        if alone:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        for setting in _SETTINGS[read_only:]:
            connection.execute(f"PRAGMA {setting}")
        if alone:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _read_only(path: Path) -> str:
    """Return how SQLite opens a file that it cannot write to: with its log if there is something in
    it, else without any lock. What is then written to it is not seen: `StoreFolder.look` shows it.
    """
    return f"ro&{'readonly_shm' if _has_log(path) else 'immutable'}=1"


def _has_log(database: Path) -> bool:
    """Return whether some of what was written to a database may lie in its log alone."""
    log = _status(Path(f"{database}-wal"))
    return log is not None and log.st_size > 0


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if there is none."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Raise SQLite's errors about the file of this name as one line for the user."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        if "locked" in reason or "busy" in reason:
            raise InputError(f"{name}: another process is writing to it; try again later") from None
        if "unable to open" in reason:
            _check_files_left(name)
            if _has_log(Path(name)) and _status(Path(f"{name}-shm")) is None:
                raise JobError(
                    f"{name}: cannot be opened: what was written last lies in its log, without an "
                    "index that only its owner can make; let the owner open the store"
                ) from None
            raise JobError(
                f"{name}: cannot be opened: too many open files, or no right to its folder"
            ) from None
        if "readonly" in reason:
            raise InputError(
                f"{name}: can only be read; copy the store to where it can be written to"
            ) from None
        if "full" in reason or "disk I/O" in reason:
            raise NoSpaceError(
                f"{name}: cannot be written ({reason}); make room on the disk"
            ) from None
        if "no such module: fts5" in reason:
            raise InputError(
                f"{name}: needs FTS5, which this Python's SQLite lacks; use another Python"
            ) from None
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise damaged(name, reason) from None


def _check_files_left(name: str) -> None:
    """Raise an error if too many files are open, which SQLite does not say."""
    try:
        # closing the file itself would end SQLite's locks
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        check_exhausted(error, name)


def damaged(name: str, reason: str) -> InputError:
    """Return what to raise where a database is not whole."""
    folder = Path(name).parent
    return InputError(
        f"{name}: is damaged ({' '.join(reason.split())}); `channelhash index check {folder}` "
        f"lists the damage, `channelhash index repair {folder}` keeps what is whole"
    )


class State(NamedTuple):
    """Where the database is.

    Attributes:
        version: grows with every write of items.
        last_serial: the highest serial that any code has had.
        snapshot: name of the current snapshot's folder, empty if there is none.
        snapshot_serial: the last code that may be in the snapshot.
        snapshot_size: number of codes in the snapshot.
        writes: grows with every transaction that writes.

    >>> State(version=1, last_serial=20, snapshot="", snapshot_serial=0, snapshot_size=0, writes=1).version
    1
    """

    version: int
    last_serial: int
    snapshot: str
    snapshot_serial: int
    snapshot_size: int
    writes: int

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "State":
        """Return where a database is, as it was written."""
        *values, checksum = _only_row(connection, "SELECT * FROM state")
        state = cls(*values)
        if state.checksum() != checksum:
            raise sqlite3.DatabaseError("the state is not as it was written")
        return state

    def checksum(self) -> int:
        """Return the checksum of all six."""
        numbers = (
            f"{self.version} {self.last_serial} {self.snapshot_serial} {self.snapshot_size} "
            f"{self.writes}"
        )
        return crc32(f"{numbers} {self.snapshot}".encode())


def item_checksum(number: Any, item_id: Any, metadata: Any) -> float:
    """Return the checksum of a row of ``items``; for values of other types, as damage makes them,
    what equals nothing.

    >>> item_checksum(1, "a", "{}") == item_checksum(2, "a", "{}")
    False
    """
    try:
        name = item_id.encode()
        return crc32(b"%d %d %s%s" % (number, len(name), name, metadata.encode()))
    except (AttributeError, TypeError):
        return float("nan")


def code_checksum(
    item_id: Any, number: Any, serial: Any, modality: Any, code: Any, projection: Any = None
) -> float:
    """Return the checksum of a row of ``codes``, likewise; it holds for its item's id too.

    Codes of a store have one length: where a projection begins is no question.

    >>> code_checksum("a", 1, 1, "image", bytes([7])) == code_checksum("b", 1, 1, "image", bytes([7]))
    False
    """
    try:
        checksum = crc32(
            b"%d %d %s %s%s" % (number, serial, modality.encode(), item_id.encode(), code)
        )
        return checksum if projection is None else crc32(projection, checksum)
    except (AttributeError, TypeError):
        return float("nan")


def create_tables(connection: sqlite3.Connection, description: str) -> None:
    """Make the tables of a new database, within a transaction; ``description`` is that of
    `Manifest`.
    """
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    for statement in schema.split(";\n"):  # `executescript` would end the transaction
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?)", (description,))
    state = State(0, 0, "", 0, 0, 0)
    connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)", (*state, state.checksum()))
    WordIndex(connection).make()


def _only_row(connection: sqlite3.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no row for {sql}")
    return row


_FORMAT = "channelhash store 8"


class Manifest(NamedTuple):
    """What a store says of itself, in ``store.json`` and, as it was when the store was made, in the
    database.

    Attributes:
        facts: what its codes have in common.
        store: a random name, by which a file of another store is told.
        writes: `State.writes` when the database was sealed; nobody has written since if it is that
            still.
        digest: length and CRC-32 of the database then, empty if it was not sealed yet.

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
        return cls(facts, os.urandom(16).hex())

    def to_json(self) -> str:
        """Return the text of ``store.json``."""
        values = {"format": _FORMAT, **self.facts._asdict()}
        return dump_checked(
            {**values, "store": self.store, "writes": self.writes, "digest": self.digest}
        )

    @classmethod
    def parse(cls, text: str, place: Path) -> "Manifest | None":
        """Return what `to_json` wrote, at a place; None if it is damaged."""
        try:
            values = load_checked(text)
            written_as = values.pop("format")
            check_format(place, written_as, _FORMAT, "remove the folder and add the items again")
            rest = [values.pop(name) for name in ("store", "writes", "digest")]
            return cls(Facts(**values), *rest)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    @classmethod
    def read(cls, connection: sqlite3.Connection, place: Path) -> "Manifest | None":
        """Return what the database at a place says of the store that it is part of; None if it is
        damaged.
        """
        (text,) = _only_row(connection, "SELECT description FROM about")
        return cls.parse(str(text), place)


# Windows knows no other than the process's own user.
_EFFECTIVE = os.access in os.supports_effective_ids


class StoreFolder:
    """Where the files of a store are.

    >>> StoreFolder(Path("photos.store")).database.name
    'items.sqlite'
    """

    def __init__(self, path: Path, mapped: bool = False) -> None:
        self.path = path
        self.mapped = mapped
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
        return all(
            os.access(path, os.W_OK, effective_ids=_EFFECTIVE) for path in needed if path.exists()
        )

    def look(self) -> tuple[object, ...]:
        """Return what tells, to who may not write, that the database is not as it was opened.

        SQLite follows the log where there is one, as long as its files are the same. Without one it
        takes the database for one that nobody writes to.
        """
        names = (self.database, Path(f"{self.database}-wal"), Path(f"{self.database}-shm"))
        database, *log = map(_status, names)
        if database is None:
            return ()
        file = (database.st_dev, database.st_ino)
        if _has_log(self.database):
            return (*file, *(each and each.st_ino for each in log))
        description = _status(self.description)  # made again by who closes the store
        times = (database.st_size, database.st_mtime_ns)
        return (*file, *times, description and (description.st_ino, description.st_mtime_ns))

    def check_content(self) -> None:
        """Raise `InputError` if the folder holds something else than a store."""
        if self.path.is_file():
            raise InputError(
                f"{self.path}: is a file, neither a store's folder nor a Parquet file of codes"
            )
        if self.path.is_dir() and not self.description.exists() and not self.database.exists():
            prefixes = (self.database.name, self.model.name, self.source.name, ".")
            foreign = sorted(
                entry.name for entry in self.path.iterdir() if not entry.name.startswith(prefixes)
            )
            if foreign:
                raise InputError(
                    f"{self.path}: holds {foreign[0]}, but no store; if these are pictures to "
                    "search, make one of them "
                    f"with `channelhash search {self.path} WORDS`, otherwise choose a new folder"
                )

    def n_bytes(self) -> int:
        """Add up the sizes of all files but the model's. Other processes may remove some
        meanwhile.
        """
        total = 0
        for folder, folders, names in os.walk(self.path):
            if Path(folder) == self.path and self.model.name in folders:
                folders.remove(self.model.name)
            for name in names:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).stat().st_size
        return total

    def manifest(self) -> Manifest | None:
        """Return what the description says; None if it is missing or damaged."""
        try:
            text = self.description.read_text(encoding="utf-8", errors="replace")
            return Manifest.parse(text, self.description)
        except FileNotFoundError:
            return None
        except OSError as error:
            check_exhausted(error, self.description)
            raise InputError(
                f"{self.description}: cannot be read ({error.strerror}); restore it"
            ) from None

    def find_manifest(self) -> Manifest | None:
        """Return what the description says, made again from the database if need be; None without a
        store.
        """
        if not self._has_store():
            return None
        if manifest := self.manifest():
            return manifest
        if not self.writable:
            raise InputError(
                f"{self.description}: is missing or damaged; open the store where it can be "
                "written to"
            )
        with locked(self.lock):  # another process may be making the store
            if manifest := self.manifest():
                return manifest
            with one_line_errors(str(self.database)), closing(connect(self.database)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    return None  # the process that made it was killed
                manifest = Manifest.read(connection, self.database)
                if manifest is None:
                    raise sqlite3.DatabaseError("its description is not as it was written")
            write_text(self.description, manifest.to_json())
            return manifest

    def _has_store(self) -> bool:
        """Return whether there is a store, which must have its database."""
        if self.description.exists() and not self.database.exists():
            raise InputError(
                f"{self.database}: is missing; restore it, or remove the folder and add the items "
                "again"
            )
        return self.database.exists()

    @classmethod
    def find(cls, path: Path) -> "StoreFolder":
        """Return the folder of a store, which must be there with its database."""
        folder = cls(path)
        if not folder._has_store():
            raise InputError(
                f"{path}: no store in a folder; make one with `channelhash index create`"
            )
        return folder

    def noted_writes(self) -> int:
        """Return how often the database was written to at least; 0 if that is not known."""
        try:
            return int(self.writes.read_bytes())
        except (OSError, ValueError):
            return 0

    @contextmanager
    def hold_run(self, progress: StageProgress) -> Iterator[None]:
        """Wait until no other run writes to the store, and keep others waiting within the block.

        Where nothing can be written, or the file system has no locks, nobody waits.
        """
        with ExitStack() as stack:
            with suppress(OSError):
                try:
                    stack.enter_context(locked(self.run_lock, wait=False))
                except BlockingIOError:
                    progress(f"waiting for another command that indexes {self.path}")(0, 0)
                    stack.enter_context(locked(self.run_lock))
                stack.callback(self._remove_empty)
            yield

    def _remove_empty(self) -> None:
        """Remove the lock and the folder of a run that has left no store."""
        with suppress(OSError):
            if os.listdir(self.path) == [self.run_lock.name]:
                self.run_lock.unlink()  # still locked, so nobody has begun meanwhile
                self.path.rmdir()
