"""Check a store in a folder: its description, its seal, all that its database holds and its snapshot."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from channelhash.errors import InputError
from channelhash.search.local.connection import connect
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.database_check import Finding, check_database
from channelhash.search.local.folder import Facts, StoreFolder, read_facts
from channelhash.search.local.guard import MAGIC, open_lock, seal_differs
from channelhash.search.local.seal import read_seal
from channelhash.search.local.snapshots import check_snapshot
from channelhash.search.local.tables import read_state
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.file_locks import lock_shared
from channelhash.utils.files import locked
from channelhash.utils.held_file import HeldFile


def check_store(path: Path) -> list[Finding]:
    """Return what is damaged in a store and its model, nothing if they are whole. Others may use it meanwhile.

    Reads everything, about 10 s for a million items. A seal that is missing or damaged is no damage: the next opening
    makes it anew.

    Raises:
        InputError: there is no store in this folder.

    >>> import tempfile
    >>> import numpy as np
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(folder, n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     store.close()
    ...     check_store(Path(folder))
    []
    """
    folder = StoreFolder(path)
    check_is_store(folder)
    descriptor = open_lock(folder)
    try:
        with locked(folder.gate):
            lock_shared(descriptor)
        facts, findings = known_facts(folder)
        findings += [*unlike_seal(folder), *find_damage(folder, facts)]
        snapshot = damaged_snapshot(folder, facts) if facts and not findings else []
        return [*findings, *snapshot, *_damaged_model(folder)]
    finally:
        os.close(descriptor)


def _damaged_model(folder: StoreFolder) -> list[Finding]:
    if not folder.model.is_dir():
        return []
    from channelhash.models.saved_checksums import damaged_files  # torch takes a second to load

    return [Finding(folder.model.name, line) for line in damaged_files(folder.model)]


def check_is_store(folder: StoreFolder) -> None:
    """Raise `InputError` unless a folder holds one of the files that only stores have."""
    if not any(file.exists() for file in (folder.description, folder.database, folder.seal)):
        raise InputError(f"{folder.path}: no store in a folder; make one with `channelhash index create`")


def known_facts(folder: StoreFolder) -> tuple[Facts | None, list[Finding]]:
    """Return what a store's description says, or else the copy of it in the seal, and what is wrong with it."""
    seal = read_seal(folder.seal)
    try:
        facts = read_facts(folder)
    except InputError as error:
        if not folder.database.exists():
            return None, []
        reason = str(error).removeprefix(f"{folder.description}: ").partition(";")[0]
        return seal.facts if seal else None, [Finding(folder.description.name, reason)]
    if seal is None or seal.facts == facts:
        return facts, []
    with closing(HeldFile(folder.database)) as file:
        if seal.closed and not seal_differs(folder, seal, file):
            facts = seal.facts
    return facts, [Finding(folder.description.name, "is another store's, or items.seal is")]


def damaged_snapshot(folder: StoreFolder, facts: Facts) -> list[Finding]:
    """Return what is wrong with the current snapshot of a whole database."""
    with closing(ItemsDatabase(folder.database)) as items:
        return [Finding("snapshot", line) for line in check_snapshot(items, facts, folder)]


def unlike_seal(folder: StoreFolder) -> list[Finding]:
    """Return in what the database is not as its seal says; the caller holds `StoreFolder.in_use`."""
    name, seal = folder.database.name, read_seal(folder.seal)
    if seal is None or not folder.database.exists():
        return []
    found = []
    with closing(HeldFile(folder.database)) as file:
        if seal.closed and seal_differs(folder, seal, file) and read_seal(folder.seal) == seal:
            found.append(Finding(name, "is not as it was when the store was closed"))
        with suppress(sqlite3.DatabaseError), closing(connect(folder.database)) as connection:
            version = read_state(connection).version
            if version < seal.version:
                found.append(Finding(name, f"lacks the last {seal.version - version:,} or more writes"))
    return found


def find_damage(folder: StoreFolder, facts: Facts | None) -> Iterator[Finding]:
    """Yield what is damaged in the database; the caller holds `StoreFolder.in_use`."""
    name = folder.database.name
    try:
        with closing(HeldFile(folder.database)) as file:
            if file.read(len(MAGIC)) != MAGIC:
                yield Finding(name, "does not begin as an SQLite file")
                return
            with closing(connect(folder.database)) as connection:
                yield from check_database(connection, facts)
    except OSError as error:
        check_exhausted(error, folder.database)
        yield Finding(name, f"cannot be read ({error.strerror})")
    except sqlite3.DatabaseError as error:
        yield Finding(name, " ".join(str(error).split()))
