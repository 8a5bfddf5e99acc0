"""Codes as a FAISS file, for people who serve with FAISS, and from one.

The file is an ``IndexBinaryIDMap2`` over an ``IndexBinaryFlat``: the codes of one modality, each with a number. Beside
it, ``FILE.items.parquet`` says which item a number is: columns ``number``, ``id`` and ``metadata`` (as JSON); its own
metadata hold the code length and the model. FAISS counts in whole bytes, so the dimension is the code length rounded up
to a multiple of 8; the padding bits are 0 and change no distance.
"""

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search import open_store
from channelhash.search.store import Store
from channelhash.search.validation import DEFAULT_MODALITY, Metadata, NoStoreError
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import library
from channelhash.utils.progress import Progress
from channelhash.utils.reading import reading

_FORMAT = "channelhash faiss 1"
_BATCH = 10_000


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
