"""The network of images that ships, against timm's layers and against what makes it."""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from channelhash.models.photo import IMAGES, _image_features, _weights_file
from channelhash.models.pretrained import image_layers

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from ship_photo import image_graph


def picture(size, seed):
    """Something with large shapes and fine ones."""
    random = np.random.default_rng(seed)
    coarse, fine = (random.integers(0, 256, (n, n, 3), dtype=np.uint8) for n in (5, size))
    mixed = Image.blend(Image.fromarray(coarse).resize((size, size)), Image.fromarray(fine), 0.2)
    return np.asarray(mixed).transpose(2, 0, 1)


@torch.no_grad()
def test_it_is_the_published_network_in_half_precision():
    layers = image_layers("package").eval()
    pixels = np.stack([picture(260, seed) for seed in range(2)])
    expected = layers(torch.from_numpy(pixels)).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(_image_features(pixels), expected, atol=5e-3 * expected.max())
    assert _weights_file(IMAGES).read_bytes() == image_graph(layers[1]).SerializeToString()
