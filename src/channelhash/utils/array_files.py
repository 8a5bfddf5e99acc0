"""Named arrays from the formats of the field: ``.npz``, ``.mat`` (v7 and v7.3), ``.h5``, and folders of ``.npy``."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.mat_files import dense_matrix, is_hdf5, matlab_text, plain_array, read_mat
from channelhash.utils.optional_imports import library
from channelhash.utils.reading import reading

Arrays = dict[str, NDArray[Any]]

ENDINGS = (".npz", ".mat", ".h5", ".hdf5")


def read_arrays(path: Path) -> Arrays:
    """Read all arrays of a file by name: numbers, texts or times; a structure becomes an empty text. Nothing is ever
    unpickled. The arrays of a folder are its ``.npy`` files.

    MATLAB stores matrices column by column: v7.3 files, which are HDF5, are transposed and are turned back.

    Raises:
        InputError: the file is missing, truncated, or not what its ending says.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "codes.npz"), B_q=np.eye(2))
    ...     read_arrays(Path(folder, "codes.npz"))["B_q"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() == ".npy":
        raise InputError(
            f"{path}: is one array without a name; name the folder that holds all, or join them in one .npz"
        )
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: a file of arrays ends in {', '.join(ENDINGS)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with reading(path, f"not a readable {path.suffix} file, perhaps truncated"):
        if path.suffix.lower() == ".npz":
            arrays = _read_npz(path)
        elif path.suffix.lower() == ".mat" and not is_hdf5(path):
            library("scipy", "mat")  # here, where a missing one is told from a damaged file
            arrays = read_mat(path)
        else:
            arrays = _read_hdf5(path, matlab=path.suffix.lower() == ".mat")
        return {name: plain_array(values) for name, values in arrays.items()}


def _read_folder(path: Path) -> Arrays:
    """Return the arrays of a folder's ``.npy`` files by the files' names without the ending."""
    files = [file for file in sorted(path.iterdir()) if file.suffix == ".npy" and not file.name.startswith(".")]
    if not files:
        raise InputError(f"{path}: is a folder without .npy files")
    arrays: Arrays = {}
    for file in files:
        with reading(file, "not a readable .npy file, perhaps truncated"):
            arrays[file.stem] = plain_array(np.load(file, allow_pickle=False))
    return arrays


def _read_npz(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not a readable .npz file, perhaps truncated or a single array")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_hdf5(path: Path, matlab: bool) -> Arrays:
    h5py = library("h5py", "mat")
    with h5py.File(path, "r") as file:
        datasets = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        if not matlab:
            return {name: np.asarray(_read_dataset(item)) for name, item in datasets.items()}
        arrays = {name: _from_matlab(item) for name, item in datasets.items()}
        arrays |= {name: _from_sparse(item) for name, item in file.items() if "MATLAB_sparse" in item.attrs}
        has_cells = any(h5py.check_ref_dtype(item.dtype) for item in datasets.values())
    return arrays | (read_mat(path) if has_cells else {})


def _from_matlab(dataset: Any) -> NDArray[Any]:
    """Return an array of a v7.3 file. Objects, such as MATLAB's strings, become an empty text."""
    if "MATLAB_object_decode" in dataset.attrs:
        return np.array("")
    if "MATLAB_empty" in dataset.attrs:  # the values are the shape
        return np.empty(dataset[()].astype(int))
    if dataset.attrs.get("MATLAB_class") == b"char":
        return np.array([matlab_text(row) for row in np.atleast_2d(dataset[()].T)])
    return np.asarray(_read_dataset(dataset)).T


def _from_sparse(group: Any) -> NDArray[Any]:
    """Return a sparse matrix of a v7.3 file as a dense one.

    The number of rows is an attribute, and columns are compressed. A matrix of zeros has neither values nor rows.
    """
    starts = _read_dataset(group["jc"])
    values, rows = np.empty(0), np.empty(0, np.int64)
    if "data" in group:
        values, rows = _read_dataset(group["data"]), _read_dataset(group["ir"])
    return dense_matrix(values, rows, starts, int(group.attrs["MATLAB_sparse"]))


def _read_dataset(dataset: Any) -> Any:
    """Return numbers or texts. Anything else (references, lists, records) is not decoded, and becomes an empty text.

    HDF5 has damaged the memory of the process when it decoded the references of a damaged file: `read_mat` decodes
    those of cell arrays in another one.
    """
    if library("h5py", "mat").check_string_dtype(dataset.dtype) is not None:
        return dataset.asstr()[()]
    return dataset[()] if dataset.dtype.kind in "biufc" else ""
