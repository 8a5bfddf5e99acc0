"""Read files of vectors: NumPy's ``.npy`` and ``.npz``, Parquet and JSON lines with a column of
lists, HDF5, and ``.fvecs``.
"""

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from channelhash.data.cells import text_of
from channelhash.data.label_arrays import texts_of
from channelhash.errors import InputError, argument, naming
from channelhash.utils.array_files import read_arrays
from channelhash.utils.decode import read_text, reading, split_lines
from channelhash.utils.optional_imports import naming_extra

#: Arrays and columns that hold ids.
_IDS = ("id", "ids", "_id")
#: Columns of numbers that are no vectors.
_LABELS = ("labels",)

_Floats = NDArray[np.float32]


class VectorFile(NamedTuple):
    """What a file holds, unchecked; ``bad`` says what is wrong with rows of a table."""

    values: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: Mapping[str, Sequence[Any]] | None = None
    bad: Mapping[int, str] = {}


def _read_npy(path: Path, array: str | None) -> VectorFile:
    with reading(path, "not a readable .npy file, perhaps truncated"):
        return VectorFile(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_npz(path: Path, array: str | None) -> VectorFile:
    with (
        reading(path, "not a readable .npz file, perhaps truncated"),
        zipfile.ZipFile(path) as zipped,
    ):
        headers = {
            name.removesuffix(".npy"): _npy_header(zipped, name) for name in zipped.namelist()
        }
        chosen = _choose(headers, array, "array")
        values = _mapped(path, zipped.getinfo(f"{chosen}.npy"))
        with np.load(path, allow_pickle=False) as archive:
            if values is None:
                values = archive[chosen]
            named = next((name for name in _IDS if name in headers), None)
            ids = None if named is None else texts_of(archive[named], named)
    return VectorFile(values, ids)


class _Header(NamedTuple):
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _npy_header(zipped: zipfile.ZipFile, name: str) -> _Header:
    with zipped.open(name) as member:
        version = npy.read_magic(member)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(member)
    return _Header(shape, dtype)


def _mapped(path: Path, member: zipfile.ZipInfo) -> NDArray[Any] | None:
    """Map an array that is stored uncompressed in an archive; None for others."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with open(path, "rb") as file:
        file.seek(member.header_offset + 26)  # lengths of the name and of the extra field
        lengths = np.frombuffer(file.read(4), "<u2")
        file.seek(int(lengths.sum()), 1)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read(file)
        start = file.tell()
    flat = np.memmap(path, dtype, "r", start, shape[::-1] if by_columns else shape)
    return flat.T if by_columns else flat


def _choose(arrays: Mapping[str, Any], named: str | None, what: str) -> str:
    """Return the name of the one array or column of vectors."""
    if named is not None:
        if named not in arrays:
            raise InputError(f"has no {what} {named!r}; it has {', '.join(sorted(arrays))}")
        return named
    found = [name for name, values in arrays.items() if _may_be_vectors(values)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"has several {what}s of vectors: {', '.join(sorted(found))}; name one with "
            f"{argument('array')}"
        )
    raise InputError(f"has no {what} of vectors; it has {', '.join(sorted(arrays)) or 'nothing'}")


def _may_be_vectors(values: Any) -> bool:
    return len(values.shape) == 2 and values.dtype.kind in "fi" and min(values.shape) > 0


def _read_hdf5(path: Path, array: str | None) -> VectorFile:
    arrays = read_arrays(path)
    named = next((name for name in _IDS if name in arrays), None)
    ids = None if named is None else texts_of(arrays[named], named)
    return VectorFile(arrays[_choose(arrays, array, "array")], ids)


def _read_fvecs(path: Path, array: str | None) -> VectorFile:
    """Read ``.fvecs``: each vector is its width as int32 and its float32 numbers."""
    size = path.stat().st_size
    with reading(path, "not a readable .fvecs file, perhaps truncated"):
        width = int(np.fromfile(path, "<i4", 1)[0])
        n, rest = divmod(size, 4 * (width + 1))
        if width < 1 or rest:
            raise ValueError(f"{size} bytes are no whole number of vectors of {width} numbers")
        table = np.memmap(path, "<f4", "r", shape=(n, width + 1))
        widths = table[:, 0].view("<i4")
        if (widths != width).any():
            row = int(np.flatnonzero(widths != width)[0])
            raise ValueError(f"row {row} has {widths[row]} numbers, the first has {width}")
    return VectorFile(table[:, 1:])


def _read_parquet(path: Path, array: str | None) -> VectorFile:
    with naming_extra("parquet"):
        import pyarrow.parquet as pq

        from channelhash.utils.plain_values import plain_values
    with reading(path, "is no Parquet file, or damaged"):
        schema = pq.read_schema(path)
        lists = _lists_of_numbers(schema)
        chosen = _choose_column(lists, schema.names, array)
        table = pq.read_table(path)
        column = table.column(chosen).combine_chunks()
        others = {
            name: plain_values(table.column(name)) for name in schema.names if name not in lists
        }
    values, bad = _from_lists(column)
    return _with_ids(values, others, bad)


def _lists_of_numbers(schema: Any) -> list[str]:
    """Return the columns of a schema of Arrow that may be vectors."""
    import pyarrow as pa

    names = []
    for field in schema:
        kind = field.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not (is_list or pa.types.is_fixed_size_list(kind)) or field.name in _LABELS:
            continue
        if pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type):
            names.append(field.name)
    return names


def _choose_column(lists: Sequence[str], columns: Sequence[str], named: str | None) -> str:
    if named is not None and named not in columns:
        raise InputError(f"has no column {named!r}; it has {', '.join(columns)}")
    if named is not None and named not in lists:
        raise InputError(f"column {named}: holds no lists of numbers")
    if named is not None:
        return named
    if len(lists) == 1:
        return lists[0]
    if lists:
        raise InputError(
            f"has several columns of vectors: {', '.join(lists)}; name one with {argument('array')}"
        )
    raise InputError(f"has no column with lists of numbers; it has {', '.join(columns)}")


def _from_lists(column: Any) -> tuple[_Floats, dict[int, str]]:
    """Return the vectors of a column of Arrow, and what is wrong with rows."""
    lengths = (
        np.asarray(column.value_lengths().fill_null(0))
        if hasattr(column, "value_lengths")
        else np.full(len(column), column.type.list_size)
    )
    width = _usual_width(lengths)
    flat = np.asarray(column.flatten().cast("float32", safe=False).fill_null(np.nan))
    good = lengths == width
    values = np.full((len(lengths), width), np.nan, np.float32)
    values[good] = flat[np.repeat(good, lengths)].reshape(-1, width)
    return values, _width_problems(lengths, width)


def _usual_width(lengths: NDArray[np.int64]) -> int:
    counted = Counter(lengths[lengths > 0].tolist())
    return counted.most_common(1)[0][0] if counted else 0


def _width_problems(lengths: NDArray[np.int64], width: int) -> dict[int, str]:
    return {
        row: f"has {lengths[row]} numbers, others have {width}"
        for row in np.flatnonzero(lengths != width).tolist()
    }


def _read_jsonl(path: Path, array: str | None) -> VectorFile:
    rows = list(_json_lines(path))
    columns = {name: [row.get(name) for row in rows] for name in _keys_of(rows)}
    lists = [
        name
        for name, cells in columns.items()
        if name not in _LABELS and any(map(_is_numbers, cells))
    ]
    chosen = _choose_column(lists, list(columns), array)
    values, bad = _from_cells(columns[chosen])
    others = {name: cells for name, cells in columns.items() if name not in lists}
    return _with_ids(values, others, bad)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if line.strip():
            with reading(f"{path}, line {number}", "is no JSON object"):
                row = dict(json.loads(line))
            yield row


def _keys_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all rows, in the order of their first use."""
    keys: dict[str, None] = {}
    for row in rows:
        keys |= dict.fromkeys(row)
    return list(keys)


def _from_cells(cells: Sequence[Any]) -> tuple[_Floats, dict[int, str]]:
    """Return the vectors of lists, and what is wrong with rows."""
    lengths = np.array([len(cell) if _is_numbers(cell) else 0 for cell in cells], np.int64)
    width = _usual_width(lengths)
    values = np.full((len(cells), width), np.nan, np.float32)
    for row in np.flatnonzero(lengths == width).tolist():
        values[row] = cells[row]
    return values, _width_problems(lengths, width)


def _is_numbers(cell: Any) -> bool:
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(number, int | float) and not isinstance(number, bool) for number in cell)
    )


