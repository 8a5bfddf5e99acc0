"""A set of codes as a Parquet file, written and read."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from channelhash.codes import Booleans, CodeSet, PackedCodes
from channelhash.errors import InputError
from channelhash.utils.addresses import Place, open_address, place, whole_file
from channelhash.utils.array_files import IN_FOLDERS
from channelhash.utils.decode import reading
from channelhash.utils.hashes import dump_checked, load_checked
from channelhash.utils.plain_values import is_binary, is_list, is_text, plain_values

_FORMAT = "channelhash codes 2"


def write_codes(codes: CodeSet, path: str | Place) -> None:
    """Write what `CodeSet.save` describes."""
    n_bits = codes.n_bits
    labels = codes.labels
    columns: dict[str, pa.Array] = {"id": pa.array(codes.ids, pa.string())}
    for modality, packed in codes.codes.items():
        data = pa.py_buffer(np.ascontiguousarray(packed).tobytes())
        columns[f"code_{modality}"] = pa.Array.from_buffers(
            pa.binary(-(-n_bits // 8)), len(packed), [None, data]
        )
    if labels is not None:
        ends = np.concatenate([[0], np.cumsum(labels.sum(axis=1))]).astype(np.int32)
        columns["labels"] = pa.ListArray.from_arrays(ends, np.nonzero(labels)[1].astype(np.int32))
    columns |= {
        name: pa.array(texts, pa.string()) for name, texts in _display_columns(codes).items()
    }
    table = pa.table(columns)
    description = {
        "n_bits": n_bits,
        "n_labels": None if labels is None else labels.shape[1],
        "label_names": list(codes.label_names),
        "model": codes.model,
        "columns": _checksums(codes),
    }
    metadata = {"channelhash.format": _FORMAT, "channelhash": dump_checked(description)}
    with whole_file(place(path)) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, write_page_checksum=True)


def read_codes(path: str | Place, rows: int | None = None) -> Iterator[CodeSet]:
    """Read what `write_codes` wrote, whole or in parts of ``rows`` rows."""
    with _open(path) as (file, description):
        if rows is None:
            tables = iter([file.read()])
        else:
            tables = (pa.Table.from_batches([part]) for part in file.iter_batches(rows))
        sums = dict.fromkeys(description["columns"], 0)
        for table in tables:
            codes = _from_table(_stored_types(table, description["n_bits"]), description)
            yield codes
            sums = _checksums(codes, sums)
        expected = description["columns"]
        for name in sorted(expected.keys() | sums.keys()):
            if expected.get(name) != sums.get(name):
                raise ValueError(f"damaged: the column {name} is not as it was written")


@contextmanager
def _open(path: str | Place) -> Iterator[tuple[pq.ParquetFile, dict[str, Any]]]:
    """Open a file of codes; yield it with the description in its metadata."""
    where = place(path)
    if not where.is_file():
        raise InputError(f"{path}: no such file of codes")
    if where.suffix.lower() in IN_FOLDERS:
        raise InputError(
            f"{path}: is no Parquet file; `evaluate --codes` reads one .npz of B_q, B_r, L_q and "
            "L_r"
        )
    with ExitStack() as stack:
        stack.enter_context(
            reading(path, "not a readable file of codes, perhaps truncated", "encode again")
        )
        source = where if isinstance(where, Path) else stack.enter_context(open_address(str(where)))
        file = stack.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
        metadata = file.schema_arrow.metadata or {}
        written_as = metadata.get(b"channelhash.format", b"").decode(errors="replace")
        if not written_as.startswith("channelhash codes "):
            raise InputError(
                f"{path}: a Parquet file, but not one of codes (written by `channelhash encode`)"
            )
        if written_as != _FORMAT:
            raise InputError(
                f"{path}: written as {written_as!r}, this version reads {_FORMAT!r}; encode again"
            )
        with reading(path, "the description in its metadata is damaged", "encode again"):
            description = load_checked(metadata.get(b"channelhash", b"").decode())
        yield file, description


def _stored_types(table: pa.Table, n_bits: int) -> pa.Table:
    """Return a table in the types of `write_codes`.

    Programs that copy a table make dictionaries, views and large types.
    """
    for number, name in enumerate(table.column_names):
        column = table.column(name)
        stored = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        kind, is_alike = _written_type(name, stored, n_bits)
        if name.startswith("code_") and pa.types.is_fixed_size_binary(column.type):
            continue  # codes of another width are other codes
        if column.type != kind and (is_alike or stored == kind):
            table = table.set_column(number, name, pa.array(plain_values(column), kind))
    return table


def _written_type(name: str, stored: pa.DataType, n_bits: int) -> tuple[pa.DataType, bool]:
    """Return the type in which `write_codes` writes a column, and whether another one is alike."""
    if name.startswith("code_"):
        return pa.binary(-(-n_bits // 8)), is_binary(stored)
    if name == "labels":
        return pa.list_(pa.int32()), is_list(stored) and pa.types.is_integer(stored.value_type)
    return pa.string(), is_text(stored)


def _display_columns(codes: CodeSet) -> dict[str, Sequence[str]]:
    """Return the texts and images that a set has, by column."""
    columns = {"text": codes.texts, "image": codes.images}
    return {name: texts for name, texts in columns.items() if texts is not None}


def _checksums(codes: CodeSet, before: dict[str, int] | None = None) -> dict[str, int]:
    """Return the CRC-32 of each column, continued from that of the rows ``before``.

    Parquet's own checksums protect each page, but neither the pages' headers nor the file's footer,
    which says what the columns are called and where they lie.
    """
    columns = {f"code_{modality}": packed.tobytes() for modality, packed in codes.codes.items()}
    for name, texts in {"id": codes.ids, **_display_columns(codes)}.items():
        columns[name] = "".join(f"{text}\0" for text in texts).encode()
    if codes.labels is not None:
        columns["labels"] = codes.labels.tobytes()
    return {name: crc32(content, (before or {}).get(name, 0)) for name, content in columns.items()}


def is_code_file(path: Path) -> bool:
    """Return whether a file is one of codes, by its metadata alone.

    >>> is_code_file(Path("photos.csv"))
    False
    """
    if not path.is_file():
        return False
    try:
        return b"channelhash.format" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _from_table(table: pa.Table, description: dict[str, Any]) -> CodeSet:
    """Return the set in a table of our format.

    Raises:
        ValueError: the table does not fit its description.
    """
    columns = {name: table.column(name) for name in table.column_names}
    _check_columns(columns)
    n_bits = description["n_bits"]
    codes = {}
    for name, column in columns.items():
        if name.startswith("code_"):
            codes[name.removeprefix("code_")] = _packed_codes(column, name, n_bits)
    shown = {name: columns[name].to_pylist() for name in ("text", "image") if name in columns}
    labels = None
    if "labels" in columns:
        labels = _label_matrix(columns["labels"], description["n_labels"])
    return CodeSet(
        ids=columns["id"].to_pylist(),
        codes=codes,
        labels=labels,
        n_bits=n_bits,
        label_names=tuple(description["label_names"]),
        texts=shown.get("text"),
        images=shown.get("image"),
        model=description["model"],
    )


def _check_columns(columns: dict[str, pa.ChunkedArray]) -> None:
    if "id" not in columns:
        raise ValueError("the column id is missing")
    for name, column in columns.items():
        if column.null_count:
            raise ValueError(f"the column {name} has empty cells")


def _packed_codes(column: pa.ChunkedArray, name: str, n_bits: int) -> PackedCodes:
    width = -(-n_bits // 8)
    if column.type != pa.binary(width):
        raise ValueError(
            f"the column {name} is {column.type}; codes of {n_bits} bits are {pa.binary(width)}"
        )
    if not len(column):
        return np.empty((0, width), np.uint8)
    codes = column.combine_chunks()
    packed = np.frombuffer(codes.buffers()[1], np.uint8, len(codes) * width, codes.offset * width)
    return packed.reshape(len(codes), width).copy()


def _label_matrix(column: pa.ChunkedArray, n_labels: int) -> Booleans:
    if not pa.types.is_list(column.type) or not pa.types.is_integer(column.type.value_type):
        raise ValueError(f"the column labels is {column.type}; expected lists of label numbers")
    lists = column.combine_chunks()
    offsets = lists.offsets.to_numpy()
    numbers = lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    if not ((numbers >= 0) & (numbers < n_labels)).all():
        raise ValueError(f"the column labels has numbers outside 0 … {n_labels - 1}")
    labels = np.zeros((len(column), n_labels), dtype=bool)
    labels[np.repeat(np.arange(len(column)), np.diff(offsets)), numbers] = True
    return labels
