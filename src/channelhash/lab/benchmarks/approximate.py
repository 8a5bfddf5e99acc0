"""FAISS's indexes of codes, each with the least work that finds a given share of the nearest codes."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.utils.seeds import generator

#: The share of the nearest codes that an index is to find.
RECALL = 0.998
# Partitions, codes that they are trained on, and codes that a partition has at least.
_PARTITIONS, _TRAINED, _LEAST = 1024, 100_000, 40
# Tables of substrings, and bits that are flipped in each at most: more take longer than a scan.
_TABLES, _FLIPS = 4, 3
# Neighbours in the graph, and codes of which building it ends within minutes.
_NEIGHBOURS, _MOST_IN_GRAPH = 32, 10**6


class Rival(NamedTuple):
    """An index of codes.

    Attributes:
        name: with its parameters, and what share of the nearest codes it finds.
        build_seconds: how long building it took.
        search: queries, k -> distances and numbers.
    """

    name: str
    build_seconds: float
    search: Callable[[PackedCodes, int], Any]


def rivals(faiss: Any, codes: PackedCodes, queries: PackedCodes, truth: NDArray[np.int64]) -> Iterator[Rival]:
    """Build FAISS's flat index, and those that look at a part of the codes, one after another.

    Args:
        faiss: the library.
        codes: ``(n, b)`` packed codes.
        queries: ``(nq, b)``, on which work and recall are measured.
        truth: ``(nq, k)``, the distances of the nearest codes.
    """
    n_bits = 8 * codes.shape[1]
    flat, seconds = _built(faiss.IndexBinaryFlat(n_bits), codes)
    yield Rival("FAISS flat", seconds, flat.search)
    partitions = max(1, min(_PARTITIONS, len(codes) // _LEAST))
    quantizer = faiss.IndexBinaryFlat(n_bits)
    inverted, seconds = _built(faiss.IndexBinaryIVF(quantizer, n_bits, partitions), codes)
    yield _least(
        f"FAISS IVF{partitions}, nprobe",
        inverted,
        "nprobe",
        [*_powers(partitions), partitions],
        seconds,
        queries,
        truth,
    )
    width = max(1, min(len(codes).bit_length() - 1, n_bits // _TABLES))
    tables, seconds = _built(faiss.IndexBinaryMultiHash(n_bits, _TABLES, width), codes)
    name = f"FAISS MultiHash {_TABLES} × {width} bits, nflip"
    yield _least(name, tables, "nflip", range(_FLIPS + 1), seconds, queries, truth)
    if len(codes) <= _MOST_IN_GRAPH:
        graph, seconds = _built(faiss.IndexBinaryHNSW(n_bits, _NEIGHBOURS), codes)
        breadths = _powers(4096)[4:]
        yield _least(f"FAISS HNSW{_NEIGHBOURS}, efSearch", graph, "hnsw.efSearch", breadths, seconds, queries, truth)


def _built(index: Any, codes: PackedCodes) -> tuple[Any, float]:
    """Return an index with the codes in it, and how long that took."""
    began = time.perf_counter()
    if not index.is_trained:
        sample = generator(0, "benchmark", "trained").choice(len(codes), min(len(codes), _TRAINED), replace=False)
        index.train(codes[np.sort(sample)])
    index.add(codes)
    return index, time.perf_counter() - began


def _least(
    name: str,
    index: Any,
    parameter: str,
    values: Sequence[int],
    seconds: float,
    queries: PackedCodes,
    truth: NDArray[np.int64],
) -> Rival:
    """Return the index with the first of the values that reaches `RECALL`, or the last."""
    holder, _, attribute = parameter.rpartition(".")
    owner = getattr(index, holder) if holder else index
    recall = 0.0
    for value in values:
        setattr(owner, attribute, value)
        distances, numbers = index.search(queries, truth.shape[1])
        # Where an index finds fewer, numbers are -1; HNSW's distances there are far below 0.
        recall = float(((distances <= truth[:, -1:]) & (numbers >= 0)).mean())
        if recall >= RECALL:
            break
    return Rival(f"{name} {value}, recall {recall:.3f}", seconds, index.search)


def _powers(most: int) -> list[int]:
    """Return the powers of two up to a number.

    >>> _powers(6)
    [1, 2, 4]
    """
    return [1 << i for i in range(most.bit_length())]
