"""Arrays in files: ``.npy``, read without trusting it; rows computed once, block by block, and memory-mapped; and named
arrays from the formats of the field, ``.npz``, ``.mat``, ``.h5`` and folders of ``.npy``.
"""

import io
import json
import math
import mmap
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.files import content_hash, locked, reading, space_for, write_text
from channelhash.utils.mat_files import dense_matrix, is_hdf5, matlab_text, plain_array, read_mat
from channelhash.utils.optional_imports import library
from channelhash.utils.progress import Progress

DType = Literal["float16", "float32", "int32"]
Rows = NDArray[Any]
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RowFile:
    """A finished file.

    Attributes:
        path: the file, in NumPy's own format.
        rows: ``(n, d)``, memory-mapped.
        sizes: rows of each block.
        sums: CRC-32 of each block.
    """

    path: Path
    rows: Rows
    sizes: tuple[int, ...]
    sums: tuple[int, ...]

    def block(self, number: int) -> Rows:
        """Return a copy of a block's rows, compared with its checksum."""
        start = sum(self.sizes[:number])
        rows: Rows = np.array(self.rows[start : start + self.sizes[number]])
        if zlib.crc32(rows.data) != self.sums[number]:
            raise InputError(f"{self.path}: block {number} is damaged; remove the file to compute it again")
        return rows

    def check(self) -> "RowFile":
        """Compare all blocks with their checksums; errors as in `block`."""
        for number in range(len(self.sizes)):
            self.block(number)
        return self


def row_file(
    stem: Path,
    key: Mapping[str, str],
    sizes: Sequence[int],
    width: int,
    dtype: DType,
    compute: Callable[[int], Iterator[Rows]],
    progress: Progress | None = None,
) -> RowFile:
    """Open the file of ``key``, and compute the blocks that are missing.

    Each block and its checksum are written to the disk before the next one, and the complete file gets its final name:
    after a kill, the build continues with the first missing block. A second process that needs the same file waits for
    the first.

    >>> import tempfile
    >>> def compute(first):
    ...     yield from [np.zeros((2, 3)), np.ones((1, 3))][first:]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     row_file(Path(folder, "rows"), {"weights": "abc"}, [2, 1], 3, "float32", compute).block(1).tolist()
    [[1.0, 1.0, 1.0]]
    """
    facts = {**key, "dtype": dtype, "rows": str(sum(sizes)), "width": str(width)}
    digest = content_hash(json.dumps(facts, sort_keys=True).encode())[:16]
    path = stem.with_name(f"{stem.name}-{digest}.npy")
    with locked(path.with_suffix(".lock")), space_for(path):
        if not path.exists():
            _build(path, facts, tuple(sizes), width, dtype, compute, progress)
    try:
        meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        file = RowFile(path, np.load(path, mmap_mode="r"), tuple(sizes), tuple(map(int, meta["sums"])))
        shape = (sum(sizes), width)
        if meta["key"] != facts or file.rows.shape != shape or file.rows.dtype != dtype or len(file.sums) != len(sizes):
            raise ValueError("it belongs to something else")
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise InputError(f"{path}: damaged ({error}); remove it to compute it again") from None
    return file


def _build(
    path: Path,
    key: Mapping[str, str],
    sizes: tuple[int, ...],
    width: int,
    dtype: DType,
    compute: Callable[[int], Iterator[Rows]],
    progress: Progress | None,
) -> None:
    partial, journal = path.with_suffix(".partial"), path.with_suffix(".journal")
    n = sum(sizes)
    rows = _reopen(partial, (n, width), dtype)
    if rows is None:
        journal.unlink(missing_ok=True)
        rows = _reserved_memmap(partial, (n, width), dtype)
    sums = _finished(rows, journal, sizes)
    done = sum(sizes[: len(sums)])
    with open(journal, "w", encoding="utf-8") as log:
        log.write("".join(f"{value}\n" for value in sums))
        blocks = compute(len(sums)) if len(sums) < len(sizes) else iter(())
        for size, block in zip(sizes[len(sums) :], blocks, strict=True):
            with np.errstate(over="ignore"):  # checked in the next line
                values = np.ascontiguousarray(block, dtype=dtype)
            if not np.isfinite(values).all():
                raise InputError(f"{path.stem}: a number is not finite in {dtype} (rows from {done} on)")
            rows[done : done + size] = values
            rows.flush()
            sums.append(zlib.crc32(values.data))
            log.write(f"{sums[-1]}\n")
            log.flush()
            os.fsync(log.fileno())
            done += size
            if progress:
                progress(done, n)
    write_text(path.with_suffix(".json"), json.dumps({"key": key, "sums": sums}, indent=2))
    del rows  # Windows renames no mapped file
    os.replace(partial, path)
    journal.unlink()


