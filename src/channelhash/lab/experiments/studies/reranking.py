"""``experiment reranking``: what re-ranking by asymmetric distance adds to the mAP of Hamming distance.

The codes are those of a loss without quantisation term and of one with it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.codes.code_set import CodeSet
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Experiment, Result, Table
from channelhash.lab.experiments.results import measured
from channelhash.lab.experiments.tables.rendering import Cell
from channelhash.lab.experiments.tables.results import difference_cell, print_spread, spread
from channelhash.metrics import ranking
from channelhash.runs.evaluate import query_outputs, run_codes
from channelhash.search.rerank import asymmetric_distances
from channelhash.utils.plotting import arrow

#: How many of the first matches are ranked again; None is all of them.
DEPTHS: tuple[int | None, ...] = (100, 1000, None)


def average_precisions(
    outputs: NDArray[np.floating[Any]],
    query: PackedCodes,
    database: PackedCodes,
    relevant: NDArray[np.bool_],
    depths: Sequence[int | None] = DEPTHS,
) -> NDArray[np.float64]:
    """Return the tie-aware AP of one query: by Hamming distance, and with its first N matches re-ranked, for each N.

    Ties stay ties: items of one code are at one asymmetric distance too, and items behind the first N at one Hamming
    distance, so AP is its expectation over their orders (`ranking.average_precision`). Only where the cut at N falls
    into a group of equal Hamming distance does the order of the database decide, as it does in a search.

    Args:
        outputs: ``(k,)`` of the query.
        query: ``(1, b)`` its packed code.
        database: ``(nd, b)`` packed codes in the order of their ids.
        relevant: ``(nd,)`` which of them are relevant, at least one.
        depths: each N; None is all.

    Returns:
        ``(1 + len(depths),)`` in [0, 1].

    >>> from channelhash.codes import binarize, pack
    >>> outputs, database = np.array([0.9, 0.1, -0.5, -0.5]), pack(np.eye(2, 4, dtype=bool))
    >>> average_precisions(outputs, pack(binarize(outputs[None])), database, np.array([True, False]), [None]).tolist()
    [0.75, 1.0]
    """
    hamming = hamming_distances(query, database)[0].astype(np.int16)  # sixteen bits are sorted by radix
    order = np.argsort(hamming, kind="stable")
    hamming, related = hamming[order], relevant[order]
    asymmetric = asymmetric_distances(outputs, database[order])
    scores = [_group_ap(_changes(hamming), related)]
    for depth in depths:
        first = len(order) if depth is None else min(depth, len(order))
        head = np.argsort(asymmetric[:first], kind="stable")  # ties stay in their order by Hamming distance
        ranked = np.concatenate([head, np.arange(first, len(order))])
        new_group = np.concatenate([_changes(hamming[head]) | _changes(asymmetric[head]), _changes(hamming[first:])])
        scores.append(_group_ap(new_group, related[ranked]))
    return np.array(scores)


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a value differs from the one before it; the first does."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=bool), values[1:] != values[:-1]])


def _group_ap(begins: NDArray[np.bool_], relevant: NDArray[np.bool_]) -> float:
    starts = np.flatnonzero(begins)
    total = np.diff([*starts, len(relevant)])
    hits = np.add.reduceat(relevant.astype(np.int64), starts)
    return float(ranking.average_precision(total[None], hits[None])[0])


def reranked_scores(folder: Path) -> dict[str, list[float]]:
    """Return task -> mAP by Hamming distance and with the first N re-ranked, N of `DEPTHS`, on a run's test split."""
    codes, outputs = run_codes(folder), query_outputs(folder)
    by_id = np.argsort(np.asarray(codes.retrieval.ids, dtype=str), kind="stable")
    query, database = codes.query, codes.retrieval.take(by_id)
    tasks = sorted(product(query.codes, database.codes), key=lambda task: task[0] == task[1])  # cross-modal first
    return {f"{asking}->{searched}": _means(outputs, query, asking, database, searched) for asking, searched in tasks}


def _means(
    outputs: Mapping[str, NDArray[np.floating[Any]]], query: CodeSet, asking: str, database: CodeSet, searched: str
) -> list[float]:
    """Return the mean of `average_precisions` over the queries that have a relevant item."""
    assert query.labels is not None  # a run's codes have them
    assert database.labels is not None
    items, rows = database.codes[searched], []
    for row, labels in enumerate(query.labels):
        relevant = (database.labels & labels).any(axis=1)
        if relevant.any():
            rows.append(average_precisions(outputs[asking][row], query.codes[asking][row : row + 1], items, relevant))
    means: list[float] = np.mean(rows, axis=0).tolist()
    return means


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP by Hamming distance and what re-ranking adds: a block a method and code length, a row a task."""
    rows = []
    cells = dict.fromkeys((result.method, result.n_bits) for result in results)
    for method, n_bits in cells:
        runs = [r for r in results if (r.method, r.n_bits, r.status) == (method, n_bits, "finished")]
        scores = [measured(run, "reranking", partial(reranked_scores, run.folder)) for run in runs]
        for task in scores[0] if scores else ():
            shares = np.array([by_task[task] for by_task in scores])  # (seeds, 1 + depths)
            gains = 100 * (shares[:, 1:] - shares[:, :1])
            plain = Cell(print_spread(spread(shares[:, 0].tolist())))
            rows.append((Cell(f"{method}, k = {n_bits}"), Cell(arrow(task)), plain, *map(difference_cell, gains.T)))
    seeds = sorted({result.seed for result in results})
    names = ("all" if depth is None else f"first {depth}" for depth in DEPTHS)
    return [
        Table(
            "reranking",
            "Re-ranking by asymmetric distance: tie-aware mAP in percent, and its gain in points",
            ("Method", "Task", "Hamming", *names),
            tuple(rows),
            f"Whole ranking of R, last epoch, {len(seeds)} seeds: mean ± sample standard deviation; "
            "gain over Hamming, paired by seed, with Student's 95 % interval over seeds, bold where it leaves zero out "
            "(not corrected for the number of cells). Ties of either distance count in expectation.",
        )
    ]


EXPERIMENT = Experiment(
    name="reranking",
    title="Re-ranking by asymmetric distance",
    losses={method: METHODS[method] for method in ("SCH", "DSCH")},
    bits=(16, 32, 64),
    tables=_tables,
)
