"""Intervals cover, p-values are those of the full enumeration, and what cannot be compared is refused."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from channelhash.metrics import bootstrap_interval, paired_test
from refusals import check_refusal


def test_the_interval_of_many_queries_is_the_normal_one():
    figures = np.random.default_rng(0).beta(2, 3, size=2000)
    mean, lower, upper = bootstrap_interval(figures, confidence=0.9)
    half = norm.ppf(0.95) * figures.std() / np.sqrt(len(figures))
    assert mean == pytest.approx(figures.mean())
    assert (mean - lower, upper - mean) == pytest.approx((half, half), rel=0.05)


def test_the_ends_of_an_interval_are_quantiles_of_every_resample():
    figures = np.array([0.1, 0.25, 0.3, 0.7, 0.95])
    means = np.array([np.mean(sample) for sample in product(figures, repeat=5)])
    for confidence in (0.8, 0.95):
        _, lower, upper = bootstrap_interval(figures, confidence, resamples=20_000)
        tail = (1 - confidence) / 2
        for end, share in ((lower, tail), (upper, 1 - tail)):
            assert np.quantile(means, share - 0.01) <= end <= np.quantile(means, share + 0.01)


def test_queries_without_a_figure_do_not_count():
    figures = np.array([0.2, np.nan, 0.9, 0.4, np.nan])
    assert bootstrap_interval(figures) == bootstrap_interval(np.array([0.2, 0.9, 0.4]))
    others = np.array([0.1, np.nan, 0.5, 0.6, np.nan])
    assert paired_test(figures, others) == paired_test(figures[[0, 2, 3]], others[[0, 2, 3]])
    assert paired_test(figures, others).queries == 3


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_p_values_are_those_of_all_sign_assignments(shift):
    first, second = np.random.default_rng(5).normal(size=(2, 12)) * 0.3
    result = paired_test(first + shift, second)
    differences = first + shift - second
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(differences))]
    expected = float(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9))  # over every assignment of signs
    assert result.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 10_000) + 1e-4)
    assert result.difference == pytest.approx(differences.mean())
    assert paired_test(second, first + shift).p_value == result.p_value


def test_sign_assignments_that_tie_with_the_runs_count_as_hits():
    # Sums of tenths differ in their last digits with their order; only all plus and all minus reach the largest.
    first = np.array([0.1, 0.2, 0.3, 0.7, 0.6, 0.1])
    assert paired_test(first, np.zeros(6)).p_value == pytest.approx(2 / 2**6, abs=0.006)
    assert paired_test(first[::-1].copy(), np.zeros(6)).p_value == pytest.approx(2 / 2**6, abs=0.006)


def test_equal_runs_do_not_differ_and_clearly_better_ones_do():
    figures = np.random.default_rng(0).random(100)
    assert paired_test(figures, figures) == (0.0, 1.0, 100)
    assert paired_test(figures + 0.01, figures).p_value == pytest.approx(1 / 10_001)


def test_what_cannot_be_compared_is_refused():
    nan = np.nan
    check_refusal("the same queries", paired_test, np.zeros(3), np.zeros(2), error=ValueError)
    with pytest.raises(ValueError, match="query 1 has a score in one run alone"):
        paired_test(np.array([0.1, nan]), np.array([0.1, 0.2]))
    check_refusal("none of the 2 queries", paired_test, np.array([nan, nan]), np.array([nan, nan]), error=ValueError)
    check_refusal("none of the 2 queries", bootstrap_interval, np.array([nan, nan]), error=ValueError)
    check_refusal("confidence is 95", bootstrap_interval, np.array([0.5]), confidence=95, error=ValueError)
