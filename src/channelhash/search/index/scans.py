"""Compiled searches for the nearest codes within a radius: over all distinct ones, or in clusters.

An entry is one word: the distance above, the number of the code below, 32 bits each. Entries
farther than a limit are not taken; the limit is the distance of the ``k``-th nearest code, as soon
as so many are met. The ``k`` nearest codes by (distance, first row) hold the ``k`` nearest rows: a
row of any other code comes after the first rows of those ``k``.

Beside the entries a pass keeps how many codes it has met by distance (``counts``, exact up to the
limit) and its ``state``: the number of entries, the limit, and the number of codes within it.

Where codes lie in clusters, around pivots, few of them are looked at, with bounds from the triangle
inequality.

Why nothing is missed. The Hamming distance d is a metric. For a query q, a code x and its pivot c
it gives d(q, c) ≤ d(q, x) + d(x, c) and d(x, c) ≤ d(x, q) + d(q, c), hence |d(q, c) − d(x, c)| ≤
d(q, x). A code within t bits of q is thus at a distance of d(q, c) − t to d(q, c) + t from its
pivot. Codes stand by that distance, so those that may be within t are neighbours: a cut of the
pivot's codes. All of the cut are compared; all others are farther than t.

The search starts with the codes of the nearest pivots, until k codes are met. From then on t is the
distance of the k-th nearest code met, and only falls. A cut made for a larger t holds that for a
smaller one. Where the cuts together would cost more than a scan of all codes, the search is given
up, and the scan does it. Each step is proved in docs/explanation/exact-search.md.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import Clusters, Matches, Search
from channelhash.utils.compiled import inner, loop_threads, njit, popcount, run_tasks

# Codes whose distances are held at once, and those among them that are looked at one by one if any
# of them is near.
BLOCK = 1024
_CHUNK = 64
# Codes around a query's place in the ascending order that give the first limit: so many, or so many
# times k.
_AROUND = 2048
_TIMES = 8
# Queries that go over such a block before it leaves the first cache.
_GROUP = 8
# Words to compare below which one core is quicker; more where others have work, see
# `compile_loops`.
few_words = 1 << 18


@inner
def measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """``out[i]`` = distance of a query's words to code ``start + i``; farther than any up to the
    end of the chunk.
    """
    word = code[0]
    column = codes[0, start : start + size]
    if len(code) == 2:
        second = code[1]
        second_column = codes[1, start : start + size]
        for i in range(size):
            out[i] = popcount(word ^ column[i]) + popcount(second ^ second_column[i])  # type: ignore[call-arg]
    else:
        for i in range(size):
            out[i] = popcount(word ^ column[i])  # type: ignore[call-arg]
        for w in range(1, len(code)):
            word = code[w]
            column = codes[w, start : start + size]
            for i in range(size):
                out[i] += popcount(word ^ column[i])  # type: ignore[call-arg]
    for i in range(size, (size + _CHUNK - 1) // _CHUNK * _CHUNK):
        out[i] = np.uint16(0xFFFF)


@inner
def _any_near(distances, limit):  # type: ignore[no-untyped-def]
    """Return whether one of a chunk is within the limit."""
    near = np.uint16(0)
    for i in range(_CHUNK):
        near |= np.uint16(distances[i] <= limit)
    return near != 0


@inner
def _take(distances, start, size, k, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Add those of ``size`` measured codes, the first of which is ``start``, that are within the
    limit and count.
    """
    for chunk in range(0, size, _CHUNK):
        if not _any_near(distances[chunk : chunk + _CHUNK], np.uint16(state[_LIMIT])):
            continue
        for i in range(chunk, chunk + _CHUNK):
            c = start + i
            if distances[i] <= state[_LIMIT] and (
                len(allowed) == 0 or _first_row(c, starts, rows, allowed) >= 0
            ):
                if state[_SIZE] == len(entries):
                    _make_room(k, entries, counts, state, starts, rows, allowed)
                _add(distances[i], c, k, entries, counts, state)


