"""Passes over all query–item pairs: from codes and label sets to counts. No pass builds an array of
pairs.

The gain of an item is S, the cosine of its labels and the query's (eq. (1) of the paper), linear.
Gains are kept as whole numbers of 2⁻³², so that sums over the shards of a database are exact in any
order; and as a / √s for an item of s labels that shares a of them, because a query's own factor 1 /
√(its number of labels) cancels in NDCG.

In the compiled passes codes and label sets are 64-bit words, word by word ``(words, n)``, so that a
word of neighbouring items lies side by side: the compiler turns a loop over items into vector
instructions, unlike a loop over an item's words. Items go through in blocks that stay in the first
cache, each block for a few queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, boolean_labels, check_packed, words
from channelhash.utils.compiled import inner, njit, popcount, run_tasks

# Items whose distances are held at once: the buffers of 8 bytes an item stay in the first cache.
_BLOCK = 1024
# Queries that go over such a block before it leaves the cache, at most.
_GROUP = 8
# The upper half of a word that counts two things at once: all items below, the relevant ones above.
_HALF = np.uint64(32)
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


@inner
def _distances(out, code, items, width, start, size):  # type: ignore[no-untyped-def]
    """``out[i] = width · distance`` of a query's words to item ``start + i``."""
    word = code[0]
    items_w = items[0, start : start + size]
    for i in range(size):
        out[i] = width * popcount(word ^ items_w[i])  # type: ignore[call-arg]
    for w in range(1, len(code)):
        word = code[w]
        items_w = items[w, start : start + size]
        for i in range(size):
            out[i] += width * popcount(word ^ items_w[i])  # type: ignore[call-arg]


@inner
def _count_cells(out, row, pairs, q, width, start, size):  # type: ignore[no-untyped-def]
    """Count in ``row`` the cell ``out[i] = width · distance + number of shared labels`` of each
    item of a block.
    """
    _distances(out, pairs.codes[q], pairs.items, width, start, size)
    labels = pairs.labels[q]
    sets = pairs.sets
    for w in range(len(labels)):
        set_word = labels[w]
        if set_word:
            sets_w = sets[w, start : start + size]
            for i in range(size):
                out[i] += popcount(set_word & sets_w[i])  # type: ignore[call-arg]
    for i in range(size):
        row[out[i]] += 1


@inner
def _empty_cell(cell, width, row, shared, units, counts):  # type: ignore[no-untyped-def]
    """Add the items of a cell to the counts of a query, of all, relevant ones and gains, and empty
    it.
    """
    count = row[cell]
    row[cell] = 0
    d = cell // width
    a = cell % width
    shared[a] += count
    total, relevant, gained = counts
    total[d] += count
    if a:
        relevant[d] += count
        gained[d] += count * units[a]


@njit(cache=True, nogil=True)
def _count_by_distance(  # type: ignore[no-untyped-def]
    first_query, last_query, pairs, widths, ends, units, totals, shared
):
    """Add to each query's ``totals`` by distance: all items, relevant ones, gains; and to its
    counts by shared labels.

    The items come in segments of equally many labels. Within one, a pair is counted under
    (distance, shared labels), and what so many shared labels are worth is looked up once a cell and
    not once a pair.
    """
    total, relevant, gained = totals
    n_bins = total.shape[1]
    cells = np.zeros((_GROUP, n_bins * units.shape[1]), dtype=np.int64)
    buffer = np.empty(_BLOCK, dtype=np.uint64)
    for first in range(first_query, last_query, _GROUP):
        last = min(first + _GROUP, last_query)
        begin = 0
        for segment in range(len(ends)):
            end = ends[segment]
            for start in range(begin, end, _BLOCK):
                size = min(_BLOCK, end - start)
                for q in range(first, last):
                    row = cells[q - first]
                    width = widths[q]
                    counts = total[q], relevant[q], gained[q]
                    _count_cells(buffer, row, pairs, q, width, start, size)
                    # Cells are emptied once a segment; where there are more of them than items,
                    # after every block by the items themselves: otherwise many short segments would
                    # cost more than the pairs.
                    n_cells = np.uint64(n_bins) * width
                    if end - begin < n_cells:
                        for i in range(size):
                            _empty_cell(
                                buffer[i], width, row, shared[q, segment], units[segment], counts
                            )
                    elif start + size == end:
                        for cell in range(n_cells):
                            _empty_cell(
                                cell, width, row, shared[q, segment], units[segment], counts
                            )
            begin = end


@njit(cache=True, nogil=True)
def _count_pairs_jointly(  # type: ignore[no-untyped-def]
    first_part, last_part, pairs, queries, width, counts
):
    """Add the pairs of each part to ``counts[part, width · distance + shared labels]``.

    A part has so many ``queries``. ``width`` is one more than the most labels that a query has.
    """
    n_queries = len(pairs.codes)
    n_items = pairs.items.shape[1]
    buffer = np.empty(_BLOCK, dtype=np.uint64)
    for part in range(first_part, last_part):
        first = part * queries
        last = min((part + 1) * queries, n_queries)
        for start in range(0, n_items, _BLOCK):
            size = min(_BLOCK, n_items - start)
            for q in range(first, last):
                _count_cells(buffer, counts[part], pairs, q, width, start, size)


