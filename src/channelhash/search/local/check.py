"""Care for a store in a folder: check all of it, repair it from what is whole, and copy it while others use it."""

import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from channelhash.errors import InputError, JobError
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.folder import (
    Facts,
    Manifest,
    StoreFolder,
    parse_manifest,
    read_manifest,
)
from channelhash.search.local.guard import (
    Finding,
    check_database,
    compare_with_manifest,
    is_whole_code,
    is_whole_item,
    noted_writes,
)
from channelhash.search.local.snapshots import check_snapshot
from channelhash.search.local.store import open_folder
from channelhash.search.local.tables import connect, one_line_errors, read_description
from channelhash.utils.files import locked, sync_file, sync_folder, temporary_folder, write_text

_BATCH = 10_000
# Reads of a damaged table that may fail before the rest of it is given up.
_FAILURES = 100_000
# A serial that no code is above; hardly ever is an item's number.
_SERIAL = "SELECT last_serial FROM state"

_DATABASE = "items.sqlite"


class Repaired(NamedTuple):
    """What a repair found and did.

    Attributes:
        damaged: what was damaged; empty where nothing was touched.
        lost: the items and codes that are gone, as far as they are known.
        n_items: number of items of the store now.

    >>> Repaired([], [], 3).n_items
    3
    """

    damaged: list[Finding]
    lost: list[Finding]
    n_items: int


class BackedUp(NamedTuple):
    """A backup.

    Attributes:
        n_items: number of items in it.
        n_bytes: size of its files, without the model's.

    >>> BackedUp(26, 90_112).n_items
    26
    """

    n_items: int
    n_bytes: int


def check_store(path: Path) -> list[Finding]:
    """Return what is damaged in a store and its model, nothing if they are whole. Others may use it meanwhile.

    Reads everything, about 10 s for a million items.

    Raises:
        InputError: there is no store in this folder.

    >>> import tempfile
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(folder, n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     store.close()
    ...     check_store(Path(folder))
    []
    """
    folder = _existing(path)
    with one_line_errors(str(folder.database)):
        manifest, findings = _described(folder)
        findings += [*_unlike_manifest(folder), *_in_database(folder, manifest)]
        if manifest and not findings:
            findings = _in_snapshot(folder, manifest.facts)
    if folder.model.is_dir():
        from channelhash.models.saved_checksums import damaged_files  # torch takes a second to load

        findings += [Finding(folder.model.name, line) for line in damaged_files(folder.model)]
    return findings


def repair_store(path: Path) -> Repaired:
    """Repair a store. A whole one is left as it is.

    Items and codes whose rows are whole are written to a new database, which takes the place of the damaged one; that
    is kept as ``items.sqlite.damaged``. What SQLite cannot read is lost, which is a page at a time, and so are writes
    whose log was cut or removed. Snapshots are made anew.

    Raises:
        InputError: there is no store, another process has it open, or nothing of its database can be read.
        JobError: the disk is full.
    """
    folder, lost = _existing(path), list[Finding]()
    with locked(folder.gate), one_line_errors(str(folder.database)):
        _check_alone(folder)
        manifest, damaged = _described(folder)
        unlike, in_database = _unlike_manifest(folder), _in_database(folder, manifest)
        if in_database:
            lost = _salvage(folder, manifest)
        elif unlike:
            _accept(folder)
    if damaged:
        folder.description.unlink(missing_ok=True)
    with closing(open_folder(path)) as store:  # checks all, and makes the description again
        facts = Facts(store.n_bits or 0, store.model, store.projected)
        if snapshot := _in_snapshot(folder, facts):
            store.make_snapshot()
        return Repaired([*damaged, *unlike, *in_database, *snapshot], lost, len(store))


def backup_store(path: Path, target: Path) -> BackedUp:
    """Copy a store as it is at one moment, whatever others write meanwhile, and check all of the copy.

    The copy is a store, with its model and a snapshot of its own. It gets its name when it is whole.

    Raises:
        InputError: there is no store, it is damaged, or ``target`` is there already.
        JobError: the disk is full, or the copy is not whole.

    >>> import tempfile
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/a.store", n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     backup_store(Path(folder, "a.store"), Path(folder, "b.store")).n_items
    1
    """
    source = _existing(path)
    if target.exists() or target.is_symlink():
        raise InputError(f"{target}: is there already; name a new folder for the backup")
    if target.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{target}: lies in the store; name a folder elsewhere")
    with temporary_folder(target) as temporary:
        with closing(open_folder(path)), closing(ItemsDatabase(source.database)) as items:  # refuses a damaged one
            items.copy_to(StoreFolder(temporary).database)
        if source.model.is_dir():
            shutil.copytree(source.model, temporary / source.model.name)
        if source.source.is_file():
            shutil.copyfile(source.source, temporary / source.source.name)
        with closing(open_folder(temporary)) as store:  # nobody has sealed it: all of it is checked
            store.make_snapshot()
            n_items = len(store)
        if findings := check_store(temporary):
            raise JobError(f"{target}: the copy is not whole ({findings[0]}); is the disk in order? Try again")
        for copied in [*temporary.rglob("*"), temporary]:
            sync_folder(copied) if copied.is_dir() else sync_file(copied)
        os.rename(temporary, target)
    sync_folder(target.parent)
    return BackedUp(n_items, StoreFolder(target).n_bytes())


