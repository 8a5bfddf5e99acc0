"""AP over all orders of tied items, in closed form: its expectation and its bounds."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

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


def divide(
    numerator: NDArray[np.number], denominator: NDArray[np.number], empty: float
) -> NDArray[np.float64]:
    """Divide, with ``empty`` where the denominator is 0."""
    out = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), empty, dtype=np.float64)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def cut_expectations(
    group: NDArray[np.int64], before: NDArray[np.float64], harmonic: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected AP@z of each query: ``group`` as from `_cut`, ``(5, nq)``; A and H
    ``(nq,)``.

    Sums over h outwards from the likeliest h, each probability from its neighbour's; unnormalised
    weights and one division at the end need no factorials. Beyond the possible h weights are 0.
    """
    n, r, m, total_before, relevant_before = group
    others = n - r - m
    mode = np.clip((m + 1) * (r + 1) // (n + 2), np.maximum(0, -others), np.minimum(r, m))
    first = (relevant_before + 1) * harmonic
    spread = m - (total_before + 1) * harmonic
    numerator = np.zeros(len(n))
    weights = np.zeros(len(n))
    for step in (1, -1):
        h = mode
        weight = np.ones(len(n))
        if step == -1:
            weight = mode * (others + mode) / ((r - mode + 1) * (m - mode + 1))
            h = mode - 1
        while (weight > 1e-18).any():
            slope = divide(h - 1, m - 1, 0.0)
            sums = before + divide(h, m, 0.0) * (first + slope * spread)
            numerator += divide(weight * sums, relevant_before + h, 0.0)
            weights += weight
            if step == 1:
                weight = weight * (r - h) * (m - h) / ((h + 1) * (others + h + 1))
            else:
                weight = weight * h * (others + h) / ((r - h + 1) * (m - h + 1))
            h = h + step
    return numerator / weights


def cut_bounds(
    group: NDArray[np.int64], before: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the greatest AP@z of each query, from those sums of the groups before
    ``(2, nq)``.

    They are those over h, with h the last, or the first, of the m items taken. One relevant item
    more among the last adds a precision at its place, and one hit to the h − 1 that follow it.
    """
    n, r, m, total_before, relevant_before = group
    least = np.maximum(0, m - (n - r))
    most = np.minimum(r, m)
    last, first = before
    following = np.zeros(len(n))
    lower = np.full(len(n), np.inf)
    upper = np.full(len(n), -np.inf)
    for h in range(int(most.max(initial=0)) + 1):
        hits = relevant_before + h
        if h:
            place = np.maximum(1, total_before + m - h + 1)
            last = last + (relevant_before + 1) / place + following
            following += 1 / place
            first = first + hits / (total_before + h)
        possible = (least <= h) & (h <= most)
        np.minimum(lower, divide(last, hits, 0.0), out=lower, where=possible)
        np.maximum(upper, divide(first, hits, 0.0), out=upper, where=possible)
    return lower, upper
