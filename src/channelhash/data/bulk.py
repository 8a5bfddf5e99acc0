"""Inputs too large for memory, at any address: read in shards that are always cut in the same way.

Parquet files have the columns ``id``, ``image`` or ``text`` or both, and optionally ``labels``.
``image`` holds paths or addresses, bytes of image files, structs of either (fields ``path`` and
``bytes``), or features (lists of numbers); ``text`` holds texts, lists of texts, or features.

Tar files are shards of WebDataset, see `channelhash.data.webdataset`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from channelhash.data.cells import image_of, join_captions, split_labels, text_of
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.data.records import DataItem, Records, labels_from_names
from channelhash.data.webdataset import BAD_SAMPLE, open_samples
from channelhash.errors import InputError, JobError, RefusedError
from channelhash.utils.addresses import (
    File,
    Place,
    ending_of,
    list_files,
    open_address,
    read_bytes,
    whole_file,
    without_signature,
)
from channelhash.utils.array_files import rows_of_lists
from channelhash.utils.decode import reading
from channelhash.utils.plain_values import (
    are_vectors,
    flat_numbers,
    is_binary,
    is_list,
    is_text,
    plain_values,
)

_Element = TypeVar("_Element")
#: Images and texts read at once: as many as a model encodes at once.
_BATCH = 256
#: Rows of features read at once; they are smaller than images.
_FEATURE_BATCH = 1 << 13
#: Rows of labels read at once; they are smaller still.
_LABEL_BATCH = 1 << 16
#: Small files read at once: from an object store, most of that time is waiting.
_READS = 8


class InputShard(NamedTuple):
    """The part of an input that becomes one file of codes.

    Attributes:
        file: address of a tar or Parquet file, without its signature.
        first: first row group of a Parquet file.
        last: row group after the last one.
        items: number of items, including bad ones.
    """

    file: str
    first: int
    last: int
    items: int


#: Shards, each with the label names that occur in it.
_Shards = Iterator[tuple[InputShard, frozenset[str]]]
#: Items in the order of the input, and the name (or place) of each item left out, with the reason.
#: Items have the bytes of an image in place of its file, and its address to display if it does not
#: lie in the input's own files.
_ItemBatch = tuple[Records, list[tuple[str, str]]]
_Batches = Iterator[_ItemBatch]


class ReadingOptions(NamedTuple):
    """How the shards of an input are read.

    Attributes:
        root: folder that ids of images, and image paths in a Parquet file, are relative to.
        modalities: modalities to read.
        label_names: label names of the whole input.
        signed: address -> the same with its signature.
    """

    root: str
    modalities: Sequence[str]
    label_names: Sequence[str]
    signed: Mapping[str, str]

    def address(self, file: str) -> str:
        return self.signed.get(file, file)

    def records(
        self,
        ids: list[str],
        items: dict[str, Any],
        labels: Sequence[Sequence[str]],
        addresses: Sequence[str] = (),
    ) -> Records:
        matrix, names = labels_from_names(labels, self.label_names, "the input")
        display = {"image": tuple(addresses)} if addresses else {}
        return Records(tuple(ids), items, matrix, names, display=display)


def _fetch(addresses: Sequence[str]) -> list[bytes | str]:
    """Read files in parallel; return the content of each, or why it cannot be read."""
    with ThreadPoolExecutor(_READS) as threads:
        return list(threads.map(_read_file, addresses))


def _read_file(address: str) -> bytes | str:
    try:
        return read_bytes(address) or f"empty picture {without_signature(address)}"
    except (FileNotFoundError, IsADirectoryError):
        return f"no such picture {without_signature(address)}"
    except PermissionError:
        return f"no permission to read {without_signature(address)}"
    except RefusedError as error:
        return str(error)
    except OSError as error:  # the network or the disk, not the image
        raise JobError(
            f"{address}: cannot be read now ({error}); the same command goes on from here"
        ) from None


def _plan_parquet(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> _Shards:
    """Yield shards of whole row groups, whose start is quick to find, with ``shard_items`` rows."""
    for file in files:
        with _open_parquet(file.address) as parquet:
            has_labels = _check_columns(parquet.schema_arrow, modalities, file.address)
            for shard in _row_groups(parquet.metadata, file.address, shard_items):
                yield shard, _all_labels(parquet, shard) if has_labels else frozenset()


def _row_groups(metadata: pq.FileMetaData, address: str, shard_items: int) -> Iterator[InputShard]:
    first = 0
    items = 0
    for end in range(1, metadata.num_row_groups + 1):
        items += metadata.row_group(end - 1).num_rows
        if items >= shard_items or (end == metadata.num_row_groups and items):
            yield InputShard(without_signature(address), first, end, items)
            first = end
            items = 0


def _check_columns(schema: pa.Schema, modalities: Sequence[str], address: str) -> bool:
    """Check that the columns are there and of fitting types; return whether there are labels."""
    has_labels = "labels" in schema.names
    for name in ("id", *modalities):
        if name not in schema.names:
            raise InputError(
                f"{address}: has no column {name!r}, its columns are {', '.join(schema.names)}"
            )
    for name in ("id", *modalities, *(["labels"] if has_labels else [])):
        kind = schema.field(name).type
        expected = _misfit(name, kind)
        if expected:
            raise InputError(f"{address}: the column {name!r} holds {kind}; expected {expected}")
    return has_labels


def _misfit(name: str, kind: pa.DataType) -> str:
    """Return what a column has to hold; empty if values of its type may be that."""
    value = _value_type(name, kind)
    if name in ("image", "text") and is_list(value):
        return "" if _may_be_list(name, value) else "lists of numbers, which are features"
    if name == "image":
        return "" if _may_be_image(value) else "paths or the bytes of image files"
    if _may_be_text(name, kind, value):
        return ""
    return "texts" if name == "text" else "names"


def _may_be_text(name: str, kind: pa.DataType, value: pa.DataType) -> bool:
    """Return whether values may be texts or numbers, or ids that are UUIDs."""
    if name == "id" and getattr(kind, "extension_name", "") == "arrow.uuid":
        return True
    return not (pa.types.is_nested(value) or is_binary(value))


def _value_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of a value; in the column of labels, that of a single label."""
    value = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if name == "labels" and is_list(value):
        value = value.value_type
    return value.value_type if pa.types.is_dictionary(value) else value


