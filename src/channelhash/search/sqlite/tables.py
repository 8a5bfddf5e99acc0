"""A store's SQLite file: connections to it, its tables, and the checksums by which damage in them is noticed.

SQLite checks none of what it reads. Each row of truth carries a CRC-32 of what it says, against damage, not against
people. A row that is gone is missing in an index or leaves a hole in its page, which SQLite's own check finds.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError, JobError, NoSpaceError
from channelhash.search.items import Metadata
from channelhash.search.sqlite import words
from channelhash.utils.files import check_exhausted

#: How long a call waits for another writer before it gives up.
_BUSY_SECONDS = 30.0

#: How SQLite files of a store are told from others: "chst".
APPLICATION = 0x63687374

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "cell_size_check = ON",
    "trusted_schema = ON",  # views may call `separate`
)


def connect(
    path: Path | None, create: bool = False, read_only: bool = False, alone: bool = False
) -> sqlite3.Connection:
    """Open a database in autocommit mode.

    Args:
        path: the file; None for one in memory.
        create: make the file where there is none.
        read_only: write neither to the file nor beside it.
        alone: keep everybody else out, or raise `sqlite3.OperationalError` at once if somebody has it open.

    >>> connect(None).execute("PRAGMA cell_size_check").fetchone()
    (1,)
    """
    name = ":memory:"
    if path is not None:
        name = f"file:{quote(str(path.absolute()))}?mode={_read_only(path) if read_only else 'rwc' if create else 'rw'}"
    seconds = 0.0 if alone else _BUSY_SECONDS
    connection = sqlite3.connect(name, timeout=seconds, isolation_level=None, check_same_thread=False, uri=True)
    try:
        if alone:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        for setting in _SETTINGS[read_only:]:
            connection.execute(f"PRAGMA {setting}")
        if alone:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
        connection.create_function("separate", 1, words.separate, deterministic=True)  # for the view of `words`
    except BaseException:
        connection.close()
        raise
    return connection


def _read_only(path: Path) -> str:
    """Return how SQLite opens a file that it cannot write to: with its log if there is one, else without any lock."""
    has_log = any(Path(f"{path}-{log}").exists() for log in ("wal", "shm"))
    return f"ro&{'readonly_shm' if has_log else 'immutable'}=1"


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
            raise JobError(f"{name}: cannot be opened: too many open files, or no right to its folder") from None
        if "readonly" in reason:
            raise InputError(f"{name}: can only be read; copy the store to where it can be written to") from None
        if "full" in reason or "disk I/O" in reason:
            raise NoSpaceError(f"{name}: cannot be written ({reason}); make room on the disk") from None
        if "no such module: fts5" in reason:
            raise InputError(f"{name}: needs FTS5, which this Python's SQLite lacks; use another Python") from None
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise damaged(name, reason) from None


def _check_files_left(name: str) -> None:
    """Raise an error if too many files are open, which SQLite does not say."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))  # closing the file itself would end SQLite's locks
    except OSError as error:
        check_exhausted(error, name)


def damaged(name: str, reason: str) -> InputError:
    """Return what to raise where a database is not whole."""
    folder = Path(name).parent
    return InputError(
        f"{name}: is damaged ({' '.join(reason.split())}); `channelhash index check {folder}` lists the damage,"
        f" `channelhash index repair {folder}` keeps what is whole"
    )


# A code never changes in place and its serial is never used again, so that whoever has read the codes up to some serial
# is up to date with those of higher serials and without those in `removed`.
# The checksum of a code holds for the projection beside it too, which only some stores keep.
_SCHEMA = """
CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, metadata TEXT NOT NULL, checksum INTEGER);
CREATE TABLE codes (
    serial INTEGER PRIMARY KEY, item INTEGER NOT NULL, modality TEXT NOT NULL, code BLOB NOT NULL,
    checksum INTEGER, projection BLOB, UNIQUE (modality, item)
);
CREATE TABLE removed (serial INTEGER PRIMARY KEY);
CREATE TABLE labels (label TEXT NOT NULL, item INTEGER NOT NULL, PRIMARY KEY (label, item)) WITHOUT ROWID;
CREATE INDEX labels_of_item ON labels (item);
CREATE TABLE keys (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE state (
    version INTEGER NOT NULL, last_serial INTEGER NOT NULL,
    snapshot TEXT NOT NULL, snapshot_serial INTEGER NOT NULL, snapshot_size INTEGER NOT NULL, writes INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE about (description TEXT NOT NULL);
CREATE TRIGGER code_removed AFTER DELETE ON codes BEGIN INSERT INTO removed VALUES (old.serial); END;
"""


