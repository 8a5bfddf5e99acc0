"""Speed of exact search, beside FAISS's exact and approximate indexes, and beside the scan alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes, unpack
from channelhash.lab.benchmarks.approximate import rivals
from channelhash.lab.benchmarks.metrics import draw_codes, draw_labels
from channelhash.search.index import CodeIndex, compile_loops
from channelhash.search.local.answering import nearest, scored
from channelhash.search.local.snapshots import Part
from channelhash.search.local.sorted_codes import SortedCodes
from channelhash.utils.optional_imports import library
from channelhash.utils.parallel_loops import loop_threads
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare, single_row

SIZES, LENGTHS = (10**5, 10**6, 10**7), (64, 128, 256, 512)
FIRSTS = (10,)
BATCH = 200

# Prototypes of clustered codes, and the share of their bits that is flipped, in 65,536ths.
_PROTOTYPES, _FLIPPED = 2000, round(0.08 * 65_536)
# Codes of which bandwidth is measured: more than caches hold.
_LEAST_BANDWIDTH = 10**7

# Codes with projections: their length, how many at most, and how many codes are made at once.
N_LABELS = 21
_PROJECTED_BITS, _MOST_PROJECTED, _BLOCK = 256, 10**6, 1 << 16


def benchmark_search(
    sizes: Sequence[int] = SIZES, lengths: Sequence[int] = LENGTHS, firsts: Sequence[int] = FIRSTS, batch: int = BATCH
) -> list[Row]:
    """Measure building an index, and searching the first k codes of one query and of a batch.

    Codes and queries are prototypes with some bits flipped, as a trained model's lie around their classes; random
    codes, which lie in no clusters, are searched beside FAISS's flat index and our scan alone. Single queries take
    turns, so that none finds its own traces in the caches.

    Args:
        sizes: numbers of codes.
        lengths: code lengths, multiples of 8, as FAISS takes them.
        firsts: numbers of answers.
        batch: queries of a batch.

    Returns:
        ``baseline`` says how much of the nearest codes an approximate index finds; ``what`` of the building rows says
        bytes a code.

    Raises:
        InputError: FAISS is not installed.
    """
    faiss = library("faiss", "faiss")
    compile_loops()
    rows = []
    for n in sizes:
        for n_bits in lengths:
            rows += _one_index("clustered", *draw_clustered(n, batch, n_bits), firsts, faiss)
            rows += _one_index("random", *_draw_random(n, batch, n_bits), firsts, faiss)
        if n <= _MOST_PROJECTED:
            rows.append(_two_stages(n, batch))
    return rows


def draw_clustered(n: int, n_queries: int, n_bits: int) -> tuple[PackedCodes, PackedCodes]:
    """Draw codes and queries around the same prototypes.

    >>> codes, queries = draw_clustered(5, 2, 16)
    >>> codes.shape, queries.shape
    ((5, 2), (2, 2))
    """
    prototypes = generator(0, "benchmark", "prototypes", n_bits).random((_PROTOTYPES, n_bits)) < 0.5

    def draw(count: int, purpose: str) -> PackedCodes:
        random = generator(0, "benchmark", purpose, n_bits)
        packed = np.empty((count, n_bits // 8), dtype=np.uint8)
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            flipped = random.integers(0, 65_536, (size, n_bits), dtype=np.uint16) < _FLIPPED
            packed[start : start + size] = np.packbits(
                prototypes[random.integers(0, _PROTOTYPES, size)] ^ flipped, axis=1
            )
        return packed

    return draw(n, "items"), draw(n_queries, "queries")


def _draw_random(n: int, n_queries: int, n_bits: int) -> tuple[PackedCodes, PackedCodes]:
    random = generator(0, "benchmark", "random codes", n_bits)
    return (
        random.integers(0, 256, (n, n_bits // 8), dtype=np.uint8),
        random.integers(0, 256, (n_queries, n_bits // 8), dtype=np.uint8),
    )


def _two_stages(n: int, n_queries: int) -> Row:
    """Compare the first 10 of one query in two stages with those by bits alone, as a store finds them."""
    labels = draw_labels(n, N_LABELS, "items")
    codes = draw_codes(labels, _PROJECTED_BITS, "image")
    queries = draw_codes(draw_labels(n_queries, N_LABELS, "queries"), _PROJECTED_BITS, "text")
    random = generator(0, "benchmark", "projections")
    projections = random.integers(1, 128, (n, _PROJECTED_BITS), dtype=np.int8)
    for start in range(0, n, _BLOCK):
        bits = unpack(codes[start : start + _BLOCK], _PROJECTED_BITS)
        np.negative(projections[start : start + _BLOCK], out=projections[start : start + _BLOCK], where=~bits)
    outputs = np.where(unpack(queries, _PROJECTED_BITS), 1.0, -1.0) * random.random((n_queries, _PROJECTED_BITS))
    names = np.frombuffer("".join(f"{row:08}" for row in range(n)).encode(), np.uint8)
    numbers = np.arange(1, n + 1)
    index = CodeIndex.build(codes, _PROJECTED_BITS)
    parts = [Part(SortedCodes(index, numbers, numbers, names, 8 * numbers, projections), None)]
    turns, plain_turns = cycle(range(n_queries)), cycle(range(n_queries))

    def two_stages() -> object:
        q = next(turns)
        return scored(parts, outputs[q : q + 1], 10, None)

    def bits_alone() -> object:
        q = next(plain_turns)
        return nearest(parts, queries[q : q + 1], 10)

    what = f"top 10 in two stages, 1 query ({projections.nbytes / 1e6:.0f} MB of projections)"
    return compare(what, f"{n} codes × {_PROJECTED_BITS} bits", two_stages, "bits alone", bits_alone, repeats=20)


def _one_index(kind: str, codes: PackedCodes, queries: PackedCodes, firsts: Sequence[int], faiss: Any) -> list[Row]:
    n_bits, size = 8 * codes.shape[1], f"{len(codes)} {kind} codes × {8 * codes.shape[1]} bits"
    began = time.perf_counter()
    index = CodeIndex.build(codes, n_bits)
    seconds = time.perf_counter() - began
    plain = CodeIndex.build(codes, n_bits, tables=False, clusters=False)
    rows: list[Row] = []
    truth = np.array([match.distances for match in index.nearest(queries, min(firsts[0], len(codes)))])
    for rival in rivals(faiss, codes, queries, truth):
        if kind == "random" and rows:
            break  # what looks at a part of random codes finds a part of the answers
        built = single_row(f"build ({index.nbytes / len(codes):.0f} bytes a code, {_aid(index)})", size, seconds, None)
        built |= {
            "baseline": rival.name,
            "baseline_seconds": rival.build_seconds,
            "ratio": rival.build_seconds / seconds,
        }
        rows += [built, *_searches(size, index, queries, firsts, rival.name, rival.search)]
    rows += _searches(size, index, queries, firsts, "our scan alone", plain.nearest)
    if len(codes) >= _LEAST_BANDWIDTH:
        rows.append(_bandwidth(size, plain, queries))
    return rows


def _aid(index: CodeIndex) -> str:
    """Name what an index has beside its codes."""
    names = {name.partition("_")[0] for name in index.arrays()}
    return next((f"{aid}s" for aid in ("cluster", "table") if aid in names), "scan")


def _searches(
    size: str,
    index: CodeIndex,
    queries: PackedCodes,
    firsts: Sequence[int],
    baseline: str,
    search: Callable[[PackedCodes, int], object],
) -> list[Row]:
    """Compare one query and all at once."""
    return [
        compare(
            f"top {k}, {'1 query' if single else f'{len(queries)} queries'}",
            size,
            _caller(index.nearest, queries, k, single),
            baseline,
            _caller(search, queries, k, single),
        )
        for k in firsts
        for single in (True, False)
    ]


def _bandwidth(size: str, plain: CodeIndex, queries: PackedCodes) -> Row:
    """Compare a scan by one query with reading as many bytes: as many threads as the scan has add up the words."""
    threads = loop_threads()
    words = np.ones(len(plain) * plain.n_bits // 64, dtype=np.int64)
    parts = np.array_split(words, threads)
    with ThreadPoolExecutor(threads) as pool:
        row = compare(
            "scan, 1 query",
            size,
            _caller(plain.nearest, queries, FIRSTS[0], single=True),
            "",
            lambda: [*pool.map(np.sum, parts)],
        )
    gigabytes = words.nbytes / 1e9
    row["what"] += f" ({gigabytes / row['seconds']:.0f} GB/s)"
    row["baseline"] = f"reading in {threads} threads ({gigabytes / (row['baseline_seconds'] or 1):.0f} GB/s)"
    return row


def _caller(
    search: Callable[[PackedCodes, int], object], queries: PackedCodes, k: int, single: bool
) -> Callable[[], object]:
    """Return a call that searches all queries at once, or the next one of them alone."""
    if not single:
        return lambda: search(queries, k)
    turns: Iterator[int] = cycle(range(len(queries)))

    def search_next() -> object:
        q = next(turns)
        return search(queries[q : q + 1], k)

    return search_next
