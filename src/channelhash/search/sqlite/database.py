"""Items, their codes and metadata in SQLite: the record of truth of an embedded store."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet
from channelhash.errors import InputError
from channelhash.search.filters import (
    Condition,
    Filter,
    SqlCondition,
    compared,
    kind_of,
    to_glob,
    to_sql,
)
from channelhash.search.items import Facts, Metadata, NewItems, Value
from channelhash.search.rank import Ranking
from channelhash.search.sqlite import folder as disk
from channelhash.search.sqlite.folder import Manifest, State
from channelhash.search.sqlite.guard import Guard
from channelhash.search.sqlite.words import WordIndex
from channelhash.search.store import Item, Listed

_INSERT = (
    "INSERT INTO codes (item, serial, modality, code, projection, checksum) VALUES (?, ?, ?, ?, "
    "?, ?)"
)

# Gives the modalities of which there are codes. One seek a modality; DISTINCT would read all codes.
_MODALITIES = """
WITH RECURSIVE found(name) AS (
    SELECT min(modality) FROM codes
    UNION ALL SELECT (SELECT min(modality) FROM codes WHERE modality > name) FROM found WHERE name IS NOT NULL
) SELECT name FROM found WHERE name IS NOT NULL
"""
_CODES_OF = f"""
SELECT modality, item, serial, code, projection, checksum FROM codes
WHERE modality IN ({_MODALITIES}) AND item IN (SELECT value FROM json_each(?)) ORDER BY modality
"""
# Ids that one statement looks for.
_AT_ONCE = 100


# Kind of a literal -> what SQLite's `json_type` calls values of that kind.
_JSON_TYPES = {"strings": "'text'", "Booleans": "'true', 'false'", "numbers": "'integer', 'real'"}


def _to_sqlite(where: Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(number, id, metadata as JSON)`` and the table
    ``labels(label, item)``.

    >>> _to_sqlite(Condition("id", "=", ("a",)))
    SqlCondition(sql='(id = ?)', parameters=('a',))
    """
    return to_sql(where, _translate) if where else SqlCondition("true", ())


def _translate(condition: Condition) -> SqlCondition:
    key, literals = condition.key, condition.literals
    no = "NOT " if condition.negated else ""
    sql = compared(
        key if key in ("label", "id") else "json_extract(metadata, ?)", condition, "GLOB ?", "?"
    )
    if condition.test == "LIKE":  # SQLite's own takes no notice of upper and lower case
        literals = (to_glob(literals[0]),)
    if key == "label":
        return SqlCondition(f"number {no}IN (SELECT item FROM labels WHERE {sql})", literals)
    if key == "id":
        return SqlCondition(f"{no}{sql}", literals)
    path = f'$."{key}"'
    if not literals:
        return SqlCondition(
            f"json_type(metadata, ?) IS {'' if condition.negated else 'NOT '}NULL", (path,)
        )
    types = _JSON_TYPES[kind_of(literals[0])]
    return SqlCondition(
        f"(json_type(metadata, ?) IN ({types}) AND {no}{sql})", (path, path, *literals)
    )


