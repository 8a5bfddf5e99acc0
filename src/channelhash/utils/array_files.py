"""Files of named arrays, each read when it is asked for: ``.npz``, ``.npy``, ``.mat``, HDF5,
``.fvecs``, tables whose columns hold lists of numbers (Parquet, JSON lines), and folders of
``.npy``.
"""

import zipfile
from collections import Counter, UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.decode import json_lines, reading
from channelhash.utils.mat_files import (
    SparseColumns,
    is_hdf5,
    map_dataset,
    read_dataset,
    read_mat,
    sparse_columns,
)
from channelhash.utils.optional_imports import library, naming_extra


class SparseRows:
    """A matrix ``(n, d)`` of few values: row i has ``data[indptr[i]:indptr[i + 1]]`` in the columns
    that ``indices`` names, as in SciPy's ``csr_array``. What is read of it, a row or a slice, or
    rows by their numbers, is dense.

    SciPy's own ``toarray`` trusts the indices: those of a damaged file made it write outside the
    matrix.

    >>> starts = np.array([0, 1, 1, 2])
    >>> rows = SparseRows(np.array([5.0, 7.0]), np.array([1, 0]), starts, n_columns=2)
    >>> rows[1:].tolist(), rows[0].tolist(), rows.take([2, 2]).shape, rows.T[0].tolist()
    ([[0.0, 0.0], [7.0, 0.0]], [0.0, 5.0], (2, 2), [0.0, 0.0, 7.0])

    Raises:
        ValueError: starts do not ascend from 0, an index lies outside the matrix, or a cell has two
            values.
    """

    ndim = 2

    def __init__(
        self, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], n_columns: int
    ) -> None:
        starts = np.asarray(indptr).astype(np.int64)
        if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (np.diff(starts) < 0).any():
            raise ValueError("starts of a sparse matrix that do not ascend from 0")
        # What comes after them is room for more.
        self.data = data[: starts[-1]]
        self.indices = indices[: starts[-1]].astype(np.int64)
        self.indptr = starts
        self.shape = (len(starts) - 1, n_columns)
        self.dtype = data.dtype
        one_each = self.data.shape == self.indices.shape == (starts[-1],)
        inside = (self.indices >= 0) & (self.indices < n_columns)
        if not (one_each and indices.dtype.kind in "iu" and inside.all()):
            raise ValueError("indices of a sparse matrix that are not in it")
        if len(np.unique(self.rows * n_columns + self.indices)) < len(self.indices):
            raise ValueError(
                "a sparse matrix with two values in a cell; sum_duplicates() adds them up"
            )

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each value."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    @property
    def T(self) -> "SparseRows":  # noqa: N802  # as arrays have it
        """The matrix ``(d, n)``."""
        order = np.argsort(self.indices, kind="stable")
        starts = np.cumsum(np.append(0, np.bincount(self.indices, minlength=self.shape[1])))
        return SparseRows(self.data[order], self.rows[order], starts, len(self))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            return self[[rows]][0]
        chosen = self.take(rows)
        dense = np.zeros(chosen.shape, self.dtype)
        dense[chosen.rows, chosen.indices] = chosen.data
        return dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def take(self, rows: Any, axis: int = 0) -> "SparseRows":
        """Return the matrix of ``rows``, in that order."""
        rows = np.arange(len(self))[rows]
        starts = np.cumsum(np.append(0, self.indptr[rows + 1] - self.indptr[rows]))
        places = np.repeat(self.indptr[rows] - starts[:-1], np.diff(starts)) + np.arange(starts[-1])
        return SparseRows(self.data[places], self.indices[places], starts, self.shape[1])

    def astype(self, dtype: Any) -> "SparseRows":
        """Return the matrix with values of another type."""
        return SparseRows(self.data.astype(dtype), self.indices, self.indptr, self.shape[1])

    def mean(self, axis: int = 0) -> NDArray[np.float64]:
        """Return the mean of each column ``(d,)``."""
        return np.bincount(self.indices, self.data, minlength=self.shape[1]) / len(self)

    def std(self, axis: int = 0) -> NDArray[np.float64]:
        """Return the standard deviation of each column ``(d,)``."""
        mean = self.mean()
        counts = np.bincount(self.indices, minlength=self.shape[1])
        squares = np.bincount(
            self.indices, (self.data - mean[self.indices]) ** 2, minlength=self.shape[1]
        )
        return np.sqrt((squares + (len(self) - counts) * mean**2) / len(self))


