"""Tests over seeds and queries are the textbook's, and pair what belongs together."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from math import factorial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy import stats

from channelhash.data.records import Records
from channelhash.data.splits import SplitSettings
from channelhash.lab.experiments import comparisons
from channelhash.lab.experiments.comparisons import (
    SeedTest,
    _compare_methods,
    holm,
    ranks_table,
    split_ratio,
)
from channelhash.metrics.resampling import PairedTest, paired_test
from lab.grids import made_result
from refusals import check_refusal

SCH = {"name": "sch", "kappa_q": 0.0}
TASK = "image->text"


def grid(shares, seeds=(0, 1, 2), queries=40, n_bits=32):
    """method -> share: a run a seed, the mAP with noise of its own."""
    results = []
    for method, share in shares.items():
        for seed in seeds:
            random = np.random.default_rng([seed, len(results)])
            ap = np.clip(share + 0.1 * random.normal(size=queries), 0, 1)
            ap[3] = np.nan
            scores = {TASK: float(np.nanmean(ap))}
            results.append(
                made_result(
                    method, seed, scores, n_bits, loss={"name": method}, query_ap={TASK: ap}
                )
            )
    return results


def seeds_with(folder=Path(), **data):
    runs = [made_result("a", seed) for seed in range(2)]
    for run in runs:
        run.settings["data"].update({"seed": run.seed, "queries": 3, "train": 20} | data)
    return [replace(run, folder=folder) for run in runs]


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.integers(0, 2000), st.integers(1, 5000)
)
def test_over_seeds_it_is_the_paired_t_test_corrected_as_nadeau_and_bengio_say(
    differences, n_test, n_train
):
    """t = mean / √((1/J + n₂/n₁) S²), S² the sample variance of J differences; with n₂ = 0, seeds
    of one split.
    """
    assume(np.std(differences) > 1e-3)
    j = len(differences)
    mean = sum(differences) / j
    error = (
        (1 / j + n_test / n_train) * sum((d - mean) ** 2 for d in differences) / (j - 1)
    ) ** 0.5
    found = SeedTest.of(differences, split_ratio(seeds_with(queries=n_test, train=n_train)))
    students = stats.t(j - 1)
    assert found.p_value == pytest.approx(2 * students.cdf(-abs(mean) / error), abs=1e-9)
    assert found[1:3] == pytest.approx(
        [mean + students.ppf(tail) * error for tail in (0.025, 0.975)], abs=1e-9
    )
    assert found.difference == pytest.approx(mean, abs=1e-12)
    assert found.seeds == j
    if n_test == 0:
        assert found.p_value == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=1e-9)


@pytest.mark.parametrize(
    "data", [{"seed": 0}, {"splits": "splits.json"}, {"split_method": "given"}], ids=str
)
def test_seeds_of_one_split_are_told_from_splits(data):
    assert split_ratio(seeds_with(**data)) == 0


@pytest.mark.parametrize("method", ["random", "stratified", "per_class"])
@pytest.mark.parametrize("sizes", ["numbers", "defaults", "rest"])
def test_the_ratio_is_that_of_the_rows_that_were_drawn(tmp_path, method, sizes):
    random = np.random.default_rng([len(method), len(sizes)])
    labels = np.eye(4, dtype=bool)[random.choice(4, 200, p=[0.6, 0.3, 0.07, 0.03])]
    ids = tuple(map(str, range(200)))
    records = Records(ids, {"text": ids}, labels, tuple("abcd"))
    asked = {"queries": int(random.integers(3, 9)), "train": int(random.integers(20, 40))}
    if method != "per_class":
        asked = {"numbers": asked, "defaults": {}, "rest": asked | {"train": "rest"}}[sizes]
    runs = []
    shares = []
    for seed in range(3):
        settings = SplitSettings(seed=seed, split_method=method, **asked)
        splits = settings.draw(records)
        folder = tmp_path / str(seed)
        folder.mkdir()
        splits.save(records, folder / "splits.json", {})
        run = replace(made_result("a", seed), folder=folder)
        run.settings["data"].update(settings.model_dump(mode="json"))
        runs.append(run)
        shares.append(len(splits.query) / len(splits.train))
    assert split_ratio(runs) == pytest.approx(np.mean(shares))


def test_equal_differences_leave_no_doubt():
    assert SeedTest.of([0.25, 0.25]) == (0.25, 0.25, 0.25, 0.0, 2)
    assert SeedTest.of([0.0, 0.0]) == (0.0, 0.0, 0.0, 1.0, 2)
    check_refusal("two or more common seeds", SeedTest.of, [0.25], error=ValueError)


def holm_by_steps(p_values, level):
    """Reject the smallest while p ≤ level / (number of hypotheses left)."""
    rejected = set()
    for step, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] > level / (len(p_values) - step):
            break
        rejected.add(int(place))
    return rejected


@given(
    st.lists(st.integers(1, 1000).map(lambda p: p / 1001), max_size=8),
    st.integers(1, 300).map(lambda p: p / 997),
)
def test_holm_rejects_what_the_stepwise_test_rejects(p_values, level):
    assert {place for place, p in enumerate(holm(p_values)) if p <= level} == holm_by_steps(
        p_values, level
    )


def test_pairs_of_a_length_are_compared_and_their_p_values_corrected_together():
    results = [
        *grid({"a": 0.3, "b": 0.5, "c": 0.5}, queries=300),
        made_result("a", 3, status="failed"),
    ]
    found = _compare_methods([*results, *grid({"a": 0.4, "c": 0.5}, n_bits=64)], resamples=2000)
    pairs = [(one.first, one.second, one.n_bits) for one in found]
    assert pairs == [("b", "a", 32), ("c", "a", 32), ("c", "b", 32), ("c", "a", 64)]
    clear, _, level, _ = found
    assert clear.queries.difference == pytest.approx(clear.seeds.difference)
    assert clear.queries.queries == 299
    assert clear.seeds.difference == pytest.approx(0.2, abs=0.03)
    assert max(clear.queries_p, clear.seeds_p) < 0.05 < min(level.queries_p, level.seeds_p)
    assert [one.queries_p for one in found] == holm([one.queries.p_value for one in found])
    assert [one.seeds_p for one in found] == holm([one.seeds.p_value for one in found])


def test_queries_are_averaged_over_the_common_seeds():
    results = [*grid({"a": 0.3}, seeds=(0, 2, 5)), *grid({"b": 0.4}, seeds=(5, 1, 0, 7))]
    (found,) = _compare_methods(results, resamples=500)
    runs = {(result.method, result.seed): result for result in results}
    sides = [[runs[method, seed] for seed in (0, 5)] for method in ("b", "a")]
    means = [
        np.mean([run.query_ap["last", "test", TASK] for run in side], axis=0) for side in sides
    ]
    assert found.queries == paired_test(*means, resamples=500)
    assert found.seeds == SeedTest.of(
        np.subtract(*([run.score(TASK) for run in side] for side in sides))
    )


@pytest.mark.parametrize("seeds", [(0, 1), (1,)], ids=["one in common", "none in common"])
def test_too_few_common_seeds_give_no_test(seeds):
    runs = [*grid({"a": 0.3}, seeds=(0,)), *grid({"b": 0.3}, seeds=seeds)]
    (found,) = _compare_methods(runs, resamples=100)
    assert found.seeds is found.seeds_p is None
    assert (found.queries is None) == (found.queries_p is None) == (0 not in seeds)


def test_runs_of_other_queries_are_refused():
    others = [*grid({"a": 0.3}, seeds=(0,)), *grid({"b": 0.3}, seeds=(0,), queries=41)]
    check_refusal(
        "a-k32-seed0 and b-k32-seed0 were not evaluated on the same queries",
        _compare_methods,
        others,
    )
    check_refusal(
        "has no AP of single queries",
        _compare_methods,
        [made_result("a", 0), made_result("b", 0, loss=SCH)],
    )


def test_differences_are_in_points_and_small_p_values_bold():
    queries = PairedTest(0.0123, 0.0001, 1990)
    seeds = SeedTest(0.0123, -0.001, 0.025, 0.06, 3)
    compare = partial(comparisons._Comparison, "DSCH", "SCH")
    found = [
        compare(32, "image->text", queries, seeds, 0.0004, 0.06),
        compare(64, "image->text", None, None),
        compare(32, "text->image", PairedTest(-0.02, 0.01, 1990), None, 0.05),
    ]
    table = comparisons._significance_table(found)
    assert [" | ".join(cell.text for cell in row) for row in table.rows] == [
        "image → text | DSCH against SCH, k = 32 | +1.23 | < 0.001 | 1990 | −0.10 … +2.50 | 0.060"
        " | 3",
        "image → text | DSCH against SCH, k = 64 | no common seed | – | – | – | – | –",
        "text → image | DSCH against SCH, k = 32 | −2.00 | 0.050 | 1990 | – | – | –",
    ]
    bold = [[cell.text for cell in row if cell.bold] for row in table.rows]
    assert bold == [["< 0.001"], [], ["0.050"]]


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 1000))
def test_mean_ranks_equal_those_counted(collections, methods, seed):
    scores = (
        np.random.default_rng(seed).permutation(collections * methods).reshape(collections, methods)
    )
    ranks = [np.mean([1 + sum(row > row[method]) for row in scores]) for method in range(methods)]
    assert comparisons._mean_ranks(scores) == pytest.approx(ranks)


def friedman_by_enumeration(scores):
    """The share of all orders of every collection's ranks whose rank sums lie as far apart."""

    def spread(ranks):
        return sum(sum(column) ** 2 for column in zip(*ranks, strict=True))

    ranks = [[Fraction(2 * rank) for rank in stats.rankdata(row)] for row in np.asarray(scores)]
    orders = list(product(*(list(permutations(row)) for row in ranks)))
    return Fraction(sum(spread(order) >= spread(ranks) for order in orders), len(orders))


