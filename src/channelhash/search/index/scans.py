"""Compiled search for the nearest codes within a radius, over all distinct codes.

An entry is one word: the distance in the upper 32 bits, the number of the code in the lower ones.
Entries farther than a limit are not taken. The limit is the distance of the ``k``-th nearest code,
as soon as ``k`` have been met. The ``k`` nearest codes by (distance, first row) hold the ``k``
nearest rows, as a row of any other code comes after the first rows of those ``k``.

Besides the entries, a pass keeps how many codes it has met at each distance (``counts``, exact up
to the limit) and its ``state``: the number of entries, the limit, and the number of codes within
it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index import CodeSearch, Matches
from channelhash.utils.compiled import inner, loop_threads, njit, popcount, run_tasks

#: Codes whose distances are held at once, in the first cache.
BLOCK = 1024
#: Codes of a block that are looked at one by one only if any of them is near.
_CHUNK = 64
#: Codes around a query's place in the ascending order that give the first limit, at least.
_AROUND = 2048
#: Codes around a query's place, in multiples of k.
_TIMES = 8
#: Queries that are compared with a block before it leaves the first cache.
_GROUP = 8
#: Words to compare below which one core is quicker; `compile_loops` sets more where other threads
#: have work.
few_words = 1 << 18


@inner
def measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """Write the distance of a query's words to code ``start + i`` to ``out[i]``, and fill the last
    chunk up with a distance farther than any.
    """
    word = code[0]
    column = codes[0, start : start + size]
    if len(code) == 2:
        other = code[1]
        others = codes[1, start : start + size]
        for i in range(size):
            out[i] = (
                popcount(word ^ column[i])  # type: ignore[call-arg]
                + popcount(other ^ others[i])  # type: ignore[call-arg]
            )
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
def take(distances, start, size, search, met):  # type: ignore[no-untyped-def]
    """Add the codes that are within the limit and count, of ``size`` measured ones from ``start``
    on.

    ``met`` are the entries, counts and state of one query.
    """
    entries, counts, state = met
    k = search.k
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    for chunk in range(0, size, _CHUNK):
        if not _any_near(distances[chunk : chunk + _CHUNK], np.uint16(state[LIMIT])):
            continue
        for i in range(chunk, chunk + _CHUNK):
            c = start + i
            if distances[i] <= state[LIMIT] and (
                len(allowed) == 0 or _first_row(c, starts, rows, allowed) >= 0
            ):
                if state[_SIZE] == len(entries):
                    _make_room(k, entries, counts, state, starts, rows, allowed)
                _add(distances[i], c, k, entries, counts, state)


@inner
def _first_limit(  # type: ignore[no-untyped-def]
    code, search, begin, end, distances, counts, limit
):
    """Return a limit within which there are ``k`` codes, or the given one.

    Codes stand in ascending order, so those around a query's place share its first bits and are
    mostly nearer than others. A limit from them keeps most entries from being taken in vain.
    ``counts`` is zero before and after.
    """
    codes = search.codes
    k = search.k
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
def _nearest_tasks(  # type: ignore[no-untyped-def]
    first_task, last_task, group, segments, search, candidates
):
    """Add the candidates of some tasks to ``candidates[segment, query]``. A task is a group of
    queries in one segment of the codes.
    """
    queries = search.queries
    codes = search.codes
    length = -(-codes.shape[1] // segments)
    distances = np.empty(BLOCK, dtype=np.uint16)
    for task in range(first_task, last_task):
        first = task // segments * group
        segment = task % segments
        last = min(first + group, len(queries))
        begin = segment * length
        end = min(begin + length, codes.shape[1])
        for q in range(first, last):
            state = candidates.states[segment, q]
            counts = candidates.counts[segment, q]
            state[LIMIT] = _first_limit(
                queries[q], search, begin, end, distances, counts, state[LIMIT]
            )
        for start in range(begin, end, BLOCK):
            size = min(BLOCK, end - start)
            for q in range(first, last):
                measure(distances, queries[q], codes, start, size)
                entries = candidates.entries[segment, q]
                counts = candidates.counts[segment, q]
                state = candidates.states[segment, q]
                take(distances, start, size, search, (entries, counts, state))


def search_all(search: CodeSearch) -> list[Matches]:
    """Find the first ``k`` rows of each query within the radius.

    >>> from channelhash.search.index import find_distinct
    >>> codes = find_distinct(np.array([[0], [7]], np.uint8), n_bits=8)
    >>> query = np.zeros((1, 1), np.uint32)
    >>> search = CodeSearch(query, *codes, np.empty(0, np.bool_), k=1, radius=8, n_bits=8)
    >>> search_all(search)[0].rows.tolist()
    [0]
    """
    group, segments = _division(search)
    nq = len(search.queries)
    m = search.codes.shape[1]
    room = min(2 * (search.k + SPARE), -(-m // segments))
    candidates = _no_candidates(search, segments, nq, room)
    tasks = -(-nq // group) * segments
    alone = search.queries.size * m < few_words
    run_tasks(_nearest_tasks, tasks, group, segments, search, candidates, alone=alone)
    rows, distances = np.empty((2, nq, search.k), dtype=np.int64)
    sizes = np.empty(nq, dtype=np.int64)
    _write_answers(candidates, search, rows, distances, sizes)
    return [Matches(rows[q, :size], distances[q, :size]) for q, size in enumerate(sizes)]


def _division(search: CodeSearch) -> tuple[int, int]:
    """Return the number of queries in a group, and of segments that the codes are cut into. All
    cores should end at about the same time.
    """
    nq = len(search.queries)
    if search.queries.size * search.codes.shape[1] < few_words:
        return _GROUP, 1
    threads = loop_threads()
    group = max(1, min(_GROUP, nq // (2 * threads)))
    groups = -(-nq // group)
    return group, -(-2 * threads // groups)


#: Place in a state of the number of entries.
_SIZE = 0
#: Place in a state of the limit.
LIMIT = 1
#: Place in a state of the number of codes within the limit.
WITHIN = 2
#: Bits by which the distance of an entry is shifted.
HALF = np.uint64(32)
#: Mask of the code in an entry.
LOWER = np.uint64(0xFFFFFFFF)
#: Room for entries beyond k, so that they are seldom sorted out.
SPARE = 512


class _MetCodes(NamedTuple):
    """Codes met in several passes over different codes, by ``[pass, query]``.

    Attributes:
        entries: ``(passes, nq, capacity)``.
        counts: ``(passes, nq, n_bits + 1)``.
        states: ``(passes, nq, 3)``.
    """

    entries: NDArray[np.uint64]
    counts: NDArray[np.int64]
    states: NDArray[np.int64]


def _no_candidates(search: CodeSearch, passes: int, n_queries: int, room: int) -> _MetCodes:
    """Return what passes start from: room for ``room`` entries, and the radius as the limit."""
    states = np.zeros((passes, n_queries, 3), dtype=np.int64)
    states[:, :, LIMIT] = search.radius
    entries = np.empty((passes, n_queries, room), dtype=np.uint64)
    return _MetCodes(
        entries, np.zeros((passes, n_queries, search.n_bits + 1), dtype=np.int64), states
    )


#: The same for compiled loops.
no_candidates = inner(_no_candidates)


# Arrays are taken out of their tuples before a loop: within it, that would cost more than all else.


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
    """Return a key for each entry, in whose order answers come: the distance in the upper half, the
    first row of the code in the lower.
    """
    keys = np.empty(n, dtype=np.uint64)
    for i in range(n):
        row = np.uint64(_first_row(entries[i] & LOWER, starts, rows, allowed))
        keys[i] = (entries[i] & ~LOWER) | row
    return keys


@inner
def in_order(keys, values):  # type: ignore[no-untyped-def]
    """Return words in the order of their keys, by merging ever longer runs. Both are overwritten.

    Numba would compile NumPy's sorts here, which takes longer than all else that a search needs.
    """
    n = len(keys)
    run = 1
    other_keys = np.empty(n, dtype=np.uint64)
    other_values = np.empty(n, dtype=np.uint64)
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
        merged_keys = other_keys
        other_keys = keys
        keys = merged_keys
        merged_values = other_values
        other_values = values
        values = merged_values
        run *= 2
    return values


@inner
def _make_room(k, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Drop entries beyond the limit and, if too many are left, all but the first ``k`` codes."""
    n = 0
    limit = np.uint64(state[LIMIT])
    for i in range(state[_SIZE]):
        if entries[i] >> HALF <= limit:
            entries[n] = entries[i]
            n += 1
    if n > k + SPARE:
        first = in_order(_sort_keys(entries, n, starts, rows, allowed), entries[:n])
        entries[:k] = first[:k]
        counts[state[LIMIT]] -= n - k
        state[WITHIN] = n = k
    state[_SIZE] = n


