"""The pass over all distinct codes with NumPy alone, for the first searches of a process: nothing is compiled."""

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.arrays import Search
from channelhash.search.index.brute_force import Matches


def nearest(search: Search) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius.

    >>> from channelhash.search.index.arrays import distinct_codes
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> nearest(search)[0].rows.tolist(), within(search)[0].rows.tolist()
    ([0], [0, 1])
    """
    sizes = _sizes(search)
    found = []
    for query in search.queries:
        distances = _distances(query, search)
        # Every row at the distance at which k are met, and at a smaller one, is a candidate.
        met = np.cumsum(np.bincount(distances, sizes, minlength=search.n_bits + 1))
        limit = min(int(np.searchsorted(met, search.k)), search.radius)
        found.append(_rows(search, distances, limit, search.k))
    return found


def within(search: Search) -> list[Matches]:
    """Find all rows of each query within the radius, whatever ``k``; see `nearest`."""
    return [_rows(search, _distances(query, search), search.radius, None) for query in search.queries]


def _sizes(search: Search) -> NDArray[np.int64] | None:
    """Return the number of rows of each code that count; None where that is 1 for all."""
    if len(search.allowed):
        return np.add.reduceat(search.allowed[search.rows], search.starts[:-1], dtype=np.int64)
    return (
        None if len(search.rows) == search.codes.shape[1] else search.starts[1:].astype(np.int64) - search.starts[:-1]
    )


def _distances(query: NDArray[np.unsignedinteger], search: Search) -> NDArray[np.uint16]:
    distances = np.zeros(search.codes.shape[1], np.uint16)
    for word, column in zip(query, search.codes, strict=True):
        distances += np.bitwise_count(column ^ word)
    return distances


def _rows(search: Search, distances: NDArray[np.uint16], limit: int, count: int | None) -> Matches:
    """Return the first rows that count of codes within the limit, by distance, then by row."""
    near = np.flatnonzero(distances <= limit)
    starts = search.starts[near].astype(np.int64)
    sizes = search.starts[near + 1] - starts
    # The places of a code's rows: its start, and so on as often as it has rows.
    places = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    rows, far = search.rows[places].astype(np.int64), np.repeat(distances[near].astype(np.int64), sizes)
    if len(search.allowed):
        counts = search.allowed[rows]
        rows, far = rows[counts], far[counts]
    order = np.lexsort((rows, far))[:count]
    return Matches(rows[order], far[order])
