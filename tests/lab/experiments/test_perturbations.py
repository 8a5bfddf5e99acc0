"""Perturbations keep shapes and ranges, grow with their size, and an attack stays within its bound."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from channelhash.data.label_noise import noisy_labels
from channelhash.lab.experiments.studies.robustness import CORRUPTIONS, TAG_NOISE, attack
from channelhash.models.hash_model import Branch
from channelhash.models.small import SmallConvNet


@pytest.fixture(scope="module")
def pixels():
    """Smooth pictures: waves of two colours."""
    at = torch.linspace(0, 6, 64)
    wave = 0.5 + 0.4 * torch.sin(at[:, None] + at)
    return torch.stack([torch.stack([wave, wave.flip(0), 1 - wave]), torch.stack([wave, 1 - wave, wave.flip(1)])])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_grows_with_its_size_and_stays_a_picture(name, pixels):
    apply, sizes = CORRUPTIONS[name]
    assert list(sizes) in (sorted(sizes), sorted(sizes, reverse=True))
    distances = []
    for size in sizes:
        changed = apply(pixels, size, 3)
        assert (changed.shape, changed.dtype) == (pixels.shape, torch.float32)
        assert 0 <= changed.min() <= changed.max() <= 1
        assert torch.equal(changed, apply(pixels, size, 3)), "one seed, one draw"
        distances.append((changed - pixels).square().mean().item())
    assert 0 < distances[0] < distances[1] < distances[2]


@pytest.mark.parametrize("name", TAG_NOISE)
def test_noise_of_tags_changes_their_share_and_no_padding(name):
    tokens = torch.arange(1, 4001, dtype=torch.int32).view(100, 40)
    tokens[:, 30:] = 0
    for size in TAG_NOISE[name].sizes:
        changed = TAG_NOISE[name].apply(tokens, size, 0)
        assert (changed.shape, changed.dtype) == (tokens.shape, torch.int32)
        assert not changed[:, 30:].any()
        assert set(changed.flatten().tolist()) <= set(tokens.flatten().tolist())
        kept = sum(len(set(old) & set(new) - {0}) for old, new in zip(tokens.tolist(), changed.tolist(), strict=True))
        assert kept / 3000 == pytest.approx(1 - size, abs=0.04)


@pytest.fixture(scope="module")
def branch():
    torch.manual_seed(0)
    encoder = SmallConvNet(8)
    return Branch(lambda pixels: pixels, encoder, torch.nn.Linear(encoder.n_features, 16)).eval()


@pytest.mark.parametrize("epsilon", [1 / 255, 4 / 255])
def test_an_attack_stays_within_its_bound_and_moves_more_bits_than_noise(branch, pixels, epsilon):
    changed = attack(branch, pixels, epsilon)
    assert (changed - pixels).abs().max() <= epsilon + 1e-6
    assert 0 <= changed.min() <= changed.max() <= 1
    with torch.no_grad():
        clean, attacked = branch(pixels), branch(changed)
        noise = branch((pixels + epsilon * torch.randn_like(pixels).sign()).clamp(0, 1))
    signs = torch.where(clean >= 0, 1.0, -1.0)
    agreement = [(signs * torch.tanh(values)).mean() for values in (clean, noise, attacked)]
    assert agreement[2] < agreement[1]
    assert agreement[2] < agreement[0]


def test_an_encoder_without_gradients_cannot_be_attacked(pixels):
    class Opaque(torch.nn.Module):
        def forward(self, values):
            return values.detach().flatten(1)[:, :4]

    assert attack(Branch(lambda pixels: pixels, Opaque(), torch.nn.Identity()), pixels, 0.1) is None


labels = arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 4)))


@settings(max_examples=50)
@given(labels=labels, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_noisy_labels_are_those_of_other_rows(labels, share, seed):
    noisy = noisy_labels(labels, share, seed)
    changed = (noisy != labels).any(axis=1)
    assert changed.sum() <= round(share * len(labels))
    rows = {tuple(row) for row in labels.tolist()}
    assert {tuple(row) for row in noisy.tolist()} <= rows
    distinct = np.eye(len(labels), dtype=bool)
    assert (noisy_labels(distinct, share, seed) != distinct).any(axis=1).sum() == (
        round(share * len(labels)) if len(labels) > 1 else 0
    )
