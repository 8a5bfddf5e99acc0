"""Vectors that an encoder has made: NumPy's ``.npy`` and ``.npz``, Parquet and JSON lines with a
column of lists, HDF5, and ``.fvecs``.

Large files stay on disk: rows of ``.npy``, ``.fvecs`` and uncompressed ``.npz`` files are read when
they are needed.
"""

import json
import mmap
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from channelhash.data.features import are_features
from channelhash.data.label_arrays import first_repeated, texts_of
from channelhash.data.records import Problems
from channelhash.errors import InputError, argument, naming
from channelhash.utils.array_files import read_arrays
from channelhash.utils.decode import read_text, reading, split_lines
from channelhash.utils.optional_imports import naming_extra

#: Endings of files of vectors.
VECTOR_ENDINGS = (".npy", ".npz", ".parquet", ".jsonl", ".h5", ".hdf5", ".fvecs")
#: Arrays and columns that hold ids.
_IDS = ("id", "ids", "_id")
#: Columns of numbers that are no vectors.
_LABELS = ("labels",)
#: Rows that are read at a time, which bounds memory.
_ROWS = 8192

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Vectors:
    """``n`` vectors of one encoder.

    Attributes:
        ids: ``n`` ids; numbers of rows where the file has none.
        stored: the array of the file, ``(m, d)`` of any numeric type, perhaps not in memory.
        rows: the ``n`` usable rows of it; None if all are.
        columns: name -> ``n`` further values of a table.
        problems: a line for each row that was left out.
        numbered: whether the ids are the numbers of the rows.

    >>> vectors = Vectors.of(np.eye(3, dtype=np.float64))
    >>> len(vectors), vectors.width, vectors[1:].tolist()
    (3, 3, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """

    ids: tuple[str, ...]
    stored: NDArray[Any]
    rows: NDArray[np.int64] | None = None
    columns: Mapping[str, Sequence[Any]] | None = None
    problems: tuple[str, ...] = ()
    numbered: bool = False

    @classmethod
    def of(cls, values: NDArray[Any], ids: Sequence[str] | None = None) -> "Vectors":
        """Take an array ``(n, d)`` as it is.

        Raises:
            InputError: it is not a matrix of real numbers, or has another number of ids.
        """
        problem = _shape_problem(values)
        if problem:
            raise InputError(f"vectors: {problem}")
        names = tuple(map(str, range(len(values)))) if ids is None else tuple(ids)
        if len(names) != len(values):
            raise InputError(f"ids: {len(names)} of them for {len(values)} vectors")
        return cls(names, values)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def width(self) -> int:
        """Numbers a vector, d."""
        return int(self.stored.shape[1])

    def __getitem__(self, rows: Any) -> _Floats:
        """Return the vectors of a slice or of row numbers as float32 ``(n, d)``."""
        _release(self.stored)
        chosen = rows if self.rows is None else self.rows[rows]
        with np.errstate(over="ignore"):  # infinite ones are named by `load_vectors`
            return np.asarray(self.stored[chosen], np.float32)

    def blocks(self, size: int = _ROWS) -> Iterator[_Floats]:
        """Yield all vectors in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def take(self, rows: NDArray[np.int64]) -> "Vectors":
        """Return the vectors of some rows, in that order."""
        columns = None
        if self.columns is not None:
            columns = {}
            for name, values in self.columns.items():
                columns[name] = [values[row] for row in rows.tolist()]
        stored_rows = rows if self.rows is None else self.rows[rows]
        ids = tuple(self.ids[row] for row in rows.tolist())
        return replace(self, ids=ids, rows=stored_rows, columns=columns)


def _release(stored: NDArray[Any]) -> None:
    """Give back the memory of those rows of a mapped file that were read before; rows that someone
    still holds are read again. Where the system cannot, it takes the memory when it is short.
    """
    mapped = getattr(stored, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class _File(NamedTuple):
    """What a file holds, unchecked; ``bad`` says what is wrong with rows of a table."""

    values: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: Mapping[str, Sequence[Any]] | None = None
    bad: Mapping[int, str] = {}


def load_vectors(
    path: Path, array: str | None = None, ids: Path | None = None, skip_bad: bool = False
) -> Vectors:
    """Read vectors ``(n, d)``, with ids and further columns where the file has them.

    Args:
        path: a file with one of `VECTOR_ENDINGS`.
        array: name of the array or column, where several could be meant.
        ids: text file of ids, one a line. By default those of the array or column ``id``; else the
            numbers of the rows.
        skip_bad: leave out bad rows, and list them.

    Raises:
        InputError: the file is missing or damaged, has no array of vectors or several, or another
            number of ids, or an id twice; or a row is bad: zero, not finite, too large for
            float32, missing or of another width.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "vectors.npy")
    ...     np.save(file, np.eye(3)[:2])
    ...     load_vectors(file).ids
    ('0', '1')
    """
    if not path.exists():
        raise InputError(f"{path}: no such file")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: a file of vectors ends in {', '.join(VECTOR_ENDINGS)}")
    with naming(path):
        file = reader(path, array)
        problem = _shape_problem(file.values)
        if problem:
            raise InputError(problem)
        names = _names(file, ids)
        numbered = ids is None and file.ids is None
        vectors = Vectors(names, file.values, None, file.columns, numbered=numbered)
        return _usable(vectors, file.bad, path, skip_bad)


def holds_vectors(path: Path) -> bool:
    """Return whether a file holds vectors that are not said to be of images or texts, and neither
    images nor texts.

    >>> holds_vectors(Path("vectors.npy")), holds_vectors(Path("photos"))
    (True, False)
    """
    ending = path.suffix.lower()
    if ending in (".npy", ".fvecs"):
        return True
    names = _NAMES.get(ending)
    if names is None or not path.is_file():
        return False
    with naming(path):
        arrays = names(path)
    return not are_features(arrays) and any(arrays.values())


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
    """Return the same of the first line of a file of JSON lines."""
    for row in _json_lines(path):
        return {name: name not in _LABELS and _is_numbers(cell) for name, cell in row.items()}
    return {}


def _shape_problem(values: NDArray[Any]) -> str | None:
    """Return why an array holds no vectors."""
    if values.ndim != 2 or not values.size:
        return f"holds an array {values.shape}, expected vectors (n, d), a row each"
    if values.dtype.kind not in "fiu":
        return f"holds {values.dtype.name}, expected real numbers"
    return None


def _names(file: _File, ids: Path | None) -> tuple[str, ...]:
    """Return the ids of all rows."""
    n = len(file.values)
    names = file.ids
    if ids is not None:
        names = [line for line in split_lines(read_text(ids)) if line]
    if names is None:
        return tuple(map(str, range(n)))
    if len(names) != n:
        raise InputError(f"has {n} vectors, but there are {len(names)} ids")
    repeated = first_repeated(names)
    if repeated is not None:
        raise InputError(f"several vectors have the id {repeated!r}")
    return tuple(names)


def _usable(vectors: Vectors, bad: Mapping[int, str], path: Path, skip_bad: bool) -> Vectors:
    """Return the vectors without bad rows, or refuse the first of them."""
    problems = dict(bad)
    start = 0
    for block in vectors.blocks():
        for row, problem in _row_problems(block):
            problems.setdefault(start + row, problem)
        start += len(block)
    if not problems:
        return vectors
    listed = Problems(skip_bad)
    remedy = f"mend such rows, {len(problems)} in all, or leave them out with "
    for row, problem in sorted(problems.items()):
        line = f"{path}, row {row} (id {vectors.ids[row]}): {problem}"
        listed.add(line, remedy + argument("skip_bad"), problem)
    good = np.setdiff1d(np.arange(len(vectors)), list(problems))
    if not len(good):
        raise InputError(f"none of its {len(vectors)} vectors can be used: {listed.lines[-1]}")
    return replace(vectors.take(good), problems=tuple(listed.lines))


def _row_problems(block: _Floats) -> Iterator[tuple[int, str]]:
    """Yield number and problem of each bad row."""
    for row in np.flatnonzero(~np.isfinite(block).all(axis=1)).tolist():
        yield row, "is not finite, or too large for float32"
    for row in np.flatnonzero(~block.any(axis=1)).tolist():
        yield row, "is zero, which is near nothing"


def _read_npy(path: Path, array: str | None) -> _File:
    with reading(path, "not a readable .npy file, perhaps truncated"):
        return _File(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_npz(path: Path, array: str | None) -> _File:
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
    return _File(values, ids)


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


def _read_hdf5(path: Path, array: str | None) -> _File:
    arrays = read_arrays(path)
    named = next((name for name in _IDS if name in arrays), None)
    ids = None if named is None else texts_of(arrays[named], named)
    return _File(arrays[_choose(arrays, array, "array")], ids)


def _read_fvecs(path: Path, array: str | None) -> _File:
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
    return _File(table[:, 1:])


def _read_parquet(path: Path, array: str | None) -> _File:
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


def _read_jsonl(path: Path, array: str | None) -> _File:
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


def _with_ids(values: _Floats, columns: dict[str, list[Any]], bad: Mapping[int, str]) -> _File:
    """Take the ids from the columns of a table."""
    named = next((name for name in _IDS if name in columns), None)
    ids = None
    if named is not None:
        ids = [str(value) for value in columns.pop(named)]
    return _File(values, ids, columns, bad)


#: Ending -> a function that returns the names of what a file holds, and whether each may be vectors.
_NAMES = {
    ".npz": _names_of_arrays,
    ".h5": _names_in_hdf5,
    ".hdf5": _names_in_hdf5,
    ".parquet": _columns_of_parquet,
    ".jsonl": _columns_of_lines,
}
_READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
    ".fvecs": _read_fvecs,
}