def _existing(path: Path) -> StoreFolder:
    folder = StoreFolder(path)
    if not folder.description.exists() and not folder.database.exists():
        raise InputError(f"{path}: no store in a folder; make one with `channelhash index create`")
    if not folder.database.exists():
        raise InputError(f"{folder.database}: is missing; restore it, or remove the folder and add the items again")
    return folder


def _described(folder: StoreFolder) -> tuple[Manifest | None, list[Finding]]:
    """Return what a store says of itself, in its description or else in its database, and what is wrong with that."""
    if manifest := read_manifest(folder):
        return manifest, []
    with suppress(sqlite3.DatabaseError), closing(connect(folder.database)) as connection:
        manifest = parse_manifest(read_description(connection))
    return manifest, [Finding(folder.description.name, "is missing or damaged")]


def _unlike_manifest(folder: StoreFolder) -> list[Finding]:
    """Return in what the database is not as the description says."""
    try:
        with closing(connect(folder.database)) as connection:
            return compare_with_manifest(folder, connection)[0]
    except sqlite3.DatabaseError:
        return []  # what is wrong is found by `_in_database`


def _in_database(folder: StoreFolder, manifest: Manifest | None) -> list[Finding]:
    """Return what is damaged in the database."""
    if folder.database.stat().st_size == 0:
        return [Finding(_DATABASE, "is empty")]
    try:
        with closing(connect(folder.database)) as connection:
            return list(check_database(connection, manifest.facts if manifest else None))
    except sqlite3.DatabaseError as error:
        if "unable to open" in str(error):
            raise
        return [Finding(_DATABASE, " ".join(str(error).split()))]


def _in_snapshot(folder: StoreFolder, facts: Facts) -> list[Finding]:
    """Return what is wrong with the current snapshot of a whole database."""
    with closing(ItemsDatabase(folder.database)) as items:
        line = check_snapshot(items, facts, folder)
    return [Finding("snapshot", line)] if line else []


def _check_alone(folder: StoreFolder) -> None:
    try:
        connect(folder.database, alone=True).close()
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise InputError(f"{folder.path}: is open in another process; stop that before a repair") from None


def _salvage(folder: StoreFolder, manifest: Manifest | None) -> list[Finding]:
    """Put a new database of all whole rows in the place of a store's, and return what is lost."""
    new = folder.path / f".{_DATABASE}.{uuid.uuid4().hex}.tmp"
    log, kept = Path(f"{folder.database}-wal"), folder.path / f"{_DATABASE}.damaged"
    try:
        with closing(sqlite3.connect(folder.database, isolation_level=None)) as old:
            old.text_factory = bytes
            old.execute("PRAGMA writable_schema = ON")  # lets SQLite read a file that was cut
            old.execute("SELECT * FROM sqlite_master").fetchall()
            if manifest is None:
                raise sqlite3.DatabaseError("neither store.json nor the database says of what length codes are")
            with closing(ItemsDatabase(new, manifest=manifest._replace(writes=0, digest=""))) as items:
                names, gone = _copy_items(old, items)
                if not names:
                    raise sqlite3.DatabaseError("no item is whole")
                lost = [Finding(name, "the item is lost") for name in gone.values()]
                lost += _copy_codes(old, items, names, manifest.facts)
                _number_on(folder, items, _highest(old, "SELECT version FROM state", "SELECT writes FROM state"))
            with suppress(sqlite3.DatabaseError):  # what is in the log goes into the damaged file
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if log.exists():  # or it would be taken for the new file's
            os.replace(log, f"{kept}-wal")
        shutil.copyfile(folder.database, kept)
        os.replace(new, folder.database)
        sync_folder(folder.path)
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{folder.database}: nothing of it can be kept ({error}); restore it from a backup, or remove the folder"
            " and add the items again"
        ) from None
    finally:
        for rest in ("", "-wal", "-shm"):
            Path(f"{new}{rest}").unlink(missing_ok=True)
    write_text(folder.description, manifest._replace(writes=0, digest="").to_json())
    for snapshot in folder.path.glob("snapshot-*"):
        shutil.rmtree(snapshot)
    return lost