def _may_be_list(name: str, kind: pa.DataType) -> bool:
    """Return whether lists may be features, or texts."""
    return are_vectors(kind) or (name == "text" and is_text(kind.value_type))


def _may_be_image(kind: pa.DataType) -> bool:
    """Return whether values may be paths, bytes, or structs of either."""
    if not pa.types.is_struct(kind):
        return not pa.types.is_nested(kind)
    return any(field.name in ("bytes", "path") for field in kind)


def _read_parquet(shard: InputShard, job: ReadingOptions) -> _Batches:
    """Yield the rows of a shard."""
    with _open_parquet(job.address(shard.file)) as parquet:
        schema = parquet.schema_arrow
        columns = [name for name in ("id", *job.modalities, "labels") if name in schema.names]
        types = [schema.field(modality).type for modality in job.modalities]
        size = _FEATURE_BATCH if all(map(_is_features, types)) else _BATCH
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(shard.first))
        groups = range(shard.first, shard.last)
        for batch in parquet.iter_batches(size, row_groups=groups, columns=columns):
            yield _read_batch(batch, job, f"{shard.file}, row", row + 1)
            row += len(batch)


def _parquet_modalities(file: str) -> tuple[str, ...]:
    """Return the modalities for which the file has a column."""
    with _open_parquet(file) as parquet:
        names = parquet.schema_arrow.names
    modalities = tuple(name for name in ("image", "text") if name in names)
    if not modalities:
        raise InputError(
            f"{file}: has no column 'image' and no column 'text', its columns are "
            f"{', '.join(names)}"
        )
    return modalities


@contextmanager
def _open_parquet(address: str) -> Iterator[pq.ParquetFile]:
    # Without read-ahead buffers, memory does not grow with the row groups.
    with (
        open_address(address) as stream,
        reading(address, "not a readable Parquet file, perhaps truncated"),
        pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as parquet,
    ):
        yield parquet


def _all_labels(parquet: pq.ParquetFile, shard: InputShard) -> frozenset[str]:
    """Return the label names of a shard; read that column only."""
    names: set[str] = set()
    groups = range(shard.first, shard.last)
    for batch in parquet.iter_batches(_LABEL_BATCH, row_groups=groups, columns=["labels"]):
        column = _plain_layout(batch.column("labels"))
        values = column.flatten() if is_list(column.type) else column
        for value in plain_values(values.unique()):
            with suppress(ValueError):  # `_read_parquet` reports the row
                names.update(split_labels([value] if is_list(column.type) else value))
    return frozenset(names)


