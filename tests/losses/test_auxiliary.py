"""The terms beside a loss, of an extension and of a distillation against their literal
transcriptions.
"""

from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st

from channelhash.losses import (
    LOSSES,
    Batch,
    ChannelLoss,
    ContrastiveLoss,
    DSCHLoss,
    LossWithTerms,
    Terms,
    make_loss,
)
from channelhash.losses.distillation import DistillationLoss
from channelhash.losses.incremental import ExtensionLoss, _keep_loss, _stored_loss
from losses import loss_equations as literal
from losses.test_losses import MODALITIES, assert_same_value_and_gradient, batch
from metrics.ranking_equations import label_similarity
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
    if name in ("csq", "dcgh", "dnph", "greedyhash", "hyp2", "orthohash"):
        check_refusal(
            f"{name!r} learns from labels, and this collection has none", make_loss, name, 16, 0
        )
        return
    n = len(outputs["text"])
    values = [
        make_loss(name, 16, c)(outputs, labels)
        for c, labels in ((0, torch.zeros(n, 0)), (n, torch.eye(n)))
    ]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("name", WITHOUT_ANCHOR)
def test_terms_add_up_beside_any_loss(name):
    outputs, labels = batch(16)
    torch.manual_seed(0)
    whole = make_loss(name, 16, 5, **ALL_TERMS)
    expected = whole.loss(outputs, labels) + 0.3 * literal.contrastive(outputs, labels, 0.5)
    expected = expected + 0.2 * literal.contrastive(outputs, torch.eye(len(labels)), 0.5)
    expected = expected + 0.7 * make_loss("talr", 16, 5)(outputs, labels)
    assert_same_value_and_gradient(outputs, whole(outputs, labels), expected)
    assert whole.n_bits == 16
    assert whole.channels is (whole.loss if name in CHANNEL_LOSSES else None)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_terms_it_is_the_loss_itself(name):
    off = {key: 0 for key in vars(Terms()) if key != "temperature"}
    assert type(make_loss(name, 16, 5, **off, temperature=0.2)) is LOSSES[name]
    shared = {"temperature"} if name == "contrastive" else set()
    assert (
        vars(Terms()).keys()
        & {*vars(make_loss(name, 16, 5)), *LOSSES[name].__init__.__annotations__}
        == shared
    )


def test_what_does_not_go_together_is_refused():
    refuses = partial(check_refusal, error=ValueError)
    for term in ("contrastive", "pairs", "average_precision"):
        refuses(
            f"{term}: this loss trains one modality at a time",
            make_loss,
            "tdsrdh",
            16,
            5,
            **{term: 1.0},
        )
    refuses("between modalities, the outputs are of image alone", ContrastiveLoss(), *batch(16, 1))
    outputs, targets = distilled(("image", "text"))
    refuses(
        "takes outputs of text and targets", DistillationLoss(8, ["text"]), outputs, targets[:, :1]
    )
    refuses(
        r"targets \(5, 2, 8\), not", DistillationLoss(8, ["image", "text"]), outputs, targets[:, :1]
    )


def distilled(modalities, n=5, k=8, seed=0):
    torch.manual_seed(seed)
    outputs = {
        name: torch.randn(n, k, dtype=torch.float64, requires_grad=True) for name in modalities
    }
    targets = torch.randn(n, len(modalities), k)
    targets[0, 0, 0] = 0.0  # counts as +1
    return outputs, targets


@pytest.mark.parametrize("modalities", [("image", "text"), ("text", "image"), ("text",)])
def test_value_and_gradient_are_the_equations(modalities):
    outputs, targets = distilled(modalities)
    loss = DistillationLoss(8, modalities)(dict(reversed(outputs.items())), targets)
    bits = {
        name: torch.where(targets[:, place] >= 0, 1.0, -1.0)
        for place, name in enumerate(modalities)
    }
    expected = literal_keep(outputs, bits) / len(modalities)
    assert_same_value_and_gradient(outputs, loss, expected)


