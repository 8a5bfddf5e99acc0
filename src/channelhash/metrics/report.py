"""All scores of two code sets, for every task."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from channelhash.codes import CodeSet, PackedCodes
from channelhash.codes.foreign_files import read_export
from channelhash.errors import InputError, hide_secrets, naming
from channelhash.metrics.conventions import average_precisions_in_order, convention_scores
from channelhash.metrics.count_distances import CodesAndLabels, RowPairs
from channelhash.metrics.histogram import HammingHistogram, Scores, hamming_histogram
from channelhash.metrics.recall import check_comparable, find_self_pairs, instance_recall
from channelhash.metrics.resampling import bootstrap_interval
from channelhash.utils.addresses import Place
from channelhash.utils.files import write_text
from channelhash.utils.optional_imports import naming_extra

# Enough for a percentile interval (Efron and Tibshirani 1993, chapter 14).
_RESAMPLES = 1000

# z of mAP@z and P@z that the literature prints.
_CUTOFFS = (50, 100, 500, 1000, 5000)


class TaskReport(TypedDict):
    """The scores of one retrieval task, shares in [0, 1]. See `HammingHistogram` for each.

    Attributes:
        map_interval: ``lower`` and ``upper`` end of the 95 % bootstrap interval of
            ``map_tie_aware`` over queries.
        map_in_order: tie-oblivious mAP, ties in the order of the database; None if only the
            histogram is known.
        ndcg_graded: None if the histogram was made without gains.
        roc_auc_micro: None where every item is relevant to every query, as ``roc_auc_macro``.
        roc_auc_micro_every_query: the same with the pairs of the skipped queries.
        roc_auc_macro_queries: queries with relevant and irrelevant items, which the macro area is
            over.
        by_radius: ``precision``, ``recall`` and ``empty`` of the lookup within radius 0 … k, means
            over queries.
        precision_recall_curve: ``precision`` and ``recall`` within radius 0 … k of the queries
            together; precision is None at radii that find nothing.
        queries: number of queries that the means are over.
        skipped: number of queries without a relevant item, which are left out.
        recall_at: K -> share of queries with their own counterpart among the first K items; of
            cross-modal tasks whose queries have one (`instances.instance_recall`), as the next two.
        median_rank: median rank of the counterpart.
        recall_items: number of items that counterparts are searched among.
        codes_in_use: number of distinct codes of the database over its items, where the codes are
            at hand.
        conventions: convention -> what its toolboxes print (`conventions.convention_scores`), where
            asked for.
        own_left_out: number of pairs of a query with itself in the database, which are left out;
            where there are any.

    Without labels, ``recall_at``, the next two, ``queries`` and ``skipped`` are all there is, and
    count counterparts.

    >>> images = np.array([[0], [255]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": images}, np.ones((2, 1)), n_bits=8)
    >>> sorted(evaluate(codes, codes)["image->image"])[:3]
    ['by_radius', 'chance', 'codes_in_use']
    """

    map_tie_aware: float
    map_interval: dict[str, float]
    map_lower: float
    map_upper: float
    map_in_order: float | None
    map_at: dict[str, float]
    precision_at: dict[str, float]
    ndcg: float
    ndcg_graded: float | None
    roc_auc_micro: float | None
    roc_auc_micro_every_query: float | None
    roc_auc_macro: float | None
    roc_auc_macro_queries: int
    radius_2: dict[str, float]
    by_radius: dict[str, list[float]]
    precision_recall_curve: dict[str, list[float | None]]
    chance: float
    queries: int
    skipped: int
    recall_at: NotRequired[dict[str, float]]
    median_rank: NotRequired[float]
    recall_items: NotRequired[int]
    codes_in_use: NotRequired[float]
    conventions: NotRequired[dict[str, dict[str, dict[str, float | None]]]]
    own_left_out: NotRequired[int]


def evaluate(
    query: CodeSet,
    database: CodeSet,
    cutoffs: Sequence[int] = _CUTOFFS,
    conventions: Sequence[str] = (),
) -> dict[str, TaskReport]:
    """Compute every score of every task, keyed by name: ``"image->text"`` searches the texts with
    the images.

    An item is no answer to itself: items with the id of the query are left out of its ranking
    (``own_left_out``).

    Args:
        query: queries; without labels only cross-modal tasks are evaluated, by instance retrieval.
        database: what is searched, with the same labels and code length.
        cutoffs: z of mAP@z and P@z; those past the size of the database are left out.
        conventions: names of conventions, see `metrics.conventions`, to compute their figures too.

    Raises:
        InputError: there is no such convention, or there are no labels that it needs.
        ValueError: code lengths, label names or models differ, there are neither labels nor pairs
            of an image and a text, one id stands for items with different labels, or in some task
            no query has a relevant item.

    >>> images = np.array([[0], [255]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": images}, np.ones((2, 1)), n_bits=8)
    >>> evaluate(codes, codes)["image->image"]["map_tie_aware"]
    1.0
    """
    return _evaluate_tasks(query, database, cutoffs, conventions)[0]


def _evaluate_tasks(
    query: CodeSet,
    database: CodeSet,
    cutoffs: Sequence[int] = _CUTOFFS,
    conventions: Sequence[str] = (),
) -> tuple[dict[str, TaskReport], dict[str, HammingHistogram]]:
    """Evaluate as `evaluate` does, and also return the counts that the scores are made from; none
    without labels.

    Cross-modal tasks come first.
    """
    instances = instance_recall(query, database)
    if query.labels is database.labels is None and instances:
        if conventions:
            raise InputError(
                f"convention {conventions[0]}: its mAP needs labels, which these codes lack; leave "
                "it out"
            )
        return {task: cast(TaskReport, scores) for task, scores in instances.items()}, {}
    pairs = _pairs(query, database)
    self_pairs = find_self_pairs(query, database)
    counts = {task: hamming_histogram(*pairs[task], query.n_bits, self_pairs) for task in pairs}
    reports = report_tasks(counts, len(database), cutoffs, conventions, pairs, self_pairs)
    for task, scores in instances.items():
        for key in ("recall_at", "median_rank", "recall_items"):
            reports[task][key] = scores[key]
    return reports, counts


def count_tasks(query: CodeSet, database: CodeSet) -> dict[str, HammingHistogram]:
    """Count the items of every task; the counts of a database are the sum of those of its parts.

    Raises:
        ValueError: as `evaluate`, but not for queries without relevant items.
    """
    self_pairs = find_self_pairs(query, database)
    pairs = _pairs(query, database)
    return {task: hamming_histogram(*pairs[task], query.n_bits, self_pairs) for task in pairs}


def _pairs(query: CodeSet, database: CodeSet) -> dict[str, CodesAndLabels]:
    """Return task -> codes of queries and database, labels of both; cross-modal tasks come
    first.
    """
    check_comparable(query, database)
    if query.label_names != database.label_names:
        raise ValueError(
            f"query labels are {_listed(query.label_names)}, database labels "
            f"{_listed(database.label_names)}; both sets must be of one collection"
        )
    if query.labels is None or database.labels is None:
        raise ValueError(
            "evaluation needs the labels of queries and database, or an image and a text of each "
            "query"
        )
    tasks = sorted(product(query.codes, database.codes), key=lambda task: task[0] == task[1])
    return {
        f"{a}->{b}": (query.codes[a], database.codes[b], query.labels, database.labels)
        for a, b in tasks
    }


def report_tasks(
    counts: Mapping[str, HammingHistogram],
    n_items: int,
    cutoffs: Sequence[int] = _CUTOFFS,
    conventions: Sequence[str] = (),
    pairs: Mapping[str, CodesAndLabels] | None = None,
    self_pairs: RowPairs | None = None,
) -> dict[str, TaskReport]:
    """Compute the scores of each task from its counts over ``n_items``.

    Args:
        conventions: names of conventions whose figures to add.
        pairs: by task, what was counted; without them no score goes by the order of the items.
        self_pairs: as in `hamming_histogram`.

    Raises:
        ValueError: in some task no query has a relevant item.
    """
    reports = {}
    for task, histogram in counts.items():
        of_task = pairs[task] if pairs else None
        in_order = average_precisions_in_order(*of_task, histogram, self_pairs) if of_task else None
        reports[task] = report(histogram, cutoffs, in_order)
        if of_task:
            reports[task]["codes_in_use"] = _distinct(of_task[1]) / len(of_task[1])
        left_out = n_items * len(histogram.total) - int(histogram.total.sum())
        if left_out:
            reports[task]["own_left_out"] = left_out
        if conventions:
            scores = {
                name: convention_scores(name, histogram, of_task, self_pairs)
                for name in conventions
            }
            reports[task]["conventions"] = scores
    return reports


def report(
    histogram: HammingHistogram, cutoffs: Sequence[int] = (), in_order: Scores | None = None
) -> TaskReport:
    """Compute the scores of one histogram; see `evaluate` for ``cutoffs`` and errors.

    Args:
        in_order: `average_precisions_in_order` of the same queries, if known.

    >>> histogram = HammingHistogram(np.array([[1, 3]]), np.array([[1, 1]]))
    >>> report(histogram, cutoffs=[1])["precision_at"]
    {'1': 1.0}
    """
    lower, upper = histogram.map_bounds()
    largest = histogram.total.sum(axis=1).max(initial=0)
    valid = [z for z in cutoffs if z <= largest]
    # of their mean, which is mAP_T
    interval = bootstrap_interval(histogram.average_precision(), resamples=_RESAMPLES)
    curve = histogram.precision_recall_curve()
    counted = histogram.relevant.sum(axis=1) > 0
    has_both = counted & (histogram.relevant != histogram.total).any(axis=1)
    by_radius = histogram.by_radius()._asdict()
    return {
        "map_tie_aware": interval.mean,
        "map_interval": {"lower": interval.lower, "upper": interval.upper},
        "map_lower": lower,
        "map_upper": upper,
        "map_in_order": None if in_order is None else float(in_order[counted].mean()),
        "map_at": {str(z): histogram.map_at(z) for z in valid},
        "precision_at": {str(z): histogram.precision_at(z) for z in valid},
        "ndcg": histogram.ndcg(),
        "ndcg_graded": None if histogram.gains is None else histogram.ndcg_graded(),
        "roc_auc_micro": _roc_auc(histogram, "micro"),
        "roc_auc_micro_every_query": _roc_auc(histogram, "micro", every_query=True),
        "roc_auc_macro": _roc_auc(histogram, "macro"),
        "roc_auc_macro_queries": int(has_both.sum()),
        "radius_2": histogram.within_radius(2)._asdict(),
        "by_radius": {name: scores.tolist() for name, scores in by_radius.items()},
        "precision_recall_curve": {
            "precision": [None if np.isnan(share) else share for share in curve.precision.tolist()],
            "recall": curve.recall.tolist(),
        },
        "chance": histogram.chance_level(),
        "queries": histogram.counted,
        "skipped": histogram.skipped,
    }


def _distinct(codes: PackedCodes) -> int:
    """Count different codes; each becomes ``bytes`` by one call for all, in a third of the time of
    a call a code.
    """
    return len(set(np.ascontiguousarray(codes).view(f"V{codes.shape[1]}").ravel().tolist()))


def _roc_auc(
    counts: HammingHistogram, average: Literal["micro", "macro"], every_query: bool = False
) -> float | None:
    """Return ROC-AUC, or None where every item is relevant to every query: the other scores are
    defined there.
    """
    all_relevant = (counts.relevant == counts.total).all(axis=1)
    if all_relevant[counts.relevant.sum(axis=1) > 0].all():
        return None
    return counts.roc_auc(average, every_query)


def _listed(names: Sequence[str]) -> str:
    """Return label names for a message: the first few of many."""
    if not names:
        return "unnamed"
    shown = [*names[:5], "…"] if len(names) > 5 else names
    return f"{len(names)} ({', '.join(shown)})"


def evaluate_sets(
    query: CodeSet,
    database: CodeSet,
    where: str,
    cutoffs: Sequence[int] = _CUTOFFS,
    conventions: Sequence[str] = (),
) -> tuple[dict[str, TaskReport], dict[str, HammingHistogram]]:
    """Compute the scores of every task, and the counts that they and the plots are made from.

    Args:
        query: queries; without labels there are no counts.
        database: what is searched.
        where: what was evaluated, for messages.
        cutoffs: z of mAP@z and P@z.
        conventions: as in `metrics.evaluate`.

    Raises:
        InputError: the sets do not fit together, or there is nothing to average; see
            `metrics.evaluate`.
    """
    with naming(where, ValueError):
        return _evaluate_tasks(query, database, cutoffs, conventions)


def evaluate_code_files(
    query: Place, database: Place, out: Path | None, conventions: Sequence[str]
) -> dict[str, Any]:
    """Compute all scores of two Parquet files of codes (`CodeSet.save`, ``channelhash encode``).

    Args:
        query: codes of the queries.
        database: codes of what is searched, likewise.
        out: folder for ``metrics.json`` and ``plots/``; None writes nothing.
        conventions: as in `metrics.evaluate`.

    Returns:
        ``{"n_bits": k, "query": file, "database": file, "tasks": {task: scores}}``.

    Raises:
        InputError: a file cannot be read or is empty, or the two do not fit together.
    """
    sets = {path: CodeSet.load(path) for path in (query, database)}
    for path, codes in sets.items():
        if not len(codes):
            raise InputError(f"{path}: is empty; evaluation takes at least one code")
    tasks, histograms = evaluate_sets(
        sets[query], sets[database], f"{query} and {database}", conventions=conventions
    )
    result = {
        "n_bits": sets[query].n_bits,
        "query": hide_secrets(str(query)),
        "database": hide_secrets(str(database)),
        "tasks": tasks,
    }
    save_scores(result, histograms, out, f"{query.name} → {database.name}")
    return result


def evaluate_export(
    export: Path,
    names: Mapping[str, str],
    task: str | None,
    out: Path | None,
    conventions: Sequence[str],
) -> dict[str, Any]:
    """Compute all scores of another toolbox's export; for the first arguments see
    `foreign_files.read_export`.

    Args:
        out: folder for ``metrics.json`` and ``plots/``; None writes nothing.
        conventions: as in `metrics.evaluate`.

    Returns:
        ``{"n_bits": k, "codes": file, "tasks": {task: scores}}``.

    Raises:
        InputError: as `read_export`, or no query has a relevant item.
    """
    query, database = read_export(export, names, task)
    tasks, histograms = evaluate_sets(query, database, str(export), conventions=conventions)
    result = {"n_bits": query.n_bits, "codes": str(export), "tasks": tasks}
    save_scores(result, histograms, out, export.name)
    return result


def save_scores(
    result: dict[str, Any], histograms: dict[str, HammingHistogram], out: Path | None, title: str
) -> None:
    """Write ``metrics.json`` and ``plots/`` into the folder ``out``; None writes nothing."""
    if out is None:
        return
    write_text(out / "metrics.json", json.dumps(result, indent=2))
    if histograms:
        with naming_extra():
            # matplotlib: nothing else here needs it
            from channelhash.metrics.plots import write_plots
        write_plots(histograms, out / "plots", title)
