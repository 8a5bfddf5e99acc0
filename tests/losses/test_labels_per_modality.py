"""The channel losses where the modalities of a sample have labels of their own."""

import pytest
import torch

from channelhash.augment.mixing import mix_labels
from channelhash.losses import DSCHLoss, SCHLoss
from channelhash.losses.functional import Shard
from losses import loss_equations as literal
from losses.test_losses import EQUATIONS, assert_same_value_and_gradient, batch
from losses.test_tiled_pairs import in_tiles, value_and_gradients


def mixed(labels):
    """Labels of images of which every other one is blended with the one before it."""
    labels, partners = labels.double(), labels.roll(1, 0)
    shares = torch.tensor([1.0, 0.3, 1.0, 1.0, 0.6, 1.0, 0.9])
    chosen = (shares < 1) & labels.any(dim=1) & partners.any(dim=1)
    blended = labels.clone()
    blended[chosen] = mix_labels(labels[chosen], partners[chosen], shares[chosen]).double()
    assert (blended != labels).any(dim=1).sum() >= 2
    return blended


@pytest.mark.parametrize("n_modalities", [2, 3])
@pytest.mark.parametrize(
    "changed", [{}, {"alpha": 3.0, "beta": 0.25}, {"gamma_l": 2.0, "gamma_w": 2.0}, {"kappa_q": 0.4}], ids=str
)
def test_dsch_equals_the_equation_in_value_and_gradient(n_modalities, changed):
    outputs, labels = batch(16, n_modalities)
    labels = {name: mixed(labels) if name == "image" else labels for name in outputs}
    settings = EQUATIONS["dsch"][2] | {"lambda_neg": 8.0} | changed
    oracle = literal.dsch_by_modality(outputs, labels, 16, **settings)
    assert_same_value_and_gradient(outputs, DSCHLoss(16, **settings)(outputs, labels), oracle)


@pytest.mark.parametrize("loss", [DSCHLoss(16, alpha=2.0, kappa_q=0.1), SCHLoss(16, beta=0.5, kappa_q=0.1)])
@pytest.mark.parametrize("n_modalities", [1, 2, 3])
def test_equal_labels_of_all_modalities_are_those_of_the_sample_to_the_bit(loss, n_modalities):
    outputs, labels = batch(16, n_modalities, n=40)
    for dtype in (torch.float32, torch.float64):
        values = {name: codes.detach().to(dtype).requires_grad_() for name, codes in outputs.items()}
        one = value_and_gradients(loss, values, labels)
        each = value_and_gradients(loss, values, dict.fromkeys(values, labels))
        assert all(torch.equal(a, b) for a, b in zip(one, each, strict=True))


def test_tiles_and_shards_add_up():
    outputs, labels = batch(16)
    labels = {"image": mixed(labels), "text": labels, "unasked": labels}
    loss = DSCHLoss(16, alpha=2.0, beta=0.5, gamma_w=2.0)
    whole = value_and_gradients(loss, outputs, labels)
    with in_tiles(3):
        in_parts = [value_and_gradients(loss, outputs, labels, shard=Shard(number, 3)) for number in range(3)]
    for want, parts in zip(whole, zip(*in_parts, strict=True), strict=True):
        torch.testing.assert_close(sum(parts), want)


def test_a_blended_image_is_as_near_to_its_text_as_its_labels_are():
    """Half of each of two pictures with nothing in common is at S = 0.71 to both texts, and 1 to itself."""
    seen = []

    class Watched(SCHLoss):
        def bounds(self, similarity):
            seen.append(similarity)
            return super().bounds(similarity)

    texts = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
    images = texts.float()
    images[:1] = mix_labels(texts[:1], texts[1:2], torch.tensor([0.5]))
    Watched(8)({"image": torch.randn(3, 8), "text": torch.randn(3, 8)}, {"image": images, "text": texts})
    similarity = seen[0]
    assert similarity.shape == (2, 3, 2, 3)
    assert similarity[0, 0, 1].tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 0])  # blended image -> texts
    assert similarity[1, :, 0, 0].tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 0])  # texts -> blended image
    assert torch.equal(similarity[0].diagonal(dim1=0, dim2=2)[0], torch.ones(3))
    assert torch.equal(similarity[1, :, 1], torch.eye(3))
    assert similarity[0, 2, 1, 2] == 1  # a sample without labels is like itself in the other modality too


def test_labels_that_do_not_fit_are_named():
    outputs, labels = batch(16)
    with pytest.raises(ValueError, match="there are none for text"):
        DSCHLoss(16)(outputs, {"image": labels})
    with pytest.raises(ValueError, match="labels are"):
        DSCHLoss(16)(outputs, {"image": labels, "text": labels[:3]})
    with pytest.raises(ValueError, match="with one c"):
        DSCHLoss(16)(outputs, {"image": labels, "text": labels[:, :3]})
