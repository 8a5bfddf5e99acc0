"""Channels whose targets follow the labels at hand; the whole loss against its transcription is in `test_baselines`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from channelhash.channels import label_similarity
from channelhash.losses import SCHLoss, ShapedSCHLoss, Terms
from channelhash.losses.adaptive_sch import rarity_weights, similarity_quantiles
from losses import baseline_equations as literal

LABELS = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12).map(torch.tensor)


def batch(labels, k=16, seed=0):
    random = np.random.default_rng(seed)
    return {name: torch.from_numpy(random.normal(size=(len(labels), k))) for name in ("image", "text")}


@given(LABELS)
def test_quantiles_rise_from_0_to_1_and_spread_the_similar_pairs_evenly(labels):
    similarity = label_similarity(labels.double())
    places, heights = similarity_quantiles(similarity)
    assert places[0] == heights[0] == 0
    assert places[-1] == heights[-1] == 1
    assert bool((torch.stack([places.diff(), heights.diff()]) > 0).all())
    similar = similarity[similarity > 0]
    top = 1 - (similar == 1).double().mean() / 2  # F(1)
    mean = torch.from_numpy(np.interp(similar, places, heights)).mean()
    assert mean.item() == pytest.approx(0.5 / top.item())


def test_quantiles_are_those_of_the_order_alone():
    for middle in (0.25, 0.5, 0.99):
        _, heights = similarity_quantiles(torch.tensor([0.1, middle, 1.0]))
        assert heights.tolist() == pytest.approx([0, 0.2, 0.6, 1])


@given(LABELS)
def test_rare_labels_change_no_pair_from_similar_to_dissimilar(labels):
    weights = rarity_weights(labels)
    assert bool((weights > 0).all())
    assert torch.equal(label_similarity(labels * weights) > 0, label_similarity(labels) > 0)


def test_sharing_a_rare_label_says_more():
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1], [1, 0, 1]])  # the first label is common
    similarity = label_similarity(labels * rarity_weights(labels))
    assert similarity[0, 1] < 0.5**0.5 < similarity[0, 2]


def test_a_learned_shape_begins_as_that_of_sch():
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])
    outputs = batch(labels)
    learned = ShapedSCHLoss(16, "learned", kappa_q=0.1)
    assert learned(outputs, labels).item() == pytest.approx(SCHLoss(16, kappa_q=0.1)(outputs, labels).item(), rel=1e-6)


def test_pairs_outside_of_the_batch_are_refused():
    assert Terms(memory=16).problem(ShapedSCHLoss).startswith("memory: this loss has no channels")


def test_steps_are_learned_and_equal_their_equation():
    labels = torch.rand(9, 5, generator=torch.Generator().manual_seed(1)) < 0.4
    outputs = batch(labels, seed=2)
    loss = ShapedSCHLoss(16, "learned")
    with torch.no_grad():
        loss.steps.copy_(torch.linspace(-1, 2, len(loss.steps)))
    value = loss(outputs, labels)
    arrays = {name: codes.numpy() for name, codes in outputs.items()}
    steps = loss.steps.detach().double().numpy()
    rows = labels.numpy().astype(float)
    expected = literal.sch_shaped(arrays, rows, steps, shape="learned", tau=3.0, kappa_q=0.0)
    assert value.item() == pytest.approx(expected, rel=1e-5)
    value.backward()
    step = 1e-5
    for piece in range(len(steps)):
        ahead, behind = steps.copy(), steps.copy()
        ahead[piece], behind[piece] = ahead[piece] + step, behind[piece] - step
        slope = np.subtract(
            *(literal.sch_shaped(arrays, rows, s, shape="learned", tau=3.0, kappa_q=0.0) for s in (ahead, behind))
        ) / (2 * step)
        assert loss.steps.grad[piece].item() == pytest.approx(slope, rel=1e-3, abs=1e-6)
    assert loss.steps.grad.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_bits": 0}, "at least 1 bit"),
        ({"tau": -1.0}, "no channel is that narrow"),
        ({"shape": "round"}, "there are"),
    ],
)
def test_settings_out_of_range_are_said(settings, message):
    with pytest.raises(ValueError, match=message):
        ShapedSCHLoss(**({"n_bits": 16} | settings))
