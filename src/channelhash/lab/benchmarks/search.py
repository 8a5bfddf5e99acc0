"""Speed of exact search, beside FAISS and usearch, and of the tables beside the scan."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes, unpack
from channelhash.lab.benchmarks.metrics import draw_codes, draw_labels
from channelhash.search.index import CodeIndex, compile_loops
from channelhash.search.local.answering import nearest, scored
from channelhash.search.local.snapshots import Part
from channelhash.search.local.sorted_codes import SortedCodes
from channelhash.utils.optional_imports import library
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare

SIZES, LENGTHS = (10**5, 10**6, 10**7), (32, 64, 128)
N_LABELS = 21
FIRSTS = (10, 100)
BATCH = 100

# Codes with projections: their length, how many at most, and how many are made at once.
_PROJECTED_BITS, _MOST_PROJECTED, _BLOCK = 256, 10**6, 1 << 16

# Queries of a batch that usearch is timed on, once; its time is scaled to all.
_SAMPLE = 2


def benchmark_search(
    sizes: Sequence[int] = SIZES, lengths: Sequence[int] = LENGTHS, firsts: Sequence[int] = FIRSTS, batch: int = BATCH
) -> list[Row]:
    """Measure building an index, and searching the first k codes of one query and of a batch.

    Codes and queries are clustered by label as a trained model's are (`draw_codes`), so that the queries have near
    codes. Single queries take turns, so that none finds its own traces in the caches.

    Args:
        sizes: numbers of codes.
        lengths: code lengths, multiples of 8, as FAISS takes them.
        firsts: numbers of answers.
        batch: queries of a batch.

    Returns:
        ``what`` of the building rows says bytes a code.

    Raises:
        InputError: FAISS or usearch is not installed.
    """
    faiss, usearch = library("faiss", "faiss"), library("usearch.index", "dev")
    compile_loops()
    rows = []
    for n in sizes:
        for n_bits in lengths:
            codes = draw_codes(draw_labels(n, N_LABELS, "items"), n_bits, "image")
            queries = draw_codes(draw_labels(batch, N_LABELS, "queries"), n_bits, "text")
            rows += _one_index(codes, queries, n_bits, firsts, faiss, usearch)
        if n <= _MOST_PROJECTED:
            rows.append(_two_stages(n, batch))
    return rows


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


def _one_index(
    codes: PackedCodes, queries: PackedCodes, n_bits: int, firsts: Sequence[int], faiss: Any, usearch: Any
) -> list[Row]:
    index, plain = CodeIndex.build(codes, n_bits), CodeIndex.build(codes, n_bits, tables=False)
    flat = faiss.IndexBinaryFlat(n_bits)
    flat.add(codes)
    size = f"{len(codes)} codes × {n_bits} bits"
    bytes_a_code = f"{index.nbytes / len(codes):.0f} bytes a code"
    if index.nbytes > plain.nbytes:
        bytes_a_code += f", {plain.nbytes / len(codes):.0f} without tables"
    rows = [
        compare(
            f"build ({bytes_a_code})",
            size,
            lambda: CodeIndex.build(codes, n_bits),
            f"FAISS flat, {n_bits // 8} bytes a code",
            lambda: faiss.IndexBinaryFlat(n_bits).add(codes),
            repeats=1,
        )
    ]

    def usearch_exact(batch: PackedCodes, k: int) -> object:
        return usearch.search(
            codes, batch, k, metric=usearch.MetricKind.Hamming, dtype=usearch.ScalarKind.B1, exact=True
        )

    for k in firsts:
        for count, name in ((1, "1 query"), (len(queries), f"{len(queries)} queries")):
            batch, sample = queries[:count], queries[: min(count, _SAMPLE)]
            alternatives: list[tuple[str, Callable[[PackedCodes, int], object], PackedCodes]] = [
                ("FAISS flat", flat.search, batch),
                (f"usearch exact ({len(sample)} timed)", usearch_exact, sample),
            ]
            if index.nbytes > plain.nbytes:
                alternatives.append(("our scan alone", plain.nearest, batch))
            for baseline, search, timed in alternatives:
                single = count == 1
                rows.append(
                    compare(
                        f"top {k}, {name}",
                        size,
                        _caller(index.nearest, queries if single else batch, k, single),
                        baseline,
                        _caller(search, queries if single else timed, k, single),
                        repeats=1 if search is usearch_exact else 5,
                        part=len(timed) / count,
                    )
                )
    return rows


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