def _with_ids(values: _Floats, columns: dict[str, list[Any]], bad: Mapping[int, str]) -> VectorFile:
    """Take the ids from the columns of a table."""
    named = next((name for name in _IDS if name in columns), None)
    ids = None
    if named is not None:
        with naming(f"column {named}", ValueError):
            ids = list(map(text_of, columns.pop(named)))
        if "" in ids:
            raise InputError(f"row {ids.index('')} has no {named}; give every row one")
    return VectorFile(values, ids, columns, bad)


def _names_of_arrays(path: Path) -> dict[str, bool]:
    """Return name -> whether it may be vectors, of the arrays of an archive."""
    with (
        reading(path, "not a readable .npz file, perhaps truncated"),
        zipfile.ZipFile(path) as zipped,
    ):
        headers = {
            name.removesuffix(".npy"): _npy_header(zipped, name) for name in zipped.namelist()
        }
    return {name: _may_be_vectors(header) for name, header in headers.items()}


def _names_in_hdf5(path: Path) -> dict[str, bool]:
    return {name: _may_be_vectors(values) for name, values in read_arrays(path).items()}


def _columns_of_parquet(path: Path) -> dict[str, bool]:
    with naming_extra("parquet"):
        import pyarrow.parquet as pq
    with reading(path, "is no Parquet file, or damaged"):
        schema = pq.read_schema(path)
    lists = _lists_of_numbers(schema)
    return {name: name in lists for name in schema.names}