def _accept(folder: StoreFolder) -> None:
    """Take a whole database as it is, although its description says otherwise."""
    with closing(ItemsDatabase(folder.database)) as items:
        with items.reading() as state:
            pass
        _number_on(folder, items, [state.version, state.writes])
    folder.description.unlink(missing_ok=True)


def _number_on(folder: StoreFolder, items: ItemsDatabase, numbers: list[int]) -> None:
    """Let the next write of a database have a higher number than any that anybody has seen."""
    manifest = read_manifest(folder)
    with items.writing():
        items.raise_version(max([noted_writes(folder), manifest.writes if manifest else 0, *numbers]) + 1)


def _copy_items(old: sqlite3.Connection, new: ItemsDatabase) -> tuple[dict[int, str], dict[int, str]]:
    """Copy the whole items; returns old number -> id, of them and of those that are lost."""
    known = _known_ids(old)
    sql = "SELECT number, id, metadata, checksum FROM items NOT INDEXED WHERE number BETWEEN ? AND ? ORDER BY number"
    last = max([0, *known, *_highest(old, "SELECT max(number) FROM items", _SERIAL)])
    names: dict[int, str] = {}
    lost: dict[int, str] = {}
    there: set[str] = set()
    for rows in _batches(_readable(old, sql, last)):
        whole = [row for row in rows if is_whole_item(row) and _text(row[1]) not in there]
        lost.update({row[0]: _text(row[1]) for row in rows if not is_whole_item(row)})
        ids = [row[1].decode() for row in whole]
        there.update(ids)
        with new.writing():
            new.write(ids, {}, [json.loads(row[2]) for row in whole], replace=True)
        names.update(zip((row[0] for row in whole), ids, strict=True))
    lost.update({number: name for number, name in known.items() if number not in names})
    return names, {number: name for number, name in lost.items() if name not in there}


def _copy_codes(old: sqlite3.Connection, new: ItemsDatabase, names: dict[int, str], facts: Facts) -> list[Finding]:
    """Copy the whole codes of the items that were copied; returns what is lost of those items."""
    columns = "serial, item, modality, code, projection, checksum"
    sql = f"SELECT {columns} FROM codes NOT INDEXED WHERE serial BETWEEN ? AND ? ORDER BY serial"
    known = _known_codes(old)
    for rows in _batches(_readable(old, sql, max([0, *_highest(old, "SELECT max(serial) FROM codes", _SERIAL)]))):
        whole: dict[str, dict[int, tuple[Any, ...]]] = {}
        for row in rows:
            if row[1] in names and is_whole_code((*row, names[row[1]].encode()), facts):
                whole.setdefault(_text(row[2]), {})[row[1]] = row
        for modality, of_item in whole.items():
            ids = [names[number] for number in of_item]
            packed = np.frombuffer(b"".join(row[3] for row in of_item.values()), np.uint8).reshape(len(ids), -1)
            projections = None
            if facts.projected:
                values = np.frombuffer(b"".join(row[4] for row in of_item.values()), np.int8)
                projections = {modality: values.reshape(len(ids), facts.n_bits)}
            with new.writing():
                new.write(ids, {modality: packed}, None, replace=True, projections=projections)
            known -= {(modality, number) for number in of_item}
    return [
        Finding(names[number], f"its {modality} code is lost") for modality, number in sorted(known) if number in names
    ]


def _known_ids(old: sqlite3.Connection) -> dict[int, str]:
    """Return number -> id of all items that the index of ids names, as far as it can be read."""
    known: dict[int, str] = {}
    with suppress(sqlite3.DatabaseError):
        for number, name in old.execute("SELECT number, id FROM items INDEXED BY sqlite_autoindex_items_1"):
            known[number] = _text(name)
    return known


def _known_codes(old: sqlite3.Connection) -> set[tuple[str, int]]:
    """Return modality and item number of all codes that their index names, as far as it can be read."""
    known: set[tuple[str, int]] = set()
    with suppress(sqlite3.DatabaseError):
        for modality, number in old.execute("SELECT modality, item FROM codes INDEXED BY sqlite_autoindex_codes_1"):
            known.add((_text(modality), number))
    return known


def _highest(old: sqlite3.Connection, *queries: str) -> list[int]:
    """Return the numbers that queries give, without those that cannot be read."""
    found = []
    for query in queries:
        with suppress(sqlite3.DatabaseError):
            found += [value for row in old.execute(query) for value in row if isinstance(value, int)]
    return found


def _readable(old: sqlite3.Connection, sql: str, last: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with keys from 1 to ``last`` in their order, passing over those that SQLite cannot read."""
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


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
