"""The paper's three losses against their literal transcriptions, in tiles as in one piece; all
losses at the edges, and what they need and refuse."""

import math
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from scipy.linalg import hadamard

import channelhash.losses.base as tiles
from channelhash.channels import label_similarity
from channelhash.losses import (
    LOSSES,
    DSCHLoss,
    LossWithTerms,
    SCHLoss,
    Terms,
    loss_settings,
    make_loss,
    resolve_loss,
)
from losses import loss_equations as literal
from pages import ROOT
from refusals import check_refusal, refusal

refuse = partial(check_refusal, error=ValueError)

MODALITIES = ("image", "text", "audio")


def batch(k: int, n_modalities: int = 2, n: int = 7, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    how = {"generator": random, "dtype": torch.float64, "requires_grad": True}
    outputs = {name: torch.randn(n, k, **how) for name in MODALITIES[:n_modalities]}
    labels = torch.rand(n, 5, generator=random) < 0.4
    labels[:2] = torch.tensor([True, True, True, False, False])  # S = 1 off the diagonal
    labels[2:3] = False  # a sample without labels
    # shares nothing with the first two
    labels[3:4] = torch.tensor([False, False, False, True, True])
    return outputs, labels


def assert_same_value_and_gradient(outputs, ours, oracle):
    assert ours.item() == pytest.approx(oracle.item(), rel=1e-9)
    expected = torch.autograd.grad(oracle, list(outputs.values()), allow_unused=True)
    actual = torch.autograd.grad(ours, list(outputs.values()), allow_unused=True)
    for want, got in zip(expected, actual, strict=True):
        if want is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


#: Loss -> the transcription's defaults, and changes of them.
SETTINGS = {
    "dsch": (
        dict(lambda_neg=None, tau=1.0, gamma_w=8.0, gamma_l=1.0, alpha=1.0, beta=1.0, kappa_q=0.01),
        [
            {},
            {"lambda_neg": 5.0},
            {"tau": 2.5},
            {"gamma_w": 2.0},
            {"gamma_w": 0.7},
            {"gamma_l": 2.0},
            {"gamma_l": 0.5},
            {"alpha": 3.0},
            {"beta": 0.25},
            {"kappa_q": 0.0},
            {"kappa_q": 0.4},
            dict(
                lambda_neg=9.0, tau=0.5, gamma_w=3.0, gamma_l=1.5, alpha=2.0, beta=0.5, kappa_q=0.1
            ),
        ],
    ),
    "sch": (
        dict(tau=3.0, alpha=1.0, beta=1.0, kappa_q=0.0),
        [
            {},
            {"tau": 1.5},
            {"alpha": 3.0},
            {"beta": 0.25},
            {"kappa_q": 0.01},
            dict(tau=5.0, alpha=2.0, kappa_q=0.3),
        ],
    ),
    "bsch": (
        dict(similarity_ratio=None, rho=1.0, gamma_l=1.0, alpha=1.0, beta=1.0, kappa_q=0.1),
        [
            {},
            {"similarity_ratio": 0.3},
            {"similarity_ratio": 9.0},
            {"rho": 0.5},
            {"rho": 0.0},
            {"gamma_l": 2.0},
            dict(alpha=2.0, beta=0.5, kappa_q=0.3),
        ],
    ),
}


CHANGES = [
    (name, changed, k, 2) for name in SETTINGS for changed in SETTINGS[name][1] for k in (16, 128)
]
CHANGES += [(name, {}, 16, n_modalities) for name in SETTINGS for n_modalities in (1, 3)]


@pytest.mark.parametrize(("name", "changed", "k", "n_modalities"), CHANGES, ids=str)
def test_a_channel_loss_equals_its_equation_in_value_and_gradient(name, changed, k, n_modalities):
    outputs, labels = batch(k, n_modalities)
    settings = SETTINGS[name][0] | changed
    ours = LOSSES[name](n_bits=k, **changed)(outputs, labels)
    if name == "dsch" and settings["lambda_neg"] is None:
        settings["lambda_neg"] = k / 2
    assert_same_value_and_gradient(
        outputs, ours, getattr(literal, name)(outputs, labels, k, **settings)
    )


@pytest.mark.parametrize(("k", "channel"), [(16, {}), (128, {"gamma_w": 2.0, "tau": 3.0})])
def test_with_one_label_an_item_dsch_is_sch(k, channel):
    """S is 0 or 1, also of an item without labels: only the quantisation term, which both can have,
    sets them apart.
    """
    outputs, _ = batch(k)
    labels = torch.tensor(
        [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    )
    for kappa_q in (0.0, 0.3):
        dsch, sch = DSCHLoss(k, kappa_q=kappa_q, **channel), SCHLoss(k, kappa_q=kappa_q)
        assert_same_value_and_gradient(outputs, *(loss(outputs, labels) for loss in (dsch, sch)))


def test_bsch_has_no_gap_that_codes_could_not_attain():
    """Sets of labels that are all alike or share none: the bits of a Hadamard code attain every
    bound.
    """
    k, n_classes, each = 8, 8, 3
    labels = torch.eye(n_classes).repeat_interleave(each, dim=0).bool()
    codes = torch.from_numpy(hadamard(k)).float()
    # 7 bits, rows 4 apart: k/2 + 1/2, more is impossible
    simplex = codes[:, 1:].repeat_interleave(each, dim=0)
    loss = LOSSES["bsch"](7, kappa_q=0.0)
    assert loss({"image": simplex, "text": simplex}, labels).item() == pytest.approx(0, abs=1e-6)
    lower, _ = loss.bounds(label_similarity(labels))
    assert lower.max().item() == pytest.approx(4.0)
    lower, _ = LOSSES["bsch"](7, rho=0.0).bounds(label_similarity(labels))
    assert lower.max().item() == pytest.approx(3.5)
    # r is infinite here, and 0 · ∞ is no number.
    outputs, labels = batch(16)
    labels[:, 0] = True
    assert torch.isfinite(LOSSES["bsch"](16, rho=0.0)(outputs, labels))


@given(seed=st.integers(0, 10**6), k=st.sampled_from([8, 32]), pull=st.floats(0, 3))
def test_rsch_bounds_the_share_of_misplaced_pairs(seed, k, pull):
    """1 − AUC of a ranking of all pairs, ties counted as misplaced, is at most (loss / Δ)²."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 3, (12,), generator=random)
    labels = torch.nn.functional.one_hot(classes, 4)
    labels[:, 3] = torch.randint(0, 2, (12,), generator=random)
    codes = torch.randn(12, k, generator=random, dtype=torch.float64)
    codes = codes + pull * torch.randn(3, k, generator=random, dtype=torch.float64)[classes]
    loss = LOSSES["rsch"](k)
    similarity = label_similarity(labels).double()
    distances = 0.5 * (k - torch.tanh(codes) @ torch.tanh(codes).T)
    similar, dissimilar = distances[similarity > 0], distances[similarity == 0]
    assume(len(dissimilar) > 0)
    lower, upper = loss.bounds(similarity)
    gap = lower[similarity == 0].min() - upper[similarity > 0].max()
    misplaced = (similar[:, None] >= dissimilar[None]).double().mean()
    assert misplaced <= (loss({"image": codes}, labels) / gap) ** 2 + 1e-9


@pytest.mark.parametrize("k", [16, 128])
@pytest.mark.parametrize("anchor", ["image", "text"])
@pytest.mark.parametrize("changed", [{}, {"alpha": 0.7}, {"beta": 0.2}, {"epsilon": 9.0}], ids=str)
def test_tdsrdh_equals_the_equation_in_value_and_gradient(k, anchor, changed):
    outputs, labels = batch(k)
    settings = dict(alpha=0.05, beta=1.0, epsilon=0.3) | changed
    ours = LOSSES["tdsrdh"](**settings)(outputs, labels, anchor=anchor)
    assert_same_value_and_gradient(
        outputs, ours, literal.tdsrdh(outputs, labels, anchor, **settings)
    )


def test_tdsrdh_sums_over_the_other_modalities_and_by_default_over_the_anchors_or_trains_its_only_one():
    outputs, labels = batch(16, 3)
    oracle = sum(literal.tdsrdh(outputs, labels, anchor, 0.05, 1.0, 0.3) for anchor in MODALITIES)
    assert_same_value_and_gradient(outputs, LOSSES["tdsrdh"]()(outputs, labels), oracle)
    outputs, labels = batch(16, 1)
    LOSSES["tdsrdh"]()(outputs, labels).backward()
    assert outputs["image"].grad.isfinite().all()
    assert outputs["image"].grad.any()


def default_loss(name: str, k: int):
    torch.manual_seed(0)
    return make_loss(name, k, n_labels=5)


EDGES = {
    "zero rows": lambda o: o.zero_(),
    "identical rows": lambda o: o.copy_(o[:1].expand_as(o)),
    "opposite rows": lambda o: o.copy_(o[:1] * torch.tensor([1.0, -1.0] * 8)[: len(o), None]),
    "tiny rows": lambda o: o.mul_(1e-30),
    "large rows": lambda o: o.mul_(1e3),
}


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("edge", sorted(EDGES))
def test_value_and_gradient_are_finite_at_the_edges(name, edge):
    outputs, labels = batch(16, n=8)
    outputs = {m: codes.detach().float() for m, codes in outputs.items()}
    for codes in outputs.values():
        EDGES[edge](codes)
        codes.requires_grad_()
    loss = default_loss(name, 16)(outputs, labels)
    loss.backward()
    assert loss.isfinite()
    assert all(codes.grad.isfinite().all() for codes in outputs.values())


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_autocast_does_not_lower_the_precision(name):
    outputs, labels = batch(32, n=16)
    outputs = {m: codes.detach().float() for m, codes in outputs.items()}
    loss = default_loss(name, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(outputs, labels)
    assert inside.dtype == torch.float32
    assert inside.item() == loss(outputs, labels).item()


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_no_tensor_of_pairs_times_bits_is_built(name):
    """The largest tensor kept for the backward pass has n² or n·(k+1) entries for each pair of
    modalities, not n²·k.
    """
    n, k = 64, 128
    outputs, labels = batch(k, n=n)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        default_loss(name, k)(outputs, labels)
    assert max(sizes) <= 4 * max(n * n, n * (k + 1)) < n * n * k


@pytest.mark.parametrize(("says", "n_texts", "n_labels", "anchor"), [
    ("all of one shape", 2, 3, None),
    ("labels are .* with n = 3", 3, 1, None),
    ("anchor 'audio'", 3, 3, "audio"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(says, n_texts, n_labels, anchor):
    outputs = {"image": torch.zeros(3, 8), "text": torch.zeros(n_texts, 8)}
    refuse(says, LOSSES["tdsrdh"](), outputs, torch.ones(n_labels, 2), anchor=anchor)


def value_and_gradients(loss, outputs, labels, **how):
    value = loss(outputs, labels, **how)
    return [value, *torch.autograd.grad(value, list(outputs.values()))]


def assert_shards_add_up(loss, outputs, labels, side, parts):
    """Also in value and gradient; returns those of each part."""
    whole = value_and_gradients(loss, outputs, labels)
    with in_tiles(side):
        shards = [
            value_and_gradients(loss, outputs, labels, shard=tiles.LossShard(i, parts))
            for i in range(parts)
        ]
    for want, *pieces in zip(whole, *shards, strict=True):
        torch.testing.assert_close(torch.stack(pieces).sum(dim=0), want, rtol=1e-9, atol=1e-10)
    return whole, shards


@contextmanager
def in_tiles(side: int):
    """Tiles of so many samples on a side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "_SIDE", side)
        yield


@st.composite
def cases(draw):
    k = draw(st.integers(1, 20))
    gamma_l = draw(st.sampled_from([1.0, 2.0, 1.5]))
    alpha, beta = draw(st.sampled_from([(1.0, 1.0), (3.0, 0.25)]))
    dsch = DSCHLoss(k, tau=min(1.0, k / 2), gamma_l=gamma_l, alpha=alpha, beta=beta, gamma_w=2.0)
    sch = SCHLoss(k, alpha=alpha, beta=beta, kappa_q=0.3)
    terms = Terms(contrastive=0.3, pairs=0.2, temperature=0.5, average_precision=0.7)
    beside = [LossWithTerms(one, k, terms) for one in (dsch, sch, LOSSES["hashnet"](k))]
    loss = draw(st.sampled_from([dsch, sch, *beside]))
    fewest = 2 if isinstance(loss, LossWithTerms) else 1  # InfoNCE is between modalities
    ends = ((1, 30), (fewest, 3), (1, 5), (0, 1000))
    n, n_modalities, n_labels, seed = (draw(st.integers(*two)) for two in ends)
    outputs, labels = batch(k, n_modalities, n, seed)
    return loss, outputs, labels[:, :n_labels]


@settings(max_examples=60)
@given(case=cases(), side=st.integers(1, 31), parts=st.integers(1, 5))
def test_tiles_and_their_shards_add_up_to_the_whole(case, side, parts):
    assert_shards_add_up(*case, side, parts)


def test_a_batch_above_the_side_of_a_tile_is_cut_and_stays_the_same():
    outputs, labels = batch(16, n=3 * tiles._SIDE // 2)
    assert len(tiles._tiles(len(labels))) == 3
    actual = value_and_gradients(DSCHLoss(16), outputs, labels)
    similarity = label_similarity(labels).double()
    by_similarity = value_and_gradients(DSCHLoss(16), outputs, None, similarity=similarity)
    with in_tiles(len(labels)):
        expected = value_and_gradients(DSCHLoss(16), outputs, labels)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(by_similarity, expected, rtol=1e-6, atol=1e-9)


MEMORY = """
import sys, torch
sys.path.append("{benchmarks}")
from timing import measure_extra_memory
from channelhash.losses import DSCHLoss
torch.set_num_threads(1)
outputs = {name: torch.randn(16384, 64).requires_grad_() for name in ("image", "text")}
labels = torch.rand(16384, 24) < 0.15
loss = DSCHLoss(64)
print(measure_extra_memory(lambda: loss(outputs, labels).backward()))
"""


@pytest.mark.slow
def test_a_batch_of_16384_takes_less_than_200_megabytes():
    """One array of (2n, 2n) alone would be 4.3 GB."""
    command = [sys.executable, "-c", MEMORY.replace("{benchmarks}", str(ROOT / "benchmarks"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 8 < float(done.stdout) < 200  # the gradient is 8 MB: what is measured is really there


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_shards_add_up_and_only_a_sharded_loss_divides_its_pairs(name):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    whole, shards = assert_shards_add_up(loss, outputs, labels, side=2, parts=3)
    assert all(torch.allclose(value, whole[0] / 3) for value, *_ in shards) != loss.sharded


WRONG_LABELS = {
    "labels > 0": lambda labels: 2 * labels.long() - 1,
    "labels are finite numbers": lambda labels: labels.float().masked_fill(labels, float("nan")),
    # class numbers as MATLAB keeps them
    "one_hot": lambda labels: torch.arange(len(labels))[:, None],
    "from 0 to 1, not 3": lambda labels: labels * 3.0,
    "labels.long": lambda labels: torch.arange(len(labels)),
}


@pytest.mark.parametrize("remedy", WRONG_LABELS)
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_says_what_to_pass_instead_of_labels_that_are_none(name, remedy):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    assert torch.isfinite(loss(outputs, labels * 0.5))  # numbers on a CPU are checked in each call
    refuse(remedy, loss, outputs, WRONG_LABELS[remedy](labels))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_trains_its_anchor_alone_or_refuses_one(name):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    if loss.trains_anchor:
        loss(outputs, labels, anchor="text").backward()
        assert outputs["text"].grad.any()
        assert outputs["image"].grad is None or not outputs["image"].grad.any()
    else:
        refuse("at once; leave anchor out", loss, outputs, labels, anchor="text")


OWN = {"broken_losses": "1 / 0", "losses_of_mine": """
import torch
from channelhash.losses import HashLoss

class Length(HashLoss):
    def __init__(self, n_bits, target: float = 1.0, *rest, **more):
        super().__init__()
        self.n_bits, self.target = n_bits, target
    def compute(self, batch):
        return (batch.codes.square().mean() - self.target) ** 2

class Nothing(HashLoss):
    pass

class Plain(torch.nn.Module):
    pass
"""}  # fmt: skip


def test_a_loss_of_ones_own_is_resolved_and_made(in_folder):
    name = "python:losses_of_mine:Length"
    assert list(loss_settings(resolve_loss(name)).model_fields) == ["target"]
    outputs, labels = batch(16)
    loss = make_loss(name, 16, 5, target=2.0, contrastive=0.5)
    assert loss.loss.target == 2.0
    assert loss(outputs, labels).isfinite()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dcsh", "unknown loss.name 'dcsh'; did you mean 'dsch'?"),
        (
            "python:no_such_module:X",
            "loss.name python:no_such_module:X: the module cannot be imported",
        ),
        (
            "python:broken_losses:X",
            "broken_losses.py, line 1: ZeroDivisionError: division by zero; mend it",
        ),
        (
            "python:losses_of_mine:Gone",
            "loss.name python:losses_of_mine:Gone: the module losses_of_mine has no 'Gone'",
        ),
        ("python:losses_of_mine", "write it as python:package.module:Name"),
        (
            "python:losses_of_mine:Plain",
            "is not a loss; derive it from channelhash.losses.HashLoss",
        ),
        ("python:losses_of_mine:OWN", "has no 'OWN'"),
        ("python:losses_of_mine:Nothing", "does not define compute"),
        ("python:os:getcwd", "is not a loss"),
    ],
)
def test_a_name_that_is_no_loss_is_one_line(name, says, in_folder):
    assert says in refusal(resolve_loss, name)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda codes: torch.ones(3), r"a tensor of shape \(3,\)"),
        (lambda codes: codes.mean(dim=0, keepdim=True)[:, :1], r"a tensor of shape \(1, 1\)"),
        (lambda codes: 0.5, "0.5"),
        (lambda codes: None, "None"),
        (lambda codes: (codes.mean(), {}), "a tuple"),
        (lambda codes: {"loss": codes.mean()}, "a dict"),
        (lambda codes: np.float32(1), "a float32"),
        (lambda codes: codes.mean().detach(), "one without a gradient"),
        (lambda codes: torch.tensor(3), "one without a gradient"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("terms", [{}, {"average_precision": 1.0}], ids=["alone", "with terms"])
@pytest.mark.parametrize(
    "shard", [tiles.LossShard(0, 1), tiles.LossShard(0, 2)], ids=["whole", "half"]
)
def test_a_loss_that_returns_no_scalar_is_named(returned, says, terms, shard):
    class Odd(tiles.HashLoss):
        def compute(self, batch):
            return returned(batch.codes[0])

    loss = LossWithTerms(Odd(), 4, Terms(**terms)) if terms else Odd()
    with pytest.raises(ValueError, match=rf"Odd.compute has to return a scalar tensor, not {says}"):
        loss({"text": torch.ones(2, 4, requires_grad=True)}, torch.eye(2), shard=shard)
    if says == "one without a gradient":
        with torch.no_grad():
            assert loss({"text": torch.ones(2, 4)}, torch.eye(2)).ndim == 0


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 1.0), ("beta", 1.0), ("gamma_l", 1.0), ("kappa_q", 0.0)]
)
def test_weights_of_a_loss_of_channels_are_one_and_nothing_is_quantised(name, value):
    class Narrow(tiles.ChannelLoss):
        def bounds(self, similarity):
            return (torch.where(similarity == 0, self.n_bits, 0.0),) * 2

    outputs = {"text": torch.randn(4, 8, generator=torch.Generator().manual_seed(0))}
    labels = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]])
    default = Narrow(8)(outputs, labels)
    assert Narrow(8, **{name: value})(outputs, labels) == default
    assert Narrow(8, **{name: value + 1})(outputs, labels) != default


