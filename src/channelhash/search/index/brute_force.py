"""The arrays of an index, and exact search in them with NumPy alone: nothing is compiled.

An index keeps each distinct code once, with the rows that have it, and clusters of codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances, words
from channelhash.search.items import MOST_BITS

#: Codes as words of 32 bits where one is enough, else of 64.
Words = NDArray[Any]
Rows = NDArray[np.uint32]
#: The rows that count, ``(n,)``; all if it is empty.
Mask = NDArray[np.bool_]

_MOST_ROWS = 2**32


class DistinctCodes(NamedTuple):
    """Each code once, in ascending order.

    Attributes:
        codes: ``(words, m)``, a word of neighbouring codes side by side; see `code_words`.
        starts: ``(m + 1,)``: the rows of code ``c`` are ``rows[starts[c] : starts[c + 1]]``, in ascending order.
        rows: ``(n,)``.

    >>> distinct_codes(np.array([[7], [1], [7]], np.uint8), n_bits=8).rows.tolist()
    [1, 0, 2]
    """

    codes: Words
    starts: Rows
    rows: Rows


def distinct_codes(packed: PackedCodes, n_bits: int) -> DistinctCodes:
    """Find the distinct ones of ``(n, ceil(n_bits / 8))`` packed codes.

    Raises:
        ValueError: there are 2³² rows or more, or codes of more than 65,534 bits.

    >>> distinct_codes(np.array([[7], [1], [7]], np.uint8), n_bits=8).codes.shape
    (1, 2)
    """
    if len(packed) >= _MOST_ROWS:
        raise ValueError(f"{len(packed)} codes are too many for one index: it numbers rows with 32 bits")
    _check_length(n_bits)
    codes = code_words(packed, n_bits)
    order = np.lexsort(codes.T[::-1])  # stable: rows of one code stay in ascending order
    codes = codes[order]
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = (codes[1:] != codes[:-1]).any(axis=1)
    starts = np.append(np.flatnonzero(first), len(codes)).astype(np.uint32)
    return DistinctCodes(np.ascontiguousarray(codes[first].T), starts, order.astype(np.uint32))


def check_distinct(distinct: DistinctCodes, n_bits: int) -> None:
    """Raise ``ValueError`` unless arrays, whoever made them, are such that no loop over them can leave one.

    >>> check_distinct(distinct_codes(np.array([[7], [1], [7]], np.uint8), n_bits=8), n_bits=8)
    """
    _check_length(n_bits)
    codes, starts, rows = distinct
    word = np.dtype(np.uint32 if n_bits <= 32 else np.uint64)
    _check(codes, "codes", word, (-(-n_bits // 64), *codes.shape[-1:]))
    _check(starts, "starts", np.uint32, (codes.shape[1] + 1,))
    _check(rows, "rows", np.uint32, (rows.size,))
    padding = 8 * word.itemsize * len(codes) - n_bits
    if padding and (codes[-1] & word.type((1 << padding) - 1)).any():
        raise ValueError(f"bits past the {n_bits}th are set")
    if starts[0] != 0 or starts[-1] != len(rows) or (starts[1:] <= starts[:-1]).any():
        raise ValueError(f"starts do not ascend from 0 to the {len(rows)} rows")
    if not _is_permutation(rows):
        raise ValueError("rows are not each there once")


def _check(values: NDArray[Any], name: str, kind: Any, shape: tuple[int, ...]) -> None:
    if values.dtype != kind or values.shape != shape:
        raise ValueError(f"{name} are {values.shape} {values.dtype}, not {shape} {np.dtype(kind)}")


def _is_permutation(numbers: Rows) -> bool:
    """Return whether each number below their count is there once.

    >>> _is_permutation(np.array([1, 0, 2])), _is_permutation(np.array([1, 1, 2]))
    (True, False)
    """
    n = len(numbers)
    return not n or bool(int(numbers.max()) < n and np.bincount(numbers, minlength=n).all())


def _check_length(n_bits: int) -> None:
    if not 1 <= n_bits <= MOST_BITS:
        raise ValueError(f"codes of {n_bits} bits cannot be searched, only those of 1 to {MOST_BITS}")


def code_words(packed: PackedCodes, n_bits: int) -> Words:
    """Return packed codes as words ``(n, words)``, whose order is that of the codes.

    Bit ``j`` of a code is the ``j % b``-th highest of word ``j // b``; a word has b bits.

    >>> code_words(np.array([[128]], np.uint8), n_bits=8).tolist()
    [[2147483648]]
    """
    big_endian = words(packed).view(">u8")
    return (big_endian >> np.uint64(32)).astype(np.uint32) if n_bits <= 32 else big_endian.astype(np.uint64)


def rows_by_number(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each number, in ascending order.

    >>> [rows.tolist() for rows in rows_by_number(np.array([4, 2, 4]))]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


class Search(NamedTuple):
    """One search: of every query, the first ``k`` rows within ``radius`` among those that count.

    Attributes:
        queries: ``(nq, words)``; see `code_words`.
        codes: ``(words, m)``, likewise ``starts`` and ``rows``: see `DistinctCodes`.
        allowed: the rows that count, ``(n,)``; all if it is empty.
        k: 1 to the number of rows.
        radius: 0 to ``n_bits``.
        n_bits: code length.

    >>> import numpy as np
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8).k
    1
    """

    queries: Words
    codes: Words
    starts: Rows
    rows: Rows
    allowed: Mask
    k: int
    radius: int
    n_bits: int


class Clusters(NamedTuple):
    """Each code belongs to one pivot, and codes stand in the order of pivots, those of a pivot by their distance to it.

    Attributes:
        pivots: ``(words, p)``.
        reach: ``(p,)``: the largest distance of a pivot's codes to it.
        offsets: ``(p, columns + 1)``: codes of pivot ``c`` at distances from ``column << shift`` on begin at
            ``offsets[c, column]``; the last column is where the pivot's codes end.
        shift: ``(1,)``.
    """

    pivots: Words
    reach: NDArray[np.uint16]
    offsets: Rows
    shift: NDArray[np.int64]


def check_clusters(clusters: Clusters, codes: Words) -> None:
    """Raise ``ValueError`` unless clusters, whoever made them, are such that no search in them can leave an array.

    Args:
        clusters: of ``codes``.
        codes: ``(words, m)``, checked by `check_distinct`.

    >>> codes = np.array([[1, 6, 9]], np.uint32)
    >>> one = Clusters(codes[:, :1], np.array([3], np.uint16), np.array([[0, 1, 3]], np.uint32), np.array([1]))
    >>> check_clusters(one, codes)
    """
    pivots, reach, offsets, shift = clusters
    p, m = max(pivots.size // len(codes), 1), codes.shape[1]
    _check(pivots, "pivots", codes.dtype, (len(codes), p))
    _check(reach, "reaches of pivots", np.uint16, (p,))
    _check(shift, "shifts", np.int64, (1,))
    _check(offsets, "offsets", np.uint32, (p, max(offsets.size // p, 2)))
    places = offsets.ravel()
    ascend = (places[1:] >= places[:-1]).all() and (offsets[1:, 0] == offsets[:-1, -1]).all()
    if not 0 <= shift[0] < 16 or places[0] != 0 or places[-1] != m or not ascend:
        raise ValueError(f"offsets of pivots do not ascend from 0 to the {m} codes")


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

    >>> from channelhash.search.index.brute_force import distinct_codes
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
