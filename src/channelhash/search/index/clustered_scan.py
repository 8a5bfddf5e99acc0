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

Pivots are drawn like centres of k-means‖ (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii, "Scalable k-means++",
VLDB 2012): in a few rounds, those codes of a sample that are far from all pivots so far with a probability that grows
with the square of the distance. Then each pivot moves to the majority of its codes' bits, which makes the sum of their
distances least. Searches are exact for any pivots; good ones make them quick.
"""

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import Clusters, DistinctCodes, Matches, Search, Words, linear_scan as scan
from channelhash.utils.compiled import inner, loop_threads, njit, run_tasks
from channelhash.utils.seeds import generator

# What a cut costs beside its codes: as much as so many words of them.
_CUT = 768
# A search for more answers than so many budgets divided by the number of pivots is given up at once: the pivots near
# the query have too few codes.
_CROWDED = 8
# Pivots whose codes are met first, at most.
_FIRST = 64
# Distance of a pivot whose codes have been met.
_MET = np.uint16(0xFFFF)
# Queries below which one core is quicker.
_FEW_QUERIES = 8


@inner
def _cut(c, far, limit, offsets, shift):  # type: ignore[no-untyped-def]
    """Return begin and end of the codes of pivot ``c``, ``far`` from the query, that may be within the limit."""
    last = offsets.shape[1] - 2
    low, high = max(0, far - limit) >> shift, min(last, (far + limit) >> shift)
    if low > last:
        return np.int64(0), np.int64(0)
    return np.int64(offsets[c, low]), np.int64(offsets[c, high + 1])


@inner
def _visit(code, begin, end, distances, search, met):  # type: ignore[no-untyped-def]
    """Compare the codes of a cut. ``met`` are the query's entries, counts and state."""
    entries, counts, state = met
    codes, k = search.codes, search.k
    starts, rows, allowed = search.starts, search.rows, search.allowed
    for start in range(begin, end, scan.BLOCK):
        size = min(scan.BLOCK, end - start)
        scan.measure(distances, code, codes, start, size)
        scan.take(distances, start, size, k, entries, counts, state, starts, rows, allowed)


@inner
def _list_cuts(far, limit, clusters, costs, listed):  # type: ignore[no-untyped-def]
    """List the pivots that still may have codes within the limit, distance above and number below; return how many.

    ``costs`` are that of a cut beside its codes, and what all may cost. Beyond it, the number returned is below 0.
    """
    reach, offsets, shift = clusters.reach, clusters.offsets, clusters.shift[0]
    (of_cut, budget), n = costs, 0
    for c in range(len(far)):
        if far[c] != _MET and np.int64(far[c]) <= np.int64(reach[c]) + limit:
            begin, end = _cut(c, np.int64(far[c]), limit, offsets, shift)
            if end > begin:
                budget -= of_cut + end - begin
                if budget < 0:
                    return -1
                listed[n] = (np.uint64(far[c]) << scan.HALF) | np.uint64(c)
                n += 1
    return n


