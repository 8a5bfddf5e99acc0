"""Counting distances: the compiled pass over all query–item pairs, and its plain twin."""

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, words

Counts = NDArray[np.int64]
Labels = NDArray[np.bool_]

# Items whose distances are held at once: the two buffers of 8 bytes an item stay in the first cache.
_BLOCK = 1024
# Queries that go over such a block before it leaves the cache.
_GROUP = 8


@intrinsic
def _popcount(typing_context, word):  # type: ignore[no-untyped-def]
    """Number of set bits of a 64-bit word, as one machine instruction."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        function_type = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        function = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)], function_type)
        return builder.call(function, arguments)

    return types.uint64(types.uint64), generate


def count_distances(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    n_bits: int,
) -> tuple[Counts, Counts]:
    """Histograms of distances of all items and of the relevant ones (those sharing a label), per query.

    Args:
        query_codes: ``(nq, b)`` packed codes.
        database_codes: ``(nd, b)`` packed codes.
        query_labels: ``(nq, c)`` bool.
        database_labels: ``(nd, c)`` bool.
        n_bits: code length k.

    Returns:
        (total, relevant), each ``(nq, k + 1)`` int64. O(nq · nd · (k + c) / 64) time on all cores; the memory beside
        the inputs is a copy of the codes and label sets, in 64-bit words, and the result.
    """
    queries, database = _columns(query_codes), _columns(database_codes)
    query_sets, database_sets = (_columns(np.packbits(labels, axis=1)) for labels in (query_labels, database_labels))
    counts = np.zeros((len(query_codes), n_bits + 1, 2), dtype=np.int64)
    if len(queries) == 1 and len(query_sets) == 1:
        _count_one_word(queries[0], database[0], query_sets[0], database_sets[0], counts)
    else:
        _count_words(queries, database, query_sets, database_sets, counts, _BLOCK)
    return counts.sum(axis=2), counts[:, :, 1].copy()


def _columns(packed: PackedCodes) -> NDArray[np.uint64]:
    """Packed bits as 64-bit words ``(words, n)``. A copy: codes in a mapped file are read-only, which the compiled
    signatures do not take, and a word of neighbouring items lies side by side."""
    return np.array(words(packed).T, order="C")


@njit(
    "void(uint64[::1], uint64[::1], uint64[::1], uint64[::1], int64[:, :, ::1])",
    cache=True,
    parallel=True,
)
def _count_one_word(queries, database, query_sets, database_sets, counts):  # type: ignore[no-untyped-def]
    """One word a code and one a label set: the common case, k <= 64 and c <= 64."""
    n_bins = counts.shape[1]
    for q in prange(len(queries)):
        code, labels = queries[q], query_sets[q]
        # Two histograms in turn: neighbouring items often fall into one bin, and a bin's next increment would wait
        # for its last one.
        bins = np.zeros((2, 2 * n_bins), dtype=np.int64)
        for i in range(len(database)):
            distance = np.int64(_popcount(code ^ database[i]))  # type: ignore[call-arg]
            related = np.int64((labels & database_sets[i]) != 0)
            bins[i & 1, 2 * distance + related] += 1
        for d in range(n_bins):
            counts[q, d, 0] = bins[0, 2 * d] + bins[1, 2 * d]
            counts[q, d, 1] = bins[0, 2 * d + 1] + bins[1, 2 * d + 1]


@njit(
    "void(uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], int64[:, :, ::1], int64)",
    cache=True,
    parallel=True,
)
def _count_words(queries, database, query_sets, database_sets, counts, block):  # type: ignore[no-untyped-def]
    """Codes and label sets of any width. A block of items serves several queries while it is in the cache; within it
    the loops go word by word, which the compiler turns into vector instructions, unlike a loop over an item's words."""
    n_queries, n_items, n_bins = queries.shape[1], database.shape[1], counts.shape[1]
    for group in prange((n_queries + _GROUP - 1) // _GROUP):
        first, last = group * _GROUP, min((group + 1) * _GROUP, n_queries)
        bins = np.zeros((_GROUP, 2, 2 * n_bins), dtype=np.int64)
        distance, shared = np.empty(block, dtype=np.uint64), np.empty(block, dtype=np.uint64)
        for start in range(0, n_items, block):
            size = min(block, n_items - start)
            for q in range(first, last):
                distance[:size] = 0
                shared[:size] = 0
                for w in range(len(queries)):
                    code = queries[w, q]
                    for i in range(size):
                        distance[i] += _popcount(code ^ database[w, start + i])  # type: ignore[call-arg]
                for w in range(len(query_sets)):
                    labels = query_sets[w, q]
                    for i in range(size):
                        shared[i] |= labels & database_sets[w, start + i]
                for i in range(size):
                    bins[q - first, i & 1, 2 * np.int64(distance[i]) + np.int64(shared[i] != 0)] += 1
        for q in range(first, last):
            for d in range(n_bins):
                counts[q, d, 0] = bins[q - first, 0, 2 * d] + bins[q - first, 1, 2 * d]
                counts[q, d, 1] = bins[q - first, 0, 2 * d + 1] + bins[q - first, 1, 2 * d + 1]


def count_distances_literally(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: Labels,
    database_labels: Labels,
    n_bits: int,
) -> tuple[Counts, Counts]:
    """`count_distances` as the definition says, in NumPy, one query at a time: the oracle of the compiled pass."""
    total = np.zeros((len(query_codes), n_bits + 1), dtype=np.int64)
    relevant = np.zeros_like(total)
    for q, (code, labels) in enumerate(zip(query_codes, query_labels, strict=True)):
        distances = np.bitwise_count(database_codes ^ code).sum(axis=1, dtype=np.int64)
        related = (database_labels & labels).any(axis=1)
        total[q] = np.bincount(distances, minlength=n_bits + 1)
        relevant[q] = np.bincount(distances[related], minlength=n_bits + 1)
    return total, relevant
