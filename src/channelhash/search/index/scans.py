"""Compiled search for the nearest codes within a radius, over all distinct codes.

An entry is one word: the distance in the upper 32 bits, the number of the code in the lower ones.
Entries farther than a limit are not taken. The limit is the distance of the ``k``-th nearest code,
as soon as ``k`` have been met. The ``k`` nearest codes by (distance, first row) hold the ``k``
nearest rows, as a row of any other code comes after the first rows of those ``k``.

Besides the entries, a pass keeps how many codes it has met at each distance (``counts``, exact up
to the limit) and its ``state``: the number of entries, the limit, the number of codes within it,
and the number of words read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.layout import CHUNK, CodeSearch, Matches
from channelhash.utils.compiled import (
    inlined,
    inner,
    loop_threads,
    njit,
    popcount,
    run_tasks,
    uncounted,
)

#: Codes whose distances are held at once, in the first cache.
BLOCK = 1024
#: Codes around a query's place in the ascending order that give the first limit, at least.
_AROUND = 2048
#: Codes around a query's place, in multiples of k.
_TIMES = 8
#: Queries that are compared with a block before it leaves the first cache.
_GROUP = 64
#: Words to compare below which one core is quicker; `compile_loops` sets more where other threads
#: have work.
few_words = 1 << 19


@inner
def measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """Write the distance of a query's words to code ``start + i`` to ``out[i]``."""
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


@inlined
def may_be_near(code, agree, codes, start, most, sums):  # type: ignore[no-untyped-def]
    """Return whether any code of a chunk may differ from a query in at most ``most`` of the bits
    that ``agree`` has, and how many words of each were read: no more once all differ in more bits.

    The chunk begins at ``start``, or is the last whole one. ``sums`` has room for a chunk.
    """
    begin = min(start, codes.shape[1] - CHUNK)
    word = code[0]
    mask = agree[0]
    column = codes[0, begin : begin + CHUNK]
    near = np.uint16(0)
    for i in range(CHUNK):
        sums[i] = popcount((word ^ column[i]) & mask)  # type: ignore[call-arg]
        near |= np.uint16(sums[i] <= most)
    w = 1
    while near and w < len(code):
        word = code[w]
        mask = agree[w]
        column = codes[w, begin : begin + CHUNK]
        near = np.uint16(0)
        for i in range(CHUNK):
            sums[i] += np.uint16(popcount((word ^ column[i]) & mask))  # type: ignore[call-arg]
            near |= np.uint16(sums[i] <= most)
        w += 1
    return near != 0, w


@inlined
def look(code, agree, start, end, most, search, met, work):  # type: ignore[no-untyped-def]
    """Add the codes of a chunk, from ``start`` to ``end``, that are within the limit and count, if
    any may be; see `may_be_near`.

    ``met`` are the entries, counts and state of one query; ``work`` begins with room for the
    distances of a block, and for a chunk.
    """
    distances = work[0]
    sums = work[1]
    near = True
    n_words = len(code)
    if search.codes.shape[1] >= CHUNK:
        near, n_words = may_be_near(code, agree, search.codes, start, most, sums)
    met[2][READ] += n_words * (end - start)
    if near:
        _take(code, start, end, search, met, distances)


@inner
def _take(code, start, end, search, met, distances):  # type: ignore[no-untyped-def]
    """Add the codes from ``start`` to ``end`` that are within the limit and count."""
    entries, counts, state = met
    k = search.k
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    measure(distances, code, search.codes, start, end - start)
    near = _near_bits(distances, end - start, state[LIMIT])
    while near:
        lowest = near & (~near + np.uint64(1))
        near ^= lowest
        i = np.int64(popcount(lowest - np.uint64(1)))  # type: ignore[call-arg]
        distance = distances[i]
        c = start + i
        if distance <= state[LIMIT] and (
            len(allowed) == 0 or _first_row(c, starts, rows, allowed) >= 0
        ):
            if state[_SIZE] == len(entries):
                _make_room(k, entries, counts, state, starts, rows, allowed)
            _add(distance, c, k, entries, counts, state)


@inlined
def _near_bits(distances, n, limit):  # type: ignore[no-untyped-def]
    """Return a word whose bit ``i`` says whether distance ``i`` of ``n``, at most a chunk's, is
    within the limit. Few are, so that asking for each bit would take longer.
    """
    within = np.uint16(limit)
    near = np.uint64(0)
    for i in range(n):
        near |= np.uint64(distances[i] <= within) << np.uint64(i)
    return near


@inner
def count(code, start, end, distances, search, counts):  # type: ignore[no-untyped-def]
    """Count the codes from ``start`` to ``end`` that count, by their distance, and return their
    number.
    """
    starts = search.starts
    rows = search.rows
    allowed = search.allowed
    met = 0
    for begin in range(start, end, BLOCK):
        size = min(BLOCK, end - begin)
        measure(distances, code, search.codes, begin, size)
        for i in range(size):
            if len(allowed) == 0 or _first_row(begin + i, starts, rows, allowed) >= 0:
                counts[distances[i]] += 1
                met += 1
    return met


@inner
def limit_of(counts, k, limit):  # type: ignore[no-untyped-def]
    """Return the distance within which ``k`` codes were counted, or the given limit if that is
    less. All counts become zero.
    """
    met = counts[0]
    for d in range(limit):
        if met >= k:
            limit = d
            break
        met += counts[d + 1]
    counts[:] = 0
    return limit


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
    around = max(_AROUND, _TIMES * search.k)
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
    count(code, low, low + around, distances, search, counts)
    return limit_of(counts, search.k, limit)


