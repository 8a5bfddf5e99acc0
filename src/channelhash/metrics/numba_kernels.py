"""The compiled passes over all query–item pairs. No pass builds an array of pairs.

Codes and label sets are 64-bit words, word by word ``(words, n)``, so that a word of neighbouring items lies side by
side: the compiler turns a loop over items into vector instructions, unlike a loop over an item's words. Items go
through in blocks that stay in the first cache, each block for a few queries.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64, types, uint64, void
from numpy.typing import NDArray

from channelhash.codes.popcount import popcount
from channelhash.utils.compiled import loop_threads, njit, parallel_loop, prange

# Items whose distances are held at once: the buffers of 8 bytes an item stay in the first cache.
_BLOCK = 1024
# Queries that go over such a block before it leaves the cache.
_GROUP = 8
# The upper half of a word that counts two things at once: all items below, the relevant ones above.
_HALF = np.uint64(32)


class Pairs(NamedTuple):
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


class Totals(NamedTuple):
    """Counts by distance ``(nq, k + 1)`` of all items, of the relevant ones, and of their gains."""

    total: NDArray[np.int64]
    relevant: NDArray[np.int64]
    gained: NDArray[np.int64]


# With the types of their arguments, kernels are compiled once for all processes.
_PAIRS = types.NamedUniTuple(uint64[:, ::1], 4, Pairs)  # type: ignore[no-untyped-call]
_TOTALS = types.NamedUniTuple(int64[:, ::1], 3, Totals)  # type: ignore[no-untyped-call]


def group_size(n_queries: int) -> int:
    """Return the number of queries a task: few if there are few, so that every core has some.

    >>> group_size(100_000)
    8
    """
    return max(1, min(_GROUP, n_queries // (2 * loop_threads())))


@njit(inline="always")
def _distances(out, code, items, start, size):  # type: ignore[no-untyped-def]
    """``out[i] =`` distance of a query's words to item ``start + i``."""
    out[:size] = 0
    for w in range(len(code)):
        word, items_w = code[w], items[w, start : start + size]
        for i in range(size):
            out[i] += popcount(word ^ items_w[i])  # type: ignore[call-arg]


@njit(inline="always")
def _cells(out, pairs, q, width, start, size):  # type: ignore[no-untyped-def]
    """``out[i] = width · distance + number of shared labels`` of query ``q`` and item ``start + i``."""
    code, items, labels, sets = pairs.codes[q], pairs.items, pairs.labels[q], pairs.sets
    if len(code) == 1 and len(labels) == 1:
        word, set_word = code[0], labels[0]
        items_0, sets_0 = items[0, start : start + size], sets[0, start : start + size]
        for i in range(size):
            out[i] = width * popcount(word ^ items_0[i]) + popcount(set_word & sets_0[i])  # type: ignore[call-arg]
        return
    _distances(out, code, items, start, size)
    for i in range(size):
        out[i] *= width
    for w in range(len(labels)):
        set_word = labels[w]
        if set_word:
            sets_w = sets[w, start : start + size]
            for i in range(size):
                out[i] += popcount(set_word & sets_w[i])  # type: ignore[call-arg]


@njit(inline="always")
def _add_cell(count, d, a, unit, total, relevant, gained):  # type: ignore[no-untyped-def]
    """Add ``count`` items at distance ``d`` that share ``a`` labels, of gain ``unit`` each, to a query's counts."""
    total[d] += count
    if a:
        relevant[d] += count
        gained[d] += count * unit


