"""Exact search beside FAISS's exact and approximate indexes: milliseconds a query for the first 10
answers.

Each cell holds the time of a query in a batch and alone; in brackets the parameter of an
approximate index, the least that finds 99.8 % of the nearest codes if any does, and the share that
it finds.

With ``--vectors FILE.npy`` the codes are those of vectors ``(n, d)``, by ITQ, and then of these and
twelve noisy copies of each; the queries, 500 of the vectors, are held out.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import faiss
import numpy as np

from channelhash.codes import PackedCodes
from channelhash.compression import Compressor
from channelhash.search.index import CodeIndex, compile_loops
from channelhash.utils.seeds import generator
from measure import clustered_codes, in_turn, options, print_table, seconds

K, PROTOTYPES, RECALL = 10, 2000, 0.998
# Partitions, codes that they are trained on, and codes that a partition has at least.
PARTITIONS, TRAINED, LEAST = 1024, 100_000, 40
# Tables of substrings, and bits that are flipped in each at most: more take longer than a scan.
TABLES, FLIPS = 4, 3
# Neighbours in the graph, and codes of which building it ends within minutes.
NEIGHBOURS, MOST_IN_GRAPH = 32, 10**6
# Held-out vectors; the others, each so many times; the length of the noise in a copy.
QUESTIONS, COPIES, NOISE = 500, 13, 0.3


class Engine(NamedTuple):
    """An index of codes: its name, parameter and recall in words, its search, and the seconds of
    building it.
    """

    name: str
    note: str
    search: Callable[[PackedCodes, int], Any]
    build: float


def main() -> None:
    """Print a table of clustered codes, one of random codes, and one of building; or one of codes of
    given vectors.
    """
    given = options(
        __doc__, sizes=(10**5, 10**6, 10**7), bits=(64, 128, 256, 512), batch=200, vectors=""
    )
    compile_loops()
    if given.vectors:
        compare_codes_of(np.load(given.vectors), [bits for bits in given.bits if bits <= 256])
        return
    built = []
    for kind in ("clustered", "random"):
        rows = []
        for n in given.sizes:
            for n_bits in given.bits:
                codes, queries = draw(kind, n, given.batch, n_bits)
                ours, plain, index = own(codes, n_bits)
                truth = np.array([match.distances for match in index.nearest(queries, K)])
                # What looks at a part of random codes finds a part of the answers.
                rivals = [
                    flat(codes),
                    *(approximate(codes, queries, truth) if kind == "clustered" else ()),
                ]
                size = f"{n:,} × {n_bits}"
                rows.append({"codes × bits": size, **times([ours, plain, *rivals], queries)})
                if kind == "clustered":
                    columns = {"build, ours": ours.build} | {
                        each.name: each.build for each in rivals
                    }
                    columns = {name: seconds(value) for name, value in columns.items()}
                    built.append(
                        {
                            "codes × bits": size,
                            **columns,
                            "bytes a code": round(
                                sum(values.nbytes for values in index.arrays().values()) / n
                            ),
                        }
                    )
        print_table(rows, f"milliseconds a query, {kind} codes")
    print_table(built, "building")


def compare_codes_of(vectors: np.ndarray, lengths: Sequence[int]) -> None:
    """Print a table of the codes of vectors, and of them and noisy copies; and one of building."""
    rows, built = [], []
    for copies in (1, COPIES):
        for n_bits in lengths:
            codes, queries = encode(vectors, copies, n_bits)
            ours, _, index = own(codes, n_bits)
            truth = np.array([match.distances for match in index.nearest(queries, K)])
            engines = [ours, flat(codes), inverted(codes, queries, truth)]
            size = {"codes × bits": f"{len(codes):,} × {n_bits}"}
            share = f"{100 * index.share_read(queries, K):.0f} %"
            rows.append({**size, **times(engines, queries), "read": share})
            built.append(size | {engine.name: seconds(engine.build) for engine in engines})
    print_table(rows, f"milliseconds a query, codes of vectors, in a batch of {QUESTIONS} / alone")
    print_table(built, "building")


def encode(vectors: np.ndarray, copies: int, n_bits: int) -> tuple[PackedCodes, PackedCodes]:
    """Encode vectors and noisy copies of them, and the held-out ones."""
    order = generator(0, "benchmark", "held out").permutation(len(vectors))
    questions, rows = vectors[order[:QUESTIONS]], vectors[order[QUESTIONS:]]
    compressor = Compressor.fit(rows, n_bits, second=None)
    scale = NOISE * np.linalg.norm(rows, axis=1, keepdims=True) / np.sqrt(rows.shape[1])
    codes = [compressor.encode(rows).codes]
    for copy in range(1, copies):
        noise = generator(0, "benchmark", "copy", copy).standard_normal(rows.shape, np.float32)
        codes.append(compressor.encode(rows + scale.astype(np.float32) * noise).codes)
    return np.concatenate(codes), compressor.encode(questions).codes


def draw(kind: str, n: int, n_queries: int, n_bits: int) -> tuple[PackedCodes, PackedCodes]:
    """Draw codes and queries, clustered or uniform."""
    if kind == "clustered":
        items = clustered_codes(n, n_bits, PROTOTYPES)
        return items, clustered_codes(n_queries, n_bits, PROTOTYPES, "queries")
    random = generator(0, "benchmark", "random codes", n_bits)
    shape = n_bits // 8
    return random.integers(0, 256, (n, shape), np.uint8), random.integers(
        0, 256, (n_queries, shape), np.uint8
    )


def own(codes: PackedCodes, n_bits: int) -> tuple[Engine, Engine, CodeIndex]:
    """Build our index, and our scan alone."""
    began = time.perf_counter()
    index = CodeIndex.build(codes, n_bits)
    took = time.perf_counter() - began
    plain = CodeIndex.build(codes, n_bits, clusters=False)
    return (
        Engine("ours", "", index.nearest, took),
        Engine("our scan alone", "", plain.nearest, 0),
        index,
    )


def times(engines: Sequence[Engine], queries: PackedCodes) -> dict[str, str]:
    """Return milliseconds a query of each engine, in a batch and alone."""

    def next_one(engine: Engine) -> Callable[[], object]:
        turns = cycle(range(len(queries)))

        def search() -> object:
            q = next(turns)  # no query finds its own traces in the caches
            return engine.search(queries[q : q + 1], K)

        return search

    batch = in_turn([partial(engine.search, queries, K) for engine in engines])
    alone = in_turn([next_one(engine) for engine in engines])
    return {
        engine.name: f"{1e3 * together / len(queries):.3g} / {1e3 * single:.3g}{engine.note}"
        for engine, together, single in zip(engines, batch, alone, strict=True)
    }


def flat(codes: PackedCodes) -> Engine:
    """Build FAISS's exact index."""
    index, took = _built(faiss.IndexBinaryFlat(8 * codes.shape[1]), codes)
    return Engine("FAISS flat", "", index.search, took)


