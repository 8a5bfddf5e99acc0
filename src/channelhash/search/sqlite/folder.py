"""The folder of an embedded store: its files, their description in ``store.json``, and connections
to its database.

SQLite does not check what it reads. So each row of items and codes carries a CRC-32 of its values,
which guards against damage, not against people. A row that is gone is missing in an index or leaves
a hole in its page; SQLite's own check finds both.
"""

import os
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.codes.stage import Stage
from channelhash.data.folder import SOURCE_FILE
from channelhash.errors import InputError, JobError, NoSpaceError
from channelhash.search.checks import check_format
from channelhash.search.items import Facts
from channelhash.search.sqlite.words import WordIndex
from channelhash.utils.decode import check_exhausted
from channelhash.utils.files import write_text
from channelhash.utils.hashes import dump_checked, load_checked
from channelhash.utils.locks import locked
from channelhash.utils.progress import StageProgress

#: Seconds that a call waits for another writer before it gives up.
_BUSY_SECONDS = 30.0

#: Marks the SQLite files of a store: "chst".
APPLICATION = 0x63687374

#: Settings of each connection; the first one cannot be made when only reading.
_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "cell_size_check = ON",
    "trusted_schema = ON",  # views may call our functions
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
        mode = "rwc" if create else "rw"
        name = f"{path.absolute().as_uri()}?mode={_reading_mode(path) if read_only else mode}"
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


def _reading_mode(path: Path) -> str:
    """Return how SQLite opens a file that it cannot write to: with its log if that is not empty,
    else without any lock, so that it does not see later writes. `StoreFolder.look` shows them.
    """
    return f"ro&{'readonly_shm' if _has_log(path) else 'immutable'}=1"


def _has_log(database: Path) -> bool:
    """Return whether writes to a database may lie only in its log."""
    log = _status(Path(f"{database}-wal"))
    return log is not None and log.st_size > 0


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if there is none."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


#: Part of a message of SQLite -> the error to raise for it.
_ERRORS: tuple[tuple[str, type[InputError | JobError], str], ...] = (
    ("locked", InputError, "another process is writing to it; try again later"),
    ("busy", InputError, "another process is writing to it; try again later"),
    ("readonly", InputError, "can only be read; copy the store to where it can be written to"),
    ("full", NoSpaceError, "cannot be written ({}); make room on the disk"),
    ("disk I/O", NoSpaceError, "cannot be written ({}); make room on the disk"),
    (
        "no such module: fts5",
        InputError,
        "needs FTS5, which this Python's SQLite lacks; use another Python",
    ),
)


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Raise SQLite's errors about the file of this name as one line for the user."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        for part, kind, line in _ERRORS:
            if part in reason:
                raise kind(f"{name}: {line.format(reason)}") from None
        if "unable to open" in reason:
            raise _unopened(name) from None
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise damaged(name, reason) from None


def _unopened(name: str) -> JobError:
    """Return the reason, which SQLite does not give, why a database cannot be opened."""
    try:
        # Closing the file itself would end SQLite's locks.
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        check_exhausted(error, name)
    if _has_log(Path(name)) and _status(Path(f"{name}-shm")) is None:
        return JobError(
            f"{name}: cannot be opened: what was written last lies in its log, without an "
            "index that only its owner can make; let the owner open the store"
        )
    return JobError(f"{name}: cannot be opened: too many open files, or no right to its folder")


def damaged(name: str, reason: str) -> InputError:
    """Return the error to raise if a database is damaged."""
    folder = Path(name).parent
    return InputError(
        f"{name}: is damaged ({' '.join(reason.split())}); `channelhash index check {folder}` "
        f"lists the damage, `channelhash index repair {folder}` keeps what is whole"
    )


