"""Clusters of codes, and searches in them, which look at few codes.

*Clusters.* Pivots are drawn like the centres of k-means‖ (Bahmani, Moseley, Vattani, Kumar and
Vassilvitskii, "Scalable k-means++", VLDB 2012): in each of a few rounds, codes of a sample are
drawn with a probability that grows with the square of their distance to the nearest pivot so far.
Then each pivot moves to the majority of its codes' bits, which makes the sum of their distances
least. Searches are exact for any pivots; good ones make them quick.

*Searches.* A search starts with the codes of the nearest pivots, until ``k`` codes are met. From
then on t is the distance of the k-th nearest code met, and only falls. If the codes that may still
be within t would cost more than a scan of all, the search is given up, and the scan does it.

*Why nothing is missed.* The Hamming distance d is a metric. For a query q, a code x and its pivot c
the triangle inequality gives d(q, c) ≤ d(q, x) + d(x, c) and d(x, c) ≤ d(x, q) + d(q, c), hence
|d(q, c) − d(x, c)| ≤ d(q, x). A code within t bits of q is thus d(q, c) − t to d(q, c) + t bits
from its pivot. The codes of a pivot stand in the order of that distance, so those that may be
within t are neighbours: a cut. All codes of the cut are compared; all others are farther than t. A
cut made for a larger t holds that for a smaller one. Each step is proved in
docs/explanation/exact-search.md.
"""

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import Clusters, CodeSearch, DistinctCodes, Matches, Words
from channelhash.search.index.scans import (
    BLOCK,
    HALF,
    LIMIT,
    LOWER,
    SPARE,
    WITHIN,
    in_order,
    measure,
    no_candidates,
    take,
    write,
)
from channelhash.utils.compiled import inner, loop_threads, njit, run_tasks
from channelhash.utils.seeds import generator

#: Pivots, at most: few enough that a search measures all of them.
_PIVOTS = 1 << 12
#: Size of the sample of codes, for each pivot.
_SAMPLE = 32
#: Rounds in which pivots are drawn.
_ROUNDS = 8
#: Times that pivots move to the majority of their codes.
_MOVES = 2
#: Columns of distances for each pivot, at most, which bounds the size of the offsets.
_COLUMNS = 64
#: Codes that are compared with a block of pivots before it leaves the first cache.
_GROUP = 8
#: Codes below which one core is quicker.
_FEW = 1 << 12
#: What a cut costs besides its codes: as much as this many words of them.
_CUT = 768
#: A search is given up at once if k times the number of pivots is more than this many budgets: the
#: pivots near the query have too few codes.
_CROWDED = 8
#: Pivots whose codes are met first, at most.
_FIRST = 64
#: Distance that marks a pivot whose codes have been met.
_MET = np.uint16(0xFFFF)
#: Queries below which one core is quicker.
_FEW_QUERIES = 8


def cluster(distinct: DistinctCodes) -> tuple[DistinctCodes, Clusters]:
    """Return the codes in the order of their clusters, and the clusters.

    This takes O(m p) for ``m`` codes and ``p`` pivots, on all cores.

    >>> from channelhash.search.index import find_distinct
    >>> distinct = find_distinct(np.array([[7], [1], [7], [240]], np.uint8), n_bits=8)
    >>> codes, clusters = cluster(distinct)
    >>> codes.codes.shape, clusters.pivots.shape, clusters.reach.tolist()
    ((1, 3), (1, 3), [0, 0, 0])
    """
    codes, starts, rows = distinct
    pivots = _choose_pivots(codes)
    numbers, distances = _assign(codes, pivots)
    p = pivots.shape[1]
    farthest = int(distances.max())
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
    ordered = np.take(codes, order, axis=1)
    return DistinctCodes(ordered, new_starts.astype(np.uint32), rows[places]), clusters