def inverted(codes: PackedCodes, queries: PackedCodes, truth: np.ndarray) -> Engine:
    """Build FAISS's index that looks at the partitions nearest to a query."""
    n_bits = 8 * codes.shape[1]
    partitions = max(1, min(PARTITIONS, len(codes) // LEAST))
    index, took = _built(
        faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(n_bits), n_bits, partitions), codes
    )
    values = [*_powers(partitions), partitions]
    return _least("FAISS IVF", index, index, "nprobe", values, took, queries, truth)


def approximate(codes: PackedCodes, queries: PackedCodes, truth: np.ndarray) -> Iterator[Engine]:
    """Build FAISS's indexes that look at a part of the codes."""
    n_bits = 8 * codes.shape[1]
    yield inverted(codes, queries, truth)
    width = max(1, min(len(codes).bit_length() - 1, n_bits // TABLES))
    tables, took = _built(faiss.IndexBinaryMultiHash(n_bits, TABLES, width), codes)
    yield _least("FAISS MultiHash", tables, tables, "nflip", range(FLIPS + 1), took, queries, truth)
    if len(codes) <= MOST_IN_GRAPH:
        graph, took = _built(faiss.IndexBinaryHNSW(n_bits, NEIGHBOURS), codes)
        yield _least(
            "FAISS HNSW", graph, graph.hnsw, "efSearch", _powers(4096)[4:], took, queries, truth
        )


def _built(index: Any, codes: PackedCodes) -> tuple[Any, float]:
    began = time.perf_counter()
    if not index.is_trained:
        sample = generator(0, "benchmark", "trained").choice(
            len(codes), min(len(codes), TRAINED), replace=False
        )
        index.train(codes[np.sort(sample)])
    index.add(codes)
    return index, time.perf_counter() - began


def _least(
    name: str,
    index: Any,
    owner: Any,
    key: str,
    values: Sequence[int],
    took: float,
    queries: PackedCodes,
    truth: Any,
) -> Engine:
    """Return the index with the first of the values that reaches `RECALL`, or the last."""
    for value in values:
        setattr(owner, key, value)
        distances, numbers = index.search(queries, K)
        # Where an index finds fewer, numbers are -1; HNSW's distances there are far below 0.
        recall = float(((distances <= truth[:, -1:]) & (numbers >= 0)).mean())
        if recall >= RECALL:
            break
    return Engine(name, f" ({value}; {recall:.3f})", index.search, took)


def _powers(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length())]


if __name__ == "__main__":
    main()
