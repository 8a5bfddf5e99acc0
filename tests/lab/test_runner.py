"""Grids: nothing runs twice, a kill loses little, a failure stops no other run; what each leaves in
its folder.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from channelhash.lab.experiments import runner as module
from channelhash.lab.experiments.experiment import (
    DATASETS,
    Design,
    _choose_losses,
    base_configuration,
)
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.runner import Execution, Grid, run_grid
from channelhash.lab.experiments.studies import EXPERIMENTS
from channelhash.runs.evaluate import evaluate_run
from channelhash.utils.locks import locked
from lab.grids import assert_made_again, named_grid
from refusals import check_refusal
from small_runs import assert_refused, grid_base, run_command, run_json


def small(base, folder, seeds=1, losses=("sch", "dsch"), **more):
    return named_grid("losses", base, folder, bits=[8], seeds=seeds, losses=losses, **more)


def times(folder):
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/result.json")}


def test_a_grid_runs_once_and_grows_and_its_results_are_those_of_evaluate(base, tmp_path):
    folder = tmp_path / "grid"
    results = run_grid(small(base, folder), folder)
    assert [(result.method, result.status) for result in results] == [
        ("SCH", "finished"),
        ("DSCH", "finished"),
    ]
    before, lines = times(folder), []
    run_grid(small(base, folder, seeds=2), folder, Execution(notify=lines.append))
    assert "4 runs, 2 of them finished before" in lines[0]
    after = times(folder)
    assert len(after) == 4
    assert all(after[name] == stamp for name, stamp in before.items())
    title, results = read_grid(folder)
    assert (title, len(results)) == ("Losses by code length, features", 4)
    result = results[0]
    for leak_free, view in ((False, "test"), (True, "leak_free")):
        tasks = evaluate_run(result.folder, leak_free=leak_free)["tasks"]
        assert json.loads(json.dumps(tasks)) == result.epochs["last"][view]
    for (checkpoint, view, task), values in result.query_ap.items():
        assert np.nanmean(values) == pytest.approx(
            result.score(task, view=view, checkpoint=checkpoint)
        )
    assert {checkpoint for checkpoint, _, _ in result.query_ap} == {"last", "best"}
    log = [json.loads(line) for line in (result.folder / "log.jsonl").read_text().splitlines()]
    for task, value in log[-1]["validation"].items():
        assert result.score(task, view="validation") == pytest.approx(value)
    with locked(folder / ".lock"):
        check_refusal("another process is running this grid", run_grid, small(base, folder), folder)
    other = small(base, folder, overrides=["train.epochs=4"])
    check_refusal("was made with another configuration or version", run_grid, other, folder)


@pytest.mark.slow
def test_several_jobs_give_the_same(base, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    alone = run_grid(small(base, one), one)
    together = run_grid(small(base, two), two, Execution(jobs=2, devices=("cpu",)))
    assert [result.epochs for result in together] == [result.epochs for result in alone]


def test_a_failed_run_is_shown_and_tried_again(base, tmp_path, monkeypatch):
    folder, real = tmp_path / "grid", module.start_run

    def breaks(config, *arguments):
        if config.loss_name == "sch":
            raise RuntimeError("no luck\ntoday")
        return real(config, *arguments)

    monkeypatch.setattr(module, "start_run", breaks)
    results = {result.method: result for result in run_grid(small(base, folder), folder)}
    assert (results["SCH"].status, results["SCH"].error) == (
        "failed",
        "RuntimeError: no luck today",
    )
    assert results["DSCH"].status == "finished"
    monkeypatch.undo()
    assert {result.status for result in run_grid(small(base, folder), folder)} == {"finished"}
    assert not list(folder.glob("runs/*/failed.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_grid_goes_on(base, tmp_path, jobs):
    folder = tmp_path / "grid"
    options = ["--bits=8", "--seeds=1", f"--config={base}", f"--out={folder}", f"--workers={jobs}"]
    arguments = ["experiment", "losses", *options]
    command = [sys.executable, "-m", "channelhash", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(times(folder)) < 2:
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = times(folder)
    assert 2 <= len(finished) < 4
    assert run_command(*arguments) == 0
    after = times(folder)
    assert len(after) == 4
    assert all(after[name] == stamp for name, stamp in finished.items())


@pytest.mark.slow
def test_a_killed_job_fails_its_run_and_no_other(base, tmp_path, monkeypatch):
    """A run whose process dies is named; the others end in a new pool."""
    folder = tmp_path / "grid"
    grid = small(base, folder, losses=["tdsrdh", "sch", "dsch"])
    monkeypatch.setattr(module, "_run_and_evaluate", _dies_for_tdsrdh)
    outcomes = dict(module._outcomes(grid.runs, folder, Execution(jobs=2), grid))
    assert set(outcomes) == {run.name for run in grid.runs}
    dead = [name for name, error in outcomes.items() if "its process was killed" in error]
    assert dead == ["tdsrdh-k8-seed0"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_of_a_grid_load_their_collection_once(base, tmp_path, monkeypatch, jobs):
    (tmp_path / "mine.py").write_text(LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    grid = small(base, tmp_path / "grid", seeds=2, overrides=["data.kind=python:mine:load"])
    assert {result.status for result in run_grid(grid, tmp_path / "grid", Execution(jobs))} == {
        "finished"
    }
    assert 1 <= len((tmp_path / "loaded.txt").read_text()) <= jobs  # once in each process


LOADER = """
from pathlib import Path
from channelhash.data.features import load_features
def load(path: Path):
    with Path(__file__).with_name("loaded.txt").open("a") as file:
        file.write(".")
    return load_features(path)