def _read_batch(batch: pa.RecordBatch, job: ReadingOptions, place: str, first: int) -> _ItemBatch:
    """Read rows of a file, the first of which has the number ``first``."""
    ids = _convert(text_of, batch.column("id"), "has no id", "the id")
    problems = ids.problems
    items = {}
    addresses: Sequence[str] = ()
    for modality in job.modalities:
        read = _read_modality(batch.column(modality), modality, job.root)
        items[modality] = read.values
        addresses = addresses or read.addresses
        problems = read.problems | problems
    labels: list[list[str]] = [[] for _ in ids.values]
    if "labels" in batch.schema.names:
        read = _convert(split_labels, batch.column("labels"), "", "the label")
        labels = read.values
        problems = read.problems | problems
    names = list(map(str.strip, ids.values))
    bad = [(names[row] or f"{place} {first + row}", problems[row]) for row in sorted(problems)]
    good = np.setdiff1d(np.arange(len(names)), list(problems))
    return job.records(names, items, labels, addresses).take(good), bad


class _Column(NamedTuple):
    """What was read from a column.

    Attributes:
        values: a value a row, also for a row with a problem.
        problems: row -> what is wrong.
        addresses: where images lie that are files of their own; empty if none are.
    """

    values: Any
    problems: dict[int, str]
    addresses: Sequence[str] = ()


def _read_modality(column: pa.Array, modality: str, root: str) -> _Column:
    column = _plain_layout(column)
    if _is_features(column.type):
        return _features(column, modality)
    if modality == "text":
        return _convert(join_captions, column, "the text is empty", "the text")
    return _images(column, root)


def _is_features(kind: pa.DataType) -> bool:
    """Return whether values are lists of anything but texts."""
    return is_list(kind) and not is_text(kind.value_type)


def _plain_layout(column: pa.Array) -> pa.Array:
    """Return a column without what wraps its values, such as a dictionary or a tensor's shape."""
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _convert(convert: Callable[[Any], Any], column: pa.Array, blank: str, name: str) -> _Column:
    """Convert every value of a column; ``blank`` is the problem of a blank one, or empty."""
    values: list[Any] = []
    problems: dict[int, str] = {}
    for row, value in enumerate(plain_values(column)):
        try:
            values.append(convert(value))
            if blank and not values[-1].strip():
                problems[row] = blank
        except ValueError as error:
            values.append(convert(None))
            problems[row] = f"{name} {error}"
    return _Column(values, problems)


def _images(column: pa.Array, root: str) -> _Column:
    """Read the bytes of images from the column, or from the files that it names."""
    cells = _convert(image_of, column, "no picture", "the picture")
    addresses = [_address_of(cell, root) for cell in cells.values]
    files = list(filter(None, addresses))
    contents = dict(zip(files, _fetch(files), strict=True))
    images = list(map(contents.get, addresses, cells.values))
    problems = {row: image for row, image in enumerate(images) if isinstance(image, str)}
    return _Column(
        [b"" if isinstance(image, str) else image for image in images],
        problems | cells.problems,
        list(map(without_signature, addresses)) if files else (),
    )


def _address_of(cell: bytes | str, root: str) -> str:
    """Return the address of the file that a cell names; empty if it names none."""
    if isinstance(cell, bytes) or not cell.strip():
        return ""
    return cell if "://" in cell or cell[0] == "/" else f"{root}/{cell}"


def _features(column: pa.Array, modality: str) -> _Column:
    """Return features ``(n, d)``, with d the width of most rows that are not empty."""
    rows, problems = rows_of_lists(*flat_numbers(column))
    problems = {row: f"{modality} {problem}" for row, problem in problems.items()}
    for row in np.flatnonzero(~np.isfinite(rows).all(axis=1)).tolist():
        problems.setdefault(row, f"{modality} features are not finite")
    return _Column(rows, problems)


