"""Scores of ranked answers against exact neighbours, or against people's judgements."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

_Scores = NDArray[np.float64]
_Rows = NDArray[np.int64]


def neighbour_recall(found: _Rows, exact: _Rows) -> _Scores:
    """Return for each question the share of its exact neighbours that were found.

    Args:
        found: ``(nq, k)`` rows of the answers.
        exact: ``(nq, k')`` rows of the exact neighbours.

    >>> neighbour_recall(np.array([[3, 1]]), np.array([[1, 2]])).tolist()
    [0.5]
    """
    hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
    return np.asarray(hits.mean(axis=1))


def ndcg_at_k(answers: Sequence[str], grades: Mapping[str, float], k: int = 10) -> float:
    """Return the normalised discounted cumulative gain of one question's answers.

    nDCG@k = Σ_{r ≤ k} g_r / log₂(r + 1), divided by the largest possible (Järvelin and Kekäläinen,
    ACM TOIS 2002), with the grade itself as the gain, as ``trec_eval`` has it.

    Args:
        answers: ids, best first.
        grades: id -> grade of relevance; items that were not judged have 0.
        k: number of answers that count.

    >>> round(ndcg_at_k(["a", "b", "c"], {"a": 1, "c": 1}), 4)
    0.9197
    """
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gains = np.array([grades.get(name, 0.0) for name in answers[:k]])
    best = np.sort(np.array(list(grades.values()), np.float64))[::-1][:k]
    ideal = float(best @ discounts[: len(best)])
    return float(gains @ discounts[: len(gains)]) / ideal if ideal > 0 else float("nan")


def recall_of_relevant(answers: Sequence[str], grades: Mapping[str, float], k: int = 100) -> float:
    """Return the share of the relevant items that are among the first ``k`` answers.

    >>> recall_of_relevant(["a", "b"], {"a": 1, "c": 1})
    0.5
    """
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant.intersection(answers[:k])) / len(relevant) if relevant else float("nan")
