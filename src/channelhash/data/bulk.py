"""Inputs too large for memory, at any address: read in shards that are always cut in the same way.

Parquet files have the columns ``id``, ``image`` or ``text`` or both, and optionally ``labels``.
``image`` holds paths or addresses, bytes of image files, structs of either (fields ``path`` and
``bytes``), or features (lists of numbers); ``text`` holds texts, lists of texts, or features.

WebDataset shards are tar files in which neighbouring files with one name form an item:
``0001.jpg``, ``0001.txt`` and ``0001.json`` are the image, the text and the other fields of item
``0001``. Labels are ``labels`` of the JSON (a list, or names separated by ``;``) or the content of
``.cls``; the text may instead be ``text`` or ``caption`` of the JSON. A name ends at its first dot,
as WebDataset has it: ``a.left.png`` is the field ``left.png`` of item ``a``, and no image. Hidden
files are left out, among them what macOS adds.
"""

import json
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.data.cells import image_of, join_captions, split_labels, text_of
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.data.records import Records, labels_from_names
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
from channelhash.utils.decode import decode_text, one_line, reading
from channelhash.utils.plain_values import is_binary, is_list, is_text, plain_values

#: Images and texts read at once: as many as a model encodes at once.
_BATCH = 256


class Shard(NamedTuple):
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


# Shards, each with the label names that occur in it.
_Shards = Iterator[tuple[Shard, frozenset[str]]]


#: Items in the order of the input, with the bytes of an image in place of its file, and with its
#: address to be shown where it does not lie in the input's own files; and the name (or place) of
#: each item left out, with the reason.
_Batches = Iterator[tuple[Records, list[tuple[str, str]]]]


def _records(
    ids: list[str],
    items: dict[str, Any],
    labels: list[list[str]],
    known: Sequence[str],
    addresses: list[str] | None,
) -> Records:
    matrix, names = labels_from_names(labels, known, "the input")
    return Records(
        tuple(ids), items, matrix, names, display={"image": tuple(addresses)} if addresses else {}
    )


def _fetch(addresses: Sequence[str]) -> list[bytes | str]:
    """Read files in parallel: the content of each, or a few words on why it cannot be read."""
    with ThreadPoolExecutor(8) as threads:  # most of that time is waiting
        return list(threads.map(_fetched, addresses))


def _fetched(address: str) -> bytes | str:
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
    """Yield shards of whole row groups, at least ``shard_items`` rows each: reading is quick from a
    group's start.
    """
    for file in files:
        with _opened_parquet(file.address) as parquet:
            names = parquet.schema_arrow.names
            if missing := [name for name in ("id", *modalities) if name not in names]:
                raise InputError(
                    f"{file.address}: has no column {missing[0]!r}, its columns are "
                    f"{', '.join(names)}"
                )
            for name in ("id", *modalities, *(["labels"] if "labels" in names else [])):
                _check_type(name, parquet.schema_arrow.field(name).type, file.address)
            rows = [
                parquet.metadata.row_group(group).num_rows
                for group in range(parquet.num_row_groups)
            ]
            first = 0
            items = 0
            for group, count in enumerate(rows):
                items += count
                if items >= shard_items or (group == len(rows) - 1 and items):
                    shard = Shard(without_signature(file.address), first, group + 1, items)
                    yield shard, _all_labels(parquet, shard) if "labels" in names else frozenset()
                    first = group + 1
                    items = 0


def _read_parquet(
    shard: Shard,
    root: str,
    modalities: Sequence[str],
    label_names: Sequence[str],
    signed: Mapping[str, str],
) -> _Batches:
    """Yield the rows of a shard; image paths are relative to ``root``."""
    with _opened_parquet(signed.get(shard.file, shard.file)) as parquet:
        columns = [
            name for name in ("id", *modalities, "labels") if name in parquet.schema_arrow.names
        ]
        only_features = all(
            _is_features(parquet.schema_arrow.field(modality).type) for modality in modalities
        )
        size = 1 << 13 if only_features else _BATCH  # rows of features are smaller than images
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(shard.first))
        for batch in parquet.iter_batches(
            size, row_groups=range(shard.first, shard.last), columns=columns
        ):
            yield _raw(batch, root, modalities, label_names, f"{shard.file}, row", row + 1)
            row += len(batch)


def _parquet_modalities(file: str) -> tuple[str, ...]:
    """Return the modalities for which the file has a column."""
    with _opened_parquet(file) as parquet:
        names = parquet.schema_arrow.names
    modalities = tuple(name for name in ("image", "text") if name in names)
    if not modalities:
        raise InputError(
            f"{file}: has no column 'image' and no column 'text', its columns are "
            f"{', '.join(names)}"
        )
    return modalities


