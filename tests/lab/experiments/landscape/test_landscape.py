"""The landscape shows what the losses themselves compute, and the paper's discontinuity."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.lab.experiments.landscape import channel, pair_loss
from channelhash.losses import DSCHLoss, SCHLoss

shares = st.floats(0, 1)


def loss_of_two_samples(loss, similarity: float, share: float) -> float:
    """The loss itself on two samples with such labels and codes; one modality."""
    angle = math.acos(1 - 2 * share)
    codes = torch.zeros(2, loss.n_bits, dtype=torch.float64)
    codes[0, 0], codes[1, 0], codes[1, 1] = 1, math.cos(angle), math.sin(angle)
    labels = torch.tensor([[1, 0], [similarity, math.sqrt(1 - similarity**2)]], dtype=torch.float64)
    return loss({"image": codes}, labels).item()


@pytest.mark.parametrize(
    "loss",
    [
        DSCHLoss(32, kappa_q=0.0),
        DSCHLoss(24, lambda_neg=9.0, tau=2.5, gamma_w=3.0, gamma_l=2.0, alpha=3.0, beta=0.5, kappa_q=0.0),
        SCHLoss(32),
        SCHLoss(8, tau=1.0, alpha=2.0, beta=0.25),
        DSCHLoss(16, gamma_l=2.0, beta=0.5, kappa_q=0.0),
    ],
)
@settings(max_examples=40)
@given(similarity=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-3, 1 - 1e-3)), share=shares)
def test_a_pair_costs_what_the_loss_gives_two_samples(loss, similarity, share):
    # Of the four ordered pairs two are of a sample with itself, which costs nothing; the mean is over n² = 4.
    expected = 2 * loss_of_two_samples(loss, similarity, share)
    assert float(pair_loss(loss, similarity, share * loss.n_bits)) == pytest.approx(expected, abs=1e-5)


@given(share=shares, gamma_w=st.floats(1, 14))
def test_dsch_is_continuous_at_similarity_zero_and_sch_is_not(share, gamma_w):
    dsch, sch = DSCHLoss(32, gamma_w=gamma_w), SCHLoss(32)
    step = abs(pair_loss(dsch, 1e-9, share * 32) - pair_loss(dsch, 0.0, share * 32))
    assert step < 1e-5
    lower, upper = channel(sch, [0.0, 1e-9])
    np.testing.assert_allclose(lower, [16, 13], atol=1e-6)
    np.testing.assert_allclose(upper, [32, 16], atol=1e-6)
