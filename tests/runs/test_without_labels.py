"""Training and evaluation by pairs of an image and a text: several texts an image, and no
labels.
"""

import numpy as np
import pytest
import torch

import channelhash as ch
from channelhash.config import read_config
from channelhash.data.collection import describe
from channelhash.data.features import load_features
from channelhash.data.splits import draw_splits
from channelhash.lab.experiments.runner import _run_and_evaluate
from channelhash.training.validation import read_log
from small_runs import assert_refused, feature_config, run_command, run_json, run_text, write_pairs


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """100 pictures with two texts each: both sides know the picture, and the texts noise."""
    return write_pairs(tmp_path_factory.mktemp("pairs") / "f.npz", 100, (20, 12), (0.0, 0.1))


@pytest.fixture(scope="module")
def run(features):
    config = feature_config(
        features.parent / "c.yaml", features, loss="contrastive", epochs=12, learning_rate=3e-3
    )
    return ch.train(config, ["model.n_bits=32"], out=features.parent / "run")


def test_texts_of_one_image_stay_on_one_side(features):
    records = load_features(features)
    assert records.pair_ids[:4] == ("text000", "text000", "text002", "text002")
    splits = draw_splits(records, 40, 80, seed=3)
    assert splits.counts()["query"] == 40
    parts = (splits.query, splits.train, splits.validation_query, splits.validation_retrieval)
    assert all(sorted({row ^ 1 for row in part.tolist()}) == part.tolist() for part in parts)


def test_pairs_are_learned_validated_and_evaluated_by_recall(run, capsys):
    assert (run.measure, list(run.validation)) == ("recall_at_10", ["image->text", "text->image"])
    assert min(run.validation.values()) > 0.9
    log = read_log(run.folder / "log.jsonl")
    assert {entry["measure"] for entry in log if "validation" in entry} == {"recall_at_10"}
    assert (run.folder / "checkpoints" / "best").exists()
    result = run_json(capsys, "evaluate", run.folder)
    for task, (queries, items) in {"image->text": (20, 40), "text->image": (40, 20)}.items():
        scores = result["tasks"][task]
        assert set(scores) == {"recall_at", "median_rank", "recall_items", "queries", "skipped"}
        assert (scores["queries"], scores["recall_items"]) == (queries, items)
        assert scores["recall_at"]["10"] > 0.9 > 10 / items
    shown = run_text(capsys, "evaluate", run.folder)
    assert run_command("report", run.folder) == 0
    assert "No labels: each query's own counterpart is searched" in shown
    assert "Recall@10 image → text" in (run.folder / "report.html").read_text()


def test_losses_of_labels_and_data_of_one_modality_are_refused_in_one_line(
    features, tmp_path, capsys
):
    config = feature_config(tmp_path / "c.yaml", features, loss="csq")
    alone = dict(np.load(features))
    del alone["image"]
    np.savez(tmp_path / "alone.npz", **alone)
    texts = [f"--set=data.path={tmp_path / 'alone.npz'}"]
    pairs = [*texts, "--set=loss.name=contrastive"]
    for settings, says in (
        ([], "'csq' learns from labels, and this collection has none; take contrastive, or dsch"),
        (pairs, "contrastive: learns from pairs of an image and a text, and there are only"),
        (
            [*texts, "--set=loss.name=dsch"],
            "the data has only texts and no labels: nothing says which are alike",
        ),
    ):
        assert_refused(capsys, "train", config, "--out", tmp_path / "run", *settings, says=says)


def test_what_can_be_measured_is_described(features, capsys):
    result = describe(load_features(features))
    assert (result["labels"], result["measures"], result["problems"]) == ({}, ["recall"], [])
    shown = run_text(capsys, "data", "describe", "features", "--data", features)
    assert "No labels: pairs of an image and a text can be learned" in shown
    assert "Labels" not in shown


def test_the_same_training_with_labels_is_evaluated_by_both(features, tmp_path):
    arrays = dict(np.load(features))
    labels = np.zeros((len(arrays["id"]), 2), dtype=bool)
    labels[:100, 0] = labels[50:150, 1] = True  # a quarter of the rows has none
    np.savez(tmp_path / "f.npz", labels=labels, **arrays)
    config = feature_config(tmp_path / "c.yaml", tmp_path / "f.npz", epochs=1)
    run = ch.train(config, ["loss.pairs=1"], out=tmp_path / "run")
    assert run.measure == "map_tie_aware"
    assert torch.isfinite(torch.tensor(run.loss))
    scores = ch.evaluate(run)
    assert {"map_tie_aware", "recall_at", "median_rank"} <= scores["text->image"].keys()
    assert "recall_at" not in scores["text->text"]


def test_an_experiment_says_that_it_compares_by_labels(features, tmp_path):
    config = read_config(feature_config(tmp_path / "c.yaml", features, epochs=1))
    error = _run_and_evaluate("run", config.to_yaml(), tmp_path)
    assert error == (
        "InputError: an experiment compares mAP by labels, this collection has none; "
        "train and evaluate each run"
    )
    assert not (tmp_path / "runs" / "run" / "log.jsonl").exists()
