"""Heads on frozen encoders: the form, the scales, and a run by the preset from photographs and
captions to a search.
"""

import copy
import json
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import channelhash as ch
from channelhash.codes import binarize, hamming_distances, pack
from channelhash.data.records import Records
from channelhash.models import MODELS, load_model
from channelhash.models.backbones import Frozen, Tower
from channelhash.models.encoders import open_encoder
from channelhash.models.exported import export_onnx
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import _signs, fit_scales, rotate_outputs
from channelhash.presets import preset_path
from channelhash.runs.folder import open_run
from channelhash.training import inputs as training_inputs, trainer
from channelhash.training.inputs import _cached_features
from channelhash.utils.progress import no_progress, no_stage_progress
from picture_runs import tiny_clip, write_pictures
from refusals import check_refusal
from small_runs import assert_refused, interrupt_at, run_command, run_json


@pytest.fixture(scope="module")
def pairs():
    """300 pairs of 16 numbers, of which the last 8 are in common and the first are small noise."""
    random = np.random.default_rng(0)
    common = random.normal(size=(300, 16)) * np.repeat([0.0, 1.0], 8)
    items = {name: common + 0.2 * random.normal(size=common.shape) for name in ("image", "text")}
    return Records(tuple(map(str, range(300))), items, np.zeros((300, 0), dtype=bool), ())


def test_outputs_are_those_of_the_form(pairs):
    torch.manual_seed(0)
    records = replace(
        pairs, items={"image": pairs.items["image"] + 3, "text": pairs.items["text"][:, 4:]}
    )
    model = MODELS["aligned"].create(records, 16, "features", hidden=[8])
    fit_scales(
        model, {name: torch.from_numpy(values).float() for name, values in records.items.items()}
    )
    for name, values in records.items.items():
        scaled = torch.from_numpy((values - values.mean(axis=0)) / values.std(axis=0))
        both = model.branch(name).head[3].double()
        first, _, _, last = both.mlp
        hidden = torch.nn.functional.gelu(scaled @ first.weight.T + first.bias)
        straight = scaled @ both.linear.weight.T + both.linear.bias
        expected = (hidden @ last.weight.T + last.bias + straight).detach().numpy()
        np.testing.assert_allclose(model.float().outputs(name, values).numpy(), expected, atol=1e-4)


def test_noise_is_of_training_alone(pairs):
    model = MODELS["aligned"].create(pairs, 16, "features", hidden=[8], dropout=0.0, noise=0.5)
    inputs = {"image": torch.from_numpy(pairs.items["image"]).float()}
    assert not torch.equal(model.train()(inputs)["image"], model(inputs)["image"])
    assert torch.equal(model.eval()(inputs)["image"], model(inputs)["image"])


@pytest.mark.parametrize(("encoder", "nested", "says"), [
    ("photo-backbones", [], "the data holds precomputed features"),
    ("openclip:x/y", [], "take the encoder features"),
    ("features", [24], "model.nested: 24 of 16 outputs; name fewer"),
])  # fmt: skip
def test_features_are_for_the_encoder_features_and_nested_codes_not_longer(
    pairs, encoder, nested, says
):
    check_refusal(says, MODELS["aligned"].create, pairs, 16, encoder, nested=nested)
    raw = Records(("a",), {"text": ("a dog",)}, np.ones((1, 0), dtype=bool), ())
    check_refusal(
        "holds no precomputed features; name another", MODELS["aligned"].create, raw, 16, "features"
    )


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    """40 pictures with two captions each, and labels that the preset does not read."""
    folder = tmp_path_factory.mktemp("captions")
    head, *lines = write_pictures(folder, 40).read_text().splitlines()
    more = [line.replace("item", "more").replace(",a ", ",the ") for line in lines]
    (folder / "captions.csv").write_text("\n".join([head, *lines, *more]) + "\n")
    return folder / "captions.csv"


def preset_settings(captions, **more):
    encoder = f"openclip:{tiny_clip(captions.parent / 'net.json')}"
    small = {
        "train.epochs": 4,
        "train.batch_size": 8,
        "train.average": 0.9,
        "train.validate_every": 2,
    }
    settings = {
        "data.path": captions,
        "model.encoder": encoder,
        "model.hidden": "[32]",
        **small,
        **more,
    }
    return [f"--set={key}={value}" for key, value in settings.items()]


