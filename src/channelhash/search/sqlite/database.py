"""Items, their codes and metadata in SQLite: the record of truth of an embedded store."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet
from channelhash.codes.stage import Stage
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

_INSERT = """
INSERT INTO codes (item, serial, modality, code, projection, checksum) VALUES (?, ?, ?, ?, ?, ?)
"""
#: Lists the modalities that have codes, by one seek each; DISTINCT would read all codes.
_MODALITIES = """
WITH RECURSIVE found(name) AS (
    SELECT min(modality) FROM codes
    UNION ALL
    SELECT (SELECT min(modality) FROM codes WHERE modality > name) FROM found WHERE name IS NOT NULL
) SELECT name FROM found WHERE name IS NOT NULL
"""
_CODES_OF = f"""
SELECT modality, item, serial, code, projection, checksum FROM codes
WHERE modality IN ({_MODALITIES}) AND item IN (SELECT value FROM json_each(?)) ORDER BY modality
"""
#: Begins a transaction that only reads.
_READ = "BEGIN"
#: Ids that one statement looks for; SQLite allows no more than some hundred parameters.
_AT_ONCE = 100
#: Kind of a literal -> what SQLite's `json_type` calls values of that kind.
_JSON_TYPES = {"strings": "'text'", "Booleans": "'true', 'false'", "numbers": "'integer', 'real'"}


def _to_sqlite(where: Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(number, id, metadata as JSON)`` and the table
    ``labels(label, item)``.

    >>> _to_sqlite(Condition("id", "=", ("a",)))
    SqlCondition(sql='(id = ?)', parameters=('a',))
    """
    return to_sql(where, _translate) if where else SqlCondition("true", ())


def _translate(condition: Condition) -> SqlCondition:
    key = condition.key
    literals = condition.literals
    no = "NOT " if condition.negated else ""
    column = key if key in ("label", "id") else "json_extract(metadata, ?)"
    sql = compared(column, condition, "GLOB ?", "?")
    if condition.test == "LIKE":  # SQLite's own LIKE ignores case
        literals = (to_glob(literals[0]),)
    if key == "label":
        return SqlCondition(f"number {no}IN (SELECT item FROM labels WHERE {sql})", literals)
    if key == "id":
        return SqlCondition(f"{no}{sql}", literals)
    path = f'$."{key}"'
    if not literals:
        is_there = "" if condition.negated else "NOT "
        return SqlCondition(f"json_type(metadata, ?) IS {is_there}NULL", (path,))
    types = _JSON_TYPES[kind_of(literals[0])]
    return SqlCondition(
        f"(json_type(metadata, ?) IN ({types}) AND {no}{sql})", (path, path, *literals)
    )


