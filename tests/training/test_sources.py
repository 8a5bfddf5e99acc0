"""What a batch looks like with and without random changes."""

import pytest
import torch

from channelhash.augment.progressive import Progression
from channelhash.config import TrainSettings
from channelhash.data.images import ImageFiles, image_batches, square
from channelhash.training.inputs import _AugmentedImages, memory_batches
from picture_runs import picture_records

TOKENS = torch.arange(1, 241, dtype=torch.int32).reshape(40, 6)
PIXELS = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
INPUTS = {"image": PIXELS, "text": TOKENS}
ROWS = torch.arange(0, 40, 2)


def batch_inputs(inputs, rows, epoch, settings):
    return {modality: next(memory_batches(values, settings, epoch, [rows])) for modality, values in inputs.items()}


def test_by_default_inputs_are_taken_as_they_are():
    batch = batch_inputs(INPUTS, ROWS, 150, TrainSettings())
    assert torch.equal(batch["image"], PIXELS[ROWS])
    assert torch.equal(batch["text"], TOKENS[ROWS])


def test_the_published_weights_of_easy_augmentation_are_a_setting():
    kinds, angles = (TrainSettings(augment="progressive", easy_weights=name) for name in ("kinds", "angles"))
    first, second = (batch_inputs(INPUTS, ROWS, 30, how)["image"] for how in (kinds, angles))
    assert not torch.equal(first, second)


def test_pictures_are_augmented_and_features_never():
    settings = TrainSettings(augment="progressive")
    images = batch_inputs(INPUTS, ROWS, 180, settings)["image"]
    assert images.dtype == torch.float32
    same = [torch.equal(image, pixels / 255) for image, pixels in zip(images, PIXELS[ROWS], strict=True)]
    assert 0 < sum(same) < 15  # a quarter stays unaltered
    features = {"image": torch.randn(40, 5)}
    assert torch.equal(batch_inputs(features, ROWS, 180, settings)["image"], features["image"][ROWS])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_workers(tmp_path, workers):
    paths = list(picture_records(tmp_path, 9).items["image"])
    pictures = _AugmentedImages(ImageFiles(paths, square(24)), TrainSettings(epochs=200, augment_seed=5))
    batches = [torch.tensor([4, 0, 7]), torch.tensor([1, 2])]
    draws = [[(190, row) for row in rows.tolist()] for rows in batches]
    pixels = square(24)(paths).float() / 255
    for got, rows in zip(image_batches(pictures, draws, workers), batches, strict=True):
        expected = torch.stack([Progression(5, 9).augment(pixels.__getitem__, 190, row) for row in rows.tolist()])
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