#: Gives the modalities of which there are codes. One seek a modality; DISTINCT would read all codes.
MODALITIES = """
WITH RECURSIVE found(name) AS (
    SELECT min(modality) FROM codes
    UNION ALL SELECT (SELECT min(modality) FROM codes WHERE modality > name) FROM found WHERE name IS NOT NULL
) SELECT name FROM found WHERE name IS NOT NULL
"""


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

    def checksum(self) -> int:
        """Return the checksum of all six."""
        numbers = f"{self.version} {self.last_serial} {self.snapshot_serial} {self.snapshot_size} {self.writes} "
        return crc32(numbers.encode() + utf8(self.snapshot))


def item_checksum(number: Any, item_id: Any, metadata: Any) -> int:
    """Return the checksum of a row of ``items``, texts as UTF-8; -1 for values of other types, as damage makes them.

    >>> item_checksum(1, b"a", b"{}") == item_checksum(2, b"a", b"{}")
    False
    """
    try:
        return crc32(b"%d %d %s%s" % (number, len(item_id), item_id, metadata))
    except TypeError:
        return -1


def code_checksum(item_id: Any, number: Any, serial: Any, modality: Any, code: Any, projection: Any = None) -> int:
    """Return the checksum of a row of ``codes``, texts as UTF-8; it holds for its item's id too.

    Codes of a store have one length: where a projection begins is no question.

    >>> code_checksum(b"a", 1, 1, b"image", bytes([7])) == code_checksum(b"b", 1, 1, b"image", bytes([7]))
    False
    """
    try:
        checksum = crc32(b"%d %d %s %s%s" % (number, serial, modality, item_id, code))
        return checksum if projection is None else crc32(projection, checksum)
    except TypeError:
        return -1


def utf8(text: Any) -> Any:
    """Return a text as UTF-8, and other values as they are."""
    return text.encode() if isinstance(text, str) else text


def create_tables(connection: sqlite3.Connection, description: str) -> None:
    """Make the tables of a new database, within a transaction; ``description`` is that of `folder.Manifest`."""
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    for statement in _SCHEMA.split(";\n"):  # `executescript` would end the transaction
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?)", (description,))
    state = State(0, 0, "", 0, 0, 0)
    connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)", (*state, state.checksum()))
    words.make_words(connection)


def read_description(connection: sqlite3.Connection) -> str:
    """Return the description of the store that the database is part of."""
    (text,) = _only_row(connection, "SELECT description FROM about")
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def read_state(connection: sqlite3.Connection) -> State:
    """Return where the database is, as it was written."""
    *values, checksum = _only_row(connection, "SELECT * FROM state")
    state = State(*values)
    if state.checksum() != checksum:
        raise sqlite3.DatabaseError("the state is not as it was written")
    return state


def _only_row(connection: sqlite3.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no row for {sql}")
    return row


# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_bytes(rows: NDArray[Any]) -> list[bytes]:
    """Return each of ``(n, b)`` values of one byte as bytes.

    >>> as_bytes(np.array([[1, 2], [3, 4]], np.uint8))
    [b'\\x01\\x02', b'\\x03\\x04']
    """
    data, width = rows.tobytes(), rows.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]


def as_json(values: Metadata) -> str:
    """Return metadata without the keys that are taken away.

    >>> as_json({"year": 2020, "text": None})
    '{"year":2020}'
    """
    if not values:
        return "{}"
    return _encoder.encode({key: value for key, value in values.items() if value is not None})


def write_labels(connection: sqlite3.Connection, numbers: Sequence[int], metadata: Sequence[Metadata]) -> None:
    """Set the labels of those items whose metadata has any, and note every key of it."""
    execute = connection.executemany
    keys = {key for values in metadata for key, value in values.items() if value is not None}
    execute("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys))
    given = {number: of["labels"] for number, of in zip(numbers, metadata, strict=True) if "labels" in of}
    execute("DELETE FROM labels WHERE item = ?", zip(given))
    rows = ((label, number) for number, labels in given.items() if isinstance(labels, list) for label in labels)
    execute("INSERT OR IGNORE INTO labels VALUES (?, ?)", rows)


def metadata_of(codes: CodeSet) -> list[Metadata] | None:
    """Return what a file of codes knows of its items; an empty text or path is an unknown one."""
    if codes.texts is None and codes.images is None and not codes.label_names:
        return None
    metadata: list[dict[str, Any]] = [{} for _ in codes.ids]
    for key, column in (("text", codes.texts), ("image", codes.images)):
        for values, value in zip(metadata, column or (), strict=False):
            if value:
                values[key] = value
    if codes.labels is not None and codes.label_names:
        for row, label in np.argwhere(codes.labels).tolist():
            metadata[row].setdefault("labels", []).append(codes.label_names[label])
    return list(metadata)
