"""Arrays from the content of ``.npy`` files that nobody vouches for."""

import io
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


# A header is no longer than this.
_HEADER = 1 << 16


def array_from_npy(content: bytes | mmap.mmap) -> NDArray[Any]:
    """Return the array of a file's content, read-only and without a copy. Nothing is ever unpickled.

    Arrays are of plain numbers in this machine's byte order, row by row, as `numpy.save` writes those.

    Raises:
        ValueError: the content is damaged, or another kind of array.

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


def read_npy(path: Path, mapped: bool = False) -> NDArray[Any]:
    """Read a file into memory, as `array_from_npy`.

    Args:
        path: the file.
        mapped: leave the values in the file: what is used of them is read then, and shared with other processes. The
            file must not change as long as the array is used.

    Raises:
        ValueError: as `array_from_npy`, with the file's name.
        OSError: the file cannot be read.
    """
    try:
        if not mapped:
            return array_from_npy(path.read_bytes())
        with open(path, "rb") as file:
            return array_from_npy(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError as error:  # an empty file cannot be mapped, either
        raise ValueError(f"{path}: {error}") from None
