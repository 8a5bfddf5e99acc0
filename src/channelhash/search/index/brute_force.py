"""Exact nearest codes by Hamming distance, in memory, with NumPy alone: nothing is compiled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.index.arrays import Search

# Distances held at a time, over a block of queries: 128 MB.
_BLOCK_ENTRIES = 1 << 24


@dataclass(frozen=True)
class Matches:
    """What one query found, nearest first, equal distances by id.

    Attributes:
        rows: row numbers in the database.
        distances: number of differing bits.

    >>> nearest(np.array([[0]], np.uint8), np.array([[7], [1]], np.uint8), ["a", "b"], k=1)[0].rows.tolist()
    [1]
    """

    rows: NDArray[np.int64]
    distances: NDArray[np.int64]


def nearest(queries: PackedCodes, database: PackedCodes, ids: Sequence[str], k: int) -> list[Matches]:
    """Find the ``k`` nearest database codes of every query, or all where there are fewer.

    Args:
        queries: ``(nq, b)`` packed codes.
        database: ``(nd, b)`` packed codes.
        ids: ``nd`` names; they decide the order of equal distances.
        k: at least 1.

    O(nq · nd · b / 8) time; memory for a block of distances beside the inputs.

    >>> matches = nearest(np.array([[0]], np.uint8), np.array([[7], [1]], np.uint8), ["a", "b"], k=2)
    >>> matches[0].rows.tolist(), matches[0].distances.tolist()
    ([1, 0], [1, 3])
    """
    if k < 1:
        raise ValueError(f"k is {k}; at least 1 item can be asked for")
    return [_first(distances, rank, k) for distances, rank in _distances(queries, database, ids)]


def within(queries: PackedCodes, database: PackedCodes, ids: Sequence[str], radius: int) -> list[Matches]:
    """Find all database codes at distance <= ``radius`` of every query; arguments and cost as in `nearest`.

    >>> within(np.array([[0]], np.uint8), np.array([[7], [1]], np.uint8), ["a", "b"], radius=2)[0].rows.tolist()
    [1]
    """
    if radius < 0:
        raise ValueError(f"radius is {radius}; a distance is at least 0")
    return [
        _first(distances, rank, int((distances <= radius).sum()))
        for distances, rank in _distances(queries, database, ids)
    ]


def _distances(queries: PackedCodes, database: PackedCodes, ids: Sequence[str]):  # type: ignore[no-untyped-def]
    """(distances to all items, rank of all ids) for each query in turn."""
    rank = np.empty(len(ids), dtype=np.int64)
    rank[np.argsort(np.asarray(ids, dtype=str), kind="stable")] = np.arange(len(ids))
    block = max(1, _BLOCK_ENTRIES // max(1, len(database)))
    for start in range(0, len(queries), block):
        for row in hamming_distances(queries[start : start + block], database):
            yield row, rank


def _first(distances: NDArray[np.int64], rank: NDArray[np.int64], count: int) -> Matches:
    """Return the first ``count`` items by (distance, id)."""
    count = min(count, len(distances))
    key = distances * len(rank) + rank
    rows = np.argpartition(key, count - 1)[:count] if 0 < count < len(key) else np.arange(count)
    rows = rows[np.argsort(key[rows])]
    return Matches(rows.astype(np.int64), distances[rows])


def scan_nearest(search: Search) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius, for the first searches of a process.

    >>> from channelhash.search.index.arrays import distinct_codes
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> scan_nearest(search)[0].rows.tolist(), scan_within(search)[0].rows.tolist()
    ([0], [0, 1])
    """
    sizes = _sizes(search)
    found = []
    for query in search.queries:
        distances = _word_distances(query, search)
        # Every row at the distance at which k are met, and at a smaller one, is a candidate.
        met = np.cumsum(np.bincount(distances, sizes, minlength=search.n_bits + 1))
        limit = min(int(np.searchsorted(met, search.k)), search.radius)
        found.append(_rows(search, distances, limit, search.k))
    return found


def scan_within(search: Search) -> list[Matches]:
    """Find all rows of each query within the radius, whatever ``k``; see `scan_nearest`."""
    return [_rows(search, _word_distances(query, search), search.radius, None) for query in search.queries]


def _sizes(search: Search) -> NDArray[np.int64] | None:
    """Return the number of rows of each code that count; None where that is 1 for all."""
    if len(search.allowed):
        return np.add.reduceat(search.allowed[search.rows], search.starts[:-1], dtype=np.int64)
    if len(search.rows) == search.codes.shape[1]:
        return None
    return search.starts[1:].astype(np.int64) - search.starts[:-1]


def _word_distances(query: NDArray[np.unsignedinteger], search: Search) -> NDArray[np.uint16]:
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
