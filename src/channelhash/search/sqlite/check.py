"""Care for a store in a folder: check all of it, repair it from what is whole, and copy it while
others use it.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from channelhash.errors import InputError, JobError
from channelhash.models.description import damaged_files
from channelhash.search.items import Facts, NewItems
from channelhash.search.sqlite.database import ItemsDatabase
from channelhash.search.sqlite.folder import (
    Manifest,
    StoreFolder,
    connect,
    item_checksum,
    one_line_errors,
)
from channelhash.search.sqlite.guard import (
    Finding,
    check_database,
    compare_with_manifest,
    is_whole_code,
    readable_text,
)
from channelhash.search.sqlite.snapshots import check_snapshot
from channelhash.search.sqlite.store import open_folder
from channelhash.utils.files import atomic_path, sync, temporary_folder, write_text
from channelhash.utils.locks import locked

_BATCH = 10_000
# Reads of a damaged table that may fail before the rest of it is given up.
_FAILURES = 100_000


class _Repaired(NamedTuple):
    """What a repair found and did.

    Attributes:
        damaged: what was damaged; empty where nothing was touched.
        lost: the items and codes that are gone, as far as they are known.
        n_items: number of items of the store now.

    >>> _Repaired([], [], 3).n_items
    3
    """

    damaged: list[Finding]
    lost: list[Finding]
    n_items: int


def check_store(path: Path) -> list[Finding]:
    """Return what is damaged in a store and its model, nothing if they are whole. Others may use it
    meanwhile.

    Reads everything, about 10 s for a million items.

    >>> import tempfile
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(folder, n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     store.close()
    ...     check_store(Path(folder))
    []
    """
    folder = StoreFolder.find(path)
    with one_line_errors(str(folder.database)):
        manifest, findings = _described(folder)
        findings += [*_unlike_manifest(folder), *_in_database(folder, manifest)]
        findings = findings or check_snapshot(folder)
    if folder.model.is_dir():
        findings += [Finding(folder.model.name, line) for line in damaged_files(folder.model)]
    return findings


def repair_store(path: Path) -> _Repaired:
    """Repair a store. A whole one is left as it is.

    Items and codes whose rows are whole are written to a new database, which takes the place of the
    damaged one; that is kept as ``items.sqlite.damaged``. What SQLite cannot read is lost, which is
    a page at a time, and so are writes whose log was cut or removed. Snapshots are made anew.
    """
    folder = StoreFolder.find(path)
    lost = list[Finding]()
    with locked(folder.gate), one_line_errors(str(folder.database)):
        _check_alone(folder)
        manifest, damaged = _described(folder)
        unlike = _unlike_manifest(folder)
        in_database = _in_database(folder, manifest)
        if in_database:
            lost = _salvage(folder, manifest)
        elif unlike:  # a whole database is taken as it is
            with (
                closing(_connect_to_damaged(folder)) as old,
                closing(ItemsDatabase(folder.database)) as items,
            ):
                _number_on(folder, old, items)
    if damaged or (unlike and not in_database):
        folder.description.unlink(missing_ok=True)
    snapshot = check_snapshot(folder)
    with closing(open_folder(path)) as store:  # checks all, and makes the description again
        if snapshot:
            store.make_snapshot()
        return _Repaired([*damaged, *unlike, *in_database, *snapshot], lost, len(store))


def backup_store(path: Path, target: Path) -> tuple[int, int]:
    """Copy a store as it is at one moment, whatever others write meanwhile, and check all of the
    copy.

    The copy is a store, with its model and a snapshot of its own. It gets its name when it is
    whole.

    >>> import tempfile
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/a.store", n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     backup_store(Path(folder, "a.store"), Path(folder, "b.store"))[0]
    1
    """
    source = StoreFolder.find(path)
    if target.exists() or target.is_symlink():
        raise InputError(f"{target}: is there already; name a new folder for the backup")
    if target.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{target}: lies in the store; name a folder elsewhere")
    with temporary_folder(target) as temporary:
        # refuses a damaged one
        with closing(open_folder(path)), closing(ItemsDatabase(source.database)) as items:
            items.copy_to(StoreFolder(temporary).database)
        if source.model.is_dir():
            shutil.copytree(source.model, temporary / source.model.name)
        if source.source.is_file():
            shutil.copyfile(source.source, temporary / source.source.name)
        with closing(open_folder(temporary)) as store:  # nobody has sealed it: all of it is checked
            store.make_snapshot()
            n_items = len(store)
        if findings := check_store(temporary):
            raise JobError(
                f"{target}: the copy is not whole ({findings[0]}); is the disk in order? Try again"
            )
        for copied in [*temporary.rglob("*"), temporary]:
            sync(copied)
        os.rename(temporary, target)
    sync(target.parent)
    return n_items, StoreFolder(target).n_bytes()


def _described(folder: StoreFolder) -> tuple[Manifest | None, list[Finding]]:
    """Return what a store says of itself, in its description or else in its database, and what is
    wrong with that.
    """
    if manifest := folder.manifest():
        return manifest, []
    with (
        suppress(sqlite3.DatabaseError),
        closing(connect(folder.database, read_only=not folder.writable)) as opened,
    ):
        manifest = Manifest.read(opened, folder.database)
    return manifest, [Finding(folder.description.name, "is missing or damaged")]


def _unlike_manifest(folder: StoreFolder) -> list[Finding]:
    """Return in what the database is not as the description says."""
    with suppress(sqlite3.DatabaseError):  # what is wrong is found by `_in_database`
        return compare_with_manifest(folder)[0]
    return []


def _in_database(folder: StoreFolder, manifest: Manifest | None) -> list[Finding]:
    """Return what is damaged in the database."""
    if folder.database.stat().st_size == 0:
        return [Finding(folder.database.name, "is empty")]
    try:
        with closing(connect(folder.database, read_only=not folder.writable)) as connection:
            return list(check_database(connection, manifest.facts if manifest else None))
    except sqlite3.DatabaseError as error:
        if "unable to open" in str(error):
            raise
        return [Finding(folder.database.name, " ".join(str(error).split()))]


def _check_alone(folder: StoreFolder) -> None:
    try:
        connect(folder.database, alone=True).close()
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise InputError(
                f"{folder.path}: is open in another process; stop that before a repair"
            ) from None


def _connect_to_damaged(folder: StoreFolder) -> sqlite3.Connection:
    connection = sqlite3.connect(folder.database, isolation_level=None)
    connection.text_factory = readable_text
    connection.execute("PRAGMA writable_schema = ON")  # lets SQLite read a file that was cut
    return connection


def _salvage(folder: StoreFolder, manifest: Manifest | None) -> list[Finding]:
    """Put a new database of all whole rows in the place of a store's, and return what is lost."""
    log = Path(f"{folder.database}-wal")
    copy = folder.path / f"{folder.database.name}.damaged"
    try:
        with atomic_path(folder.database) as new:
            with closing(_connect_to_damaged(folder)) as old:
                old.execute("SELECT * FROM sqlite_master").fetchall()
                if manifest is None:
                    raise sqlite3.DatabaseError(
                        "neither store.json nor the database says of what length codes are"
                    )
                manifest = manifest._replace(writes=0, digest="")
                with closing(ItemsDatabase(new, manifest=manifest)) as items:
                    names, lost = _copy_items(old, items)
                    if not names:
                        raise sqlite3.DatabaseError("no item is whole")
                    lost += _copy_codes(old, items, names, manifest.facts)
                    _number_on(folder, old, items)
                # what is in the log goes into the damaged file
                with suppress(sqlite3.DatabaseError):
                    old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if log.exists():  # or it would be taken for the new file's
                os.replace(log, f"{copy}-wal")
            shutil.copyfile(folder.database, copy)
        sync(folder.path)
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{folder.database}: nothing of it can be kept ({error}); restore it from a backup, or "
            "remove the folder and add the items again"
        ) from None
    write_text(folder.description, manifest.to_json())
    for snapshot in folder.path.glob("snapshot-*"):
        shutil.rmtree(snapshot)
    return lost


