"""The rotation after a training: no cosine changes, bits get better, and draws are those of the seed."""

import copy

import numpy as np
import pytest
import torch

from channelhash.codes import binarize, hamming_distances, pack
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models import MODELS
from channelhash.models.heads import _signs, rotate_outputs


@pytest.fixture(scope="module")
def pairs():
    """300 pairs of 16 numbers, of which the last 8 are in common and the first are small noise."""
    random = np.random.default_rng(0)
    common = random.normal(size=(300, 16)) * np.repeat([0.0, 1.0], 8)
    items = {name: common + 0.2 * random.normal(size=common.shape) for name in ("image", "text")}
    return Records(tuple(map(str, range(300))), items, np.zeros((300, 0), dtype=bool), ())


@pytest.fixture
def model(pairs):
    """Heads that pass the numbers on: the first 8 bits are of noise."""
    made = MODELS["aligned"].create(pairs, 16, "features", hidden=[4], dropout=0.0, noise=0.0, drop_features=0.0)
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
    np.testing.assert_allclose(before["text"] @ before["image"].T, after["text"] @ after["image"].T, atol=1e-4)
    assert not torch.allclose(before["text"], after["text"], atol=0.1)
    for width in (8, 16):
        assert recall(after, width) > recall(before, width) + 0.1


def test_signs_have_the_gradient_of_tanh():
    codes, expected = (torch.tensor([[0.5, -2.0, 0.0], [3.0, 4.0, -1e-3]], requires_grad=True) for _ in range(2))
    weights = torch.arange(6.0).reshape(2, 3)
    (_signs(codes) * weights).sum().backward()
    for row, weight in zip(expected, weights, strict=True):
        (torch.tanh(row / (row**2).mean().sqrt()) * weight).sum().backward()
    assert _signs(codes).tolist() == [[1, -1, 1], [1, 1, -1]]
    torch.testing.assert_close(codes.grad, expected.grad)


def test_draws_are_those_of_the_seed(model, pairs):
    first, again, other = (
        rotated(model, pairs, seed, steps=2).branch("text").head[3].linear.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_nested_codes_are_not_longer_than_the_code(pairs):
    with pytest.raises(InputError, match=r"model.nested: 24 of 16 outputs; name fewer"):
        MODELS["aligned"].create(pairs, 16, "features", nested=[24])
