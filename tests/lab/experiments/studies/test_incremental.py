"""The experiment with labels that come later: which runs there are, and whose codes its figures are of."""

import json

import numpy as np
import pytest

import channelhash as ch
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies.incremental import GROUPS
from channelhash.metrics import hamming_histogram
from channelhash.runs.evaluate import run_codes
from lab.experiments.made_grids import assert_made_again
from small_runs import assert_refused, feature_config, run_command, write_features


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("incremental")
    features = write_features(folder / "f.npz", 300)
    config = feature_config(folder / "c.yaml", features, validate_every=0, batch_size=16, epochs=1)
    command = ["experiment", "incremental", "--config", config, "--bits", "12", "--new-labels", "label 4, label 5"]
    assert run_command(*command, "--seeds", "2", "--out", folder / "g") == 0
    return folder


@pytest.mark.slow
def test_four_methods_search_one_collection(grid):
    _, results = read_grid(grid / "g")
    runs = {result.name: result for result in results}
    whole = run_codes(runs["retrained-re-encoded-k12-seed0"].folder)
    for name in ("extension-k12-seed0", "fine-tuning-k12-seed0", "extension-k12-seed1"):
        codes = run_codes(runs[name].folder)
        assert sorted(codes.query.ids) == sorted(whole.query.ids)
        assert sorted(codes.retrieval.ids) == sorted(whole.retrieval.ids)
        stored = ch.CodeSet.load(runs[name].folder / "codes" / "stored.parquet")
        assert all(np.array_equal(codes.retrieval.codes[m][: len(stored)], stored.codes[m]) for m in stored.codes)
    table = (grid / "g" / "tables" / "incremental.md").read_text()
    for method in ("old model", "extension", "fine-tuning", "retrained, re-encoded"):
        assert table.count(f"| {method} |") == 3
    assert "[" in (grid / "g" / "tables" / "incremental-loss.md").read_text()
    assert_made_again("incremental", grid / "g")


@pytest.mark.slow
def test_figures_are_of_each_group_of_queries(grid):
    folder = grid / "g" / "runs" / "extension-k12-seed0"
    codes, found = run_codes(folder), json.loads((folder / "incremental.json").read_text())
    query, database = codes.query, codes.retrieval
    assert query.label_names[-2:] == ("label 4", "label 5")
    is_new = query.labels[:, -2:].any(axis=1)
    for group, rows, columns in zip(GROUPS, (~is_new, is_new, is_new), (slice(6), slice(6), slice(4, 6)), strict=True):
        histogram = hamming_histogram(
            query.codes["text"][rows],
            database.codes["image"],
            query.labels[rows][:, columns],
            database.labels[:, columns],
            n_bits=12,
        )
        assert found[group]["text->image"] == pytest.approx(histogram.mean_average_precision())
    old = json.loads((folder / "old-model.json").read_text())
    assert old[GROUPS[0]].keys() == found[GROUPS[0]].keys()
    assert old != found


def test_labels_have_to_be_named(tmp_path, capsys):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz", 60))
    command = ["experiment", "incremental", "--config", config, "--out", tmp_path / "g"]
    assert_refused(capsys, *command, says="--new-labels cat,dog")
    assert_refused(capsys, *command, "--new-labels", "label 9", says="no label 'label 9'")
    command[1] = "losses"
    assert_refused(capsys, *command, "--new-labels", "label 5", says="--new-labels: experiment losses does not take it")
