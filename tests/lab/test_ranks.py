"""Ranks over collections, written out; tests against SciPy's statistic and the published example."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from channelhash.lab.experiments.ranks import _friedman_p, _mean_ranks, ranks_table


@given(st.integers(2, 6), st.integers(3, 7), st.integers(0, 1000))
def test_ranks_and_friedmans_test_equal_those_written_out(collections, methods, seed):
    scores = np.random.default_rng(seed).permutation(collections * methods).reshape(collections, methods)
    ranks = [np.mean([1 + sum(row > row[method]) for row in scores]) for method in range(methods)]
    assert _mean_ranks(scores) == pytest.approx(ranks)
    chi_squared = stats.friedmanchisquare(*scores.T).statistic
    rest = collections * (methods - 1) - chi_squared
    f = (collections - 1) * chi_squared / rest if rest > 1e-9 else np.inf
    expected = stats.f.sf(f, methods - 1, (methods - 1) * (collections - 1))
    assert _friedman_p(scores) == pytest.approx(expected, abs=1e-9)


def test_a_loss_that_is_not_finished_everywhere_is_named_and_has_no_rank():
    scores = {("a", "R"): {"DSCH": 0.5, "CSQ": 0.25, "SCH": 0.125}, ("b", "R"): {"CSQ": 0.5, "DSCH": 0.25}}
    table = ranks_table(scores, "tuned")
    assert table.header == ("Loss", "Mean rank, R", "a, R", "b, R")
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows == [["DSCH", "1.5", "50.00", "25.00"], ["CSQ", "1.5", "25.00", "50.00"]]
    assert [cell.bold for cell in table.rows[0]] == [False, True, True, False]
    assert "Not finished everywhere: SCH." in table.caption