@inner
def _add(distance, c, k, entries, counts, state):  # type: ignore[no-untyped-def]
    """Add code ``c``, which is within the limit, to the candidates of a query, which have room."""
    entries[state[_SIZE]] = (np.uint64(distance) << HALF) | np.uint64(c)
    state[_SIZE] += 1
    state[WITHIN] += 1
    counts[distance] += 1
    while state[WITHIN] - counts[state[LIMIT]] >= k:
        state[WITHIN] -= counts[state[LIMIT]]
        state[LIMIT] -= 1


@inner
def _best_entries(q, candidates, search):  # type: ignore[no-untyped-def]
    """Return the entries of one query that may be among the answers, in their order."""
    entries = candidates.entries
    counts = candidates.counts
    states = candidates.states
    # The counts of a pass are exact up to its own limit, within which it has met k codes. The loop
    # ends there at the latest.
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
            if entries[p, q, i] >> HALF <= np.uint64(limit):
                best[n] = entries[p, q, i]
                n += 1
    return in_order(_sort_keys(best, n, search.starts, search.rows, search.allowed), best[:n])


@inner
def write(q, candidates, search, out_rows, out_distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query, the first rows by (distance, row), and return their
    number.
    """
    best = _best_entries(q, candidates, search)
    k = len(out_rows)
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    # Memory is only taken once it is written to.
    found = np.empty(min(len(rows), k * len(best)), dtype=np.uint64)
    n = 0
    for i in range(len(best)):
        if n >= k and best[i] >> HALF != best[i - 1] >> HALF:
            break
        c = best[i] & LOWER
        before = n
        for e in range(starts[c], starts[c + np.uint64(1)]):
            if n - before == k:
                break
            if len(allowed) == 0 or allowed[rows[e]]:
                found[n] = (best[i] & ~LOWER) | np.uint64(rows[e])
                n += 1
    found = in_order(found[:n], found[:n])
    for i in range(min(n, k)):
        out_rows[i] = np.int64(found[i] & LOWER)
        out_distances[i] = np.int64(found[i] >> HALF)
    return min(n, k)


@njit(cache=True, nogil=True)
def _write_answers(  # type: ignore[no-untyped-def]
    candidates, search, out_rows, out_distances, sizes
):
    for q in range(len(sizes)):
        sizes[q] = write(q, candidates, search, out_rows[q], out_distances[q])
