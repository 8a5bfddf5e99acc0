"""Effects of a factorial grid."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from channelhash.lab.experiments.studies.factorial import _effects_tables, _factorial_effects
from lab.grids import made_result


def grid(channel=0.02, term=0.05, both=0.01, seeds=5, noise=1e-4):
    """mAP = 0.5 + channel·[DSCH] + term·[κ_q > 0] + both·[both] + a shift of the seed + a little noise."""
    random = np.random.default_rng(0)
    shifts, runs = random.normal(0, 0.1, seeds), []
    for loss, kappa, seed in product(("sch", "dsch"), (0.0, 0.01), range(seeds)):
        dsch, quantised = loss == "dsch", kappa > 0
        value = 0.5 + channel * dsch + term * quantised + both * (dsch and quantised)
        shares = {"image->text": value + shifts[seed] + random.normal(0, noise)}
        settings = {"name": loss, "kappa_q": kappa} | ({"gamma_w": 8.0} if dsch else {})
        runs.append(made_result(loss, seed, shares, loss=settings))
    return runs


def by_name(results):
    return _factorial_effects(results, "image->text", 32)


def test_effects_are_the_terms_that_made_the_figures():
    effects = by_name(grid())
    expected = {
        "channel: DSCH − SCH, κ_q 0": 2, "channel: DSCH − SCH, κ_q 0.01": 3,
        "quantisation: SCH, κ_q 0.01 − 0": 5, "quantisation: DSCH, κ_q 0.01 − 0": 6,
        "interaction: the term's effect in DSCH − in SCH": 1, "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": 8,
        "of it the channel": 2.5, "of it the quantisation term": 5.5,
    }  # fmt: skip
    assert {name: round(effect.test.difference, 1) for name, effect in effects.items()} == pytest.approx(expected)
    assert all(effect.test.seeds == 5 for effect in effects.values())
    assert all(effect.test.lower > 0 or effect.test.upper < 0 for effect in effects.values())
    unclear = by_name(grid(channel=0, noise=0.01))["channel: DSCH − SCH, κ_q 0"].test
    assert unclear.lower < 0 < unclear.upper


def test_the_interval_is_students_over_seeds():
    runs = grid()
    effect = by_name(runs)["channel: DSCH − SCH, κ_q 0"]
    values = [100 * run.score("image->text") for run in runs if not run.settings["loss"]["kappa_q"]]
    test = stats.ttest_rel(values[5:], values[:5])
    interval = test.confidence_interval(0.95)
    assert effect.test[1:3] == pytest.approx((interval.low, interval.high))
    assert effect.standardized == pytest.approx(test.statistic / 5**0.5)


def test_unfinished_runs_are_left_out_and_said():
    runs = [run for run in grid() if run.seed < 3 or run.settings["loss"]["name"] == "sch"]
    assert {effect.test.seeds for name, effect in by_name(runs).items() if "DSCH" in name} == {3}
    assert _effects_tables([run for run in runs if run.seed == 0]) == []