class ItemsDatabase:
    """A connection to the database, for one thread at a time: the caller holds a lock.

    Each row is compared with its checksum before it is returned or changed.

    >>> items = ItemsDatabase(None)
    >>> with items.writing():
    ...     items.write(NewItems(["a"], {"image": np.array([[7]], np.uint8)}, 8, [{"year": 2020}]))
    >>> with items.reading():
    ...     items.ids(None), items.keys()
    (['a'], ['year'])
    """

    def __init__(
        self,
        path: Path | None,
        guard: Guard | None = None,
        manifest: Manifest | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._name = str(path) if path else "items"
        self._guard = guard
        read_only = guard is not None and guard.read_only
        with disk.one_line_errors(self._name):
            self._connection = disk.connect(path, create=guard is None, read_only=read_only)
            if guard is None:
                self._create(manifest or Manifest.new(Facts(0, "")), stage)
            if self._rows("PRAGMA application_id") != [(disk.APPLICATION,)]:
                raise InputError(f"{self._name}: a database, but not one of a store")
            self._words = WordIndex(self._connection)
            #: Whether items can be found by words.
            self.has_words = self._words.usable

    def _create(self, manifest: Manifest, stage: Stage | None) -> None:
        is_new = "SELECT 1 FROM sqlite_master LIMIT 1"
        if not self._rows(is_new):
            with self._transaction("BEGIN IMMEDIATE"):
                if not self._rows(is_new):  # otherwise another process was quicker
                    content = None if stage is None else stage.to_bytes()
                    disk.create_tables(self._connection, manifest.to_json(), content)

    def read_stage(self, fingerprint: str) -> Stage:
        """Return the stage that compares projections."""
        with disk.one_line_errors(self._name):
            return disk.read_stage(self._connection, fingerprint)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def state(self) -> State:
        """Return the current state of the database, even if its file was removed."""
        with disk.one_line_errors(self._name):
            return State.read(self._connection)

    def check_presence(self, writes: bool = True) -> None:
        """Raise an error if the database may not be written to, or read, any more."""
        if self._guard:
            self._guard.check_presence(writes)

    def copy_to(self, path: Path) -> None:
        """Write the database as it is now to a new file, while others read and write this one."""
        with disk.one_line_errors(str(path)), closing(disk.connect(path, create=True)) as copy:
            self._connection.backup(copy)

    def reading(self) -> AbstractContextManager[None]:
        """Open a block that sees the database as it is at the first read, whatever others write
        meanwhile.
        """
        return self._transaction(_READ)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a block whose writes happen together at its end, or not at all if it raises or the
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

    # These are called within `reading` or `writing`:

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM items")[0][0])

    def modalities(self) -> tuple[str, ...]:
        """Return the modalities that have codes, sorted."""
        return tuple(name for (name,) in self._rows(_MODALITIES))

    def code_counts(self) -> dict[str, int]:
        """Return modality -> number of codes."""
        sql = "SELECT modality, count(*) FROM codes GROUP BY modality ORDER BY modality"
        return dict(self._rows(sql))

    def label_counts(self) -> dict[str, int]:
        """Return label -> number of items, most frequent first, then by name."""
        sql = "SELECT label, count(*) FROM labels GROUP BY label ORDER BY count(*) DESC, label"
        return dict(self._rows(sql))

    def value_counts(self, key: str) -> dict[str, int]:
        """Return string -> number of items that have it as the value of a metadata key, most
        frequent first, then by value.
        """
        if key not in self.keys():
            return {}
        sql = """
SELECT json_extract(metadata, ?1), count(*) FROM items WHERE json_type(metadata, ?1) = 'text'
GROUP BY 1 ORDER BY 2 DESC, 1
"""
        return dict(self._rows(sql, f'$."{key}"'))

    def keys(self) -> list[str]:
        """Return every metadata key that any item has ever had."""
        return [name for (name,) in self._rows("SELECT name FROM keys")]

    def ids(self, where: Filter | None) -> list[str]:
        """Return the ids of the items that pass a filter, sorted."""
        condition = _to_sqlite(where)
        sql = f"SELECT id FROM items WHERE {condition.sql} ORDER BY id"
        return [name for (name,) in self._rows(sql, *condition.parameters)]

    def numbers(self, where: Filter) -> NDArray[np.int64]:
        """Return the numbers of the items that pass a filter, in no order."""
        condition = _to_sqlite(where)
        sql = f"SELECT number FROM items WHERE {condition.sql}"
        rows = self._connection.execute(sql, condition.parameters)
        return np.fromiter((number for (number,) in rows), dtype=np.int64)

    def word_counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it."""
        return self._words.counts() if self.has_words else {}

    def search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        """Return the ``k`` items that best match the words of a text, see `WordIndex`."""
        return self._words.search(text, without, k, _to_sqlite(where), least)

    def get(self, ids: Sequence[str]) -> dict[str, Item]:
        """Return id -> item with its codes, in the order of ``ids``; unknown ids are left out."""
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
                items[name].projections[modality] = np.frombuffer(projection, np.uint8)
        return items

    def listed(self, after: int, count: int) -> list[tuple[int, Listed]]:
        """Return the first ``count`` items with numbers above ``after``, and the numbers; errors as
        in `get`.
        """
        rows = list(self._items("number > ? ORDER BY number LIMIT ?", after, count))
        last = rows[-1][0] if rows else after
        find = "SELECT item FROM codes WHERE modality = ? AND item > ? AND item <= ?"
        modalities = defaultdict[int, list[str]](list)
        for modality in self.modalities():
            for (number,) in self._rows(find, modality, after, last):
                modalities[number].append(modality)
        return [
            (number, Listed(name, tuple(modalities[number]), json.loads(metadata)))
            for number, name, metadata in rows
        ]

    def codes(
        self, modality: str, after: int
    ) -> Iterator[tuple[str, int, int, bytes, bytes | None]]:
        """Return a modality's codes with serials above ``after``, in the order of the items' ids;
        errors as in `get`.

        Each is (id, item number, serial, packed code, projection or None).
        """
        # Codes are read in the order of their serials and then sorted; in the order of ids, each
        # would cost a seek. The + keeps SQLite from using the index on modalities instead.
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
        """Return the number of codes with a higher serial, and of codes that are gone."""
        sql = "SELECT (SELECT count(*) FROM codes WHERE serial > ?), (SELECT count(*) FROM removed)"
        return self._rows(sql, serial)[0]

    def removed(self) -> NDArray[np.int64]:
        """Return the serials of codes that are gone and may be in the current snapshot."""
        serials = self._connection.execute("SELECT serial FROM removed")
        return np.fromiter((serial for (serial,) in serials), np.int64)

    # These are called within `writing`, at whose end the state is written:

    def write(self, new: NewItems) -> None:
        """Add items, codes of items and metadata."""
        numbers = self._write_items(new.ids, new.metadata)
        serial = self._state.last_serial
        for modality, packed in new.codes.items():
            if new.replace:
                self._remove_codes(modality, numbers)
            projections = (
                map(bytes, new.projections[modality])
                if new.projections
                else repeat(None, len(numbers))
            )
            rows = []
            for name, number, code, projection in zip(
                new.ids, numbers, map(bytes, packed), projections, strict=True
            ):
                serial += 1
                checksum = disk.code_checksum(name, number, serial, modality, code, projection)
                rows.append((number, serial, modality, code, projection, checksum))
            try:
                self._connection.executemany(_INSERT, rows)
            except sqlite3.IntegrityError:
                raise self._refused(modality, new.ids, numbers) from None
        self._state = self._state._replace(version=self._state.version + 1, last_serial=serial)

    def _refused(self, modality: str, ids: Sequence[str], numbers: Sequence[int]) -> InputError:
        """Return why codes of some items cannot be inserted."""
        sql = "SELECT 1 FROM codes WHERE modality = ? AND item = ? AND serial <= ?"
        before = self._state.last_serial
        for name, number in zip(ids, numbers, strict=True):
            if self._rows(sql, modality, number, before):
                line = f"{name!r} has a code for {modality} already; replace it with upsert"
                return InputError(f"{self._name}: {line}")
        return disk.damaged(self._name, "a serial is there twice")

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items, and return how many were there."""
        numbers = []
        for name in ids:  # whatever else is in their rows, which may be damaged
            numbers += [row[0] for row in self._rows("SELECT number FROM items WHERE id = ?", name)]
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
        """Set the version and the number of writes to one that no reader has seen."""
        self._state = self._state._replace(version=version, writes=version)

    def set_snapshot(self, name: str, serial: int, size: int, removed: NDArray[np.int64]) -> None:
        """Make a snapshot the current one, and forget the removals that it already reflects."""
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
            if name in known:
                number, text = known[name]
                if values:
                    changed.append(_item_row(number, name, {**json.loads(text), **values}))
            else:
                last += 1
                number = last
                new.append(_item_row(number, name, values))
            numbers.append(number)
        changed_numbers = [row[0] for row in changed]
        self._words.remove(changed_numbers)
        execute = self._connection.executemany
        execute("INSERT INTO items (number, id, metadata, checksum) VALUES (?, ?, ?, ?)", new)
        execute("UPDATE items SET metadata = ?3, checksum = ?4 WHERE number = ?1", changed)
        self._words.add([row[0] for row in new] + changed_numbers)
        if metadata is not None:
            keys = set().union(*(_without_none(values) for values in metadata))
            execute("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys))
            self._write_labels(dict(zip(numbers, metadata, strict=True)), set(changed_numbers))
        return numbers

    def _write_labels(self, metadata: Mapping[int, Metadata], changed: Set[int]) -> None:
        """Write the labels in items' metadata, in place of those that changed items had."""
        labels = {number: of["labels"] for number, of in metadata.items() if "labels" in of}
        outdated = labels.keys() & changed
        self._connection.executemany("DELETE FROM labels WHERE item = ?", zip(outdated))
        rows = []
        for number, names in labels.items():
            if isinstance(names, list):
                rows += [(label, number) for label in names]
        rows.sort()  # in the order of the table
        self._connection.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?)", rows)

    def _known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return id -> number and metadata, in the order of ``ids``, without unknown ones."""
        rows: dict[str, tuple[int, str]] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            items = self._items(f"id IN ({', '.join('?' * len(some))})", *some)
            rows |= {name: (number, metadata) for number, name, metadata in items}
        return {name: rows[name] for name in ids if name in rows}

    def _items(self, where: str, *parameters: Value) -> Iterator[tuple[int, str, str]]:
        """Yield number, id and metadata of items; raise an error if they are damaged."""
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
        self._connection.executemany(sql, zip(repeat(modality), numbers))

    def _damaged(self, name: str) -> InputError:
        return disk.damaged(self._name, f"the item {name!r} is not as it was written")

    def _rows(self, sql: str, *parameters: Value) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with disk.one_line_errors(self._name):
            self.check_presence(begin != _READ)
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


#: An encoder for all items: `json.dumps` would make one for each.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _item_row(number: int, name: str, values: Metadata) -> tuple[int, str, str, float]:
    """Return a row of ``items``; metadata keys without a value are left out.

    >>> _item_row(1, "a", {"year": 2020, "text": None})[:3]
    (1, 'a', '{"year":2020}')
    """
    text = _encoder.encode(_without_none(values))
    return number, name, text, disk.item_checksum(number, name, text)


def _without_none(values: Metadata) -> Metadata:
    return {key: value for key, value in values.items() if value is not None}


def metadata_of(codes: CodeSet) -> list[Metadata]:
    """Return the metadata of a code set's items. Empty texts and paths are left out as unknown."""
    metadata: list[dict[str, Any]] = [{} for _ in codes.ids]
    for key, column in (("text", codes.texts), ("image", codes.images)):
        for values, value in zip(metadata, column or (), strict=False):
            if value:
                values[key] = value
    if codes.labels is not None and codes.label_names:
        for row, label in np.argwhere(codes.labels).tolist():
            metadata[row].setdefault("labels", []).append(codes.label_names[label])
    return list(metadata)
