"""Clusters of codes, and searches in them, which read few words.

*Clusters.* Pivots are drawn like the centres of k-means‖ (Bahmani, Moseley, Vattani, Kumar and
Vassilvitskii, "Scalable k-means++", VLDB 2012): in each of a few rounds, codes of a sample are
drawn with a probability that grows with the square of their distance to the nearest pivot so far.
Then each pivot moves to the majority of its codes' bits, which makes the sum of their distances
least. Searches are exact for any pivots; good ones make them quick.

*Searches.* The codes of the nearest pivots, as many as have ``k`` codes, give the first limit t.
From then on t is the distance of the k-th nearest code met, and only falls. Pivots are gone through
in their order, their codes in chunks: words of a chunk are read only while any of its codes may be
within t.

*Why nothing is missed.* Let a query q and a pivot c differ in d(q, c) bits, and let a code x differ
from q in a of the other bits. There it differs from c, too, so it differs from c in d(x, c) − a of
the d(q, c) bits, and from q in all others of these: d(q, x) = d(q, c) − d(x, c) + 2 a. The words
read so far give a lower bound of a, none gives 0, and a chunk has a largest d(x, c). So each chunk
has a lower bound of d(q, x), which reaches its codes' distances with the last word. Each step is
proved in docs/explanation/exact-search.md.
"""

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.layout import (
    CHUNK,
    Clusters,
    CodeSearch,
    DistinctCodes,
    Matches,
    Words,
    count_chunks,
)
from channelhash.search.index.scans import (
    BLOCK,
    LIMIT,
    count,
    limit_of,
    look,
    measure,
    run,
    write,
)
from channelhash.utils.compiled import inlined, inner, njit, run_tasks, uncounted
from channelhash.utils.seeds import generator

