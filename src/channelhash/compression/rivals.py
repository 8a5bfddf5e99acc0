"""What our codes are compared with: exact search in floats, and the market's practice, which is
int8 and the signs of the numbers themselves.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, pack
from channelhash.codes.stage import Similarity
from channelhash.compression.compressor import prepare
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, no_progress

_Floats = NDArray[np.float32]
_Rows = NDArray[np.int64]

#: Largest magnitude of an int8 with an opposite.
_LARGEST = 127
#: Each vector's scale.
_SCALE = np.dtype("<f4")
#: Vectors compared with all questions at a time, which bounds memory.
_ROWS = 4096
#: Blocks at the same time, at most, for the same reason.
_THREADS = 8


class VectorRows(Protocol):
    """``n`` vectors of which rows can be read: an array, or `Vectors`."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


def nearest(
    questions: _Floats,
    vectors: VectorRows,
    k: int,
    similarity: Similarity,
    progress: Progress = no_progress,
) -> _Rows:
    """Return the rows ``(nq, k)`` of the most similar vectors of each question; ties are broken by
    row.
    """
    asked = prepare(questions, similarity)
    n = len(vectors)

    def search_block(start: int) -> tuple[_Floats, _Rows]:
        block = prepare(vectors[start : start + _ROWS], similarity)
        scores = similarities(asked, block, similarity)
        rows = np.broadcast_to(np.arange(start, start + len(block)), scores.shape)
        return _best(scores, rows, k)

    best = np.empty((len(asked), 0), np.float32)
    rows = np.empty((len(asked), 0), np.int64)
    starts = range(0, n, _ROWS)
    with ThreadPoolExecutor(min(usable_cores(), _THREADS)) as threads:
        for start, found in zip(starts, threads.map(search_block, starts), strict=True):
            best, rows = _best(np.hstack([best, found[0]]), np.hstack([rows, found[1]]), k)
            progress(min(start + _ROWS, n), n)
    order = np.lexsort((rows, -best))
    return np.take_along_axis(rows, order, axis=1)


def similarities(questions: _Floats, vectors: _Floats, similarity: Similarity) -> _Floats:
    """Return what orders prepared vectors ``(n, d)`` for prepared questions ``(nq, d)``, larger is
    nearer: inner products, or for distances 2⟨q, x⟩ − ‖x‖².
    """
    products = questions @ vectors.T
    if similarity == "euclidean":
        products = 2 * products - np.square(vectors).sum(axis=1)
    return products


def _best(scores: _Floats, rows: _Rows, k: int) -> tuple[_Floats, _Rows]:
    """Return the ``k`` largest scores of each line and their rows, in any order."""
    if scores.shape[1] <= k:
        return scores, rows
    order = np.argpartition(scores, -k, axis=1)[:, -k:]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def signs(vectors: _Floats) -> PackedCodes:
    """Return the signs of the numbers themselves, ``(n, ceil(d / 8))``.

    >>> signs(np.array([[0.5, -1.0, 2.0]], np.float32)).tolist()
    [[160]]
    """
    return pack(vectors >= 0)


def round_int8(vectors: _Floats) -> NDArray[np.uint8]:
    """Return vectors as rows of int8, the largest magnitude of each 127, and a scale: ``(n, d +
    4)`` bytes.
    """
    scales = np.abs(vectors).max(axis=1, keepdims=True) / np.float32(_LARGEST)
    numbers = np.rint(vectors / np.where(scales > 0, scales, 1)).astype(np.int8)
    return np.hstack([numbers.view(np.uint8), scales.astype(_SCALE).view(np.uint8)])


class Int8Rows:
    """Vectors that `round_int8` has rounded; slices are floats again.

    >>> rows = Int8Rows(round_int8(np.array([[0.5, -1.0]], np.float32)))
    >>> rows[:1].round(2).tolist()
    [[0.5, -1.0]]
    """

    def __init__(self, rows: NDArray[np.uint8]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector."""
        return int(self._rows.shape[1])

    def __getitem__(self, rows: Any, /) -> _Floats:
        chosen = self._rows[rows]
        scales = np.ascontiguousarray(chosen[:, -_SCALE.itemsize :]).view(_SCALE)
        return np.asarray(chosen[:, : -_SCALE.itemsize].view(np.int8) * scales, np.float32)