@contextmanager
def _opened_parquet(address: str) -> Iterator[pq.ParquetFile]:
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
    # More rows at once than of features: labels are smaller still.
    for batch in parquet.iter_batches(
        1 << 16, row_groups=range(shard.first, shard.last), columns=["labels"]
    ):
        column = _plain_layout(batch.column("labels"))
        values = column.flatten() if is_list(column.type) else column
        for value in plain_values(values.unique()):
            with suppress(ValueError):  # `_read_parquet` reports the row
                names.update(split_labels([value] if is_list(column.type) else value))
    return frozenset(names)


def _raw(
    batch: pa.RecordBatch,
    root: str,
    modalities: Sequence[str],
    label_names: Sequence[str],
    place: str,
    first: int,
) -> tuple[Records, list[tuple[str, str]]]:
    """Convert rows of the file, the first of which has the number ``first``."""
    ids, problems = _each(text_of, batch.column("id"), "has no id", "the id")
    items: dict[str, list[Any] | NDArray[np.float32]] = {}
    image_addresses = None
    for modality in modalities:
        column = _plain_layout(batch.column(modality))
        wrong: dict[int, str]
        if _is_features(column.type):
            items[modality], wrong = _features(column, modality)
        elif modality == "text":
            items[modality], wrong = _each(join_captions, column, "the text is empty", "the text")
        else:
            items[modality], image_addresses, wrong = _images(column, root)
        problems = wrong | problems
    labels: list[list[str]] = [[] for _ in ids]
    if "labels" in batch.schema.names:
        labels, wrong = _each(split_labels, batch.column("labels"), "", "the label")
        problems = wrong | problems
    ids = [name.strip() for name in ids]
    bad = [(ids[row] or f"{place} {first + row}", problems[row]) for row in sorted(problems)]
    good = [row for row in range(len(ids)) if row not in problems]
    return _records(ids, items, labels, label_names, image_addresses).take(good), bad


def _is_features(kind: pa.DataType) -> bool:
    """Return whether values are lists of anything but texts."""
    return is_list(kind) and not is_text(kind.value_type)


def _each(
    convert: Callable[[Any], Any], column: pa.Array, blank: str, name: str
) -> tuple[list[Any], dict[int, str]]:
    """Return every value of a column as ``convert`` makes it, and the problems of the rows where it
    cannot.
    """
    values: list[Any] = []
    wrong: dict[int, str] = {}
    for row, value in enumerate(plain_values(column)):
        try:
            values.append(convert(value))
            if blank and not values[-1].strip():
                wrong[row] = blank
        except ValueError as error:
            values.append(convert(None))
            wrong[row] = f"{name} {error}"
    return values, wrong


def _images(column: pa.Array, root: str) -> tuple[list[bytes], list[str] | None, dict[int, str]]:
    """Return the bytes of each image, where those lie that are files of their own, and the problems
    of other rows.
    """
    cells, wrong = _each(image_of, column, "no picture", "the picture")
    addresses = ["" if isinstance(cell, bytes) else cell.strip() and cell for cell in cells]
    addresses = [
        path if not path or "://" in path or path[0] == "/" else f"{root}/{path}"
        for path in addresses
    ]
    files = dict(zip(filter(None, addresses), _fetch(list(filter(None, addresses))), strict=True))
    contents = [files.get(address, cell) for address, cell in zip(addresses, cells, strict=True)]
    wrong |= {
        row: content
        for row, content in enumerate(contents)
        if isinstance(content, str) and row not in wrong
    }
    return (
        [content if isinstance(content, bytes) else b"" for content in contents],
        [*map(without_signature, addresses)] if files else None,
        wrong,
    )


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
        expected = "lists of numbers, which are features"
        fits = any(test(value.value_type) for test in is_number) or (
            name == "text" and is_text(value.value_type)
        )
    elif name == "image":
        has_path = pa.types.is_struct(value) and any(
            field.name in ("bytes", "path") for field in value
        )
        expected = "paths or the bytes of image files"
        fits = is_plain or is_binary(value) or has_path
    else:
        is_uuid = name == "id" and getattr(kind, "extension_name", "") == "arrow.uuid"
        expected = "texts" if name == "text" else "names"
        fits = is_plain or is_uuid
    if not fits:
        raise InputError(f"{file}: the column {name!r} holds {kind}; expected {expected}")