@inner
def _search_one(q, search, clusters, budget, rows, distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query and return their number; -1 if the search is given up."""
    # With room for codes that are met again, as in forged files.
    code, candidates = search.queries[q], scan.fresh(search, 1, 1, 2 * (search.k + scan.SPARE))
    met = candidates.entries[0, 0], candidates.counts[0, 0], candidates.states[0, 0]
    pivots, offsets, shift, state = clusters.pivots, clusters.offsets, clusters.shift[0], met[2]
    p, measured = pivots.shape[1], np.empty(scan.BLOCK, dtype=np.uint16)
    far = np.empty((p + scan.BLOCK - 1) // scan.BLOCK * scan.BLOCK, dtype=np.uint16)
    for start in range(0, p, scan.BLOCK):
        scan.measure(far[start:], code, pivots, start, min(scan.BLOCK, p - start))
    far = far[:p]
    for _ in range(_FIRST):
        if state[scan.WITHIN] >= search.k or state[scan.LIMIT] < search.n_bits:
            break
        c = np.argmin(far)
        if far[c] != _MET:
            _visit(code, np.int64(offsets[c, 0]), np.int64(offsets[c, -1]), measured, search, met)
            far[c] = _MET
    listed = np.empty(p, dtype=np.uint64)
    n = _list_cuts(far, state[scan.LIMIT], clusters, (_CUT // len(code), budget), listed)
    if n < 0:
        return -1
    listed = scan.in_order(listed[:n], listed[:n])
    for i in range(n):
        pivot = listed[i]
        begin, end = _cut(np.int64(pivot & scan.LOWER), np.int64(pivot >> scan.HALF), state[scan.LIMIT], offsets, shift)
        _visit(code, begin, end, measured, search, met)
    return scan.write(0, candidates, search, rows[q], distances[q])


@njit(cache=True, nogil=True)
def _search_queries(first, last, search, clusters, budget, rows, distances, sizes):  # type: ignore[no-untyped-def]
    for q in range(first, last):
        sizes[q] = _search_one(q, search, clusters, budget, rows, distances)


def nearest(search: Search, clusters: Clusters, budget: int) -> dict[int, Matches]:
    """Find the first ``k`` rows within the radius, by query; queries that are given up are left out.

    ``budget`` codes may be looked at beside those of the nearest pivots; a cut counts as several.
    """
    n_queries = len(search.queries)
    if search.radius == search.n_bits and search.k * clusters.pivots.shape[1] > _CROWDED * budget:
        return {}
    rows, distances = np.empty((2, n_queries, search.k), dtype=np.int64)
    sizes = np.empty(n_queries, dtype=np.int64)
    if n_queries == 1:
        budget //= loop_threads()  # a scan would use all cores
    few = n_queries < _FEW_QUERIES
    run_tasks(_search_queries, n_queries, search, clusters, budget, rows, distances, sizes, alone=few)
    return {q: Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(sizes.tolist()) if n >= 0}


# Pivots, and codes of the sample for each.
_PIVOTS, _SAMPLE = 1 << 12, 32
# Rounds in which pivots are drawn, and times that they move.
_ROUNDS, _MOVES = 8, 2
# Columns of distances for each pivot, at most.
_COLUMNS = 64
# Codes that go over a block of pivots before it leaves the first cache.
_GROUP = 8
# Codes below which one core is quicker.
_FEW = 1 << 12


def cluster(distinct: DistinctCodes) -> tuple[DistinctCodes, Clusters]:
    """Return the codes in the order of their clusters, and the clusters.

    O(m p) for ``m`` codes and ``p`` pivots, on all cores.

    >>> from channelhash.search.index import find_distinct
    >>> codes, clusters = cluster(find_distinct(np.array([[7], [1], [7], [240]], np.uint8), n_bits=8))
    >>> codes.codes.shape, clusters.pivots.shape, clusters.reach.tolist()
    ((1, 3), (1, 3), [0, 0, 0])
    """
    codes, starts, rows = distinct
    pivots = _choose(codes)
    numbers, distances = _assign(codes, pivots)
    p, farthest = pivots.shape[1], int(distances.max())
    shift = max(0, farthest.bit_length() - _COLUMNS.bit_length() + 1)
    columns = (farthest >> shift) + 1
    keys = numbers.astype(np.int64) * columns + (distances >> shift)
    ends = np.cumsum(np.bincount(keys, minlength=p * columns))
    order = np.argsort(keys, kind="stable")
    offsets = np.append(0, ends).astype(np.uint32)
    reach = np.zeros(p, dtype=np.uint16)
    np.maximum.at(reach, numbers, distances)
    sizes = (starts[1:] - starts[:-1])[order]
    offsets = offsets[np.arange(p)[:, None] * columns + np.arange(columns + 1)]
    clusters = Clusters(pivots, reach, offsets, np.array([shift], dtype=np.int64))
    new_starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
    places = np.repeat(starts[:-1][order] - new_starts[:-1], sizes) + np.arange(len(rows))
    return DistinctCodes(np.take(codes, order, axis=1), new_starts.astype(np.uint32), rows[places]), clusters


def _choose(codes: Words) -> Words:
    """Return pivots ``(words, p)`` for ``(words, m)`` codes, all different."""
    m = codes.shape[1]
    random = generator(0, "clusters", m)
    sample = np.take(codes, np.sort(random.choice(m, min(m, _SAMPLE * _PIVOTS), replace=False)), axis=1)
    n = sample.shape[1]
    pivots = np.take(sample, random.choice(n, min(n, _PIVOTS // _ROUNDS), replace=False), axis=1)
    nearest = _assign(sample, pivots)[1]
    while pivots.shape[1] < _PIVOTS and nearest.any():
        count = min(_PIVOTS // _ROUNDS, _PIVOTS - pivots.shape[1], int(np.count_nonzero(nearest)))
        # The largest of u^(1/w) are a draw without replacement by weights w (Efraimidis and Spirakis 2006).
        with np.errstate(divide="ignore"):
            draws = np.log(random.random(n)) / nearest.astype(np.float64) ** 2
        drawn = np.take(sample, np.argpartition(-draws, count - 1)[:count], axis=1)
        pivots = np.concatenate([pivots, drawn], axis=1)
        nearest = np.minimum(nearest, _assign(sample, drawn)[1])
    for _ in range(_MOVES):
        pivots = _moved(sample, pivots, _assign(sample, pivots)[0])
    return np.ascontiguousarray(np.unique(pivots, axis=1))


def _moved(codes: Words, pivots: Words, numbers: NDArray[np.uint32]) -> Words:
    """Return pivots whose bits are those of most of their codes; where there are none, or as many, the pivot's own."""
    word_bits = 8 * codes.itemsize
    votes = np.zeros((pivots.shape[1], len(codes), word_bits), dtype=np.int32)
    _vote(codes, numbers, votes)
    pivot_bits = (pivots.T[:, :, None] >> np.arange(word_bits - 1, -1, -1, dtype=codes.dtype)) & codes.dtype.type(1)
    bits = np.where(votes == 0, pivot_bits != 0, votes > 0)
    packed = np.packbits(bits, axis=2).view(codes.dtype.newbyteorder(">"))[:, :, 0]
    return np.ascontiguousarray(packed.T.astype(codes.dtype))


@njit(cache=True, nogil=True)
def _vote(codes, numbers, votes):  # type: ignore[no-untyped-def]
    """Count of each pivot, word and bit, the highest first, how many more of its codes have it than do not."""
    bits = votes.shape[2]
    for i in range(codes.shape[1]):
        for w in range(len(codes)):
            word, counts = np.uint64(codes[w, i]), votes[numbers[i], w]
            for b in range(bits):
                counts[b] += 2 * np.int32((word >> np.uint64(bits - 1 - b)) & np.uint64(1)) - 1


@njit(cache=True, nogil=True)
def _assign_groups(first, last, codes, pivots, numbers, distances):  # type: ignore[no-untyped-def]
    """Find the nearest pivot of the codes of some groups, the first of equally near ones."""
    measured = np.empty(scan.BLOCK, dtype=np.uint16)
    for begin in range(first * _GROUP, min(last * _GROUP, codes.shape[1]), _GROUP):
        end = min(begin + _GROUP, codes.shape[1])
        distances[begin:end] = np.uint16(0xFFFF)
        for start in range(0, pivots.shape[1], scan.BLOCK):
            size = min(scan.BLOCK, pivots.shape[1] - start)
            for i in range(begin, end):
                scan.measure(measured, codes[:, i], pivots, start, size)
                least = np.uint16(0xFFFF)
                for c in range(size):
                    least = min(least, measured[c])
                if least < distances[i]:
                    distances[i] = least
                    for c in range(size):
                        if measured[c] == least:
                            numbers[i] = start + c
                            break


def _assign(codes: Words, pivots: Words) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Return of each code the number of its nearest pivot and the distance to it."""
    numbers, distances = np.zeros(codes.shape[1], np.uint32), np.empty(codes.shape[1], np.uint16)
    groups = -(-codes.shape[1] // _GROUP)
    # The codes of an index cannot be written to: with those of samples alike, the loop is compiled once.
    codes, pivots = codes.view(), pivots.view()
    codes.flags.writeable = pivots.flags.writeable = False
    run_tasks(_assign_groups, groups, codes, pivots, numbers, distances, alone=codes.shape[1] < _FEW)
    return numbers, distances
