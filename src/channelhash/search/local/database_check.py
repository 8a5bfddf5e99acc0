"""Check all that a store's database holds: its trees, every row, and that its tables agree with each other."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.search.local.connection import connect
from channelhash.search.local.folder import Facts
from channelhash.search.local.tables import (
    code_checksum,
    create_tables,
    definitions,
    item_checksum,
    read_state,
    read_totals,
    sums,
)
from channelhash.search.local.words import check_words, has_fts5, has_words


class Finding(NamedTuple):
    """Damage.

    Attributes:
        where: a file, or an item's id.
        what: what is wrong there.

    >>> str(Finding("items.sqlite", "a page is zero"))
    'items.sqlite: a page is zero'
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


_DATABASE = "items.sqlite"


def check_database(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    """Check a database as it is when this begins, whatever others write meanwhile.

    Args:
        connection: the caller uses it for nothing else; texts come as bytes from now on.
        facts: what the store's description says, if that is known.
    """
    connection.text_factory = bytes  # a damaged text may not be UTF-8
    connection.execute("BEGIN")
    try:
        parts: list[Callable[[], Iterator[Finding]]] = [
            lambda: _check_trees(connection),
            lambda: _check_definitions(connection, facts.stem if facts else ""),
            lambda: _check_items(connection),
            lambda: _check_codes(connection, facts),
            lambda: _check_state(connection),
        ]
        for part in parts:
            try:
                yield from part()
            except (sqlite3.DatabaseError, TypeError, ValueError) as error:  # types are as odd as damage makes them
                yield Finding(_DATABASE, " ".join(str(error).split()))
    finally:
        connection.execute("ROLLBACK")
    yield from _check_words(connection)


def is_whole_item(row: tuple[Any, ...]) -> bool:
    """Return whether a row ``(number, id, metadata, checksum)`` is as it was written; texts are bytes."""
    number, name, metadata, checksum = row
    return bool(item_checksum(number, name, metadata) == checksum != -1)


def is_whole_code(row: tuple[Any, ...], facts: Facts | None) -> bool:
    """Return whether a row is as it was written; texts are bytes.

    Args:
        row: ``(serial, item, modality, code, projection, checksum, id)``.
        facts: of the store, as far as they are known.
    """
    serial, number, modality, code, projection, checksum, name = row
    if not isinstance(code, bytes):
        return False
    if facts and (len(code) != -(-facts.n_bits // 8) or code[-1] & ((1 << -facts.n_bits % 8) - 1)):
        return False
    if facts and (len(projection) if isinstance(projection, bytes) else projection) != facts.projection_size:
        return False
    return bool(code_checksum(name, number, serial, modality, code, projection) == checksum != -1)


def _check_trees(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != b"ok":
            yield Finding(_DATABASE, " ".join(line.decode(errors="replace").split()))


def _check_definitions(connection: sqlite3.Connection, stem: str) -> Iterator[Finding]:
    expected = connect(None)
    expected.text_factory = bytes
    create_tables(expected, stem)
    for kind, name, _ in sorted(definitions(expected) - definitions(connection)):
        yield Finding(_DATABASE, f"the {_text(kind)} {_text(name)} is not defined as it should be")
    expected.close()


def _check_items(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the items, and the tables of labels and of keys, which are made from them."""
    keys: set[str] = set()
    labels = 0
    for row in connection.execute("SELECT number, id, metadata, checksum FROM items NOT INDEXED"):
        if not is_whole_item(row):
            yield Finding(_text(row[1]), f"the item is damaged (row {row[0]})")
            continue
        if row[2] != b"{}":
            values = json.loads(row[2])
            keys.update(values)
            labels += sum(_of_label(row[0], label.encode()) for label in set(_labels(values)))
    missing = keys - {_text(name) for (name,) in connection.execute("SELECT name FROM keys")}
    if missing:
        yield Finding(_DATABASE, f"the table of metadata's keys lacks {', '.join(sorted(missing))}")
    if labels != sum(
        _of_label(number, label) for number, label in connection.execute("SELECT item, label FROM labels")
    ):
        yield Finding(_DATABASE, "the table of labels does not agree with the items' metadata")


def _check_codes(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT serial, item, modality, code, projection, codes.checksum, id"
        " FROM codes NOT INDEXED LEFT JOIN items ON number = item"
    )
    for row in rows:
        if row[6] is None:
            yield Finding(_DATABASE, f"the {_text(row[2])} code {row[0]} belongs to no item")
        elif not is_whole_code(row, facts):
            yield Finding(_text(row[6]), f"the {_text(row[2])} code is damaged (row {row[0]})")


def _check_state(connection: sqlite3.Connection) -> Iterator[Finding]:
    state = read_state(connection)
    (last,) = connection.execute(
        "SELECT max(coalesce((SELECT max(serial) FROM codes), 0), coalesce((SELECT max(serial) FROM removed), 0))"
    ).fetchone()
    (twice,) = connection.execute("SELECT count(*) FROM removed JOIN codes USING (serial)").fetchone()
    if not 0 <= state.snapshot_serial <= state.last_serial or last > state.last_serial or twice or state.version < 0:
        yield Finding(_DATABASE, "the serials of codes contradict each other")
    added = sums(connection)
    for name, expected, found in zip(added._fields, read_totals(connection), added, strict=True):
        if expected != found:
            yield Finding(_DATABASE, f"the table {name} is not as it was written: rows are missing or changed")


def _check_words(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the index of words. SQLite does that only for who may write, so that writers wait meanwhile."""
    if not has_words(connection) or not has_fts5(connection):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            check_words(connection)
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if not re.search("locked|readonly", str(error)):
            yield Finding(_DATABASE, f"the index of words does not agree with the items ({error})")


def _of_label(number: int, label: bytes) -> int:
    return crc32(label, crc32(b"%d " % number))


def _labels(values: dict[str, Any]) -> list[str]:
    labels = values.get("labels")
    return labels if isinstance(labels, list) else []


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
