"""All figures of two code sets, for every task."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from channelhash.codeset import CodeSet
from channelhash.metrics.histogram import HammingHistogram, hamming_histogram


class TaskReport(TypedDict):
    """The figures of one retrieval task, shares in [0, 1]. See `HammingHistogram` for each. ROC-AUC is None where every
    item is relevant to every query."""

    map_tie_aware: float
    map_lower: float
    map_upper: float
    map_at: dict[str, float]
    precision_at: dict[str, float]
    ndcg: float
    roc_auc_micro: float | None
    roc_auc_macro: float | None
    radius_2: dict[str, float]
    chance: float
    queries: int
    skipped: int


def evaluate(
    query: CodeSet, database: CodeSet, cutoffs: Sequence[int] = (50, 100, 500, 1000, 5000)
) -> dict[str, TaskReport]:
    """Every figure of every task, keyed by name: ``"image->text"`` searches the texts with the images.

    Args:
        query: queries with labels.
        database: what is searched, with the same labels and code length.
        cutoffs: z of mAP@z and P@z; those past the size of the database are left out.

    Raises:
        ValueError: code lengths, label names or models differ, labels are missing, or in some task no query has a
            relevant item.
    """
    if query.n_bits != database.n_bits:
        raise ValueError(f"query codes have {query.n_bits} bits, database codes {database.n_bits}")
    if query.label_names != database.label_names:
        raise ValueError(
            f"query labels are {_listed(query.label_names)}, database labels {_listed(database.label_names)}; "
            "both sets must be of one collection"
        )
    if query.model != database.model and query.model and database.model:
        raise ValueError("query and database codes were made by different models; their distances mean nothing")
    if query.labels is None or database.labels is None:
        raise ValueError("evaluation needs the labels of queries and database")
    tasks = [(asked, searched) for asked in query.codes for searched in database.codes]
    tasks.sort(key=lambda task: task[0] == task[1])  # cross-modal tasks are read first
    return {
        f"{asked}->{searched}": report(
            hamming_histogram(
                query.codes[asked], database.codes[searched], query.labels, database.labels, n_bits=query.n_bits
            ),
            cutoffs,
        )
        for asked, searched in tasks
    }


def report(histogram: HammingHistogram, cutoffs: Sequence[int] = ()) -> TaskReport:
    """The figures of one histogram; see `evaluate` for ``cutoffs`` and errors."""
    lower, upper = histogram.map_bounds()
    kept = [z for z in cutoffs if z <= histogram.total.sum(axis=1).max(initial=0)]
    return {
        "map_tie_aware": histogram.mean_average_precision(),
        "map_lower": lower,
        "map_upper": upper,
        "map_at": {str(z): histogram.map_at(z) for z in kept},
        "precision_at": {str(z): histogram.precision_at(z) for z in kept},
        "ndcg": histogram.ndcg(),
        "roc_auc_micro": _roc_auc(histogram, "micro"),
        "roc_auc_macro": _roc_auc(histogram, "macro"),
        "radius_2": histogram.within_radius(2)._asdict(),
        "chance": histogram.chance_level(),
        "queries": histogram.counted,
        "skipped": histogram.skipped,
    }


def _roc_auc(histogram: HammingHistogram, average: Literal["micro", "macro"]) -> float | None:
    """ROC-AUC, or None where every item is relevant to every query: the other figures are defined there."""
    everything = (histogram.relevant == histogram.total).all(axis=1)
    return None if everything[histogram.relevant.sum(axis=1) > 0].all() else histogram.roc_auc(average)


def _listed(names: Sequence[str]) -> str:
    """Label names for a message: the first few of many."""
    return f"{len(names)} ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else "unnamed"