def _number_on(folder: StoreFolder, old: sqlite3.Connection, items: ItemsDatabase) -> None:
    """Let the next write of a database have a higher number than any that anybody has seen."""
    manifest = folder.manifest()
    numbers = [folder.noted_writes(), manifest.writes if manifest else 0]
    with items.writing():
        items.raise_version(max(numbers + _highest(old, "SELECT version, writes FROM state")) + 1)


def _copy_items(
    old: sqlite3.Connection, new: ItemsDatabase
) -> tuple[dict[int, str], list[Finding]]:
    """Copy the whole items; returns old number -> id of them, and what is lost."""
    listed = dict(
        _rows_before_damage(old, "SELECT number, id FROM items INDEXED BY sqlite_autoindex_items_1")
    )
    sql = (
        "SELECT number, id, metadata, checksum FROM items NOT INDEXED WHERE number BETWEEN ? AND "
        "? ORDER BY number"
    )
    names: dict[int, str] = {}
    for rows in _batches(
        _readable(old, sql, max([0, *listed, *_highest(old, "SELECT max(number) FROM items")]))
    ):
        intact = [row for row in rows if item_checksum(*row[:3]) == row[3]]
        listed.update({row[0]: row[1] for row in rows})
        ids = [row[1] for row in intact]
        with new.writing():
            new.write(NewItems(ids, {}, 0, [json.loads(row[2]) for row in intact], replace=True))
        names.update(zip((row[0] for row in intact), ids, strict=True))
    lost = {str(name) for number, name in listed.items() if number not in names} - set(
        names.values()
    )
    return names, [Finding(name, "the item is lost") for name in sorted(lost)]