@pytest.fixture(scope="module", autouse=True)
def hasty():
    """Turn outputs by ten steps instead of 300: that the rotation is learned has a test of its
    own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "rotate_outputs", partial(rotate_outputs, steps=10))
        yield


@pytest.fixture(scope="module")
def run(captions):
    run = captions.parent / "run"
    assert run_command("train", "--preset", "photo", *preset_settings(captions), "--out", run) == 0
    return run


def test_the_preset_trains_on_photographs_and_captions(run):
    opened = open_run(run)
    assert not opened.collection.records.label_names
    assert (opened.config.train.captions, opened.config.model.nested) == ("one", [64, 128])
    counts = opened.splits.counts()
    assert counts == {
        "query": 8,
        "retrieval": 72,
        "train": 62,
        "validation_query": 8,
        "validation_retrieval": 2,
    }
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [entry.get("measure") for entry in log] == [None, "recall_at_10", None, "recall_at_10"]


def test_a_photograph_with_several_captions_is_read_once(run, monkeypatch):
    opened, cached = open_run(run), Mock(wraps=_cached_features)
    monkeypatch.setattr(training_inputs, "_cached_features", cached)
    records = opened.collection.records
    features = training_inputs.feature_records(
        opened.model, records, opened.config.train, no_stage_progress
    )
    assert [len(call.args[1]) for call in cached.call_args_list] == [40, 80]
    expected = open_encoder(opened.config.model.encoder).features("image", records.items["image"])
    np.testing.assert_allclose(features.items["image"], expected, atol=1e-5)


def test_scales_are_those_of_the_training_rows(run):
    opened = open_run(run)
    rows = opened.collection.records.take(opened.splits.train)
    features = open_encoder(opened.config.model.encoder).features("image", rows.items["image"])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    scales = opened.model.branch("image").head[1]
    np.testing.assert_allclose(scales.mean.cpu(), unit.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(scales.scale.cpu(), unit.std(axis=0), atol=1e-6)


def test_a_run_is_evaluated_loaded_and_searched_with(run, captions, capsys, tmp_path):
    assert run_json(capsys, "evaluate", run)["tasks"]["text->image"]["queries"] == 8
    model = load_model(run)
    codes = model.encode_texts(["a bright red picture"])
    model.save_pretrained(tmp_path / "saved")
    again = ch.load_model(tmp_path / "saved")
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.encode_texts(["a bright red picture"]), codes)
    store = tmp_path / "photos.store"
    assert run_command("index", "create", store, captions.parent / "images", "--encoder", run) == 0
    assert len(run_json(capsys, "search", store, "a bright red picture")["results"]) == 10


def test_a_training_cut_short_resumes_to_the_same_weights(run, captions, tmp_path):
    settings = preset_settings(captions, **{"train.epochs": 4, "train.checkpoint_every": 1})
    overrides = [word.removeprefix("--set=") for word in settings]
    cut, progress = tmp_path / "cut", {"train": interrupt_at(2, InterruptedError)}
    with pytest.raises(InterruptedError):
        ch.train(
            preset_path("photo"),
            overrides,
            out=cut,
            progress=lambda stage: progress.get(stage, no_progress),
        )
    ch.train(preset_path("photo"), overrides, out=cut, resume=True)
    assert load_model(cut).fingerprint() == load_model(run).fingerprint()


def test_a_preset_or_a_file_is_named(captions, capsys):
    says = "name a configuration file or a --preset, one of the two"
    assert_refused(capsys, "train", captions, "--preset", "photo", says=says)
    says = "no preset 'foto'; there are benchmark, cliphash, coco-text, demo"
    assert_refused(capsys, "train", "--preset", "foto", says=says)


def test_a_model_knows_its_weights_by_their_name_and_does_not_save_them(tmp_path):
    tower = Tower(lambda rows: 2 * rows.sum(axis=1, keepdims=True), "0123456789abcdef")
    branch = Branch(torch.tensor, Frozen(tower, "doubled", "rows", 1), torch.nn.Linear(1, 8))
    model = HashModel("mine", 8, {}, {"image": branch})
    assert model.backbones()["image"]["weights"] == "0123456789abcdef"
    assert set(model.trained_state()) == {"branches.image.head.weight", "branches.image.head.bias"}
    assert model.encode("image", [[1.0, 2.0, 3.0]]).shape == (1, 1)
    check_refusal(
        "image: cannot be exported.*doubled runs without PyTorch",
        export_onnx,
        model,
        tmp_path / "onnx",
    )
    assert copy.deepcopy(tower)(torch.ones(1, 3)).tolist() == [[6.0]]


# ---- the rotation after a training


@pytest.fixture
def model(pairs):
    """Heads that pass the numbers on: the first 8 bits are of noise."""
    made = MODELS["aligned"].create(
        pairs, 16, "features", hidden=[4], dropout=0.0, noise=0.0, drop_features=0.0
    )
    with torch.no_grad():
        for name in made.modalities:
            both = made.branch(name).head[3]
            for parameter in both.parameters():
                parameter.zero_()
            both.linear.weight.copy_(torch.eye(16))
    return made


def rotated(model, pairs, seed=0, steps=100):
    made = copy.deepcopy(model)
    inputs = {name: torch.from_numpy(values).float() for name, values in pairs.items.items()}
    rotate_outputs(made, inputs, torch.arange(len(pairs)), [8], seed, steps)
    return made


def recall(outputs, width):
    """Share of texts whose own image is among the nearest, by the first bits; ties count half."""
    codes = {name: pack(binarize(values[:, :width])) for name, values in outputs.items()}
    distances = hamming_distances(codes["text"], codes["image"])
    own = np.diag(distances)[:, None]
    return float(np.mean((distances < own).sum(axis=1) + (distances == own).sum(axis=1) / 2 < 3))


def test_cosines_stay_and_leading_bits_get_better(model, pairs):
    before = {name: model.outputs(name, values) for name, values in pairs.items.items()}
    made = rotated(model, pairs)
    after = {name: made.outputs(name, values) for name, values in pairs.items.items()}
    np.testing.assert_allclose(
        before["text"] @ before["image"].T, after["text"] @ after["image"].T, atol=1e-4
    )
    assert not torch.allclose(before["text"], after["text"], atol=0.1)
    for width in (8, 16):
        assert recall(after, width) > recall(before, width) + 0.1


def test_signs_have_the_gradient_of_tanh():
    codes, expected = (
        torch.tensor([[0.5, -2.0, 0.0], [3.0, 4.0, -1e-3]], requires_grad=True) for _ in range(2)
    )
    weights = torch.arange(6.0).reshape(2, 3)
    (_signs(codes) * weights).sum().backward()
    for row, weight in zip(expected, weights, strict=True):
        (torch.tanh(row / (row**2).mean().sqrt()) * weight).sum().backward()
    assert _signs(codes).tolist() == [[1, -1, 1], [1, 1, -1]]
    torch.testing.assert_close(codes.grad, expected.grad)


def test_draws_are_those_of_the_seed(model, pairs):
    made = [rotated(model, pairs, seed, steps=2) for seed in (0, 0, 1)]
    first, again, other = (one.branch("text").head[3].linear.weight for one in made)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
