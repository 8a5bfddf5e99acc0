"""Speed of exact search, beside FAISS and usearch, and of the tables beside the scan."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

from channelhash.codes import PackedCodes
from channelhash.lab.benchmarks.metrics import draw_codes, draw_labels
from channelhash.search.index import CodeIndex
from channelhash.utils.optional_imports import library
from channelhash.utils.timing import Row, compare

SIZES, LENGTHS = (10**5, 10**6, 10**7), (32, 64, 128)
N_LABELS = 21
FIRSTS = (10, 100)
BATCH = 100

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
    rows = []
    for n in sizes:
        for n_bits in lengths:
            codes = draw_codes(draw_labels(n, N_LABELS, "items"), n_bits, "image")
            queries = draw_codes(draw_labels(batch, N_LABELS, "queries"), n_bits, "text")
            rows += _one_index(codes, queries, n_bits, firsts, faiss, usearch)
    return rows


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