"""


def _dies_for_tdsrdh(name, configuration, folder, only_validation, seen):
    if name.startswith("tdsrdh"):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return ""


@pytest.mark.parametrize("dataset", list(DATASETS))
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_grid_fits_every_data_set(name, dataset, tmp_path):
    grid = named_grid(name, dataset, tmp_path, seeds=1)
    assert (grid.name, len({run.name for run in grid.runs})) == (name, len(grid.runs))


@pytest.mark.parametrize(("arguments", "says"), [
    ("loses --config base.yaml", "did you mean 'losses'"),
    ("losses --dataset nuswid", "did you mean 'nuswide'"),
    ("losses --config base.yaml --quick", "goes with --dataset"),
    ("losses --config base.yaml --preset features", "a configuration file or a --preset"),
    ("losses --dataset mirflickr25k --data nowhere", "nowhere"),
    ("losses --config base.yaml --loss dshc", "did you mean 'dsch'?"),
    ("gamma-w --loss dsch", "--loss: experiment gamma-w does not take it; leave it out"),
])  # fmt: skip
@pytest.mark.usefixtures("base")
def test_bad_input_is_named(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "experiment", *arguments.split(), "--out", "g", says=says)


def test_runs_of_one_name_and_folders_without_an_index_are_refused(base, tmp_path):
    (run,) = small(base, tmp_path / "grid", losses=["dsch"]).runs
    twice, says = (
        Grid("losses", "", "", (run, run)),
        "two runs of the grid are called 'dsch-k8-seed0'",
    )
    check_refusal(says, run_grid, twice, tmp_path / "grid")
    check_refusal("not a grid's folder", read_grid, tmp_path)


def test_a_chosen_loss_has_the_settings_and_the_name_that_the_experiment_or_its_authors_give_it():
    losses = {"SCH, mine": {"name": "sch", "tau": 2.0}, "CSQ": {"name": "csq"}}
    names = [
        "sch",
        "dsch",
        "python:my.module:MyLoss",
        "csq",
        "csq:published",
        "python:my.module:published",
    ]
    chosen = _choose_losses(names, losses)
    assert chosen == {
        "SCH, mine": {"name": "sch", "tau": 2.0},
        "DSCH": {"name": "dsch", "kappa_q": 0.01},
        "CSQ": {"name": "csq"},
        "CSQ, published": {"name": "csq", "published": True},
        "MyLoss": {"name": "python:my.module:MyLoss"},
        "published": {"name": "python:my.module:published"},
    }
    base = {"data": {"kind": "synthetic", "root": "data"}, "model": {"name": "small"}}
    recommended = _choose_losses(["dsch", "dsch:recommended"], {})["DSCH, recommended"]
    runs = Design(base, [16, 64], [0]).runs("DSCH, recommended", recommended)
    # of each code length
    assert [run.config.terms.average_precision for run in runs] == [16.0, 64.0]
    (run,) = Design(base, [16], [0]).runs("CSQ, published", chosen["CSQ, published"])
    assert (run.name, run.config.loss.lambda_p) == ("csq-published-k16-seed0", 0.2)
    check_refusal("two losses are called DSCH", _choose_losses, ["dsch", "dsch"], losses)


@pytest.mark.parametrize("override", ["loss.kappa_q=1", "model.n_bits=8", "train.seed=1"])
def test_what_each_run_has_of_its_own_is_not_overridden(tmp_path, override):
    says = f"{override}: each run has its own"
    check_refusal(says, base_configuration, "synthetic", tmp_path, overrides=[override])


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
    command = [
        "experiment",
        "losses",
        "--loss=dsch",
        "--loss=python:study_of_mine:Length",
        "--config",
        grid_base(tmp_path),
    ]
    assert (
        run_command(*command, "--bits", "8", "--seeds", "1", "--workers", jobs, "--out", "grid")
        == 0
    )
    results = read_grid(tmp_path / "grid")[1]
    assert [(result.method, result.status) for result in results] == [
        ("DSCH", "finished"),
        ("Length", "finished"),
    ]
    assert "| Length |" in (tmp_path / "grid" / "tables" / "losses-test-last.md").read_text()
    assert (
        "Length against DSCH"
        in (tmp_path / "grid" / "tables" / "significance-test-last.tex").read_text()
    )
    assert (tmp_path / "grid" / "plots" / "training-k8.png").stat().st_size > 5_000


def test_an_experiment_of_ones_own_runs(in_folder, tmp_path, capsys):
    command = [
        "experiment",
        "python:study_of_mine:MINE",
        "--config",
        grid_base(tmp_path),
        "--bits",
        "8",
    ]
    assert run_command(*command, "--seeds", "1") == 0
    title, results = read_grid(tmp_path / "experiments" / "mine-base")
    assert (title, [result.name for result in results]) == (
        "My losses, features",
        ["length-k8-seed0"],
    )
    other = "python:study_of_mine:Length"
    assert_refused(capsys, "experiment", other, says=f"{other}: is not an Experiment")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bits", "tables", "plots"), [
    ("losses", (8, 12), ["losses-test-last", "significance-test-last"], ["map-over-bits"]),
    ("gamma-w", (8,), ["gamma-w-validation-last", "gamma-w-test-last"], ["gamma-w-k8-kq0.01"]),
])  # fmt: skip
def test_each_grid_leaves_its_tables_plots_and_scores(tmp_path, capsys, name, bits, tables, plots):
    out = tmp_path / "grid"
    options = [f"--config={grid_base(tmp_path)}", "--seeds=2", f"--out={out}"]
    arguments = ["experiment", name, *options, *(f"--bits={length}" for length in bits)]
    arguments += ["--loss=sch", "--loss=dsch"] if name == "losses" else []
    printed = run_json(capsys, *arguments)
    assert all(len(run["tasks"]) == 4 for run in printed["runs"])
    assert all(Path(path).exists() for path in printed["tables"])
    for table in tables:
        assert {path.suffix for path in (out / "tables").glob(f"{table}.*")} == {
            ".md",
            ".tex",
            ".csv",
        }
    for plot in plots:
        assert (out / "plots" / f"{plot}.png").stat().st_size > 5_000
        assert (out / "plots" / f"{plot}.svg").exists()
    _, results = read_grid(out)
    with open(out / "runs.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    assert len({(run["data"], run["splits"]) for run in runs}) == 1
    scores = results[0].epochs["best"]["leak_free"]["image->text"]
    assert float(runs[0]["best/leak_free/image->text/map_at/50"]) == scores["map_at"]["50"]
    assert_made_again(name, out)
    assert run_command("report", out) == 0
    assert name in (out / "report.html").read_text().lower()
