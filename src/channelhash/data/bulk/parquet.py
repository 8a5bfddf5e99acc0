"""Parquet files as inputs: columns ``id``, ``image`` or ``text`` or both, and optionally ``labels``.

``image`` holds paths or addresses, bytes of image files, structs of either (fields ``path`` and ``bytes``), or features
(lists of numbers); ``text`` holds texts or features.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.data.bulk.batches import BATCH, Bad, Planned, RawBatch, Shard, fetch
from channelhash.data.table import image_of, split_labels
from channelhash.errors import InputError
from channelhash.utils.addresses import File, Place, open_address
from channelhash.utils.files import reading
from channelhash.utils.plain_values import is_binary, is_list, plain_values, text_of

_MODALITIES = ("image", "text")
# Rows of features and of labels read at once: they are smaller than images.
_FEATURE_ROWS, _LABEL_ROWS = 1 << 13, 1 << 16


def plan(files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place) -> Iterator[Planned]:
    """Yield shards of whole row groups, at least ``shard_items`` rows each: reading is quick from a group's start."""
    for file in files:
        with _opened(file.address) as parquet:
            names = parquet.schema_arrow.names
            missing = [name for name in ("id", *modalities) if name not in names]
            if missing:
                raise InputError(f"{file.address}: has no column {missing[0]!r}, its columns are {', '.join(names)}")
            for name in ("id", *modalities, *(["labels"] if "labels" in names else [])):
                _check_type(name, parquet.schema_arrow.field(name).type, file.address)
            rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
            first, items = 0, 0
            for group, count in enumerate(rows):
                items += count
                if items >= shard_items or (group == len(rows) - 1 and items):
                    shard = Shard(file.address, first, group + 1, items)
                    yield Planned(shard, _all_labels(parquet, shard) if "labels" in names else frozenset())
                    first, items = group + 1, 0


def read(shard: Shard, root: str, modalities: Sequence[str]) -> Iterator[RawBatch]:
    """Yield the rows of a shard; image paths are relative to ``root``."""
    with _opened(shard.file) as parquet:
        columns = [name for name in ("id", *modalities, "labels") if name in parquet.schema_arrow.names]
        only_features = all(is_list(parquet.schema_arrow.field(modality).type) for modality in modalities)
        size = _FEATURE_ROWS if only_features else BATCH
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(shard.first))
        for batch in parquet.iter_batches(size, row_groups=range(shard.first, shard.last), columns=columns):
            yield _raw(batch, root, modalities, f"{shard.file}, row", row + 1)
            row += len(batch)


def modalities(file: str) -> tuple[str, ...]:
    """Return the modalities for which the file has a column."""
    with _opened(file) as parquet:
        names = parquet.schema_arrow.names
    modalities = tuple(name for name in _MODALITIES if name in names)
    if not modalities:
        raise InputError(f"{file}: has no column 'image' and no column 'text', its columns are {', '.join(names)}")
    return modalities


@contextmanager
def _opened(address: str) -> Iterator[pq.ParquetFile]:
    # Without read-ahead buffers, memory does not grow with the row groups.
    with (
        open_address(address) as stream,
        reading(address, "not a readable Parquet file, perhaps truncated"),
        pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as parquet,
    ):
        yield parquet


def _all_labels(parquet: pq.ParquetFile, shard: Shard) -> frozenset[str]:
    """Collect the label names of a shard; read that column only."""
    names: set[str] = set()
    for batch in parquet.iter_batches(_LABEL_ROWS, row_groups=range(shard.first, shard.last), columns=["labels"]):
        column = _plain_layout(batch.column("labels"))
        values = column.flatten() if is_list(column.type) else column
        for value in plain_values(values.unique()):
            with suppress(ValueError):  # `read` reports the row
                names.update(split_labels([value] if is_list(column.type) else value))
    return frozenset(names)


