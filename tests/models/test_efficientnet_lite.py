"""The image graph against timm's networks with the same weights."""

import numpy as np
import onnxruntime
import pytest
import timm
import torch
from PIL import Image

from channelhash.models import pretrained
from channelhash.models.backbones import read_weights
from channelhash.models.onnx_graphs import image_graph
from refusals import check_refusal


def network():
    """timm's network, with batch normalisations that do something."""
    torch.manual_seed(0)
    made = timm.create_model("tf_efficientnet_lite2").eval()
    for part in made.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            for values, (low, high) in (
                (part.weight, (0.5, 1.5)), (part.bias, (-0.2, 0.4)), (part.running_mean, (-0.2, 0.2)),
                (part.running_var, (0.5, 2)),
            ):  # fmt: skip
                torch.nn.init.uniform_(values, low, high)
    return made


@torch.no_grad()
def by_timm(made, pixels):
    """Return the features, the mean of the last feature map."""
    inputs = (torch.from_numpy(pixels).float() / 255 - 127 / 255) / (128 / 255)
    return made.forward_head(made.forward_features(inputs), pre_logits=True).numpy()


def picture(size, seed):
    """Something with large shapes and fine ones."""
    random = np.random.default_rng(seed)
    coarse, fine = (random.integers(0, 256, (n, n, 3), dtype=np.uint8) for n in (5, size))
    mixed = Image.blend(Image.fromarray(coarse).resize((size, size)), Image.fromarray(fine), 0.2)
    return np.asarray(mixed).transpose(2, 0, 1)


@pytest.mark.parametrize("size", [65, 96, 70])
def test_random_networks_are_timms(size):
    made = network()
    weights = [values.numpy() for values in made.state_dict().values()]
    graph = image_graph(weights, pretrained._REPEATS, size).SerializeToString()
    pixels = np.stack([picture(size, seed) for seed in range(3)])
    found = onnxruntime.InferenceSession(graph).run(["features"], {"pixels": pixels})[0]
    expected = by_timm(made, pixels)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_published_network_is_timms():
    made = timm.create_model("tf_efficientnet_lite2").eval()
    file = pretrained._checked_file(pretrained._LITE2)
    made.load_state_dict(dict(zip(made.state_dict(), read_weights(file).values(), strict=True)))
    pixels = np.stack([picture(260, seed) for seed in range(2)])
    tower = pretrained.image_tower()
    np.testing.assert_allclose(tower(torch.from_numpy(pixels)).numpy(), by_timm(made, pixels), atol=1e-4)


def test_weights_of_another_network_are_no_graph():
    weights = [values.numpy() for values in network().state_dict().values()]
    check_refusal("more layers", image_graph, weights, (1, 3, 3, 4, 4, 4, 1), 64, error=ValueError)
