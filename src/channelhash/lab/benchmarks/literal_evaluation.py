"""Evaluation as the equations are written, in NumPy: Boolean codes, one query at a time, one core.

The alternative that `benchmark metrics` measures, and its check: both give the same scores.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]


def evaluate_literally(
    query_bits: Bits, database_bits: Bits, query_labels: Bits, database_labels: Bits, cutoffs: tuple[int, ...] = ()
) -> dict[str, float]:
    """Compute the means of a `TaskReport` that have no interval.

    mAP@z and P@z go by the order of the database and are no expectations over ties: the literal form of those sums over
    every number of relevant items that the cut may take, which would be slower still.

    Args:
        query_bits: ``(nq, k)`` bool, queries with a relevant item each.
        database_bits: ``(nd, k)`` bool.
        query_labels: ``(nq, c)`` bool.
        database_labels: ``(nd, c)`` bool.
        cutoffs: values of z.

    >>> near, far = np.array([[True, True]]), np.array([[False, False]])
    >>> evaluate_literally(near, np.vstack([far, near]), near[:, :1], np.array([[False], [True]]))["map_tie_aware"]
    1.0
    """
    each = [
        _one_query(code, labels, database_bits, database_labels, cutoffs)
        for code, labels in zip(query_bits, query_labels, strict=True)
    ]
    scores, counts = zip(*each, strict=True)
    n, n_plus = np.sum(counts, axis=0)
    means = {name: float(np.mean([query[name] for query in scores])) for name in scores[0]}
    return means | {"roc_auc_micro": _area(n, n_plus), "recall_within_2": float(np.cumsum(n_plus)[2] / n_plus.sum())}


def _one_query(
    code: Bits, labels: Bits, codes: Bits, label_sets: Bits, cutoffs: tuple[int, ...]
) -> tuple[dict[str, float], NDArray[Any]]:
    """Compute the scores of one query, and its n_d and n_d⁺ ``(2, k + 1)``."""
    distances: NDArray[np.int64] = (codes != code).sum(axis=1)
    related = np.asarray((label_sets & labels).any(axis=1))
    radii = range(codes.shape[1] + 1)
    n = np.array([(distances == d).sum() for d in radii])
    n_plus = np.array([((distances == d) & related).sum() for d in radii])
    gains = (label_sets & labels).sum(axis=1) / np.sqrt(np.maximum(1, label_sets.sum(axis=1) * labels.sum()))
    discounts = 1 / np.log2(np.arange(2, len(codes) + 2))
    by_rank = related[np.argsort(distances, kind="stable")]
    retrieved, correct = n[:3].sum(), n_plus[:3].sum()
    scores = {
        "map_tie_aware": _tie_aware_average_precision(n, n_plus),
        "map_lower": _average_precision(related[np.lexsort((related, distances))]),
        "map_upper": _average_precision(related[np.lexsort((~related, distances))]),
        "map_in_order": _average_precision(by_rank),
        "ndcg": _expected_dcg(n, n_plus, discounts) / discounts[: related.sum()].sum(),
        "ndcg_graded": _expected_dcg(n, np.array([gains[distances == d].sum() for d in radii]), discounts)
        / (np.sort(gains)[::-1] * discounts).sum(),
        "roc_auc_macro": _area(n, n_plus),
        "radius_2_precision": correct / retrieved if retrieved else 0.0,
        "radius_2_recall": correct / related.sum(),
        "chance": related.mean(),
    }
    for z in cutoffs:
        scores[f"map_at_{z}"] = _average_precision(by_rank[:z])
        scores[f"precision_at_{z}"] = by_rank[:z].mean()
    return scores, np.stack([n, n_plus])


def _tie_aware_average_precision(n: NDArray[Any], n_plus: NDArray[Any]) -> float:
    """Compute eq. (tmap:ap)."""
    N, N_plus = np.cumsum(n), np.cumsum(n_plus)
    total = 0.0
    for d in np.flatnonzero(n):
        t = np.arange(n[d])
        slope = (n_plus[d] - 1) / (n[d] - 1) if n[d] > 1 else 0.0
        inner = (1 + N_plus[d] - n_plus[d] + t * slope) / (1 + t + N[d] - n[d])
        total += n_plus[d] / n[d] * inner.sum()
    return float(total / N_plus[-1])


def _average_precision(by_rank: Bits) -> float:
    """Compute eq. (lit:ap)."""
    precision = np.cumsum(by_rank) / np.arange(1, len(by_rank) + 1)
    return float((precision * by_rank).sum() / max(1, by_rank.sum()))


def _expected_dcg(n: NDArray[Any], gained: NDArray[Any], discounts: NDArray[Any]) -> float:
    """Compute the expected DCG: items at one distance share its ranks."""
    ends = np.cumsum(n)
    return float(sum(gained[d] / n[d] * discounts[ends[d] - n[d] : ends[d]].sum() for d in range(len(n)) if n[d]))


def _area(n: NDArray[Any], n_plus: NDArray[Any]) -> float:
    """Compute ROC-AUC by the trapezoid over radii."""
    true, false = (np.concatenate([[0], np.cumsum(hits)]) / hits.sum() for hits in (n_plus, n - n_plus))
    return float(np.trapezoid(true, false))
