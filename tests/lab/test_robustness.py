"""Perturbations keep shapes and grow with their size; queries are perturbed after the training,
labels before.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from channelhash.codes import binarize, pack
from channelhash.data.collection import Collection
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies import robustness
from channelhash.lab.experiments.studies.robustness import (
    _CORRUPTIONS,
    _TAG_NOISE,
    _attack,
    _perturbed_scores,
)
from channelhash.metrics import evaluate
from channelhash.models.backbones import unit_pixels
from channelhash.models.hash_model import Branch
from channelhash.models.small import _SmallConvNet
from channelhash.runs import train as train_module
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import open_run
from channelhash.runs.train import _noisy_labels
from lab.grids import assert_made_again
from small_runs import assert_refused, grid_base, run_command


@pytest.fixture(scope="module")
def pixels():
    """Smooth pictures: waves of two colours."""
    at = torch.linspace(0, 6, 64)
    wave = 0.5 + 0.4 * torch.sin(at[:, None] + at)
    return torch.stack(
        [torch.stack([wave, wave.flip(0), 1 - wave]), torch.stack([wave, 1 - wave, wave.flip(1)])]
    )


@pytest.mark.parametrize("name", _CORRUPTIONS)
def test_a_corruption_grows_with_its_size_and_stays_a_picture(name, pixels):
    apply, sizes = _CORRUPTIONS[name]
    assert list(sizes) in (sorted(sizes), sorted(sizes, reverse=True))
    distances = []
    for size in sizes:
        changed = apply(pixels, size, 3)
        assert (changed.shape, changed.dtype) == (pixels.shape, torch.float32)
        assert 0 <= changed.min() <= changed.max() <= 1
        assert torch.equal(changed, apply(pixels, size, 3)), "one seed, one draw"
        distances.append((changed - pixels).square().mean().item())
    assert 0 < distances[0] < distances[1] < distances[2]


@pytest.mark.parametrize("name", _TAG_NOISE)
def test_noise_of_tags_changes_their_share_and_no_padding(name):
    tokens = torch.arange(1, 4001, dtype=torch.int32).view(100, 40)
    tokens[:, 30:] = 0
    apply, sizes = _TAG_NOISE[name]
    for size in sizes:
        changed = apply(tokens, size, 0)
        assert (changed.shape, changed.dtype) == (tokens.shape, torch.int32)
        assert not changed[:, 30:].any()
        assert set(changed.flatten().tolist()) <= set(tokens.flatten().tolist())
        kept = sum(
            len(set(old) & set(new) - {0})
            for old, new in zip(tokens.tolist(), changed.tolist(), strict=True)
        )
        assert kept / 3000 == pytest.approx(1 - size, abs=0.04)


def test_tags_are_dropped_in_their_order_but_the_last_and_replaced_by_all_alike():
    dropped, replaced = (_TAG_NOISE[f"tags {what}"][0] for what in ("dropped", "replaced"))
    tokens = torch.arange(1, 7, dtype=torch.int32).repeat(500, 1)
    for share in (0.4, 1):
        for row in dropped(tokens, share, 0).tolist():
            real = [token for token in row if token]
            assert row == sorted(real) + [0] * (6 - len(real))
            assert len(real) == 1 if share == 1 else real
    drawn = replaced(tokens, 1, 0).flatten().bincount(minlength=7)
    assert (drawn[1:] / 3000).tolist() == pytest.approx([1 / 6] * 6, abs=0.04)


@pytest.mark.parametrize("epsilon", [1 / 255, 4 / 255])
def test_an_attack_stays_within_its_bound_and_moves_more_bits_than_noise(pixels, epsilon):
    torch.manual_seed(0)
    encoder = _SmallConvNet(8)
    branch = Branch(lambda pixels: pixels, encoder, torch.nn.Linear(encoder.n_features, 16)).eval()
    changed = _attack(branch, pixels, epsilon)
    assert (changed - pixels).abs().max() <= epsilon + 1e-6
    assert 0 <= changed.min() <= changed.max() <= 1
    with torch.no_grad():
        clean, attacked = branch(pixels), branch(changed)
        noise = branch((pixels + epsilon * torch.randn_like(pixels).sign()).clamp(0, 1))
    signs = torch.where(clean >= 0, 1.0, -1.0)
    agreement = [(signs * torch.tanh(values)).mean() for values in (clean, noise, attacked)]
    assert agreement[2] < min(agreement[:2])


def test_an_encoder_without_gradients_cannot_be_attacked(pixels):
    class Opaque(torch.nn.Module):
        def forward(self, values):
            return values.detach().flatten(1)[:, :4]

    assert (
        _attack(Branch(lambda pixels: pixels, Opaque(), torch.nn.Identity()), pixels, 0.1) is None
    )


labels = arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 4)))


@settings(max_examples=50)
@given(labels=labels, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_noisy_labels_are_those_of_other_rows(labels, share, seed):
    noisy = _noisy_labels(labels, share, seed)
    assert (noisy != labels).any(axis=1).sum() <= round(share * len(labels))
    assert {tuple(row) for row in noisy.tolist()} <= {tuple(row) for row in labels.tolist()}
    distinct, expected = (
        np.eye(len(labels), dtype=bool),
        round(share * len(labels)) if len(labels) > 1 else 0,
    )
    assert (_noisy_labels(distinct, share, seed) != distinct).any(axis=1).sum() == expected


@pytest.fixture
def folder(tmp_path):
    """One loss, clean and with half of the labels wrong, on drawn pictures."""
    sections = {
        "data": {
            "kind": "synthetic",
            "root": str(tmp_path / "data"),
            "n_images": 120,
            "queries": 15,
            "train": 64,
        },
        "model": {"name": "small", "image_size": 16, "width": 8, "text_width": 16, "hidden": [16]},
        "train": {"epochs": 1, "batch_size": 32, "learning_rate": 1e-3, "validate_every": 0},
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(sections))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robustness, "_LABEL_NOISE", (0.0, 0.5))
        patch.setattr(
            robustness,
            "_CORRUPTIONS",
            {key: _CORRUPTIONS[key] for key in ("noise, σ", "JPEG, quality")},
        )
        patch.setattr(robustness, "_ATTACKS", (4,))
        command = [
            "experiment",
            "robustness",
            "--loss",
            "dsch",
            "--config",
            tmp_path / "base.yaml",
            "--seeds",
            "1",
        ]
        assert run_command(*command, "--bits", "16", "--out", tmp_path / "grid") == 0
        yield tmp_path / "grid"


def test_queries_are_perturbed_against_the_codes_as_they_are(folder, monkeypatch):
    clean = read_grid(folder)[1][0]
    scores = _perturbed_scores(clean.folder)
    assert scores == json.loads((clean.folder / "robustness.json").read_text()), "scores are kept"
    assert_made_again("robustness", folder)
    assert set(scores) == {
        *(f"noise, σ|{size}" for size in (0.05, 0.1, 0.2)),
        *(f"JPEG, quality|{size}" for size in (30, 15, 5)),
        "attack, ε in 255ths|4",
        *(f"tags {what}|{size}" for what in ("dropped", "replaced") for size in (0.25, 0.5, 0.75)),
    }
    run, codes = open_run(clean.folder), run_codes(clean.folder)
    queries = run.collection.records.take(run.splits.query)
    pixels = unit_pixels(run.model.prepare("image", queries.items["image"]))
    changed = robustness._add_noise(pixels, 0.1, seed=0)
    query = pack(binarize(run.model.outputs_prepared({"image": changed})["image"]))
    expected = evaluate(replace(codes.query, codes={"image": query}), codes.retrieval)
    assert set(scores["noise, σ|0.1"]) == set(expected) == {"image->text", "image->image"}
    for task, report in expected.items():
        assert scores["noise, σ|0.1"][task] == pytest.approx(report["map_tie_aware"], abs=1e-12)
    assert set(scores["tags dropped|0.5"]) == {"text->image", "text->text"}
    text = (folder / "tables" / "robustness-image.md").read_text()
    assert f"| as they are |  | {100 * clean.score('image->text'):.2f} |" in text
    assert text.count("| noise, σ |") == 1, "a block a perturbation"
    labels = (folder / "tables" / "robustness-labels.md").read_text()
    assert "| labels of others | 0 |" in labels
    assert "| 0.5 |" in labels
    assert (folder / "tables" / "robustness-text.md").exists()
    check_that_labels_are_wrong_in_training_alone(read_grid(folder)[1][1], monkeypatch)


def check_that_labels_are_wrong_in_training_alone(noisy, monkeypatch):
    assert noisy.method == "DSCH, labels of others 0.5"
    run = open_run(noisy.folder)
    given = []
    fit = lambda made, loss, targets, *more: given.append(targets) or made.model  # noqa: E731
    monkeypatch.setattr(train_module.Trainee, "fit", fit)
    train_module._train(run.config, noisy.folder, lambda stage: lambda done, total: None)
    records = Collection.load(run.config.sources).records
    right = records.labels[run.splits.train]
    np.testing.assert_array_equal(given[0].numpy(), _noisy_labels(right, 0.5, seed=0))
    assert 20 <= (given[0].numpy() != right).any(axis=1).sum() <= 32
    np.testing.assert_array_equal(
        run_codes(noisy.folder).query.labels, records.labels[run.splits.query]
    )


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_features_and_networks_without_gradients_are_refused_before_the_training(
    more, tmp_path, capsys
):
    for base in (["--config", grid_base(tmp_path)], ["--preset", "demo"]):
        command = [
            "experiment",
            "robustness",
            "--loss",
            "sch",
            *base,
            "--out",
            tmp_path / "grid",
            *more,
        ]
        assert_refused(capsys, *command, says="reads neither pixels nor tokens")
    assert not (tmp_path / "grid").exists()


def test_texts_alone_are_perturbed(tmp_path):
    rows = [f"t{i},word{i % 4} tag{i % 9},label{i % 4}" for i in range(80)]
    (tmp_path / "items.csv").write_text("\n".join(["id,text,labels", *rows]))
    settings = [
        "data.queries=10",
        "data.train=40",
        "train.batch_size=20",
        "train.epochs=1",
        "train.validate_every=0",
    ]
    command = [
        "experiment",
        "robustness",
        "--loss",
        "sch",
        "--preset",
        "table",
        "--data",
        tmp_path / "items.csv",
    ]
    command += [
        "--bits",
        "8",
        "--seeds",
        "1",
        *(word for key in settings for word in ("--set", key)),
    ]
    assert run_command(*command, "--out", tmp_path / "grid") == 0
    titles = "".join(
        path.read_text().split("\n")[0]
        for path in (tmp_path / "grid/tables").glob("robustness-*.md")
    )
    assert "text → text, queries perturbed" in titles
    assert "mean of text → text, training" in titles
