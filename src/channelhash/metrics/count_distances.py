"""From codes and label sets to counts: what goes into the compiled passes, and what comes out.

The gain of an item is S, the cosine of its labels and the query's (eq. (1) of the paper), linear. Gains are kept as
whole numbers of 2⁻³², so that sums over the shards of a database are exact in any order; and as a / √s for an item of s
labels that shares a of them, because a query's own factor 1 / √(its number of labels) cancels in NDCG.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed, words
from channelhash.codes.code_set import boolean_labels
from channelhash.metrics import numba_kernels as kernel
from channelhash.metrics.numba_kernels import Pairs, Totals

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
        return _label_gains(self.by_distance + other.by_distance, lists)


def _gain_units(sizes: NDArray[Any], width: int) -> Counts:
    """Compute the gain of an item of s labels that shares a of them, for each s in ``sizes`` and a = 0 … ``width`` − 1:
    ``(len(sizes), width)`` whole numbers of 2⁻³².

    >>> (_gain_units(np.array([1, 4]), width=2) / 2**32).tolist()
    [[0.0, 1.0], [0.0, 0.5]]
    """
    of_labels = np.sqrt(np.maximum(sizes, 1))[:, None]
    units: Counts = np.rint(_UNITS * np.arange(width) / of_labels).astype(np.int64)
    return units


_GainLists = tuple[Counts, Counts, Counts]


def _gain_lists(shared: Counts, units: Counts, first: int) -> _GainLists:
    """List (query, gain, count) as `LabelGains` does for some queries, in its order; a gain may come several times.

    Args:
        shared: ``(queries, sizes, width)``, how many items of each size share how many labels with a query.
        units: `_gain_units` of the same sizes and width.
        first: row of the first of these queries.

    >>> units = _gain_units(np.array([1]), width=2)
    >>> _gain_lists(np.array([[[5, 2]]]), units, first=0)[2].tolist()
    [2]
    """
    worth = units.ravel()
    falling = np.argsort(-worth, kind="stable")
    falling = falling[: np.count_nonzero(worth)]
    counts = shared.reshape(len(shared), -1)[:, falling]
    query, cell = np.nonzero(counts)
    return query + first, worth[falling[cell]], counts[query, cell]


def _label_gains(by_distance: Counts, lists: Sequence[_GainLists]) -> LabelGains:
    """Make gains from their sums by distance and from lists in which a gain may come several times.

    A single list is in order. Counts may be negative, to take items away; gains of no item are not listed.

    >>> lists = [(np.array([0, 0]), np.array([5, 5]), np.array([1, 2]))]
    >>> _label_gains(np.array([[15, 0]]), lists).count.tolist()
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


Labels = NDArray[np.bool_]
_Words = NDArray[np.uint64]
#: ``(p, 2)`` rows of a query and of an item.
RowPairs = NDArray[np.int64]

# Cells of the counts by shared labels that are held at once: 32 MB.
_CELLS = 1 << 22


class _DistanceCounts(NamedTuple):
    """What one pass counts for every query, by distance: n_d and n_d⁺, ``(nq, k + 1)`` int64 each, and the gains.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> count_distances(codes, codes, labels, labels, n_bits=8).relevant[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 0]
    """

    total: Counts
    relevant: Counts
    gains: LabelGains


class _SizeSegments(NamedTuple):
    """Items in the order of how many labels they have.

    Attributes:
        order: ``(n,)`` rows of the items.
        sizes: ``(segments,)`` the numbers of labels that occur, rising.
        ends: ``(segments,)`` where the items of each end.

    >>> by_label_count(np.array([2, 1, 2])).sizes.tolist()
    [1, 2]
    """

    order: NDArray[np.int64]
    sizes: NDArray[np.int64]
    ends: NDArray[np.int64]


