"""The tables of an items database, and the checksums by which damage in them is noticed.

SQLite checks none of what it reads. Each row of truth carries a CRC-32 of what it says, and ``totals`` the sums of
these over each table, so that a row that is gone is noticed too. They are against damage, not against people.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.search.local import words
from channelhash.search.local.connection import APPLICATION

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
    snapshot TEXT NOT NULL, snapshot_serial INTEGER NOT NULL, snapshot_size INTEGER NOT NULL
);
INSERT INTO state VALUES (0, 0, '', 0, 0);
CREATE TABLE totals (
    items INTEGER NOT NULL, codes INTEGER NOT NULL, removed INTEGER NOT NULL, state INTEGER NOT NULL
);
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
        version: grows with every write.
        last_serial: the highest serial that any code has had.
        snapshot: name of the current snapshot's folder, empty if there is none.
        snapshot_serial: the last code that may be in the snapshot.
        snapshot_size: number of codes in the snapshot.

    >>> State(version=1, last_serial=20, snapshot="", snapshot_serial=0, snapshot_size=0).version
    1
    """

    version: int
    last_serial: int
    snapshot: str
    snapshot_serial: int
    snapshot_size: int

    def checksum(self) -> int:
        """Return the checksum of all five."""
        numbers = f"{self.version} {self.last_serial} {self.snapshot_serial} {self.snapshot_size} "
        return crc32(numbers.encode() + utf8(self.snapshot))


class Totals(NamedTuple):
    """Sums over the tables: of the checksums of items and of codes, of the serials in ``removed``; and of the state.

    >>> Totals(items=3, codes=2, removed=0, state=9).codes
    2
    """

    items: int
    codes: int
    removed: int
    state: int


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


def create_tables(connection: sqlite3.Connection, stem: str) -> None:
    """Make the tables of a new database, within a transaction; ``stem`` as of `words.make_words`."""
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    for statement in _statements(_SCHEMA.splitlines()):  # `executescript` would end the transaction
        connection.execute(statement)
    connection.execute("INSERT INTO totals VALUES (?, ?, ?, ?)", sums(connection))
    words.make_words(connection, stem)


def sums(connection: sqlite3.Connection) -> Totals:
    """Add up the tables."""
    read = ("sum(checksum) FROM items", "sum(checksum) FROM codes", "sum(serial) FROM removed")
    items, codes, removed = (connection.execute(f"SELECT {what}").fetchone()[0] or 0 for what in read)
    return Totals(items, codes, removed, read_state(connection).checksum())


def read_state(connection: sqlite3.Connection) -> State:
    """Return where the database is."""
    return State(*_only_row(connection, "SELECT * FROM state"))


def read_totals(connection: sqlite3.Connection) -> Totals:
    """Return what was last added up."""
    return Totals(*_only_row(connection, "SELECT items, codes, removed, state FROM totals"))


def set_totals(connection: sqlite3.Connection, totals: Totals) -> None:
    """Write what has been added up."""
    connection.execute("UPDATE totals SET items = ?, codes = ?, removed = ?, state = ?", totals)


def definitions(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Return kind, name and SQL of everything that is defined."""
    return set(connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master"))


def _only_row(connection: sqlite3.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no row for {sql}")
    return row


def _statements(lines: Iterable[str]) -> Iterator[str]:
    statement = ""
    for line in lines:
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