def _columns_of_lines(path: Path) -> dict[str, bool]:
    """Return the same of a file of JSON lines, up to the first that says what the file holds."""
    names: dict[str, bool] = {}
    with suppress(InputError):  # whoever reads a damaged file names the line
        for row in _json_lines(path):
            for name, cell in row.items():
                names[name] = name not in _LABELS and _is_numbers(cell)
            if any(names.values()) or describes_items(names):
                break
    return names


def describes_items(names: Collection[str]) -> bool:
    """Return whether the columns of a table hold images or texts.

    >>> describes_items(["id", "text"]), describes_items(["id", "embedding"])
    (True, False)
    """
    return "image" in names or "text" in names


class VectorFormat(NamedTuple):
    """How files of one ending are read.

    Attributes:
        read: returns what a file holds, given the array or column that is named.
        names: returns the names of what it holds, and whether each may be vectors; None where a
            file holds nothing else.
    """

    read: Callable[[Path, str | None], VectorFile]
    names: Callable[[Path], dict[str, bool]] | None = None


_HDF5 = VectorFormat(_read_hdf5, _names_in_hdf5)
#: Ending -> how such files are read.
FORMATS = {
    ".npy": VectorFormat(_read_npy),
    ".npz": VectorFormat(_read_npz, _names_of_arrays),
    ".parquet": VectorFormat(_read_parquet, _columns_of_parquet),
    ".jsonl": VectorFormat(_read_jsonl, _columns_of_lines),
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".fvecs": VectorFormat(_read_fvecs),
}
