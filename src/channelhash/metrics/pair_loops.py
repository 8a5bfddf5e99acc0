"""Compiled passes over all query–item pairs, for `count_distances`.

Codes and label sets are 64-bit words, word by word ``(words, n)``, so that a word of neighbouring
items lies side by side: the compiler turns a loop over items into vector instructions, unlike a
loop over an item's words. Items go through in blocks that stay in the first cache, each block for a
few queries.
"""

import numpy as np

from channelhash.utils.compiled import inner, njit, popcount

# Items whose distances are held at once: the buffers of 8 bytes an item stay in the first cache.
_BLOCK = 1024
# Queries that go over such a block before it leaves the cache, at most.
_GROUP = 8
#: The upper half of a word that counts two things at once: all items below, the relevant ones
#: above.
HALF = np.uint64(32)


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
def count_by_distance(  # type: ignore[no-untyped-def]
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
def count_pairs_jointly(  # type: ignore[no-untyped-def]
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
        out[i] = np.uint64(1) + (np.uint64(out[i] != np.uint64(0)) << HALF)


@njit(fastmath={"reassoc"}, error_model="numpy")
def _sum_of_precisions(places, n):  # type: ignore[no-untyped-def]
    """Sum of hits / rank over places that hold both in one word. Terms are added in any order: that
    is several at a time."""
    total = 0.0
    for i in range(n):
        total += np.float64(places[i] >> HALF) / np.float64(places[i] & np.uint64(0xFFFFFFFF))
    return total


@njit(cache=True, nogil=True)
def sum_precisions_in_order(  # type: ignore[no-untyped-def]
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
                    n += step[i] >> HALF  # the next one overwrites it unless the item is relevant
                sums[q] += _sum_of_precisions(places, n)
