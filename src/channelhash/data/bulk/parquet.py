"""Parquet files as inputs: columns ``id``, ``image`` or ``text`` or both, and optionally ``labels``.

``image`` holds paths or addresses, bytes of image files (plain, or in a struct with a field ``bytes``), or features
(lists of numbers); ``text`` holds texts or features.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.data.bulk.batches import BATCH, Bad, Planned, RawBatch, Shard, fetch
from channelhash.data.table import split_labels
from channelhash.errors import InputError
from channelhash.utils.addresses import File, open_address
from channelhash.utils.reading import reading
from channelhash.utils.remote_paths import Place

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
        only_features = all(_is_list(parquet.schema_arrow.field(modality).type) for modality in modalities)
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
        column = batch.column("labels")
        values = column.flatten() if _is_list(column.type) else column
        names.update(name for value in values.unique().to_pylist() for name in split_labels(value))
    return frozenset(names)


def _raw(batch: pa.RecordBatch, root: str, modalities: Sequence[str], place: str, first: int) -> RawBatch:
    """Convert rows of the file, the first of which has the number ``first``."""
    ids = [None if value is None else str(value).strip() for value in batch.column("id").to_pylist()]
    problems = {row: "has no id" for row, value in enumerate(ids) if not value}
    items: dict[str, list[Any] | NDArray[np.float32]] = {}
    image_addresses = None
    for modality in modalities:
        column = batch.column(modality)
        wrong: dict[int, str]
        if _is_list(column.type):
            items[modality], wrong = _features(column, modality)
        elif modality == "text":
            items[modality], wrong = _texts(column)
        else:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                image_addresses = [_address(path, root) for path in column.to_pylist()]
            items[modality], wrong = _images(column, image_addresses)
        problems = wrong | problems
    labels = batch.column("labels").to_pylist() if "labels" in batch.schema.names else [None] * len(ids)
    raw = RawBatch(
        [value or "" for value in ids],
        items,
        [split_labels(value) for value in labels],
        image_addresses,
        [Bad(ids[row] or f"{place} {first + row}", problems[row]) for row in sorted(problems)],
    )
    return raw.take([row for row in range(len(ids)) if row not in problems]) if problems else raw


def _texts(column: pa.Array) -> tuple[list[str], dict[int, str]]:
    texts = ["" if value is None else str(value) for value in column.to_pylist()]
    return texts, {row: "the text is empty" for row, text in enumerate(texts) if not text.strip()}


def _images(column: pa.Array, addresses: list[str] | None) -> tuple[list[bytes], dict[int, str]]:
    """Return the bytes of each image, and the problem of each row without any."""
    if addresses is not None:
        fetched = fetch(addresses)
        wrong = {row: content for row, content in enumerate(fetched) if isinstance(content, str)}
        contents = [content if isinstance(content, bytes) else b"" for content in fetched]
    else:
        values = column.field("bytes") if pa.types.is_struct(column.type) else column
        contents = [value if isinstance(value, bytes) else b"" for value in values.to_pylist()]
        wrong = {}
    return contents, {row: "no picture" for row, content in enumerate(contents) if not content} | wrong


def _address(path: str | None, root: str) -> str:
    path = path or ""
    return path if "://" in path or path.startswith("/") else f"{root}/{path}"


def _features(column: pa.Array, modality: str) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return features ``(n, d)``, with d the width of most rows, and the problems of unusable rows (zeros)."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    width = int(np.bincount(lengths, minlength=1).argmax())
    fits = lengths == width
    flat = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False)
    rows = np.zeros((len(column), width), dtype=np.float32)
    rows[fits] = flat.reshape(-1, width)
    wrong = {int(row): f"{lengths[row]} {modality} features, most rows have {width}" for row in np.flatnonzero(~fits)}
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    return rows, wrong | {int(row): f"{modality} features are not finite" for row in broken}


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
