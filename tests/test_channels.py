"""Label similarity, relaxed distance and channel bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import channelhash as ch
from channelhash import channels
from channelhash.channels import label_similarity, similarity_ratio
from refusals import check_refusal

LABELS = arrays(bool, st.tuples(st.integers(1, 8), st.integers(1, 30)))


@given(LABELS)
def test_similarity_is_the_cosine_of_label_vectors(labels):
    similarity = ch.channels.label_similarity(torch.from_numpy(labels).double())
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            size = math.sqrt(int(a.sum()) * int(b.sum()))
            expected = 1.0 if i == j else (int((a & b).sum()) / size if size else 0.0)
            assert similarity[i, j].item() == pytest.approx(expected, abs=1e-12)


@given(LABELS)
def test_equal_label_sets_have_similarity_exactly_one(labels):
    """Also in float32: otherwise pairs fall out of the set S = 1 and (1 − S) turns negative."""
    similarity = ch.channels.label_similarity(torch.from_numpy(np.concatenate([labels, labels])))
    n = len(labels)
    labelled = labels.any(axis=1)
    assert (similarity.diagonal(n)[torch.from_numpy(labelled)] == 1).all()
    assert similarity.min() >= 0
    assert similarity.max() <= 1


@pytest.mark.parametrize(
    "labels", [[[1, -1]], [[0.5, math.nan]], [[math.inf, 0]], [[0], [3]], [1, 2]], ids=str
)
def test_similarity_is_of_labels_alone(labels):
    wrong = torch.tensor(labels)
    for compare in (label_similarity, similarity_ratio):
        check_refusal("labels", compare, wrong, error=ValueError)
    check_refusal(
        "labels",
        label_similarity,
        torch.ones(1, wrong.shape[-1], dtype=torch.bool),
        wrong,
        error=ValueError,
    )


@given(
    arrays(bool, st.tuples(st.integers(1, 6), st.just(19))),
    arrays(bool, st.tuples(st.integers(1, 6), st.just(19))),
)
def test_relaxed_distance_of_binary_codes_is_the_hamming_distance(a, b):
    relaxed = ch.channels.relaxed_hamming(
        torch.from_numpy(a * 2.0 - 1), torch.from_numpy(b * 2.0 - 1)
    )
    np.testing.assert_allclose(relaxed, (a[:, None] != b[None]).sum(-1), atol=1e-9)


@given(st.floats(0, 1), st.integers(8, 256), st.floats(0, 1), st.floats(0.1, 4), st.floats(0.1, 14))
def test_dsch_bounds_are_the_equations(s, k, share, tau, gamma_w):
    lambda_neg = share * k / 2
    lower, upper = ch.channels.dsch_bounds(
        torch.tensor([s], dtype=torch.float64), k, lambda_neg, tau, gamma_w
    )
    p = lambda_neg * (1 - s) - s * tau
    w = (1 - s) ** gamma_w * (k - lambda_neg - tau) + tau
    assert lower.item() == pytest.approx(p)
    assert upper.item() == pytest.approx(p + w)


def test_sch_bounds_jump_at_zero_similarity():
    lower, upper = ch.channels.sch_bounds(
        torch.tensor([0.0, 1e-6, 0.5, 1.0], dtype=torch.float64), 32
    )
    np.testing.assert_allclose(lower, [16, 13, 5, 0], atol=1e-4)
    np.testing.assert_allclose(upper, [32, 16, 8, 0], atol=1e-4)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12))
def test_the_similarity_ratio_is_the_literal_sum(rows):
    labels = torch.tensor(rows)
    similarity = label_similarity(labels)
    zeros = int((similarity == 0).sum())
    expected = similarity.sum().item() / zeros if zeros else float("inf")
    for rows_of_a_block in (channels._BLOCK, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channels, "_BLOCK", rows_of_a_block)
            assert similarity_ratio(labels) == pytest.approx(expected)
