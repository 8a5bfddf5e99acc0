"""The tables of multi-index hashing, as they are kept; `multi_index_hashing` builds and searches them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.deduplicate import Rows, Words, is_permutation

#: Bits of the longest substring: larger tables would not stay in any cache.
WIDEST = 24


class Tables(NamedTuple):
    """One table a substring. That of the first substring is the ascending order of the codes itself.

    Attributes:
        layout: ``(t, 4)``: of each substring its word, the number of lower bits in that word, its number of bits, and
            where its offsets begin.
        offsets: all tables', one after another: bucket ``b`` of a table goes from its ``offsets[b]`` to the next.
        codes: ``(t − 1, words, m)``: the codes by the value of their substring, so that a bucket lies in one place.
        numbers: ``(t − 1, m)``: the numbers of these codes.
    """

    layout: NDArray[np.int64]
    offsets: Rows
    codes: Words
    numbers: Rows


def check_tables(tables: Tables, codes: Words) -> None:
    """Raise ``ValueError`` unless the tables, whoever made them, are such that no search in them can leave an array.

    Args:
        tables: of ``codes``.
        codes: ``(words, m)``, checked by `deduplicate.check_distinct`.

    >>> from channelhash.search.index.multi_index_hashing import build_tables
    >>> codes = np.array([[1, 6, 9]], np.uint32)
    >>> check_tables(build_tables(codes, n_bits=8), codes)
    """
    layout, offsets, listed, numbers = tables
    (n_words, m), word_bits = codes.shape, 8 * codes.itemsize
    if layout.dtype != np.int64 or layout.ndim != 2 or layout.shape[1] != 4 or not len(layout):
        raise ValueError(f"a layout of tables is (t, 4) int64, not {layout.shape} {layout.dtype}")
    words, shifts, widths, starts = layout.T
    # Each by itself before their sum: that of large numbers is small.
    if not (
        ((words >= 0) & (words < n_words) & (shifts >= 0) & (shifts < word_bits)).all()
        and ((widths >= 1) & (widths <= WIDEST)).all()
        and (shifts + widths <= word_bits).all()
    ):
        raise ValueError("a table's substring lies outside of the codes")
    ends = np.cumsum((1 << widths) + 1)
    if offsets.dtype != np.uint32 or offsets.shape != (ends[-1],) or (starts[1:] != ends[:-1]).any() or starts[0]:
        raise ValueError(f"offsets {offsets.shape} {offsets.dtype} are not those of the tables")
    if listed.dtype != codes.dtype or listed.shape != (len(layout) - 1, n_words, m):
        raise ValueError(f"codes of the tables are {listed.shape} {listed.dtype}")
    if numbers.dtype != np.uint32 or numbers.shape != (len(layout) - 1, m):
        raise ValueError(f"numbers of the tables are {numbers.shape} {numbers.dtype}")
    for buckets in np.split(offsets, ends[:-1]):
        if buckets[0] != 0 or buckets[-1] != m or (buckets[1:] < buckets[:-1]).any():
            raise ValueError(f"a table's offsets do not ascend from 0 to the {m} codes")
    if not all(map(is_permutation, numbers)):
        raise ValueError("a table does not list each code once")
