"""Blended images: the same from every source, with the labels that belong to them, and in no other modality."""

import json

import pytest
import torch

from channelhash.augment.mixing import draw_mix, mix_labels
from channelhash.config import TrainSettings
from channelhash.data.features import load_features
from channelhash.data.image_loader import ImageFiles
from channelhash.losses import DSCHLoss
from channelhash.models import MODELS
from channelhash.training.batches import prepare_inputs
from channelhash.training.feature_cache import augmented_features, cached_features
from channelhash.training.mixup import MixedImages, mixed_images
from channelhash.training.sources import Bank, FromDisk, Held, TrainingSet
from channelhash.training.step import Steps
from channelhash.training.trainer import train
from channelhash.utils.progress import no_progress
from picture_runs import clip_model, picture_config, picture_records, write_pictures
from small_runs import assert_refused, feature_config, run_command, write_features
from training.test_distributed import assert_same, edit, run_two

CPU = torch.device("cpu")
PIXELS = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.rand(12, 5, generator=torch.Generator().manual_seed(1)) < 0.5
LABELS[3] = False
LABELS[7] = True
BATCHES = [torch.tensor([0, 3, 5, 7]), torch.tensor([1, 2, 10])]


def literal_batch(source, labels, settings, epoch, rows):
    """One sample after the other, from the equation."""
    images, wanted = [], []
    for row in rows.tolist():
        image = next(source.batches(epoch, [torch.tensor([row])]))[0]
        image = image / 255 if image.dtype == torch.uint8 else image
        label = labels[row].float()
        mix = draw_mix(settings.augment_seed, epoch, row, len(labels), settings.mix_images, settings.mix_alpha)
        if mix and labels[row].any() and labels[mix.partner].any():
            other = next(source.batches(epoch, [torch.tensor([mix.partner])]))[0]
            other = other / 255 if other.dtype == torch.uint8 else other
            image = mix.share * image + (1 - mix.share) * other
            share = torch.tensor([mix.share])
            label = mix_labels(labels[row : row + 1], labels[mix.partner : mix.partner + 1], share)[0]
        images.append(image)
        wanted.append(label)
    return torch.stack(images), torch.stack(wanted)


def assert_mixed(source, labels, settings, batches=BATCHES, epochs=(0, 4)):
    mixed = MixedImages(source, labels, settings)
    changed = 0
    for epoch in epochs:
        for images, rows in zip(mixed.batches(epoch, batches), batches, strict=True):
            expected, wanted = literal_batch(source, labels, settings, epoch, rows)
            torch.testing.assert_close(images, expected)
            torch.testing.assert_close(mixed.labels(epoch, rows), wanted)
            changed += int((wanted != labels[rows]).any(dim=1).sum())
    assert changed > len(epochs) * len(batches)


@pytest.mark.parametrize("augment", ["none", "progressive"])
def test_pixels_in_memory_are_blended_after_augmentation(augment):
    settings = TrainSettings(mix_images=0.8, augment=augment, augment_seed=2, epochs=8)
    assert_mixed(Held(PIXELS, settings), LABELS, settings)


def test_features_are_blended_as_they_are():
    settings = TrainSettings(mix_images=0.8, mix_alpha=0.4)
    assert_mixed(Held(torch.randn(12, 6, generator=torch.Generator().manual_seed(2)), settings), LABELS, settings)


def test_pictures_from_disk_and_banks_are_blended(tmp_path):
    records = picture_records(tmp_path, 12)
    model = MODELS["cliphash"].create(records, 8, **{k: v for k, v in clip_model(tmp_path).items() if k != "name"})
    branch, paths = model.branch("image"), list(records.items["image"])
    settings = TrainSettings(epochs=5, augment="progressive", workers=0, mix_images=0.8)
    plain = cached_features(branch, paths, CPU).rows
    assert_mixed(Bank(augmented_features(branch, paths, plain, settings, CPU), CPU), LABELS, settings)
    pictures = FromDisk(ImageFiles(paths, branch.prepare), settings)
    assert_mixed(pictures, LABELS, settings, epochs=(4,))
    held = MixedImages(Held(branch.prepare(paths), settings), LABELS, settings)
    from_disk = MixedImages(pictures, LABELS, settings)
    for one, two in zip(held.batches(4, BATCHES), from_disk.batches(4, BATCHES), strict=True):
        torch.testing.assert_close(one, two)


def test_a_row_without_labels_is_left_alone_and_never_a_partner():
    settings = TrainSettings(mix_images=1.0)
    mixed = MixedImages(Held(PIXELS, settings), LABELS, settings)
    rows = torch.arange(12)
    draws = [mixed.draws(epoch, rows) for epoch in range(50)]
    assert all(shares[3] == 1 and partners[3] == 3 for partners, shares in draws)
    assert not any((partners[rows != 3] == 3).any() for partners, _ in draws)
    assert sum(int((shares < 1).sum()) for _, shares in draws) > 0.85 * 50 * 11


