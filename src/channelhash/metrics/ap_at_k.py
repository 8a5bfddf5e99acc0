"""AP@z in expectation over the orders of ties, where the cut-off falls into a group of tied items."""

from typing import NamedTuple

import numpy as np

from channelhash.metrics.graded_relevance import Counts
from channelhash.metrics.ranking import Scores, average_precision, average_precision_bounds, harmonic_difference
from channelhash.utils.compiled import njit


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
    cut = _cut(total, relevant, z)
    # Sum of precisions of the whole groups before the cut: AP_T of just those, times its divisor.
    before = np.nan_to_num(average_precision(*cut.ahead)) * cut.relevant_before
    harmonic = harmonic_difference(cut.total_before, cut.m)
    expected = _expectation(cut.n, cut.r, cut.m, cut.total_before, cut.relevant_before, before, harmonic)
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
    cut = _cut(total, relevant, z)
    before = [np.nan_to_num(bound) * cut.relevant_before for bound in average_precision_bounds(*cut.ahead)]
    bounds = _bounds(cut.n, cut.r, cut.m, cut.total_before, cut.relevant_before, *before)
    lower, upper = (np.where(relevant.sum(axis=1) > 0, bound, np.nan) for bound in bounds)
    return lower, upper


class _Cut(NamedTuple):
    """What a cut-off parts, ``(nq,)`` each: of a group of n items, r of them relevant, it takes m."""

    n: Counts
    r: Counts
    m: Counts
    total_before: Counts
    relevant_before: Counts
    ahead: tuple[Counts, Counts]


def _cut(total: Counts, relevant: Counts, z: int) -> _Cut:
    """Return the group that holds rank z, and the counts of the groups ahead of it."""
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
    return _Cut(n, r, sizes - total_before, total_before, ahead[1].sum(axis=1), ahead)


@njit(
    "float64[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1])",
    cache=True,
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
