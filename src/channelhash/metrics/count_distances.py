"""Passes over all query–item pairs: from codes and label sets to counts. No pass builds an array of
pairs.

The gain of an item is S, the cosine of its labels and the query's (eq. (1) of the paper), linear.
Gains are kept as whole numbers of 2⁻³², so that sums over the shards of a database are exact in any
order; and as a / √s for an item of s labels that shares a of them, because a query's own factor 1 /
√(its number of labels) cancels in NDCG.

The passes are compiled (`pair_loops`), which needs the extra `fast`. Without it NumPy does the
same, query by query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, boolean_labels, check_packed, words
from channelhash.utils.optional_imports import has_loops

# Pairs that NumPy counts in less than a second.
_FEW_PAIRS = 1 << 25
# Parts of the queries, each of which counts pairs on its own.
_PARTS = 64


#: Codes of the queries and of the items, and the labels of both.
CodesAndLabels = tuple[PackedCodes, PackedCodes, NDArray[np.bool_], NDArray[np.bool_]]


class _WordPairs(NamedTuple):
    """The two sides of all query–item pairs, as 64-bit words.

    Attributes:
        codes: ``(nq, words)``; a query's words side by side, as those of ``labels``.
        items: ``(words, nd)``.
        labels: ``(nq, label words)``.
        sets: ``(label words, nd)``.
    """

    codes: NDArray[np.uint64]
    items: NDArray[np.uint64]
    labels: NDArray[np.uint64]
    sets: NDArray[np.uint64]


def are_compiled(pairs: CodesAndLabels) -> bool:
    """Return whether compiled loops go through all pairs, see `has_loops`."""
    return has_loops(len(pairs[0]) * len(pairs[1]) > _FEW_PAIRS)


Counts = NDArray[np.int64]
_GainLists = tuple[Counts, Counts, Counts]

_UNITS = 2.0**32


@dataclass(frozen=True)
class LabelGains:
    """Gains of the items of a database for every query, in units of 2⁻³² / √(number of the query's
    labels).

    The last three are lists of equal length, ordered by query and falling gain: ``count`` items are
    worth ``gain`` to ``query``. Items that are worth nothing are not listed.

    Attributes:
        by_distance: ``(nq, k + 1)`` int64, sum of the gains at distance d.
        query: int64, rows of ``by_distance``.
        gain: int64, above 0.
        count: int64, above 0.
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
    """Compute the gain of an item of s labels that shares a of them, for each s in ``sizes`` and a
    = 0 … ``width`` − 1: ``(len(sizes), width)`` whole numbers of 2⁻³².
    """
    of_labels = np.sqrt(np.maximum(sizes, 1))[:, None]
    return cast(Counts, np.rint(_UNITS * np.arange(width) / of_labels).astype(np.int64))


def _gain_lists(shared: Counts, units: Counts, first: int) -> _GainLists:
    """List (query, gain, count) as `LabelGains` does for some queries, in its order; a gain may
    come several times.
    """
    worth = units.ravel()
    falling = np.argsort(-worth, kind="stable")
    falling = falling[: np.count_nonzero(worth)]
    counts = shared.reshape(len(shared), -1)[:, falling]
    query, cell = np.nonzero(counts)
    return query + first, worth[falling[cell]], counts[query, cell]


def _label_gains(by_distance: Counts, lists: Sequence[_GainLists]) -> LabelGains:
    """Make gains from their sums by distance and from lists in which a gain may come several times.

    A single list is in order. Counts may be negative, to take items away; gains of no item are not
    listed.
    """
    nothing = (np.empty(0, np.int64),) * 3
    query, gain, count = (np.concatenate(parts) for parts in zip(nothing, *lists, strict=True))
    if len(lists) > 1:
        order = np.lexsort((-gain, query))
        query = query[order]
        gain = gain[order]
        count = count[order]
    new = np.ones(len(query), dtype=bool)
    new[1:] = (np.diff(query) != 0) | (np.diff(gain) != 0)
    starts = np.flatnonzero(new)
    counts = np.add.reduceat(count, starts) if len(starts) else count
    is_nonzero = counts != 0
    return LabelGains(
        by_distance, query[new][is_nonzero], gain[new][is_nonzero], counts[is_nonzero]
    )


#: ``(p, 2)`` rows of a query and of an item.
RowPairs = NDArray[np.int64]

# Cells of the counts by shared labels that are held at once: 32 MB.
_CELLS = 1 << 22