def _copy_codes(
    old: sqlite3.Connection, new: ItemsDatabase, names: dict[int, str], facts: Facts
) -> list[Finding]:
    """Copy the whole codes of the items that were copied; returns what is lost of those items."""
    columns = "serial, item, modality, code, projection, checksum"
    sql = f"SELECT {columns} FROM codes NOT INDEXED WHERE serial BETWEEN ? AND ? ORDER BY serial"
    listed = _rows_before_damage(
        old, "SELECT modality, item FROM codes INDEXED BY sqlite_autoindex_codes_1"
    )
    lost = {(str(modality), number) for modality, number in listed if number in names}
    last = max(
        [
            0,
            *_highest(old, "SELECT max(serial) FROM codes"),
            *_highest(old, "SELECT last_serial FROM state"),
        ]
    )
    for rows in _batches(_readable(old, sql, last)):
        intact: dict[str, dict[int, tuple[Any, ...]]] = {}
        for row in rows:
            if row[1] in names and is_whole_code((*row, names[row[1]]), facts):
                intact.setdefault(row[2], {})[row[1]] = row
        for modality, of_item in intact.items():
            packed, projections = (
                np.array([np.frombuffer(row[column] or b"", kind) for row in of_item.values()])
                for column, kind in ((3, np.uint8), (4, np.int8))
            )
            beside = {modality: projections} if facts.projected else None
            with new.writing():
                ids = [names[number] for number in of_item]
                new.write(NewItems(ids, {modality: packed}, facts.n_bits, None, True, beside))
            lost -= {(modality, number) for number in of_item}
    return [
        Finding(names[number], f"its {modality} code is lost") for modality, number in sorted(lost)
    ]


def _rows_before_damage(old: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        yield from old.execute(sql)


def _highest(old: sqlite3.Connection, sql: str) -> list[int]:
    """Return the numbers of a query; none if it cannot be answered."""
    return [
        value for row in _rows_before_damage(old, sql) for value in row if isinstance(value, int)
    ]


def _readable(old: sqlite3.Connection, sql: str, last: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with keys from 1 to ``last`` in their order, passing over those that SQLite
    cannot read.
    """
    ranges = [(1, last)]
    failures = 0
    while ranges and failures < _FAILURES:
        low, high = ranges.pop()
        try:
            for row in old.execute(sql, (low, high)):
                if row[0] >= low:
                    yield row
                    low = row[0] + 1
        except sqlite3.DatabaseError:
            failures += 1
            middle = (low + high) // 2
            ranges += [(middle + 1, high), (low, middle)] if low < high else []


def _batches(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch
