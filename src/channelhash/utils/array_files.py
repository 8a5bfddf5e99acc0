"""Named arrays from files of the field: ``.npz``, ``.mat``, ``.h5`` and folders of ``.npy``.

MATLAB's ``.mat`` files are read in a process of their own: SciPy's and HDF5's compiled readers
trust what a file says, and a flipped bit can make them leave their memory, which ends the process
that they run in. That process has a limit on memory and processor time; it reads the file and
writes the arrays as ``.npy`` files.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.decode import reading
from channelhash.utils.optional_imports import library

# Windows has no such limits; a reader that crashes is still a process of its own.
if sys.platform != "win32":
    import resource

#: Memory of the reading process for any file.
_MEMORY = 4 << 30
#: Memory beside that for each byte of the file: compression may have made it small.
_MEMORY_PER_BYTE = 100
#: Processor time of the reading process for any file, in seconds.
_SECONDS = 15
#: Processor time beside that for each byte of the file.
_SECONDS_PER_BYTE = 1e-6


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


#: Arrays by name; sparse ones are `SparseRows` for those who ask for them.
Arrays = dict[str, Any]

ENDINGS = (".npz", ".mat", ".h5", ".hdf5")


def read_arrays(path: Path, sparse: bool = False) -> Arrays:
    """Read all arrays of a file by name: numbers, texts or times; a structure becomes an empty
    text. Nothing is ever unpickled. The arrays of a folder are its ``.npy`` files, by the files'
    names, and those in its other files; an array that NumPy saved without a name gets the file's,
    and the parts of a sparse matrix that SciPy's ``save_npz`` wrote begin with it.

    MATLAB's sparse matrices become dense, or `SparseRows` if ``sparse``.

    MATLAB stores matrices column by column: v7.3 files, which are HDF5, are transposed and are
    turned back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "codes.npz"), B_q=np.eye(2))
    ...     read_arrays(Path(folder, "codes.npz"))["B_q"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if path.is_dir():
        return _read_folder(path, sparse)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    ending = path.suffix.lower()
    if ending == ".npy":
        line = (
            f"{path}: is one array without a name; name the folder that holds all, or join them "
            "in one .npz"
        )
        raise InputError(line)
    if ending not in ENDINGS:
        raise InputError(f"{path}: a file of arrays ends in {', '.join(ENDINGS)}")
    return _read_file(path, sparse)


def _read_file(path: Path, sparse: bool) -> Arrays:
    """Return the arrays of a file; a ``.npy`` file's has the file's name without the ending."""
    ending = path.suffix.lower()
    with reading(path, f"not a readable {path.suffix} file, perhaps truncated"):
        if ending == ".npy":
            arrays = {path.stem: np.load(path, allow_pickle=False)}
        elif ending == ".npz":
            if not zipfile.is_zipfile(path):
                raise InputError(
                    f"{path}: not a readable .npz file, perhaps truncated or a single array"
                )
            with np.load(path, allow_pickle=False) as archive:
                arrays = dict(archive)
        elif ending == ".mat" and not _is_hdf5(path):
            library("scipy", "mat")  # here, where a missing one is told from a damaged file
            arrays = _read_mat(path)
        else:
            arrays = _read_hdf5(path, matlab=ending == ".mat")
        sparse_kind = SparseRows if sparse else ()
        return {
            name: v if isinstance(v, sparse_kind) else _plain_array(v) for name, v in arrays.items()
        }


def _read_folder(path: Path, sparse: bool) -> Arrays:
    """Return the arrays of all files of a folder."""
    endings = (".npy", *ENDINGS)
    files = [
        file
        for file in sorted(path.iterdir())
        if file.suffix.lower() in endings and file.name[0] != "."
    ]
    if not files:
        raise InputError(f"{path}: is a folder without files that end in {', '.join(endings)}")
    arrays: Arrays = {}
    file_of: dict[str, str] = {}
    for file in files:
        read = _named_after_file(_read_file(file, sparse), file)
        twice = sorted(read.keys() & arrays.keys())
        if twice:
            raise InputError(
                f"{path}: {file_of[twice[0]]} and {file.name} both hold {twice[0]}; take one of "
                "them away"
            )
        arrays |= read
        file_of |= dict.fromkeys(read, file.name)
    return arrays


def _named_after_file(arrays: Arrays, file: Path) -> Arrays:
    """Return the arrays of a file of a folder, under the file's name where they have none."""
    if {"format", "shape", "data"} <= arrays.keys():  # one sparse matrix, as SciPy saves it
        return {f"{file.stem}_{name}": values for name, values in arrays.items()}
    if list(arrays) == ["arr_0"]:  # NumPy's name for an array that was given none
        return {file.stem: arrays["arr_0"]}
    return arrays


def _read_hdf5(path: Path, matlab: bool) -> Arrays:
    h5py = library("h5py", "mat")
    arrays: Arrays = {}
    has_cells = False
    with h5py.File(path, "r") as file:
        # A list: an iterator that an error leaves would hold h5py's lock, for which another
        # thread waits for ever.
        for name, item in list(file.items()):
            if isinstance(item, h5py.Dataset):
                arrays[name] = _from_matlab(item) if matlab else np.asarray(_read_dataset(item))
                has_cells = has_cells or h5py.check_ref_dtype(item.dtype) is not None
            elif matlab and "MATLAB_sparse" in item.attrs:
                arrays[name] = _from_sparse(item)
            elif not name.startswith("#"):  # a structure; MATLAB's own groups begin with #
                arrays[name] = np.array("")
    return arrays | (_read_mat(path) if matlab and has_cells else {})


def _from_matlab(dataset: Any) -> NDArray[Any]:
    """Return an array of a v7.3 file. Objects, such as MATLAB's strings, become an empty text."""
    if "MATLAB_object_decode" in dataset.attrs:
        return np.array("")
    if "MATLAB_empty" in dataset.attrs:  # the values are the shape
        return np.empty(dataset[()].astype(int))
    if dataset.attrs.get("MATLAB_class") == b"char":
        return np.array([_matlab_text(row) for row in np.atleast_2d(dataset[()].T)])
    return np.asarray(_read_dataset(dataset)).T


def _from_sparse(group: Any) -> SparseRows:
    """Return a sparse matrix of a v7.3 file.

    The number of rows is an attribute, and columns are compressed. A matrix of zeros has neither
    values nor rows.
    """
    starts = _read_dataset(group["jc"])
    values = np.empty(0)
    rows = np.empty(0, np.int64)
    if "data" in group:
        values = _read_dataset(group["data"])
        rows = _read_dataset(group["ir"])
    return SparseRows(values, rows, starts, int(group.attrs["MATLAB_sparse"])).T


def _read_dataset(dataset: Any) -> Any:
    """Return numbers or texts. Anything else (references, lists, records) is not decoded, and
    becomes an empty text.

    HDF5 has damaged the memory of the process when it decoded the references of a damaged file:
    `_read_mat` decodes those of cell arrays in another one.
    """
    if library("h5py", "mat").check_string_dtype(dataset.dtype) is not None:
        return dataset.asstr()[()]
    return dataset[()] if dataset.dtype.kind in "biufc" else ""


def _read_mat(path: Path) -> Arrays:
    """Return the arrays of a file by name: texts without padding, structures as an empty text.

    Of a v7.3 file, which is HDF5, return the cell arrays alone.

    Reading costs a start of Python (a third of a second), and the arrays are written and read once
    more.
    """
    with tempfile.TemporaryDirectory(prefix="channelhash-mat-") as folder:
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as module; module._main()"
        )
        command = [sys.executable, "-c", program, str(path.resolve()), folder]
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each thread would reserve memory
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, env=alone
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise ValueError(
                lines[-1] if lines and done.returncode > 0 else "reading it ends the reader"
            )
        names: list[str] = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
        return {name: _load(Path(folder, f"{number}.npy")) for number, name in enumerate(names)}


