"""What people decide about near-duplicates.

Decisions lie in ``duplicates.sqlite`` in the store's folder, with the small copies of images that
`channelhash.copies.small_copies` keeps there. Without the file, images are read again and people
are asked again.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from channelhash.copies.small_copies import KeptCopies, SmallCopy, recall_copies
from channelhash.errors import InputError
from channelhash.search.sqlite.folder import StoreFolder, connect
from channelhash.search.store import Store

#: What people decide: that items are different, that all of them stay, that all but one are moved.
DecisionKind = Literal["different", "keep", "move"]

#: Name of the database in the store's folder.
_NAME = "duplicates.sqlite"
#: Rows of one number are one decision; ``log`` says how to take the move of an item back.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, log TEXT NOT NULL
);
"""


class Decisions:
    """The decisions in a database, and the small copies that it keeps.

    >>> decisions = Decisions(connect(None))
    >>> decisions.add("different", {"a": "", "b": ""}), decisions.numbers("different")
    (1, {'a': {1}, 'b': {1}})
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(_SCHEMA)
        self.copies = KeptCopies(connection)

    def numbers(self, *kinds: DecisionKind) -> dict[str, set[int]]:
        """Return id -> the numbers of the decisions of these kinds about the item."""
        numbers: dict[str, set[int]] = {}
        for name, number, kind in self._connection.execute(
            "SELECT id, number, kind FROM decisions"
        ):
            if kind in kinds:
                numbers.setdefault(name, set()).add(number)
        return numbers

    def add(self, kind: DecisionKind, logs: Mapping[str, str]) -> int:
        """Keep a decision about items, given with their logs, and return its number."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            (number,) = self._connection.execute(
                "SELECT ifnull(max(number), 0) + 1 FROM decisions"
            ).fetchone()
            rows = [(number, kind, name, log) for name, log in logs.items()]
            self._connection.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?)", rows)
        return int(number)

    def last(self) -> list[tuple[int, DecisionKind, str, str]]:
        """Return number, kind, id and log of each item of the last decision, if there is one."""
        sql = "SELECT * FROM decisions WHERE number = (SELECT max(number) FROM decisions)"
        return self._connection.execute(sql).fetchall()

    def remove(self, number: int, name: str) -> None:
        """Remove an item from a decision."""
        sql = "DELETE FROM decisions WHERE number = ? AND id = ?"
        self._connection.execute(sql, (number, name))


@contextmanager
def open_decisions(store: Store, write: bool = False) -> Iterator[Decisions]:
    """Open the decisions about a store's items.

    If the store is not in a folder or can only be read, this opens a copy in memory, and raises
    `InputError` if the decisions are to be written.

    >>> import tempfile
    >>> import numpy as np
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     store.add(["a", "b"], np.zeros((2, 1), np.uint8))
    ...     decide(store, "different", ["a", "b"])
    ...     with open_decisions(store) as decisions:
    ...         decisions.numbers("different")
    {'a': {1}, 'b': {1}}
    """
    path = store.folder and store.folder / _NAME
    is_kept = _keeps_decisions(store)
    if write and not is_kept:
        raise InputError(
            f"{store.address}: keeps no decisions; use a store in a folder that can be written to"
        )
    with _said(path), closing(connect(path if is_kept else None, create=True)) as connection:
        if path and not is_kept:
            _copy_decisions(path, connection)
        yield Decisions(connection)


def recall(
    store: Store, paths: Sequence[str]
) -> tuple[list[SmallCopy | None], dict[str, set[int]]]:
    """Return the small copies of image files, and id -> numbers of the decisions that it differs
    from others, as far as they are kept.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     recall(store, ["none.jpg"])
    ([None], {})
    """
    path = store.folder and store.folder / _NAME
    if not path or not path.exists():
        return [None] * len(paths), {}
    with _said(path), closing(connect(path, read_only=True)) as connection:
        decisions = Decisions(connection)
        return recall_copies(paths, decisions.copies), decisions.numbers("different")


@contextmanager
def _said(path: Path | None) -> Iterator[None]:
    """Say in one line what is wrong with a database."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        is_busy = isinstance(error, sqlite3.OperationalError)
        remedy = "try again" if is_busy else "remove it, and begin anew"
        raise InputError(f"{path}: cannot be used ({error}); {remedy}") from None


def _keeps_decisions(store: Store) -> bool:
    folder = store.folder
    return folder is not None and StoreFolder(folder).database.exists() and store.writable


def _copy_decisions(path: Path, connection: sqlite3.Connection) -> None:
    """Copy a database of decisions, if it exists, into another."""
    if path.exists():
        with closing(connect(path, read_only=True)) as source:
            source.backup(connection)


def decide(store: Store, kind: DecisionKind, ids: Sequence[str]) -> None:
    """Keep a decision about items of the store; see `open_decisions` for an example."""
    if len(ids) < 2:
        raise InputError("a decision is about two items or more; name each of the group")
    store.get(ids)  # refuses ids that are not there
    with open_decisions(store, write=True) as decisions:
        decisions.add(kind, dict.fromkeys(ids, ""))
