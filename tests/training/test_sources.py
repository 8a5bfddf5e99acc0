"""What a batch looks like with and without random changes."""

import pytest
import torch

from channelhash.config import TrainSettings
from channelhash.training.sources import Held

TOKENS = torch.arange(1, 241, dtype=torch.int32).reshape(40, 6)
PIXELS = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
INPUTS = {"image": PIXELS, "text": TOKENS}
ROWS = torch.arange(0, 40, 2)


def batch_inputs(inputs, rows, epoch, settings):
    return {modality: Held(values, settings).batch(epoch, rows) for modality, values in inputs.items()}


def test_by_default_inputs_are_taken_as_they_are():
    batch = batch_inputs(INPUTS, ROWS, 150, TrainSettings())
    assert torch.equal(batch["image"], PIXELS[ROWS])
    assert torch.equal(batch["text"], TOKENS[ROWS])


@pytest.mark.parametrize("change", ["mask_tokens", "replace_tokens", "drop_tokens"])
def test_each_change_of_tokens_is_its_own_setting(change):
    settings = TrainSettings(**{change: 0.5})
    batch = batch_inputs(INPUTS, ROWS, 3, settings)
    changed = batch["text"] != TOKENS[ROWS]
    assert 0.3 < changed.float().mean() < 0.9
    assert torch.equal(batch["image"], PIXELS[ROWS])
    hidden = (batch["text"] == 0).float().mean().item()
    assert hidden == 0 if change == "replace_tokens" else hidden == pytest.approx(0.5, abs=0.15)
    assert torch.equal(batch_inputs(INPUTS, ROWS[3:5], 3, settings)["text"], batch["text"][3:5])
    assert not torch.equal(batch_inputs(INPUTS, ROWS, 4, settings)["text"], batch["text"])


def test_the_published_weights_of_easy_augmentation_are_a_setting():
    kinds, angles = (TrainSettings(augment="progressive", easy_weights=name) for name in ("kinds", "angles"))
    assert not torch.equal(
        batch_inputs(INPUTS, ROWS, 30, kinds)["image"], batch_inputs(INPUTS, ROWS, 30, angles)["image"]
    )


def test_pictures_are_augmented_and_features_never():
    settings = TrainSettings(augment="progressive")
    images = batch_inputs(INPUTS, ROWS, 180, settings)["image"]
    assert images.dtype == torch.float32
    same = [torch.equal(image, pixels / 255) for image, pixels in zip(images, PIXELS[ROWS], strict=True)]
    assert 0 < sum(same) < 15  # a quarter stays unaltered
    features = {"image": torch.randn(40, 5)}
    assert torch.equal(batch_inputs(features, ROWS, 180, settings)["image"], features["image"][ROWS])


def test_tokens_are_replaced_by_such_as_the_training_texts_hold():
    rare = TOKENS * 1000
    settings = TrainSettings(replace_tokens=0.5)
    replaced = batch_inputs({"text": rare}, ROWS, 3, settings)["text"]
    assert set(replaced.flatten().tolist()) <= set(rare.flatten().tolist())
    # Where all ids are in use, an id is drawn as such: what was trained before is trained again.
    assert torch.equal(replaced, batch_inputs(INPUTS, ROWS, 3, settings)["text"] * 1000)