BITS = 8
#: setting -> its least and greatest value, ends included; the settings of all losses that are not
#: here have no limits.
LIMITS = {
    "tau": (0.0, math.inf), "lambda_neg": (-math.inf, float(BITS)), "rho": (0.0, 1.0),
    "similarity_ratio": (0.0, math.inf), "bin_width": (1.0, math.inf), "n_train": (1.0, math.inf),
}  # fmt: skip
NUMBERS = [
    (name, setting)
    for name, loss in LOSSES.items()
    for setting, field in loss_settings(loss).model_fields.items()
    if setting != "seed" and setting not in vars(Terms())
]


make_small = partial(make_loss, n_bits=BITS, n_labels=3)


@pytest.mark.parametrize(("name", "setting"), NUMBERS)
def test_ends_of_a_setting_are_allowed_and_nothing_beyond(name, setting):
    low, high = LIMITS.get(setting, (-math.inf, math.inf))
    for end, beyond in ((low, -math.inf), (high, math.inf)):
        if math.isinf(end):
            make_small(name, **{setting: math.copysign(1e6, end)})
        else:
            make_small(name, **{setting: end})
            refuse(setting, make_small, name, **{setting: math.nextafter(end, beyond)})
    if setting in LIMITS:
        refuse(setting, make_small, name, **{setting: math.nan})


