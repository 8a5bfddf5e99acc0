"""Repair a store in a folder: keep what is whole of a damaged database, and make anew what can be made from that."""

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

from channelhash.errors import InputError
from channelhash.search.local.check import check_is_store, damaged_snapshot, find_damage, known_facts, unlike_seal
from channelhash.search.local.connection import connect, one_line_errors
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.database_check import Finding, is_whole_code, is_whole_item
from channelhash.search.local.folder import Facts, StoreFolder, write_facts
from channelhash.search.local.guard import MAGIC, alone, open_lock, seal_database
from channelhash.search.local.seal import read_seal
from channelhash.search.local.store import open_folder
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.files import locked, sync_folder
from channelhash.utils.held_file import HeldFile

_BATCH = 10_000
# Reads of a damaged table that may fail before the rest of it is given up.
_FAILURES = 100_000
# A serial that no code is above; hardly ever is an item's number.
_SERIAL = "SELECT last_serial FROM state"


# Of an SQLite file, in which its page size and number of pages are; and how long none of ours is.
_HEADER, _LONGEST = 100, 1 << 40

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


def repair_store(path: Path) -> Repaired:
    """Repair a store. A whole one is left as it is, but sealed if it was not.

    Items and codes whose rows are whole are written to a new database, which takes the place of the damaged one; that
    is kept as ``items.sqlite.damaged``. What SQLite cannot read is lost, which is a page at a time, and so are writes
    whose log was cut or removed. Snapshots are made anew.

    Raises:
        InputError: there is no store, another process has it open, or nothing of its database can be read.
        JobError: the disk is full.
    """
    folder = StoreFolder(path)
    check_is_store(folder)
    in_use = open_lock(folder)
    try:
        with locked(folder.gate):
            if not alone(in_use):
                raise InputError(f"{path}: is open in another process; stop that before a repair")
            facts, damaged = known_facts(folder)
            unlike, in_rows = unlike_seal(folder), list(find_damage(folder, facts))
            _make_readable(folder)
            if facts is None:
                raise InputError(
                    f"{folder.description}: is damaged, and no seal holds a copy; restore it, then repair the rest"
                )
            lost: list[Finding] = []
            with one_line_errors(str(folder.database)):
                if in_rows:
                    lost = _salvage(folder, facts)
                elif unlike:
                    _accept(folder)
                if damaged:
                    write_facts(folder, facts)
                repaired = Repaired([*damaged, *unlike, *in_rows], lost, _seal(folder, facts))
    finally:
        os.close(in_use)
    with closing(open_folder(path)) as store:
        if snapshot := damaged_snapshot(folder, facts):
            store.make_snapshot()
    return repaired._replace(damaged=repaired.damaged + snapshot)


def _make_readable(folder: StoreFolder) -> None:
    """Give a database that was cut its length back, since SQLite does not read it otherwise.

    Raises:
        InputError: nothing of it can be read.
    """
    try:
        with closing(HeldFile(folder.database)) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise sqlite3.DatabaseError("it does not begin as an SQLite file")
            header = file.read(_HEADER)
            n_bytes = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
            if 0 < folder.database.stat().st_size < min(n_bytes, _LONGEST):
                os.truncate(folder.database, n_bytes)
            with closing(connect(folder.database)) as connection:
                connection.execute("SELECT * FROM sqlite_master").fetchall()
    except OSError as error:
        check_exhausted(error, folder.database)
        raise _unreadable(folder, str(error)) from None
    except sqlite3.DatabaseError as error:
        raise _unreadable(folder, str(error)) from None


def _unreadable(folder: StoreFolder, reason: str) -> InputError:
    return InputError(
        f"{folder.database}: nothing of it can be kept ({reason}); restore it from a backup, or remove the folder and"
        " add the items again"
    )


def _seal(folder: StoreFolder, facts: Facts) -> int:
    """Seal a store's database, and return its number of items."""
    with closing(HeldFile(folder.database)) as file, closing(connect(folder.database)) as connection:
        seal = read_seal(folder.seal)
        if not (seal and seal.closed and seal.facts == facts):
            seal_database(folder, facts, connection, file)
        return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])


