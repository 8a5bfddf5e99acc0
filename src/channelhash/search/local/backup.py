"""A consistent copy of a store in a folder, while others read and write it."""

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import InputError, JobError
from channelhash.search.local.check import check_is_store, check_store
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.folder import StoreFolder, read_facts, write_facts
from channelhash.search.local.store import open_folder
from channelhash.utils.files import sync_file, sync_folder, temporary_folder


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


def backup_store(path: Path, target: Path) -> BackedUp:
    """Copy a store as it is at one moment, whatever others write meanwhile, and check all of the copy.

    The copy is a store: with its model, a snapshot of its own, and a seal. It gets its name when it is whole.

    Raises:
        InputError: there is no store, it is damaged, or ``target`` is there already.
        JobError: the disk is full, or the copy is not whole.

    >>> import numpy as np, tempfile
    >>> from channelhash import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/a.store", n_bits=8)
    ...     store.add(["a"], np.array([[7]], np.uint8))
    ...     backup_store(Path(folder, "a.store"), Path(folder, "b.store")).n_items
    1
    """
    check_is_store(StoreFolder(path))
    if target.exists() or target.is_symlink():
        raise InputError(f"{target}: is there already; name a new folder for the backup")
    if target.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{target}: lies in the store; name a folder elsewhere")
    with temporary_folder(target) as temporary:
        _copy(StoreFolder(path), StoreFolder(temporary))
        with closing(open_folder(temporary)) as store:  # nobody has sealed it: all of it is checked
            store.make_snapshot()
            n_items = len(store)
        if findings := check_store(temporary):
            raise JobError(f"{target}: the copy is not whole ({findings[0]}); is the disk in order? Try again")
        _sync(temporary)
        os.rename(temporary, target)
    sync_folder(target.parent)
    return BackedUp(n_items, StoreFolder(target).n_bytes())


def _copy(source: StoreFolder, target: StoreFolder) -> None:
    with closing(open_folder(source.path)):  # which refuses a damaged one, and keeps others from repairing it
        with closing(ItemsDatabase(source.database)) as items:
            items.copy_to(target.database)
        write_facts(target, read_facts(source))
        if source.model.is_dir():
            shutil.copytree(source.model, target.model)
        if source.source.is_file():
            shutil.copyfile(source.source, target.source)


def _sync(folder: Path) -> None:
    """Wait until all files of a folder are on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            sync_file(path)
        else:
            sync_folder(path)
    sync_folder(folder)