@inner
def _steps(out, labels, sets, start, size):  # type: ignore[no-untyped-def]
    """``out[i]``: 1 below, and 1 above if item ``start + i`` shares a label."""
    set_word = labels[0]
    sets_w = sets[0, start : start + size]
    for i in range(size):
        out[i] = set_word & sets_w[i]
    for w in range(1, len(labels)):
        set_word = labels[w]
        sets_w = sets[w, start : start + size]
        for i in range(size):
            out[i] |= set_word & sets_w[i]
    for i in range(size):
        out[i] = np.uint64(1) + (np.uint64(out[i] != np.uint64(0)) << _HALF)


@njit(fastmath={"reassoc"}, error_model="numpy")
def _sum_of_precisions(places, n):  # type: ignore[no-untyped-def]
    """Sum of hits / rank over places that hold both in one word. Terms are added in any order: that
    is several at a time."""
    total = 0.0
    for i in range(n):
        total += np.float64(places[i] >> _HALF) / np.float64(places[i] & np.uint64(0xFFFFFFFF))
    return total


@njit(cache=True, nogil=True)
def _sum_precisions_in_order(  # type: ignore[no-untyped-def]
    first_query, last_query, pairs, counters, sums
):
    """Add each query's precisions at its relevant items, ties in the order of the items.

    The rank of an item is the number of nearer items, of earlier ones as near, and itself. So with
    the histograms at hand a second pass with a running counter for each distance gives every rank,
    without sorting.
    """
    codes, items, labels, sets = pairs
    distances = np.empty(_BLOCK, dtype=np.uint64)
    step = np.empty(_BLOCK, dtype=np.uint64)
    places = np.empty(_BLOCK + 1, dtype=np.uint64)
    for first in range(first_query, last_query, _GROUP):
        last = min(first + _GROUP, last_query)
        for start in range(0, items.shape[1], _BLOCK):
            size = min(_BLOCK, items.shape[1] - start)
            for q in range(first, last):
                _distances(distances, codes[q], items, np.uint64(1), start, size)
                _steps(step, labels[q], sets, start, size)
                row = counters[q]
                n = np.uint64(0)
                for i in range(size):
                    place = row[distances[i]] + step[i]
                    row[distances[i]] = place
                    places[n] = place
                    n += step[i] >> _HALF  # the next one overwrites it unless the item is relevant
                sums[q] += _sum_of_precisions(places, n)


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
    total, relevant, gained = (
        np.zeros((len(query_codes), n_bits + 1), dtype=np.int64) for _ in range(3)
    )
    chunk = max(1, _CELLS // units.size)
    lists = []
    for first in range(0, len(query_codes), chunk):
        rows = slice(first, first + chunk)
        some = sides._replace(codes=sides.codes[rows], labels=sides.labels[rows])
        shared = np.zeros((len(some.codes), *units.shape), dtype=np.int64)
        totals = total[rows], relevant[rows], gained[rows]
        run_tasks(_count_by_distance, len(shared), some, widths[rows], ends, units, totals, shared)
        lists.append(_gain_lists(shared, units, first))
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


def count_jointly(pairs: CodesAndLabels, n_bits: int) -> Counts:
    """Count the pairs at each distance that share so many labels: ``(k + 1, most labels of a query
    + 1)`` int64.

    Arguments, time and memory as in `count_distances`.
    """
    query_labels = pairs[2]
    width = int(query_labels.sum(axis=1).max(initial=0)) + 1
    counts = np.zeros((_PARTS, (n_bits + 1) * width), dtype=np.int64)
    queries = -(-len(query_labels) // _PARTS)
    run_tasks(_count_pairs_jointly, _PARTS, _word_pairs(pairs), queries, np.uint64(width), counts)
    return cast(Counts, counts.sum(axis=0).reshape(n_bits + 1, width))


def precisions_in_order(
    pairs: CodesAndLabels, total: Counts, relevant: Counts
) -> NDArray[np.float64]:
    """Sum the precisions at each query's relevant items ``(nq,)``, tied items in the order of the
    database.

    ``total`` and ``relevant`` are n_d and n_d⁺ of exactly these codes and labels; all else is as in
    `count_distances`, at about half its speed.
    """
    sides = _word_pairs(pairs)
    sums = np.zeros(len(sides.codes))
    before, relevant_before = (
        (np.cumsum(counts, axis=1) - counts).astype(np.uint64) for counts in (total, relevant)
    )
    # Relevant items above, all items below, in one word a distance.
    run_tasks(_sum_precisions_in_order, len(sums), sides, before + (relevant_before << _HALF), sums)
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
