"""Codes without repetition: each distinct code once, with the rows that have it."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, words

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
        ValueError: there are 2³² rows or more.

    >>> distinct_codes(np.array([[7], [1], [7]], np.uint8), n_bits=8).codes.shape
    (1, 2)
    """
    if len(packed) >= _MOST_ROWS:
        raise ValueError(f"{len(packed)} codes are too many for one index: it numbers rows with 32 bits")
    codes = code_words(packed, n_bits)
    order = np.lexsort(codes.T[::-1])  # stable: rows of one code stay in ascending order
    codes = codes[order]
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = (codes[1:] != codes[:-1]).any(axis=1)
    starts = np.append(np.flatnonzero(first), len(codes)).astype(np.uint32)
    return DistinctCodes(np.ascontiguousarray(codes[first].T), starts, order.astype(np.uint32))


def code_words(packed: PackedCodes, n_bits: int) -> Words:
    """Return packed codes as words ``(n, words)``, whose order is that of the codes.

    Bit ``j`` of a code is the ``j % b``-th highest of word ``j // b``; a word has b bits.

    >>> code_words(np.array([[128]], np.uint8), n_bits=8).tolist()
    [[2147483648]]
    """
    big_endian = words(packed).view(">u8")
    return (big_endian >> np.uint64(32)).astype(np.uint32) if n_bits <= 32 else big_endian.astype(np.uint64)