class State(NamedTuple):
    """The state of a database.

    Attributes:
        version: grows with every write of items.
        last_serial: the highest serial that any code has had.
        snapshot: name of the current snapshot's folder; empty if there is none.
        snapshot_serial: serial of the last code that may be in the snapshot.
        snapshot_size: number of codes in the snapshot.
        writes: grows with every transaction that writes.

    >>> State(1, last_serial=20, snapshot="", snapshot_serial=0, snapshot_size=0, writes=1).version
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
        """Return the state of a database; raise an error if it is not as it was written."""
        *values, checksum = _only_row(connection, "SELECT * FROM state")
        state = cls(*values)
        if state.checksum() != checksum:
            raise sqlite3.DatabaseError("the state is not as it was written")
        return state

    def checksum(self) -> int:
        """Return the checksum of all six values."""
        numbers = (
            f"{self.version} {self.last_serial} {self.snapshot_serial} {self.snapshot_size} "
            f"{self.writes}"
        )
        return crc32(f"{numbers} {self.snapshot}".encode())


def item_checksum(number: Any, item_id: Any, metadata: Any) -> float:
    """Return the checksum of a row of ``items``. If damage has changed the types of its values, the
    checksum is NaN, which equals nothing.

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
    """Return the checksum of a row of ``codes`` and of its item's id; NaN as in `item_checksum`.

    All codes of a store have one length, so it is clear where a projection begins.

    >>> code = bytes([7])
    >>> code_checksum("a", 1, 1, "image", code) == code_checksum("b", 1, 1, "image", code)
    False
    """
    try:
        checksum = crc32(
            b"%d %d %s %s%s" % (number, serial, modality.encode(), item_id.encode(), code)
        )
        return checksum if projection is None else crc32(projection, checksum)
    except (AttributeError, TypeError):
        return float("nan")


def create_tables(
    connection: sqlite3.Connection, description: str, stage: bytes | None = None
) -> None:
    """Create the tables of a new database within a transaction.

    Args:
        connection: to the database.
        description: from `Manifest.to_json`.
        stage: from `Stage.to_bytes`, if the store keeps projections.
    """
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    for statement in schema.split(";\n"):  # `executescript` would end the transaction
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?)", (description, stage))
    state = State(0, 0, "", 0, 0, 0)
    connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)", (*state, state.checksum()))
    WordIndex(connection).make()