def _salvage(folder: StoreFolder, facts: Facts) -> list[Finding]:
    """Put a new database of all whole rows in the place of a store's, and return what is lost."""
    new = folder.path / f".{folder.database.name}.{uuid.uuid4().hex}.tmp"
    seal = read_seal(folder.seal)
    try:
        with closing(connect(folder.database)) as old, closing(ItemsDatabase(new, stem=facts.stem)) as items:
            old.text_factory = bytes
            names, gone = _copy_items(old, items)
            if not names:
                raise _unreadable(folder, "no item is whole")
            lost = [Finding(name, "the item is lost") for name in gone.values()]
            lost += _copy_codes(old, items, names, gone, facts)
            version = max([seal.version if seal else 0, *_highest(old, "SELECT version FROM state")])
            with items.writing():
                items.raise_version(version + 1)
            with suppress(sqlite3.DatabaseError):  # what is in the log goes into the damaged file
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log, kept = Path(f"{folder.database}-wal"), folder.path / f"{folder.database.name}.damaged"
        if log.exists():  # or it would be taken for the new file's
            os.replace(log, f"{kept}-wal")
        kept.unlink(missing_ok=True)
        try:
            os.link(folder.database, kept)
        except OSError:  # a file system without links, such as exFAT
            shutil.copyfile(folder.database, kept)
        os.replace(new, folder.database)
        sync_folder(folder.path)
    finally:
        for rest in ("", "-wal", "-shm"):
            Path(f"{new}{rest}").unlink(missing_ok=True)
    folder.seal.unlink(missing_ok=True)
    for snapshot in folder.path.glob("snapshot-*"):
        shutil.rmtree(snapshot)
    return lost


def _accept(folder: StoreFolder) -> None:
    """Take a whole database as it is, although it is not what was sealed: number its writes on from the seal's."""
    seal = read_seal(folder.seal)
    with closing(ItemsDatabase(folder.database)) as items:
        with items.reading() as state:
            version = max(state.version, seal.version if seal else 0)
        with items.writing():
            items.raise_version(version + 1)
    folder.seal.unlink(missing_ok=True)


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


def _copy_codes(
    old: sqlite3.Connection, new: ItemsDatabase, names: dict[int, str], gone: dict[int, str], facts: Facts
) -> list[Finding]:
    """Copy the whole codes of the items that were copied; returns what is lost beside those of items that are gone."""
    columns = "serial, item, modality, code, projection, checksum"
    sql = f"SELECT {columns} FROM codes NOT INDEXED WHERE serial BETWEEN ? AND ?"
    last = max([0, *_highest(old, "SELECT max(serial) FROM codes", _SERIAL)])
    known = _known_codes(old)
    lost: list[Finding] = []
    for rows in _batches(_readable(old, f"{sql} ORDER BY serial", last)):
        for modality, of_modality in _by_modality(rows).items():
            ours = {row[1]: row for row in of_modality if row[1] in names}
            whole = [row for row in ours.values() if is_whole_code((*row, names[row[1]].encode()), facts)]
            orphans = [row for row in of_modality if row[1] not in names and row[1] not in gone]
            lost += [Finding(_DATABASE, f"the {modality} code {row[0]} belongs to no item") for row in orphans]
            packed = np.frombuffer(b"".join(row[3] for row in whole), np.uint8)
            codes = {modality: packed.reshape(len(whole), -(-facts.n_bits // 8))}
            projections = None
            if facts.projected:
                values = np.frombuffer(b"".join(row[4] for row in whole), np.int8)
                projections = {modality: values.reshape(len(whole), facts.n_bits)}
            with new.writing():
                new.write([names[row[1]] for row in whole], codes, None, replace=True, projections=projections)
            known -= {(modality, row[1]) for row in whole}
    for modality, number in sorted(known):
        if number in names:
            lost.append(Finding(names[number], f"its {modality} code is lost"))
    return lost


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


def _by_modality(rows: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    grouped: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        grouped.setdefault(_text(row[2]), []).append(row)
    return grouped


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