class ItemsDatabase:
    """One connection. It is not for several threads at once: the caller holds a lock.

    What is read for an answer is held against its checksum, and so is what is changed.

    >>> items = ItemsDatabase(None)
    >>> with items.writing():
    ...     items.write(NewItems(["a"], {"image": np.array([[7]], np.uint8)}, 8, [{"year": 2020}]))
    >>> with items.reading():
    ...     items.ids(None), items.keys()
    (['a'], ['year'])
    """

    def __init__(
        self, path: Path | None, guard: Guard | None = None, manifest: Manifest | None = None
    ) -> None:
        self._name = str(path) if path else "items"
        self._guard = guard
        read_only = guard is not None and guard.read_only
        with disk.one_line_errors(self._name):
            self._connection = disk.connect(path, create=guard is None, read_only=read_only)
            if guard is None:
                self._create(manifest or Manifest.new(Facts(0, "")))
            if self._rows("PRAGMA application_id") != [(disk.APPLICATION,)]:
                raise InputError(f"{self._name}: a database, but not one of a store")
            self._words = WordIndex(self._connection)
            #: Whether items can be found by words.
            self.has_words = self._words.usable

    def _create(self, manifest: Manifest) -> None:
        is_new = "SELECT 1 FROM sqlite_master LIMIT 1"
        if not self._rows(is_new):
            with self._transaction("BEGIN IMMEDIATE"):
                if not self._rows(is_new):  # otherwise another process was quicker
                    disk.create_tables(self._connection, manifest.to_json())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def state(self) -> State:
        """Return where the database is now, even if its file was removed."""
        with disk.one_line_errors(self._name):
            return State.read(self._connection)

    def copy_to(self, path: Path) -> None:
        """Write the database as it is now to a new file, while others read and write this one."""
        with disk.one_line_errors(str(path)), closing(disk.connect(path, create=True)) as copy:
            self._connection.backup(copy)

    def reading(self) -> AbstractContextManager[None]:
        """Open a block that sees the database as it is when it first reads, whatever others
        write.
        """
        return self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a block whose writes happen together when it ends, or not at all if it raises or the
        process dies.
        """
        with self._transaction("BEGIN IMMEDIATE"):
            self._state = State.read(self._connection)
            yield
            state = self._state._replace(writes=self._state.writes + 1)
            columns = ", ".join(f"{name} = ?" for name in (*State._fields, "checksum"))
            self._connection.execute(f"UPDATE state SET {columns}", (*state, state.checksum()))
        if self._guard:
            self._guard.note(state.writes)

    # Within `reading` or `writing`:

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM items")[0][0])

    def modalities(self) -> tuple[str, ...]:
        """Return the modalities of which there are codes, in alphabetical order."""
        return tuple(name for (name,) in self._rows(_MODALITIES))

    def code_counts(self) -> dict[str, int]:
        """Return modality -> number of codes."""
        return dict(
            self._rows("SELECT modality, count(*) FROM codes GROUP BY modality ORDER BY modality")
        )

    def label_counts(self) -> dict[str, int]:
        """Return label -> number of items, most frequent first, then by name."""
        return dict(
            self._rows(
                "SELECT label, count(*) FROM labels GROUP BY label ORDER BY count(*) DESC, label"
            )
        )

    def value_counts(self, key: str) -> dict[str, int]:
        """Return string -> number of items of which it is the value of a metadata key, as
        `label_counts` does.
        """
        sql = (
            "SELECT json_extract(metadata, ?1), count(*) FROM items WHERE json_type(metadata, "
            "?1) = 'text' GROUP BY 1"
        )
        return (
            dict(self._rows(f"{sql} ORDER BY 2 DESC, 1", f'$."{key}"'))
            if key in self.keys()
            else {}
        )

    def keys(self) -> list[str]:
        """Return every metadata key that an item has had."""
        return [name for (name,) in self._rows("SELECT name FROM keys")]

    def ids(self, where: Filter | None) -> list[str]:
        """Return the ids of the items that pass a filter, sorted."""
        condition = _to_sqlite(where)
        return [
            name
            for (name,) in self._rows(
                f"SELECT id FROM items WHERE {condition[0]} ORDER BY id", *condition[1]
            )
        ]

    def numbers(self, where: Filter) -> NDArray[np.int64]:
        """Return the numbers of the items that pass a filter, in no order."""
        condition = _to_sqlite(where)
        rows = self._connection.execute(
            f"SELECT number FROM items WHERE {condition[0]}", condition[1]
        )
        return np.fromiter((number for (number,) in rows), dtype=np.int64)

    def word_counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it."""
        return self._words.counts() if self.has_words else {}

    def search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        """Return the ``k`` items that have most of a text's words, see `WordIndex`."""
        return self._words.search(text, without, k, _to_sqlite(where), least)

    def get(self, ids: Sequence[str]) -> dict[str, Item]:
        """Return id -> item, with its codes, for those ids that are there, in their order."""
        known = self._known(ids)
        names = {number: name for name, (number, _) in known.items()}
        items = {
            name: Item(name, {}, json.loads(metadata)) for name, (_, metadata) in known.items()
        }
        for modality, number, serial, code, projection, checksum in self._rows(
            _CODES_OF, json.dumps([*names])
        ):
            name = names[number]
            if disk.code_checksum(name, number, serial, modality, code, projection) != checksum:
                raise self._damaged(name)
            items[name].codes[modality] = np.frombuffer(code, np.uint8)
            if projection is not None:
                items[name].projections[modality] = np.frombuffer(projection, np.int8)
        return items

    def listed(self, after: int, count: int) -> list[tuple[int, Listed]]:
        """Return the first ``count`` items of a higher number than ``after``, with numbers; errors
        as in `get`.
        """
        rows = list(self._items("number > ? ORDER BY number LIMIT ?", after, count))
        last = rows[-1][0] if rows else after
        find = "SELECT item FROM codes WHERE modality = ? AND item > ? AND item <= ?"
        coded = {
            name: {number for (number,) in self._rows(find, name, after, last)}
            for name in self.modalities()
        }
        items = []
        for number, name, metadata in rows:
            modalities = tuple(modality for modality, numbers in coded.items() if number in numbers)
            items.append((number, Listed(name, modalities, json.loads(metadata))))
        return items

    def codes(
        self, modality: str, after: int
    ) -> Iterator[tuple[str, int, int, bytes, bytes | None]]:
        """Return a modality's codes of serials above ``after``, in the order of the items' ids;
        errors as in `get`.

        Each is (id, item number, serial, packed code, projection or None).
        """
        # Codes are read in the order of their serials and then sorted: in the order of ids, each
        # would be a seek. The + keeps SQLite from taking the index on modalities instead.
        rows = self._connection.execute(
            "SELECT id, item, serial, code, projection, codes.checksum FROM codes CROSS JOIN "
            "items ON number = item WHERE serial > ? AND +modality = ? ORDER BY id",
            (after, modality),
        )
        for name, number, serial, code, projection, checksum in rows:
            if disk.code_checksum(name, number, serial, modality, code, projection) != checksum:
                raise self._damaged(name)
            yield name, number, serial, code, projection

    def count_changes(self, serial: int) -> tuple[int, int]:
        """Return the number of codes of a higher serial, and of codes that are gone."""
        sql = "SELECT (SELECT count(*) FROM codes WHERE serial > ?), (SELECT count(*) FROM removed)"
        return self._rows(sql, serial)[0]

    def removed(self) -> NDArray[np.int64]:
        """Return the serials of codes that are gone and may be in the current snapshot."""
        return np.array(
            [serial for (serial,) in self._rows("SELECT serial FROM removed")], dtype=np.int64
        )

    # Within `writing`, at whose end the state is written:

    def write(self, new: NewItems) -> None:
        """Add items, codes of items and metadata."""
        ids, projections = new.ids, new.projections
        numbers = self._write_items(ids, new.metadata)
        last = serial = self._state.last_serial
        for modality, packed in new.codes.items():
            if new.replace:
                self._remove_codes(modality, numbers)
            beside = map(bytes, projections[modality]) if projections else repeat(None, len(ids))
            rows = []
            for name, number, code, row in zip(
                ids, numbers, map(bytes, packed), beside, strict=True
            ):
                serial += 1
                checksum = disk.code_checksum(name, number, serial, modality, code, row)
                rows.append((number, serial, modality, code, row, checksum))
            try:
                self._connection.executemany(_INSERT, rows)
            except sqlite3.IntegrityError:
                sql = "SELECT 1 FROM codes WHERE modality = ? AND item = ? AND serial <= ?"  # none of this call
                for name, number in zip(ids, numbers, strict=True):
                    if self._rows(sql, modality, number, last):
                        line = f"{name!r} has a code for {modality} already; replace it with upsert"
                        raise InputError(f"{self._name}: {line}") from None
                raise disk.damaged(self._name, "a serial is there twice") from None
        self._state = self._state._replace(version=self._state.version + 1, last_serial=serial)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many were there."""
        find = "SELECT number FROM items WHERE id = ?"  # whatever else is in the row, which may be damaged
        numbers = [number for name in ids for (number,) in self._rows(find, name)]
        for modality in self.modalities():
            self._remove_codes(modality, numbers)
        self._words.remove(numbers)
        for statement in (
            "DELETE FROM labels WHERE item = ?",
            "DELETE FROM items WHERE number = ?",
        ):
            self._connection.executemany(statement, zip(numbers))
        self._state = self._state._replace(version=self._state.version + 1)
        return len(numbers)

    def raise_version(self, version: int) -> None:
        """Set the version and the number of writes, which are higher than any that a reader has
        seen.
        """
        self._state = self._state._replace(version=version, writes=version)

    def set_snapshot(self, name: str, serial: int, size: int, removed: NDArray[np.int64]) -> None:
        """Make a snapshot the current one, and drop the removals that it knows of."""
        self._state = self._state._replace(
            snapshot=name, snapshot_serial=serial, snapshot_size=size
        )
        self._connection.executemany("DELETE FROM removed WHERE serial = ?", zip(removed.tolist()))

    def _write_items(self, ids: Sequence[str], metadata: Sequence[Metadata] | None) -> list[int]:
        """Add items and metadata, and return the items' numbers."""
        known = self._known(ids)
        (last,) = self._rows("SELECT coalesce(max(number), 0) FROM items")[0]
        new = []
        changed = []
        numbers = []
        for name, values in zip(ids, metadata or repeat({}), strict=False):
            if name not in known:
                last += 1
                text = _as_json(values)
                new.append((last, name, text, disk.item_checksum(last, name, text)))
                numbers.append(last)
                continue
            number, former = known[name]
            numbers.append(number)
            if values:
                text = _as_json({**json.loads(former), **values})
                changed.append((text, disk.item_checksum(number, name, text), number))
        self._words.remove([row[-1] for row in changed])
        execute = self._connection.executemany
        execute("INSERT INTO items (number, id, metadata, checksum) VALUES (?, ?, ?, ?)", new)
        execute("UPDATE items SET metadata = ?, checksum = ? WHERE number = ?", changed)
        self._words.add([row[0] for row in new] + [row[-1] for row in changed])
        if metadata is not None:
            keys = {
                key for values in metadata for key, value in values.items() if value is not None
            }
            execute("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys))
            labels = {
                number: of["labels"]
                for number, of in zip(numbers, metadata, strict=True)
                if "labels" in of
            }
            execute(
                "DELETE FROM labels WHERE item = ?",
                ((row[-1],) for row in changed if row[-1] in labels),
            )
            rows = (
                (label, number)
                for number, names in labels.items()
                if isinstance(names, list)
                for label in names
            )
            # in the order of the table
            execute("INSERT OR IGNORE INTO labels VALUES (?, ?)", sorted(rows))
        return numbers

    def _known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return number and metadata of those ids that are there, in their order."""
        rows: dict[str, tuple[int, str]] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            items = self._items(f"id IN ({', '.join('?' * len(some))})", *some)
            rows |= {name: (number, metadata) for number, name, metadata in items}
        return {name: rows[name] for name in ids if name in rows}

    def _items(self, where: str, *parameters: Value) -> Iterator[tuple[int, str, str]]:
        """Yield number, id and metadata of items, if they are as they were written."""
        rows = self._rows(
            f"SELECT number, id, metadata, checksum FROM items WHERE {where}", *parameters
        )
        for number, name, metadata, checksum in rows:
            if disk.item_checksum(number, name, metadata) != checksum:
                raise self._damaged(name)
            yield number, name, metadata

    def _remove_codes(self, modality: str, numbers: list[int]) -> None:
        """Remove the codes of some items; a trigger notes their serials."""
        sql = "DELETE FROM codes WHERE modality = ? AND item = ?"
        self._connection.executemany(sql, ((modality, number) for number in numbers))

    def _damaged(self, name: str) -> InputError:
        return disk.damaged(self._name, f"the item {name!r} is not as it was written")

    def _rows(self, sql: str, *parameters: Value) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with disk.one_line_errors(self._name):
            if self._guard:
                self._guard.check_presence()
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _as_json(values: Metadata) -> str:
    """Return metadata without the keys that are taken away.

    >>> _as_json({"year": 2020, "text": None})
    '{"year":2020}'
    """
    return _encoder.encode({key: value for key, value in values.items() if value is not None})


def metadata_of(codes: CodeSet) -> list[Metadata]:
    """Return what a file of codes knows of its items; an empty text or path is an unknown one."""
    metadata: list[dict[str, Any]] = [{} for _ in codes.ids]
    for key, column in (("text", codes.texts), ("image", codes.images)):
        for values, value in zip(metadata, column or (), strict=False):
            if value:
                values[key] = value
    if codes.labels is not None and codes.label_names:
        for row, label in np.argwhere(codes.labels).tolist():
            metadata[row].setdefault("labels", []).append(codes.label_names[label])
    return list(metadata)