@inner
def _first_limit(code, search, begin, end, distances, counts, limit):  # type: ignore[no-untyped-def]
    """Return a limit within which there are ``k`` codes, or the given one.

    Of codes in ascending order those around a query's place share its first bits, and are mostly
    nearer than others. With a limit from them, few entries are taken in vain. ``counts`` comes and
    goes as zeros.
    """
    codes, k = search.codes, search.k
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    around = max(_AROUND, _TIMES * k)
    if end - begin < 8 * around:
        return limit
    low = begin
    high = end
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
            counts[distances[i]] += (
                len(allowed) == 0 or _first_row(start + i, starts, rows, allowed) >= 0
            )
    met = counts[0]
    for d in range(limit):
        if met >= k:
            limit = d
            break
        met += counts[d + 1]
    counts[:] = 0
    return limit


@njit(cache=True, nogil=True)
def _nearest_tasks(first_task, last_task, group, segments, search, candidates):  # type: ignore[no-untyped-def]
    """Add the candidates of groups of queries, each in a segment of the codes, to
    ``candidates[segment, query]``.
    """
    queries = search.queries
    codes = search.codes
    k = search.k
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    length = -(-codes.shape[1] // segments)
    distances = np.empty(BLOCK, dtype=np.uint16)
    for task in range(first_task, last_task):
        first = task // segments * group
        segment = task % segments
        last = min(first + group, len(queries))
        begin = segment * length
        end = min(begin + length, codes.shape[1])
        for q in range(first, last):
            state, counts = candidates.states[segment, q], candidates.counts[segment, q]
            state[_LIMIT] = _first_limit(
                queries[q], search, begin, end, distances, counts, state[_LIMIT]
            )
        for start in range(begin, end, BLOCK):
            size = min(BLOCK, end - start)
            for q in range(first, last):
                measure(distances, queries[q], codes, start, size)
                entries = candidates.entries[segment, q]
                counts = candidates.counts[segment, q]
                state = candidates.states[segment, q]
                _take(distances, start, size, k, entries, counts, state, starts, rows, allowed)


def search_all(search: Search) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius.

    >>> from channelhash.search.index import find_distinct
    >>> codes, no_mask = find_distinct(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> search_all(search)[0].rows.tolist()
    [0]
    """
    group, segments = _division(search)
    nq = len(search.queries)
    m = search.codes.shape[1]
    candidates = _no_candidates(
        search, segments, nq, min(2 * (search.k + _SPARE), -(-m // segments))
    )
    tasks = -(-nq // group) * segments
    alone = search.queries.size * m < few_words
    run_tasks(_nearest_tasks, tasks, group, segments, search, candidates, alone=alone)
    rows, distances = np.empty((2, nq, search.k), dtype=np.int64)
    sizes = np.empty(nq, dtype=np.int64)
    _write_answers(candidates, search, rows, distances, sizes)
    return [Matches(rows[q, :size], distances[q, :size]) for q, size in enumerate(sizes)]


def _division(search: Search) -> tuple[int, int]:
    """Return how many queries and segments of the codes make a task, so that all cores end at about
    one time.
    """
    nq = len(search.queries)
    if search.queries.size * search.codes.shape[1] < few_words:
        return _GROUP, 1
    threads = loop_threads()
    group = max(1, min(_GROUP, nq // (2 * threads)))
    groups = -(-nq // group)
    return group, -(-2 * threads // groups)


_SIZE = 0
_LIMIT = 1
_WITHIN = 2
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)

# Room for entries beside the answers, so that they are seldom sorted out.
_SPARE = 512


class _Candidates(NamedTuple):
    """Codes met in several passes over different codes, ``[pass, query]``.

    Attributes:
        entries: ``(passes, nq, capacity)``.
        counts: ``(passes, nq, n_bits + 1)``.
        states: ``(passes, nq, 3)``.
    """

    entries: NDArray[np.uint64]
    counts: NDArray[np.int64]
    states: NDArray[np.int64]


def _no_candidates(search: Search, passes: int, n_queries: int, room: int) -> _Candidates:
    """Return what passes with room for so many entries start from; codes beyond the radius are not
    taken.
    """
    states = np.zeros((passes, n_queries, 3), dtype=np.int64)
    states[:, :, _LIMIT] = search.radius
    entries = np.empty((passes, n_queries, room), dtype=np.uint64)
    return _Candidates(
        entries, np.zeros((passes, n_queries, search.n_bits + 1), dtype=np.int64), states
    )


# The same, for compiled loops.
_fresh = inner(_no_candidates)


# Loops work on arrays that were taken out of the tuples before: doing so in a loop costs more than
# the rest of it.


@inner
def _first_row(c, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Return the first row of code ``c`` that counts, -1 if none does."""
    if len(allowed) == 0:
        return np.int64(rows[starts[c]])
    for i in range(starts[c], starts[c + 1]):
        if allowed[rows[i]]:
            return np.int64(rows[i])
    return np.int64(-1)


@inner
def _sort_keys(entries, n, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Return of each entry its distance above and the first row of its code below: the order of
    answers.
    """
    keys = np.empty(n, dtype=np.uint64)
    for i in range(n):
        row = np.uint64(_first_row(entries[i] & _LOWER, starts, rows, allowed))
        keys[i] = (entries[i] & ~_LOWER) | row
    return keys


@inner
def _in_order(keys, values):  # type: ignore[no-untyped-def]
    """Return words in the order of their keys, by merging ever longer runs; both are overwritten.

    NumPy's sorts, which Numba would compile here, take longer to compile than all else that a
    search needs.
    """
    n = len(keys)
    run = 1
    other_keys, other_values = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    while run < n:
        i = 0
        j = run
        end = 0
        for place in range(n):
            if place == end:
                i = place
                j = min(place + run, n)
                middle = j
                end = min(place + 2 * run, n)
            if j == end or (i < middle and keys[i] <= keys[j]):
                taken = i
                i = i + 1
            else:
                taken = j
                j = j + 1
            other_keys[place] = keys[taken]
            other_values[place] = values[taken]
        keys, other_keys = other_keys, keys
        values, other_values = other_values, values
        run *= 2
    return values


@inner
def _make_room(k, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Drop what is beyond the limit and, if the limit itself is crowded, all but the ``k`` first
    codes.
    """
    n = 0
    limit = np.uint64(state[_LIMIT])
    for i in range(state[_SIZE]):
        if entries[i] >> _HALF <= limit:
            entries[n] = entries[i]
            n += 1
    if n > k + _SPARE:
        first = _in_order(_sort_keys(entries, n, starts, rows, allowed), entries[:n])
        entries[:k] = first[:k]
        counts[state[_LIMIT]] -= n - k
        state[_WITHIN] = n = k
    state[_SIZE] = n


@inner
def _add(distance, c, k, entries, counts, state):  # type: ignore[no-untyped-def]
    """Add code ``c``, which is within the limit, to the candidates of a query, for which there is
    room.
    """
    entries[state[_SIZE]] = (np.uint64(distance) << _HALF) | np.uint64(c)
    state[_SIZE] += 1
    state[_WITHIN] += 1
    counts[distance] += 1
    while state[_WITHIN] - counts[state[_LIMIT]] >= k:
        state[_WITHIN] -= counts[state[_LIMIT]]
        state[_LIMIT] -= 1


@inner
def _best_entries(q, candidates, search):  # type: ignore[no-untyped-def]
    """Return the entries of one query that may be among the answers, in their order."""
    entries = candidates.entries
    counts = candidates.counts
    states = candidates.states
    # A pass's counts are exact up to its own limit, within which it has met k codes: this ends
    # there at the latest.
    limit = -1
    met = 0
    size = 0
    while limit < search.radius and met < search.k:
        limit += 1
        for p in range(len(counts)):
            met += counts[p, q, limit]
    for p in range(len(states)):
        size += states[p, q, _SIZE]
    n = 0
    best = np.empty(size, dtype=np.uint64)
    for p in range(len(entries)):
        for i in range(states[p, q, _SIZE]):
            if entries[p, q, i] >> _HALF <= np.uint64(limit):
                best[n] = entries[p, q, i]
                n += 1
    return _in_order(_sort_keys(best, n, search.starts, search.rows, search.allowed), best[:n])


@inner
def _write(q, candidates, search, out_rows, out_distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query, the first rows by (distance, row), and return their
    number.
    """
    best = _best_entries(q, candidates, search)
    k = len(out_rows)
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    # of memory only what is written to is taken
    found = np.empty(min(len(rows), k * len(best)), dtype=np.uint64)
    n = 0
    for i in range(len(best)):
        if n >= k and best[i] >> _HALF != best[i - 1] >> _HALF:
            break
        c = best[i] & _LOWER
        before = n
        for e in range(starts[c], starts[c + np.uint64(1)]):
            if n - before == k:
                break
            if len(allowed) == 0 or allowed[rows[e]]:
                found[n] = (best[i] & ~_LOWER) | np.uint64(rows[e])
                n += 1
    found = _in_order(found[:n], found[:n])
    for i in range(min(n, k)):
        out_rows[i] = np.int64(found[i] & _LOWER)
        out_distances[i] = np.int64(found[i] >> _HALF)
    return min(n, k)


@njit(cache=True, nogil=True)
def _write_answers(candidates, search, out_rows, out_distances, sizes):  # type: ignore[no-untyped-def]
    for q in range(len(sizes)):
        sizes[q] = _write(q, candidates, search, out_rows[q], out_distances[q])


# Searches in clusters.

# What a cut costs beside its codes: as much as so many words of them.
_CUT = 768
# A search for more answers than so many budgets divided by the number of pivots is given up at
# once: the pivots near the query have too few codes.
_CROWDED = 8
# Pivots whose codes are met first, at most.
_FIRST = 64
# Distance of a pivot whose codes have been met.
_MET = np.uint16(0xFFFF)
# Queries below which one core is quicker.
_FEW_QUERIES = 8


@inner
def _cut(c, far, limit, offsets, shift):  # type: ignore[no-untyped-def]
    """Return begin and end of the codes of pivot ``c``, ``far`` from the query, that may be within
    the limit.
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
    entries, counts, state = met
    codes, k = search.codes, search.k
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        measure(distances, code, codes, start, size)
        _take(distances, start, size, k, entries, counts, state, starts, rows, allowed)


@inner
def _list_cuts(far, limit, clusters, costs, listed):  # type: ignore[no-untyped-def]
    """List the pivots that still may have codes within the limit, distance above and number below;
    return how many.

    ``costs`` are that of a cut beside its codes, and what all may cost. Beyond it, the number
    returned is below 0.
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
                listed[n] = (np.uint64(far[c]) << _HALF) | np.uint64(c)
                n += 1
    return n


@inner
def _search_one(q, search, clusters, budget, rows, distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query and return their number; -1 if the search is given up."""
    # With room for codes that are met again, as in forged files.
    code = search.queries[q]
    candidates = _fresh(search, 1, 1, 2 * (search.k + _SPARE))
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
        if state[_WITHIN] >= search.k or state[_LIMIT] < search.n_bits:
            break
        c = np.argmin(far)
        if far[c] != _MET:
            _visit(code, np.int64(offsets[c, 0]), np.int64(offsets[c, -1]), measured, search, met)
            far[c] = _MET
    listed = np.empty(p, dtype=np.uint64)
    n = _list_cuts(far, state[_LIMIT], clusters, (_CUT // len(code), budget), listed)
    if n < 0:
        return -1
    listed = _in_order(listed[:n], listed[:n])
    for i in range(n):
        pivot = listed[i]
        begin, end = _cut(
            np.int64(pivot & _LOWER), np.int64(pivot >> _HALF), state[_LIMIT], offsets, shift
        )
        _visit(code, begin, end, measured, search, met)
    return _write(0, candidates, search, rows[q], distances[q])


@njit(cache=True, nogil=True)
def _search_queries(first, last, search, clusters, budget, rows, distances, sizes):  # type: ignore[no-untyped-def]
    for q in range(first, last):
        sizes[q] = _search_one(q, search, clusters, budget, rows, distances)


def search_clusters(search: Search, clusters: Clusters, budget: int) -> dict[int, Matches]:
    """Find the first ``k`` rows within the radius, by query; queries that are given up are left
    out.

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
    run_tasks(
        _search_queries, n_queries, search, clusters, budget, rows, distances, sizes, alone=few
    )
    return {
        q: Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(sizes.tolist()) if n >= 0
    }
