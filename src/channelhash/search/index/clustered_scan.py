"""Exact search that looks at few codes where codes lie in clusters: around pivots, with bounds from the triangle
inequality.

Why nothing is missed. The Hamming distance d is a metric. For a query q, a code x and its pivot c it gives
d(q, c) ≤ d(q, x) + d(x, c) and d(x, c) ≤ d(x, q) + d(q, c), hence |d(q, c) − d(x, c)| ≤ d(q, x). A code within t bits
of q is thus at a distance of d(q, c) − t to d(q, c) + t from its pivot. Codes stand by that distance, so those that may
be within t are neighbours: a cut of the pivot's codes. All of the cut are compared; all others are farther than t.

The search starts with the codes of the nearest pivots, until k codes are met. From then on t is the distance of the
k-th nearest code met, and only falls. A cut made for a larger t holds that for a smaller one. Where the cuts together
would cost more than a scan of all codes, the search is given up, and the scan does it. Each step is proved in
docs/explanation/exact-search.md.
"""

import numpy as np

from channelhash.search.index.clusters import Clusters
from channelhash.search.index.few_codes import FEW_QUERIES, Numbers
from channelhash.search.index.linear_scan import BLOCK, CHUNK, measure, take_near
from channelhash.search.index.request import Search
from channelhash.search.index.top_k import HALF, LIMIT, LOWER, WITHIN, begin_one, write_one
from channelhash.utils.compiled import njit, prange
from channelhash.utils.parallel_loops import loop_threads, parallel_loop

# What a cut costs beside its codes: as much as so many words of them.
_CUT = 768
# A search for more answers than so many budgets divided by the number of pivots is given up at once: the pivots near
# the query have too few codes.
_CROWDED = 8
# Pivots whose codes are met first, at most.
_FIRST = 64
# Distance of a pivot whose codes have been met.
_MET = np.uint16(0xFFFF)


@njit(nogil=True)
def _cut(c, far, limit, offsets, shift):  # type: ignore[no-untyped-def]
    """Return begin and end of the codes of pivot ``c``, ``far`` from the query, that may be within the limit."""
    last = offsets.shape[1] - 2
    low, high = max(0, far - limit) >> shift, min(last, (far + limit) >> shift)
    if low > last:
        return np.int64(0), np.int64(0)
    return np.int64(offsets[c, low]), np.int64(offsets[c, high + 1])


@njit(nogil=True)
def _visit(code, begin, end, distances, search, met):  # type: ignore[no-untyped-def]
    """Compare the codes of a cut. ``met`` are the query's entries, counts and state."""
    entries, counts, state = met
    codes, starts, rows, allowed, k = search.codes, search.starts, search.rows, search.allowed, search.k
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        measure(distances, code, codes, start, size)
        take_near(distances, start, size, k, entries, counts, state, starts, rows, allowed)


@njit(nogil=True)
def _nearest_pivot(far):  # type: ignore[no-untyped-def]
    """Return the first of the nearest pivots."""
    least = _MET
    for c in range(len(far)):
        least = min(least, far[c])
    for c in range(len(far)):
        if far[c] == least:
            return c
    return 0


@njit(nogil=True)
def _list_cuts(far, limit, clusters, costs, listed):  # type: ignore[no-untyped-def]
    """List the pivots that still may have codes within the limit, distance above and number below; return how many.

    ``costs`` are that of a cut beside its codes, and what all may cost. Beyond it, the number returned is below 0.
    """
    reach, offsets, shift = clusters.reach, clusters.offsets, clusters.shift[0]
    (of_cut, budget), n = costs, 0
    for first in range(0, len(far), CHUNK):
        last = min(len(far), first + CHUNK)
        some = False
        for c in range(first, last):
            some |= (far[c] != _MET) & (np.int32(far[c]) <= np.int32(reach[c]) + limit)
        if not some:
            continue
        for c in range(first, last):
            if far[c] != _MET and np.int64(far[c]) <= np.int64(reach[c]) + limit:
                begin, end = _cut(c, np.int64(far[c]), limit, offsets, shift)
                if end > begin:
                    budget -= of_cut + end - begin
                    if budget < 0:
                        return -1
                    listed[n] = (np.uint64(far[c]) << HALF) | np.uint64(c)
                    n += 1
    return n


@njit(cache=True, nogil=True)
def _search_one(q, search, clusters, budget, rows, distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query and return their number; -1 if the search is given up."""
    code, found = search.queries[q], begin_one(search)
    met = found.entries[0, 0], found.counts[0, 0], found.states[0, 0]
    pivots, offsets, shift, state = clusters.pivots, clusters.offsets, clusters.shift[0], met[2]
    p, measured = pivots.shape[1], np.empty(BLOCK, dtype=np.uint16)
    far = np.empty((p + BLOCK - 1) // BLOCK * BLOCK, dtype=np.uint16)
    for start in range(0, p, BLOCK):
        measure(far[start:], code, pivots, start, min(BLOCK, p - start))
    far = far[:p]
    for _ in range(_FIRST):
        if state[WITHIN] >= search.k or state[LIMIT] < search.n_bits:
            break
        c = _nearest_pivot(far)
        if far[c] != _MET:
            _visit(code, np.int64(offsets[c, 0]), np.int64(offsets[c, -1]), measured, search, met)
            far[c] = _MET
    listed = np.empty(p, dtype=np.uint64)
    n = _list_cuts(far, state[LIMIT], clusters, (_CUT // len(code), budget), listed)
    if n < 0:
        return -1
    for pivot in np.sort(listed[:n]):
        begin, end = _cut(np.int64(pivot & LOWER), np.int64(pivot >> HALF), state[LIMIT], offsets, shift)
        _visit(code, begin, end, measured, search, met)
    return write_one(found, search, rows[q], distances[q])


@parallel_loop()
def _search_all(search, clusters, budget, rows, distances, sizes):  # type: ignore[no-untyped-def]
    for q in prange(len(sizes)):
        sizes[q] = _search_one(q, search, clusters, budget, rows, distances)


def look(clusters: Clusters, budget: int, search: Search, rows: Numbers, distances: Numbers, sizes: Numbers) -> None:
    """Search in clusters: a `few_codes.Way` with its first two arguments.

    Args:
        clusters: see `cluster_codes.cluster`; the codes of the search are in their order.
        budget: codes that a search of one query may look at beside those of the nearest pivots; a cut counts as
            several.
        search: what is searched for.
        rows, distances: ``(nq, k)``, get what is found.
        sizes: ``(nq,)``, get how many that is; -1 where the search is given up.

    >>> from functools import partial
    >>> from channelhash.search.index.cluster_codes import cluster
    >>> from channelhash.search.index.deduplicate import distinct_codes
    >>> from channelhash.search.index.few_codes import nearest
    >>> codes, clusters = cluster(distinct_codes(np.arange(256, dtype=np.uint8)[:, None], n_bits=8))
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, np.empty(0, np.bool_), k=1, radius=0, n_bits=8)
    >>> nearest(search, partial(look, clusters, 1_000_000))[0].rows.tolist()
    [0]
    """
    if search.radius == search.n_bits and search.k * clusters.pivots.shape[1] > _CROWDED * budget:
        sizes[:] = -1
        return
    if len(sizes) == 1:
        budget //= loop_threads()  # a scan would use all cores
    if len(sizes) < FEW_QUERIES:
        for q in range(len(sizes)):
            sizes[q] = _search_one(q, search, clusters, budget, rows, distances)
    else:
        _search_all(search, clusters, budget, rows, distances, sizes)
