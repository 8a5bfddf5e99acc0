"""Hard negatives, and the terms beside a loss, against their literal transcriptions."""

import copy
import io
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.channels import unit_rows
from channelhash.errors import InputError
from channelhash.losses import (
    LOSSES,
    ChannelLoss,
    ContrastiveLoss,
    DSCHLoss,
    SCHLoss,
    TALRLoss,
    Terms,
    make_loss,
)
from channelhash.losses.bit_balance import balance_term
from channelhash.losses.contrastive import contrastive_term
from channelhash.losses.hard_negatives import hard_weights
from channelhash.losses.tiled_pairs import Shard
from losses import loss_equations as literal
from losses.test_losses import DSCH_DEFAULTS, assert_same_value_and_gradient, batch
from losses.test_tiled_pairs import draw_batch, in_tiles, value_and_gradients

ALL_TERMS = {
    "contrastive": 0.3,
    "pairs": 0.2,
    "temperature": 0.5,
    "balance": 2.0,
    "average_precision": 0.7,
    "memory": 11,
}
WITHOUT_ANCHOR = sorted(set(LOSSES) - {"tdsrdh"})
CHANNEL_LOSSES = sorted(name for name in LOSSES if issubclass(LOSSES[name], ChannelLoss))


# Hard negatives


@pytest.mark.parametrize("hardness", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("changed", [{}, {"gamma_l": 2.0, "beta": 0.5, "lambda_neg": 12.0}], ids=str)
def test_dsch_with_hard_negatives_equals_the_equation(hardness, changed):
    outputs, labels = batch(16)
    values = DSCH_DEFAULTS | {"lambda_neg": 8.0} | changed
    ours = DSCHLoss(16, **values, hardness=hardness)(outputs, labels)
    assert_same_value_and_gradient(outputs, ours, literal.dsch(outputs, labels, 16, **values, hardness=hardness))


def test_sch_with_hard_negatives_equals_the_equation():
    outputs, labels = batch(32)
    values = dict(tau=2.0, alpha=2.0, beta=0.5, kappa_q=0.1, hardness=1.5)
    ours = SCHLoss(32, **values)(outputs, labels)
    assert_same_value_and_gradient(outputs, ours, literal.sch(outputs, labels, 32, **values))


@given(hardness=st.floats(0, 1e4), k=st.integers(1, 4096), violations=st.lists(st.floats(0, 4096), min_size=2))
def test_weights_grow_with_the_violation_and_stay_bounded(hardness, k, violations):
    weights = hard_weights(torch.tensor(sorted(violations), dtype=torch.float64), k, hardness)
    assert (weights.diff() >= 0).all()
    assert (weights >= 0).all()
    assert (weights < 371).all()


@pytest.mark.parametrize("k", [16, 64, 257])
@pytest.mark.parametrize("hardness", [0.0, 0.5, 1.0, 2.0])
def test_the_mean_weight_of_random_codes_is_one(k, hardness):
    quantiles = torch.tensor([NormalDist().inv_cdf(0.5 + (i + 0.5) / 20_000) for i in range(10_000)])
    assert hard_weights(quantiles * k**0.5 / 2, k, hardness).mean().item() == pytest.approx(1, abs=2e-3)
    codes = torch.randn(400, k, generator=torch.Generator().manual_seed(0))
    below = k / 2 * unit_rows(codes[:200]) @ unit_rows(codes[200:]).T
    found = hard_weights(below[below > 0], k, hardness).mean().item()
    assert found == pytest.approx(1, abs=0.1 if k == 16 else 0.03)  # short codes have lighter tails than a normal


def test_the_weights_have_no_gradient():
    violation = torch.ones(3, requires_grad=True)
    assert not hard_weights(violation, 16, 1.0).requires_grad


def test_similar_pairs_and_pairs_inside_their_channel_are_left_alone():
    outputs, labels = batch(16)
    labels[:] = True  # S = 1 everywhere
    assert torch.equal(DSCHLoss(16, hardness=2.0)(outputs, labels), DSCHLoss(16)(outputs, labels))
    apart = {"image": torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])}
    assert DSCHLoss(4, hardness=2.0, kappa_q=0)(apart, torch.eye(2)) == 0


