"""Arrays of HDF5, and MATLAB's ``.mat`` files: v7, and v7.3, which is HDF5.

What is not plain numbers is read in a process of its own: SciPy's and HDF5's compiled readers
trust what a file says, and a flipped bit can make them leave their memory, which ends the process
that they run in. That process has a limit on memory and processor time; it reads the file and
writes the arrays as ``.npy`` files.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class SparseColumns(NamedTuple):
    """A sparse matrix as MATLAB stores it: column i has ``data[indptr[i]:indptr[i + 1]]`` in the
    rows that ``indices`` names.
    """

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    n_rows: int


def read_dataset(dataset: Any, matlab: bool) -> NDArray[Any]:
    """Return an array of a file of HDF5, perhaps one of MATLAB's v7.3."""
    return _plain_array(_from_matlab(dataset) if matlab else _decode_dataset(dataset))


def map_dataset(path: Path, dataset: Any, matlab: bool) -> NDArray[Any]:
    """Map an array that lies in one piece, with values as they are; read any other."""
    h5py = library("h5py", "mat")
    start = dataset.id.get_offset()
    kind = dataset.dtype
    is_plain = kind.kind in "fiu" and dataset.id.get_type() == h5py.h5t.py_create(kind)
    if matlab or start is None or not is_plain:
        return read_dataset(dataset, matlab)
    return np.memmap(path, kind, "r", start, dataset.shape)


def _from_matlab(dataset: Any) -> NDArray[Any]:
    """Return an array of a v7.3 file. Objects, such as MATLAB's strings, become an empty text."""
    if "MATLAB_object_decode" in dataset.attrs:
        return np.array("")
    if "MATLAB_empty" in dataset.attrs:  # the values are the shape
        return np.empty(dataset[()].astype(int))
    if dataset.attrs.get("MATLAB_class") == b"char":
        return np.array([_matlab_text(row) for row in np.atleast_2d(dataset[()].T)])
    return np.asarray(_decode_dataset(dataset)).T


def sparse_columns(group: Any) -> SparseColumns:
    """Return a sparse matrix of a v7.3 file.

    The number of rows is an attribute, and columns are compressed. A matrix of zeros has neither
    values nor rows.
    """
    starts = _decode_dataset(group["jc"])
    values = np.empty(0)
    rows = np.empty(0, np.int64)
    if "data" in group:
        values = _decode_dataset(group["data"])
        rows = _decode_dataset(group["ir"])
    return SparseColumns(values, rows, starts, int(group.attrs["MATLAB_sparse"]))


def _decode_dataset(dataset: Any) -> Any:
    """Return numbers or texts. Anything else (references, lists, records) is not decoded, and
    becomes an empty text.

    HDF5 has damaged the memory of the process when it decoded the references of a damaged file:
    `read_mat` decodes those of cell arrays in another one.
    """
    if library("h5py", "mat").check_string_dtype(dataset.dtype) is not None:
        return dataset.asstr()[()]
    return dataset[()] if dataset.dtype.kind in "biufc" else ""


def read_mat(path: Path) -> dict[str, Any]:
    """Return the arrays of a file by name: texts without padding, structures as an empty text, and
    `SparseColumns`.

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
        return SparseColumns(parts["data"], parts["indices"], parts["indptr"], int(parts["n_rows"]))


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


def is_hdf5(path: Path) -> bool:
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
    content = _cell_arrays(path) if is_hdf5(path) else library("scipy.io", "mat").loadmat(path)
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
