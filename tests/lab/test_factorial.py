"""``experiment factorial``: each cell at its best rate, scored apart from what its choice has seen,
and effects that are those which made the figures.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from channelhash.data.folder import load_any
from channelhash.data.splits import Splits
from channelhash.lab.experiments.comparisons import SeedTest, holm
from channelhash.lab.experiments.results import by_method, read_grid
from channelhash.lab.experiments.runner import Execution
from channelhash.lab.experiments.studies import factorial, tuning
from channelhash.metrics.report import evaluate
from channelhash.runs.evaluate import run_codes
from lab.grids import assert_made_again, made_result, named_grid
from small_runs import run_command

LOSSES = ("DSCH", "SCH", "TALR")


def cell(loss, kappa_q, ap):
    """The score that a cell has: the channel 1, the term 2, AP 5 points, 0.5 more with the term."""
    return (loss == "DSCH") - 3 * (loss == "TALR") + 2 * kappa_q / 0.3 + 5 * ap + ap * kappa_q / 0.6


def made_grid(seeds=5, noise=1e-3):
    """Every cell, of a shift of its seed and a little noise; a split a seed."""
    random = np.random.default_rng(0)
    shifts = random.normal(50, 10, seeds)
    runs = []
    for loss, kappa_q, ap, seed in product(LOSSES, (0.0, 0.3), (False, True), range(seeds)):
        if loss == "TALR" and kappa_q:
            continue
        share = (shifts[seed] + cell(loss, kappa_q, ap) + random.normal(0, noise)) / 100
        settings = {"name": loss.lower(), "average_precision": 32.0 * ap}
        settings |= {} if loss == "TALR" else {"kappa_q": kappa_q}
        method = f"{loss}, κ_q = {kappa_q:g}{', AP' * ap}"
        tasks = {"image->text": share - 0.01, "text->image": share + 0.01}
        runs.append(made_result(method, seed, tasks, loss=settings, views=("apart",)))
        runs[-1].settings["data"].update(seed=seed, queries=1, train=5)
    return runs


def test_effects_are_those_that_made_the_figures():
    effects = factorial._effects(made_grid())
    expected = {
        "AP term": 5.2,  # of five pairs, two with the quantisation term
        "AP term in DSCH": 5.25,
        "AP term in SCH": 5.25,
        "AP term in TALR": 5,
        "quantisation term": 2.25,
        "quantisation term in DSCH": 2.25,
        "quantisation term in SCH": 2.25,
        "DSCH − SCH": 1,
        "DSCH − TALR": 4,
        "DSCH, SCH − TALR": 3.5,
        "AP term × (quantisation term)": 0.5,
        "AP term × (DSCH − SCH)": 0,
        "AP term × (DSCH − TALR)": 0,
        "AP term × (DSCH, SCH − TALR)": 0,
        "DSCH, κ_q 0.3, AP − DSCH, AP": 2.5,
        "DSCH, κ_q 0.3, AP − SCH, AP": 3.5,
        "DSCH, κ_q 0.3, AP − SCH, κ_q 0.3, AP": 1,
        "DSCH, κ_q 0.3, AP − TALR, AP": 6.5,
    }
    found = {name: effect.difference for name, effect in effects.items()}
    assert found == pytest.approx(expected, abs=0.01)
    assert all(effect.seeds == 5 for effect in effects.values())


def test_an_effect_is_the_corrected_test_of_pairs_of_seeds():
    runs = made_grid(noise=1)
    scores = {
        (run.method, run.seed): 100
        * np.mean([run.score(task, view="apart") for task in run.tasks("apart")])
        for run in runs
    }
    pairs = [
        (f"DSCH, κ_q = {kappa:g}{ap}", f"SCH, κ_q = {kappa:g}{ap}")
        for kappa in (0, 0.3)
        for ap in ("", ", AP")
    ]
    differences = [
        np.mean([scores[first, seed] - scores[second, seed] for first, second in pairs])
        for seed in range(5)
    ]
    assert factorial._effects(runs)["DSCH − SCH"] == pytest.approx(SeedTest.of(differences, 0.2))


def test_a_table_has_a_column_a_collection_and_their_mean():
    first, second = made_grid(noise=1), [run for run in made_grid(noise=2) if run.seed < 3]
    table = factorial._effects_table({"a": first, "b": second, "c": second[:1]})
    assert table.header == ("Effect", "a", "b", "c", "Mean of collections")
    tests = [factorial._effects(runs) for runs in (first, second)]
    for row in table.rows:
        name, *cells = (each.text for each in row)
        mean = SeedTest.of([each[name].difference for each in tests])
        for test, text in zip((*(each[name] for each in tests), None, mean), cells, strict=True):
            if test is None:
                assert text == "–"
                continue
            numbers = [float(n.strip("[],").replace("−", "-")) for n in text.split()]
            assert numbers == pytest.approx([test.difference, test.lower, test.upper], abs=0.0051)
    corrected = holm([test.p_value for test in tests[0].values()])
    assert [row[1].bold for row in table.rows] == [p <= 0.05 for p in corrected]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(factorial, "EXPERIMENT", replace(factorial.EXPERIMENT, steps=3))


@pytest.mark.parametrize("best", [1e-4, 1e-3, 0.0316, 1e3])
def test_rates_are_widened_until_the_best_is_within(base, tmp_path, monkeypatch, best):
    """Never beyond the limit, a factor of 1000."""
    tried = set()

    def run(grid, *_):
        results = []
        for trial in grid.runs:
            rate = trial.config.train.learning_rate
            tried.add(rate)
            share = 0.5 - 0.01 * abs(np.log10(rate / best))
            results.append(made_result(trial.method, 0, float(share), views=("validation",)))
            results[-1].settings["train"]["learning_rate"] = rate
        return results

    monkeypatch.setattr(tuning, "run_grid", run)
    grid = named_grid("factorial", base, tmp_path, losses=["sch"], seeds=1)
    grids = tuning.choose_rates({"": grid}, tmp_path, Execution())
    chosen = {run.config.train.learning_rate for run in grids[""].runs}
    if best == 1e3:
        assert chosen == {max(tried)} == {1.0}
    else:
        assert chosen == {best}
        assert min(tried) < best < max(tried)


def test_a_grid_takes_its_steps_and_is_scored_apart_from_what_chose_its_rates(base, tmp_path):
    folder = tmp_path / "grid"
    options = ["--loss=talr", "--seeds=2", f"--config={base}", f"--out={folder}"]
    assert run_command("experiment", "factorial", *options) == 0
    _, results = read_grid(folder)
    assert list(by_method(results)) == ["TALR", "TALR, AP"]
    trials = by_method(read_grid(folder / "trials")[1])
    seen = Splits.load(trials["TALR"][0].folder / "splits.json", load_any(tmp_path / "f.npz"))
    rows = np.concatenate([seen.validation_query, seen.validation_retrieval])
    for result in results:
        assert result.settings["train"]["epochs"] == 2  # of 120 rows, in batches of 60
        best = max(trials[result.method], key=tuning.validation_score)
        assert tuning.rate_of(result) == tuning.rate_of(best)
        codes = run_codes(result.folder)
        database = codes.without_training_rows()
        ids = {f"item{row:03d}" for row in rows}
        parts = [
            part.take([row for row, name in enumerate(part.ids) if name not in ids])
            for part in (codes.query, database)
        ]
        assert 0 < len(parts[0].ids) < 40
        tasks = evaluate(*parts)
        for task in tasks:
            score = tasks[task]["map_tie_aware"]
            assert result.score(task, view="apart") == pytest.approx(score)
    assert_made_again("factorial", folder)
