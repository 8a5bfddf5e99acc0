"""What is searched for, and in what: the arrays that every way of searching gets."""

from typing import NamedTuple

from channelhash.search.index.deduplicate import Mask, Rows, Words


class Search(NamedTuple):
    """One search: of every query, the first ``k`` rows within ``radius`` among those that count.

    Attributes:
        queries: ``(nq, words)``; see `deduplicate.code_words`.
        codes: ``(words, m)``, likewise ``starts`` and ``rows``: see `deduplicate.DistinctCodes`.
        allowed: the rows that count, ``(n,)``; all if it is empty.
        k: 1 to the number of rows.
        radius: 0 to ``n_bits``.
        n_bits: code length.

    >>> import numpy as np
    >>> from channelhash.search.index.deduplicate import distinct_codes
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
