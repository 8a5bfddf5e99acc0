"""Graded relevance: what the items of a database are worth to a query by the similarity of their labels.

The gain of an item is S, the cosine of its labels and the query's (eq. (1) of the paper), linear. Gains are kept as
whole numbers of 2⁻³², so that sums over the shards of a database are exact in any order; and as a / √s for an item of s
labels that shares a of them, because a query's own factor 1 / √(its number of labels) cancels in NDCG.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_UNITS = 2.0**32


@dataclass(frozen=True)
class LabelGains:
    """Gains of the items of a database for every query, in units of 2⁻³² / √(number of the query's labels).

    The last three are lists of equal length, ordered by query and falling gain: ``count`` items are worth ``gain`` to
    ``query``. Items that are worth nothing are not listed.

    Attributes:
        by_distance: ``(nq, k + 1)`` int64, sum of the gains at distance d.
        query: int64, rows of ``by_distance``.
        gain: int64, above 0.
        count: int64, above 0.

    >>> lists = np.array([0]), np.array([5]), np.array([2])
    >>> gains = LabelGains(np.array([[10, 0]]), *lists)
    >>> (gains + gains).count.tolist()
    [4]
    """

    by_distance: Counts
    query: Counts
    gain: Counts
    count: Counts

    def __add__(self, other: "LabelGains") -> "LabelGains":
        """Return the gains of the same queries over both shards of a database."""
        lists = [(gains.query, gains.gain, gains.count) for gains in (self, other)]
        return label_gains(self.by_distance + other.by_distance, lists)


def gain_units(sizes: NDArray[Any], width: int) -> Counts:
    """Compute the gain of an item of s labels that shares a of them, for each s in ``sizes`` and a = 0 … ``width`` − 1:
    ``(len(sizes), width)`` whole numbers of 2⁻³².

    >>> (gain_units(np.array([1, 4]), width=2) / 2**32).tolist()
    [[0.0, 1.0], [0.0, 0.5]]
    """
    of_labels = np.sqrt(np.maximum(sizes, 1))[:, None]
    units: Counts = np.rint(_UNITS * np.arange(width) / of_labels).astype(np.int64)
    return units


GainLists = tuple[Counts, Counts, Counts]


def gain_lists(shared: Counts, units: Counts, first: int) -> GainLists:
    """List (query, gain, count) as `LabelGains` does for some queries, in its order; a gain may come several times.

    Args:
        shared: ``(queries, sizes, width)``, how many items of each size share how many labels with a query.
        units: `gain_units` of the same sizes and width.
        first: row of the first of these queries.

    >>> units = gain_units(np.array([1]), width=2)
    >>> gain_lists(np.array([[[5, 2]]]), units, first=0)[2].tolist()
    [2]
    """
    worth = units.ravel()
    falling = np.argsort(-worth, kind="stable")
    falling = falling[: np.count_nonzero(worth)]
    counts = shared.reshape(len(shared), -1)[:, falling]
    query, cell = np.nonzero(counts)
    return query + first, worth[falling[cell]], counts[query, cell]


def label_gains(by_distance: Counts, lists: Sequence[GainLists]) -> LabelGains:
    """Make gains from their sums by distance and from lists in which a gain may come several times.

    A single list is in order. Counts may be negative, to take items away; gains of no item are not listed.

    >>> lists = [(np.array([0, 0]), np.array([5, 5]), np.array([1, 2]))]
    >>> label_gains(np.array([[15, 0]]), lists).count.tolist()
    [3]
    """
    nothing = (np.empty(0, np.int64),) * 3
    query, gain, count = (np.concatenate(parts) for parts in zip(nothing, *lists, strict=True))
    if len(lists) > 1:
        order = np.lexsort((-gain, query))
        query, gain, count = query[order], gain[order], count[order]
    new = np.ones(len(query), dtype=bool)
    new[1:] = (np.diff(query) != 0) | (np.diff(gain) != 0)
    starts = np.flatnonzero(new)
    counts = np.add.reduceat(count, starts) if len(starts) else count
    some = counts != 0
    return LabelGains(by_distance, query[new][some], gain[new][some], counts[some])