@pytest.mark.parametrize("loss", [DSCHLoss, SCHLoss])
@pytest.mark.parametrize("hardness", [-0.1, float("nan")])
def test_a_negative_hardness_is_refused(loss, hardness):
    with pytest.raises(ValueError, match="hardness is"):
        loss(8, hardness=hardness)


# Terms


@pytest.mark.parametrize("n_modalities", [2, 3])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_contrastive_term_equals_its_equation(n_modalities, temperature):
    outputs, labels = batch(16, n_modalities)
    ours = contrastive_term(outputs, labels, temperature)
    assert_same_value_and_gradient(outputs, ours, literal.contrastive(outputs, labels, temperature))


def test_samples_with_the_same_labels_are_not_negatives():
    outputs, labels = batch(16)
    labels[:] = labels[0]
    assert contrastive_term(outputs, labels) == 0
    labels[:] = False  # S = 0 to all others
    assert contrastive_term(outputs, labels) > 0


def test_a_contrastive_term_of_one_modality_is_refused():
    with pytest.raises(ValueError, match="between modalities, the outputs are of image alone"):
        contrastive_term(*batch(16, 1))


def test_the_contrastive_loss_reads_no_labels_and_takes_its_temperature():
    outputs, labels = batch(16)
    loss = make_loss("contrastive", 16, 5, temperature=0.5)
    every_sample_a_class = literal.contrastive(outputs, torch.eye(len(labels)), 0.5)
    assert_same_value_and_gradient(outputs, loss(outputs, labels), every_sample_a_class)
    assert torch.equal(loss(outputs, labels), loss(outputs, labels[:, :0]))
    with pytest.raises(ValueError, match="temperature is 0"):
        ContrastiveLoss(temperature=0)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_labels_a_loss_takes_every_sample_as_a_class_or_says_that_it_cannot(name):
    outputs, _ = batch(16)
    of_labels = name in ("csq", "dcgh", "dnph", "greedyhash", "hyp2", "orthohash")
    if of_labels:
        with pytest.raises(InputError, match=f"{name!r} learns from labels, and this collection has none"):
            make_loss(name, 16, 0)
        return
    n = len(outputs["text"])
    values = [make_loss(name, 16, c)(outputs, labels) for c, labels in ((0, torch.zeros(n, 0)), (n, torch.eye(n)))]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("n_modalities", [1, 3])
def test_the_balance_term_equals_its_equation(n_modalities):
    outputs, _ = batch(16, n_modalities)
    assert_same_value_and_gradient(outputs, balance_term(outputs), literal.balance(outputs))


def test_the_balance_term_is_0_for_bits_on_half_of_the_time_and_1_for_bits_always_on():
    codes = torch.tensor([[50.0, -50.0], [-50.0, 50.0]])
    assert balance_term({"image": codes, "text": -codes}) == 0
    assert balance_term({"image": codes[:1], "text": -codes[1:]}) == 1


@pytest.mark.parametrize("name", WITHOUT_ANCHOR)
def test_terms_add_up_beside_any_loss(name):
    outputs, labels = batch(16)
    terms = {key: value for key, value in ALL_TERMS.items() if key != "memory"}
    torch.manual_seed(0)
    whole = make_loss(name, 16, 5, **terms)
    expected = whole.loss(outputs, labels) + 0.3 * literal.contrastive(outputs, labels, 0.5)
    expected = expected + 0.2 * literal.contrastive(outputs, torch.eye(len(labels)), 0.5)
    expected = expected + 2.0 * literal.balance(outputs) + 0.7 * TALRLoss(16)(outputs, labels)
    assert_same_value_and_gradient(outputs, whole(outputs, labels), expected)
    assert whole.n_bits == 16
    assert whole.channels is (whole.loss if name in CHANNEL_LOSSES else None)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_terms_it_is_the_loss_itself(name):
    off = {key: 0 for key in vars(Terms()) if key != "temperature"}
    assert type(make_loss(name, 16, 5, **off, temperature=0.2)) is LOSSES[name]
    shared = {"temperature"} if name == "contrastive" else set()
    assert vars(Terms()).keys() & {*vars(make_loss(name, 16, 5)), *LOSSES[name].__init__.__annotations__} == shared


