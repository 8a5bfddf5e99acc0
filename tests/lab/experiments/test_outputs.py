"""What an experiment leaves in its folder."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from channelhash.lab.experiments.results import read_grid
from lab.experiments.made_grids import assert_made_again
from small_runs import run_command, write_features


@pytest.fixture
def base(tmp_path):
    sections = {
        "data": {"kind": "features", "path": str(write_features(tmp_path / "f.npz")), "queries": 40, "train": 120},
        "model": {"name": "features", "hidden": [16]},
        "train": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-3, "validate_every": 1},
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(sections))
    return tmp_path / "base.yaml"


@pytest.mark.parametrize(
    ("name", "bits", "tables", "plots"),
    [
        ("losses", "8,12", ["losses-test-last", "significance-test-last", "wins-test-last"], ["map-over-bits"]),
        pytest.param(
            *("gamma-w", "8", ["gamma-w-validation-last", "gamma-w-test-last"], ["gamma-w-k8-kq0.01"]),
            marks=pytest.mark.slow,
        ),
        pytest.param(*("factorial", "8", ["losses-test-last", "effects-k8"], ["training-k8"]), marks=pytest.mark.slow),
    ],
)
def test_each_grid_leaves_its_tables_plots_and_scores(base, tmp_path, capsys, name, bits, tables, plots):
    out = tmp_path / "grid"
    arguments = ["experiment", name, "--config", base, "--bits", bits, "--seeds", "2", "--out", out]
    assert run_command(*arguments, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
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
    assert len({run["configuration"] for run in runs}) == len(runs)
    assert len({(run["data"], run["splits"]) for run in runs}) == 1
    for task, scores in results[0].epochs["best"]["leak_free"].items():
        column = f"best/leak_free/{task}"
        assert float(runs[0][f"{column}/map_tie_aware"]) == scores["map_tie_aware"]
        assert float(runs[0][f"{column}/map_at/50"]) == scores["map_at"]["50"]
    assert_made_again(name, out)
    assert run_command("report", out) == 0
    assert name in (out / "report.html").read_text().lower()