@parallel_loop(void(_PAIRS, int64[::1], int64[::1], int64[:, ::1], int64, _TOTALS, int64[:, :, ::1]))
def count_by_distance(pairs, widths, ends, units, group, totals, shared):  # type: ignore[no-untyped-def]
    """Add to each query's counts by distance: all items, relevant ones, gains; and to its counts by shared labels.

    The items come in segments of equally many labels. Within one, a pair is counted under (distance, shared labels),
    and what so many shared labels are worth is looked up once a cell and not once a pair.

    Args:
        pairs: queries and items.
        widths: ``(nq,)`` number of labels of a query + 1.
        ends: ``(segments,)`` end of each segment of items.
        units: ``(segments, max(widths))`` gain of an item of that segment that shares so many labels.
        group: queries a task.
        totals: counts to add to.
        shared: ``(nq, segments, max(widths))`` to add to.
    """
    total, relevant, gained = totals
    n_queries, n_bins = total.shape
    for task in prange((n_queries + group - 1) // group):
        first, last = task * group, min((task + 1) * group, n_queries)
        cells = np.zeros((group, n_bins * np.max(widths[first:last])), dtype=np.int64)
        buffer = np.empty(_BLOCK, dtype=np.uint64)
        begin = 0
        for segment in range(len(ends)):
            end = ends[segment]
            for start in range(begin, end, _BLOCK):
                size = min(_BLOCK, end - start)
                for q in range(first, last):
                    row = cells[q - first]
                    _cells(buffer, pairs, q, np.uint64(widths[q]), start, size)
                    for i in range(size):
                        row[buffer[i]] += 1
                    # Cells are emptied once a segment; where there are more of them than items, after every block by
                    # the items themselves: otherwise many short segments would cost more than the pairs.
                    if end - begin < n_bins * widths[q]:
                        for i in range(size):
                            cell = np.int64(buffer[i])
                            count, row[cell] = row[cell], 0
                            d, a = cell // widths[q], cell % widths[q]
                            shared[q, segment, a] += count
                            _add_cell(count, d, a, units[segment, a], total[q], relevant[q], gained[q])
            for q in range(first, last):
                if end - begin >= n_bins * widths[q]:
                    row = cells[q - first]
                    for d in range(n_bins):
                        for a in range(widths[q]):
                            cell = d * widths[q] + a
                            count, row[cell] = row[cell], 0
                            shared[q, segment, a] += count
                            _add_cell(count, d, a, units[segment, a], total[q], relevant[q], gained[q])
            begin = end


@parallel_loop(void(_PAIRS, int64, int64[:, :, ::1]))
def count_jointly(pairs, group, counts):  # type: ignore[no-untyped-def]
    """Add all pairs to ``counts[task, distance, shared labels]``, a task being ``group`` queries; arguments as in
    `count_by_distance`. The last axis has one more than the most labels that a query has."""
    n_queries, n_bins, width = len(pairs.codes), counts.shape[1], counts.shape[2]
    n_items = pairs.items.shape[1]
    for task in prange((n_queries + group - 1) // group):
        first, last = task * group, min((task + 1) * group, n_queries)
        row = np.zeros(n_bins * width, dtype=np.int64)
        buffer = np.empty(_BLOCK, dtype=np.uint64)
        for start in range(0, n_items, _BLOCK):
            size = min(_BLOCK, n_items - start)
            for q in range(first, last):
                _cells(buffer, pairs, q, np.uint64(width), start, size)
                for i in range(size):
                    row[buffer[i]] += 1
        for d in range(n_bins):
            for a in range(width):
                counts[task, d, a] += row[d * width + a]


@njit(inline="always")
def _steps(out, labels, sets, start, size):  # type: ignore[no-untyped-def]
    """``out[i]``: 1 below, and 1 above if item ``start + i`` shares a label."""
    if len(labels) == 1:
        set_word, sets_0 = labels[0], sets[0, start : start + size]
        for i in range(size):
            out[i] = np.uint64(1) + (np.uint64((set_word & sets_0[i]) != np.uint64(0)) << _HALF)
        return
    out[:size] = 0
    for w in range(len(labels)):
        set_word, sets_w = labels[w], sets[w, start : start + size]
        for i in range(size):
            out[i] |= set_word & sets_w[i]
    for i in range(size):
        out[i] = np.uint64(1) + (np.uint64(out[i] != np.uint64(0)) << _HALF)


@njit("float64(uint64[::1], uint64)", fastmath={"reassoc"}, error_model="numpy", cache=True)
def _sum_of_precisions(places, n):  # type: ignore[no-untyped-def]
    """Sum of hits / rank over places that hold both in one word. Terms are added in any order: that is several at a
    time."""
    total = 0.0
    for i in range(n):
        total += np.float64(places[i] >> _HALF) / np.float64(places[i] & np.uint64(0xFFFFFFFF))
    return total


@parallel_loop(void(_PAIRS, int64[:, ::1], int64[:, ::1], int64, float64[::1]))
def sum_precisions_in_order(pairs, before, relevant_before, group, sums):  # type: ignore[no-untyped-def]
    """Write each query's sum of precisions at its relevant items, ties in the order of the items.

    The rank of an item is the number of nearer items, of earlier ones as near, and itself. So with the histograms at
    hand a second pass with a running counter for each distance gives every rank, without sorting.

    Args:
        pairs: queries and items, the items in any order; fewer than 2³² of them.
        before: ``(nq, k + 1)`` number of nearer items, N_{d−1}.
        relevant_before: likewise of the relevant ones, N⁺_{d−1}.
        group: queries a task.
        sums: ``(nq,)`` to write to.
    """
    codes, items, labels, sets = pairs
    n_queries, n_bins = before.shape
    for task in prange((n_queries + group - 1) // group):
        first, last = task * group, min((task + 1) * group, n_queries)
        # Relevant items above, all items below, in one word a distance.
        counters = np.empty((group, n_bins), dtype=np.uint64)
        for q in range(first, last):
            sums[q] = 0.0
            for d in range(n_bins):
                counters[q - first, d] = np.uint64(before[q, d]) + (np.uint64(relevant_before[q, d]) << _HALF)
        distances, step = np.empty(_BLOCK, dtype=np.uint64), np.empty(_BLOCK, dtype=np.uint64)
        places = np.empty(_BLOCK + 1, dtype=np.uint64)
        for start in range(0, items.shape[1], _BLOCK):
            size = min(_BLOCK, items.shape[1] - start)
            for q in range(first, last):
                _distances(distances, codes[q], items, start, size)
                _steps(step, labels[q], sets, start, size)
                row, n = counters[q - first], np.uint64(0)
                for i in range(size):
                    place = row[distances[i]] + step[i]
                    row[distances[i]] = place
                    places[n] = place
                    n += step[i] >> _HALF  # the next one overwrites it unless the item is relevant
                sums[q] += _sum_of_precisions(places, n)