def _load(path: Path) -> Any:
    """Return an array that `_read` wrote: a sparse one as three, by columns, and the number of its
    rows.
    """
    if path.exists():
        return np.load(path)
    with np.load(path.with_suffix(".npz")) as parts:
        return SparseRows(parts["data"], parts["indices"], parts["indptr"], int(parts["n_rows"])).T


def _from_mat(value: Any) -> NDArray[Any]:
    """Return a matrix, or a cell array of texts or a padded matrix of characters as texts."""
    array = np.asarray(value)
    cells = array.ravel().tolist() if array.dtype == object else []
    if cells and all(
        isinstance(cell, np.ndarray) and cell.size <= (cell.dtype.kind == "U") for cell in cells
    ):
        array = np.array([cell.item() if cell.size else "" for cell in cells])
    return np.char.rstrip(array) if array.dtype.kind == "U" else _plain_array(array)


def _plain_array(values: Any) -> NDArray[Any]:
    """Return an array of numbers, texts or times; anything else (structures, references) becomes an
    empty text.
    """
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(
        isinstance(entry, str | bytes) for entry in array.ravel().tolist()
    ):
        return array
    return np.array("") if array.dtype.kind in "OV" else array


def _matlab_text(letters: NDArray[Any]) -> str:
    """Return the text of characters that are stored as numbers, without the blanks at its end."""
    return letters.astype("<u2").tobytes().decode("utf-16-le").rstrip()


