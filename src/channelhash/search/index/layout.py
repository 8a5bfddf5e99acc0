"""What an index is made of and how it is searched: distinct codes and their rows, clusters of them,
a search and what it finds; and checks of arrays that come from a file.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, words
from channelhash.search.checks import MOST_BITS

#: Codes as words: of 32 bits if one word is enough, else of 64.
Words = NDArray[Any]
#: Numbers of rows, or places among them.
RowNumbers = NDArray[np.uint32]

#: Rows are numbered with 32 bits, which is enough and takes half the memory.
_MOST_ROWS = 2**32
#: Neighbouring codes that are given up together once none of them can be near.
CHUNK = 64


class DistinctCodes(NamedTuple):
    """Each code once, in ascending order.

    Attributes:
        codes: ``(words, m)``, a word of neighbouring codes side by side; see `code_words`.
        starts: ``(m + 1,)``: the rows of code ``c`` are ``rows[starts[c] : starts[c + 1]]``, in
            ascending order.
        rows: ``(n,)``.

    >>> find_distinct(np.array([[7], [1], [7]], np.uint8), n_bits=8).rows.tolist()
    [1, 0, 2]
    """

    codes: Words
    starts: RowNumbers
    rows: RowNumbers


def find_distinct(packed: PackedCodes, n_bits: int) -> DistinctCodes:
    """Find the distinct codes among ``(n, ceil(n_bits / 8))`` packed ones.

    >>> find_distinct(np.array([[7], [1], [7]], np.uint8), n_bits=8).codes.shape
    (1, 2)
    """
    if len(packed) >= _MOST_ROWS:
        raise ValueError(
            f"{len(packed)} codes are too many for one index: it numbers rows with 32 bits"
        )
    _check_length(n_bits)
    codes = code_words(packed, n_bits)
    order = _in_order(codes)
    codes = codes[order]
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = (codes[1:] != codes[:-1]).any(axis=1)
    starts = np.append(np.flatnonzero(first), len(codes)).astype(np.uint32)
    return DistinctCodes(np.ascontiguousarray(codes[first].T), starts, order.astype(np.uint32))


def _in_order(codes: Words) -> NDArray[np.int64]:
    """Return the rows of codes ``(n, words)`` in the order of the codes. Ties are broken by row.

    >>> _in_order(np.array([[7, 1], [1, 5], [7, 0], [1, 5]], np.uint64)).tolist()
    [1, 3, 2, 0]
    """
    order = np.argsort(codes[:, 0], kind="stable")
    # The first words of most codes differ; only the others are compared further.
    if codes.shape[1] > 1:
        first = codes[order, 0]
        tied = np.zeros(len(order), dtype=np.bool_)
        tied[1:] = first[1:] == first[:-1]
        tied[:-1] |= tied[1:]
        rows = order[tied]
        order[tied] = rows[np.lexsort(codes[rows].T[::-1])]
    return order


def check_distinct(distinct: DistinctCodes, n_bits: int) -> None:
    """Raise ``ValueError`` if a loop over the arrays could leave one of them."""
    _check_length(n_bits)
    codes, starts, rows = distinct
    word = np.dtype(np.uint32 if n_bits <= 32 else np.uint64)
    check_array(codes, "codes", word, (-(-n_bits // 64), *codes.shape[-1:]))
    check_array(starts, "starts", np.uint32, (codes.shape[1] + 1,))
    check_array(rows, "rows", np.uint32, (rows.size,))
    padding = 8 * word.itemsize * len(codes) - n_bits
    if padding and (codes[-1] & word.type((1 << padding) - 1)).any():
        raise ValueError(f"bits past the {n_bits}th are set")
    if starts[0] != 0 or starts[-1] != len(rows) or (starts[1:] <= starts[:-1]).any():
        raise ValueError(f"starts do not ascend from 0 to the {len(rows)} rows")
    if not _is_permutation(rows):
        raise ValueError("rows are not each there once")


def _is_permutation(rows: RowNumbers) -> bool:
    if not len(rows):
        return True
    return int(rows.max()) < len(rows) and bool(np.bincount(rows, minlength=len(rows)).all())


def check_array(values: NDArray[Any], name: str, kind: Any, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless an array is of this kind and shape.

    >>> check_array(np.zeros(3), "numbers", np.float64, (3,))
    """
    if values.dtype != kind or values.shape != shape:
        raise ValueError(f"{name} are {values.shape} {values.dtype}, not {shape} {np.dtype(kind)}")