@inner
def _scan(  # type: ignore[no-untyped-def]
    first_task, last_task, division, search, candidates, answers, work
):
    """Do tasks of `_scan_tasks`, with its own memory to work in."""
    search, candidates, work = uncounted((search, candidates, work))  # type: ignore[call-arg]
    distances, _, every_bit = work
    queries = search.queries
    entries, counts, states = candidates
    group, segments = division
    m = search.codes.shape[1]
    length = -(-m // segments)
    for task in range(first_task, last_task):
        first = task // segments * group
        segment = task % segments
        last = min(first + group, len(queries))
        begin = segment * length
        end = min(begin + length, m)
        for q in range(first, last):
            state = states[segment, q]
            state[LIMIT] = _first_limit(
                queries[q], search, begin, end, distances, counts[segment, q], state[LIMIT]
            )
        for block in range(begin, end, BLOCK):
            block_end = min(block + BLOCK, end)
            for q in range(first, last):
                code = queries[q]
                met = entries[segment, q], counts[segment, q], states[segment, q]
                for start in range(block, block_end, CHUNK):
                    chunk_end = min(start + CHUNK, block_end)
                    most = np.uint16(met[2][LIMIT])
                    look(code, every_bit, start, chunk_end, most, search, met, work)
        if segments == 1:
            write(first, last, candidates, search, answers)


@njit(cache=True, nogil=True)
def _scan_tasks(  # type: ignore[no-untyped-def]
    first_task, last_task, division, search, candidates, answers
):
    """Add the candidates of some tasks to ``candidates[segment, query]``. A task is a group of
    queries in one segment of the codes; if there is one segment, the answers are written, too.
    """
    every_bit = ~np.zeros(len(search.codes), dtype=search.codes.dtype)
    work = np.empty(BLOCK, dtype=np.uint16), np.empty(CHUNK, dtype=np.uint16), every_bit
    _scan(first_task, last_task, division, search, candidates, answers, work)


def search_all(search: CodeSearch) -> tuple[list[Matches], NDArray[np.int64]]:
    """Find the first ``k`` rows of each query within the radius. Return them, and the states.

    >>> from channelhash.search.index import find_distinct
    >>> codes = find_distinct(np.array([[0], [7]], np.uint8), n_bits=8)
    >>> query = np.zeros((1, 1), np.uint32)
    >>> search = CodeSearch(query, *codes, np.empty(0, np.bool_), k=1, radius=8, n_bits=8)
    >>> search_all(search)[0][0].rows.tolist()
    [0]
    """
    return run(_scan_tasks, search, search.queries.size * search.codes.shape[1])


def run(
    loop: Callable[..., None], search: CodeSearch, n_words: int, *more: Any
) -> tuple[list[Matches], NDArray[np.int64]]:
    """Return what a loop like `_scan_tasks` finds by reading about ``n_words`` words, and the
    states.
    """
    nq = len(search.queries)
    alone = n_words < few_words
    division = (min(_GROUP, nq), 1) if alone else _division(nq)
    group, segments = division
    room = min(2 * (search.k + SPARE), search.codes.shape[1])
    candidates = _no_candidates(search, segments, nq, room)
    rows, distances = np.empty((2, nq, search.k), dtype=np.int64)
    answers = rows, distances, np.empty(nq, dtype=np.int64)
    tasks = -(-nq // group) * segments
    run_tasks(loop, tasks, division, search, candidates, answers, *more, alone=alone)
    if segments > 1:
        _write_all(0, nq, candidates, search, answers)
    found = [Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(answers[2].tolist())]
    return found, candidates.states


def _division(n_queries: int) -> tuple[int, int]:
    """Return the number of queries in a group, and of segments that the codes are cut into. All
    cores should end at about the same time.
    """
    threads = loop_threads()
    group = max(1, min(_GROUP, n_queries // (4 * threads)))
    groups = -(-n_queries // group)
    return group, -(-2 * threads // groups)


#: Place in a state of the number of entries.
_SIZE = 0
#: Place in a state of the limit.
LIMIT = 1
#: Place in a state of the number of codes within the limit.
WITHIN = 2
#: Place in a state of the number of words read.
READ = 3
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
        states: ``(passes, nq, 4)``.
    """

    entries: NDArray[np.uint64]
    counts: NDArray[np.int64]
    states: NDArray[np.int64]


def _no_candidates(search: CodeSearch, passes: int, n_queries: int, room: int) -> _MetCodes:
    """Return what passes start from: room for ``room`` entries, and the radius as the limit."""
    states = np.zeros((passes, n_queries, 4), dtype=np.int64)
    states[:, :, LIMIT] = search.radius
    entries = np.empty((passes, n_queries, room), dtype=np.uint64)
    return _MetCodes(
        entries, np.zeros((passes, n_queries, search.n_bits + 1), dtype=np.int64), states
    )


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
def _write(q, candidates, search, out_rows, out_distances):  # type: ignore[no-untyped-def]
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


@inner
def write(first, last, candidates, search, answers):  # type: ignore[no-untyped-def]
    """Write the answers of some queries, and their numbers."""
    rows, distances, sizes = answers
    for q in range(first, last):
        sizes[q] = _write(q, candidates, search, rows[q], distances[q])


_write_all = njit(cache=True, nogil=True)(write.py_func)
