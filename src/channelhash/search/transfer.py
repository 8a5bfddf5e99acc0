"""Moving items from a store in a folder to another store, to a FAISS file, and from one.

A FAISS file is an ``IndexBinaryIDMap2`` over an ``IndexBinaryFlat``: the codes of one modality, each with a number.
Beside it, ``FILE.items.parquet`` says which item a number is: columns ``number``, ``id`` and ``metadata`` (as JSON);
its own metadata hold the code length and the model. FAISS counts in whole bytes, so the dimension is the code length
rounded up to a multiple of 8; the padding bits are 0 and change no distance.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search import KEEP_PROJECTIONS, find_or_keep, open_store
from channelhash.search.items import NoStoreError, check_format, check_ids
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.search.store import Item, Store
from channelhash.utils.files import atomic_path, reading
from channelhash.utils.optional_imports import library
from channelhash.utils.progress import Progress, no_progress

_BATCH = 2000


class _Pushed(NamedTuple):
    """What a push did.

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


def push(source: Path, target: str, progress: Progress = no_progress) -> _Pushed:
    """Write all items of a store into another one, in batches, over those that have the same ids there.

    Batches are upserted, so what is sent twice, as after a push that was killed, is there once. Nothing is removed from
    the target: items deleted from the source since an earlier push stay there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = open_store(f"{folder}/a.store", n_bits=8)
    ...     source.add(["a"], np.array([[7]], np.uint8))
    ...     source.close()
    ...     push(Path(folder) / "a.store", f"{folder}/b.store").target_items
    1
    """
    source = find_or_keep(source)
    StoreFolder.find(source)
    if "://" not in target and Path(target).resolve() == source.resolve():
        raise InputError(f"{target}: is the source; name another store")
    with open_store(source) as from_store:
        projections = False
        try:
            open_store(target).close()
        except NoStoreError:  # a new one keeps beside its codes what the source does, if it can
            projections = from_store.projected and ("://" not in target or target.startswith(KEEP_PROJECTIONS))
        with open_store(target, from_store.n_bits, from_store.model, projections) as to_store:
            count = 0
            for items in _read(from_store, progress):
                upsert_items(to_store, items)
                count += len(items)
            return _Pushed(count, len(to_store), from_store.projected and not to_store.projected)


def _read(store: Store, progress: Progress) -> Iterator[list[Item]]:
    """Yield all items in batches."""
    ids = store.ids()
    progress(0, len(ids))
    for start in range(0, len(ids), _BATCH):
        yield store.get(ids[start : start + _BATCH])
        progress(min(start + _BATCH, len(ids)), len(ids))


def upsert_items(target: Store, items: Sequence[Item]) -> None:
    """Put items into a store, over those of the same ids; with their projections, if it keeps any."""
    alike: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        alike.setdefault(tuple(sorted(item.codes)), []).append(item)
    for modalities, group in alike.items():
        codes = {modality: np.stack([item.codes[modality] for item in group]) for modality in modalities}
        projections = None
        if target.projected and all(item.projections for item in group):
            projections = {name: np.stack([item.projections[name] for item in group]) for name in modalities}
        metadata = [item.metadata for item in group]
        target.upsert([item.id for item in group], codes, metadata=metadata, projections=projections)


_FORMAT = "channelhash faiss 1"


def items_file(file: Path) -> Path:
    """Return the file beside a FAISS file that says which item a number is.

    >>> items_file(Path("photos.faiss")).name
    'photos.faiss.items.parquet'
    """
    return file.with_name(file.name + ".items.parquet")


def export_faiss(store: Store, file: Path, modality: str | None = None, progress: Progress = no_progress) -> int:
    """Write the codes of one modality as a FAISS file with its `items_file`; returns their number."""
    faiss, pa, pq = library("faiss", "faiss"), library("pyarrow", "faiss"), library("pyarrow.parquet", "faiss")
    n_bits = store.n_bits
    if n_bits is None or not store.modalities:
        raise InputError(f"{store.address}: holds no codes to export")
    chosen = store.choose_modality(modality)
    items = [item for batch in _read(store, progress) for item in batch if chosen in item.codes]
    numbers = np.arange(len(items), dtype=np.int64)
    names, metadata = [item.id for item in items], [json.dumps(item.metadata, ensure_ascii=False) for item in items]
    index = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(8 * -(-n_bits // 8)))
    index.add_with_ids(np.stack([item.codes[chosen] for item in items]), numbers)
    facts = {"channelhash.format": _FORMAT, "n_bits": str(n_bits), "model": store.model, "modality": chosen}
    table = pa.table({"number": numbers, "id": names, "metadata": metadata}).replace_schema_metadata(facts)
    with atomic_path(items_file(file)) as items_path, atomic_path(file) as temporary:
        pq.write_table(table, items_path)
        faiss.write_index_binary(index, str(temporary))
    return len(items)


def import_faiss(file: Path, target: str, modality: str | None = None, progress: Progress = no_progress) -> int:
    """Put the codes of a FAISS file into a store, over those of the same ids; returns their number."""
    codes, numbers = _read_index(file)
    rows, facts = _read_items(items_file(file), numbers)
    ids = check_ids([str(row["id"]) for row in rows], f"{file}: ids")
    try:
        store = open_store(target, int(facts["n_bits"]) if facts else None, facts.get("model", ""))
    except NoStoreError:
        store = open_store(target, 8 * codes.shape[1])
    with store:
        chosen = modality or facts.get("modality")
        for start in range(0, len(codes), _BATCH):
            part = slice(start, start + _BATCH)
            metadata = [json.loads(row["metadata"]) for row in rows[part]] if facts else None
            store.upsert(ids[part], codes[part], chosen, metadata)
            progress(min(start + _BATCH, len(codes)), len(codes))
    return len(codes)


def _read_index(file: Path) -> tuple[PackedCodes, NDArray[np.int64]]:
    """Return codes and their numbers."""
    faiss = library("faiss", "faiss")
    if not file.is_file():
        raise InputError(f"{file}: no such FAISS file")
    try:
        index: Any = faiss.read_index_binary(str(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[-200:]
        raise InputError(f"{file}: not a readable FAISS file of binary codes ({reason})") from None
    flat, numbers = index, None
    if isinstance(index, faiss.IndexBinaryIDMap):  # IDMap2 is one of them
        flat, numbers = faiss.downcast_IndexBinary(index.index), faiss.vector_to_array(index.id_map)
    if not isinstance(flat, faiss.IndexBinaryFlat):
        raise InputError(f"{file}: holds an {type(flat).__name__}; an IndexBinaryFlat is expected, also in an IDMap")
    codes = faiss.vector_to_array(flat.xb).reshape(flat.ntotal, flat.code_size)
    return codes, np.arange(len(codes)) if numbers is None else numbers


def _read_items(file: Path, numbers: NDArray[np.int64]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each number, and what the items' file, if there is one, says of itself."""
    if not file.exists():
        return [{"id": number} for number in numbers.tolist()], {}
    with reading(file, "damaged, or not written by channelhash", "export again"):
        table = library("pyarrow.parquet", "faiss").ParquetFile(file).read()
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        check_format(file, facts["channelhash.format"], _FORMAT, "export again")
        rows = {row["number"]: row for row in table.to_pylist()}
    if len(rows) != table.num_rows or rows.keys() != set(numbers.tolist()):
        raise InputError(f"{file}: lists other numbers than the FAISS file beside it; export both again")
    return [rows[number] for number in numbers.tolist()], facts