def _choose_pivots(codes: Words) -> Words:
    """Return distinct pivots ``(words, p)`` for ``(words, m)`` codes."""
    m = codes.shape[1]
    random = generator(0, "clusters", m)
    sampled = random.choice(m, min(m, _SAMPLE * _PIVOTS), replace=False)
    sample = np.take(codes, np.sort(sampled), axis=1)
    n = sample.shape[1]
    pivots = np.take(sample, random.choice(n, min(n, _PIVOTS // _ROUNDS), replace=False), axis=1)
    nearest = _assign(sample, pivots)[1]
    while pivots.shape[1] < _PIVOTS and nearest.any():
        count = min(_PIVOTS // _ROUNDS, _PIVOTS - pivots.shape[1], int(np.count_nonzero(nearest)))
        # The largest of u^(1/w) are a draw without replacement by weights w (Efraimidis and
        # Spirakis 2006).
        with np.errstate(divide="ignore"):
            draws = np.log(random.random(n)) / nearest.astype(np.float64) ** 2
        drawn = np.take(sample, np.argpartition(-draws, count - 1)[:count], axis=1)
        pivots = np.concatenate([pivots, drawn], axis=1)
        nearest = np.minimum(nearest, _assign(sample, drawn)[1])
    for _ in range(_MOVES):
        pivots = _move_to_majority(sample, pivots, _assign(sample, pivots)[0])
    return np.ascontiguousarray(np.unique(pivots, axis=1))


def _move_to_majority(codes: Words, pivots: Words, numbers: NDArray[np.uint32]) -> Words:
    """Return pivots with the bits of most of their codes. If these are divided, or there are none,
    a pivot keeps its own bit.
    """
    word_bits = 8 * codes.itemsize
    votes = np.zeros((pivots.shape[1], len(codes), word_bits), dtype=np.int32)
    _vote(codes, numbers, votes)
    pivot_bits = (
        pivots.T[:, :, None] >> np.arange(word_bits - 1, -1, -1, dtype=codes.dtype)
    ) & codes.dtype.type(1)
    bits = np.where(votes == 0, pivot_bits != 0, votes > 0)
    packed = np.packbits(bits, axis=2).view(codes.dtype.newbyteorder(">"))[:, :, 0]
    return np.ascontiguousarray(packed.T.astype(codes.dtype))


@njit(cache=True, nogil=True)
def _vote(codes, numbers, votes):  # type: ignore[no-untyped-def]
    """Count, for each pivot, word and bit, how many more of its codes have the bit than lack it.
    The highest bit comes first.
    """
    bits = votes.shape[2]
    for i in range(codes.shape[1]):
        for w in range(len(codes)):
            word = np.uint64(codes[w, i])
            counts = votes[numbers[i], w]
            for b in range(bits):
                counts[b] += 2 * np.int32((word >> np.uint64(bits - 1 - b)) & np.uint64(1)) - 1


@njit(cache=True, nogil=True)
def _assign_groups(first, last, codes, pivots, numbers, distances):  # type: ignore[no-untyped-def]
    """Find the nearest pivot of each code in some groups; the first one of equally near ones."""
    measured = np.empty(BLOCK, dtype=np.uint16)
    for begin in range(first * _GROUP, min(last * _GROUP, codes.shape[1]), _GROUP):
        end = min(begin + _GROUP, codes.shape[1])
        distances[begin:end] = np.uint16(0xFFFF)
        for start in range(0, pivots.shape[1], BLOCK):
            size = min(BLOCK, pivots.shape[1] - start)
            for i in range(begin, end):
                measure(measured, codes[:, i], pivots, start, size)
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
    """Return the number of the pivot nearest to each code, and its distance."""
    m = codes.shape[1]
    numbers = np.zeros(m, np.uint32)
    distances = np.empty(m, np.uint16)
    groups = -(-m // _GROUP)
    # The codes of an index are read-only. Samples are made so, too, and the loop is compiled once.
    codes = codes.view()
    pivots = pivots.view()
    codes.flags.writeable = False
    pivots.flags.writeable = False
    run_tasks(_assign_groups, groups, codes, pivots, numbers, distances, alone=m < _FEW)
    return numbers, distances


@inner
def _cut(c, far, limit, offsets, shift):  # type: ignore[no-untyped-def]
    """Return begin and end of the codes of pivot ``c``, at distance ``far`` from the query, that
    may be within the limit.
    """
    last = offsets.shape[1] - 2
    low = max(0, far - limit) >> shift
    high = min(last, (far + limit) >> shift)
    if low > last:
        return np.int64(0), np.int64(0)
    return np.int64(offsets[c, low]), np.int64(offsets[c, high + 1])


@inner
def _visit(code, begin, end, distances, search, met):  # type: ignore[no-untyped-def]
    """Compare the codes of a cut. ``met`` are the query's entries, counts and state."""
    codes = search.codes
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        measure(distances, code, codes, start, size)
        take(distances, start, size, search, met)


@inner
def _list_cuts(far, limit, clusters, costs, listed):  # type: ignore[no-untyped-def]
    """List the pivots that may still have codes within the limit, as words of distance and number.
    Return how many they are; -1 if their cuts cost too much.

    ``costs`` are what a cut costs besides its codes, and what all cuts may cost.
    """
    reach = clusters.reach
    offsets = clusters.offsets
    shift = clusters.shift[0]
    of_cut, budget = costs
    n = 0
    for c in range(len(far)):
        if far[c] != _MET and np.int64(far[c]) <= np.int64(reach[c]) + limit:
            begin, end = _cut(c, np.int64(far[c]), limit, offsets, shift)
            if end > begin:
                budget -= of_cut + end - begin
                if budget < 0:
                    return -1
                listed[n] = (np.uint64(far[c]) << HALF) | np.uint64(c)
                n += 1
    return n


@inner
def _search_one(q, search, clusters, budget, rows, distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query and return their number; -1 if the search is given up."""
    # Entries have room for codes that are met twice, as in forged files.
    code = search.queries[q]
    candidates = no_candidates(search, 1, 1, 2 * (search.k + SPARE))
    met = candidates.entries[0, 0], candidates.counts[0, 0], candidates.states[0, 0]
    pivots = clusters.pivots
    offsets = clusters.offsets
    shift = clusters.shift[0]
    state = met[2]
    p = pivots.shape[1]
    measured = np.empty(BLOCK, dtype=np.uint16)
    far = np.empty((p + BLOCK - 1) // BLOCK * BLOCK, dtype=np.uint16)
    for start in range(0, p, BLOCK):
        measure(far[start:], code, pivots, start, min(BLOCK, p - start))
    far = far[:p]
    for _ in range(_FIRST):
        if state[WITHIN] >= search.k or state[LIMIT] < search.n_bits:
            break
        c = np.argmin(far)
        if far[c] != _MET:
            _visit(code, np.int64(offsets[c, 0]), np.int64(offsets[c, -1]), measured, search, met)
            far[c] = _MET
    listed = np.empty(p, dtype=np.uint64)
    n = _list_cuts(far, state[LIMIT], clusters, (_CUT // len(code), budget), listed)
    if n < 0:
        return -1
    listed = in_order(listed[:n], listed[:n])
    for i in range(n):
        pivot = listed[i]
        begin, end = _cut(
            np.int64(pivot & LOWER), np.int64(pivot >> HALF), state[LIMIT], offsets, shift
        )
        _visit(code, begin, end, measured, search, met)
    return write(0, candidates, search, rows[q], distances[q])


@njit(cache=True, nogil=True)
def _search_queries(  # type: ignore[no-untyped-def]
    first, last, search, clusters, budget, rows, distances, sizes
):
    for q in range(first, last):
        sizes[q] = _search_one(q, search, clusters, budget, rows, distances)


def search_clusters(search: CodeSearch, clusters: Clusters, budget: int) -> dict[int, Matches]:
    """Return query -> its first ``k`` rows within the radius, without the queries given up.

    A search may look at ``budget`` codes besides those of the nearest pivots; a cut counts as
    several codes.
    """
    n_queries = len(search.queries)
    if search.radius == search.n_bits and search.k * clusters.pivots.shape[1] > _CROWDED * budget:
        return {}
    rows, distances = np.empty((2, n_queries, search.k), dtype=np.int64)
    sizes = np.empty(n_queries, dtype=np.int64)
    if n_queries == 1:
        budget //= loop_threads()  # a scan would use all cores
    few = n_queries < _FEW_QUERIES
    run_tasks(
        _search_queries, n_queries, search, clusters, budget, rows, distances, sizes, alone=few
    )
    return {
        q: Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(sizes.tolist()) if n >= 0
    }
