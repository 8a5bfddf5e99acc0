"""The candidates of a search: codes by number, with their distances.

An entry is one word: the distance above, the number of the code below, 32 bits each. Entries farther than a limit are
not taken; the limit is the distance of the ``k``-th nearest code, as soon as so many are met. The ``k`` nearest codes
by (distance, first row) hold the ``k`` nearest rows: a row of any other code comes after the first rows of those ``k``.

Beside the entries a pass keeps how many codes it has met by distance (``counts``, exact up to the limit) and its
``state``: the number of entries, the limit, and the number of codes within it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.brute_force import Matches
from channelhash.search.index.request import Search
from channelhash.utils.compiled import njit

SIZE, LIMIT, WITHIN = 0, 1, 2
HALF = np.uint64(32)
LOWER = np.uint64(0xFFFFFFFF)

# Room for entries beside the answers, so that they are seldom sorted out.
_SPARE = 512


class Candidates(NamedTuple):
    """Codes met in several passes over different codes, ``[pass, query]``.

    Attributes:
        entries: ``(passes, nq, capacity)``.
        counts: ``(passes, nq, n_bits + 1)``.
        states: ``(passes, nq, 3)``.
    """

    entries: NDArray[np.uint64]
    counts: NDArray[np.int64]
    states: NDArray[np.int64]


def capacity(k: int, n_codes: int) -> int:
    """Return the number of entries that a pass over ``n_codes`` codes has room for.

    >>> capacity(10, 1_000_000), capacity(10, 50)
    (1044, 50)
    """
    return min(2 * (k + _SPARE), n_codes)


def no_candidates(search: Search, passes: int, room: int) -> Candidates:
    """Return what passes with room for so many entries start from; codes beyond the radius are not taken."""
    n_queries = len(search.queries)
    states = np.zeros((passes, n_queries, 3), dtype=np.int64)
    states[:, :, LIMIT] = search.radius
    entries = np.empty((passes, n_queries, room), dtype=np.uint64)
    return Candidates(entries, np.zeros((passes, n_queries, search.n_bits + 1), dtype=np.int64), states)


@njit(nogil=True)
def begin_one(search):  # type: ignore[no-untyped-def]
    """Return what one pass of one query starts from; with room for codes that are met again, as in forged files."""
    states = np.zeros((1, 1, 3), dtype=np.int64)
    states[0, 0, LIMIT] = search.radius
    entries = np.empty((1, 1, 2 * (search.k + _SPARE)), dtype=np.uint64)
    return Candidates(entries, np.zeros((1, 1, search.n_bits + 1), dtype=np.int64), states)


# Loops work on arrays that were taken out of the tuples before: doing so in a loop costs more than the rest of it.


@njit(nogil=True)
def first_row(c, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Return the first row of code ``c`` that counts, -1 if none does."""
    if len(allowed) == 0:
        return np.int64(rows[starts[c]])
    for i in range(starts[c], starts[c + 1]):
        if allowed[rows[i]]:
            return np.int64(rows[i])
    return np.int64(-1)


