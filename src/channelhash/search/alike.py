"""Whether two pictures are copies of one photograph, as small grey copies of them tell: near codes may be of one scene.

A grey copy has 16 × 16 means of the upright picture, whatever its proportions. Without the means of its rows and
columns, which all pictures with a horizon share, 256 values of mean 0 are left. Two pictures are alike if these
correlate:

    (⟨a, b⟩ / 256 + 4) / sqrt((⟨a, a⟩ / 256 + 4) (⟨b, b⟩ / 256 + 4)) >= 0.85

The 4 makes pictures without contrast alike. Size, compression, brightness and contrast change little, a border of 5 %
that is cut off somewhat more.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.utils.image_decoding import decode
from channelhash.utils.image_files import open_image

#: ``(256,)`` uint8 of a picture; None of one that is not there or cannot be read.
Grey = NDArray[np.uint8] | None

_SIDE, _LEAST = 16, 0.85
_CONTRAST = 4 * _SIDE**6  # the sum of 256 squares, of values times 256
# Grey copies that are kept in memory, some 30 MB; pictures that are compared with as many others at a time.
_CACHED, _TILE = 1 << 16, 1 << 10


def read_greys(paths: Sequence[str]) -> list[Grey]:
    """Read the grey copies of picture files, several at a time; an empty path has none.

    >>> read_greys(["", "nowhere.jpg"])
    [None, None]
    """
    with ThreadPoolExecutor() as pool:
        return list(pool.map(read_grey, paths))


def read_grey(path: str) -> Grey:
    """Read the grey copy of one picture file; the last ones are kept until their files change."""
    try:
        return _read_grey(path, Path(path).stat().st_mtime_ns) if path else None
    except OSError:
        return None


@lru_cache(_CACHED)
def _read_grey(path: str, _changed: int) -> NDArray[np.uint8]:
    with open_image(path) as opened:
        grey = decode(opened, 4 * _SIDE).convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(grey, dtype=np.uint8).ravel()


def alike(greys: Sequence[Grey], others: Sequence[Grey]) -> NDArray[np.bool_]:
    """Return for each of ``n`` pictures and each of ``m`` others whether they are alike; also two that are not known.

    Args:
        greys: ``n`` grey copies.
        others: ``m`` grey copies.

    Returns:
        ``(n, m)``; exact, in whatever order pictures are compared.

    >>> dark = np.outer(np.arange(16), np.arange(16)).astype(np.uint8) // 2
    >>> alike([dark.ravel(), None], [2 * dark.ravel(), 2 * dark[::-1].ravel()]).tolist()
    [[True, False], [False, False]]
    """
    known, other_known = (np.array([grey is not None for grey in side], dtype=bool) for side in (greys, others))
    a, b = _centred(greys), _centred(others)
    lengths = [np.sqrt((side**2).sum(axis=1) + _CONTRAST) for side in (a, b)]
    near: NDArray[np.bool_] = a @ b.T + _CONTRAST >= _LEAST * np.outer(*lengths)
    near[~known] = ~other_known
    near[:, ~other_known] = ~known[:, None]
    return near


def split_alike(codes: PackedCodes, greys: Sequence[Grey], radius: int) -> list[NDArray[np.int64]]:
    """Find the groups of items that are connected by steps of at most ``radius`` bits between pictures that are alike.

    Args:
        codes: ``(n, b)`` packed codes.
        greys: ``n`` grey copies; codes alone decide between two that are not known.
        radius: in bits, inclusive.

    Returns:
        Of each group of two or more, its places in ascending order. O(n²) time, O(n) memory.

    >>> a, b = np.outer(np.arange(16), np.arange(16)).astype(np.uint8), np.eye(16, dtype=np.uint8) * 99
    >>> [places.tolist() for places in split_alike(np.zeros((3, 1), np.uint8), [a.ravel(), b.ravel(), a.ravel()], 0)]
    [[0, 2]]
    """
    numbers = np.arange(len(codes))
    tiles = [slice(start, start + _TILE) for start in range(0, len(codes), _TILE)]
    for tile, other in combinations_with_replacement(tiles, 2):
        near = alike(greys[tile], greys[other]) & (hamming_distances(codes[tile], codes[other]) <= radius)
        near &= numbers[tile, None] != numbers[other]
        if near.any():
            rows, columns = np.nonzero(near)
            numbers = _joined(numbers, rows + tile.start, columns + other.start)
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    return [group for group in groups if len(group) > 1]


def _joined(numbers: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the groups ``(n,)`` after joining those of each row and its column."""
    roots = np.arange(len(numbers))  # of each group, the smallest number among those that it is joined with so far
    while True:
        one, other = roots[numbers[rows]], roots[numbers[columns]]
        if np.array_equal(one, other):
            joined: NDArray[np.int64] = roots[numbers]
            return joined
        np.minimum.at(roots, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]


def _centred(greys: Sequence[Grey]) -> NDArray[np.float64]:
    """Return 256 times the grey copies without means of rows and columns, ``(n, 256)``; zeros for those not known.

    These are whole numbers below 2 ** 17: sums of their products are exact, in any order.
    """
    images = np.zeros((len(greys), _SIDE, _SIDE))
    for image, grey in zip(images, greys, strict=True):
        if grey is not None:
            image[:] = grey.reshape(_SIDE, _SIDE)
    rows, columns = images.sum(axis=2, keepdims=True), images.sum(axis=1, keepdims=True)
    total = rows.sum(axis=1, keepdims=True)
    centred: NDArray[np.float64] = _SIDE**2 * images - _SIDE * (rows + columns) + total
    return centred.reshape(len(greys), _SIDE**2)
