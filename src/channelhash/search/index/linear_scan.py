"""The compiled pass over all distinct codes: the nearest ones, and all within a radius. It builds no array of pairs."""

import numpy as np
from numba import get_num_threads, njit, prange

from channelhash.codes.popcount import popcount
from channelhash.search.index.brute_force import Matches
from channelhash.search.index.deduplicate import DistinctCodes, Mask, Words
from channelhash.search.index.top_k import (
    HALF,
    LIMIT,
    add,
    answers,
    capacity,
    first_row,
    matches,
    nothing_found,
)

# Codes whose distances are held at once, and those among them that are looked at one by one if any of them is near.
_BLOCK = 1024
_CHUNK = 64
# Codes around a query's place in the ascending order that give the first limit: so many, or so many times k.
_AROUND, _TIMES = 2048, 8
# Queries that go over such a block before it leaves the first cache.
_GROUP = 8
# Pairs below which waking the other cores takes longer than they save.
_FEW = 1 << 18


@njit(nogil=True)
def _measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """``out[i]`` = distance of a query's words to code ``start + i``; farther than any up to the end of the chunk."""
    word, column = code[0], codes[0, start : start + size]
    if len(code) == 2:
        second, other = code[1], codes[1, start : start + size]
        for i in range(size):
            out[i] = popcount(word ^ column[i]) + popcount(second ^ other[i])  # type: ignore[call-arg]
    else:
        for i in range(size):
            out[i] = popcount(word ^ column[i])  # type: ignore[call-arg]
        for w in range(1, len(code)):
            word, column = code[w], codes[w, start : start + size]
            for i in range(size):
                out[i] += popcount(word ^ column[i])  # type: ignore[call-arg]
    for i in range(size, (size + _CHUNK - 1) // _CHUNK * _CHUNK):
        out[i] = np.uint16(0xFFFF)


@njit(nogil=True)
def _any_near(distances, limit):  # type: ignore[no-untyped-def]
    """Whether one of a chunk is within the limit."""
    found = np.uint16(0)
    for i in range(_CHUNK):
        found |= np.uint16(distances[i] <= limit)
    return found != 0


@njit(nogil=True)
def _part(task, group, segments, n_queries, n_codes):  # type: ignore[no-untyped-def]
    """First and last query of a task, and its segment, first and last code."""
    first, segment = task // segments * group, task % segments
    length = (n_codes + segments - 1) // segments
    return first, min(first + group, n_queries), segment, segment * length, min((segment + 1) * length, n_codes)


@njit(nogil=True)
def _first_limit(code, codes, starts, rows, allowed, begin, end, k, distances, counts, limit):  # type: ignore[no-untyped-def]
    """A limit within which there are ``k`` codes, or the given one.

    Of codes in ascending order those around a query's place share its first bits, and are mostly nearer than others.
    With a limit from them, few entries are taken in vain. ``counts`` comes and goes as zeros.
    """
    around = max(_AROUND, _TIMES * k)
    if end - begin < 8 * around:
        return limit
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if codes[0, middle] < code[0]:
            low = middle + 1
        else:
            high = middle
    low = min(max(begin, low - around // 2), end - around)
    for start in range(low, low + around, _BLOCK):
        size = min(_BLOCK, low + around - start)
        _measure(distances, code, codes, start, size)
        for i in range(size):
            counts[distances[i]] += len(allowed) == 0 or first_row(start + i, starts, rows, allowed) >= 0
    met = counts[0]
    for d in range(limit):
        if met >= k:
            limit = d
            break
        met += counts[d + 1]
    counts[:] = 0
    return limit


@njit(cache=True, nogil=True)
def _nearest_task(task, queries, codes, starts, rows, allowed, k, group, entries, counts, states):  # type: ignore[no-untyped-def]
    """Candidates of a few queries in a segment of the codes, as `candidates` has them ``[segment, query]``."""
    first, last, segment, begin, end = _part(task, group, len(entries), len(queries), codes.shape[1])
    distances = np.empty(_BLOCK, dtype=np.uint16)
    for q in range(first, last):
        states[segment, q, LIMIT] = _first_limit(
            queries[q], codes, starts, rows, allowed, begin, end, k, distances, counts[segment, q],
            states[segment, q, LIMIT],
        )  # fmt: skip
    for start in range(begin, end, _BLOCK):
        size = min(_BLOCK, end - start)
        for q in range(first, last):
            _measure(distances, queries[q], codes, start, size)
            found, count, state = entries[segment, q], counts[segment, q], states[segment, q]
            for chunk in range(0, size, _CHUNK):
                if not _any_near(distances[chunk : chunk + _CHUNK], np.uint16(state[LIMIT])):
                    continue
                for i in range(chunk, chunk + _CHUNK):
                    if distances[i] <= state[LIMIT]:
                        add(distances[i], start + i, k, found, count, state, starts, rows, allowed)


@njit(cache=True, parallel=True)
def _nearest_tasks(tasks, queries, codes, starts, rows, allowed, k, group, entries, counts, states):  # type: ignore[no-untyped-def]
    for task in prange(tasks):
        _nearest_task(task, queries, codes, starts, rows, allowed, k, group, entries, counts, states)


def nearest(queries: Words, distinct: DistinctCodes, k: int, n_bits: int, radius: int, allowed: Mask) -> list[Matches]:
    """The ``k`` nearest rows of each query within ``radius``.

    Args:
        queries: ``(nq, words)``.
        k: 1 to the number of rows.
        radius: 0 to ``n_bits``.
    """
    nq, m = len(queries), distinct.codes.shape[1]
    tasks, group, segments = _division(queries.size, m, nq)
    found = nothing_found(segments, nq, capacity(k, -(-m // segments)), n_bits, radius)
    arguments = queries, *distinct, allowed, k, group, *found
    if queries.size * m < _FEW:
        for task in range(tasks):
            _nearest_task(task, *arguments)
    else:
        _nearest_tasks(tasks, *arguments)
    return answers(found, radius, k, distinct, allowed)


def _division(n_words: int, m: int, nq: int) -> tuple[int, int, int]:
    """Number of tasks, queries a task, and segments of the codes: every core has some, that end at about one time."""
    if n_words * m < _FEW:
        return -(-nq // _GROUP), _GROUP, 1
    threads = get_num_threads()
    group = max(1, min(_GROUP, nq // (2 * threads)))
    groups = -(-nq // group)
    segments = -(-2 * threads // groups)
    return groups * segments, group, segments


@njit(cache=True, nogil=True)
def _within_task(task, queries, codes, starts, rows, allowed, radius, group, places, found):  # type: ignore[no-untyped-def]
    """Write distance (above) and number (below) of the rows within the radius to ``found``, from the place
    ``places[segment, query]`` on, which goes ahead by one a row; where ``found`` is empty, only that."""
    first, last, segment, begin, end = _part(task, group, len(places), len(queries), codes.shape[1])
    distances = np.empty(_BLOCK, dtype=np.uint16)
    for start in range(begin, end, _BLOCK):
        size = min(_BLOCK, end - start)
        for q in range(first, last):
            _measure(distances, queries[q], codes, start, size)
            for chunk in range(0, size, _CHUNK):
                if not _any_near(distances[chunk : chunk + _CHUNK], np.uint16(radius)):
                    continue
                for i in range(chunk, min(chunk + _CHUNK, size)):
                    if distances[i] <= radius:
                        for e in range(starts[start + i], starts[start + i + 1]):
                            if len(allowed) == 0 or allowed[rows[e]]:
                                if len(found):
                                    found[places[segment, q]] = (np.uint64(distances[i]) << HALF) | np.uint64(rows[e])
                                places[segment, q] += 1


@njit(cache=True, parallel=True)
def _within_tasks(tasks, queries, codes, starts, rows, allowed, radius, group, places, found):  # type: ignore[no-untyped-def]
    for task in prange(tasks):
        _within_task(task, queries, codes, starts, rows, allowed, radius, group, places, found)


def within(queries: Words, distinct: DistinctCodes, radius: int, allowed: Mask) -> list[Matches]:
    """All rows within ``radius`` of each query; arguments as in `nearest`. They are counted before they are written."""
    nq, m = len(queries), distinct.codes.shape[1]
    tasks, group, segments = _division(queries.size, m, nq)
    counts = np.zeros((segments, nq), dtype=np.int64)
    arguments = queries, *distinct, allowed, radius, group
    _within_tasks(tasks, *arguments, counts, np.empty(0, dtype=np.uint64))
    ends = np.cumsum(counts.T.ravel())
    places = np.ascontiguousarray((ends - counts.T.ravel()).reshape(nq, segments).T)
    found = np.empty(ends[-1], dtype=np.uint64)
    if len(found):
        _within_tasks(tasks, *arguments, places, found)
    return [matches(np.sort(keys)) for keys in np.split(found, ends[segments - 1 : -1 : segments])]