def _only_row(connection: sqlite3.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no row for {sql}")
    return row


#: Name of the format, with its version.
_FORMAT = "channelhash store 9"


class Manifest(NamedTuple):
    """The description of a store in ``store.json`` and, as of its creation, in the database.

    Attributes:
        facts: what its codes have in common.
        store: a random name, which tells files of another store.
        writes: `State.writes` when the database was sealed; while it is the same, nobody has
            written since.
        digest: length and CRC-32 of the database when it was sealed; empty before.

    >>> Manifest(Facts(64, "a1b2"), "4f", writes=2, digest="4096 89abcdef").writes
    2
    """

    facts: Facts
    store: str
    writes: int = 0
    digest: str = ""

    @classmethod
    def new(cls, facts: Facts) -> "Manifest":
        """Return the manifest of a new store."""
        return cls(facts, os.urandom(16).hex())

    def to_json(self) -> str:
        """Return the text of ``store.json``."""
        values = {"format": _FORMAT, **self.facts._asdict()}
        return dump_checked(
            {**values, "store": self.store, "writes": self.writes, "digest": self.digest}
        )

    @classmethod
    def parse(cls, text: str, place: Path) -> "Manifest | None":
        """Return the manifest that `to_json` wrote to a place; None if it is damaged."""
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
        """Return the manifest in the database at a place; None if it is damaged."""
        (text,) = _only_row(connection, "SELECT description FROM about")
        return cls.parse(str(text), place)


def read_stage(connection: sqlite3.Connection, fingerprint: str) -> Stage:
    """Return the stage of a store; raise an error if it is not as it was written."""
    (content,) = _only_row(connection, "SELECT stage FROM about")
    try:
        stage = Stage.from_bytes(content)
    except (ValueError, TypeError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        raise sqlite3.DatabaseError("its second stage is not as it was written") from None
    if stage.fingerprint != fingerprint:
        raise sqlite3.DatabaseError("its second stage is not as it was written")
    return stage


#: Whether rights are checked for the effective user; Windows knows only the process's own.
_EFFECTIVE = os.access in os.supports_effective_ids


class StoreFolder:
    """The paths of a store's files.

    >>> StoreFolder(Path("photos.store")).database.name
    'items.sqlite'
    """

    def __init__(self, path: Path, mapped: bool = False) -> None:
        self.path = path
        self.mapped = mapped
        #: Whether a database that is not the store's any more is read on.
        self.kept = False
        #: Holds a `Manifest`.
        self.description = path / "store.json"
        #: Holds the items and codes; all else can be made again.
        self.database = path / "items.sqlite"
        #: Holds the least number of writes that the database must have, or else a log was lost.
        self.writes = path / ".writes"
        #: Held while a process opens or seals the database, so that only one checks it.
        self.gate = path / ".gate"
        #: Held while the store or a snapshot is created.
        self.lock = path / ".lock"
        #: The model that made the codes, if it was saved there with ``save_pretrained``.
        self.model = path / "model"
        #: Says which folder of photographs the items are from, if they are from one.
        self.source = path / SOURCE_FILE
        #: Held by the indexing run that writes to the store, see `hold_run`.
        self.run_lock = path / ".indexing"

    @property
    def writable(self) -> bool:
        """Whether the files can be written to, or do not exist yet."""
        needed = (self.path, self.database, self.gate)
        return all(
            os.access(path, os.W_OK, effective_ids=_EFFECTIVE) for path in needed if path.exists()
        )

    def look(self) -> tuple[object, ...]:
        """Return a value that changes once a database opened for reading must be opened again.

        SQLite follows a log as long as its files are the same. Without one, it assumes that nobody
        writes to the database.
        """
        names = (self.database, Path(f"{self.database}-wal"), Path(f"{self.database}-shm"))
        database, *log = map(_status, names)
        if database is None:
            return ()
        file = (database.st_dev, database.st_ino)
        if _has_log(self.database):
            return (*file, *(each and each.st_ino for each in log))
        description = _status(self.description)  # made again when the store is closed
        times = (database.st_size, database.st_mtime_ns)
        return (*file, *times, description and (description.st_ino, description.st_mtime_ns))

    def check_content(self) -> None:
        """Raise `InputError` if the folder holds something other than a store."""
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
        """Return the size of all files but the model's. Other processes may remove some
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
        """Return the manifest in the description; None if it is missing or damaged."""
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
        """Return the manifest; None if there is no store. A missing or damaged description is
        written again from the database.
        """
        if not self._has_store():
            return None
        manifest = self.manifest()
        if manifest is not None:
            return manifest
        if not self.writable:
            raise InputError(
                f"{self.description}: is missing or damaged; open the store where it can be "
                "written to"
            )
        with locked(self.lock):  # another process may be creating the store
            manifest = self.manifest()
            if manifest is not None:
                return manifest
            with one_line_errors(str(self.database)), closing(connect(self.database)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    return None  # the process that created it was killed
                manifest = Manifest.read(connection, self.database)
                if manifest is None:
                    raise sqlite3.DatabaseError("its description is not as it was written")
            write_text(self.description, manifest.to_json())
            return manifest

    def _has_store(self) -> bool:
        """Return whether there is a store; raise an error if its database is missing."""
        if self.description.exists() and not self.database.exists():
            raise InputError(
                f"{self.database}: is missing; restore it, or remove the folder and add the items "
                "again"
            )
        return self.database.exists()

    @classmethod
    def find(cls, path: Path) -> "StoreFolder":
        """Return the folder of a store; raise an error if there is none."""
        folder = cls(path)
        if not folder._has_store():
            raise InputError(
                f"{path}: no store in a folder; make one with `channelhash index create`"
            )
        return folder

    def noted_writes(self) -> int:
        """Return the least number of writes that the database must have; 0 if unknown."""
        try:
            return int(self.writes.read_bytes())
        except (OSError, ValueError):
            return 0

    @contextmanager
    def hold_run(self, progress: StageProgress) -> Iterator[None]:
        """Wait until no other run writes to the store, and make others wait during the block.

        If the folder cannot be written to, or its file system has no locks, nobody waits.
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