def test_off_is_the_source_itself():
    sources = {"image": Held(PIXELS, TrainSettings()), "text": Held(torch.ones(12, 2), TrainSettings())}
    assert mixed_images(sources, LABELS, TrainSettings()) == sources


def test_labels_of_images_change_and_those_of_texts_do_not(tmp_path):
    records = load_features(write_features(tmp_path / "f.npz"))
    model = MODELS["features"].create(records, 12, hidden=[16])
    settings = TrainSettings(batch_size=40, mix_images=0.5, device="cpu")
    labels = torch.from_numpy(records.labels)
    held = {name: Held(prepare_inputs(model, records, name), settings) for name in model.modalities}
    steps = Steps(model, DSCHLoss(12), labels, settings, CPU)
    plain = list(steps.batches(held, 3))
    mixed = list(steps.batches(mixed_images(held, labels, settings), 3))
    for (inputs, _, before, _, _), (blended, _, after, _, _) in zip(plain, mixed, strict=True):
        assert torch.equal(inputs["text"], blended["text"])
        assert torch.equal(before, after["text"])
        same_input = (inputs["image"] == blended["image"]).all(dim=1)
        same_label = (before == after["image"]).all(dim=1)
        assert (same_label >= same_input).all()
        assert 8 < int(same_input.sum()) < 32
    assert steps.run(mixed).isfinite().all()


def test_an_interrupted_training_goes_on_bit_by_bit_and_off_is_what_it_was(tmp_path):
    records = load_features(write_features(tmp_path / "f.npz"))
    labels = torch.from_numpy(records.labels)

    def stops(done, total):
        if done == 2:
            raise InterruptedError

    def run(folder, progress=no_progress, wrap=True, **mixing):
        settings = TrainSettings(
            epochs=3, batch_size=80, learning_rate=1e-3, checkpoint_every=1, validate_every=0, device="cpu", **mixing
        )
        torch.manual_seed(3)
        model = MODELS["features"].create(records, 12, hidden=[16])
        sources = {name: Held(prepare_inputs(model, records, name), settings) for name in model.modalities}
        sources = mixed_images(sources, labels, settings) if wrap else sources
        train(model, DSCHLoss(12), TrainingSet(sources, labels), settings, folder, progress=progress)
        return [parameter.detach() for parameter in model.parameters()]

    def same(one, two):
        return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))

    whole = run(tmp_path / "whole", mix_images=0.7)
    with pytest.raises(InterruptedError):
        run(tmp_path / "killed", progress=stops, mix_images=0.7)
    assert same(whole, run(tmp_path / "killed", mix_images=0.7))
    plain = run(tmp_path / "plain", wrap=False)
    assert same(plain, run(tmp_path / "off", mix_alpha=0.3))
    assert not same(plain, whole)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=2, mix_images=0.7)
    edit(config, "model", dropout=0.0)
    assert run_command("train", config, "--out", tmp_path / "one") == 0
    result = run_two(config, tmp_path / "two")
    assert result.returncode == 0, result.stderr
    assert_same(tmp_path / "one", tmp_path / "two")


def test_what_cannot_be_blended_is_refused_before_anything_is_read(tmp_path, capsys):
    nowhere = tmp_path / "none.npz"
    for loss in ("tdsrdh", "csq", "hashnet"):
        config = feature_config(tmp_path / "c.yaml", nowhere, loss, mix_images=0.5)
        says = f"train.mix_images: loss {loss!r} has no use for the labels of blended images; take bsch or dsch or sch"
        assert_refused(capsys, "train", config, "--out", tmp_path / "run", says=says)
    config = feature_config(tmp_path / "c.yaml", nowhere, mix_images=0.5)
    values = json.loads(config.read_text())
    values["loss"]["pairs"] = 0.1
    config.write_text(json.dumps(values))
    says = "train.mix_images: loss.pairs has no use for the labels of blended images"
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says=says)
    config = feature_config(tmp_path / "c.yaml", nowhere, mix_images=1.5)
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says="train.mix_images: input should be less")


def test_a_dry_run_blends_and_data_without_images_is_refused(tmp_path, capsys):
    items = write_pictures(tmp_path)
    config = picture_config(tmp_path / "c.yaml", items, {"name": "small", "image_size": 16}, mix_images=0.5)
    assert run_command("train", config, "--dry-run", "--json") == 0
    text_only = tmp_path / "texts.csv"
    lines = [line.split(",") for line in items.read_text().splitlines()]
    text_only.write_text("\n".join(",".join([line[0], *line[2:]]) for line in lines) + "\n")
    config = picture_config(tmp_path / "t.yaml", text_only, {"name": "small"}, mix_images=0.5)
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says="there are no images to blend, only text")