#: Arrays by name.
Arrays = dict[str, Any]
#: The name of the one array of a file that gives it none.
UNNAMED = ""
#: Arrays and columns that hold ids.
IDS = ("id", "ids", "_id")
#: Arrays and columns that hold labels, our own name first.
LABELS = ("labels", "LAll", "L", "label", "labelList")
_NUMBERS = {int, float, type(None)}


class Stored(NamedTuple):
    """An array of a file that is read when it is asked for.

    Attributes:
        path: the file.
        ndim: number of dimensions.
        dtype: type of the values.
        read: returns the array.
        in_place: returns it with its rows on disk; None where the file has no plain rows.
    """

    path: Path
    ndim: int
    dtype: np.dtype[Any]
    read: Callable[[], Any]
    in_place: Callable[[], Any] | None = None


class FileArrays(UserDict[str, Any]):
    """The arrays of a file by name, each read once, when it is asked for.

    Args:
        stored: name -> the array, or how it is read.

    Attributes:
        problems: name -> row -> what is wrong with it, of lists of numbers once they are read.

    >>> later = Stored(Path("f.h5"), 2, np.dtype("f8"), lambda: np.eye(2))
    >>> arrays = FileArrays({"image": later, "id": np.array(["a", "b"])})
    >>> arrays["image"].shape, arrays.unread
    ((2, 2), ['id'])
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__(stored)
        self.problems: dict[str, dict[int, str]] = {}
        self._asked = set[str]()

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return self.peek(name)

    def peek(self, name: str, in_place: bool = False) -> Any:
        """Return an array that still counts as unread; ``in_place`` with its rows on disk where the
        file stores them plainly, and damage of these is not noticed.
        """
        values = self.data[name]
        if isinstance(values, Stored):
            read = values.in_place if in_place and values.in_place else values.read
            with reading(values.path, _unreadable(values.path)):
                values = self.data[name] = read()
        return values

    @property
    def vectors(self) -> list[str]:
        """Names of the matrices of numbers with a sign that are neither labels nor ids."""
        return [
            name
            for name, values in self.data.items()
            if name == UNNAMED
            or (values.ndim == 2 and values.dtype.kind in "fi" and name not in IDS + LABELS)
        ]

    @property
    def unread(self) -> list[str]:
        """Names of the arrays that nobody has asked for."""
        return sorted(self.data.keys() - self._asked)


def _unreadable(path: Path) -> str:
    return f"not a readable {path.suffix} file, perhaps truncated"


def read_arrays(path: Path) -> Arrays:
    """Read all arrays of a file, as `open_arrays` describes; sparse ones become dense.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "codes.npz"), B_q=np.eye(2))
    ...     read_arrays(Path(folder, "codes.npz"))["B_q"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    with open_arrays(path) as arrays:
        return {name: np.asarray(values) for name, values in arrays.items()}


@contextmanager
def open_arrays(path: Path) -> Iterator[FileArrays]:
    """Open the arrays of a file by name: numbers, texts or times; a structure becomes an empty
    text. Nothing is ever unpickled. The arrays of a table are its columns: lists of numbers as
    rows, anything else as objects. Those of a folder are its ``.npy`` files, by the files' names,
    and those in its other files; an array that NumPy saved without a name gets the file's, and the
    parts of a sparse matrix that SciPy's ``save_npz`` wrote begin with it.

    MATLAB's sparse matrices are `SparseRows`. MATLAB stores matrices column by column: v7.3 files,
    which are HDF5, are transposed and are turned back.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_dir() and path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: a file of arrays ends in {', '.join(ENDINGS)}")
    with ExitStack() as stack:
        arrays = _open_folder(path, stack) if path.is_dir() else _open_file(path, stack)
        stack.callback(arrays.data.clear)  # those who read its columns hold the table and it them
        yield arrays


def _open_file(path: Path, stack: ExitStack) -> FileArrays:
    with reading(path, _unreadable(path)):
        return _OPENERS[path.suffix.lower()](path, stack)


def _open_folder(path: Path, stack: ExitStack) -> FileArrays:
    """Open the arrays of all files of a folder."""
    files = [
        file
        for file in sorted(path.iterdir())
        if file.suffix.lower() in IN_FOLDERS and file.name[0] != "."
    ]
    if not files:
        raise InputError(f"{path}: is a folder without files that end in {', '.join(IN_FOLDERS)}")
    arrays: Arrays = {}
    file_of: dict[str, str] = {}
    for file in files:
        opened = _named_after_file(_open_file(file, stack).data, file)
        twice = sorted(opened.keys() & arrays.keys())
        if twice:
            raise InputError(
                f"{path}: {file_of[twice[0]]} and {file.name} both hold {twice[0]}; take one of "
                "them away"
            )
        arrays |= opened
        file_of |= dict.fromkeys(opened, file.name)
    return FileArrays(arrays)


def _named_after_file(arrays: Arrays, file: Path) -> Arrays:
    """Return the arrays of a file of a folder, named after it where NumPy says ``arr_0``."""
    if {"format", "shape", "data"} <= arrays.keys():  # one sparse matrix, as SciPy saves it
        return {f"{file.stem}_{name}": values for name, values in arrays.items()}
    if len(arrays) == 1 and (file.suffix.lower() == ".npy" or "arr_0" in arrays):
        return dict.fromkeys([file.stem], *arrays.values())
    return arrays


def _open_npy(path: Path, stack: ExitStack) -> FileArrays:
    return FileArrays({UNNAMED: np.load(path, mmap_mode="r", allow_pickle=False)})


def _open_npz(path: Path, stack: ExitStack) -> FileArrays:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: {_unreadable(path)} or a single array")
    archive = stack.enter_context(np.load(path, allow_pickle=False))
    arrays = FileArrays({})
    for member in archive.zip.infolist():
        with archive.zip.open(member) as file:
            shape, _, dtype = _read_header(file)
        name = member.filename.removesuffix(".npy")
        is_plain = member.compress_type == zipfile.ZIP_STORED
        in_place = partial(_map_member, path, member) if is_plain else None
        read = partial(archive.__getitem__, name)
        arrays[name] = Stored(path, len(shape), dtype, read, in_place)
    return arrays


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether columns follow one another, and type of a ``.npy`` file's array."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(file)


def _map_member(path: Path, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Map an array that is stored uncompressed in an archive."""
    with open(path, "rb") as file:
        file.seek(member.header_offset + 26)  # lengths of the name and of the extra field
        lengths = np.frombuffer(file.read(4), "<u2")
        file.seek(int(lengths.sum()), 1)
        shape, by_columns, dtype = _read_header(file)
        start = file.tell()
    flat = np.memmap(path, dtype, "r", start, shape[::-1] if by_columns else shape)
    return flat.T if by_columns else flat


def _open_mat(path: Path, stack: ExitStack) -> FileArrays:
    if is_hdf5(path):
        return _open_hdf5(path, stack, matlab=True)
    library("scipy", "mat")  # here, where a missing one is told from a damaged file
    return FileArrays({name: _by_rows(values) for name, values in read_mat(path).items()})


def _by_rows(values: Any) -> Any:
    """Return MATLAB's sparse matrices as `SparseRows`, anything else as it is."""
    return SparseRows(*values).T if isinstance(values, SparseColumns) else values


def _open_hdf5(path: Path, stack: ExitStack, matlab: bool = False) -> FileArrays:
    h5py = library("h5py", "mat")
    file = stack.enter_context(h5py.File(path, "r"))
    arrays = FileArrays({})
    has_cells = False
    # A list: an iterator that an error leaves would hold h5py's lock, and others wait for ever.
    for name, item in list(file.items()):
        if isinstance(item, h5py.Dataset):
            read = partial(read_dataset, item, matlab)
            in_place = partial(map_dataset, path, item, matlab)
            arrays[name] = Stored(path, item.ndim, item.dtype, read, in_place)
            has_cells = has_cells or h5py.check_ref_dtype(item.dtype) is not None
        elif matlab and "MATLAB_sparse" in item.attrs:
            arrays[name] = _by_rows(sparse_columns(item))
        elif not name.startswith("#"):  # a structure; MATLAB's own groups begin with #
            arrays[name] = np.array("")
    arrays.data |= read_mat(path) if matlab and has_cells else {}
    return arrays


def _open_fvecs(path: Path, stack: ExitStack) -> FileArrays:
    """Map ``.fvecs``: each vector is its width as int32 and its float32 numbers."""
    size = path.stat().st_size
    width = int(np.fromfile(path, "<i4", 1)[0])
    n, rest = divmod(size, 4 * (width + 1))
    if width < 1 or rest:
        raise ValueError(f"{size} bytes are no whole number of vectors of {width} numbers")
    table = np.memmap(path, "<f4", "r", shape=(n, width + 1))
    widths = table[:, 0].view("<i4")
    if (widths != width).any():
        row = int(np.flatnonzero(widths != width)[0])
        raise ValueError(f"row {row} has {widths[row]} numbers, the first has {width}")
    return FileArrays({UNNAMED: table[:, 1:]})


def open_parquet(path: Path) -> Any:
    """Open a Parquet file."""
    with naming_extra("parquet"):
        import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    check_columns(path, file.schema_arrow.names)
    return file


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Check that no two columns have one name; those without a name are never read."""
    for name, count in Counter(filter(str.strip, columns)).most_common(1):
        if count > 1:
            raise InputError(f"{path}: has {count} columns {name!r}; rename or remove all but one")


def _open_parquet(path: Path, stack: ExitStack) -> FileArrays:
    file = stack.enter_context(open_parquet(path))
    from channelhash.utils.plain_values import are_vectors, flat_numbers, plain_values

    def column(name: str) -> Any:
        return file.read([name]).column(name).combine_chunks()

    return _table(
        path,
        {field.name: are_vectors(field.type) for field in file.schema_arrow},
        lambda name: flat_numbers(column(name)),
        lambda name: plain_values(column(name)),
    )


def _open_json_lines(path: Path, stack: ExitStack) -> FileArrays:
    rows = []
    names: dict[str, None] = {}
    for place, row in json_lines(path):
        if isinstance(row, str):
            raise InputError(f"{path}, {place}: {row}")
        rows.append(row)
        names |= dict.fromkeys(row)

    def cells(name: str) -> list[Any]:
        return [row.get(name) for row in rows]

    lists = {name: any(map(has_numbers, cells(name))) for name in names}
    return _table(path, lists, lambda name: _flat_numbers(cells(name)), cells)


def _table(
    path: Path,
    lists: Mapping[str, bool],
    flat_numbers: Callable[[str], tuple[NDArray[Any], NDArray[Any]]],
    cells: Callable[[str], list[Any]],
) -> FileArrays:
    """Return the columns of a table, given which hold lists of numbers: these become rows."""
    arrays = FileArrays({})

    def rows(name: str) -> NDArray[np.float32]:
        values, arrays.problems[name] = rows_of_lists(*flat_numbers(name))
        return values

    def values(name: str) -> NDArray[Any]:
        return np.fromiter(cells(name), object)

    for name, is_list in lists.items():
        if is_list and name not in LABELS:
            arrays[name] = Stored(path, 2, np.dtype(np.float32), partial(rows, name))
        else:
            arrays[name] = Stored(path, 1, np.dtype(object), partial(values, name))
    return arrays


def has_numbers(cell: Any) -> bool:
    """Return whether a cell holds a list of numbers.

    >>> has_numbers([1, None, 0.5]), has_numbers(["a"]), has_numbers([])
    (True, False, False)
    """
    return _may_be_numbers(cell) and any(number is not None for number in cell)


def _may_be_numbers(cell: Any) -> bool:
    return isinstance(cell, list) and set(map(type, cell)) <= _NUMBERS


def _flat_numbers(cells: Sequence[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the numbers in lists one after another, and the lengths of the lists."""
    lists = [cell if _may_be_numbers(cell) else [] for cell in cells]
    with np.errstate(over="ignore"):
        flat = np.concatenate([np.array(numbers, np.float32) for numbers in lists])
    return flat, np.array([len(numbers) for numbers in lists])


def rows_of_lists(
    flat: NDArray[Any], lengths: NDArray[Any]
) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return lists of numbers as rows ``(n, d)`` of the usual length, NaN for lists of others, and
    what is wrong with these. ``flat`` are the numbers of all lists, one after another.

    >>> rows_of_lists(np.arange(5.0), np.array([2, 1, 2]))[0].tolist()
    [[0.0, 1.0], [nan, nan], [3.0, 4.0]]
    """
    width = int(np.bincount(lengths, minlength=2)[1:].argmax()) + 1
    fits = lengths == width
    rows = np.full((len(lengths), width), np.nan, np.float32)
    rows[fits] = flat[np.repeat(fits, lengths)].reshape(-1, width)
    problems = {
        row: f"has {lengths[row]} numbers, others have {width}"
        for row in np.flatnonzero(~fits).tolist()
    }
    return rows, problems


#: Endings of the files that hold arrays, or tables of them -> how they are opened.
_OPENERS: dict[str, Callable[[Path, ExitStack], FileArrays]] = {
    ".npz": _open_npz,
    ".npy": _open_npy,
    ".mat": _open_mat,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".parquet": _open_parquet,
    ".jsonl": _open_json_lines,
    ".fvecs": _open_fvecs,
}
ENDINGS = tuple(_OPENERS)
#: Endings of the files in a folder of arrays.
IN_FOLDERS = (".npy", ".npz", ".mat", ".h5", ".hdf5")
