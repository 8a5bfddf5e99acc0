"""Evaluation at the sizes of NUS-WIDE, beside a literal one in NumPy: query by query, radius by
radius, on one core.

The literal evaluation is timed on a few queries; its mAP@z and P@z go by the order of the database.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet, unpack
from channelhash.metrics import average_precisions_in_order, evaluate, hamming_histogram
from literal_evaluation import evaluate_literally
from measure import draw_codes, draw_labels, options, print_rows
from timing import Row, compare

CUTOFFS = (50, 100, 500, 1000, 5000)
MODALITIES = ("image", "text")
BITS, LABELS = 64, 21

Bits = NDArray[np.bool_]


def main() -> None:
    """Print rows of all scores, of counting, and of growing databases with a tenth of the
    queries.
    """
    given = options(
        __doc__, queries=2100, items=193_734, sample=5, sizes=(10**4, 10**5, 10**6, 10**7)
    )
    n, items, sample = given.queries, given.items, given.sample
    rows = [all_scores(n, items, sample)]
    rows += [counting(n, items, k, LABELS, sample) for k in (16, 32, 64, 128, 256)]
    rows += [counting(n, items, BITS, 81, sample), in_order(n, items)]
    print_rows(rows + [counting(max(1, n // 10), size, BITS, LABELS) for size in given.sizes])


def all_scores(queries: int, items: int, sample: int) -> Row:
    """Compare `metrics.evaluate` for four tasks."""
    labels = [draw_labels(n, LABELS, role) for n, role in ((queries, "queries"), (items, "items"))]
    query, database = (
        CodeSet(
            [str(i) for i in range(len(sets))],
            {m: draw_codes(sets, BITS, m) for m in MODALITIES},
            sets,
            BITS,
        )
        for sets in labels
    )
    bits = {m: unpack(database.codes[m], BITS) for m in MODALITIES}
    query_bits = {m: unpack(query.codes[m][:sample], BITS) for m in MODALITIES}

    def literally() -> None:
        for first in MODALITIES:
            for second in MODALITIES:
                evaluate_literally(
                    query_bits[first], bits[second], labels[0][:sample], labels[1], CUTOFFS
                )

    ours, size = (lambda: evaluate(query, database, CUTOFFS)), _size(queries, items, BITS, LABELS)
    return compare(
        "all scores, 4 tasks", size, ours, _literal(sample), literally, part=sample / queries
    )


def counting(queries: int, items: int, k: int, c: int, sample: int = 0) -> Row:
    """Measure counting alone, beside the literal counting of ``sample`` queries, if any."""
    pairs = _draw_pairs(queries, items, k, c)
    codes, items_bits = unpack(pairs[0][:sample], k), unpack(pairs[1], k) if sample else np.empty(0)

    def literally() -> None:
        for code, labels in zip(codes, pairs[2], strict=False):
            distances, related = (items_bits != code).sum(axis=1), (pairs[3] & labels).any(axis=1)
            for d in range(k + 1):
                at = distances == d
                at.sum(), (at & related).sum()

    ours, other = (lambda: hamming_histogram(*pairs, n_bits=k)), literally if sample else None
    part, size = sample / queries if sample else 1.0, _size(queries, items, k, c)
    row = compare("counting, 1 task", size, ours, _literal(sample), other, part=part)
    return _with_rate(row, queries * items)


def in_order(queries: int, items: int) -> Row:
    """Measure the pass that ranks relevant items in database order."""
    pairs = _draw_pairs(queries, items, BITS, LABELS)
    histogram = hamming_histogram(*pairs, n_bits=BITS)
    ours = lambda: average_precisions_in_order(*pairs, histogram)  # noqa: E731
    return _with_rate(
        compare("mAP in database order, 1 task", _size(queries, items, BITS, LABELS), ours),
        queries * items,
    )


def _literal(sample: int) -> str:
    return f"NumPy, 1 core ({sample} queries timed)" if sample else ""


def _with_rate(row: Row, pairs: int) -> Row:
    return {**row, "what": f"{row['what']} ({pairs / row['seconds'] / 1e9:.2f} 10⁹ pairs/s)"}


def _draw_pairs(queries: int, items: int, k: int, c: int) -> tuple[Any, Any, Bits, Bits]:
    first, second = draw_labels(queries, c, "queries"), draw_labels(items, c, "items")
    return draw_codes(first, k, "image"), draw_codes(second, k, "text"), first, second


def _size(queries: int, items: int, k: int, c: int) -> str:
    return f"{queries} queries × {items} items, k = {k}, {c} labels"


if __name__ == "__main__":
    main()