def _raw(batch: pa.RecordBatch, root: str, modalities: Sequence[str], place: str, first: int) -> RawBatch:
    """Convert rows of the file, the first of which has the number ``first``."""
    ids, problems = _each(text_of, batch.column("id"), "has no id", "the id")
    items: dict[str, list[Any] | NDArray[np.float32]] = {}
    image_addresses = None
    for modality in modalities:
        column = _plain_layout(batch.column(modality))
        wrong: dict[int, str]
        if is_list(column.type):
            items[modality], wrong = _features(column, modality)
        elif modality == "text":
            items[modality], wrong = _each(text_of, column, "the text is empty", "the text")
        else:
            items[modality], image_addresses, wrong = _images(column, root)
        problems = wrong | problems
    labels: list[list[str]] = [[] for _ in ids]
    if "labels" in batch.schema.names:
        labels, wrong = _each(split_labels, batch.column("labels"), "", "the label")
        problems = wrong | problems
    ids = [name.strip() for name in ids]
    bad = [Bad(ids[row] or f"{place} {first + row}", problems[row]) for row in sorted(problems)]
    raw = RawBatch(ids, items, labels, image_addresses, bad)
    return raw.take([row for row in range(len(ids)) if row not in problems]) if problems else raw


def _each(convert: Callable[[Any], Any], column: pa.Array, blank: str, what: str) -> tuple[list[Any], dict[int, str]]:
    """Return every value of a column as ``convert`` makes it, and the problems of the rows where it cannot."""
    values: list[Any] = []
    wrong: dict[int, str] = {}
    for row, value in enumerate(plain_values(column)):
        try:
            values.append(convert(value))
            if blank and not values[-1].strip():
                wrong[row] = blank
        except ValueError as error:
            values.append(convert(None))
            wrong[row] = f"{what} {error}"
    return values, wrong


def _images(column: pa.Array, root: str) -> tuple[list[bytes], list[str] | None, dict[int, str]]:
    """Return the bytes of each image, where those lie that are files of their own, and the problems of other rows."""
    cells, wrong = _each(image_of, column, "no picture", "the picture")
    addresses = ["" if isinstance(cell, bytes) else cell.strip() and cell for cell in cells]
    addresses = [path if not path or "://" in path or path[0] == "/" else f"{root}/{path}" for path in addresses]
    files = dict(zip(filter(None, addresses), fetch(list(filter(None, addresses))), strict=True))
    contents = [files.get(address, cell) for address, cell in zip(addresses, cells, strict=True)]
    wrong |= {row: content for row, content in enumerate(contents) if isinstance(content, str) and row not in wrong}
    return [content if isinstance(content, bytes) else b"" for content in contents], addresses if files else None, wrong


def _check_type(name: str, kind: pa.DataType, file: str) -> None:
    """Raise `InputError` where no value of a column can be what its name says."""
    value = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if name == "labels" and is_list(value):
        value = value.value_type
    if pa.types.is_dictionary(value):
        value = value.value_type
    is_plain = not (pa.types.is_nested(value) or is_binary(value))
    if name in ("image", "text") and is_list(value):
        is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        expected, fits = "lists of numbers, which are features", any(test(value.value_type) for test in is_number)
    elif name == "image":
        has_path = pa.types.is_struct(value) and any(field.name in ("bytes", "path") for field in value)
        expected, fits = "paths or the bytes of image files", is_plain or is_binary(value) or has_path
    else:
        is_uuid = name == "id" and getattr(kind, "extension_name", "") == "arrow.uuid"
        expected, fits = "texts" if name == "text" else "names", is_plain or is_uuid
    if not fits:
        raise InputError(f"{file}: the column {name!r} holds {kind}; expected {expected}")


def _features(column: pa.Array, modality: str) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return features ``(n, d)``, with d the width of most rows that are not empty, and the problems of other rows."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    counts = np.bincount(lengths, minlength=2)
    width = int(counts[1:].argmax()) + 1
    fits = lengths == width
    flat = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False)
    rows = np.zeros((len(column), width), dtype=np.float32)
    rows[fits] = flat.reshape(-1, width)
    wrong = {int(row): f"{lengths[row]} {modality} features, most rows have {width}" for row in np.flatnonzero(~fits)}
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    return rows, wrong | {int(row): f"{modality} features are not finite" for row in broken}


def _plain_layout(column: pa.Array) -> pa.Array:
    """Return a column without what wraps its values, such as a dictionary or the shape of a tensor."""
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
