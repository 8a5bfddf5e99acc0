"""Put files of codes, as `CodeSet.save` writes them, into stores: nothing is encoded, so no model is needed."""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.photos.encode import Indexed
from channelhash.search import STORES, find_or_keep, kind_of, open_store
from channelhash.search.items import check_ids
from channelhash.search.sqlite.database import metadata_of
from channelhash.search.store import Item, Store
from channelhash.utils.progress import Progress, no_progress

_BATCH = 10_000  # items compared and written at once


def create_from_codes(address: str, file: Path, progress: Progress = no_progress) -> Indexed:
    """Make a new store of the items of a file of codes, with their texts, pictures and labels as metadata.

    The store keeps the fingerprint of the model that made the codes, but no model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "codes.parquet")
    ...     CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8).save(file)
    ...     create_from_codes(f"{folder}/a.store", file).added
    2
    """
    codes = CodeSet.load(file)
    if not address.startswith(tuple(STORES)):
        claim_folder(Path(address))
    with closing(open_store(address, codes.n_bits, codes.model)) as store:
        if len(store):
            raise InputError(f"{address}: already holds items; add to them with `channelhash index add`")
        store.make()
        return _write(store, codes, file, progress)


def add_codes(address: str, file: Path, progress: Progress = no_progress) -> Indexed:
    """Put the items of a file of codes into a store, over those of the same ids; leave those alone that are the
    same.
    """
    codes = CodeSet.load(file)
    if not address.startswith(tuple(STORES)) and kind_of(find_or_keep(Path(address))) != "store":
        raise InputError(f"{address}: no store; make one with `channelhash index create {address} {file}`")
    with closing(open_store(address, codes.n_bits, codes.model)) as store:
        if store.model and not codes.model:
            raise InputError(f"{file}: does not say which model made its codes, and {address} holds those of one")
        return _write(store, codes, file, progress)


def claim_folder(folder: Path) -> None:
    """Refuse a folder for a new store that is not empty, unless an earlier attempt ended in it before its first
    items.
    """
    if kind_of(folder) == "store":
        raise InputError(f"{folder}: already a store; add to it with `channelhash index add {folder} SOURCE`")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the store")
    if folder.is_dir() and any(entry.name != "model" and entry.name[0] != "." for entry in folder.iterdir()):
        raise InputError(f"{folder}: is not empty and no store; choose another folder")


def _write(store: Store, codes: CodeSet, file: Path, progress: Progress) -> Indexed:
    began, added, replaced = time.perf_counter(), 0, 0
    check_ids(codes.ids, f"{file}: ids")
    known = set(store.ids())
    for start in range(0, len(codes), _BATCH):
        part = codes.take(range(start, min(start + _BATCH, len(codes))))
        metadata = metadata_of(part) or [{} for _ in part.ids]
        stored = {item.id: item for item in store.get([name for name in part.ids if name in known])}
        rows = [row for row in range(len(part)) if not _is_stored(stored.get(part.ids[row]), part, row, metadata[row])]
        if rows:
            news = part.take(rows)
            store.upsert(news.ids, news.codes, metadata=[metadata[row] for row in rows])
        n_stored = sum(part.ids[row] in stored for row in rows)
        added, replaced = added + len(rows) - n_stored, replaced + n_stored
        progress(start + len(part), len(codes))
    seconds = time.perf_counter() - began
    rate = (added + replaced) / seconds
    return Indexed(added, replaced, len(codes) - added - replaced, items=len(store), seconds=seconds, rate=rate)


def _is_stored(item: Item | None, codes: CodeSet, row: int, metadata: Mapping[str, Any]) -> bool:
    """Return whether a store's item is that of a row already."""
    if item is None or any(item.metadata.get(key) != value for key, value in metadata.items()):
        return False
    return all(name in item.codes and np.array_equal(item.codes[name], rows[row]) for name, rows in codes.codes.items())
