"""Speed and memory of the evaluation, beside a literal one in NumPy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, pack, unpack
from channelhash.codes.code_set import CodeSet
from channelhash.lab.benchmarks.literal_evaluation import evaluate_literally
from channelhash.metrics import average_precisions_in_order, evaluate, hamming_histogram
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare

#: NUS-WIDE as it is used: test queries and retrieval set (``protocol.md`` § 1).
QUERIES, ITEMS = 2100, 193_734
CUTOFFS = (50, 100, 500, 1000, 5000)
MODALITIES = ("image", "text")

Labels = NDArray[np.bool_]

# Rows of codes that are drawn at once.
_ROWS = 100_000


def benchmark_metrics(
    queries: int = QUERIES,
    items: int = ITEMS,
    sample: int = 5,
    sizes: Sequence[int] = (10**4, 10**5, 10**6, 10**7),
) -> list[Row]:
    """Measure all scores of all tasks, counting at several code lengths and numbers of labels, the pass in database
    order, and counting in growing databases.

    Args:
        queries: number of queries.
        items: number of items.
        sample: queries that the literal evaluation is timed on; its time is scaled to all.
        sizes: numbers of items of the growing databases, for a tenth of the queries.

    Returns:
        ``what`` of the counting rows says pairs a second.
    """
    rows = [_all_scores(queries, items, sample)]
    rows += [_counting(queries, items, k, 21, sample) for k in (16, 32, 64, 128, 256)]
    rows.append(_counting(queries, items, 64, 81, sample))
    rows.append(_in_order(queries, items))
    rows += [_counting(max(1, queries // 10), n, 64, 21) for n in sizes]
    return rows


def _all_scores(queries: int, items: int, sample: int) -> Row:
    k, c = 64, 21
    labels = [draw_labels(n, c, role) for n, role in ((queries, "queries"), (items, "items"))]
    query, database = (
        CodeSet([str(i) for i in range(len(sets))], {m: draw_codes(sets, k, m) for m in MODALITIES}, sets, k)
        for sets in labels
    )
    bits = {m: unpack(database.codes[m], k) for m in MODALITIES}
    query_bits = {m: unpack(query.codes[m][:sample], k) for m in MODALITIES}

    def literally() -> None:
        for first in MODALITIES:
            for second in MODALITIES:
                evaluate_literally(query_bits[first], bits[second], labels[0][:sample], labels[1], CUTOFFS)

    return compare(
        "all figures, 4 tasks",
        _size(queries, items, k, c),
        lambda: evaluate(query, database, CUTOFFS),
        f"NumPy, query by query, 1 core ({sample} queries timed)",
        literally,
        part=sample / queries,
    )


def _counting(queries: int, items: int, k: int, c: int, sample: int = 0) -> Row:
    """Measure counting alone, beside the literal counting of ``sample`` queries, if any."""
    pairs = _draw_pairs(queries, items, k, c)
    bits = (unpack(pairs[0][:sample], k), unpack(pairs[1], k)) if sample else None

    def literally() -> None:
        assert bits is not None
        for code, labels in zip(bits[0], pairs[2], strict=False):
            distances, related = (bits[1] != code).sum(axis=1), (pairs[3] & labels).any(axis=1)
            for d in range(k + 1):
                at = distances == d
                at.sum(), (at & related).sum()

    row = compare(
        "counting, 1 task",
        _size(queries, items, k, c),
        lambda: hamming_histogram(*pairs, n_bits=k),
        f"NumPy, query by query, 1 core ({sample} queries timed)" if sample else "",
        literally if sample else None,
        part=sample / queries if sample else 1.0,
    )
    return _with_rate(row, queries * items)


def _in_order(queries: int, items: int) -> Row:
    k, c = 64, 21
    pairs = _draw_pairs(queries, items, k, c)
    histogram = hamming_histogram(*pairs, n_bits=k)
    row = compare(
        "mAP in database order, 1 task",
        _size(queries, items, k, c),
        lambda: average_precisions_in_order(*pairs, histogram),
    )
    return _with_rate(row, queries * items)


def _with_rate(row: Row, pairs: int) -> Row:
    return {**row, "what": f"{row['what']} ({pairs / row['seconds'] / 1e9:.2f} 10⁹ pairs/s)"}


def _draw_pairs(queries: int, items: int, k: int, c: int) -> tuple[PackedCodes, PackedCodes, Labels, Labels]:
    """Draw codes of image queries and text items, and the labels of both."""
    query_labels, item_labels = draw_labels(queries, c, "queries"), draw_labels(items, c, "items")
    return draw_codes(query_labels, k, "image"), draw_codes(item_labels, k, "text"), query_labels, item_labels


def draw_labels(n: int, c: int, role: str) -> Labels:
    """Draw label sets as a photo collection has them: a few frequent labels and many rare ones, about two an item.

    >>> draw_labels(3, 21, "items").shape
    (3, 21)
    """
    random = generator(0, "benchmark labels", role, n, c)
    chances = 0.4 / np.arange(1, c + 1) ** 0.8
    labels = np.concatenate([random.random((min(_ROWS, n - i), c)) < chances for i in range(0, n, _ROWS)])
    bare = ~labels.any(axis=1)
    labels[bare, random.integers(0, c, int(bare.sum()))] = True
    return labels


def draw_codes(labels: Labels, k: int, modality: str, flipped: float = 0.15) -> PackedCodes:
    """Draw codes clustered by label set, as a trained model's are: the signs of the sum of an item's label directions,
    with a share of the bits flipped.

    >>> draw_codes(draw_labels(3, 21, "items"), 64, "image").shape
    (3, 8)
    """
    directions = generator(0, "benchmark directions", k, labels.shape[1]).normal(size=(labels.shape[1], k))
    random = generator(0, "benchmark flips", modality, len(labels), k)
    parts = []
    for start in range(0, len(labels), _ROWS):
        signs = labels[start : start + _ROWS].astype(np.float32) @ directions.astype(np.float32) >= 0
        parts.append(pack(signs ^ (random.random(signs.shape, dtype=np.float32) < flipped)))
    return np.concatenate(parts)


def _size(queries: int, items: int, k: int, c: int) -> str:
    return f"{queries} queries × {items} items, k = {k}, {c} labels"
