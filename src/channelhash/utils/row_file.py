"""Rows in a file: computed once, block by block, and memory-mapped."""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.files import space_for, write_text
from channelhash.utils.hashes import content_hash
from channelhash.utils.locks import locked
from channelhash.utils.progress import Progress

_DType = Literal["float16", "float32", "int32"]
StoredRows = NDArray[Any]
#: Number of the first block -> its rows, and those of the blocks after it.
_Compute = Callable[[int], Iterator[StoredRows]]
#: Bytes that are written over themselves at once.
_CHUNK = 1 << 20


class RowFile(NamedTuple):
    """A finished file.

    Attributes:
        path: the file, in NumPy's own format.
        rows: ``(n, d)``, memory-mapped.
        sizes: rows of each block.
        sums: CRC-32 of each block.
    """

    path: Path
    rows: StoredRows
    sizes: tuple[int, ...]
    sums: tuple[int, ...]

    def block(self, number: int) -> StoredRows:
        """Return a copy of a block's rows, compared with its checksum."""
        start = sum(self.sizes[:number])
        rows: StoredRows = np.array(self.rows[start : start + self.sizes[number]])
        if zlib.crc32(rows.data) != self.sums[number]:
            raise InputError(
                f"{self.path}: block {number} is damaged; remove the file to compute it again"
            )
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
    dtype: _DType,
    compute: _Compute,
    progress: Progress | None = None,
) -> RowFile:
    """Open the file of ``key``, and compute the blocks that are missing.

    Each block and its checksum are written to the disk before the next one, and the complete file
    gets its final name: after a kill, the build continues with the first missing block. A second
    process that needs the same file waits for the first.

    >>> import tempfile
    >>> def compute(first):
    ...     yield from [np.zeros((2, 3)), np.ones((1, 3))][first:]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stem = Path(folder, "rows")
    ...     row_file(stem, {"weights": "abc"}, [2, 1], 3, "float32", compute).block(1).tolist()
    [[1.0, 1.0, 1.0]]
    """
    facts = {**key, "dtype": dtype, "rows": str(sum(sizes)), "width": str(width)}
    digest = content_hash(json.dumps(facts, sort_keys=True).encode())[:16]
    path = stem.with_name(f"{stem.name}-{digest}.npy")
    with locked(path.with_suffix(".lock")), space_for(path):
        if not path.exists():
            partial = path.with_suffix(".partial")
            journal = path.with_suffix(".journal")
            try:  # that of an interrupted build, of this shape and type as its name says
                rows = np.load(partial, mmap_mode="r+")
            except (OSError, ValueError, EOFError):
                journal.unlink(missing_ok=True)
                rows = _reserved_memmap(partial, (sum(sizes), width), dtype)
            sums = _fill(rows, journal, sizes, compute, progress)
            write_text(
                path.with_suffix(".json"), json.dumps({"key": facts, "sums": sums}, indent=2)
            )
            del rows  # Windows renames no mapped file
            os.replace(partial, path)
            journal.unlink()
    try:
        meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        file = RowFile(
            path, np.load(path, mmap_mode="r"), tuple(sizes), tuple(map(int, meta["sums"]))
        )
        shape = (sum(sizes), width)
        if (
            meta["key"] != facts
            or file.rows.shape != shape
            or file.rows.dtype != dtype
            or len(file.sums) != len(sizes)
        ):
            raise ValueError("it belongs to something else")
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise InputError(f"{path}: damaged ({error}); remove it to compute it again") from None
    return file


def _fill(
    rows: "np.memmap[Any, Any]",
    journal: Path,
    sizes: Sequence[int],
    compute: _Compute,
    progress: Progress | None,
) -> list[int]:
    """Write the blocks that are missing, each before its line in the journal; return the checksums
    of all.
    """
    sums = _finished(rows, journal, sizes)
    done = sum(sizes[: len(sums)])
    with open(journal, "w", encoding="utf-8") as log:
        log.write("".join(f"{value}\n" for value in sums))
        blocks = compute(len(sums)) if len(sums) < len(sizes) else iter(())
        for size, block in zip(sizes[len(sums) :], blocks, strict=True):
            with np.errstate(over="ignore"):  # checked in the next line
                values = np.ascontiguousarray(block, dtype=rows.dtype)
            if not np.isfinite(values).all():
                raise InputError(
                    f"{journal.stem}: a number is not finite in {rows.dtype} (rows from {done} on)"
                )
            rows[done : done + size] = values
            rows.flush()
            sums.append(zlib.crc32(values.data))
            log.write(f"{sums[-1]}\n")
            log.flush()
            os.fsync(log.fileno())
            done += size
            if progress:
                progress(done, len(rows))
    return sums


def _reserved_memmap(path: Path, shape: tuple[int, int], dtype: _DType) -> "np.memmap[Any, Any]":
    """Create a file of rows with all its space reserved: writing to a mapping on a full disk would
    kill the process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _reserved_memmap(Path(folder, "rows.npy"), (2, 3), "float32").shape
    (2, 3)
    """
    try:
        # closed again: its length is right
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
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


def _finished(rows: StoredRows, journal: Path, sizes: Sequence[int]) -> list[int]:
    """Return the checksums of the first complete blocks: the journal's lines, each compared with
    its rows.
    """
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
