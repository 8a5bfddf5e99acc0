"""Exact search by comparing all pairs of codes: the reference for what is faster, and enough for few codes."""

from collections.abc import Iterator, Sequence

import numpy as np

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.index import Matches

# Distances held at a time, over a block of queries: 128 MB.
_BLOCK_ENTRIES = 1 << 24


def nearest(queries: PackedCodes, database: PackedCodes, ids: Sequence[str], k: int) -> list[Matches]:
    """Find the ``k`` nearest database codes of every query, or all where there are fewer.

    Args:
        queries: ``(nq, b)`` packed codes.
        database: ``(nd, b)`` packed codes.
        ids: ``nd`` names; they decide the order of equal distances.
        k: at least 1.

    O(nq · nd · (b / 8 + log nd)) time; memory for a block of distances beside the inputs.

    >>> matches = nearest(np.array([[0]], np.uint8), np.array([[7], [1]], np.uint8), ["a", "b"], k=2)
    >>> matches[0].rows.tolist(), matches[0].distances.tolist()
    ([1, 0], [1, 3])
    """
    if k < 1:
        raise ValueError(f"k is {k}; at least 1 item can be asked for")
    return [Matches(match.rows[:k], match.distances[:k]) for match in _in_order(queries, database, ids)]


def within(queries: PackedCodes, database: PackedCodes, ids: Sequence[str], radius: int) -> list[Matches]:
    """Find all database codes at distance <= ``radius`` of every query; arguments and cost as in `nearest`.

    >>> within(np.array([[0]], np.uint8), np.array([[7], [1]], np.uint8), ["a", "b"], radius=2)[0].rows.tolist()
    [1]
    """
    if radius < 0:
        raise ValueError(f"radius is {radius}; a distance is at least 0")
    ordered = _in_order(queries, database, ids)
    near = ((match, np.searchsorted(match.distances, radius, side="right")) for match in ordered)
    return [Matches(match.rows[:n], match.distances[:n]) for match, n in near]


def _in_order(queries: PackedCodes, database: PackedCodes, ids: Sequence[str]) -> Iterator[Matches]:
    """Yield of each query in turn all codes by (distance, id)."""
    by_id = np.argsort(np.asarray(ids, dtype=str), kind="stable")
    database = database[by_id]
    block = max(1, _BLOCK_ENTRIES // max(1, len(database)))
    for start in range(0, len(queries), block):
        for distances in hamming_distances(queries[start : start + block], database):
            order = np.argsort(distances, kind="stable")
            yield Matches(by_id[order], distances[order])
