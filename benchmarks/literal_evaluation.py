"""Evaluation as the equations are written, in NumPy: Boolean codes, a query at a time, one core:
see metrics.py.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]


def evaluate_literally(
    query_bits: Bits, bits: Bits, query_labels: Bits, labels: Bits, cutoffs: tuple[int, ...] = ()
) -> dict[str, float]:
    """Compute the means of a `TaskReport` that have no interval."""
    pairs = zip(query_bits, query_labels, strict=True)
    each = [_one_query(code, own, bits, labels, cutoffs) for code, own in pairs]
    return {name: float(np.mean([query[name] for query in each])) for name in each[0]}


def _one_query(
    code: Bits, own: Bits, codes: Bits, labels: Bits, cutoffs: tuple[int, ...]
) -> dict[str, Any]:
    distances: NDArray[np.int64] = (codes != code).sum(axis=1)
    related = np.asarray((labels & own).any(axis=1))
    radii = range(codes.shape[1] + 1)
    n = np.array([(distances == d).sum() for d in radii])
    n_plus = np.array([((distances == d) & related).sum() for d in radii])
    gains = (labels & own).sum(axis=1) / np.sqrt(np.maximum(1, labels.sum(axis=1) * own.sum()))
    gained = np.array([gains[distances == d].sum() for d in radii])
    discounts = 1 / np.log2(np.arange(2, len(codes) + 2))
    by_rank = related[np.argsort(distances, kind="stable")]
    scores = {
        "map_tie_aware": _tie_aware_average_precision(n, n_plus),
        "map_lower": _average_precision(related[np.lexsort((related, distances))]),
        "map_upper": _average_precision(related[np.lexsort((~related, distances))]),
        "map_in_order": _average_precision(by_rank),
        "ndcg": _expected_dcg(n, n_plus, discounts) / discounts[: related.sum()].sum(),
        "ndcg_graded": _expected_dcg(n, gained, discounts)
        / (np.sort(gains)[::-1] * discounts).sum(),
        "roc_auc_macro": _area(n, n_plus),
        "radius_2_precision": n_plus[:3].sum() / max(1, n[:3].sum()),
        "radius_2_recall": n_plus[:3].sum() / related.sum(),
        "chance": related.mean(),
    }
    for z in cutoffs:
        scores |= {
            f"map_at_{z}": _average_precision(by_rank[:z]),
            f"precision_at_{z}": by_rank[:z].mean(),
        }
    return scores


def _tie_aware_average_precision(n: NDArray[Any], n_plus: NDArray[Any]) -> float:
    N, N_plus = np.cumsum(n), np.cumsum(n_plus)
    total = 0.0
    for d in np.flatnonzero(n):
        t = np.arange(n[d])
        slope = (n_plus[d] - 1) / (n[d] - 1) if n[d] > 1 else 0.0
        inner = (1 + N_plus[d] - n_plus[d] + t * slope) / (1 + t + N[d] - n[d])
        total += n_plus[d] / n[d] * inner.sum()
    return float(total / N_plus[-1])


def _average_precision(by_rank: Bits) -> float:
    precision = np.cumsum(by_rank) / np.arange(1, len(by_rank) + 1)
    return float((precision * by_rank).sum() / max(1, by_rank.sum()))


def _expected_dcg(n: NDArray[Any], gained: NDArray[Any], discounts: NDArray[Any]) -> float:
    ends = np.cumsum(n)
    return float(
        sum(
            gained[d] / n[d] * discounts[ends[d] - n[d] : ends[d]].sum()
            for d in range(len(n))
            if n[d]
        )
    )


def _area(n: NDArray[Any], n_plus: NDArray[Any]) -> float:
    true, false = (
        np.concatenate([[0], np.cumsum(hits)]) / hits.sum() for hits in (n_plus, n - n_plus)
    )
    return float(np.trapezoid(true, false))