def _features(column: pa.Array, modality: str) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return features ``(n, d)``, with d the width of most rows that are not empty, and the
    problems of other rows.
    """
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    counts = np.bincount(lengths, minlength=2)
    width = int(counts[1:].argmax()) + 1
    fits = lengths == width
    flat = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False)
    rows = np.zeros((len(column), width), dtype=np.float32)
    rows[fits] = flat.reshape(-1, width)
    wrong = {
        int(row): f"{lengths[row]} {modality} features, most rows have {width}"
        for row in np.flatnonzero(~fits)
    }
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    return rows, wrong | {int(row): f"{modality} features are not finite" for row in broken}


def _plain_layout(column: pa.Array) -> pa.Array:
    """Return a column without what wraps its values, such as a dictionary or the shape of a
    tensor.
    """
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


_Members = dict[str, tarfile.TarInfo]

# What is raised for an item whose text is not UTF-8, whose JSON is none or too deep, or that is a
# link to nothing.
_BAD = (ValueError, RecursionError, KeyError)


def _plan_tar(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> _Shards:
    """Yield a shard for each tar file, whatever its size: a tar file can only be read from its
    beginning.

    Only headers and the members with labels are read.
    """
    for file in files:
        items = 0
        labels = set()
        with _opened_tar(file.address) as tar:
            for _, members in _samples(tar):
                items += 1
                with suppress(*_BAD):  # `_read_tar` reports the bad item
                    labels |= set(_labels(tar, members))
        if items:
            yield Shard(without_signature(file.address), 0, 0, items), frozenset(labels)


def _read_tar(
    shard: Shard,
    root: str,
    modalities: Sequence[str],
    label_names: Sequence[str],
    signed: Mapping[str, str],
) -> _Batches:
    """Yield the items of a tar file; an id is the name that an item's files share."""
    with _opened_tar(signed.get(shard.file, shard.file)) as tar:
        samples = _samples(tar)
        while part := list(islice(samples, _BATCH)):
            good: list[tuple[str, list[str], dict[str, Any]]] = []
            bad: list[tuple[str, str]] = []
            for key, members in part:
                try:
                    text_of(key)
                    values = {modality: _value(tar, members, modality) for modality in modalities}
                    labels = _labels(tar, members)
                    missing = [modality for modality, value in values.items() if not value]
                    problem = (
                        f"no {' and no '.join(missing)}{_dotted_name(members)}" if missing else ""
                    )
                except _BAD as error:
                    problem = f"its name, text or JSON cannot be read ({one_line(error)})"
                if problem:
                    bad.append(
                        (key.encode(errors="replace").decode(), f"{problem} in {shard.file}")
                    )
                else:
                    good.append((key, labels, values))
            items = {modality: [values[modality] for *_, values in good] for modality in modalities}
            yield (
                _records(
                    [key for key, *_ in good],
                    items,
                    [labels for _, labels, _ in good],
                    label_names,
                    None,
                ),
                bad,
            )


def _tar_modalities(file: str) -> tuple[str, ...]:
    """Return the modalities of the first item of a tar file that has any."""
    hint = ""
    with _opened_tar(file) as tar:
        for _, members in _samples(tar):
            with suppress(*_BAD):
                if modalities := tuple(
                    modality for modality in ("image", "text") if _value(tar, members, modality)
                ):
                    return modalities
            hint = hint or _dotted_name(members)
    raise InputError(f"{file}: holds no item with an image or a text that can be read{hint}")