#: Collections and methods of which all orders are counted in the blink of an eye.
@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (7, 2), (2, 3), (4, 3), (2, 4)], ids=str)
@pytest.mark.parametrize("values", [2, 3, 1000], ids=lambda values: f"{values} values")
def test_friedmans_p_of_few_is_the_share_of_all_orders_of_ranks(shape, values):
    random = np.random.default_rng([*shape, values])
    for scores in random.integers(0, values, size=(5, *shape)):
        assert comparisons._friedman_p(scores) == pytest.approx(friedman_by_enumeration(scores))


@pytest.mark.parametrize(("collections", "methods"), [(2, 2), (4, 2), (2, 3), (3, 3), (2, 4)])
def test_where_all_collections_agree_p_is_the_chance_of_one_order(collections, methods):
    scores = np.arange(methods) + np.zeros((collections, 1))
    chance = factorial(methods) ** -(collections - 1)
    assert comparisons._friedman_p(scores) == pytest.approx(chance)


@pytest.mark.parametrize("shape", [(14, 6), (10, 17)], ids=str)
def test_friedmans_p_of_many_is_near_its_chi_squared_form(shape):
    random = np.random.default_rng(0)
    for effect in (0, 0.2):
        scores = random.normal(size=shape) + effect * np.arange(shape[1])
        expected = stats.friedmanchisquare(*scores.T).pvalue
        assert comparisons._friedman_p(scores) == pytest.approx(expected, abs=0.03)