def _reopen(partial: Path, shape: tuple[int, int], dtype: DType) -> "np.memmap[Any, Any] | None":
    """Open the file of an interrupted build; None if there is none of this shape and type."""
    try:
        rows = np.load(partial, mmap_mode="r+")
    except (OSError, ValueError, EOFError):
        return None
    return rows if rows.shape == shape and rows.dtype == dtype else None


def _reserved_memmap(path: Path, shape: tuple[int, int], dtype: DType) -> "np.memmap[Any, Any]":
    """Create a file of rows with all its space reserved: writing to a mapping on a full disk would kill the process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _reserved_memmap(Path(folder, "rows.npy"), (2, 3), "float32").shape
    (2, 3)
    """
    try:
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)  # closed again: its length is right
        with open(path, "r+b") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(1, path.stat().st_size))
            else:  # writing each byte over itself makes the disk hold it
                while chunk := file.read(_CHUNK):
                    file.seek(-len(chunk), os.SEEK_CUR)
                    file.write(chunk)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return np.lib.format.open_memmap(path, mode="r+")


def _finished(rows: Rows, journal: Path, sizes: tuple[int, ...]) -> list[int]:
    """Return the checksums of the first complete blocks: the journal's lines, each compared with its rows."""
    sums: list[int] = []
    start = 0
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    for size, line in zip(sizes, lines, strict=False):  # a kill may have truncated the last line
        checksum = zlib.crc32(np.ascontiguousarray(rows[start : start + size]).data)
        if line != str(checksum):
            break
        sums.append(checksum)
        start += size
    return sums


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


# A header is no longer than this.
_HEADER = 1 << 16


def array_from_npy(content: bytes | mmap.mmap) -> NDArray[Any]:
    """Return the array of a file's content, read-only and without a copy. Nothing is ever unpickled.

    Arrays are of plain numbers in this machine's byte order, row by row, as `numpy.save` writes those.

    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> array_from_npy(file.getvalue()).tolist()
    [0, 1, 2]
    """
    file = io.BytesIO(content[:_HEADER])
    try:
        shape, by_columns, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    except Exception as error:  # a header is parsed as Python, and what is wrong with it comes in many kinds
        raise ValueError(f"not an array's file ({' '.join(str(error).split())[:100]})") from None
    if dtype.kind not in "biuf" or not dtype.isnative or (by_columns and len(shape) > 1):
        raise ValueError(f"an array of {dtype} of another layout than is written")
    start, n_values = file.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or n_values * dtype.itemsize != len(content) - start:
        raise ValueError(f"{len(content) - start} bytes of values where the shape is {shape} {dtype}")
    if start % dtype.itemsize:
        raise ValueError("values begin in the middle of a word")
    values = np.frombuffer(content, dtype, n_values, start) if n_values else np.empty(0, dtype)
    values.flags.writeable = False
    return values.reshape(shape)


Arrays = dict[str, NDArray[Any]]

ENDINGS = (".npz", ".mat", ".h5", ".hdf5")


def read_arrays(path: Path) -> Arrays:
    """Read all arrays of a file by name: numbers, texts or times; a structure becomes an empty text. Nothing is ever
    unpickled. The arrays of a folder are its ``.npy`` files.

    MATLAB stores matrices column by column: v7.3 files, which are HDF5, are transposed and are turned back.

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
