"""MATLAB's ``.mat`` files, read in a process of its own: SciPy's and HDF5's compiled readers trust what a file says.

A flipped bit can make that reader leave its memory, which ends the process that it runs in. Run as a program, this file
is that process, with a limit on memory and processor time: it reads the file and writes the arrays as ``.npy`` files.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import resource
except ImportError:  # Windows, which has no such limits: a reader that crashes is still a process of its own
    resource = None  # type: ignore[assignment]

#: Memory of the reading process: enough for any file, and for those that compression made small.
_MEMORY, _MEMORY_PER_BYTE = 4 << 30, 100
#: Its processor time: any file, and seconds a byte.
_SECONDS, _SECONDS_PER_BYTE = 15, 1e-6


def read_mat(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name: sparse ones dense, texts without padding, structures as an empty text.

    Of a v7.3 file, which is HDF5, return the cell arrays alone.

    Reading costs a start of Python (a third of a second), and the arrays are written and read once more.
    """
    with tempfile.TemporaryDirectory(prefix="channelhash-mat-") as folder:
        # -P: the other files of this folder are not to stand in for modules that are installed.
        command = [sys.executable, "-P", str(Path(__file__).resolve()), str(path.resolve()), folder]
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each thread would reserve memory
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False, env=alone)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise ValueError(lines[-1] if lines and done.returncode > 0 else "reading it ends the reader")
        names: list[str] = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
        return {name: np.load(Path(folder, f"{number}.npy")) for number, name in enumerate(names)}


def _from_mat(value: Any) -> NDArray[Any]:
    """Return a matrix, dense if it was sparse; a cell array of texts or a padded matrix of characters as texts."""
    if hasattr(value, "tocsc"):
        columns = value.tocsc()
        return dense_matrix(columns.data, columns.indices, columns.indptr, columns.shape[0])
    array = np.asarray(value)
    cells = array.ravel().tolist() if array.dtype == object else []
    if cells and all(isinstance(cell, np.ndarray) and cell.size <= (cell.dtype.kind == "U") for cell in cells):
        array = np.array([cell.item() if cell.size else "" for cell in cells])
    return np.char.rstrip(array) if array.dtype.kind == "U" else plain_array(array)


def plain_array(values: Any) -> NDArray[Any]:
    """Return an array of numbers, texts or times; anything else (structures, references) becomes an empty text.

    >>> plain_array(np.zeros(2, [("a", "i4")])).tolist(), plain_array(np.array(["a", b"b"], object)).tolist()
    ('', ['a', b'b'])
    """
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(entry, str | bytes) for entry in array.ravel().tolist()):
        return array
    return np.array("") if array.dtype.kind in "OV" else array


def dense_matrix(values: NDArray[Any], rows: NDArray[Any], starts: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Return the dense form of a sparse matrix whose columns are compressed: column ``j`` holds ``values`` from
    ``starts[j]`` up to ``starts[j + 1]``, in the rows that ``rows`` names.

    SciPy's own ``toarray`` trusts rows and starts: those of a damaged file made it write outside the matrix.

    >>> dense_matrix(np.array([5, 6, 7]), np.array([0, 1, 1]), np.array([0, 2, 3]), 2).tolist()
    [[5, 0], [6, 7]]
    """
    bounds = starts.astype(np.int64)
    counts = bounds[1:] - bounds[:-1]
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (counts < 0).any():
        raise ValueError("starts of a sparse matrix that do not ascend from 0")
    values, rows = values[: starts[-1]], rows[: starts[-1]]  # what comes after them is room for more
    if not len(values) == len(rows) == starts[-1] or (len(rows) and not 0 <= rows.min() <= rows.max() < n_rows):
        raise ValueError("rows of a sparse matrix that are not in it")
    dense = np.zeros((n_rows, len(counts)), values.dtype)
    dense[rows, np.repeat(np.arange(len(counts)), counts)] = values
    return dense


def matlab_text(letters: NDArray[Any]) -> str:
    """Return the text of characters that are stored as numbers, without the blanks at its end.

    >>> matlab_text(np.array([100, 111, 103, 32]))
    'dog'
    """
    return letters.astype("<u2").tobytes().decode("utf-16-le").rstrip()


def is_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5; MATLAB's v7.3 has its signature after a header of 512 bytes."""
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"\x89HDF\r\n\x1a\n") or head[512:520] == b"\x89HDF\r\n\x1a\n"


def _matrices(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    return dict(loadmat(path))


def _cell_arrays(path: Path) -> dict[str, Any]:
    """Return the cell arrays of texts of a v7.3 file; those of other things as an empty text."""
    import h5py

    arrays: dict[str, Any] = {}
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
    return matlab_text(cell[()].T.ravel()) if cell.attrs.get("MATLAB_class") == b"char" else None


def _read(path: Path, folder: Path) -> None:
    """Write the arrays of a file into ``folder``, and their names last."""
    if resource is not None:
        _limit(path.stat().st_size)
    content = _cell_arrays(path) if is_hdf5(path) else _matrices(path)
    names = [name for name in content if not name.startswith("__")]
    for number, name in enumerate(names):
        array = _from_mat(content.pop(name))
        np.save(folder / f"{number}.npy", array.astype(str) if array.dtype.hasobject else array, allow_pickle=False)
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
        with suppress(*([ValueError, OSError] if sys.platform == "darwin" else [])):  # it limits no address space
            resource.setrlimit(limit, (value if most == resource.RLIM_INFINITY else min(value, most), most))


if __name__ == "__main__":
    try:
        _read(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as problem:
        sys.exit(" ".join(f"{type(problem).__name__}: {problem}".split())[:300])