def checked_pairs(pairs: CodesAndLabels, n_bits: int) -> CodesAndLabels:
    """Return codes and labels that have been checked, the labels as bool."""
    query_codes, database_codes, query_labels, database_labels = pairs
    for name, codes, labels in (
        ("query", query_codes, query_labels),
        ("database", database_codes, database_labels),
    ):
        check_packed(codes, n_bits)
        if np.ndim(labels) != 2 or len(labels) != len(codes):
            raise ValueError(
                f"{len(codes)} {name} codes, but {name} labels are {np.shape(labels)}; expected "
                "(n, c)"
            )
    query_sets = boolean_labels(query_labels)
    database_sets = boolean_labels(database_labels)
    if query_sets.shape[1] != database_sets.shape[1]:
        raise ValueError(
            f"query labels have {query_sets.shape[1]} columns, database labels "
            f"{database_sets.shape[1]}"
        )
    if len(database_codes) == 0:
        raise ValueError("the database is empty")
    return query_codes, database_codes, query_sets, database_sets


def count_distances(
    pairs: CodesAndLabels, n_bits: int, self_pairs: RowPairs | None = None
) -> tuple[Counts, Counts, LabelGains]:
    """Count, by distance and query, all items, the relevant ones (those sharing a label) and their
    gains; without the pairs ``self_pairs``, if any, of a query and an item. The first two are n_d
    and n_d⁺, ``(nq, k + 1)`` int64 each.

    O(nq · nd · (k + c) / 64) time on all cores. The memory beside the inputs is two copies of the
    codes and label sets as 64-bit words, the result, and 32 MB.
    """
    query_codes, database_codes, query_labels, database_labels = pairs
    sides = _word_pairs(pairs)
    order, sizes, ends = _by_label_count(np.bitwise_count(sides.sets).sum(axis=0, dtype=np.int64))
    sides = sides._replace(
        items=sides.items.take(order, axis=1), sets=sides.sets.take(order, axis=1)
    )
    widths = np.bitwise_count(sides.labels).sum(axis=1, dtype=np.uint64) + np.uint64(1)
    units = _gain_units(sizes, int(widths.max(initial=1)))
    totals = np.zeros((3, len(query_codes), n_bits + 1), dtype=np.int64)
    total, relevant, gained = totals
    if are_compiled(pairs):
        lists = _count_compiled(sides, widths, ends, units, totals)
    else:
        lists = _count_with_numpy(sides, ends, units, totals)
    if self_pairs is not None and len(self_pairs):
        query, item = self_pairs.T
        distance = np.bitwise_count(query_codes[query] ^ database_codes[item]).sum(
            axis=1, dtype=np.int64
        )
        common = (query_labels[query] & database_labels[item]).sum(axis=1)
        gain = units[np.searchsorted(sizes, database_labels[item].sum(axis=1)), common]
        is_nonzero = common > 0
        np.subtract.at(total, (query, distance), 1)
        np.subtract.at(relevant, (query, distance), is_nonzero)
        np.subtract.at(gained, (query, distance), gain)
        # In lists alone, which are summed by query and gain: one list is taken for one in order.
        lists.append(
            (
                query[is_nonzero],
                gain[is_nonzero],
                np.full(int(is_nonzero.sum()), -1, dtype=np.int64),
            )
        )
    return total, relevant, _label_gains(gained, lists)