def test_a_term_alone_is_that_term():
    outputs, labels = batch(16)
    loss = DSCHLoss(16)(outputs, labels)
    for key, term in {
        "contrastive": contrastive_term(outputs, labels),
        "pairs": ContrastiveLoss()(outputs, labels),
        "balance": balance_term(outputs),
        "average_precision": TALRLoss(16)(outputs, labels),
    }.items():
        actual = make_loss("dsch", 16, 5, **{key: 1.5})(outputs, labels)
        torch.testing.assert_close(actual, loss + 1.5 * term)


# Memory


def three_batches(k: int):
    return [batch(k, seed=seed) for seed in range(3)]


MEMORY_SETTINGS = dict(lambda_neg=7.0, tau=0.5, gamma_w=3.0, gamma_l=1.5, alpha=2.0, beta=0.5)


@pytest.mark.parametrize("size", [5, 10, 100])
def test_memory_equals_the_equation(size):
    """Empty; then with the first batch; then with the last samples of both."""
    loss = make_loss("dsch", 16, 5, **MEMORY_SETTINGS, hardness=1.0, memory=size)
    seen, seen_labels = [], []
    for outputs, labels in three_batches(16):
        expected = loss.loss(outputs, labels)
        if seen:
            kept = {name: torch.cat([codes[name] for codes in seen])[-size:] for name in outputs}
            kept_labels = torch.cat(seen_labels)[-size:]
            more = literal.dsch_with_memory(outputs, labels, kept, kept_labels, 16, **MEMORY_SETTINGS, hardness=1.0)
            assert more > 0
            expected = expected + more
        assert_same_value_and_gradient(outputs, loss(outputs, labels), expected)
        seen.append(outputs)
        seen_labels.append(labels)
    assert len(loss.memory) == min(size, 21)


@pytest.mark.parametrize("name", ["bsch", "dsch", "sch"])
def test_pairs_with_a_memory_of_the_same_batch_are_the_loss_again(name):
    """Where the loss is a mean of violations, as RSCH is not. Half of its gradient: in memory the other one of a pair
    is a constant."""
    outputs, labels = batch(16)
    labels[2, 0] = True  # without labels a sample is as unlike itself as any other
    loss = make_loss(name, 16, 5, memory=7, kappa_q=0.0)
    plain = value_and_gradients(loss.loss, outputs, labels)
    loss(outputs, labels)
    value, *gradients = value_and_gradients(loss, outputs, labels)
    torch.testing.assert_close(value, 2 * plain[0])
    for got, want in zip(gradients, plain[1:], strict=True):
        torch.testing.assert_close(got, 1.5 * want)


@settings(deadline=None, max_examples=15)
@given(
    name=st.sampled_from(["dsch", "sch", "hashnet"]),
    side=st.integers(1, 12),
    parts=st.integers(1, 4),
    n=st.integers(2, 9),
    hardness=st.sampled_from([0.0, 1.5]),
)
def test_shards_in_tiles_add_up_to_the_whole(name, side, parts, n, hardness):
    terms = ALL_TERMS if name in CHANNEL_LOSSES else ALL_TERMS | {"memory": 0}
    more = {"hardness": hardness} if name in CHANNEL_LOSSES else {}
    loss = make_loss(name, 6, 4, **terms, **more)
    for seed in (1, 2):
        loss(*draw_batch(n, 6, seed=seed))
    outputs, labels = draw_batch(n, 6)
    copies = [copy.deepcopy(loss) for _ in range(parts)]  # each process has its own memory
    whole = value_and_gradients(loss, outputs, labels)
    with in_tiles(side):
        shards = [
            value_and_gradients(part, outputs, labels, shard=Shard(number, parts)) for number, part in enumerate(copies)
        ]
    for want, *pieces in zip(whole, *shards, strict=True):
        torch.testing.assert_close(torch.stack(pieces).sum(dim=0), want, rtol=1e-9, atol=1e-10)
    if loss.memory is not None:
        assert all(torch.equal(own.memory.labels, loss.memory.labels) for own in copies)


