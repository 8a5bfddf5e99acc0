"""The compiled pass over all distinct codes: nearest ones, and all within a radius. It builds no array of pairs.

A candidate is one key: distance above, the first row of its code below, 32 bits each. So an ascending order of keys is
the order of answers. The ``k`` nearest *codes* by key hold the ``k`` nearest *rows*: a row of any other code comes after
the first rows of those ``k``.
"""

import numpy as np
from numba import get_num_threads, njit, prange, types

from channelhash.popcount import popcount

# Codes whose distances are held at once.
_BLOCK = 512
# Queries that go over such a block before it leaves the first cache.
_GROUP = 8
# Codes that a task has at least.
_SEGMENT = 1 << 14
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)


def array(kind, ndim):  # type: ignore[no-untyped-def]
    """The type of an input that may lie in a mapped file, which cannot be written to."""
    return types.Array(kind, ndim, "C", readonly=True)


_ROWS, _MASK = array(types.uint32, 1), array(types.boolean, 1)


@njit(inline="always")
def measure(out, code, codes, start, size):  # type: ignore[no-untyped-def]
    """``out[i]`` = distance of a query's words to code ``start + i``."""
    word, column = code[0], codes[0, start : start + size]
    for i in range(size):
        out[i] = popcount(word ^ column[i])
    for w in range(1, len(code)):
        word, column = code[w], codes[w, start : start + size]
        for i in range(size):
            out[i] += popcount(word ^ column[i])


@njit(inline="always")
def first_row(c, starts, rows, allowed):  # type: ignore[no-untyped-def]
    """The first row of code ``c`` that is allowed, -1 if none is. An empty ``allowed`` allows all."""
    if len(allowed) == 0:
        return np.int64(rows[starts[c]])
    for i in range(starts[c], starts[c + 1]):
        if allowed[rows[i]]:
            return np.int64(rows[i])
    return np.int64(-1)


