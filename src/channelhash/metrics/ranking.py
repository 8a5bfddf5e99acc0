"""Scores of a ranking by Hamming distance, in closed form over the histograms of distances.

Everywhere ``total[q, d]`` is n_d, the number of database items at distance d from query q, and ``relevant[q, d]`` is
n_d⁺, how many of them are relevant; both ``(nq, k + 1)`` int64. Items at one distance are tied: no order of them
means more than another, so each score is either its expectation over all orders of ties or a bound over them.
All functions are vectorised over queries and cost O(nq · k), whatever the size of the database.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.metrics.count_distances import Counts, LabelGains
from channelhash.utils.compiled import njit

Scores = NDArray[np.float64]

# Ranks whose discounts are held at once.
_RANKS = 1 << 20
# Below this size harmonic numbers come from a table, above from their expansion, exact to double precision there.
_TABLE = 64
_HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _TABLE + 1))])


def _harmonic_difference(start: NDArray[np.integer], count: NDArray[np.integer]) -> NDArray[np.float64]:
    """Compute H_{N+n} − H_N = Σ_{t=1…n} 1 / (N + t), to double precision relative to the difference itself.

    Up to 64 from a table; beyond, H_x = ln y + γ + 1/(24 y²) − 7/(960 y⁴) + 31/(8064 y⁶) − … with y = x + ½, whose
    logarithms are subtracted as log1p(n / y): the closed forms below take n − (N + 1)(H_{N+n} − H_N), which would
    lose its digits for a small group far down the ranking.

    Args:
        start: N >= 0.
        count: n >= 0, shaped like ``start``.

    >>> _harmonic_difference(np.array([0, 1]), np.array([2, 1])).tolist()
    [1.5, 0.5]
    """
    first, last = np.asarray(start, dtype=np.int64), np.asarray(start, dtype=np.int64) + count
    small = _HARMONIC[np.minimum(last, _TABLE)] - _HARMONIC[np.minimum(first, _TABLE)]
    low, high = np.maximum(first, _TABLE) + 0.5, np.maximum(last, _TABLE) + 0.5
    result: NDArray[np.float64] = small + np.log1p((high - low) / low) + (_correction(high) - _correction(low))
    return result


def _correction(y: NDArray[np.float64]) -> NDArray[np.float64]:
    square = 1 / (y * y)
    value: NDArray[np.float64] = square * (1 / 24 - square * (7 / 960 - square * 31 / 8064))
    return value


def _before(total: Counts, relevant: Counts) -> tuple[Counts, Counts]:
    """Return the cumulated counts before each distance: N_{d−1} and N⁺_{d−1}."""
    return np.cumsum(total, axis=1) - total, np.cumsum(relevant, axis=1) - relevant


def divide(numerator: NDArray[np.number], denominator: NDArray[np.number], empty: float) -> NDArray[np.float64]:
    """Divide, with ``empty`` where the denominator is 0.

    >>> divide(np.array([1, 1]), np.array([2, 0]), empty=0.0).tolist()
    [0.5, 0.0]
    """
    out = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), empty, dtype=np.float64)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def average_precision(total: Counts, relevant: Counts) -> Scores:
    """Compute the tie-aware average precision AP_T, eq. (tmap:ap): the expectation of AP over all orders of ties.

    A group of n items, r of them relevant, behind N items of which R are relevant, adds
    r/n · Σ_{t<n} (1 + R + t (r−1)/(n−1)) / (1 + t + N)
    = r/n · [(1 + R) · H + (r−1)/(n−1) · (n − (N + 1) H)] with H = H_{N+n} − H_N.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items.

    >>> average_precision(np.array([[2, 2]]), np.array([[1, 1]])).round(3).tolist()
    [0.667]
    """
    before, relevant_before = _before(total, relevant)
    harmonic = _harmonic_difference(before, total)
    slope = divide(relevant - 1, total - 1, 0.0)
    spread = total - (before + 1) * harmonic
    groups = divide(relevant, total, 0.0) * ((1 + relevant_before) * harmonic + slope * spread)
    return divide(groups.sum(axis=1), relevant.sum(axis=1), np.nan)


def average_precision_bounds(total: Counts, relevant: Counts, first: int | None = None) -> tuple[Scores, Scores]:
    """Compute the smallest and the largest AP over all orders of ties: relevant items last, or first, at each distance.

    r relevant items in a row behind N items of which R are relevant add Σ_{t=1…r} (R + t) / (N + t)
    = r + (R − N) · (H_{N+r} − H_N).

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise.
        first: count only so many relevant items of each query, the first ones.

    Returns:
        (lower, upper), each ``(nq,)``; NaN for a query without relevant items.

    >>> lower, upper = average_precision_bounds(np.array([[2, 2]]), np.array([[1, 1]]))
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.5], [0.833])
    """
    before, relevant_before = _before(total, relevant)
    counted = relevant if first is None else np.clip(first - relevant_before, 0, relevant)
    positives = counted.sum(axis=1)
    bounds = []
    for start in (before + total - relevant, before):
        row = counted + (relevant_before - start) * _harmonic_difference(start, counted)
        bounds.append(divide(row.sum(axis=1), positives, np.nan))
    return bounds[0], bounds[1]


def average_precision_in_order(distances: NDArray[np.integer], relevant: NDArray[np.bool_]) -> float:
    """Compute the tie-oblivious AP of one query, eq. (lit:ap) without a cut-off: tied items keep their order.

    The one score that histograms cannot give: it depends on that order, and moves between the bounds of
    `average_precision_bounds` with it. Costs a sort of the database; `average_precisions_in_order` does without.

    Args:
        distances: ``(nd,)`` distance of each item.
        relevant: ``(nd,)`` bool, whether the item is relevant.

    Returns:
        A score in [0, 1]; NaN if nothing is relevant.

    >>> round(average_precision_in_order(np.array([0, 0, 1]), np.array([False, True, True])), 3)
    0.583
    """
    ranks = np.flatnonzero(np.asarray(relevant)[np.argsort(distances, kind="stable")]) + 1
    return float((np.arange(1, len(ranks) + 1) / ranks).mean()) if len(ranks) else float("nan")


def precision_at(total: Counts, relevant: Counts, z: int) -> Scores:
    """Compute P@z in expectation over the orders of ties: the cut group gives its share of relevant items.

    Args:
        z: cut-off >= 1; more than the database has items means all of them.

    Returns:
        ``(nq,)`` in [0, 1]. A query without relevant items has 0.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> precision_at(total, relevant, z=1).tolist()
    [0.5]
    """
    if z < 1:
        raise ValueError(f"z is {z}; a cut-off is at least 1")
    taken = np.clip(z - _before(total, relevant)[0], 0, total)
    expected = (divide(relevant, total, 0.0) * taken).sum(axis=1)
    return divide(expected, taken.sum(axis=1), np.nan)


def ndcg(total: Counts, relevant: Counts) -> Scores:
    """Compute NDCG with gain 1 for relevant items and discount 1/log₂(1 + rank), in expectation over ties.

    A group's relevant items share the discounts of its ranks evenly; the ideal ranking has all relevant items first.
    Costs O(nd) time for the discounts of all ranks, and memory for 2²⁰ of them.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> ndcg(total, relevant).round(3).tolist()
    [0.785]
    """
    return divide(_discounted(total, relevant), _discounts_up_to(relevant.sum(axis=1)), np.nan)


def ndcg_graded(total: Counts, gains: LabelGains) -> Scores:
    """Compute NDCG with the similarity S of an item's labels and the query's as gain, and discount 1/log₂(1 + rank).

    In expectation over the orders of ties a group's ranks share the sum of its gains evenly. The ideal ranking goes by
    falling gain; r items of one gain in a row take the sum of r discounts. Costs as `ndcg`.

    Args:
        total: n_d, ``(nq, k + 1)``.
        gains: of the same queries and database.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items: only they have gains.

    >>> gains = LabelGains(np.array([[5, 0]]), np.array([0]), np.array([5]), np.array([1]))
    >>> ndcg_graded(np.array([[1, 3]]), gains).tolist()
    [1.0]
    """
    end = np.cumsum(gains.count)
    start = end - gains.count
    # Ranks start again with each query.
    first = np.searchsorted(gains.query, np.arange(len(total)))
    before = np.append(start, 0)[np.minimum(first, len(start))][gains.query]
    last, first = _discounts_up_to(np.stack([end, start]) - before)
    ideal = np.bincount(gains.query, weights=gains.gain * (last - first), minlength=len(total))
    return divide(_discounted(total, gains.by_distance), ideal, np.nan)


def _discounts_up_to(ranks: Counts) -> Scores:
    """Sum of the discounts 1/log₂(1 + rank) of the first r ranks, for each r in ``ranks``, in blocks of ranks."""
    sums, before = np.zeros(ranks.shape), 0.0
    size = int(ranks.max(initial=0))
    for first in range(0, size, _RANKS):
        last = min(first + _RANKS, size)
        discounts = 1 / np.log2(np.arange(first + 2, last + 2))
        discounts[0] += before
        up_to = np.cumsum(discounts)
        inside = (ranks > first) & (ranks <= last)
        sums[inside] = up_to[ranks[inside] - first - 1]
        before = up_to[-1]
    return sums


def _discounted(total: Counts, gains: Counts) -> Scores:
    """Return the expected DCG ``(nq,)`` of gains by distance ``(nq, k + 1)``."""
    end = np.cumsum(total, axis=1)
    last, first = _discounts_up_to(np.stack([end, end - total]))
    result: Scores = (divide(gains, total, 0.0) * (last - first)).sum(axis=1)
    return result


def roc_auc_micro(total: Counts, relevant: Counts) -> float:
    """Compute the area under one ROC curve of all queries: confusion counts summed per radius, trapezoid (§ 7).

    NaN if no pair, or every pair, is relevant.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> roc_auc_micro(total, relevant)
    0.5
    """
    return float(roc_auc_each(total.sum(axis=0, keepdims=True), relevant.sum(axis=0, keepdims=True))[0])


def roc_auc_each(total: Counts, relevant: Counts) -> Scores:
    """Compute the area under the ROC curve of each query by the trapezoid over radii; ties count half.

    Returns:
        ``(nq,)`` in [0, 1]; NaN where all or none of the items are relevant.

    >>> roc_auc_each(np.array([[1, 3]]), np.array([[1, 0]])).tolist()
    [1.0]
    """
    irrelevant = (total - relevant).astype(np.float64)
    closer = np.cumsum(relevant, axis=1) - relevant / 2
    area = (irrelevant * closer).sum(axis=1)
    return divide(area, irrelevant.sum(axis=1) * relevant.sum(axis=1), np.nan)


class PrecisionRecallCurve(NamedTuple):
    """Precision and recall of the lookup within each radius 0 … k, ``(k + 1,)`` each.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> precision_recall_curve(total, relevant).radius.tolist()
    [0, 1]
    """

    precision: Scores
    recall: Scores
    radius: NDArray[np.int64]


def precision_recall_curve(total: Counts, relevant: Counts) -> PrecisionRecallCurve:
    """Compute precision and recall over all queries together, by radius. Precision is NaN at radii that find nothing.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> precision_recall_curve(total, relevant).recall.tolist()
    [0.5, 1.0]
    """
    retrieved, correct = np.cumsum(total.sum(axis=0)), np.cumsum(relevant.sum(axis=0))
    return PrecisionRecallCurve(
        divide(correct, retrieved, np.nan),
        divide(correct, np.asarray(relevant.sum()), np.nan),
        np.arange(total.shape[1]),
    )


class RadiusLookup(NamedTuple):
    """What a lookup within a radius gives, averaged over queries.

    Attributes:
        precision: share of relevant items among those found; a lookup that finds nothing counts as 0, as the
            literature's radius-2 precision does.
        recall: share of the relevant items that is found.
        empty: share of queries that find nothing.

    >>> RadiusLookup(precision=0.5, recall=0.5, empty=0.0).empty
    0.0
    """

    precision: float
    recall: float
    empty: float


class RadiusCurves(NamedTuple):
    """`RadiusLookup` at each radius 0 … k, ``(k + 1,)`` each.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> by_radius(total, relevant).empty.tolist()
    [0.0, 0.0]
    """

    precision: Scores
    recall: Scores
    empty: Scores


def by_radius(total: Counts, relevant: Counts) -> RadiusCurves:
    """Average the lookup of all items at distance <= r for r = 0 … k over queries that each have a relevant item.

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise, at least one a query.

    >>> total, relevant = np.array([[2, 2]]), np.array([[1, 1]])
    >>> by_radius(total, relevant).recall.tolist()
    [0.5, 1.0]
    """
    retrieved, correct = np.cumsum(total, axis=1), np.cumsum(relevant, axis=1)
    return RadiusCurves(
        divide(correct, retrieved, 0.0).mean(axis=0),
        (correct / correct[:, -1:]).mean(axis=0),
        (retrieved == 0).mean(axis=0),
    )


def average_precision_at(total: Counts, relevant: Counts, z: int) -> Scores:
    """Compute AP@z of eq. (lit:ap), in expectation over the orders of ties.

    AP@z divides by the number of relevant items among the first z. Of the group that the cut-off parts, with n items,
    r of them relevant, behind N items of which R are relevant, m = z − N are taken; the number h of relevant ones
    among them is hypergeometric, and given h their places are uniform. With H = H_{N+m} − H_N and A the sum of
    precisions of the groups before,

        E = Σ_h P(h; n, r, m) · (A + h/m · [(R + 1) H + (h−1)/(m−1) · (m − (N + 1) H)]) / (R + h),

    where a term with R + h = 0 is 0.

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise.
        z: cut-off >= 1; more than the database has items means all of them.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items. Costs O(nq · (k + √z)).

    >>> average_precision_at(np.array([[2, 2]]), np.array([[1, 1]]), z=2).tolist()
    [0.75]
    """
    (n, r, taken, total_before, relevant_before), ahead = _cut(total, relevant, z)
    # Sum of precisions of the whole groups before the cut: AP_T of just those, times its divisor.
    before = np.nan_to_num(average_precision(*ahead)) * relevant_before
    harmonic = _harmonic_difference(total_before, taken)
    expected = _expectation(n, r, taken, total_before, relevant_before, before, harmonic)
    return np.where(relevant.sum(axis=1) > 0, expected, np.nan)


def average_precision_at_bounds(total: Counts, relevant: Counts, z: int) -> tuple[Scores, Scores]:
    """Compute the smallest and the largest AP@z over all orders of ties.

    Before the cut relevant items come last, or first, at each distance. In the group that the cut-off parts every
    number h of relevant items is tried, because more of them also divide by more.

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise.
        z: cut-off >= 1; more than the database has items means all of them.

    Returns:
        (lower, upper), each ``(nq,)``; NaN for a query without relevant items. Costs O(nq · (k + z)).

    >>> lower, upper = average_precision_at_bounds(np.array([[2, 2]]), np.array([[1, 1]]), z=3)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.5], [1.0])
    """
    group, ahead = _cut(total, relevant, z)
    before = [np.nan_to_num(bound) * group[-1] for bound in average_precision_bounds(*ahead)]
    bounds = _bounds(*group, *before)
    lower, upper = (np.where(relevant.sum(axis=1) > 0, bound, np.nan) for bound in bounds)
    return lower, upper


def _cut(total: Counts, relevant: Counts, z: int) -> tuple[tuple[Counts, ...], tuple[Counts, Counts]]:
    """Return the group that holds rank z, and the counts of the groups ahead of it.

    Of the group, ``(nq,)`` each: items, relevant ones, items taken, and all items and relevant ones before it.
    """
    if z < 1:
        raise ValueError(f"z is {z}; a cut-off is at least 1")
    rows = np.arange(len(total))
    end = np.cumsum(total, axis=1)
    sizes = np.minimum(z, end[:, -1])
    cut = (end < sizes[:, None]).sum(axis=1)
    n, r = total[rows, cut], relevant[rows, cut]
    inside = np.arange(cut.max(initial=0)) < cut[:, None]
    ahead = total[:, : inside.shape[1]] * inside, relevant[:, : inside.shape[1]] * inside
    total_before = end[rows, cut] - n
    return (n, r, sizes - total_before, total_before, ahead[1].sum(axis=1)), ahead


@njit(
    "float64[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1])", cache=True
)
def _expectation(n, r, m, total_before, relevant_before, before, harmonic):  # type: ignore[no-untyped-def]
    """Sum over h for each query, outwards from the likeliest h, each probability from its neighbour's; unnormalised
    weights and one division at the end need no factorials."""
    expected = np.empty(len(n))
    for q in range(len(n)):
        if m[q] == 0:
            expected[q] = 0.0
            continue
        low, high = max(0, m[q] - (n[q] - r[q])), min(r[q], m[q])
        mode = min(max((m[q] + 1) * (r[q] + 1) // (n[q] + 2), low), high)
        numerator, weights = 0.0, 0.0
        for step in (1, -1):
            h = mode if step == 1 else mode - 1
            weight = 1.0
            if step == -1 and h >= low:
                weight = mode * (n[q] - r[q] - m[q] + mode) / ((r[q] - h) * (m[q] - h))
            while low <= h <= high and weight > 1e-18:
                if relevant_before[q] + h > 0:
                    slope = (h - 1) / (m[q] - 1) if m[q] > 1 else 0.0
                    spread = m[q] - (total_before[q] + 1) * harmonic[q]
                    here = h / m[q] * ((relevant_before[q] + 1) * harmonic[q] + slope * spread)
                    numerator += weight * (before[q] + here) / (relevant_before[q] + h)
                weights += weight
                if step == 1:
                    weight *= (r[q] - h) * (m[q] - h) / ((h + 1) * (n[q] - r[q] - m[q] + h + 1))
                else:
                    weight *= h * (n[q] - r[q] - m[q] + h) / ((r[q] - h + 1) * (m[q] - h + 1))
                h += step
        expected[q] = numerator / weights
    return expected


@njit(
    "UniTuple(float64[::1], 2)(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1])",
    cache=True,
)
def _bounds(n, r, m, total_before, relevant_before, lower_before, upper_before):  # type: ignore[no-untyped-def]
    """Least and greatest AP@z of each query over h: with h the last, or the first, of the m items taken. One relevant
    item more among the last adds a precision at its place, and one hit to the h − 1 that follow it."""
    lower, upper = np.empty(len(n)), np.empty(len(n))
    for q in range(len(n)):
        least, most = max(0, m[q] - (n[q] - r[q])), min(r[q], m[q])
        last, first, following = lower_before[q], upper_before[q], 0.0
        lower[q], upper[q] = np.inf, -np.inf
        for h in range(most + 1):
            hits = relevant_before[q] + h
            if h:
                place = total_before[q] + m[q] - h + 1
                last += (relevant_before[q] + 1) / place + following
                following += 1 / place
                first += hits / (total_before[q] + h)
            if h >= least:
                lower[q] = min(lower[q], last / hits if hits else 0.0)
                upper[q] = max(upper[q], first / hits if hits else 0.0)
    return lower, upper
