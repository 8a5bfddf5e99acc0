"""Check, repair and back up a store in a folder. Others may use it meanwhile, but for repairs."""

import json
import os
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain, islice
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
    read_stage,
)
from channelhash.search.sqlite.guard import (
    CodeRow,
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

#: Rows that are copied in one transaction.
_BATCH = 10_000
#: Reads of a damaged table that may fail before the rest of it is given up.
_FAILURES = 100_000


class _Repaired(NamedTuple):
    """What a repair found and did.

    Attributes:
        damaged: what was damaged; if nothing was, nothing was touched.
        lost: the items and codes that are known to be gone.
        n_items: number of items that the store has now.

    >>> _Repaired([], [], 3).n_items
    3
    """

    damaged: list[Finding]
    lost: list[Finding]
    n_items: int


def check_store(path: Path) -> list[Finding]:
    """Return what is damaged in a store and its model. Others may use the store meanwhile.

    This reads everything, about 10 s for a million items.

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
        manifest, findings = _find_manifest(folder)
        findings += [*_check_manifest(folder), *_check_rows(folder, manifest)]
        findings = findings or check_snapshot(folder)
    if folder.model.is_dir():
        findings += [Finding(folder.model.name, line) for line in damaged_files(folder.model)]
    return findings


def repair_store(path: Path) -> _Repaired:
    """Repair a store. One without damage is left as it is.

    Items and codes whose rows are whole are written to a new database, which takes the place of the
    damaged one; that one is kept as ``items.sqlite.damaged``. Pages that SQLite cannot read are
    lost, and so are writes whose log was cut or removed. Snapshots are made again.
    """
    folder = StoreFolder.find(path)
    lost = list[Finding]()
    with locked(folder.gate), one_line_errors(str(folder.database)):
        _check_alone(folder)
        manifest, damaged = _find_manifest(folder)
        unlike = _check_manifest(folder)
        in_database = _check_rows(folder, manifest)
        if in_database:
            lost = _salvage(folder, manifest)
        elif unlike:  # the database is whole, and stays as it is
            with (
                closing(_connect_to_damaged(folder)) as old,
                closing(ItemsDatabase(folder.database)) as items,
            ):
                _continue_numbers(folder, old, items)
    if damaged or (unlike and not in_database):
        folder.description.unlink(missing_ok=True)
    snapshot = check_snapshot(folder)
    with closing(open_folder(path)) as store:  # checks everything, and writes the description again
        if snapshot:
            store.make_snapshot()
        return _Repaired([*damaged, *unlike, *in_database, *snapshot], lost, len(store))


def backup_store(path: Path, target: Path) -> tuple[int, int]:
    """Copy a store as it is at one moment, whatever others write meanwhile, and check the copy.
    Return its numbers of items and of bytes.

    The copy is a store with its own model and snapshot. It appears under its name only when it is
    complete.

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
        # Opening refuses a damaged store.
        with closing(open_folder(path)), closing(ItemsDatabase(source.database)) as items:
            items.copy_to(StoreFolder(temporary).database)
        if source.model.is_dir():
            shutil.copytree(source.model, temporary / source.model.name)
        if source.source.is_file():
            shutil.copyfile(source.source, temporary / source.source.name)
        with closing(open_folder(temporary)) as store:  # as nobody has sealed it, this checks it
            store.make_snapshot()
            n_items = len(store)
        findings = check_store(temporary)
        if findings:
            raise JobError(
                f"{target}: the copy is not whole ({findings[0]}); is the disk in order? Try again"
            )
        for copied in [*temporary.rglob("*"), temporary]:
            sync(copied)
        os.rename(temporary, target)
    sync(target.parent)
    return n_items, StoreFolder(target).n_bytes()


def _find_manifest(folder: StoreFolder) -> tuple[Manifest | None, list[Finding]]:
    """Return the manifest from the description, or if that is damaged from the database, and what
    is wrong with the description.
    """
    manifest = folder.manifest()
    if manifest:
        return manifest, []
    with (
        suppress(sqlite3.DatabaseError),
        closing(connect(folder.database, read_only=not folder.writable)) as opened,
    ):
        manifest = Manifest.read(opened, folder.database)
    return manifest, [Finding(folder.description.name, "is missing or damaged")]


def _check_manifest(folder: StoreFolder) -> list[Finding]:
    """Return where the database contradicts the description."""
    with suppress(sqlite3.DatabaseError):  # `_check_rows` finds what is wrong
        finding, _ = compare_with_manifest(folder)
        return [finding] if finding else []
    return []


def _check_rows(folder: StoreFolder, manifest: Manifest | None) -> list[Finding]:
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
    """Raise an error if another process has the store open."""
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
    """Replace a store's database by a new one of all whole rows, and return what is lost."""
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
                stage = read_stage(old, manifest.facts.stage) if manifest.facts.projected else None
                with closing(ItemsDatabase(new, manifest=manifest, stage=stage)) as items:
                    names, lost = _copy_items(old, items)
                    if not names:
                        raise sqlite3.DatabaseError("no item is whole")
                    lost += _copy_codes(old, items, names, manifest.facts)
                    _continue_numbers(folder, old, items)
                # The damaged file takes what is in the log.
                with suppress(sqlite3.DatabaseError):
                    old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if log.exists():  # else SQLite would take it for the new file's
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


def _continue_numbers(folder: StoreFolder, old: sqlite3.Connection, items: ItemsDatabase) -> None:
    """Give the next write of a database a number that is higher than any seen before."""
    manifest = folder.manifest()
    numbers = _readable_numbers(old, "SELECT version, writes FROM state")
    seen = max(folder.noted_writes(), manifest.writes if manifest else 0, *numbers)
    with items.writing():
        items.raise_version(seen + 1)


def _copy_items(
    old: sqlite3.Connection, new: ItemsDatabase
) -> tuple[dict[int, str], list[Finding]]:
    """Copy the undamaged items. Return old number -> id of these, and what is lost."""
    index = "SELECT number, id FROM items INDEXED BY sqlite_autoindex_items_1"
    listed = dict(_rows_before_damage(old, index))
    last = max([0, *listed, *_readable_numbers(old, "SELECT max(number) FROM items")])
    sql = """
SELECT number, id, metadata, checksum FROM items NOT INDEXED WHERE number BETWEEN ? AND ?
ORDER BY number
"""
    names: dict[int, str] = {}
    for rows in _batches(_readable_rows(old, sql, last)):
        listed.update({row[0]: row[1] for row in rows})
        intact = [row[:3] for row in rows if item_checksum(*row[:3]) == row[3]]
        copied = {number: name for number, name, _ in intact}
        metadata = [json.loads(text) for _, _, text in intact]
        with new.writing():
            new.write(NewItems(list(copied.values()), {}, 0, metadata, replace=True))
        names |= copied
    lost = {str(listed[number]) for number in listed.keys() - names}
    missing = sorted(lost.difference(names.values()))
    return names, [Finding(name, "the item is lost") for name in missing]


def _copy_codes(
    old: sqlite3.Connection, new: ItemsDatabase, names: dict[int, str], facts: Facts
) -> list[Finding]:
    """Copy the undamaged codes of the items that were copied. Return what is lost of these."""
    index = "SELECT modality, item FROM codes INDEXED BY sqlite_autoindex_codes_1"
    listed = _rows_before_damage(old, index)
    lost = {(str(modality), number) for modality, number in listed if number in names}
    serials = _readable_numbers(old, "SELECT max(serial) FROM codes")
    serials += _readable_numbers(old, "SELECT last_serial FROM state")
    last = max([0, *serials])
    sql = """
SELECT serial, item, modality, code, projection, checksum FROM codes NOT INDEXED
WHERE serial BETWEEN ? AND ? ORDER BY serial
"""
    for rows in _batches(_readable_rows(old, sql, last)):
        for modality, codes in _whole_codes(map(CodeRow._make, rows), names, facts).items():
            ids = [names[number] for number in codes]
            with new.writing():
                new.write(_new_codes(modality, ids, list(codes.values()), facts))
            lost -= {(modality, number) for number in codes}
    return [
        Finding(names[number], f"its {modality} code is lost") for modality, number in sorted(lost)
    ]


def _whole_codes(
    rows: Iterable[CodeRow], names: dict[int, str], facts: Facts
) -> dict[str, dict[int, CodeRow]]:
    """Return modality -> item number -> the row of a code that is as it was written."""
    whole = defaultdict[str, dict[int, CodeRow]](dict)
    for row in rows:
        if row.item in names and is_whole_code(row, names[row.item], facts):
            whole[row.modality][row.item] = row
    return whole


def _new_codes(modality: str, ids: list[str], rows: list[CodeRow], facts: Facts) -> NewItems:
    """Return the codes of one modality in whole rows, to be written."""
    packed = np.array([np.frombuffer(row.code, np.uint8) for row in rows])
    projections = None
    if facts.projected:
        projections = {
            modality: np.array([np.frombuffer(row.projection, np.uint8) for row in rows])
        }
    return NewItems(ids, {modality: packed}, facts.n_bits, None, True, projections)


def _rows_before_damage(old: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        yield from old.execute(sql)


def _readable_numbers(old: sqlite3.Connection, sql: str) -> list[int]:
    """Return the numbers that SQL selects, as far as they can be read."""
    values = chain.from_iterable(_rows_before_damage(old, sql))
    return [value for value in values if isinstance(value, int)]


def _readable_rows(old: sqlite3.Connection, sql: str, last: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with keys from 1 to ``last``, in order, but for those that SQLite cannot read.

    A range in which reading fails is halved until the damaged key is alone.
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
            if low < high:
                middle = (low + high) // 2
                ranges += [(middle + 1, high), (low, middle)]


def _batches(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    return iter(lambda: list(islice(rows, _BATCH)), [])
