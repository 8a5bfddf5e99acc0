"""Every loss declares truthfully what it needs, and refuses what it does not take, beyond the ends of settings too."""

import math
from functools import partial

import pytest
import torch

from channelhash.losses import LOSSES, ChannelLoss, HashLoss, Terms, loss_settings, make_loss, resolve_loss
from channelhash.losses.base import quantization_error, sign
from losses.test_losses import assert_shards_add_up, batch, default_loss
from refusals import check_refusal, refusal


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_shards_add_up_and_only_a_sharded_loss_divides_its_pairs(name):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    whole, shards = assert_shards_add_up(loss, outputs, labels, side=2, parts=3)
    assert all(torch.allclose(value, whole[0] / 3) for value, *_ in shards) != loss.sharded


WRONG_LABELS = {
    "labels > 0": lambda labels: 2 * labels.long() - 1,
    "labels are finite numbers": lambda labels: labels.float().masked_fill(labels, float("nan")),
    "one_hot": lambda labels: torch.arange(len(labels))[:, None],  # class numbers as MATLAB keeps them
    "from 0 to 1, not 3": lambda labels: labels * 3.0,
    "labels.long": lambda labels: torch.arange(len(labels)),
}


@pytest.mark.parametrize("remedy", WRONG_LABELS)
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_says_what_to_pass_instead_of_labels_that_are_none(name, remedy):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    assert torch.isfinite(loss(outputs, labels * 0.5))  # numbers on a CPU are checked in each call
    check_refusal(remedy, loss, outputs, WRONG_LABELS[remedy](labels), error=ValueError)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_trains_its_anchor_alone_or_refuses_one(name):
    outputs, labels = batch(16)
    loss = default_loss(name, 16).double()
    if loss.trains_anchor:
        loss(outputs, labels, anchor="text").backward()
        assert outputs["text"].grad.any()
        assert outputs["image"].grad is None or not outputs["image"].grad.any()
    else:
        says = "trains all modalities at once; leave anchor out"
        check_refusal(says, loss, outputs, labels, anchor="text", error=ValueError)


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


@pytest.mark.parametrize(("name", "says"), [
    ("dcsh", "unknown loss.name 'dcsh'; did you mean 'dsch'?"),
    ("python:no_such_module:X", "loss.name python:no_such_module:X: the module cannot be imported"),
    ("python:broken_losses:X", "broken_losses.py, line 1: ZeroDivisionError: division by zero; mend it"),
    ("python:losses_of_mine:Gone", "loss.name python:losses_of_mine:Gone: the module losses_of_mine has no 'Gone'"),
    ("python:losses_of_mine", "write it as python:package.module:Name"),
    ("python:losses_of_mine:Plain", "is not a loss; derive it from channelhash.losses.HashLoss"),
    ("python:losses_of_mine:OWN", "has no 'OWN'"),
    ("python:losses_of_mine:Nothing", "does not define compute"),
    ("python:os:getcwd", "is not a loss"),
])  # fmt: skip
def test_a_name_that_is_no_loss_is_one_line(name, says, in_folder):
    assert says in refusal(resolve_loss, name)


@pytest.mark.parametrize(("value", "says"), [(torch.ones(3), r"shape \(3,\)"), (0.5, "not 0.5")])
def test_a_loss_that_returns_no_scalar_is_refused(value, says):
    class Odd(HashLoss):
        def compute(self, batch):
            return value

    with pytest.raises(ValueError, match=rf"Odd.compute has to return a scalar tensor, .*{says}"):
        Odd()({"text": torch.ones(2, 4)}, torch.eye(2))


@pytest.mark.parametrize(("name", "value"), [("alpha", 1.0), ("beta", 1.0), ("gamma_l", 1.0), ("kappa_q", 0.0)])
def test_weights_of_a_loss_of_channels_are_one_and_nothing_is_quantised(name, value):
    class Narrow(ChannelLoss):
        def bounds(self, similarity):
            return (torch.where(similarity == 0, self.n_bits, 0.0),) * 2

    outputs = {"text": torch.randn(4, 8, generator=torch.Generator().manual_seed(0))}
    labels = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]])
    default = Narrow(8)(outputs, labels)
    assert Narrow(8, **{name: value})(outputs, labels) == default
    assert Narrow(8, **{name: value + 1})(outputs, labels) != default


BITS = 8
#: setting -> its least and greatest value, ends included; the settings of all losses that are not here have no limits.
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
            check_refusal(setting, make_small, name, error=ValueError, **{setting: math.nextafter(end, beyond)})
    if setting in LIMITS:
        check_refusal(setting, make_small, name, error=ValueError, **{setting: math.nan})


@pytest.mark.parametrize("name", LOSSES)
def test_a_code_of_one_bit_is_the_shortest(name):
    make_loss(name, n_bits=1, n_labels=3)
    if name in ("dsch", "sch", "bsch", "rsch"):
        check_refusal("n_bits is 0", make_loss, name, n_bits=0, n_labels=3, error=ValueError)


def test_ends_of_the_terms():
    for weight in ("contrastive", "pairs", "average_precision"):
        assert getattr(Terms(**{weight: 0}), weight) == 0
        for value in (math.nextafter(0, -1), math.nan):
            check_refusal("0 or more", Terms, error=ValueError, **{weight: value})
    assert Terms(temperature=math.nextafter(0, 1)).temperature > 0
    for temperature in (0.0, math.nan):
        check_refusal("the temperature is above 0", Terms, error=ValueError, temperature=temperature)


def test_the_sign_of_zero_is_plus_as_the_bit_of_zero_is_one():
    assert sign(torch.tensor([0.0, -0.0, 1e-45, -1e-45])).tolist() == [1.0, 1.0, 1.0, -1.0]
    # Two modalities that cancel each other out: each is as far from +1.
    assert quantization_error(torch.tensor([[[0.25]], [[-0.25]]])).item() == 0.75 + 1.25
