"""The tables of an items database, and the checksums by which damage in them is noticed.

SQLite checks none of what it reads. Each row of truth carries a CRC-32 of what it says, and ``totals`` the sums of
these over each table, so that a row that is gone is noticed too. They are against damage, not against people.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.search.local import words
from channelhash.search.local.connection import APPLICATION

# A code never changes in place and its serial is never used again, so that whoever has read the codes up to some serial
# is up to date with those of higher serials and without those in `removed`.
_SCHEMA_OF_0_1 = """
CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, metadata TEXT NOT NULL);
CREATE TABLE codes (
    serial INTEGER PRIMARY KEY, item INTEGER NOT NULL, modality TEXT NOT NULL, code BLOB NOT NULL,
    UNIQUE (modality, item)
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
CREATE TRIGGER code_removed AFTER DELETE ON codes BEGIN INSERT INTO removed VALUES (old.serial); END;
"""

# What came later is added to what 0.1 made, so that 0.1 reads it still and every store has the same schema:
# `_ADDITIONS` lists it.
_CHECKSUMS = """
ALTER TABLE items ADD COLUMN checksum INTEGER;
ALTER TABLE codes ADD COLUMN checksum INTEGER;
CREATE TABLE totals (
    items INTEGER NOT NULL, codes INTEGER NOT NULL, removed INTEGER NOT NULL, state INTEGER NOT NULL
);
"""


# Beside each code of a store that keeps them; the code's checksum holds for its projection too.
_PROJECTIONS = "ALTER TABLE codes ADD COLUMN projection BLOB;"


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
    _run(connection, _SCHEMA_OF_0_1)
    bring_up_to_date(connection, stem)


def create_like(connection: sqlite3.Connection, other: sqlite3.Connection, stem: str) -> None:
    """Make the tables of a new database with those additions that another one has."""
    _run(connection, _SCHEMA_OF_0_1)
    for addition in _ADDITIONS:
        if _has(other, addition):
            addition.make(connection, stem)


def is_up_to_date(connection: sqlite3.Connection) -> bool:
    """Return whether a database has all that later versions have added."""
    return all(_has(connection, addition) for addition in _ADDITIONS)


def bring_up_to_date(connection: sqlite3.Connection, stem: str) -> None:
    """Add what tables that an earlier version made lack, within a transaction."""
    for addition in _ADDITIONS:
        if not _has(connection, addition):
            addition.make(connection, stem)


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Return whether rows have checksums, which version 0.1 did not write."""
    return _has(connection, _ADDITIONS[0])


def projection_column(connection: sqlite3.Connection) -> str:
    """Return the SQL of a code's projection; earlier versions wrote none."""
    return "projection" if _has(connection, _PROJECTION) else "NULL"


def _add_checksums(connection: sqlite3.Connection, _: str) -> None:
    _run(connection, _CHECKSUMS)
    for function, n_arguments in ((item_checksum, 3), (code_checksum, 5)):
        connection.create_function(function.__name__, n_arguments, _of_texts(function), deterministic=True)
    connection.execute("UPDATE items SET checksum = item_checksum(number, id, metadata)")
    of_item = "(SELECT id FROM items WHERE number = item)"
    connection.execute(f"UPDATE codes SET checksum = code_checksum({of_item}, item, serial, modality, code)")
    connection.execute("INSERT INTO totals VALUES (0, 0, 0, 0)")
    set_totals(connection, sums(connection))


class _Addition(NamedTuple):
    """What a later version has added to the tables.

    Attributes:
        find: a query that gives a row where it has been made.
        make: makes it, within a transaction, for all the rows that are there; told ``stem`` of `words.make_words`.
    """

    find: str
    make: Callable[[sqlite3.Connection, str], None]


_PROJECTION = _Addition(
    "SELECT 1 FROM pragma_table_info('codes') WHERE name = 'projection'",
    lambda connection, _: _run(connection, _PROJECTIONS),
)

# In this order. A store that an earlier version made gets what it lacks when it is opened, see `guard.Guard`.
_ADDITIONS = (
    _Addition("SELECT 1 FROM sqlite_master WHERE name = 'totals'", _add_checksums),
    _Addition(words.FIND, words.make_words),
    _PROJECTION,
)


def _has(connection: sqlite3.Connection, addition: _Addition) -> bool:
    return bool(connection.execute(addition.find).fetchall())


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


def _of_texts(checksum: Callable[..., int]) -> Callable[..., int]:
    return lambda *values: checksum(*map(utf8, values))


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script; `executescript` would end the transaction."""
    for statement in _statements(script.splitlines()):
        connection.execute(statement)


def _statements(lines: Iterable[str]) -> Iterator[str]:
    statement = ""
    for line in lines:
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