@pytest.mark.parametrize("name", LOSSES)
def test_a_code_of_one_bit_is_the_shortest(name):
    make_loss(name, n_bits=1, n_labels=3)
    if name in ("dsch", "sch", "bsch", "rsch"):
        refuse("n_bits is 0", make_loss, name, n_bits=0, n_labels=3)


@pytest.mark.parametrize(("term", "least", "beyond", "says"), [
    *((weight, 0, math.nextafter(0, -1), "0 or more")
      for weight in ("contrastive", "pairs", "average_precision")),
    ("temperature", math.nextafter(0, 1), 0.0, "the temperature is above 0"),
])  # fmt: skip
def test_ends_of_the_terms(term, least, beyond, says):
    assert getattr(Terms(**{term: least}), term) == least
    for value in (beyond, math.nan):
        refuse(says, Terms, **{term: value})


def test_the_sign_of_zero_is_plus_as_the_bit_of_zero_is_one():
    assert tiles.sign(torch.tensor([0.0, -0.0, 1e-45, -1e-45])).tolist() == [1.0, 1.0, 1.0, -1.0]
    # Two modalities that cancel each other out: each is as far from +1.
    assert tiles.quantization_error(torch.tensor([[[0.25]], [[-0.25]]])).item() == 0.75 + 1.25