def _count_compiled(
    sides: _WordPairs,
    widths: NDArray[np.uint64],
    ends: Counts,
    units: Counts,
    totals: Counts,
) -> list[_GainLists]:
    """Add to ``totals``: all items, relevant ones, gains. Return lists of gains."""
    from channelhash.metrics.pair_loops import count_by_distance
    from channelhash.utils.compiled import run_tasks

    chunk = max(1, _CELLS // units.size)
    lists = []
    for first in range(0, len(sides.codes), chunk):
        rows = slice(first, first + chunk)
        some = sides._replace(codes=sides.codes[rows], labels=sides.labels[rows])
        shared = np.zeros((len(some.codes), *units.shape), dtype=np.int64)
        parts = tuple(totals[:, rows])
        run_tasks(count_by_distance, len(shared), some, widths[rows], ends, units, parts, shared)
        lists.append(_gain_lists(shared, units, first))
    return lists


def _count_with_numpy(
    sides: _WordPairs, ends: Counts, units: Counts, totals: Counts
) -> list[_GainLists]:
    """Do as `_count_compiled` does."""
    lists = []
    for q, table in enumerate(_tables(sides, ends, totals.shape[2] - 1, units.shape[1])):
        totals[0, q] = table.sum(axis=(1, 2))
        totals[1, q] = table[:, :, 1:].sum(axis=(1, 2))
        totals[2, q] = (table * units).sum(axis=(1, 2))
        lists.append(_gain_lists(table.sum(axis=0)[None], units, q))
    return lists


def _tables(pairs: _WordPairs, ends: Counts, n_bits: int, width: int) -> Iterator[Counts]:
    """Count each query's items with NumPy alone, by distance, segment and number of shared labels:
    ``(k + 1, segments, width)``. ``ends`` are those of the segments.
    """
    segments = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    shape = (n_bits + 1, len(ends), width)
    for code, labels in zip(pairs.codes, pairs.labels, strict=True):
        distances = np.zeros(len(segments), np.int64)
        for word, column in zip(code, pairs.items, strict=True):
            distances += np.bitwise_count(column ^ word)
        cells = (distances * len(ends) + segments) * width
        for word, column in zip(labels, pairs.sets, strict=True):
            cells += np.bitwise_count(column & word)
        yield np.bincount(cells, minlength=np.prod(shape)).reshape(shape)


def count_jointly(pairs: CodesAndLabels, n_bits: int) -> Counts:
    """Count the pairs at each distance that share so many labels: ``(k + 1, most labels of a query
    + 1)`` int64.

    Arguments, time and memory as in `count_distances`.
    """
    query_labels = pairs[2]
    width = int(query_labels.sum(axis=1).max(initial=0)) + 1
    if not are_compiled(pairs):
        tables = _tables(_word_pairs(pairs), np.array([len(pairs[1])]), n_bits, width)
        return sum(tables, start=np.zeros((n_bits + 1, 1, width), np.int64))[:, 0]
    from channelhash.metrics.pair_loops import count_pairs_jointly
    from channelhash.utils.compiled import run_tasks

    counts = np.zeros((_PARTS, (n_bits + 1) * width), dtype=np.int64)
    queries = -(-len(query_labels) // _PARTS)
    run_tasks(count_pairs_jointly, _PARTS, _word_pairs(pairs), queries, np.uint64(width), counts)
    return cast(Counts, counts.sum(axis=0).reshape(n_bits + 1, width))


def precisions_in_order(
    pairs: CodesAndLabels, total: Counts, relevant: Counts
) -> NDArray[np.float64]:
    """Sum the precisions at each query's relevant items ``(nq,)``, tied items in the order of the
    database.

    ``total`` and ``relevant`` are n_d and n_d⁺ of exactly these codes and labels; all else is as in
    `count_distances`, at about half its speed. The loop has to be compiled.
    """
    from channelhash.metrics.pair_loops import HALF, sum_precisions_in_order
    from channelhash.utils.compiled import run_tasks

    sides = _word_pairs(pairs)
    sums = np.zeros(len(sides.codes))
    before, relevant_before = (
        (np.cumsum(counts, axis=1) - counts).astype(np.uint64) for counts in (total, relevant)
    )
    # Relevant items above, all items below, in one word a distance.
    run_tasks(sum_precisions_in_order, len(sums), sides, before + (relevant_before << HALF), sums)
    return sums


def _by_label_count(size_of_item: Counts) -> tuple[Counts, Counts, Counts]:
    """Order items by how many labels they have, from those numbers ``(n,)``.

    Returns:
        ``(n,)`` rows of the items; the numbers of labels that occur, rising; and where the items of
        each number end.
    """
    counts = np.bincount(size_of_item)
    # A stable sort of numbers of up to 16 bits goes by their digits and not by comparisons.
    order = np.argsort(size_of_item.astype(np.min_scalar_type(len(counts))), kind="stable")
    sizes = np.flatnonzero(counts)
    return order, sizes, np.cumsum(counts[sizes])


def _word_pairs(pairs: CodesAndLabels) -> _WordPairs:
    """Return codes and labels as the kernels take them: contiguous, and not read-only as those of a
    mapped file.
    """
    query_codes, database_codes, query_labels, database_labels = pairs
    labels, sets = (words(np.packbits(side, axis=1)) for side in (query_labels, database_labels))
    sides = words(query_codes), words(database_codes).T, labels, sets.T
    return _WordPairs(*(np.require(values, requirements=("C", "W")) for values in sides))
