"""AP over all orders of tied items, in closed form: its expectation and its bounds."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.compiled import inner, njit

# Below this size harmonic numbers come from a table, above from their expansion, exact to double
# precision there.
_TABLE = 64
_HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _TABLE + 1))])


def harmonic_difference(
    start: NDArray[np.integer], count: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Compute H_{N+n} − H_N = Σ_{t=1…n} 1 / (N + t), to double precision relative to the difference
    itself.

    Up to 64 from a table; beyond, H_x = ln y + γ + 1/(24 y²) − 7/(960 y⁴) + 31/(8064 y⁶) − … with y
    = x + ½, whose logarithms are subtracted as log1p(n / y): the closed forms below take n − (N +
    1)(H_{N+n} − H_N), which would lose its digits for a small group far down the ranking.
    """
    first = np.asarray(start, dtype=np.int64)
    last = np.asarray(start, dtype=np.int64) + count
    small = _HARMONIC[np.minimum(last, _TABLE)] - _HARMONIC[np.minimum(first, _TABLE)]
    low = np.maximum(first, _TABLE) + 0.5
    high = np.maximum(last, _TABLE) + 0.5
    return cast(
        NDArray[np.float64],
        small + np.log1p((high - low) / low) + (_correction(high) - _correction(low)),
    )


def _correction(y: NDArray[np.float64]) -> NDArray[np.float64]:
    square = 1 / (y * y)
    return square * (1 / 24 - square * (7 / 960 - square * 31 / 8064))


@njit(cache=True)
def write_expectations(group, sums, expected):  # type: ignore[no-untyped-def]
    """Write the expected AP@z of each query: ``group`` as from `_cut`, ``(5, nq)``; A and H ``(2,
    nq)``.
    """
    for q in range(len(expected)):
        if group[2, q]:
            n = group[0, q]
            r = group[1, q]
            m = group[2, q]
            place = group[3, q] + 1
            hits = group[4, q]
            expected[q] = _expected(n, r, m, place, hits, sums[0, q], sums[1, q])


@inner
def _expected(n, r, m, place, relevant_before, before, harmonic):  # type: ignore[no-untyped-def]
    """Sum over h for one query, outwards from the likeliest h, each probability from its
    neighbour's; unnormalised weights and one division at the end need no factorials."""
    low = max(0, m - (n - r))
    high = min(r, m)
    others = n - r - m
    mode = min(max((m + 1) * (r + 1) // (n + 2), low), high)
    first = (relevant_before + 1) * harmonic
    spread = m - place * harmonic
    numerator = 0.0
    weights = 0.0
    for step in (1, -1):
        h = mode
        weight = 1.0
        if step == -1:
            h -= 1
            weight = mode * (others + mode) / ((r - h) * (m - h)) if h >= low else 0.0
        while low <= h <= high and weight > 1e-18:
            if relevant_before + h > 0:
                slope = (h - 1) / (m - 1) if m > 1 else 0.0
                numerator += (
                    weight * (before + h / m * (first + slope * spread)) / (relevant_before + h)
                )
            weights += weight
            if step == 1:
                weight *= (r - h) * (m - h) / ((h + 1) * (others + h + 1))
            else:
                weight *= h * (others + h) / ((r - h + 1) * (m - h + 1))
            h += step
    return numerator / weights


@njit(cache=True)
def write_bounds(group, before, bounds):  # type: ignore[no-untyped-def]
    """Write the least and the greatest AP@z of each query ``(2, nq)``, from those sums of the
    groups before.
    """
    for q in range(bounds.shape[1]):
        n = group[0, q]
        r = group[1, q]
        m = group[2, q]
        total = group[3, q]
        hits = group[4, q]
        bounds[0, q], bounds[1, q] = _bounds_of_one(
            n, r, m, total, hits, before[0, q], before[1, q]
        )


@inner
def _bounds_of_one(  # type: ignore[no-untyped-def]
    n, r, m, total_before, relevant_before, last, first
):
    """Least and greatest AP@z of one query over h: with h the last, or the first, of the m items
    taken. One relevant item more among the last adds a precision at its place, and one hit to the h
    − 1 that follow it."""
    least = max(0, m - (n - r))
    following = 0.0
    lower = np.inf
    upper = -np.inf
    for h in range(min(r, m) + 1):
        hits = relevant_before + h
        if h:
            place = total_before + m - h + 1
            last += (relevant_before + 1) / place + following
            following += 1 / place
            first += hits / (total_before + h)
        if h >= least:
            lower = min(lower, last / hits if hits else 0.0)
            upper = max(upper, first / hits if hits else 0.0)
    return lower, upper