def _plan_tar(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> _Shards:
    """Yield a shard for each tar file, whatever its size: a tar file can only be read from its
    beginning.

    Only headers and the members with labels are read.
    """
    for file in files:
        items = 0
        labels = set[str]()
        with open_samples(file.address) as samples:
            for sample in samples:
                items += 1
                with suppress(*BAD_SAMPLE):  # `_read_tar` reports the bad item
                    labels.update(sample.labels())
        if items:
            yield InputShard(without_signature(file.address), 0, 0, items), frozenset(labels)


def _read_tar(shard: InputShard, job: ReadingOptions) -> _Batches:
    """Yield the items of a tar file; an id is the name that an item's files share."""
    with open_samples(job.address(shard.file)) as samples:
        for part in _batches(samples, _BATCH):
            good: list[DataItem] = []
            bad: list[tuple[str, str]] = []
            for sample in part:
                item = sample.item(job.modalities)
                if isinstance(item, DataItem):
                    good.append(item)
                else:
                    name = sample.key.encode(errors="replace").decode()
                    bad.append((name, f"{item} in {shard.file}"))
            items = {}
            for modality in job.modalities:
                items[modality] = [item.values[modality] for item in good]
            ids = [item.id for item in good]
            labels = [item.labels for item in good]
            yield job.records(ids, items, labels), bad


def _batches(values: Iterable[_Element], size: int) -> Iterator[list[_Element]]:
    remaining = iter(values)
    while part := list(islice(remaining, size)):
        yield part


def _tar_modalities(file: str) -> tuple[str, ...]:
    """Return the modalities of the first item of a tar file that has any."""
    hint = ""
    with open_samples(file) as samples:
        for sample in samples:
            with suppress(*BAD_SAMPLE):
                modalities = tuple(filter(sample.value, ("image", "text")))
                if modalities:
                    return modalities
            hint = hint or sample.hint()
    raise InputError(f"{file}: holds no item with an image or a text that can be read{hint}")


_LISTING = pa.schema({"address": pa.string()})


class _InputKind(NamedTuple):
    """Functions that read one kind of input."""

    endings: Collection[str]
    #: (address of the first file) -> modalities of its items.
    modalities: Callable[[str], tuple[str, ...]]
    #: (files, modalities, items a shard, path for a listing) -> shards, in order.
    plan: Callable[[Iterable[File], Sequence[str], int, Place], _Shards]
    #: -> at least one batch; every item of the shard is in one.
    read: Callable[[InputShard, ReadingOptions], _Batches]


def _plan_images(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> _Shards:
    """Yield a shard for every ``shard_items`` images and write them to ``listing``.

    Images alone have no labels.
    """
    addresses = (without_signature(file.address) for file in files)
    with whole_file(listing) as temporary, pq.ParquetWriter(temporary, _LISTING) as writer:
        for number, part in enumerate(_batches(addresses, shard_items)):
            writer.write_table(pa.table({"address": part}, _LISTING), row_group_size=len(part))
            yield InputShard(str(listing), number, number + 1, len(part)), frozenset()


def _read_images(shard: InputShard, job: ReadingOptions) -> _Batches:
    """Yield the images of a shard; an id is the path relative to ``root``."""
    with open_address(shard.file) as stream, pq.ParquetFile(stream) as listing:
        for batch in listing.iter_batches(_BATCH, row_groups=range(shard.first, shard.last)):
            addresses = batch.column("address").to_pylist()
            ids = [address.removeprefix(job.root).lstrip("/") for address in addresses]
            contents = _fetch([job.address(address) for address in addresses])
            named = zip(ids, contents, strict=True)
            bad = [(name, reason) for name, reason in named if isinstance(reason, str)]
            good = [row for row, content in enumerate(contents) if isinstance(content, bytes)]
            no_labels: list[list[str]] = [[] for _ in ids]
            yield job.records(ids, {"image": contents}, no_labels, addresses).take(good), bad


KINDS = {
    "parquet": _InputKind((".parquet",), _parquet_modalities, _plan_parquet, _read_parquet),
    "tar": _InputKind((".tar",), _tar_modalities, _plan_tar, _read_tar),
    "pictures": _InputKind(IMAGE_ENDINGS, lambda file: ("image",), _plan_images, _read_images),
}


def input_files(address: str) -> Iterator[tuple[str, File]]:
    """Yield (kind, file) for each file of an input, always in the same order.

    Files of no kind are skipped.
    """
    first: tuple[str, File] | None = None
    for file in list_files(address):
        ending = ending_of(file.address)
        kind = next((name for name, kind in KINDS.items() if ending in kind.endings), None)
        if kind is None:
            continue
        first = first or (kind, file)
        if kind != first[0]:
            ending = ending_of(first[1].address)
            raise InputError(
                f"{address}: holds {first[1].address} and {file.address}; name one kind, as by "
                f"*{ending}"
            )
        yield kind, file
    if first is None:
        endings = ", ".join(chain(*[sorted(kind.endings) for kind in KINDS.values()]))
        raise InputError(f"{address}: no files to encode; they end in {endings}")
