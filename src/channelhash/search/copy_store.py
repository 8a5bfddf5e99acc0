"""Moving the items of a store in a folder to another store, such as PostgreSQL."""

import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from channelhash.errors import InputError, JobError
from channelhash.search import KEEP_PROJECTIONS, open_store
from channelhash.search.local.folder import Facts, StoreFolder, read_facts
from channelhash.search.local.store import open_folder
from channelhash.search.photo_folders import find_or_keep
from channelhash.search.store import Item, Store
from channelhash.search.validation import NoStoreError
from channelhash.utils.files import content_hash, locked, remove_leftovers, write_text
from channelhash.utils.progress import Progress

_BATCH = 2000


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        items: number of items of the source.
        resumed: how many of them an earlier push, which did not end, had moved already.
        target_items: number of items in the target afterwards.
        without_projections: the source keeps projections, which the target does not.

    >>> Pushed(items=26, resumed=20, target_items=26).resumed
    20
    """

    items: int
    resumed: int
    target_items: int
    without_projections: bool = False


def push(source: Path, target: str, progress: Progress = lambda done, total: None) -> Pushed:
    """Write all items of a store into another one, in batches, over those that have the same ids there.

    After every batch the last id is noted in the source's folder. A push that was killed goes on there, if the source
    has not been written to since; if it has, all items are sent again. Batches are upserted, so what is sent twice is
    there once. Nothing is removed from the target: items deleted from the source since an earlier push stay there.

    Args:
        source: a store's folder.
        target: address of another store, for `open_store`. A new one keeps projections, and stems words, as the source
            does, if it can.
        progress: called with the number of items done and of all, after each batch.

    Raises:
        InputError: the source is no store in a folder; the target has codes of another length or model, keeps
            projections that the source lacks, or does not take an item; another process pushes between the two.
        JobError: the target does not answer, or holds another number of items afterwards than it should.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = open_store(f"{folder}/a.store", n_bits=8)
    ...     source.add(["a"], np.array([[7]], np.uint8))
    ...     source.close()
    ...     push(Path(folder) / "a.store", f"{folder}/b.store").target_items
    1
    """
    source = find_or_keep(source)
    database = source / "items.sqlite"
    if not database.exists():
        raise InputError(f"{source}: no store in a folder; make one with `channelhash index create`")
    if "://" not in target and Path(target).resolve() == source.resolve():
        raise InputError(f"{target}: is the source; name another store")
    journal = source / f".push-{content_hash(target.encode())[:16]}.json"
    try:
        with locked(journal.with_suffix(".lock"), wait=False):
            remove_leftovers(journal)
            from_store = open_folder(source)
            facts = read_facts(StoreFolder(source))
            to_store = open_store(target, facts.n_bits, facts.model, *_kept(target, facts))
            try:
                return _push(from_store, to_store, journal, from_store.version, progress)
            finally:
                from_store.close()
                to_store.close()
    except BlockingIOError:
        raise InputError(f"{source}: another process is pushing it to {target}; let it end") from None


def _kept(target: str, facts: Facts) -> tuple[()] | tuple[bool, str]:
    """Return what a new target keeps beside codes, as the source does; of one that is there, nothing is asked."""
    if target.startswith(KEEP_PROJECTIONS):
        try:
            open_store(target).close()
        except NoStoreError:
            return facts.projected, ""
        return ()
    is_new = "://" not in target and not (Path(target) / "store.json").exists()
    return (facts.projected, facts.stem) if is_new else ()


def _push(source: Store, target: Store, journal: Path, version: int, progress: Progress) -> Pushed:
    ids = source.ids()
    noted = json.loads(journal.read_text(encoding="utf-8")) if journal.exists() else {}
    if noted.get("version") != version:
        noted = {"target": target.address, "version": version, "before": len(target), "last": None}
    resumed = done = 0 if noted["last"] is None else bisect_right(ids, noted["last"])
    progress(done, len(ids))
    while done < len(ids):
        batch = source.get(ids[done : done + _BATCH])
        _upsert(target, batch)
        done += len(batch)
        write_text(journal, json.dumps({**noted, "last": batch[-1].id}))
        progress(done, len(ids))
    journal.unlink(missing_ok=True)  # before the check: if it fails, all items have to be sent again
    n_items, before = len(target), noted["before"]
    if not max(before, len(ids)) <= n_items <= before + len(ids):
        raise JobError(
            f"{target.address}: holds {n_items:,} items after {len(ids):,} were written to the {before:,} there before;"
            " was it written to by others meanwhile? Push again"
        )
    return Pushed(len(ids), resumed, n_items, source.projected and not target.projected)


def _upsert(target: Store, items: list[Item]) -> None:
    alike: dict[tuple[str, ...], list[Item]] = defaultdict(list)
    for item in items:
        alike[tuple(sorted(item.codes))].append(item)
    for modalities, group in alike.items():
        codes = {modality: np.stack([item.codes[modality] for item in group]) for modality in modalities}
        ids, metadata, projections = [item.id for item in group], [item.metadata for item in group], None
        if target.projected and all(item.projections for item in group):
            projections = {
                modality: np.stack([item.projections[modality] for item in group]) for modality in modalities
            }
        target.upsert(ids, codes, metadata=metadata, projections=projections)