#: Pivots, at most: few enough that a search measures all of them.
_PIVOTS = 1 << 12
#: Pivots if more would not be much closer to the codes.
_FEWER_PIVOTS = 1 << 10
#: Largest share of the mean distance to these that is left by more pivots which are worth it.
_CLOSER = 0.7
#: Size of the sample of codes, for each pivot.
_SAMPLE = 32
#: Rounds in which pivots are drawn.
_ROUNDS = 8
#: Times that pivots move to the majority of their codes.
_MOVES = 2
#: Codes that are compared with a block of pivots before it leaves the first cache.
_GROUP = 8
#: Codes below which one core is quicker.
_FEW = 1 << 12
#: Pivots whose codes give the first limit, at most.
_FIRST = 64
#: Distance that marks a pivot whose codes have been met.
_MET = np.uint16(0xFFFF)
#: Pivots whose codes are searched for all queries of a group before they leave the second cache.
_BLOCK = 64


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
    order = np.argsort((numbers.astype(np.int64) << 16) | distances, kind="stable")
    in_cluster = np.bincount(numbers, minlength=p)
    in_chunks = -(-in_cluster // CHUNK)
    offsets = np.append(0, np.cumsum(in_cluster))
    chunks = count_chunks(in_cluster)
    of_chunk = np.repeat(np.arange(p), in_chunks)
    ends = offsets[:-1][of_chunk] + CHUNK * (np.arange(chunks[-1]) - chunks[:-1][of_chunk] + 1)
    reach = distances[order][np.minimum(ends, offsets[1:][of_chunk]) - 1]
    farthest = np.zeros(p, dtype=np.uint16)
    np.maximum.at(farthest, numbers, distances)
    cost = np.zeros(1, dtype=np.int64)  # until searches are tried
    clusters = Clusters(
        pivots, offsets.astype(np.uint32), chunks.astype(np.uint32), reach, farthest, cost
    )
    sizes = (starts[1:] - starts[:-1])[order]
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
    mean = np.inf
    while pivots.shape[1] < _PIVOTS and nearest.any():
        count = min(_PIVOTS // _ROUNDS, _PIVOTS - pivots.shape[1], int(np.count_nonzero(nearest)))
        # The largest of u^(1/w) are a draw without replacement by weights w (Efraimidis and
        # Spirakis 2006).
        with np.errstate(divide="ignore"):
            draws = np.log(random.random(n)) / nearest.astype(np.float64) ** 2
        drawn = np.take(sample, np.argpartition(-draws, count - 1)[:count], axis=1)
        pivots = np.concatenate([pivots, drawn], axis=1)
        nearest = np.minimum(nearest, _assign(sample, drawn)[1])
        if pivots.shape[1] == _FEWER_PIVOTS:
            mean = nearest.mean()
    if nearest.mean() > _CLOSER * mean:
        pivots = pivots[:, :_FEWER_PIVOTS]
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
def _approach(far, code, search, offsets, distances, counts, limit):  # type: ignore[no-untyped-def]
    """Return a limit within which the nearest pivots have ``k`` codes, or the given one.

    ``far`` are distances to the pivots; they and ``counts``, which are zero, are left as they were.
    """
    p = len(far)
    if search.k * p > _FIRST * search.codes.shape[1]:
        return limit
    nearest = np.empty(_FIRST, dtype=np.int64)
    nearest_far = np.empty(_FIRST, dtype=np.uint16)
    met = 0
    n = 0
    while n < min(_FIRST, p) and met < search.k:
        least = _MET
        for c in range(p):
            least = min(least, far[c])
        c = 0
        while far[c] != least:
            c += 1
        begin = np.int64(offsets[c])
        end = np.int64(offsets[c + 1])
        met += count(code, begin, end, distances, search, counts)
        nearest[n] = c
        nearest_far[n] = least
        far[c] = _MET
        n += 1
    for i in range(n):
        far[nearest[i]] = nearest_far[i]
    return limit_of(counts, search.k, limit)


@inlined
def _list_pivots(begin, end, limit, far, farthest, listed):  # type: ignore[no-untyped-def]
    """List the pivots from ``begin`` to ``end`` that may have codes within the limit, and return
    their number.
    """
    n = 0
    for c in range(begin, end):
        listed[n] = c
        n += np.int64(far[c]) <= limit + np.int64(farthest[c])
    return n


@inlined
def _visit(c, away, code, search, clusters, met, work):  # type: ignore[no-untyped-def]
    """Add the codes of a pivot, ``away`` from the query, that are within the limit and count."""
    pivots, offsets, chunks, reach, _, _ = clusters
    agree = work[2]
    state = met[2]
    one_word = len(agree) == 1
    for w in range(len(agree)):
        agree[w] = ~(code[w] ^ pivots[w, c])
    if one_word:  # which gives distances, not only bounds of them
        agree[0] |= ~agree[0]
    low = np.int64(chunks[c])
    for j in range(low, np.int64(chunks[c + 1])):
        most = state[LIMIT] + np.int64(reach[j]) - away
        if most < 0:
            continue
        if j > low and np.int64(reach[j - 1]) > away + state[LIMIT]:
            break
        start = np.int64(offsets[c]) + CHUNK * (j - low)
        end = min(start + CHUNK, np.int64(offsets[c + 1]))
        most = state[LIMIT] if one_word else most // 2
        look(code, agree, start, end, np.uint16(most), search, met, work)


@inner
def _search(  # type: ignore[no-untyped-def]
    first_task, last_task, division, search, candidates, answers, clusters, work
):
    """Do tasks of `_cluster_tasks`, with its own memory to work in."""
    search, candidates, clusters, work = uncounted(  # type: ignore[call-arg]
        (search, candidates, clusters, work)
    )
    queries = search.queries
    entries, counts, states = candidates
    pivots, offsets, _, _, farthest, _ = clusters
    distances, _, _, far, listed = work
    group, segments = division
    p = pivots.shape[1]
    length = -(-p // segments)
    for task in range(first_task, last_task):
        first = task // segments * group
        segment = task % segments
        last = min(first + group, len(queries))
        begin = segment * length
        end = min(begin + length, p)
        for q in range(first, last):
            away = far[q - first]
            state = states[segment, q]
            for start in range(0, p, BLOCK):
                measure(away[start:], queries[q], pivots, start, min(BLOCK, p - start))
            state[LIMIT] = _approach(
                away, queries[q], search, offsets, distances, counts[segment, q], state[LIMIT]
            )
        for block in range(begin, end, _BLOCK):
            block_end = min(block + _BLOCK, end)
            for q in range(first, last):
                away = far[q - first]
                met = entries[segment, q], counts[segment, q], states[segment, q]
                n = _list_pivots(block, block_end, met[2][LIMIT], away, farthest, listed)
                for i in range(n):
                    c = listed[i]
                    _visit(c, np.int64(away[c]), queries[q], search, clusters, met, work)
        if segments == 1:
            write(first, last, candidates, search, answers)


@njit(cache=True, nogil=True)
def _cluster_tasks(  # type: ignore[no-untyped-def]
    first_task, last_task, division, search, candidates, answers, clusters
):
    """Add the candidates of some tasks to ``candidates[segment, query]``. A task is a group of
    queries in one segment of the pivots; if there is one segment, the answers are written, too.
    """
    work = (
        np.empty(BLOCK, dtype=np.uint16),
        np.empty(CHUNK, dtype=np.uint16),
        np.empty(len(search.codes), dtype=search.codes.dtype),
        np.empty((division[0], clusters.pivots.shape[1]), dtype=np.uint16),
        np.empty(_BLOCK, dtype=np.int64),
    )
    _search(first_task, last_task, division, search, candidates, answers, clusters, work)


def search_clusters(
    search: CodeSearch, clusters: Clusters
) -> tuple[list[Matches], NDArray[np.int64]]:
    """Find the first ``k`` rows of each query within the radius. Return them, and the states."""
    return run(_cluster_tasks, search, len(search.queries) * int(clusters.cost[0]), clusters)
