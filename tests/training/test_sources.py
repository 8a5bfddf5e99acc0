"""What a batch looks like with and without random changes."""

import pytest
import torch
from torch import nn

from channelhash.config import TrainSettings
from channelhash.models.text_encoders import BagOfTags, TransformerText
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


@pytest.mark.parametrize("mask_padding", [True, False])
@pytest.mark.parametrize("kind", ["bag", "transformer"])
def test_changed_texts_are_read_by_the_text_encoders(kind, mask_padding):
    """Also a text of which nothing is left."""
    torch.manual_seed(0)
    table = nn.Embedding(241, 16, padding_idx=0)
    encoder = BagOfTags(240, 16) if kind == "bag" else TransformerText(table, 16, 2, 8, mask_padding=mask_padding)
    for settings in (
        TrainSettings(mask_tokens=0.15, replace_tokens=0.05, drop_tokens=0.1),
        TrainSettings(mask_tokens=1),
    ):
        tokens = batch_inputs({"text": TOKENS}, ROWS, 3, settings)["text"]
        features = encoder(tokens)
        features.sum().backward()
        assert features.isfinite().all()
        assert all(values.grad is None or values.grad.isfinite().all() for values in encoder.parameters())
    assert not tokens.any()


def test_a_masked_first_token_is_hidden_like_any_other():
    torch.manual_seed(0)
    encoder = TransformerText(nn.Embedding(9, 16, padding_idx=0), 16, 2, 8).eval()
    hidden = encoder.tokens(torch.tensor([[4, 7]])) + encoder.positions[1:3]
    expected = encoder.layer(hidden).mean(dim=1)
    torch.testing.assert_close(encoder(torch.tensor([[0, 4, 7, 0]], dtype=torch.int32)), expected)