def _check_length(n_bits: int) -> None:
    if not 1 <= n_bits <= MOST_BITS:
        raise ValueError(
            f"codes of {n_bits} bits cannot be searched, only those of 1 to {MOST_BITS}"
        )


def code_words(packed: PackedCodes, n_bits: int) -> Words:
    """Return packed codes as words ``(n, words)``, which sort as the codes do.

    Bit ``j`` of a code is the ``j % b``-th highest of word ``j // b``; a word has b bits.

    >>> code_words(np.array([[128]], np.uint8), n_bits=8).tolist()
    [[2147483648]]
    """
    big_endian = words(packed).view(">u8")
    if n_bits <= 32:
        return (big_endian >> np.uint64(32)).astype(np.uint32)
    return big_endian.astype(np.uint64)


class CodeSearch(NamedTuple):
    """One search: of every query, the first ``k`` rows within ``radius`` among those that count.

    Attributes:
        queries: ``(nq, words)``; see `code_words`.
        codes: ``(words, m)``, likewise ``starts`` and ``rows``: see `DistinctCodes`.
        allowed: the rows that count, ``(n,)``; all if it is empty.
        k: 1 to the number of rows.
        radius: 0 to ``n_bits``.
        n_bits: code length.

    >>> codes = find_distinct(np.array([[0], [7]], np.uint8), n_bits=8)
    >>> query = np.zeros((1, 1), np.uint32)
    >>> CodeSearch(query, *codes, np.empty(0, np.bool_), k=1, radius=8, n_bits=8).k
    1
    """

    queries: Words
    codes: Words
    starts: RowNumbers
    rows: RowNumbers
    allowed: NDArray[np.bool_]
    k: int
    radius: int
    n_bits: int


class Matches(NamedTuple):
    """What one query found, nearest first. Ties are broken by row.

    Attributes:
        rows: row numbers in the database.
        distances: number of differing bits.

    >>> Matches(np.array([1]), np.array([0])).rows.tolist()
    [1]
    """

    rows: NDArray[np.int64]
    distances: NDArray[np.int64]


class Clusters(NamedTuple):
    """Clusters of codes around pivots. Codes stand in the order of their pivots, those of one pivot
    by their distance to it, in chunks of 64, the last of which may be smaller.

    Attributes:
        pivots: ``(words, p)``.
        offsets: ``(p + 1,)``: where the codes of each pivot begin, and the number of codes.
        chunks: ``(p + 1,)``, likewise of chunks.
        reach: by chunk, the largest distance of its codes to their pivot.
        farthest: ``(p,)``, the largest distance of a pivot's codes to it.
        cost: ``(1,)``, what a search costs, in words that a scan reads in that time.
    """

    pivots: Words
    offsets: RowNumbers
    chunks: RowNumbers
    reach: NDArray[np.uint16]
    farthest: NDArray[np.uint16]
    cost: NDArray[np.int64]


def check_clusters(clusters: Clusters, codes: Words) -> None:
    """Raise ``ValueError`` if a search in the clusters could leave an array."""
    pivots, offsets, chunks, reach, farthest, cost = clusters
    p = max(pivots.size // len(codes), 1)
    m = codes.shape[1]
    check_array(pivots, "pivots", codes.dtype, (len(codes), p))
    check_array(offsets, "offsets of pivots", np.uint32, (p + 1,))
    check_array(chunks, "chunks of pivots", np.uint32, (p + 1,))
    check_array(cost, "costs", np.int64, (1,))
    check_array(farthest, "farthest distances", np.uint16, (p,))
    if offsets[0] != 0 or offsets[-1] != m or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"offsets of pivots do not ascend from 0 to the {m} codes")
    if not np.array_equal(chunks, count_chunks(np.diff(offsets))):
        raise ValueError("chunks of pivots do not follow from their offsets")
    check_array(reach, "reaches of chunks", np.uint16, (int(chunks[-1]),))


def count_chunks(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Return where the chunks of clusters begin, and the number of chunks.

    >>> count_chunks(np.array([65, 0, 3])).tolist()
    [0, 2, 2, 3]
    """
    return np.append(0, np.cumsum(-(-sizes.astype(np.int64) // CHUNK)))