def checked_pairs(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    n_bits: int,
) -> tuple[Labels, Labels]:
    """Check codes and labels, and return the label sets of queries and database as bool.

    Raises:
        ValueError: lengths or widths do not fit, labels are neither bool nor 0 and 1, or the database is empty.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> checked_pairs(codes, codes, labels, labels, n_bits=8)[0].tolist()
    [[True, False], [False, True]]
    """
    for name, codes, labels in (("query", query_codes, query_labels), ("database", database_codes, database_labels)):
        check_packed(codes, n_bits)
        if np.ndim(labels) != 2 or len(labels) != len(codes):
            raise ValueError(f"{len(codes)} {name} codes, but {name} labels are {np.shape(labels)}; expected (n, c)")
    query_sets, database_sets = boolean_labels(query_labels), boolean_labels(database_labels)
    if query_sets.shape[1] != database_sets.shape[1]:
        raise ValueError(f"query labels have {query_sets.shape[1]} columns, database labels {database_sets.shape[1]}")
    if len(database_codes) == 0:
        raise ValueError("the database is empty")
    return query_sets, database_sets


def count_distances(
    query_codes: PackedCodes, database_codes: PackedCodes, query_labels: Labels, database_labels: Labels, n_bits: int
) -> _DistanceCounts:
    """Count, by distance and query, all items, the relevant ones (those sharing a label) and their gains.

    Args:
        query_codes: ``(nq, b)`` packed codes.
        database_codes: ``(nd, b)`` packed codes.
        query_labels: ``(nq, c)`` bool.
        database_labels: ``(nd, c)`` bool.
        n_bits: code length k.

    O(nq · nd · (k + c) / 64) time on all cores. The memory beside the inputs is two copies of the codes and label sets
    as 64-bit words, the result, and 32 MB.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> count_distances(codes, codes, labels, labels, n_bits=8).total[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 1]
    """
    database_sets = _label_words(database_labels)
    segments = by_label_count(_label_counts(database_sets))
    items, sets = (_columns(values[segments.order]) for values in (words(database_codes), database_sets))
    codes, labels = _writeable(words(query_codes)), _label_words(query_labels)
    widths = _label_counts(labels) + 1
    units = _gain_units(segments.sizes, int(widths.max(initial=1)))
    total, relevant, gained = (np.zeros((len(codes), n_bits + 1), dtype=np.int64) for _ in range(3))
    chunk, lists = max(1, _CELLS // units.size), []
    for first in range(0, len(codes), chunk):
        rows = slice(first, first + chunk)
        shared = np.zeros((len(codes[rows]), *units.shape), dtype=np.int64)
        pairs, totals = Pairs(codes[rows], items, labels[rows], sets), Totals(total[rows], relevant[rows], gained[rows])
        group = kernel.group_size(len(codes[rows]))
        kernel.count_by_distance(pairs, widths[rows], segments.ends, units, group, totals, shared)
        lists.append(_gain_lists(shared, units, first))
    return _DistanceCounts(total, relevant, _label_gains(gained, lists))


def without_pairs(
    counts: _DistanceCounts,
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    pairs: RowPairs,
) -> _DistanceCounts:
    """Return counts without those of ``pairs`` ``(p, 2)`` of a query and an item; other arguments as they were counted.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> counts = count_distances(codes, codes, labels, labels, n_bits=8)
    >>> without_pairs(counts, codes, codes, labels, labels, np.array([[0, 0]])).total[0].tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1]
    """
    query, item = pairs.T
    distance = np.bitwise_count(query_codes[query] ^ database_codes[item]).sum(axis=1, dtype=np.int64)
    shared = (query_labels[query] & database_labels[item]).sum(axis=1)
    size = database_labels[item].sum(axis=1)
    units = _gain_units(np.arange(size.max(initial=0) + 1), int(shared.max(initial=0)) + 1)
    gain = units[size, shared]
    total, relevant, gained = (part.copy() for part in (counts.total, counts.relevant, counts.gains.by_distance))
    np.subtract.at(total, (query, distance), 1)
    np.subtract.at(relevant, (query, distance), shared > 0)
    np.subtract.at(gained, (query, distance), gain)
    left_out = (query[shared > 0], gain[shared > 0], np.full(int((shared > 0).sum()), -1, dtype=np.int64))
    gains = counts.gains
    return _DistanceCounts(total, relevant, _label_gains(gained, [(gains.query, gains.gain, gains.count), left_out]))


def count_jointly(
    query_codes: PackedCodes, database_codes: PackedCodes, query_labels: Labels, database_labels: Labels, n_bits: int
) -> Counts:
    """Count the pairs at each distance that share so many labels: ``(k + 1, most labels of a query + 1)`` int64.

    Arguments, time and memory as in `count_distances`.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> count_jointly(codes, codes, labels, labels, n_bits=8)[8].tolist()
    [2, 0]
    """
    codes, labels = _writeable(words(query_codes)), _label_words(query_labels)
    items, sets = _columns(words(database_codes)), _columns(_label_words(database_labels))
    group = max(kernel.group_size(len(codes)), -(-len(codes) // 64))
    width = int(_label_counts(labels).max(initial=0)) + 1
    counts = np.zeros((-(-len(codes) // group), n_bits + 1, width), dtype=np.int64)
    kernel.count_jointly(Pairs(codes, items, labels, sets), group, counts)
    joint: Counts = counts.sum(axis=0)
    return joint


def precisions_in_order(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    total: Counts,
    relevant: Counts,
) -> NDArray[np.float64]:
    """Sum the precisions at each query's relevant items ``(nq,)``, tied items in the order of the database.

    Args:
        total: n_d of exactly these codes, ``(nq, k + 1)``.
        relevant: n_d⁺ of exactly these codes and labels, likewise.

    The other arguments, time and memory as in `count_distances`, at about half its speed.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> counts = count_distances(codes, codes, labels, labels, n_bits=8)
    >>> precisions_in_order(codes, codes, labels, labels, counts.total, counts.relevant).tolist()
    [1.0, 1.0]
    """
    codes, labels = _writeable(words(query_codes)), _label_words(query_labels)
    items, sets = _columns(words(database_codes)), _columns(_label_words(database_labels))
    sums = np.empty(len(codes))
    before, relevant_before = (np.cumsum(counts, axis=1) - counts for counts in (total, relevant))
    group = kernel.group_size(len(codes))
    kernel.sum_precisions_in_order(Pairs(codes, items, labels, sets), before, relevant_before, group, sums)
    return sums


def by_label_count(size_of_item: NDArray[np.int64]) -> _SizeSegments:
    """Order items by how many labels they have, from those numbers ``(n,)``.

    >>> by_label_count(np.array([2, 1, 2])).order.tolist()
    [1, 0, 2]
    """
    counts = np.bincount(size_of_item)
    # A stable sort of numbers of up to 16 bits goes by their digits and not by comparisons.
    order = np.argsort(size_of_item.astype(np.min_scalar_type(len(counts))), kind="stable")
    sizes = np.flatnonzero(counts)
    return _SizeSegments(order, sizes, np.cumsum(counts[sizes]))


def _label_words(labels: Labels) -> _Words:
    """Pack label sets ``(n, c)`` as bits of 64-bit words ``(n, ceil(c / 64))``.

    >>> _label_words(np.eye(3) > 0).shape
    (3, 1)
    """
    return words(np.packbits(labels, axis=1))


def _label_counts(sets: _Words) -> NDArray[np.int64]:
    """Count the labels of each item, from `_label_words`.

    >>> _label_counts(_label_words(np.array([[True, True, False]]))).tolist()
    [2]
    """
    counts: NDArray[np.int64] = np.bitwise_count(sets).sum(axis=1, dtype=np.int64)
    return counts


def _columns(rows: _Words) -> _Words:
    """Return words ``(n, words)`` as the kernel takes those of the items, ``(words, n)``."""
    return _writeable(rows.T)


def _writeable(values: _Words) -> _Words:
    """Return words as the kernels' signatures take them: contiguous, and not read-only as those of a mapped file.

    They are copied only where they are not."""
    return np.require(values, requirements=("C", "W"))
