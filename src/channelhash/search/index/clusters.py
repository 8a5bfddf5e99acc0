"""Codes in clusters, as they are kept; `cluster_codes` makes them and `clustered_scan` searches them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.deduplicate import Rows, Words


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
        codes: ``(words, m)``, checked by `deduplicate.check_distinct`.

    >>> codes = np.array([[1, 6, 9]], np.uint32)
    >>> one = Clusters(codes[:, :1], np.array([3], np.uint16), np.array([[0, 1, 3]], np.uint32), np.array([1]))
    >>> check_clusters(one, codes)
    """
    pivots, reach, offsets, shift = clusters
    n_words, m = codes.shape
    if pivots.dtype != codes.dtype or pivots.ndim != 2 or len(pivots) != n_words or not pivots.shape[1]:
        raise ValueError(f"pivots of these codes are ({n_words}, p) {codes.dtype}, not {pivots.shape} {pivots.dtype}")
    p = pivots.shape[1]
    if reach.dtype != np.uint16 or reach.shape != (p,):
        raise ValueError(f"the reach of {p} pivots is {reach.shape} {reach.dtype}")
    if shift.dtype != np.int64 or shift.shape != (1,) or not 0 <= shift[0] < 16:
        raise ValueError("a shift of distances is one number from 0 to 15")
    if offsets.dtype != np.uint32 or offsets.ndim != 2 or len(offsets) != p or offsets.shape[1] < 2:
        raise ValueError(f"offsets of {p} pivots are {offsets.shape} {offsets.dtype}")
    places = offsets.ravel()
    if (
        places[0] != 0
        or places[-1] != m
        or (places[1:] < places[:-1]).any()
        or (offsets[1:, 0] != offsets[:-1, -1]).any()
    ):
        raise ValueError(f"offsets of pivots do not ascend from 0 to the {m} codes")