@njit(nogil=True)
def _sort_keys(entries, n, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Return of each entry its distance above and the first row of its code below: the order of answers."""
    keys = np.empty(n, dtype=np.uint64)
    for i in range(n):
        row = np.uint64(first_row(entries[i] & LOWER, starts, rows, allowed))
        keys[i] = (entries[i] & ~LOWER) | row
    return keys


@njit(cache=True, nogil=True)
def make_room(k, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Drop what is beyond the limit and, if the limit itself is crowded, all but the ``k`` first codes."""
    n, limit = 0, np.uint64(state[LIMIT])
    for i in range(state[SIZE]):
        if entries[i] >> HALF <= limit:
            entries[n] = entries[i]
            n += 1
    if n > k + _SPARE:
        first = entries[:n][np.argsort(_sort_keys(entries, n, starts, rows, allowed))[:k]]
        entries[:k] = first
        counts[state[LIMIT]] -= n - k
        state[WITHIN] = n = k
    state[SIZE] = n


@njit(nogil=True)
def add(distance, c, k, entries, counts, state):  # type: ignore[no-untyped-def]
    """Add code ``c``, which is within the limit, to the candidates of a query, for which there is room."""
    entries[state[SIZE]] = (np.uint64(distance) << HALF) | np.uint64(c)
    state[SIZE] += 1
    state[WITHIN] += 1
    counts[distance] += 1
    while state[WITHIN] - counts[state[LIMIT]] >= k:
        state[WITHIN] -= counts[state[LIMIT]]
        state[LIMIT] -= 1


@njit(nogil=True)
def _best_entries(q, candidates, search):  # type: ignore[no-untyped-def]
    """Return the entries of one query that may be among the answers, in their order."""
    entries, counts, states = candidates.entries[:, q], candidates.counts[:, q], candidates.states[:, q]
    # A pass's counts are exact up to its own limit, within which it has met k codes: this ends there at the latest.
    limit, met = 0, np.int64(counts[:, 0].sum())
    while limit < search.radius and met < search.k:
        limit += 1
        met += np.int64(counts[:, limit].sum())
    n = 0
    best = np.empty(states[:, SIZE].sum(), dtype=np.uint64)
    for p in range(len(entries)):
        for i in range(states[p, SIZE]):
            if entries[p, i] >> HALF <= np.uint64(limit):
                best[n] = entries[p, i]
                n += 1
    return best[:n][np.argsort(_sort_keys(best, n, search.starts, search.rows, search.allowed))]


@njit(nogil=True)
def _write_rows(best, search, out_rows, out_distances):  # type: ignore[no-untyped-def]
    """Write the rows of these codes, the first by (distance, row), and return their number."""
    starts, rows, allowed = search.starts, search.rows, search.allowed
    k, n = len(out_rows), len(best)
    done, i = 0, 0
    while i < n and done < k:
        end, size = i, 0
        while end < n and best[end] >> HALF == best[i] >> HALF:
            c = best[end] & LOWER
            size += int(min(starts[c + np.uint64(1)] - starts[c], np.uint64(k - done)))
            end += 1
        tied, t = np.empty(size, dtype=np.uint32), 0
        for j in range(i, end):
            c, taken = best[j] & LOWER, 0
            for e in range(starts[c], starts[c + np.uint64(1)]):
                if taken == k - done:
                    break
                if len(allowed) == 0 or allowed[rows[e]]:
                    tied[t + taken] = rows[e]
                    taken += 1
            t += taken
        tied = np.sort(tied[:t])
        for j in range(min(t, k - done)):
            out_rows[done + j] = tied[j]
            out_distances[done + j] = np.int64(best[i] >> HALF)
        done += min(t, k - done)
        i = end
    return done


@njit(nogil=True)
def write_one(candidates, search, out_rows, out_distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query, from `begin_one`, and return their number."""
    return _write_rows(_best_entries(0, candidates, search), search, out_rows, out_distances)


@njit(cache=True, nogil=True)
def _write_answers(candidates, search, out_rows, out_distances, sizes):  # type: ignore[no-untyped-def]
    for q in range(len(sizes)):
        sizes[q] = _write_rows(_best_entries(q, candidates, search), search, out_rows[q], out_distances[q])


def answers(candidates: Candidates, search: Search) -> list[Matches]:
    """Return the matches of each query from the candidates of all passes."""
    n_queries = candidates.entries.shape[1]
    rows, distances = np.empty((2, n_queries, search.k), dtype=np.int64)
    sizes = np.empty(n_queries, dtype=np.int64)
    _write_answers(candidates, search, rows, distances, sizes)
    return [Matches(rows[q, :size], distances[q, :size]) for q, size in enumerate(sizes)]


def matches(keys: NDArray[np.uint64]) -> Matches:
    """Return matches from ascending words that hold a distance above and a row below.

    >>> matches(np.array([(2 << 32) + 7], np.uint64)).rows.tolist()
    [7]
    """
    return Matches((keys & LOWER).astype(np.int64), (keys >> HALF).astype(np.int64))
