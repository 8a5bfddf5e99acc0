"""Copy the items of a store into another store."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.search import Address, open_store
from channelhash.search.items import NoStoreError
from channelhash.search.store import Item, Store
from channelhash.utils.progress import Progress, no_progress

#: Items that are read and written at a time.
_BATCH = 2000


class _Pushed(NamedTuple):
    """The result of a push.

    Attributes:
        items: number of items of the source.
        target_items: number of items in the target afterwards.
        without_projections: the source keeps projections, which the target does not.

    >>> _Pushed(items=26, target_items=30).target_items
    30
    """

    items: int
    target_items: int
    without_projections: bool = False


def push(source: Address, target: Address, progress: Progress = no_progress) -> _Pushed:
    """Write all items of a store into another one, over those with the same ids.

    A push that was killed can be repeated. Nothing is removed from the target: items that were
    deleted from the source since an earlier push stay there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source, target = (Address.parse(f"{folder}/{name}.store") for name in "ab")
    ...     with open_store(source, n_bits=8) as store:
    ...         store.add(["a"], np.array([[7]], np.uint8))
    ...     push(source, target).target_items
    1
    """
    source = source.store
    if source.path is not None and source.kind != "store":
        raise InputError(
            f"{source}: no store in a folder; make one with `channelhash index create`"
        )
    if _is_same(source, target.store):
        raise InputError(f"{target}: is the source; name another store")
    with open_store(source) as from_store:
        stage = None
        try:
            open_store(target).close()
        except NoStoreError:  # a new one keeps beside its codes what the source does, if it can
            stage = from_store.stage if target.keeps_projections else None
        with open_store(target, from_store.n_bits, from_store.model, stage) as to_store:
            _check_stages(from_store, to_store)
            count = 0
            for items in _read(from_store, progress):
                upsert_items(to_store, items)
                count += len(items)
            return _Pushed(count, len(to_store), from_store.projected and not to_store.projected)


def _check_stages(source: Store, target: Store) -> None:
    """Refuse a target that keeps other projections than the source."""
    kept = [store.stage.fingerprint for store in (source, target) if store.stage is not None]
    if len(set(kept)) > 1:
        raise InputError(
            f"{target.address}: keeps other projections than {source.address}; choose a new store"
        )


def _is_same(source: Address, target: Address) -> bool:
    if source.path is None or target.path is None:
        return source == target
    return source.path.resolve() == target.path.resolve()


def _read(store: Store, progress: Progress) -> Iterator[list[Item]]:
    """Yield all items in batches."""
    ids = store.ids()
    progress(0, len(ids))
    for start in range(0, len(ids), _BATCH):
        yield store.get(ids[start : start + _BATCH], missing_ok=True)
        progress(min(start + _BATCH, len(ids)), len(ids))


def upsert_items(target: Store, items: Sequence[Item]) -> None:
    """Write items into a store, over those with the same ids; with projections if it keeps them."""
    groups: dict[frozenset[str], list[Item]] = {}  # by modalities
    for item in items:
        groups.setdefault(frozenset(item.codes), []).append(item)
    for group in groups.values():
        projections = None
        if target.projected and all(item.projections for item in group):
            projections = _stack([item.projections for item in group])
        target.upsert(
            [item.id for item in group],
            _stack([item.codes for item in group]),
            metadata=[item.metadata for item in group],
            projections=projections,
        )


def _stack(rows: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Stack the arrays of ``n`` items by modality: ``(n, …)``."""
    stacked = {}
    for modality in sorted(rows[0]):
        stacked[modality] = np.stack([row[modality] for row in rows])
    return stacked