@contextmanager
def _opened_tar(address: str) -> Iterator[tarfile.TarFile]:
    # read in order, in requests of so many bytes where it is remote
    with (
        open_address(address, 8 << 20) as stream,
        reading(address, "not a readable tar file, perhaps truncated or compressed"),
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        yield tar


def _samples(tar: tarfile.TarFile) -> Iterator[tuple[str, _Members]]:
    """Yield (key, members by ending) of each item; the key ends at the first dot of the file
    name.
    """
    files = (
        (*_parted(member.name), member)
        for member in tar
        if (member.isfile() or member.islnk() or member.issym()) and not _hidden(member.name)
    )
    for key, members in groupby(files, key=lambda part: part[0]):
        yield key, {ending: member for _, ending, member in members}


def _hidden(name: str) -> bool:
    """Return whether a file, or a folder on the way to it, is hidden or macOS's own."""
    return any(
        part == "__MACOSX" or (part.startswith(".") and part not in (".", ".."))
        for part in name.split("/")
    )


def _dotted_name(members: _Members) -> str:
    """Return a hint if an item has the image only by a name with dots, which ends too early; else
    nothing.
    """
    for ending, member in members.items():
        if "." in ending[1:] and PurePosixPath(ending).suffix in IMAGE_ENDINGS:
            return (
                f" (a name ends at its first dot: {member.name} is {ending} of an item; rename it)"
            )
    return ""


def _parted(name: str) -> tuple[str, str]:
    folder, slash, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    return f"{folder}{slash}{stem}".removeprefix("./"), f".{ending.lower()}"


def _value(tar: tarfile.TarFile, members: _Members, modality: str) -> bytes | str | None:
    """Return the bytes of the image, or the text; empty if there is none. ValueError if not UTF-8
    or not JSON.
    """
    if modality == "image":
        return next(
            (
                _content(tar, member)
                for ending, member in members.items()
                if ending in IMAGE_ENDINGS
            ),
            None,
        )
    if ".txt" in members:
        return join_captions(decode_text(_content(tar, members[".txt"]))).strip()
    fields = _fields(tar, members)
    captions = (join_captions(fields.get(key)).strip() for key in ("text", "caption"))
    return next(filter(None, captions), "")


def _labels(tar: tarfile.TarFile, members: _Members) -> list[str]:
    if ".cls" in members:
        return split_labels(decode_text(_content(tar, members[".cls"])))
    return split_labels(_fields(tar, members).get("labels"))


def _fields(tar: tarfile.TarFile, members: _Members) -> dict[str, Any]:
    """Return the JSON fields of an item, or none."""
    content = _content(tar, members[".json"]) if ".json" in members else b"{}"
    fields = json.loads(decode_text(content))
    return fields if isinstance(fields, dict) else {}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} is a link to no file")
    return file.read()


_LISTING = pa.schema({"address": pa.string()})


class _Kind(NamedTuple):
    """Functions that read one kind of input."""

    endings: Collection[str]
    #: (address of the first file) -> modalities of its items.
    modalities: Callable[[str], tuple[str, ...]]
    #: (files, modalities, items a shard, path for a listing) -> shards, in order.
    plan: Callable[[Iterable[File], Sequence[str], int, Place], _Shards]
    #: (shard, folder that names are relative to, modalities, label names of the whole input,
    #: addresses with their signatures) -> at least one batch; every item of the shard is in one.
    read: Callable[[Shard, str, Sequence[str], Sequence[str], Mapping[str, str]], _Batches]


def _plan_images(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> _Shards:
    """Yield a shard for every ``shard_items`` images and write them to ``listing``. Images alone
    have no labels.
    """
    remaining = iter(files)
    with whole_file(listing) as temporary, pq.ParquetWriter(temporary, _LISTING) as writer:
        number = 0
        while part := [without_signature(file.address) for file in islice(remaining, shard_items)]:
            writer.write_table(pa.table({"address": part}, _LISTING), row_group_size=len(part))
            yield Shard(str(listing), number, number + 1, len(part)), frozenset()
            number += 1


def _read_images(
    shard: Shard,
    root: str,
    modalities: Sequence[str],
    label_names: Sequence[str],
    signed: Mapping[str, str],
) -> _Batches:
    """Yield the images of a shard; an id is the path relative to ``root``."""
    with open_address(shard.file) as stream, pq.ParquetFile(stream) as listing:
        for batch in listing.iter_batches(_BATCH, row_groups=range(shard.first, shard.last)):
            addresses = batch.column("address").to_pylist()
            ids = [address.removeprefix(root).lstrip("/") for address in addresses]
            contents = _fetch([signed.get(address, address) for address in addresses])
            bad = [
                (name, content)
                for name, content in zip(ids, contents, strict=True)
                if isinstance(content, str)
            ]
            good = [row for row, content in enumerate(contents) if isinstance(content, bytes)]
            yield (
                _records(ids, {"image": contents}, [[] for _ in ids], label_names, addresses).take(
                    good
                ),
                bad,
            )


KINDS = {
    "parquet": _Kind((".parquet",), _parquet_modalities, _plan_parquet, _read_parquet),
    "tar": _Kind((".tar",), _tar_modalities, _plan_tar, _read_tar),
    "pictures": _Kind(IMAGE_ENDINGS, lambda file: ("image",), _plan_images, _read_images),
}


def input_files(address: str) -> Iterator[tuple[str, File]]:
    """Yield (kind, file) for each file of an input, always in the same order; skip files of no
    kind.
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
        endings = ", ".join(ending for kind in KINDS.values() for ending in sorted(kind.endings))
        raise InputError(f"{address}: no files to encode; they end in {endings}")