@njit(inline="always")
def insert(keys, found, n, key, c):  # type: ignore[no-untyped-def]
    """Put a candidate into a heap of the ``len(keys)`` smallest keys, largest at the root; the number it has then."""
    if n < len(keys):
        i = n
        n += 1
        while i > 0 and keys[(i - 1) // 2] < key:
            keys[i], found[i] = keys[(i - 1) // 2], found[(i - 1) // 2]
            i = (i - 1) // 2
    else:
        i = 0
        while 2 * i + 1 < n:
            child = 2 * i + 1
            if child + 1 < n and keys[child + 1] > keys[child]:
                child += 1
            if keys[child] <= key:
                break
            keys[i], found[i] = keys[child], found[child]
            i = child
    keys[i], found[i] = key, c
    return n


@njit(inline="always")
def expand(keys, found, n, starts, rows, allowed, out_rows, out_distances):  # type: ignore[no-untyped-def]
    """Write the rows of ``n`` codes, the first ``len(out_rows)`` by (distance, row); their number."""
    order = np.argsort(keys[:n])
    k, done, i = len(out_rows), 0, 0
    while i < n and done < k:
        distance = keys[order[i]] >> _HALF
        end = i
        while end < n and keys[order[end]] >> _HALF == distance:
            end += 1
        total = 0
        for j in range(i, end):
            c = found[order[j]]
            total += min(k - done, np.int64(starts[c + 1]) - np.int64(starts[c]))
        tied, t = np.empty(total, dtype=np.uint32), 0
        for j in range(i, end):
            c, taken = found[order[j]], 0
            for e in range(starts[c], starts[c + 1]):
                if taken == k - done:
                    break
                if len(allowed) == 0 or allowed[rows[e]]:
                    tied[t] = rows[e]
                    t += 1
                    taken += 1
        tied = np.sort(tied[:t])
        for j in range(min(t, k - done)):
            out_rows[done + j] = tied[j]
            out_distances[done + j] = np.int64(distance)
        done += min(t, k - done)
        i = end
    return done


def _nearest_signature(word):  # type: ignore[no-untyped-def]
    return types.void(
        types.Array(word, 2, "C"), array(word, 2), _ROWS, _ROWS, _MASK, types.int64, types.int64, types.int64,
        types.int64[:, ::1], types.int64[:, ::1], types.int64[::1],
    )  # fmt: skip


@njit([_nearest_signature(types.uint32), _nearest_signature(types.uint64)], cache=True, parallel=True)
def _nearest(queries, codes, starts, rows, allowed, radius, group, segments, out_rows, out_distances, counts):  # type: ignore[no-untyped-def]
    nq, m = len(queries), codes.shape[1]
    groups, length = (nq + group - 1) // group, (m + segments - 1) // segments
    k = min(out_rows.shape[1], m)
    keys = np.empty((nq, segments, k), dtype=np.uint64)
    found = np.empty((nq, segments, k), dtype=np.uint32)
    sizes = np.zeros((nq, segments), dtype=np.int64)
    for task in prange(groups * segments):
        segment = task % segments
        first, last = task // segments * group, min((task // segments + 1) * group, nq)
        begin, end = segment * length, min((segment + 1) * length, m)
        distances = np.empty(_BLOCK, dtype=codes.dtype)
        # A code that is farther cannot be among the answers; while there is room, one at the radius can.
        limits = np.full(last - first, radius, dtype=np.int64)
        for start in range(begin, end, _BLOCK):
            size = min(_BLOCK, end - start)
            for q in range(first, last):
                measure(distances, queries[q], codes, start, size)
                limit = limits[q - first]
                if limit < 0:
                    continue
                near = 0
                for i in range(size):
                    near += distances[i] <= limit
                if near == 0:
                    continue
                own_keys, own_found, n = keys[q, segment], found[q, segment], sizes[q, segment]
                for i in range(size):
                    if distances[i] <= limit:
                        row = first_row(start + i, starts, rows, allowed)
                        key = (np.uint64(distances[i]) << _HALF) | np.uint64(row)
                        if row >= 0 and (n < k or key < own_keys[0]):
                            n = insert(own_keys, own_found, n, key, np.uint32(start + i))
                            if n == k:
                                # Codes come in the order of their first rows: a later one must be nearer, unless
                                # some rows do not count.
                                limit = min(limit, np.int64(own_keys[0] >> _HALF) - (len(allowed) == 0))
                sizes[q, segment] = n
                limits[q - first] = limit
    for q in prange(nq):
        n = sizes[q, 0]
        for segment in range(1, segments):
            for i in range(sizes[q, segment]):
                key = keys[q, segment, i]
                if n < k or key < keys[q, 0, 0]:
                    n = insert(keys[q, 0], found[q, 0], n, key, found[q, segment, i])
        counts[q] = expand(keys[q, 0], found[q, 0], n, starts, rows, allowed, out_rows[q], out_distances[q])


def nearest(queries, distinct, k, radius, allowed):  # type: ignore[no-untyped-def]
    nq, m = len(queries), distinct.codes.shape[1]
    k = min(k, len(distinct.rows))
    out = np.empty((nq, k), dtype=np.int64), np.empty((nq, k), dtype=np.int64), np.zeros(nq, dtype=np.int64)
    threads = get_num_threads()
    group = max(1, min(_GROUP, nq // (2 * threads)))
    segments = max(1, min(-(-2 * threads // max(1, -(-nq // group))), m // _SEGMENT))
    if k and nq:
        _nearest(queries, *distinct, allowed, radius, group, segments, *out)
    return out


def _within_signature(word):  # type: ignore[no-untyped-def]
    return types.Array(types.uint64, 1, "C")(
        types.Array(word, 1, "C"), array(word, 2), _ROWS, _ROWS, _MASK, types.int64, types.int64
    )


@njit([_within_signature(types.uint32), _within_signature(types.uint64)], cache=True, parallel=True)
def _within(query, codes, starts, rows, allowed, radius, segments):  # type: ignore[no-untyped-def]
    """Keys of all rows within ``radius``, sorted."""
    m = codes.shape[1]
    length = (m + segments - 1) // segments
    ends = np.zeros(segments + 1, dtype=np.int64)
    keys = np.empty(0, dtype=np.uint64)
    for fill in range(2):
        for segment in prange(segments):
            begin, end = segment * length, min((segment + 1) * length, m)
            distances = np.empty(_BLOCK, dtype=codes.dtype)
            n = ends[segment] if fill else 0
            for start in range(begin, end, _BLOCK):
                size = min(_BLOCK, end - start)
                measure(distances, query, codes, start, size)
                for i in range(size):
                    if distances[i] <= radius:
                        for e in range(starts[start + i], starts[start + i + 1]):
                            if len(allowed) == 0 or allowed[rows[e]]:
                                if fill:
                                    keys[n] = (np.uint64(distances[i]) << _HALF) | np.uint64(rows[e])
                                n += 1
            if not fill:
                ends[segment + 1] = n
        if not fill:
            for segment in range(segments):
                ends[segment + 1] += ends[segment]
            keys = np.empty(ends[segments], dtype=np.uint64)
    return keys


def within(query, distinct, radius, allowed):  # type: ignore[no-untyped-def]
    segments = max(1, min(2 * get_num_threads(), distinct.codes.shape[1] // _SEGMENT))
    keys = np.sort(_within(query, *distinct, allowed, radius, segments))
    return (keys & _LOWER).astype(np.int64), (keys >> _HALF).astype(np.int64)