def test_memory_is_keyed_by_name():
    outputs, labels = batch(16)
    loss, other = (make_loss("dsch", 16, 5, memory=10) for _ in range(2))
    loss(outputs, labels)
    other({name: outputs[name] for name in ("text", "image")}, labels)
    torch.testing.assert_close(loss(outputs, labels), other(outputs, labels))
    with pytest.raises(ValueError, match="the memory is of image, text, the outputs of image"):
        loss({"image": outputs["image"]}, labels)


def test_memory_goes_through_a_file_to_the_same_bits():
    loss, again = (make_loss("dsch", 16, 5, memory=10) for _ in range(2))
    (first, second, third) = three_batches(16)
    loss(*first)
    loss(*second)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loss(*third), again(*third))
    assert torch.equal(loss(*first), again(*first))


def test_a_memory_is_of_one_size_even_where_batches_are_larger():
    loss = make_loss("sch", 16, 5, memory=3)
    outputs, labels = batch(16)
    loss(outputs, labels)
    assert len(loss.memory) == 3
    assert torch.equal(loss.memory.labels, labels[-3:])


def test_evaluating_keeps_nothing():
    loss = make_loss("dsch", 16, 5, memory=10)
    (first, second, _) = three_batches(16)
    loss(*first)
    loss.eval()
    assert torch.equal(loss(*second), loss(*second))
    assert len(loss.memory) == 7


def test_what_does_not_go_together_is_refused():
    for term in ({"contrastive": 1.0}, {"balance": 1.0}, {"average_precision": 1.0}, {"memory": 8}):
        (key,) = term
        with pytest.raises(ValueError, match=f"{key}: this loss trains one modality at a time"):
            make_loss("tdsrdh", 16, 5, **term)
    with pytest.raises(ValueError, match="memory: this loss has no channels"):
        make_loss("hashnet", 16, 5, memory=8)
    for wrong in ({"balance": -1.0}, {"memory": -1}, {"contrastive": 1.0, "temperature": 0.0}):
        with pytest.raises(ValueError, match="0 or more, the temperature is above 0"):
            Terms(**wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_terms_are_computed_in_full_precision(dtype):
    outputs, labels = batch(16)
    outputs = {name: codes.detach().to(dtype) for name, codes in outputs.items()}
    values = []
    for enabled in (False, True):
        loss = make_loss("dsch", 16, 5, **ALL_TERMS)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss(outputs, labels)
            values.append(loss(outputs, labels))
    assert values[0].dtype == torch.float32
    assert torch.equal(*values)


def test_pairs_learn_from_what_is_beyond_the_code():
    outputs, labels = batch(12 + 7)
    value = make_loss("dsch", 12, labels.shape[1], pairs=0.3, average_precision=2.0, temperature=0.2)(outputs, labels)
    first = {modality: values[:, :12] for modality, values in outputs.items()}
    rest = {modality: values[:, 12:] for modality, values in outputs.items()}
    expected = make_loss("dsch", 12, labels.shape[1], average_precision=2.0)(first, labels)
    assert value.item() == pytest.approx((expected + 0.3 * ContrastiveLoss(0.2)(rest, labels)).item(), rel=1e-5)
    with pytest.raises(ValueError, match="12 bits"):
        make_loss("dsch", 12, labels.shape[1], average_precision=2.0)(outputs, labels)