@given(st.integers(1, 3), st.integers(0, 3), st.integers(0, 99))
def test_below_two_losses_or_collections_the_table_has_no_test(collections, losses, seed):
    assume(collections < 2 or losses < 2)
    drawn = np.random.default_rng(seed).random((collections, losses))
    scores = {
        (f"c{row}", "R"): {f"loss{column}": value for column, value in enumerate(values)}
        for row, values in enumerate(drawn)
    }
    table = ranks_table(scores, "tuned")
    assert f"there are {losses} and {collections}." in table.caption
    assert not any(word in table.caption for word in ("p =", "nan", "Nemenyi"))
    assert len(table.rows) == losses


def test_losses_without_a_collection_in_common_have_no_rank():
    """One has not finished, the score of another is undefined."""
    table = ranks_table(
        {("a", "R"): {"x": 0.5, "z": float("nan")}, ("b", "R"): {"y": 0.4, "z": 0.1}}, "tuned"
    )
    assert not table.rows
    assert "No test" in table.caption
    assert table.caption.endswith("Not finished everywhere: x, z, y.")


def test_a_loss_that_is_not_finished_everywhere_is_named_and_has_no_rank():
    scores = {
        ("a", "R"): {"DSCH": 0.5, "CSQ": 0.25, "SCH": 0.125},
        ("b", "R"): {"CSQ": 0.5, "DSCH": 0.25},
    }
    table = ranks_table(scores, "tuned")
    assert table.header == ("Loss", "Mean rank, R", "a, R", "b, R")
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows == [["DSCH", "1.5", "50.00", "25.00"], ["CSQ", "1.5", "25.00", "50.00"]]
    assert [cell.bold for cell in table.rows[0]] == [False, True, True, False]
    assert "Not finished everywhere: SCH." in table.caption
