"""``experiment robustness``: queries are perturbed after the training, labels before."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

from channelhash.codes import binarize, pack
from channelhash.data.collection import load_collection
from channelhash.data.label_noise import noisy_labels
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies import robustness
from channelhash.lab.experiments.studies.robustness import CORRUPTIONS, perturbed_scores
from channelhash.metrics import evaluate
from channelhash.models.small import unit_pixels
from channelhash.runs import train as train_module
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import open_run
from lab.experiments.made_grids import assert_made_again
from small_runs import assert_refused, grid_base, run_command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One loss, clean and with half of the labels wrong, on drawn pictures; labels given to the loss are kept."""
    folder = tmp_path_factory.mktemp("robustness")
    sections = {
        "data": {"kind": "synthetic", "root": str(folder / "data"), "n_images": 120, "queries": 15, "train": 64},
        "model": {"name": "small", "image_size": 16, "width": 8, "text_width": 16, "hidden": [16]},
        "train": {"epochs": 1, "batch_size": 32, "learning_rate": 1e-3, "validate_every": 0},
    }
    (folder / "base.yaml").write_text(yaml.safe_dump(sections))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robustness, "LABEL_NOISE", (0.0, 0.5))
        patch.setattr(robustness, "CORRUPTIONS", {key: CORRUPTIONS[key] for key in ("noise, σ", "JPEG, quality")})
        patch.setattr(robustness, "ATTACKS", (4,))
        command = ["experiment", "robustness", "--losses", "dsch", "--config", folder / "base.yaml", "--seeds", "1"]
        assert run_command(*command, "--bits", "16", "--out", folder / "grid") == 0
        yield folder / "grid"


def test_the_scores_are_those_of_perturbed_queries_against_the_codes_as_they_are(folder):
    clean = read_grid(folder)[1][0]
    scores = perturbed_scores(clean.folder)
    assert set(scores) == {
        *(f"noise, σ|{size}" for size in (0.05, 0.1, 0.2)),
        *(f"JPEG, quality|{size}" for size in (30, 15, 5)),
        "attack, ε in 255ths|4",
        *(f"tags {what}|{size}" for what in ("dropped", "replaced") for size in (0.25, 0.5, 0.75)),
    }
    run, codes = open_run(clean.folder), run_codes(clean.folder)
    queries = run.collection.records.take(run.splits.query)
    pixels = unit_pixels(run.model.prepare("image", queries.items["image"]))
    changed = robustness.add_noise(pixels, 0.1, seed=0)
    query = pack(binarize(run.model.outputs_prepared({"image": changed})["image"]))
    expected = evaluate(replace(codes.query, codes={"image": query}), codes.retrieval)
    assert set(scores["noise, σ|0.1"]) == set(expected) == {"image->text", "image->image"}
    for task, report in expected.items():
        assert scores["noise, σ|0.1"][task] == pytest.approx(report["map_tie_aware"], abs=1e-12)
    assert set(scores["tags dropped|0.5"]) == {"text->image", "text->text"}


def test_tables_show_every_perturbation_beside_the_queries_as_they_are(folder):
    text = (folder / "tables" / "robustness-image.md").read_text()
    clean = read_grid(folder)[1][0]
    assert f"| as they are |  | {100 * clean.score('image->text'):.2f} |" in text
    assert text.count("| noise, σ |") == 1, "a block a perturbation"
    labels = (folder / "tables" / "robustness-labels.md").read_text()
    assert "| labels of others | 0 |" in labels
    assert "| 0.5 |" in labels
    assert (folder / "tables" / "robustness-text.md").exists()


def test_labels_are_wrong_in_training_alone(folder, monkeypatch, tmp_path):
    noisy = read_grid(folder)[1][1]
    assert noisy.method == "DSCH, labels of others 0.5"
    run = open_run(noisy.folder)
    given = []
    monkeypatch.setattr(
        train_module, "fit", lambda trainee, loss, targets, *more: given.append(targets) or trainee.model
    )
    train_module._train(run.config, noisy.folder, lambda stage: None)
    records = load_collection(run.config.sources).records
    right = records.labels[run.splits.train]
    np.testing.assert_array_equal(given[0].numpy(), noisy_labels(right, 0.5, seed=0))
    assert 20 <= (given[0].numpy() != right).any(axis=1).sum() <= 32
    np.testing.assert_array_equal(run_codes(noisy.folder).query.labels, records.labels[run.splits.query])


def test_scores_are_kept(folder):
    clean = read_grid(folder)[1][0].folder
    kept = json.loads((clean / "robustness.json").read_text())
    assert kept == perturbed_scores(clean)
    assert_made_again("robustness", folder)


def test_features_cannot_be_perturbed(tmp_path, capsys):
    command = ["experiment", "robustness", "--losses", "sch", "--config", grid_base(tmp_path), "--seeds", "1"]
    out = ["--bits", "8", "--out", tmp_path / "grid"]
    assert_refused(capsys, *command, *out, says="reads neither pixels nor tokens")
