"""The listwise loss against its equation, and losses of similarities in place of labels."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st

import channelhash.losses.base as tiles
from channelhash.channels import label_similarity
from channelhash.losses import LOSSES, ContrastiveLoss, DSCHLoss, ListwiseLoss, SCHLoss
from losses import loss_equations as literal
from losses.test_losses import batch, default_loss, in_tiles, refuse, value_and_gradients

K = 16


def soft(n: int, seed: int = 0) -> torch.Tensor:
    """Similarities that are not symmetric, some of them 0, and none of the fifth row."""
    drawn = torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn = drawn.where(drawn > 0.3, 0)
    drawn[4] = 0
    return drawn


@pytest.mark.parametrize("n_modalities", [1, 2, 3])
@pytest.mark.parametrize("scale", [16.0, 3.0])
@pytest.mark.parametrize("has_labels", [True, False])
def test_the_listwise_loss_equals_its_equation_and_bits_have_the_slope_of_tanh(
    n_modalities, scale, has_labels
):
    outputs, labels = batch(K, n_modalities)
    similarity = soft(len(labels))
    given = {"labels": None, "similarity": similarity}
    if has_labels:
        similarity = label_similarity(labels)
        given = {"labels": labels}
    value, *gradients = value_and_gradients(ListwiseLoss(K, scale), outputs, **given)
    bits = {
        name: torch.where(codes >= 0, 1.0, -1.0).double().requires_grad_()
        for name, codes in outputs.items()
    }
    oracle = literal.listwise(outputs, bits, similarity.tolist(), scale)
    assert value.item() == pytest.approx(oracle.item(), rel=1e-6)
    own = torch.autograd.grad(oracle, [*outputs.values(), *bits.values()])
    straight = zip(own, own[n_modalities:], outputs.values(), gradients, strict=False)
    for of_question, of_bits, codes, gradient in straight:
        expected = of_question + of_bits * (1 - torch.tanh(codes) ** 2)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("n", [1, 4])
def test_without_similar_items_there_is_nothing_to_learn(n):
    outputs, _ = batch(K, 1, n)
    value, gradient = value_and_gradients(ListwiseLoss(K), outputs, torch.eye(n))
    assert (value, gradient.any()) == (0, False)


LOSSES_OF_SIMILARITIES = [DSCHLoss(K, kappa_q=0.3, gamma_l=2.0), SCHLoss(K), ListwiseLoss(K)]


@pytest.mark.parametrize("loss", LOSSES_OF_SIMILARITIES, ids=lambda loss: type(loss).__name__)
@settings(max_examples=20)
@given(
    numbers=st.tuples(st.integers(1, 20), st.integers(1, 3), st.integers(0, 99)),
    side=st.integers(1, 21),
    parts=st.integers(1, 3),
)
def test_similarities_of_labels_teach_what_labels_do_in_tiles_and_shards(
    loss, numbers, side, parts
):
    n, n_modalities, seed = numbers
    outputs, labels = batch(K, n_modalities, n, seed)
    whole = value_and_gradients(loss, outputs, labels)
    ask = partial(value_and_gradients, loss, outputs, None, similarity=label_similarity(labels))
    with in_tiles(side):
        shards = [ask(shard=tiles.LossShard(number, parts)) for number in range(parts)]
    for want, *pieces in zip(whole, *shards, strict=True):
        torch.testing.assert_close(torch.stack(pieces).sum(dim=0), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*sorted(LOSSES.keys() - {"dsch", "sch"}), "contrastive"])
def test_losses_of_labels_take_no_similarities(name):
    loss = ContrastiveLoss() if name == "contrastive" else default_loss(name, K)
    outputs, labels = batch(K)
    says = "takes no similarities; give labels"
    refuse(says, loss, outputs, similarity=label_similarity(labels))
    refuse("learns from labels or similarities; give them", loss, outputs)


@pytest.mark.parametrize("loss", LOSSES_OF_SIMILARITIES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("change", "says"), [
    (lambda similarity: similarity[:, :6], r"similarity is \(7, 7\) as the outputs, not \(7, 6\)"),
    (lambda similarity: similarity - 0.5, "similarity is from 0 to 1, not -0"),
    (lambda similarity: similarity * 2, "similarity is from 0 to 1, not 1"),
    (lambda similarity: similarity * torch.nan, "similarity is from 0 to 1, not nan"),
    (lambda similarity: None, "learns from labels or similarities; give them"),
])  # fmt: skip
def test_what_is_no_similarity_is_refused(loss, change, says):
    refuse(says, loss, batch(K)[0], similarity=change(soft(7)))


def test_similarities_and_labels_are_not_both_given():
    outputs, labels = batch(K)
    refuse("give one of them", ListwiseLoss(K), outputs, labels, similarity=soft(7))


@pytest.mark.parametrize("scale", [0, -1.0, torch.nan])
def test_a_scale_is_above_0(scale):
    refuse("it is above 0", ListwiseLoss, K, scale)
