"""Exact search that looks at few codes: multi-index hashing.

After Norouzi, Punjani and Fleet, "Fast exact search in Hamming space with multi-index hashing", TPAMI 2014. Codes are
cut into t substrings, and a table for each lists the codes by the value of that substring.

Why nothing is missed (pigeonhole). Substrings are probed with r = 0, 1, 2, … flipped bits, for each r table by table.
Take a code that has not been met when tables 0 … j have been probed up to r and the others up to r − 1. In each of the
first j + 1 substrings it differs from the query in at least r + 1 bits, in each of the other t − j − 1 in at least r.
The substrings have no bit in common, so its distance is at least (j + 1)(r + 1) + (t − j − 1) r = t r + j + 1. Hence
every code within t r + j bits has been met, and the search ends as soon as the k-th nearest code met (or the radius
asked for) is within that. Bits that belong to no substring only make distances larger.

The number of probes grows as C(s, r) for substrings of s bits, and clustered codes crowd some buckets: a search that
would cost more than a given share of a scan is given up, and the scan does it.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from channelhash.codes.popcount import popcount
from channelhash.search.index.brute_force import Matches
from channelhash.search.index.deduplicate import DistinctCodes, Mask, Rows, Words
from channelhash.search.index.top_k import (
    LIMIT,
    LOWER,
    SIZE,
    Found,
    add,
    answers,
    capacity,
    nothing_found,
)

# A probe (two places in memory that nothing is known of) costs about as much as so many neighbouring codes.
_PROBE = 40
# Larger tables would not stay in any cache.
_WIDEST = 24
_ONE = np.uint64(1)


class Tables(NamedTuple):
    """One table a substring. That of the first substring is the ascending order of the codes itself.

    Attributes:
        layout: ``(t, 4)``: of each substring its word, the number of lower bits in that word, its number of bits, and
            where its offsets begin.
        offsets: all tables', one after another: bucket ``b`` of a table goes from its ``offsets[b]`` to the next.
        codes: ``(t − 1, words, m)``: the codes by the value of their substring, so that a bucket lies in one place.
        numbers: ``(t − 1, m)``: the numbers of these codes.
    """

    layout: NDArray[np.int64]
    offsets: Rows
    codes: Words
    numbers: Rows


def build_tables(codes: Words, n_bits: int) -> Tables:
    """Tables of ``(words, m)`` distinct codes in ascending order; substrings of about log₂ m bits."""
    m, word_bits = codes.shape[1], 8 * codes.itemsize
    wanted = min(_WIDEST, max(1.0, np.log2(max(2, m))))
    layout, start = [], 0
    for word in range(len(codes)):
        bits = min(word_bits, n_bits - word * word_bits)
        parts = max(round(bits / wanted), -(-bits // _WIDEST), word == 0)
        for first, last in pairwise(bits * part // parts for part in range(parts + 1)):
            layout.append((word, word_bits - last, last - first, start))
            start += (1 << (last - first)) + 1
    tables = Tables(
        np.array(layout, dtype=np.int64),
        np.zeros(start, dtype=np.uint32),
        np.empty((len(layout) - 1, *codes.shape), dtype=codes.dtype),
        np.empty((len(layout) - 1, m), dtype=np.uint32),
    )
    for table in range(len(layout)):
        _fill(codes, *tables, table)
    return tables


@njit(cache=True, nogil=True)
def _fill(codes, layout, offsets, table_codes, numbers, table):  # type: ignore[no-untyped-def]
    """List the codes of one table by bucket."""
    word, shift, width = layout[table, 0], np.uint64(layout[table, 1]), layout[table, 2]
    last, own = (_ONE << np.uint64(width)) - _ONE, offsets[layout[table, 3] : layout[table, 3] + (1 << width) + 1]
    for c in range(codes.shape[1]):
        own[((np.uint64(codes[word, c]) >> shift) & last) + _ONE] += 1
    for b in range(1, len(own)):
        own[b] += own[b - 1]
    if table == 0:
        return
    # An offset goes ahead to where the next code of its bucket belongs, and so ends at the next bucket's.
    for c in range(codes.shape[1]):
        value = (np.uint64(codes[word, c]) >> shift) & last
        e = own[value]
        own[value] += 1
        numbers[table - 1, e] = c
        for w in range(len(codes)):
            table_codes[table - 1, w, e] = codes[w, c]
    for b in range(len(own) - 1, 0, -1):
        own[b] = own[b - 1]
    own[0] = 0


@njit(nogil=True)
def _met_before(code, codes, e, table, r, layout):  # type: ignore[no-untyped-def]
    """Whether a code at ``r`` bits in this table's substring has been met in another table's probes."""
    for j in range(len(layout)):
        w = layout[j, 0]
        differing = (np.uint64(codes[w, e]) ^ np.uint64(code[w])) >> np.uint64(layout[j, 1])
        bits = np.int64(popcount(differing & ((_ONE << np.uint64(layout[j, 2])) - _ONE)))  # type: ignore[call-arg]
        if bits < r or (bits == r and j < table):
            return True
    return False


@njit(nogil=True)
def _probe(code, codes, table, r, layout, offsets, numbers, k, budget, entries, counts, state, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """Meet the codes that differ from the query in ``r`` bits of the table's substring; what is left of the budget.

    Args:
        codes: ``(words, m)``, in the order of this table; likewise ``numbers``, of which the first table has none.
    """
    width = layout[table, 2]
    own = offsets[layout[table, 3] : layout[table, 3] + (1 << width) + 1]
    last = (_ONE << np.uint64(width)) - _ONE
    value = (np.uint64(code[layout[table, 0]]) >> np.uint64(layout[table, 1])) & last
    flipped = (_ONE << np.uint64(r)) - _ONE
    while flipped <= last:
        b = value ^ flipped
        begin, end = np.int64(own[b]), np.int64(own[b + _ONE])
        budget -= _PROBE + end - begin
        if budget < 0:
            break
        for e in range(begin, end):
            distance = np.int64(0)
            for w in range(len(code)):
                distance += np.int64(popcount(codes[w, e] ^ code[w]))  # type: ignore[call-arg]
            if distance <= state[LIMIT] and not _met_before(code, codes, e, table, r, layout):
                c = np.int64(e) if table == 0 else np.int64(numbers[e])
                add(distance, c, k, entries, counts, state, starts, rows, allowed)
        if r == 0:
            break
        # The next larger number with as many bits.
        low = flipped & (~flipped + _ONE)
        carried = flipped + low
        flipped = carried | (((flipped ^ carried) >> np.uint64(2)) // low)
    return budget


@njit(cache=True, nogil=True)
def _search_one(  # type: ignore[no-untyped-def]
    q, queries, codes, starts, rows, allowed, layout, offsets, table_codes, numbers, k, budget,
    entries, counts, states, complete,
):  # fmt: skip
    """Candidates of one query, and whether they are complete, which they are unless the budget ran out."""
    state, covered, r, probes = states[q], -1, 0, 1.0
    no_numbers = np.empty(0, dtype=np.uint32)
    while covered < state[LIMIT]:
        for table in range(len(layout)):
            if r <= layout[table, 2]:
                width, probes = layout[table, 2], 1.0
                for i in range(r):
                    probes *= (width - i) / (i + 1)
                if probes * _PROBE > budget:
                    return
                budget = _probe(
                    queries[q], codes if table == 0 else table_codes[table - 1], table, r, layout, offsets,
                    no_numbers if table == 0 else numbers[table - 1], k, budget,
                    entries[q], counts[q], state, starts, rows, allowed,
                )  # fmt: skip
                if budget < 0:
                    return
            covered += 1
            if covered >= state[LIMIT]:
                break
        r += 1
    complete[q] = True


@njit(cache=True, parallel=True)
def _search_all(  # type: ignore[no-untyped-def]
    n, queries, codes, starts, rows, allowed, layout, offsets, table_codes, numbers, k, budget,
    entries, counts, states, complete,
):  # fmt: skip
    for q in prange(n):
        _search_one(
            q, queries, codes, starts, rows, allowed, layout, offsets, table_codes, numbers, k, budget,
            entries, counts, states, complete,
        )  # fmt: skip


def _search(
    queries: Words,
    distinct: DistinctCodes,
    tables: Tables,
    k: int,
    n_bits: int,
    radius: int,
    allowed: Mask,
    budget: int,
) -> tuple[Found, list[int]]:
    """Candidates of each query, and the queries of which they are complete."""
    # A search within its budget takes fewer codes than that.
    found = nothing_found(1, len(queries), min(capacity(k, distinct.codes.shape[1]), budget), n_bits, radius)
    complete = np.zeros(len(queries), dtype=np.bool_)
    arguments = queries, *distinct, allowed, *tables, k, budget, *(values[0] for values in found), complete
    if len(queries) == 1:
        _search_one(0, *arguments)
    else:
        _search_all(len(queries), *arguments)
    return found, np.flatnonzero(complete).tolist()


def nearest(
    queries: Words,
    distinct: DistinctCodes,
    tables: Tables,
    k: int,
    n_bits: int,
    radius: int,
    allowed: Mask,
    budget: int,
) -> dict[int, Matches]:
    """The ``k`` nearest rows within ``radius``, by query; queries that are not worth it are left out.

    Args:
        budget: codes that a search of one query may look at; a probe counts as several.

    Other arguments as in `linear_scan.nearest`.
    """
    found, done = _search(queries, distinct, tables, k, n_bits, radius, allowed, budget)
    complete = Found(found.entries[:, done], found.counts[:, done], found.states[:, done])
    return dict(zip(done, answers(complete, radius, k, distinct, allowed), strict=True))


def within(
    queries: Words, distinct: DistinctCodes, tables: Tables, n_bits: int, radius: int, allowed: Mask, budget: int
) -> dict[int, Matches]:
    """All rows within ``radius``, by query; arguments otherwise as in `nearest`."""
    results = {}
    for q in range(len(queries)):
        found, done = _search(queries[q : q + 1], distinct, tables, len(distinct.rows), n_bits, radius, allowed, budget)
        if done:
            codes = found.entries[0, 0, : found.states[0, 0, SIZE]] & LOWER
            k = int((distinct.starts[codes + _ONE] - distinct.starts[codes]).sum(dtype=np.int64))
            results[q] = answers(found, radius, k, distinct, allowed)[0]
    return results
