"""Scores of rankings by a real-valued similarity: what codes could reach if they were not binary.

The same scores as of Hamming rankings, and the same care with ties: items are tied where their similarities round to
the same multiple of 2⁻²² (duplicates in a collection do, which rounding errors would part), and every score is the
expectation over the orders of ties.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import boolean_labels
from channelhash.metrics import ranking
from channelhash.metrics.ap_at_k import average_precision_at
from channelhash.metrics.graded_relevance import Counts
from channelhash.metrics.ranking import Scores

# Pairs whose similarities are held and sorted at once.
_PAIRS = 1 << 21
# Cosines that are told apart, between 0 and 1.
_STEPS = 1 << 22

Vectors = Mapping[str, NDArray[np.floating[Any]]]


class RankingReport(TypedDict):
    """Scores of one retrieval task as in `report.TaskReport`, those that need no distance in bits.

    >>> vectors, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2) > 0
    >>> evaluate_ranking(vectors, vectors, labels, labels).report["queries"]
    2
    """

    map_tie_aware: float
    map_lower: float
    map_upper: float
    map_at: dict[str, float]
    precision_at: dict[str, float]
    ndcg: float
    roc_auc_micro: None
    roc_auc_macro: float | None
    chance: float
    queries: int
    skipped: int


class RankingEvaluation(NamedTuple):
    """AP_T of each query, ``(nq,)``, NaN without relevant items; and the scores.

    >>> vectors, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2) > 0
    >>> evaluate_ranking(vectors, vectors, labels, labels).average_precision.tolist()
    [1.0, 1.0]
    """

    average_precision: Scores
    report: RankingReport


def evaluate_cosines(
    query: Vectors,
    database: Vectors,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    cutoffs: Sequence[int] = (),
) -> dict[str, RankingEvaluation]:
    """Evaluate every task of rankings by cosine, cross-modal ones first.

    Args:
        query: modality -> ``(nq, d)``; all modalities in one space.
        database: modality -> ``(nd, d)``.
        query_labels: ``(nq, c)`` bool or 0/1.
        database_labels: ``(nd, c)`` bool or 0/1.
        cutoffs: z of mAP@z and P@z; those past the size of the database are left out.

    Raises:
        ValueError: no query has a relevant item.

    >>> vectors, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2) > 0
    >>> list(evaluate_cosines({"image": vectors}, {"text": vectors, "image": vectors}, labels, labels))
    ['image->text', 'image->image']
    """
    tasks = sorted(((a, b) for a in query for b in database), key=lambda task: task[0] == task[1])
    return {
        f"{query_modality}->{database_modality}": evaluate_ranking(
            query[query_modality], database[database_modality], query_labels, database_labels, cutoffs
        )
        for query_modality, database_modality in tasks
    }


def evaluate_ranking(
    query: NDArray[np.floating[Any]],
    database: NDArray[np.floating[Any]],
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    cutoffs: Sequence[int] = (),
) -> RankingEvaluation:
    """Compute the scores of one task, in memory that does not grow with the queries; otherwise as `evaluate_cosines`.

    >>> vectors, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2) > 0
    >>> evaluate_ranking(vectors, vectors, labels, labels).report["map_tie_aware"]
    1.0
    """
    queries, items = (unit_rows(values) for values in (query, database))
    return evaluate_similarities(
        lambda rows: rounded_cosines(queries[rows], items), query_labels, database_labels, cutoffs
    )


def evaluate_similarities(
    similarities: Callable[[slice], NDArray[np.integer[Any]]],
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    cutoffs: Sequence[int] = (),
) -> RankingEvaluation:
    """Compute the scores of one task from any similarity; otherwise as `evaluate_ranking`.

    Args:
        similarities: gives those of a slice of the queries to all items, the largest first; tied where they are equal.
        query_labels: ``(nq, c)`` bool or 0/1.
        database_labels: ``(nd, c)`` bool or 0/1.
        cutoffs: see `evaluate_cosines`.

    >>> values = np.array([[7, 3], [3, 7]])
    >>> evaluate_similarities(lambda rows: values[rows], np.eye(2), np.eye(2)).report["map_tie_aware"]
    1.0
    """
    query_sets, database_sets = boolean_labels(query_labels), boolean_labels(database_labels)
    kept = [z for z in cutoffs if z <= len(database_sets)]
    scores_of_blocks: dict[str, list[Scores]] = {}
    rows = max(1, _PAIRS // len(database_sets))
    for start in range(0, len(query_sets), rows):
        block = slice(start, start + rows)
        relevant = query_sets[block].astype(np.float32) @ database_sets.T.astype(np.float32) > 0
        for name, values in _scores(*tie_groups(similarities(block), relevant), kept).items():
            scores_of_blocks.setdefault(name, []).append(values)
    each = {name: np.concatenate(parts) for name, parts in scores_of_blocks.items()}
    counted = ~np.isnan(each["average"])
    if not counted.any():
        raise ValueError(f"none of the {len(query_sets)} queries has a relevant item: there is nothing to average")

    def mean(name: str) -> float:
        return float(each[name][counted].mean())

    macro = each["roc_auc"][counted]
    return RankingEvaluation(
        each["average"],
        {
            "map_tie_aware": mean("average"),
            "map_lower": mean("lower"),
            "map_upper": mean("upper"),
            "map_at": {str(z): mean(f"map@{z}") for z in kept},
            "precision_at": {str(z): mean(f"precision@{z}") for z in kept},
            "ndcg": mean("ndcg"),
            "roc_auc_micro": None,  # of a threshold that all queries share
            "roc_auc_macro": None if np.isnan(macro).all() else float(np.nanmean(macro)),
            "chance": mean("chance"),
            "queries": int(counted.sum()),
            "skipped": int((~counted).sum()),
        },
    )


def tie_groups(similarities: NDArray[np.integer[Any]], relevant: NDArray[np.bool_]) -> tuple[Counts, Counts]:
    """Count all and the relevant items in each group of equal similarity, the most similar first.

    Args:
        similarities: ``(nq, nd)``.
        relevant: ``(nq, nd)``.

    Returns:
        Two ``(nq, groups)`` int64, as histograms of distances are; zeros after a query's last group.

    >>> total, relevant = tie_groups(np.array([[3, 7, 7]], np.int32), np.array([[True, True, False]]))
    >>> total.tolist(), relevant.tolist()
    ([[2, 1]], [[1, 1]])
    """
    nq, nd = similarities.shape
    order = np.argsort(-similarities, axis=1)
    ranked = np.take_along_axis(similarities, order, axis=1)
    group = np.zeros((nq, nd), dtype=np.int64)
    np.cumsum(ranked[:, 1:] != ranked[:, :-1], axis=1, out=group[:, 1:])
    width = int(group.max(initial=-1)) + 1
    place = (group + width * np.arange(nq)[:, None]).ravel()
    is_relevant = np.take_along_axis(relevant, order, axis=1).ravel()
    total = np.bincount(place, minlength=nq * width).reshape(nq, width)
    return total, np.bincount(place[is_relevant], minlength=nq * width).reshape(nq, width)


def _scores(total: Counts, relevant: Counts, cutoffs: Sequence[int]) -> dict[str, Scores]:
    lower, upper = ranking.average_precision_bounds(total, relevant)
    scores = {
        "average": ranking.average_precision(total, relevant),
        "lower": lower,
        "upper": upper,
        "ndcg": ranking.ndcg(total, relevant),
        "roc_auc": ranking.roc_auc_each(total, relevant),
        "chance": relevant.sum(axis=1) / total.sum(axis=1),
    }
    for z in cutoffs:
        scores[f"map@{z}"] = average_precision_at(total, relevant, z)
        scores[f"precision@{z}"] = ranking.precision_at(total, relevant, z)
    return scores


def unit_rows(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return rows of length 1; zero rows stay, at cosine 0 to everything.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1)
    return unit


def rounded_cosines(query: NDArray[np.float64], database: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cosines of `unit_rows` as multiples of 2⁻²², ``(nq, nd)``: what is equal is tied.

    >>> rounded_cosines(np.array([[1.0, 0.0]]), np.array([[0.6, 0.8]])).tolist()
    [[2516582]]
    """
    return np.rint((query @ database.T) * _STEPS).astype(np.int32)