def _is_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5; MATLAB's v7.3 has its signature after a header of 512
    bytes.
    """
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"\x89HDF\r\n\x1a\n") or head[512:520] == b"\x89HDF\r\n\x1a\n"


def _cell_arrays(path: Path) -> dict[str, Any]:
    """Return the cell arrays of texts of a v7.3 file; those of other things as an empty text."""
    h5py = library("h5py", "mat")
    arrays = dict[str, Any]()
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            if isinstance(item, h5py.Dataset) and h5py.check_ref_dtype(item.dtype):
                texts = [_cell_text(file[reference]) for reference in item[()].T.ravel()]
                arrays[name] = np.array("" if None in texts else texts)
    return arrays


def _cell_text(cell: Any) -> str | None:
    """Return the text of a cell, or None if it holds something else."""
    if "MATLAB_empty" in cell.attrs:
        return ""
    return _matlab_text(cell[()].T.ravel()) if cell.attrs.get("MATLAB_class") == b"char" else None


def _read(path: Path, folder: Path) -> None:
    """Write the arrays of a file into ``folder``, and their names last."""
    if sys.platform != "win32":
        _limit(path.stat().st_size)
    content = _cell_arrays(path) if _is_hdf5(path) else library("scipy.io", "mat").loadmat(path)
    names = [name for name in content if not name.startswith("__")]
    for number, name in enumerate(names):
        value = content.pop(name)
        if hasattr(value, "tocsc"):
            columns = value.tocsc()
            parts = dict(
                data=columns.data,
                indices=columns.indices,
                indptr=columns.indptr,
                n_rows=columns.shape[0],
            )
            np.savez(folder / f"{number}.npz", **parts)
            continue
        array = _from_mat(value)
        np.save(
            folder / f"{number}.npy",
            array.astype(str) if array.dtype.hasobject else array,
            allow_pickle=False,
        )
    (folder / "names.json").write_text(json.dumps(names), encoding="utf-8")


def _limit(size: int) -> None:
    """Limit memory and time of this process to what a file of so many bytes may need."""
    limits = {
        resource.RLIMIT_AS: _MEMORY + _MEMORY_PER_BYTE * size,
        resource.RLIMIT_CPU: int(_SECONDS + _SECONDS_PER_BYTE * size),
        resource.RLIMIT_FSIZE: _MEMORY + _MEMORY_PER_BYTE * size,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        most = resource.getrlimit(limit)[1]
        # macOS limits no address space
        with suppress(*([ValueError, OSError] if sys.platform == "darwin" else [])):
            resource.setrlimit(
                limit, (value if most == resource.RLIM_INFINITY else min(value, most), most)
            )


def _main() -> None:
    try:
        _read(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as problem:
        sys.exit(" ".join(f"{type(problem).__name__}: {problem}".split())[:300])
