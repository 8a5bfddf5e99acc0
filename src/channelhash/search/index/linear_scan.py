"""The compiled pass over all distinct codes: the nearest ones, and all within a radius. It builds no array of pairs."""

from typing import NamedTuple

import numpy as np

from channelhash.codes.popcount import popcount
from channelhash.search.index.brute_force import Matches
from channelhash.search.index.request import Search
from channelhash.search.index.top_k import (
    HALF,
    LIMIT,
    SIZE,
    add,
    answers,
    capacity,
    first_row,
    make_room,
    matches,
    no_candidates,
)
from channelhash.utils.compiled import njit, prange
from channelhash.utils.parallel_loops import loop_threads, parallel_loop

# Codes whose distances are held at once, and those among them that are looked at one by one if any of them is near.
BLOCK = 1024
CHUNK = 64
# Codes around a query's place in the ascending order that give the first limit: so many, or so many times k.
_AROUND, _TIMES = 2048, 8
# Queries that go over such a block before it leaves the first cache.
_GROUP = 8
# Pairs below which waking the other cores takes longer than they save.
_FEW = 1 << 18


@njit(nogil=True)
def measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """``out[i]`` = distance of a query's words to code ``start + i``; farther than any up to the end of the chunk."""
    word, column = code[0], codes[0, start : start + size]
    if len(code) == 2:
        second, second_column = code[1], codes[1, start : start + size]
        for i in range(size):
            out[i] = popcount(word ^ column[i]) + popcount(second ^ second_column[i])  # type: ignore[call-arg]
    else:
        for i in range(size):
            out[i] = popcount(word ^ column[i])  # type: ignore[call-arg]
        for w in range(1, len(code)):
            word, column = code[w], codes[w, start : start + size]
            for i in range(size):
                out[i] += popcount(word ^ column[i])  # type: ignore[call-arg]
    for i in range(size, (size + CHUNK - 1) // CHUNK * CHUNK):
        out[i] = np.uint16(0xFFFF)


@njit(nogil=True)
def _any_near(distances, limit):  # type: ignore[no-untyped-def]
    """Return whether one of a chunk is within the limit."""
    found = np.uint16(0)
    for i in range(CHUNK):
        found |= np.uint16(distances[i] <= limit)
    return found != 0


@njit(nogil=True)
def take_near(distances, start, size, k, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Add those of ``size`` measured codes, the first of which is ``start``, that are within the limit and count."""
    for chunk in range(0, size, CHUNK):
        if not _any_near(distances[chunk : chunk + CHUNK], np.uint16(state[LIMIT])):
            continue
        for i in range(chunk, chunk + CHUNK):
            c = start + i
            if distances[i] <= state[LIMIT] and (len(allowed) == 0 or first_row(c, starts, rows, allowed) >= 0):
                if state[SIZE] == len(entries):
                    make_room(k, entries, counts, state, starts, rows, allowed)
                add(distances[i], c, k, entries, counts, state)


class _Division(NamedTuple):
    """How a scan is cut into tasks, each a group of queries in a segment of the codes."""

    tasks: int
    group: int
    segments: int


@njit(nogil=True)
def _part(task, division, search):  # type: ignore[no-untyped-def]
    """Return first and last query of a task, and its segment, first and last code."""
    n_queries, n_codes = len(search.queries), search.codes.shape[1]
    first, segment = task // division.segments * division.group, task % division.segments
    length = (n_codes + division.segments - 1) // division.segments
    last, end = min(first + division.group, n_queries), min((segment + 1) * length, n_codes)
    return first, last, segment, segment * length, end


@njit(nogil=True)
def _first_limit(code, search, begin, end, distances, counts, limit):  # type: ignore[no-untyped-def]
    """Return a limit within which there are ``k`` codes, or the given one.

    Of codes in ascending order those around a query's place share its first bits, and are mostly nearer than others.
    With a limit from them, few entries are taken in vain. ``counts`` comes and goes as zeros.
    """
    codes, starts, rows, allowed, k = search.codes, search.starts, search.rows, search.allowed, search.k
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
    for start in range(low, low + around, BLOCK):
        size = min(BLOCK, low + around - start)
        measure(distances, code, codes, start, size)
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
def _nearest_task(task, division, search, found):  # type: ignore[no-untyped-def]
    """Add the candidates of a few queries in a segment of the codes to ``candidates[segment, query]``."""
    first, last, segment, begin, end = _part(task, division, search)
    queries, codes, k = search.queries, search.codes, search.k
    starts, rows, allowed = search.starts, search.rows, search.allowed
    distances = np.empty(BLOCK, dtype=np.uint16)
    for q in range(first, last):
        state, counts = found.states[segment, q], found.counts[segment, q]
        state[LIMIT] = _first_limit(queries[q], search, begin, end, distances, counts, state[LIMIT])
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        for q in range(first, last):
            measure(distances, queries[q], codes, start, size)
            entries, counts, state = found.entries[segment, q], found.counts[segment, q], found.states[segment, q]
            take_near(distances, start, size, k, entries, counts, state, starts, rows, allowed)


@parallel_loop()
def _nearest_tasks(division, search, found):  # type: ignore[no-untyped-def]
    for task in prange(division.tasks):
        _nearest_task(task, division, search, found)


def nearest(search: Search) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius.

    >>> from channelhash.search.index.deduplicate import distinct_codes
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> nearest(search)[0].rows.tolist()
    [0]
    """
    division, m = _division(search), search.codes.shape[1]
    found = no_candidates(search, division.segments, capacity(search.k, -(-m // division.segments)))
    if search.queries.size * m < _FEW:
        for task in range(division.tasks):
            _nearest_task(task, division, search, found)
    else:
        _nearest_tasks(division, search, found)
    return answers(found, search)


def _division(search: Search) -> _Division:
    """Divide a scan such that every core has some tasks, which end at about one time."""
    nq = len(search.queries)
    if search.queries.size * search.codes.shape[1] < _FEW:
        return _Division(-(-nq // _GROUP), _GROUP, 1)
    threads = loop_threads()
    group = max(1, min(_GROUP, nq // (2 * threads)))
    groups = -(-nq // group)
    segments = -(-2 * threads // groups)
    return _Division(groups * segments, group, segments)


@njit(cache=True, nogil=True)
def _within_task(task, division, search, places, keys):  # type: ignore[no-untyped-def]
    """Write distance (above) and number (below) of the rows within the radius to ``keys``, from the place
    ``places[segment, query]`` on, which goes ahead by one a row; where ``keys`` is empty, only that."""
    first, last, segment, begin, end = _part(task, division, search)
    queries, codes, radius = search.queries, search.codes, search.radius
    starts, rows, allowed = search.starts, search.rows, search.allowed
    distances = np.empty(BLOCK, dtype=np.uint16)
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        for q in range(first, last):
            measure(distances, queries[q], codes, start, size)
            for chunk in range(0, size, CHUNK):
                if not _any_near(distances[chunk : chunk + CHUNK], np.uint16(radius)):
                    continue
                for i in range(chunk, min(chunk + CHUNK, size)):
                    if distances[i] <= radius:
                        for e in range(starts[start + i], starts[start + i + 1]):
                            if len(allowed) == 0 or allowed[rows[e]]:
                                if len(keys):
                                    keys[places[segment, q]] = (np.uint64(distances[i]) << HALF) | np.uint64(rows[e])
                                places[segment, q] += 1


@parallel_loop()
def _within_tasks(division, search, places, keys):  # type: ignore[no-untyped-def]
    for task in prange(division.tasks):
        _within_task(task, division, search, places, keys)


def within(search: Search) -> list[Matches]:
    """Find all rows of each query within the radius, whatever ``k``. They are counted before they are written.

    >>> from channelhash.search.index.deduplicate import distinct_codes
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> within(search)[0].rows.tolist()
    [0, 1]
    """
    division, nq = _division(search), len(search.queries)
    counts = np.zeros((division.segments, nq), dtype=np.int64)
    _within_tasks(division, search, counts, np.empty(0, dtype=np.uint64))
    ends = np.cumsum(counts.T.ravel())
    places = np.ascontiguousarray((ends - counts.T.ravel()).reshape(nq, division.segments).T)
    keys = np.empty(ends[-1], dtype=np.uint64)
    if len(keys):
        _within_tasks(division, search, places, keys)
    return [matches(np.sort(part)) for part in np.split(keys, ends[division.segments - 1 : -1 : division.segments])]