def test_the_edges_are_finite_and_half_precision_is_not_used():
    outputs, targets = distilled(("text",))
    outputs = {"text": torch.zeros(5, 8, requires_grad=True)}
    loss = DistillationLoss(8, ["text"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(outputs, targets)
    value.backward()
    assert value.dtype == torch.float32
    assert outputs["text"].grad.isfinite().all()


def stored_codes(k, c=6, n_modalities=2, seed=1):
    random = torch.Generator().manual_seed(seed)
    draw = partial(torch.randint, 0, 2, (c, k), generator=random, dtype=torch.int8)
    codes = {name: draw() * 2 - 1 for name in MODALITIES[:n_modalities]}
    return codes, torch.rand(c, 5, generator=random) < 0.4


def literal_stored(outputs, labels, stored, stored_labels, bounds, alpha, beta, gamma_l):
    codes = {modality: values.double() for modality, values in stored.items()}
    similarities = [[label_similarity(own, other) for other in stored_labels] for own in labels]
    ends = lambda s: [end.item() for end in bounds(torch.tensor(s, dtype=torch.float64))]  # noqa: E731
    total = literal.violations(outputs, codes, similarities, ends, gamma_l, alpha, beta)
    return total / (len(labels) * len(stored_labels))


def literal_keep(outputs, codes):
    total = torch.zeros((), dtype=torch.float64)
    for modality, values in outputs.items():
        for i in range(len(values)):
            total = total + literal.hamming(values[i], codes[modality][i].double())
    return total / len(next(iter(outputs.values())))


@settings(max_examples=10)
@given(
    st.integers(2, 20),
    st.integers(1, 3),
    st.sampled_from([(1.0, 1.0, 1.0), (3.0, 0.5, 2.0), (1.0, 2.0, 0.5)]),
    st.sampled_from(["dsch", "sch"]),
    st.integers(0, 99),
)
def test_terms_equal_their_equations_in_value_and_gradient(k, n_modalities, weights, name, seed):
    outputs, labels = batch(k, n_modalities, seed=seed)
    stored, stored_labels = stored_codes(k, n_modalities=n_modalities, seed=seed)
    alpha, beta, gamma_l = weights
    loss = LOSSES[name](k, alpha=alpha, beta=beta)
    loss.gamma_l = gamma_l
    ours = _stored_loss(outputs, labels, stored, stored_labels, loss)
    expected = literal_stored(
        outputs, labels, stored, stored_labels, loss.bounds, alpha, beta, gamma_l
    )
    assert_same_value_and_gradient(outputs, ours, expected)
    own, _ = stored_codes(k, len(labels), n_modalities, seed + 1)
    assert_same_value_and_gradient(outputs, _keep_loss(outputs, own), literal_keep(outputs, own))


#: The stored rows of 14 new items.
NEW = torch.full((14,), -1)


def test_a_batch_is_parted_into_old_and_new():
    k, rows = 8, torch.tensor([0, 2, 3, 5, 6, 8, 9])
    outputs, labels = batch(k)
    stored, stored_labels = stored_codes(k, 6, seed=5)
    stored_rows = torch.tensor([4, 0, 5, 2, 1, -1, -1, -1, -1, -1])
    own = DSCHLoss(k, alpha=2.0, gamma_l=1.5)
    loss = ExtensionLoss(own, stored, stored_labels, stored_rows, 0.7, 0.3)
    new = {modality: values[3:] for modality, values in outputs.items()}  # rows 5, 6, 8, 9
    old = {modality: values[:3] for modality, values in outputs.items()}
    expected = own(new, labels[3:])
    expected = expected + 0.7 * literal_stored(
        new, labels[3:], stored, stored_labels, own.bounds, 2.0, 1.0, 1.5
    )
    expected = expected + 0.3 * literal_keep(
        old, {modality: values[[4, 5, 2]] for modality, values in stored.items()}
    )
    assert_same_value_and_gradient(outputs, loss(outputs, labels, rows=rows), expected)
    check_refusal(
        "needs the numbers of the batch's training rows", loss, outputs, labels, error=ValueError
    )
    assert not loss.state_dict()  # checkpoints hold nothing that never changes


def test_channels_are_those_of_the_loss_that_has_terms_beside_it():
    """With its weights, which the pairs with stored codes have like the others."""
    k, rows = 8, torch.arange(7)
    outputs, labels = batch(k)
    stored, channels = (
        (*stored_codes(k, seed=5), NEW),
        DSCHLoss(k, alpha=2.0, gamma_l=1.5, beta=0.5),
    )
    values = []
    for own in (channels, LossWithTerms(channels, k, Terms(average_precision=0.5))):
        loss = ExtensionLoss(own, *stored, stored=0.7)
        values.append(loss(outputs, labels, rows=rows) - own(outputs, labels))
    plain = DSCHLoss(k, alpha=2.0, gamma_l=1.5)
    loss = ExtensionLoss(plain, *stored, stored=0.7)
    torch.testing.assert_close(values[0], values[1])
    assert not torch.isclose(values[0], loss(outputs, labels, rows=rows) - plain(outputs, labels))


@pytest.mark.parametrize("first", [0, 5])
def test_a_batch_of_old_or_of_new_items_alone_has_a_finite_gradient(first):
    k = 8
    outputs, labels = batch(k, n=5)
    rows = torch.tensor([3, 0, 1, 5, 2, -1, -1, -1, -1, -1])
    for weight in (0.0, 1.0):
        loss = ExtensionLoss(DSCHLoss(k), *stored_codes(k), rows, weight, weight)
        value = loss(outputs, labels, rows=torch.arange(first, first + 5))
        gradients = torch.autograd.grad(value, list(outputs.values()))
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_partners_are_drawn_by_seed_and_rows_alone():
    k = 8
    outputs, labels = batch(k)
    stored, stored_labels = stored_codes(k, 500, seed=3)

    def value(rows, partners=20, seed=0):
        loss = ExtensionLoss(
            LOSSES["sch"](k), stored, stored_labels, NEW, partners=partners, seed=seed
        )
        return loss(outputs, labels, rows=torch.tensor(rows)).item()

    low, high = list(range(7)), list(range(7, 14))
    assert value(low) == value(low)
    assert len({value(low), value(high), value(low, seed=1), value(low, partners=500)}) == 4
    assert value(low, partners=500) == value(high, partners=500)  # all of them
