"""Batches with and without random changes; cache and bank give what online encoding and
augmentation give.
"""

import json
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from channelhash.augment.progressive import Progression
from channelhash.config import TrainSettings, read_config
from channelhash.data.collection import Collection
from channelhash.data.images import ImageFiles, image_batches, square
from channelhash.data.table import load_table
from channelhash.errors import JobError
from channelhash.models import MODELS
from channelhash.models.hash_model import encode_items
from channelhash.runs.create import create_model
from channelhash.training import inputs as training_inputs
from channelhash.training.inputs import (
    _augmented_features,
    _cached_features,
    feature_records,
    memory_batches,
)
from channelhash.utils.progress import no_stage_progress
from picture_runs import clip_model, picture_config, picture_records, resnet_model, write_pictures
from small_runs import assert_refused, run_command, train_run
from training.test_distributed import losses
from training.test_training import assert_same_run, weights

TOKENS = torch.arange(1, 241, dtype=torch.int32).reshape(40, 6)
PIXELS = torch.randint(
    0, 256, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
ROWS = torch.arange(0, 40, 2)


def batch_of(values, epoch, settings):
    return next(memory_batches(values, settings, epoch, [ROWS]))


def test_pictures_are_augmented_by_a_setting_and_all_else_is_taken_as_it_is():
    kinds, angles = (
        TrainSettings(augment="progressive", easy_weights=name) for name in ("kinds", "angles")
    )
    for values, settings in (
        (PIXELS, TrainSettings()),
        (TOKENS, kinds),
        (torch.randn(40, 5), kinds),
    ):
        assert torch.equal(batch_of(values, 180, settings), values[ROWS])
    images = batch_of(PIXELS, 180, kinds)
    assert images.dtype == torch.float32
    same = [
        torch.equal(image, pixels / 255) for image, pixels in zip(images, PIXELS[ROWS], strict=True)
    ]
    assert 0 < sum(same) < 15  # a quarter stays unaltered
    assert not torch.equal(batch_of(PIXELS, 30, kinds), batch_of(PIXELS, 30, angles))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_workers(tmp_path, workers):
    paths = list(picture_records(tmp_path, 9).items["image"])
    settings = TrainSettings(epochs=200, augment_seed=5)
    pictures = training_inputs._AugmentedImages(ImageFiles(paths, square(24)), settings)
    batches = [torch.tensor([4, 0, 7]), torch.tensor([1, 2])]
    draws = [[(190, row) for row in rows.tolist()] for rows in batches]
    pixels = square(24)(paths).float() / 255
    for got, rows in zip(image_batches(pictures, draws, workers), batches, strict=True):
        expected = torch.stack(
            [Progression(5, 9).augment(pixels.__getitem__, 190, row) for row in rows.tolist()]
        )
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def small_resnet(**settings):
    """The section ``model`` of a residual network for pictures of 64 pixels instead of 224, a tenth
    of the work.
    """
    return resnet_model(image_size=64, **settings)


def clip_of(folder, n):
    """A small CLIP, and the records of as many pictures."""
    records = picture_records(folder, n)
    settings = {key: value for key, value in clip_model(folder).items() if key != "name"}
    return MODELS["cliphash"].create(records, 8, **settings), records


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(params=["cliphash", "tdsrdh"])
def model_section(request, tmp_path):
    return clip_model(tmp_path) if request.param == "cliphash" else small_resnet()


def test_both_architectures_train_and_are_evaluated(items, model_section, tmp_path):
    run = train_run(picture_config(tmp_path / "c.yaml", items, model_section, "tdsrdh"))
    assert run_command("evaluate", run) == 0
    tasks = json.loads((run / "metrics.json").read_text())["tasks"]
    assert len(tasks) == 4
    assert all(np.isfinite(task["map_tie_aware"]) for task in tasks.values())
    assert (run / "checkpoints" / "best" / "model.safetensors").exists()
    frozen = json.loads((run / "model" / "config.json").read_text())["backbones"]
    assert set(frozen) == ({"image", "text"} if model_section["name"] == "cliphash" else {"image"})
    # 11 million weights of a ResNet-18 and 1.7 million of the CLIP stay out of the checkpoints.
    trained = sum(values.numel() for values in weights(run).values())
    assert 12 * trained < (run / "checkpoints" / "last.pt").stat().st_size < 12 * trained + 100_000


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("cached", {}),
        pytest.param("bank", {"augment": "progressive", "epochs": 5}, marks=pytest.mark.slow),
    ],
)
def test_features_from_the_disk_and_online_are_the_same_training(
    items, model_section, tmp_path, mode, settings
):
    for name in ("online", mode):
        config = picture_config(
            tmp_path / f"{name}.yaml", items, model_section, features=name, **settings
        )
        assert run_command("train", config, "--out", tmp_path / name) == 0
    assert losses(tmp_path / "online") == pytest.approx(losses(tmp_path / mode), rel=1e-4)
    torch.testing.assert_close(
        weights(tmp_path / "online"), weights(tmp_path / mode), atol=1e-4, rtol=1e-3
    )
    if settings:
        plain = picture_config(tmp_path / "plain.yaml", items, model_section, epochs=5)
        assert run_command("train", plain, "--out", tmp_path / "plain") == 0
        assert losses(tmp_path / "plain") != pytest.approx(losses(tmp_path / mode), rel=1e-4)


