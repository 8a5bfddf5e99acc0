"""The study of codes that know labels and pairs."""

import json

import pytest
import yaml

from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies import both
from lab.experiments.made_grids import assert_made_again
from small_runs import run_command, write_features


def test_the_experiment_draws_the_front_between_labels_and_pairs(tmp_path, monkeypatch):
    small = {"epochs": 1, "batch_size": 60, "learning_rate": 1e-3}
    monkeypatch.setattr(both, "_OF_LABELS", {"model": {"hidden": [8]}, "train": small})
    monkeypatch.setattr(both, "_OF_BOTH", {"model": {"name": "both", "hidden": [8]}, "train": small})
    monkeypatch.setattr(both, "SPLITS", (0, 1))
    monkeypatch.setattr(both, "SHARES", (0.0, 0.6, 1.0))
    data = {"kind": "features", "path": str(write_features(tmp_path / "f.npz")), "queries": 40, "train": 120}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"data": data, "model": {"name": "features"}, "train": {}}))
    command = ["experiment", "both", "--config", tmp_path / "c.yaml", "--bits", "10", "--seeds", "1"]
    assert run_command(*command, "--out", tmp_path / "g", "--json") == 0
    _, results = read_grid(tmp_path / "g")
    assert [result.method for result in results] == ["labels alone", "pairs alone", "both"] * 2
    assert [result.settings["data"]["seed"] for result in results] == [0, 0, 0, 1, 1, 1]
    for result in results:
        scores = json.loads((result.folder / "both.json").read_text())
        front = ["0 + 10", "6 + 4", "10 + 0"]
        assert list(scores) == (front if result.method == "both" else [result.method])
        # As the run was trained, `both` has the second share.
        test = scores["6 + 4" if result.method == "both" else result.method]["test"]
        assert test["image->text"][0] == pytest.approx(result.score("image->text"))
        # 10 of 240 items: harder than among the 40 queries alone.
        assert test["image->text"][1] <= result.epochs["last"]["test"]["image->text"]["recall_at"]["10"]
    table = (tmp_path / "g" / "tables" / "both.md").read_text()
    assert all(method in table for method in ("labels alone", "pairs alone", *front))
    assert (tmp_path / "g" / "plots" / "front-k10.png").exists()
    assert_made_again("both", tmp_path / "g")
