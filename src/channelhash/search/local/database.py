"""Items, their codes and metadata in SQLite: the record of truth of an embedded store."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search.filters import Filter
from channelhash.search.local.filters import to_sqlite
from channelhash.search.store import Item
from channelhash.search.validation import Metadata, Value

#: How long a call waits for another writer before it gives up.
BUSY_SECONDS = 30.0

# How SQLite files of a store are told from others: "chst".
_APPLICATION = 0x63687374

# A code never changes in place and its serial is never used again, so that whoever has read the codes up to some serial
# is up to date with those of higher serials and without those in `removed`.
_SCHEMA = """
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

# The item of an id.
_NUMBER = "(SELECT number FROM items WHERE id = ?)"

# One seek a modality; DISTINCT would read all codes.
_MODALITIES = """
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

    >>> items = ItemsDatabase(None)
    >>> with items.reading() as state:
    ...     state.version
    0
    """

    version: int
    last_serial: int
    snapshot: str
    snapshot_serial: int
    snapshot_size: int


#: One code with its item: (id, item number, serial, packed code).
CodeRow = tuple[str, int, int, bytes]


class ItemsDatabase:
    """One connection. It is not for several threads at once: the caller holds a lock.

    Args:
        path: the file, made if it is not there; None for one in memory.

    Raises:
        InputError: the file is not such a database, or damaged.

    >>> items = ItemsDatabase(None)
    >>> with items.writing():
    ...     items.write(["a"], {"image": np.array([[7]], np.uint8)}, [{"year": 2020}], replace=False)
    >>> with items.reading():
    ...     items.ids(None), items.keys()
    (['a'], ['year'])
    """

    def __init__(self, path: Path | None) -> None:
        self._name = str(path) if path else "items"
        with self._errors():
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            for setting in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.execute("PRAGMA case_sensitive_like = ON")
            if not self._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
                self._create()
            if self._rows("PRAGMA application_id") != [(_APPLICATION,)]:
                raise InputError(f"{self._name}: a database, but not one of a store")

    def _create(self) -> None:
        with self.writing():
            if self._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
                return  # another process was quicker
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            for statement in _statements(_SCHEMA):
                self._connection.execute(statement)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def reading(self) -> Iterator[State]:
        """Open a block that sees the database as it is at its beginning, whatever others write."""
        with self._transaction("BEGIN"):
            yield self._state()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a block whose writes happen together when it ends, or not at all if it raises or the process dies."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    # Within `reading` or `writing`:

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM items")[0][0])

    def modalities(self) -> tuple[str, ...]:
        """Return the modalities of which there are codes, in alphabetical order."""
        return tuple(name for (name,) in self._rows(_MODALITIES))

    def code_counts(self) -> dict[str, int]:
        """Return modality -> number of codes."""
        return dict(self._rows("SELECT modality, count(*) FROM codes GROUP BY modality ORDER BY modality"))

    def label_counts(self) -> dict[str, int]:
        """Return label -> number of items, most frequent first, then by name."""
        return dict(self._rows("SELECT label, count(*) FROM labels GROUP BY label ORDER BY count(*) DESC, label"))

    def keys(self) -> list[str]:
        """Return every metadata key that an item has had."""
        return [name for (name,) in self._rows("SELECT name FROM keys")]

    def ids(self, where: Filter | None) -> list[str]:
        """Return the ids of the items that pass a filter, sorted."""
        condition = _condition(where)
        return [name for (name,) in self._rows(f"SELECT id FROM items WHERE {condition[0]} ORDER BY id", *condition[1])]

    def numbers(self, where: Filter) -> NDArray[np.int64]:
        """Return the numbers of the items that pass a filter, in no order."""
        condition = _condition(where)
        rows = self._connection.execute(f"SELECT number FROM items WHERE {condition[0]}", condition[1])
        return np.fromiter((number for (number,) in rows), dtype=np.int64)

    def get(self, item_id: str) -> Item | None:
        """Return one item, or None."""
        rows = self._rows("SELECT number, metadata FROM items WHERE id = ?", item_id)
        if not rows:
            return None
        number, metadata = rows[0]
        codes = {}
        for modality in self.modalities():
            for (code,) in self._rows("SELECT code FROM codes WHERE modality = ? AND item = ?", modality, number):
                codes[modality] = np.frombuffer(code, np.uint8)
        return Item(item_id, codes, json.loads(metadata))

    def codes(self, modality: str, after: int) -> Iterator[CodeRow]:
        """Return the codes of a modality whose serial is higher than ``after``, in the order of their items' ids."""
        # Codes are read in the order of their serials and then sorted: in the order of ids, each would be a seek.
        # The + keeps SQLite from taking the index on modalities instead.
        return self._connection.execute(
            "SELECT id, item, serial, code FROM codes CROSS JOIN items ON number = item"
            " WHERE serial > ? AND +modality = ? ORDER BY id",
            (after, modality),
        )

    def count_after(self, serial: int) -> int:
        """Return the number of codes of a higher serial."""
        return int(self._rows("SELECT count(*) FROM codes WHERE serial > ?", serial)[0][0])

    def count_until(self, modality: str, serial: int) -> int:
        """Return the number of a modality's codes up to a serial."""
        sql = "SELECT count(*) FROM codes WHERE modality = ?"
        later = f"{sql.replace('modality', '+modality')} AND serial > ?"  # by serial, as in `codes`
        return int(self._rows(sql, modality)[0][0]) - int(self._rows(later, modality, serial)[0][0])

    def any_removed_is_there(self) -> bool:
        """Return whether a code is there that is noted as gone."""
        return bool(self._rows("SELECT 1 FROM removed CROSS JOIN codes USING (serial) LIMIT 1"))

    def removed(self) -> NDArray[np.int64]:
        """Return the serials of codes that are gone and may be in the current snapshot."""
        rows = self._rows("SELECT serial FROM removed")
        return np.array([serial for (serial,) in rows], dtype=np.int64)

    def count_removed(self) -> int:
        """Return the number of these."""
        return int(self._rows("SELECT count(*) FROM removed")[0][0])

    # Within `writing`:

    def write(
        self,
        ids: Sequence[str],
        codes: Mapping[str, PackedCodes],
        metadata: Sequence[Metadata] | None,
        replace: bool,
    ) -> None:
        """Add items, codes of items and metadata, see `store.Store`; with ``replace`` codes may be there already.

        Raises:
            InputError: a code is there already.
        """
        execute = self._connection.executemany
        if metadata is None:
            execute("INSERT INTO items (id, metadata) VALUES (?, '{}') ON CONFLICT DO NOTHING", zip(ids))
        else:
            self._write_metadata(ids, metadata)
        serial = self._state().last_serial
        for modality, packed in codes.items():
            if replace:
                execute(
                    f"DELETE FROM codes WHERE modality = ? AND item = {_NUMBER}", ((modality, name) for name in ids)
                )
            rows = zip(ids, count(serial + 1), repeat(modality), _as_bytes(packed), strict=False)
            serial += len(ids)
            try:
                execute(f"INSERT INTO codes (item, serial, modality, code) VALUES ({_NUMBER}, ?, ?, ?)", rows)
            except sqlite3.IntegrityError:
                raise InputError(self._already_there(ids, modality)) from None
        self._connection.execute("UPDATE state SET version = version + 1, last_serial = ?", (serial,))

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many were there."""
        numbers = [row for name in ids for row in self._rows("SELECT number FROM items WHERE id = ?", name)]
        modalities = self.modalities()
        of_modality = [(modality, number) for modality in modalities for (number,) in numbers]
        self._connection.executemany("DELETE FROM codes WHERE modality = ? AND item = ?", of_modality)
        self._connection.executemany("DELETE FROM labels WHERE item = ?", numbers)
        self._connection.executemany("DELETE FROM items WHERE number = ?", numbers)
        self._connection.execute("UPDATE state SET version = version + 1")
        return len(numbers)

    def set_snapshot(self, name: str, serial: int, size: int) -> None:
        """Make a snapshot the current one."""
        self._connection.execute(
            "UPDATE state SET snapshot = ?, snapshot_serial = ?, snapshot_size = ?", (name, serial, size)
        )

    def forget_removed(self, serials: NDArray[np.int64]) -> None:
        """Drop removals that the current snapshot knows of."""
        self._connection.executemany("DELETE FROM removed WHERE serial = ?", ((int(serial),) for serial in serials))

    def _write_metadata(self, ids: Sequence[str], metadata: Sequence[Metadata]) -> None:
        execute = self._connection.executemany
        # `json_patch` is RFC 7396: given keys replace, those given as null go.
        execute(
            "INSERT INTO items (id, metadata) VALUES (?, json_patch('{}', ?))"
            " ON CONFLICT (id) DO UPDATE SET metadata = json_patch(metadata, excluded.metadata)",
            zip(ids, map(_as_json, metadata), strict=True),
        )
        keys = {key for values in metadata for key in values}
        execute("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys))
        labelled = [(name, _labels(values)) for name, values in zip(ids, metadata, strict=True) if "labels" in values]
        execute(f"DELETE FROM labels WHERE item = {_NUMBER}", ((name,) for name, _ in labelled))
        execute(
            f"INSERT OR IGNORE INTO labels VALUES (?, {_NUMBER})",
            ((label, name) for name, labels in labelled for label in labels),
        )

    def _already_there(self, ids: Sequence[str], modality: str) -> str:
        """Return what to say when one of ``ids`` has a code of ``modality``."""
        sql = "SELECT 1 FROM items JOIN codes ON item = number WHERE id = ? AND modality = ?"
        name = next(name for name in ids if self._rows(sql, name, modality))
        return f"{self._name}: {name!r} has a code for {modality} already; replace it with upsert"

    def _state(self) -> State:
        return State(*self._rows("SELECT * FROM state")[0])

    def _rows(self, sql: str, *parameters: Value) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._errors():
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise SQLite's errors as one line for the user."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            reason = str(error)
            if "locked" in reason or "busy" in reason:
                raise InputError(f"{self._name}: another process is writing to it; try again later") from None
            if "full" in reason or "disk I/O" in reason:
                raise JobError(f"{self._name}: cannot be written ({reason}); make room on the disk") from None
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise InputError(
                f"{self._name}: not a store's database, or damaged or not accessible ({reason}); restore or remake it"
            ) from None


def _condition(where: Filter | None) -> tuple[str, tuple[Value, ...]]:
    if where is None:
        return "1", ()
    condition = to_sqlite(where)
    return condition.sql, condition.parameters


def _statements(script: str) -> Iterator[str]:
    """Return the statements of a script; `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _as_bytes(packed: PackedCodes) -> list[bytes]:
    data, width = packed.tobytes(), packed.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]


def _labels(values: Metadata) -> list[str]:
    labels = values["labels"]
    return labels if isinstance(labels, list) else []


# One for all items: `json.dumps` would make an encoder for each.
_encoder = json.JSONEncoder(ensure_ascii=False)


def _as_json(values: Metadata) -> str:
    return _encoder.encode(dict(values))