def test_a_bank_is_shared_by_losses_code_lengths_and_training_seeds(items, tmp_path, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    section = clip_model(tmp_path)
    for number, (loss, n_bits, seed) in enumerate(
        [("dsch", 12, 0), ("sch", 7, 1), ("tdsrdh", 12, 2)]
    ):
        model = section | {"n_bits": n_bits}
        config = picture_config(
            tmp_path / "c.yaml", items, model, loss, seed=seed, augment="progressive"
        )
        assert run_command("train", config, "--out", tmp_path / f"run{number}") == 0
    folder = tmp_path / "cache" / "features"
    assert len(list(folder.glob("bank-*.npy"))) == 1
    assert len(list(folder.glob("features-*.npy"))) == 2  # pictures and texts
    config = picture_config(
        tmp_path / "c.yaml", items, section, augment="progressive", augment_seed=1
    )
    assert run_command("train", config, "--out", tmp_path / "other") == 0
    assert len(list(folder.glob("bank-*.npy"))) == 2


def test_a_bank_holds_what_encoding_each_draw_gives(tmp_path):
    model, records = clip_of(tmp_path, 9)
    branch, paths = model.branch("image"), list(records.items["image"])
    settings = TrainSettings(epochs=8, augment="progressive", augment_seed=3, workers=0)
    plain = _cached_features(branch, paths, settings).rows
    file, images = (
        _augmented_features(branch, paths, plain, settings),
        ImageFiles(paths, branch.prepare),
    )
    pixels = branch.prepare(paths)
    rows = [torch.tensor([4, 0]), torch.tensor([8, 1, 7])]
    changed = 0
    for epoch in (0, 3, 7):
        bank = training_inputs._bank_batches(file, torch.device("cpu"), epoch, rows)
        online = training_inputs._disk_batches(images, settings, epoch, rows)
        held = memory_batches(pixels, settings, epoch, rows)
        for features, pictures, same, part in zip(bank, online, held, rows, strict=True):
            assert torch.equal(pictures, same if same.dtype == torch.float32 else same / 255)
            torch.testing.assert_close(features, branch.encoder(pictures), atol=1e-5, rtol=1e-4)
            changed += int((features != torch.from_numpy(plain[part.numpy()])).any(dim=1).sum())
    assert changed >= 4


def test_an_interrupted_bank_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    model, records = clip_of(tmp_path, 9)
    branch, paths = model.branch("image"), list(records.items["image"])
    settings = TrainSettings(epochs=8, augment="progressive", workers=0)
    plain = _cached_features(branch, paths, settings).rows
    whole = _augmented_features(branch, paths, plain, settings).check()
    expected = np.array(whole.rows)
    for path in (tmp_path / "cache" / "features").glob("bank-*"):
        path.unlink()
    real, seen = training_inputs.image_batches, []

    def breaks(*arguments):
        for number, batch in enumerate(real(*arguments)):
            seen.append(number)
            if len(seen) == 2:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(training_inputs, "_BATCH", 4)
    monkeypatch.setattr(training_inputs, "image_batches", breaks)
    with pytest.raises(KeyboardInterrupt):
        _augmented_features(branch, paths, plain, settings)
    monkeypatch.setattr(training_inputs, "image_batches", real)
    again = _augmented_features(branch, paths, plain, settings).check()
    np.testing.assert_allclose(again.rows, expected, atol=1e-5)


def test_changed_pictures_texts_or_weights_are_computed_again(tmp_path, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    model, records = clip_of(tmp_path, 6)

    def count(model=model, records=records):
        feature_records(model, records, TrainSettings(workers=0), no_stage_progress)
        return len(list((tmp_path / "cache" / "features").glob("features-*.npy")))

    assert count() == 2
    assert count() == 2
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "images", moved / "images")
    shutil.copy(tmp_path / "items.csv", moved)
    assert count(records=load_table(moved / "items.csv")) == 2  # the same content elsewhere
    first, second = (tmp_path / "images" / f"{i}.png" for i in (0, 1))
    first.write_bytes(second.read_bytes())
    assert count() == 3
    with torch.no_grad():
        next(model.branch("image").encoder.parameters()).add_(1)
    model.branch("image").encoder.__dict__.pop("weights_hash")
    assert count() == 4


def test_pictures_that_do_not_fit_into_memory_are_read_from_disk(items, tmp_path, monkeypatch):
    runs = []
    for limit in (1 << 30, 0):
        monkeypatch.setattr(training_inputs, "_HELD_BYTES", limit)
        section = {"name": "small", "image_size": 24, "width": 8}
        config = picture_config(
            tmp_path / "c.yaml", items, section, augment="progressive", workers=2
        )
        runs.append(tmp_path / f"run{limit}")
        assert run_command("train", config, "--out", runs[-1]) == 0
    assert_same_run(*runs)


def test_codes_do_not_depend_on_workers(items, tmp_path):
    config = read_config(picture_config(tmp_path / "c.yaml", items, small_resnet()))
    records = Collection.load(config.sources).records
    model = create_model(config, records)
    images = records.items["image"]
    np.testing.assert_array_equal(
        encode_items(model, "image", images, 2), model.encode("image", images)
    )


@pytest.mark.parametrize(
    ("model", "train", "says"),
    [
        ({"name": "small"}, {"features": "cached"}, "model 'small' has no frozen backbone"),
        (
            {"name": "small"},
            {"features": "bank", "augment": "progressive"},
            "model 'small' has no frozen backbone",
        ),
        ("resnet", {"features": "bank"}, "a bank holds augmented features"),
        (
            "resnet",
            {"features": "cached", "augment": "progressive"},
            "cached features are not augmented",
        ),
        ("drift", {"features": "cached"}, "no frozen backbone whose features stay the same"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(
    items, tmp_path, capsys, model, train, says
):
    sections = {"resnet": small_resnet(), "drift": small_resnet(frozen_batchnorm="train")}
    section = sections[model] if isinstance(model, str) else model
    config = picture_config(tmp_path / "c.yaml", items, section, **train)
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says=says)


def test_a_backbone_that_exhausts_the_memory_says_what_to_change(tmp_path, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    model, records = clip_of(tmp_path, 4)
    exhausted = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(model.branch("image").encoder, "forward", exhausted)
    with pytest.raises(
        JobError, match=r"out of memory in the backbone with 128 items at a time; use a smaller"
    ):
        _cached_features(model.branch("image"), records.items["image"], TrainSettings(workers=0))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["auto", "float32"])
@pytest.mark.parametrize(
    "more", [{}, {"augment": "progressive"}, {"features": "online"}, {"compile": True}]
)
def test_both_architectures_train_on_a_gpu(items, tmp_path, precision, more):
    for section in (clip_model(tmp_path), resnet_model()):
        run = tmp_path / str(section["name"])
        config = picture_config(
            tmp_path / "c.yaml", items, section, device="cuda", precision=precision, **more
        )
        assert run_command("train", config, "--out", run) == 0
        assert run_command("evaluate", run) == 0
        tasks = json.loads((run / "metrics.json").read_text())["tasks"]
        assert all(np.isfinite(task["map_tie_aware"]) for task in tasks.values())


@pytest.mark.gpu
def test_a_gpu_and_a_cpu_train_nearly_the_same(items, tmp_path):
    section = clip_model(tmp_path, dropout=0.0)
    for device in ("cpu", "cuda"):
        config = picture_config(
            tmp_path / "c.yaml", items, section, device=device, precision="float32"
        )
        assert run_command("train", config, "--out", tmp_path / device) == 0
    assert losses(tmp_path / "cuda") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-3)
