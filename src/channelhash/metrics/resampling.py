"""How sure a mean over queries is, and whether two runs differ.

Resampling takes the queries as the random sample. It says nothing about the spread between training
runs, which repeated seeds measure (``protocol.md`` § 6).
"""

from typing import NamedTuple

import numpy as np

from channelhash.metrics.histogram import Scores
from channelhash.utils.seeds import generator

# Resamples drawn at once: 100 × 2,100 queries of 8 bytes are 1.7 MB.
_BATCH = 100


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    lower: float
    upper: float


class PairedTest(NamedTuple):
    """Mean difference of two runs over their common queries, its two-sided p-value, and the number
    of queries.
    """

    difference: float
    p_value: float
    queries: int


def bootstrap_interval(
    scores: Scores, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Compute the percentile bootstrap interval of a mean over queries (Efron and Tibshirani 1993,
    chapter 13).

    Args:
        scores: ``(nq,)`` e.g. `HammingHistogram.average_precision`; NaN (no relevant item) is left
            out.
        confidence: share of resampled means inside the interval, in (0, 1).
        resamples: number of samples of the queries, drawn with replacement.
        seed: seed of the draws.

    Raises:
        ValueError: ``confidence`` is not in (0, 1), or every score is NaN.

    Costs O(nq · resamples) time, little memory.

    >>> bootstrap_interval(np.array([0.5, 0.5, np.nan]), resamples=100)
    Interval(mean=0.5, lower=0.5, upper=0.5)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it lies between 0 and 1")
    counted = scores[~np.isnan(scores)]
    if not len(counted):
        raise ValueError(
            f"none of the {len(scores)} queries has a score: there is nothing to average"
        )
    n = len(counted)
    random = generator(seed, "bootstrap")
    sizes = [min(_BATCH, resamples - start) for start in range(0, resamples, _BATCH)]
    means = np.concatenate(
        [counted[random.integers(0, n, (size, n))].mean(axis=1) for size in sizes]
    )
    lower, upper = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(counted.mean()), float(lower), float(upper))


def paired_test(
    first: Scores, second: Scores, resamples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Test by sign flips (a permutation test) that two runs have the same mean over the same
    queries.

    If the runs do not differ, a query's difference is as likely as its negative: p is the share of
    random sign assignments whose mean is at least as far from 0 as the one seen, (1 + hits) / (1 +
    resamples), so it is never 0.

    Args:
        first: ``(nq,)`` scores of one run, NaN for queries without relevant items.
        second: ``(nq,)`` those of the other, of the same queries in the same order.
        resamples: number of sign assignments.
        seed: seed of the draws.

    Returns:
        Mean of ``first - second``, p-value in (0, 1], queries counted.

    Raises:
        ValueError: lengths differ; a query has a score in one run alone (other relevant items, so
            another task); or no query has one.

    Costs O(nq · resamples) time, little memory.

    >>> paired_test(np.array([0.5, 0.6]), np.array([0.5, 0.6])).p_value
    1.0
    """
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"scores of {first.shape} and {second.shape} queries; a paired test needs the same "
            "queries"
        )
    missing = np.isnan(first)
    if (missing != np.isnan(second)).any():
        row = int(np.flatnonzero(missing != np.isnan(second))[0])
        raise ValueError(
            f"query {row} has a score in one run alone: the runs were not evaluated on the same "
            "data"
        )
    differences = (first - second)[~missing]
    if not len(differences):
        raise ValueError(
            f"none of the {len(first)} queries has a score: there is nothing to compare"
        )
    # Sums of the same numbers in another order differ in their last digits; a tie with what was
    # seen is a hit.
    threshold = abs(differences.sum()) - 1e-12 * np.abs(differences).sum()
    random = generator(seed, "sign flips")
    hits = 0
    for start in range(0, resamples, _BATCH):
        size = (min(_BATCH, resamples - start), len(differences))
        flips = random.integers(0, 2, size, dtype=np.int8) * 2 - 1
        hits += int((np.abs(flips @ differences) >= threshold).sum())
    return PairedTest(float(differences.mean()), (1 + hits) / (1 + resamples), len(differences))
