"""Pictures from disk are the same whatever the number of workers."""

import numpy as np
import pytest
import torch
from PIL import Image

from channelhash.augment.progressive import Progression, augment_batch
from channelhash.data.image_loader import ImageFiles, image_batches
from channelhash.data.images import Square
from channelhash.training.sources import AugmentedImages


@pytest.fixture
def paths(tmp_path):
    random = np.random.default_rng(0)
    made = [tmp_path / f"{i}.png" for i in range(9)]
    for path in made:
        Image.fromarray(random.integers(0, 255, (40, 30, 3), np.uint8)).save(path)
    return made


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_workers(paths, workers):
    pictures = AugmentedImages(ImageFiles(paths, Square(24)), seed=5)
    batches = [torch.tensor([4, 0, 7]), torch.tensor([1, 2])]
    draws = [[(190, row) for row in rows.tolist()] for rows in batches]
    pixels = Square(24)(paths).float() / 255
    for got, rows in zip(image_batches(pictures, draws, workers), batches, strict=True):
        expected = augment_batch(pixels[rows], rows.tolist(), 190, Progression(5, 9), pixels.__getitem__)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
