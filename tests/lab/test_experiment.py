"""The record of an experiment, and what it leaves in its folder."""

import csv
from pathlib import Path

import pytest

from channelhash.lab.experiments.experiment import Design, _choose_losses
from channelhash.lab.experiments.results import read_grid
from lab.grids import assert_made_again
from refusals import check_refusal
from small_runs import assert_refused, grid_base, run_command, run_json


def test_a_chosen_loss_has_the_settings_and_the_name_that_the_experiment_or_its_authors_give_it():
    losses = {"SCH, mine": {"name": "sch", "tau": 2.0}, "CSQ": {"name": "csq"}}
    names = ["sch", "dsch", "python:my.module:MyLoss", "csq", "csq:published", "python:my.module:published"]
    chosen = _choose_losses(names, losses)
    assert chosen == {
        "SCH, mine": {"name": "sch", "tau": 2.0}, "DSCH": {"name": "dsch", "kappa_q": 0.01}, "CSQ": {"name": "csq"},
        "CSQ, published": {"name": "csq", "published": True}, "MyLoss": {"name": "python:my.module:MyLoss"},
        "published": {"name": "python:my.module:published"},
    }  # fmt: skip
    base = {"data": {"kind": "synthetic", "root": "data"}, "model": {"name": "small"}}
    (run,) = Design(base, [16], [0]).runs("CSQ, published", chosen["CSQ, published"])
    assert (run.name, run.config.loss.lambda_p) == ("csq-published-k16-seed0", 0.2)
    check_refusal("two losses are called DSCH", _choose_losses, ["dsch", "dsch"], losses)


OWN = {"study_of_mine": """
from channelhash.lab.experiments.experiment import Experiment
from channelhash.lab.experiments.tables import all_views, losses_table
from channelhash.losses import HashLoss

class Length(HashLoss):
    def compute(self, batch):
        return (batch.codes.square().mean() - 1) ** 2

MINE = Experiment(
    name="mine",
    title="My losses",
    losses={"Length": {"name": "python:study_of_mine:Length"}},
    tables=lambda results: all_views(losses_table, results),
)
"""}  # fmt: skip


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loss_of_ones_own_is_compared(in_folder, tmp_path, jobs):
    command = ["experiment", "losses", "--losses", "dsch,python:study_of_mine:Length", "--config", grid_base(tmp_path)]
    assert run_command(*command, "--bits", "8", "--seeds", "1", "--jobs", jobs, "--out", "grid") == 0
    results = read_grid(tmp_path / "grid")[1]
    assert [(result.method, result.status) for result in results] == [("DSCH", "finished"), ("Length", "finished")]
    assert "| Length |" in (tmp_path / "grid" / "tables" / "losses-test-last.md").read_text()
    assert "Length against DSCH" in (tmp_path / "grid" / "tables" / "significance-test-last.tex").read_text()
    assert (tmp_path / "grid" / "plots" / "training-k8.png").stat().st_size > 5_000


def test_an_experiment_of_ones_own_runs(in_folder, tmp_path, capsys):
    command = ["experiment", "python:study_of_mine:MINE", "--config", grid_base(tmp_path), "--bits", "8"]
    assert run_command(*command, "--seeds", "1") == 0
    title, results = read_grid(tmp_path / "experiments" / "mine-base")
    assert (title, [result.name for result in results]) == ("My losses, features", ["length-k8-seed0"])
    other = "python:study_of_mine:Length"
    assert_refused(capsys, "experiment", other, says=f"{other}: is not an Experiment")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bits", "tables", "plots"), [
    ("losses", "8,12", ["losses-test-last", "significance-test-last"], ["map-over-bits"]),
    ("gamma-w", "8", ["gamma-w-validation-last", "gamma-w-test-last"], ["gamma-w-k8-kq0.01"]),
    ("factorial", "8", ["losses-test-last", "effects-k8"], ["training-k8"]),
])  # fmt: skip
def test_each_grid_leaves_its_tables_plots_and_scores(tmp_path, capsys, name, bits, tables, plots):
    out = tmp_path / "grid"
    arguments = ["experiment", name, "--config", grid_base(tmp_path), "--bits", bits, "--seeds", "2", "--out", out]
    arguments += ["--losses", "sch,dsch"] if name == "losses" else []
    printed = run_json(capsys, *arguments)
    assert all(len(run["tasks"]) == 4 for run in printed["runs"])
    assert all(Path(path).exists() for path in printed["tables"])
    for table in tables:
        assert {path.suffix for path in (out / "tables").glob(f"{table}.*")} == {".md", ".tex", ".csv"}
    for plot in plots:
        assert (out / "plots" / f"{plot}.png").stat().st_size > 5_000
        assert (out / "plots" / f"{plot}.svg").exists()
    _, results = read_grid(out)
    with open(out / "runs.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    assert [run["run"] for run in runs] == [result.name for result in results]
    assert len({(run["data"], run["splits"]) for run in runs}) == 1
    for task, scores in results[0].epochs["best"]["leak_free"].items():
        column = f"best/leak_free/{task}"
        assert float(runs[0][f"{column}/map_tie_aware"]) == scores["map_tie_aware"]
        assert float(runs[0][f"{column}/map_at/50"]) == scores["map_at"]["50"]
    assert_made_again(name, out)
    assert run_command("report", out) == 0
    assert name in (out / "report.html").read_text().lower()
