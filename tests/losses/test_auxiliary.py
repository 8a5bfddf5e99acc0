"""The terms beside a loss against their literal transcriptions."""

import pytest
import torch

from channelhash.losses import LOSSES, Batch, ChannelLoss, ContrastiveLoss, TALRLoss, Terms, make_loss
from losses import loss_equations as literal
from losses.test_losses import assert_same_value_and_gradient, batch
from refusals import check_refusal

ALL_TERMS = {"contrastive": 0.3, "pairs": 0.2, "temperature": 0.5, "average_precision": 0.7}
WITHOUT_ANCHOR = sorted(set(LOSSES) - {"tdsrdh"})
CHANNEL_LOSSES = sorted(name for name in LOSSES if issubclass(LOSSES[name], ChannelLoss))


@pytest.mark.parametrize("n_modalities", [2, 3])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_contrastive_term_equals_its_equation(n_modalities, temperature):
    outputs, labels = batch(16, n_modalities)
    ours = ContrastiveLoss(temperature).compute_by_labels(Batch(outputs, labels))
    assert_same_value_and_gradient(outputs, ours, literal.contrastive(outputs, labels, temperature))


def test_the_contrastive_loss_reads_no_labels_and_takes_its_temperature():
    outputs, labels = batch(16)
    loss = make_loss("contrastive", 16, 5, temperature=0.5)
    every_sample_a_class = literal.contrastive(outputs, torch.eye(len(labels)), 0.5)
    assert_same_value_and_gradient(outputs, loss(outputs, labels), every_sample_a_class)
    assert torch.equal(loss(outputs, labels), loss(outputs, labels[:, :0]))
    check_refusal("temperature is 0", ContrastiveLoss, error=ValueError, temperature=0)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_labels_a_loss_takes_every_sample_as_a_class_or_says_that_it_cannot(name):
    outputs, _ = batch(16)
    of_labels = name in ("csq", "dcgh", "dnph", "greedyhash", "hyp2", "orthohash")
    if of_labels:
        check_refusal(f"{name!r} learns from labels, and this collection has none", make_loss, name, 16, 0)
        return
    n = len(outputs["text"])
    values = [make_loss(name, 16, c)(outputs, labels) for c, labels in ((0, torch.zeros(n, 0)), (n, torch.eye(n)))]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("name", WITHOUT_ANCHOR)
def test_terms_add_up_beside_any_loss(name):
    outputs, labels = batch(16)
    torch.manual_seed(0)
    whole = make_loss(name, 16, 5, **ALL_TERMS)
    expected = whole.loss(outputs, labels) + 0.3 * literal.contrastive(outputs, labels, 0.5)
    expected = expected + 0.2 * literal.contrastive(outputs, torch.eye(len(labels)), 0.5)
    expected = expected + 0.7 * TALRLoss(16)(outputs, labels)
    assert_same_value_and_gradient(outputs, whole(outputs, labels), expected)
    assert whole.n_bits == 16
    assert whole.channels is (whole.loss if name in CHANNEL_LOSSES else None)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_terms_it_is_the_loss_itself(name):
    off = {key: 0 for key in vars(Terms()) if key != "temperature"}
    assert type(make_loss(name, 16, 5, **off, temperature=0.2)) is LOSSES[name]
    shared = {"temperature"} if name == "contrastive" else set()
    assert vars(Terms()).keys() & {*vars(make_loss(name, 16, 5)), *LOSSES[name].__init__.__annotations__} == shared


def test_what_does_not_go_together_is_refused():
    for term in ({"contrastive": 1.0}, {"pairs": 1.0}, {"average_precision": 1.0}):
        (key,) = term
        with pytest.raises(ValueError, match=f"{key}: this loss trains one modality at a time"):
            make_loss("tdsrdh", 16, 5, **term)
    with pytest.raises(ValueError, match="between modalities, the outputs are of image alone"):
        ContrastiveLoss()(*batch(16, 1))
