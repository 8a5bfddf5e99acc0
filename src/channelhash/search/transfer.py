"""Moving items from a store in a folder to another store, to a FAISS file, and from one.

A FAISS file is an ``IndexBinaryIDMap2`` over an ``IndexBinaryFlat``: the codes of one modality, each with a number.
Beside it, ``FILE.items.parquet`` says which item a number is: columns ``number``, ``id`` and ``metadata`` (as JSON);
its own metadata hold the code length and the model. FAISS counts in whole bytes, so the dimension is the code length
rounded up to a multiple of 8; the padding bits are 0 and change no distance.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search import KEEP_PROJECTIONS, open_store
from channelhash.search.items import DEFAULT_MODALITY, Metadata, NoStoreError
from channelhash.search.local.folder import Facts, StoreFolder, read_facts
from channelhash.search.local.store import open_folder
from channelhash.search.photo_folders import find_or_keep
from channelhash.search.store import Item, Store
from channelhash.utils.files import atomic_path, content_hash, locked, remove_leftovers, write_text
from channelhash.utils.optional_imports import library
from channelhash.utils.progress import Progress
from channelhash.utils.reading import reading

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


_FORMAT = "channelhash faiss 1"


def items_file(file: Path) -> Path:
    """Return the file beside a FAISS file that says which item a number is.

    >>> items_file(Path("photos.faiss")).name
    'photos.faiss.items.parquet'
    """
    return file.with_name(file.name + ".items.parquet")


def export_faiss(
    store: Store, file: Path, modality: str | None = None, progress: Progress = lambda done, total: None
) -> int:
    """Write the codes of one modality as a FAISS file with its `items_file`; returns their number.

    Args:
        store: whose items; those without a code of ``modality`` are left out. Numbers are given in the order of ids.
        file: the FAISS file; the items' file goes beside it.
        modality: images if there are any, else the only other one.
        progress: called with the number of items done and of all.

    Raises:
        InputError: the store is empty, or has no codes of ``modality``; faiss is not installed.
    """
    faiss = library("faiss", "faiss")
    n_bits = store.n_bits
    if n_bits is None or not store.modalities:
        raise InputError(f"{store.address}: holds no codes to export")
    chosen = store.choose_modality(modality)
    ids = store.ids()
    names: list[str] = []
    metadata: list[str] = []
    codes: list[PackedCodes] = []
    for start in range(0, len(ids), _BATCH):
        for item in store.get(ids[start : start + _BATCH]):
            if chosen in item.codes:
                names.append(item.id)
                metadata.append(json.dumps(item.metadata, ensure_ascii=False))
                codes.append(item.codes[chosen])
        progress(min(start + _BATCH, len(ids)), len(ids))
    numbers = np.arange(len(names), dtype=np.int64)
    index = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(8 * -(-n_bits // 8)))
    index.add_with_ids(np.stack(codes), numbers)
    facts = {"channelhash.format": _FORMAT, "n_bits": str(n_bits), "model": store.model, "modality": chosen}
    table = pa.table({"number": numbers, "id": names, "metadata": metadata}).replace_schema_metadata(facts)
    with atomic_path(items_file(file)) as items_path, atomic_path(file) as temporary:
        pq.write_table(table, items_path)
        faiss.write_index_binary(index, str(temporary))
    return len(names)


def import_faiss(
    file: Path, target: str, modality: str | None = None, progress: Progress = lambda done, total: None
) -> int:
    """Put the codes of a FAISS file into a store, over those of the same ids; returns their number.

    Args:
        file: an ``IndexBinaryFlat``, or such a one in an ``IndexBinaryIDMap`` or ``IndexBinaryIDMap2``. With its
            `items_file`, ids and metadata are those; without, an item's id is its number, and the code length that of
            the store, or FAISS's dimension if the store is new.
        target: address of the store, for `open_store`.
        modality: whose codes these are; what the items' file says, or images.
        progress: called with the number of items done and of all.

    Raises:
        InputError: the file is not such an index, has a number twice, or does not fit its items' file; the store has
            codes of another length or model.
    """
    codes, numbers = _read_index(file)
    listed = _read_items(items_file(file), numbers)
    try:
        store = open_store(target, listed.n_bits, listed.model)
    except NoStoreError:
        store = open_store(target, 8 * codes.shape[1])
    try:
        chosen = modality or listed.modality
        for start in range(0, len(codes), _BATCH):
            part = slice(start, start + _BATCH)
            store.upsert(listed.ids[part], codes[part], chosen, listed.metadata[part] if listed.metadata else None)
            progress(min(start + _BATCH, len(codes)), len(codes))
    finally:
        store.close()
    return len(codes)


class _Items(NamedTuple):
    """What an items' file says, row by row of the index."""

    ids: list[str]
    metadata: list[Metadata] | None
    n_bits: int | None
    model: str
    modality: str


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
    if numbers is None:
        numbers = np.arange(len(codes))
    _check_different(numbers.tolist(), f"{file}: the number", "give every code its own")
    return codes, numbers


def _check_different(names: Sequence[Hashable], what: str, remedy: str) -> None:
    """Raise `InputError` where a number or an id occurs twice: the later item would replace the earlier one."""
    if names and (most := Counter(names).most_common(1)[0])[1] > 1:
        raise InputError(f"{what} {most[0]!r} occurs {most[1]} times; {remedy}")


def _read_items(file: Path, numbers: NDArray[np.int64]) -> _Items:
    """Return the items of ``numbers``."""
    if not file.exists():
        return _Items([str(number) for number in numbers.tolist()], None, None, "", DEFAULT_MODALITY)
    with reading(file, "damaged, or not written by channelhash", "export again"):
        table = pq.ParquetFile(file).read()
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if facts["channelhash.format"] != _FORMAT:
            raise InputError(f"{file}: written as {facts['channelhash.format']!r}, this version reads {_FORMAT!r}")
        row_of = {number: row for row, number in enumerate(table.column("number").to_pylist())}
        ids = table.column("id").to_pylist()
        _check_different(table.column("number").to_pylist(), f"{file}: the number", "export again")
        _check_different(ids, f"{file}: the id", "export again")
        metadata = [json.loads(text) for text in table.column("metadata").to_pylist()]
        n_bits = int(facts["n_bits"])
        model, modality = facts["model"], facts["modality"]
    if len(row_of) != len(numbers) or set(row_of) != set(numbers.tolist()):
        raise InputError(f"{file}: lists other numbers than the FAISS file beside it; export both again")
    rows = [row_of[number] for number in numbers.tolist()]
    return _Items([ids[row] for row in rows], [metadata[row] for row in rows], n_bits, model, modality)
