"""``experiment channels``: every channel's weights are chosen by the same trials, and used at every code length."""

import pytest

from channelhash.lab.experiments import tuning
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies import channels
from channelhash.lab.experiments.studies.channels import TUNED
from channelhash.lab.experiments.tables.channels import own_effects, own_effects_tables, trials_table
from channelhash.lab.experiments.tuning import best_trials, rate_of, weights_of
from lab.experiments.made_grids import named_grid
from lab.experiments.made_results import made_result
from small_runs import grid_base, run_command


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return grid_base(tmp_path_factory.mktemp("base"))


def test_the_grid_has_the_published_losses_and_every_tuned_channel(base, tmp_path):
    grid = named_grid("channels", base, tmp_path, seeds=5)
    assert len(grid.runs) == (2 + len(TUNED)) * 4 * 5
    assert {run.config.loss_name for run in grid.runs if run.method in TUNED} == {"sch", "dsch", "bsch", "rsch"}


def test_the_command_tunes_each_channel_and_keeps_its_weights(base, monkeypatch):
    monkeypatch.setattr(channels, "KAPPA_Q", {"BSCH, tuned": (0.1, 0.3), "RSCH, tuned": (0.0,)})
    monkeypatch.setattr(channels, "AVERAGE_PRECISION_PER_BIT", (0.25,))
    monkeypatch.setattr(tuning, "RATE_FACTORS", (1.0, 2.0))
    kept = {method: TUNED[method] for method in ("BSCH, tuned", "RSCH, tuned")}
    monkeypatch.setattr(channels, "TUNED", kept)
    folder = base.parent / "grid"
    assert (
        run_command("experiment", "channels", "--config", base, "--bits", "8,16", "--seeds", "1", "--out", folder) == 0
    )
    trials = read_grid(folder / "tuning")[1]
    assert {(trial.method, *weights_of(trial)) for trial in trials} == {
        ("BSCH, tuned", 0.1, 0.25),
        ("BSCH, tuned", 0.3, 0.25),
        ("RSCH, tuned", 0.0, 0.25),
    }
    rates = best_trials(read_grid(folder / "tuning-rates")[1])
    results = read_grid(folder)[1]
    for method, best in best_trials(trials).items():
        mine = [result for result in results if result.method == method]
        assert len(mine) == 2  # code lengths
        assert {weights_of(result) for result in [rates[method], *mine]} == {weights_of(best)}
    assert {rate_of(result) / rate_of(trials[0]) for result in read_grid(folder / "tuning-rates")[1]} == {1.0, 2.0}
    for result in results:
        assert rate_of(result) == rate_of(rates[result.method])
    published = [result for result in results if result.method == "DSCH, as published"]
    assert {weights_of(result) for result in published} == {(0.01, 0.0)}
    lines = {path.name for path in (folder / "tables").glob("*.md")}
    assert {
        "losses-test-last.md",
        "ndcg-graded-test-last.md",
        "trials.md",
        "learning-rates.md",
        "significance-test-last.md",
    } <= lines


def test_the_chosen_trial_is_bold():
    def trial(kappa_q, score):
        result = made_result("BSCH, tuned", 0, score, views=("validation",))
        result.settings["loss"] |= {"kappa_q": kappa_q, "average_precision": 0.0}
        return result

    table = trials_table([trial(0.03, 0.5), trial(0.1, 0.7), trial(0.3, 0.6)])
    assert [[(cell.text, cell.bold) for cell in row[1:]] for row in table.rows] == [
        [("0.03", False), ("50.00", False)],
        [("0.1", False), ("70.00", True)],
        [("0.3", False), ("60.00", False)],
    ]


def test_the_own_channel_is_compared_with_each_other_one_seed_by_seed():
    shares = {"SCH, tuned": (0.50, 0.52), "DSCH, tuned": (0.48, 0.49), "RSCH, tuned": (0.53, 0.56)}
    results = [made_result(method, seed, shares[method][seed]) for method in shares for seed in (0, 1)]
    for result in results:
        for figures in result.epochs["last"]["test"].values():
            figures["ndcg_graded"] = figures["map_tie_aware"] / 2
    found = {effect.name: effect for effect in own_effects(results) if effect.task == "image->text"}
    assert set(found) == {"RSCH, tuned − SCH, tuned", "RSCH, tuned − DSCH, tuned"}
    assert found["RSCH, tuned − SCH, tuned"].difference == pytest.approx(3.5)
    names = [table.name for table in own_effects_tables(results)]
    assert names == ["effects-k32", "ndcg-graded-effects-k32"]
