"""Clusters of codes, in which `scans.search_clusters` looks at few of them.

Pivots are drawn like centres of k-means‖ (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii,
"Scalable k-means++", VLDB 2012): in a few rounds, those codes of a sample that are far from all
pivots so far with a probability that grows with the square of the distance. Then each pivot moves
to the majority of its codes' bits, which makes the sum of their distances least. Searches are exact
for any pivots; good ones make them quick.
"""

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import Clusters, DistinctCodes, Words
from channelhash.search.index.scans import BLOCK, measure
from channelhash.utils.compiled import njit, run_tasks
from channelhash.utils.seeds import generator

# Pivots, and codes of the sample for each.
_PIVOTS = 1 << 12
_SAMPLE = 32
# Rounds in which pivots are drawn, and times that they move.
_ROUNDS = 8
_MOVES = 2
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
    return DistinctCodes(
        np.take(codes, order, axis=1), new_starts.astype(np.uint32), rows[places]
    ), clusters


def _choose(codes: Words) -> Words:
    """Return pivots ``(words, p)`` for ``(words, m)`` codes, all different."""
    m = codes.shape[1]
    random = generator(0, "clusters", m)
    sample = np.take(
        codes, np.sort(random.choice(m, min(m, _SAMPLE * _PIVOTS), replace=False)), axis=1
    )
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
        pivots = _moved(sample, pivots, _assign(sample, pivots)[0])
    return np.ascontiguousarray(np.unique(pivots, axis=1))


def _moved(codes: Words, pivots: Words, numbers: NDArray[np.uint32]) -> Words:
    """Return pivots whose bits are those of most of their codes; where there are none, or as many,
    the pivot's own.
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
    """Count of each pivot, word and bit, the highest first, how many more of its codes have it than
    do not.
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
    """Find the nearest pivot of the codes of some groups, the first of equally near ones."""
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
    """Return of each code the number of its nearest pivot and the distance to it."""
    numbers, distances = np.zeros(codes.shape[1], np.uint32), np.empty(codes.shape[1], np.uint16)
    groups = -(-codes.shape[1] // _GROUP)
    # The codes of an index cannot be written to: with those of samples alike, the loop is compiled
    # once.
    codes, pivots = codes.view(), pivots.view()
    codes.flags.writeable = pivots.flags.writeable = False
    run_tasks(
        _assign_groups, groups, codes, pivots, numbers, distances, alone=codes.shape[1] < _FEW
    )
    return numbers, distances
