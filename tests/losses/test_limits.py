"""Ends of the ranges of losses' settings: the end itself is allowed, the nearest number beyond it is refused."""

import math

import pytest
import torch

from channelhash.losses import LOSSES, loss_settings, make_loss
from channelhash.losses.auxiliary import Terms
from channelhash.losses.base import quantization_error, sign
from refusals import check_refusal

BITS = 8
INFINITE = (-math.inf, math.inf)
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
WEIGHTS = ("contrastive", "pairs", "average_precision")


def make(name, **settings):
    return make_loss(name, n_bits=BITS, n_labels=3, **settings)


@pytest.mark.parametrize(("name", "setting"), NUMBERS)
def test_ends_of_a_setting_are_allowed_and_nothing_beyond(name, setting):
    low, high = LIMITS.get(setting, INFINITE)
    for end, beyond in ((low, -math.inf), (high, math.inf)):
        if math.isinf(end):
            make(name, **{setting: math.copysign(1e6, end)})
        else:
            make(name, **{setting: end})
            check_refusal(setting, make, name, error=ValueError, **{setting: math.nextafter(end, beyond)})
    if setting in LIMITS:
        check_refusal(setting, make, name, error=ValueError, **{setting: math.nan})


@pytest.mark.parametrize("name", LOSSES)
def test_a_code_of_one_bit_is_the_shortest(name):
    make_loss(name, n_bits=1, n_labels=3)
    if name in ("dsch", "sch", "bsch", "rsch"):
        check_refusal("n_bits is 0", make_loss, name, n_bits=0, n_labels=3, error=ValueError)


def test_ends_of_the_terms():
    for weight in WEIGHTS:
        assert getattr(Terms(**{weight: 0}), weight) == 0
        check_refusal("0 or more", Terms, error=ValueError, **{weight: math.nextafter(0, -1)})
        check_refusal("0 or more", Terms, error=ValueError, **{weight: math.nan})
    assert Terms(temperature=math.nextafter(0, 1)).temperature > 0
    for temperature in (0.0, math.nan):
        check_refusal("the temperature is above 0", Terms, error=ValueError, temperature=temperature)


def test_the_sign_of_zero_is_plus_as_the_bit_of_zero_is_one():
    zeros = torch.tensor([0.0, -0.0, 1e-45, -1e-45])
    assert sign(zeros).tolist() == [1.0, 1.0, 1.0, -1.0]
    # Two modalities that cancel each other out: each is as far from +1.
    assert quantization_error(torch.tensor([[[0.25]], [[-0.25]]])).item() == 0.75 + 1.25
