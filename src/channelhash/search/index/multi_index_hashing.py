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

import numpy as np

from channelhash.codes.popcount import popcount
from channelhash.search.index.deduplicate import Words
from channelhash.search.index.few_codes import FEW_QUERIES, Numbers
from channelhash.search.index.request import Search
from channelhash.search.index.tables import WIDEST, Tables
from channelhash.search.index.top_k import (
    LIMIT,
    SIZE,
    add,
    begin_one,
    first_row,
    make_room,
    write_one,
)
from channelhash.utils.compiled import njit, prange
from channelhash.utils.parallel_loops import loop_threads, parallel_loop

# A probe (two places in memory that nothing is known of) costs about as much as so many neighbouring codes.
_PROBE = 40
_ONE = np.uint64(1)


def build_tables(codes: Words, n_bits: int) -> Tables:
    """Build the tables of ``(words, m)`` distinct codes in ascending order; substrings of about log₂ m bits.

    >>> build_tables(np.array([[1, 6, 9]], np.uint32), n_bits=8).layout.tolist()
    [[0, 31, 1, 0], [0, 29, 2, 3], [0, 28, 1, 8], [0, 26, 2, 11], [0, 24, 2, 16]]
    """
    m, word_bits = codes.shape[1], 8 * codes.itemsize
    target = min(WIDEST, max(1.0, np.log2(max(2, m))))
    layout, start = [], 0
    for word in range(len(codes)):
        bits = min(word_bits, n_bits - word * word_bits)
        parts = max(round(bits / target), -(-bits // WIDEST), word == 0)
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
        _fill(codes, tables, table)
    return tables


@njit(nogil=True)
def _buckets(tables, table):  # type: ignore[no-untyped-def]
    """Return where each bucket of a table begins, and where the last one ends."""
    width, first = tables.layout[table, 2], tables.layout[table, 3]
    return tables.offsets[first : first + (1 << width) + 1]


@njit(cache=True, nogil=True)
def _fill(codes, tables, table):  # type: ignore[no-untyped-def]
    """List the codes of one table by bucket."""
    layout = tables.layout
    word, shift, width = layout[table, 0], np.uint64(layout[table, 1]), layout[table, 2]
    last, buckets = (_ONE << np.uint64(width)) - _ONE, _buckets(tables, table)
    for c in range(codes.shape[1]):
        buckets[((np.uint64(codes[word, c]) >> shift) & last) + _ONE] += 1
    for b in range(1, len(buckets)):
        buckets[b] += buckets[b - 1]
    if table == 0:
        return
    # An offset goes ahead to where the next code of its bucket belongs, and so ends at the next bucket's.
    for c in range(codes.shape[1]):
        value = (np.uint64(codes[word, c]) >> shift) & last
        e = buckets[value]
        buckets[value] += 1
        tables.numbers[table - 1, e] = c
        for w in range(len(codes)):
            tables.codes[table - 1, w, e] = codes[w, c]
    for b in range(len(buckets) - 1, 0, -1):
        buckets[b] = buckets[b - 1]
    buckets[0] = 0


@njit(nogil=True)
def _met_before(code, codes, e, table, r, layout):  # type: ignore[no-untyped-def]
    """Return whether a code at ``r`` bits in this table's substring has been met in another table's probes."""
    for j in range(len(layout)):
        w = layout[j, 0]
        differing = (np.uint64(codes[w, e]) ^ np.uint64(code[w])) >> np.uint64(layout[j, 1])
        bits = np.int64(popcount(differing & ((_ONE << np.uint64(layout[j, 2])) - _ONE)))  # type: ignore[call-arg]
        if bits < r or (bits == r and j < table):
            return True
    return False


@njit(nogil=True)
def _probe(code, table, r, budget, tables, search, met):  # type: ignore[no-untyped-def]
    """Meet the codes that differ from the query in ``r`` bits of the table's substring; return what is left of the
    budget. ``met`` are the query's entries, counts and state."""
    entries, counts, state = met
    starts, rows, allowed, n_allowed, k = search.starts, search.rows, search.allowed, len(search.allowed), search.k
    codes = search.codes if table == 0 else tables.codes[table - 1]
    layout, buckets, numbers = tables.layout, _buckets(tables, table), tables.numbers
    last = (_ONE << np.uint64(layout[table, 2])) - _ONE
    value = (np.uint64(code[layout[table, 0]]) >> np.uint64(layout[table, 1])) & last
    flipped = (_ONE << np.uint64(r)) - _ONE
    while flipped <= last:
        b = value ^ flipped
        begin, end = np.int64(buckets[b]), np.int64(buckets[b + _ONE])
        budget -= _PROBE + end - begin
        if budget < 0:
            break
        for e in range(begin, end):
            distance = np.int64(0)
            for w in range(len(code)):
                distance += np.int64(popcount(codes[w, e] ^ code[w]))  # type: ignore[call-arg]
            if distance <= state[LIMIT] and not _met_before(code, codes, e, table, r, layout):
                # The first table lists the codes in their own order.
                c = np.int64(e) if table == 0 else np.int64(numbers[table - 1, e])
                if n_allowed == 0 or first_row(c, starts, rows, allowed) >= 0:
                    if state[SIZE] == len(entries):
                        make_room(k, entries, counts, state, starts, rows, allowed)
                    add(distance, c, k, entries, counts, state)
        if r == 0:
            break
        # The next larger number with as many bits.
        low = flipped & (~flipped + _ONE)
        carried = flipped + low
        flipped = carried | (((flipped ^ carried) >> np.uint64(2)) // low)
    return budget


@njit(cache=True, nogil=True)
def _search_one(q, search, tables, budget, rows, distances):  # type: ignore[no-untyped-def]
    """Write the answers of one query and return their number; -1 if the budget runs out."""
    found = begin_one(search)
    met = found.entries[0, 0], found.counts[0, 0], found.states[0, 0]
    layout, state, covered, r, probes = tables.layout, met[2], -1, 0, 1.0
    while covered < state[LIMIT]:
        for table in range(len(layout)):
            if r <= layout[table, 2]:
                width, probes = layout[table, 2], 1.0
                for i in range(r):
                    probes *= (width - i) / (i + 1)
                if probes * _PROBE > budget:
                    return -1
                budget = _probe(search.queries[q], table, r, budget, tables, search, met)
                if budget < 0:
                    return -1
            covered += 1
            if covered >= state[LIMIT]:
                break
        r += 1
    return write_one(found, search, rows[q], distances[q])


@parallel_loop()
def _search_all(search, tables, budget, rows, distances, sizes):  # type: ignore[no-untyped-def]
    for q in prange(len(sizes)):
        sizes[q] = _search_one(q, search, tables, budget, rows, distances)


def look(tables: Tables, budget: int, search: Search, rows: Numbers, distances: Numbers, sizes: Numbers) -> None:
    """Search in the tables of the codes: a `few_codes.Way` with its first two arguments.

    Args:
        tables: see `build_tables`.
        budget: codes that a search of one query may look at; a probe counts as several.
        search: what is searched for.
        rows, distances: ``(nq, k)``, get what is found.
        sizes: ``(nq,)``, get how many that is; -1 where the search is given up.

    >>> from functools import partial
    >>> from channelhash.search.index.deduplicate import distinct_codes
    >>> from channelhash.search.index.few_codes import nearest, within
    >>> codes, no_mask = distinct_codes(np.array([[0], [7]], np.uint8), n_bits=8), np.empty(0, np.bool_)
    >>> search = Search(np.zeros((1, 1), np.uint32), *codes, no_mask, k=1, radius=8, n_bits=8)
    >>> way = partial(look, build_tables(codes.codes, n_bits=8), 1_000_000)
    >>> nearest(search, way)[0].rows.tolist(), within(search, way)[0].rows.tolist()
    ([0], [0, 1])
    """
    if len(sizes) == 1:
        budget //= loop_threads()  # a scan would use all cores
    if len(sizes) < FEW_QUERIES:
        for q in range(len(sizes)):
            sizes[q] = _search_one(q, search, tables, budget, rows, distances)
    else:
        _search_all(search, tables, budget, rows, distances, sizes)
