"""Which pictures are blended, and what their labels become."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from channelhash.augment.mixing import draw_mix, mix_inputs, mix_labels
from channelhash.channels import label_similarity


def test_draws_have_their_probability_and_any_partner_but_the_sample_itself():
    draws = {(epoch, sample): draw_mix(5, epoch, sample, 7, 0.6, 0.5) for epoch in range(200) for sample in range(7)}
    found = [(sample, mix) for (_, sample), mix in draws.items() if mix]
    assert len(found) / len(draws) == pytest.approx(0.6, abs=0.04)
    assert all(mix.partner != sample for sample, mix in found)
    assert {mix.partner for sample, mix in found if sample == 3} == {0, 1, 2, 4, 5, 6}
    shares = np.array([mix.share for _, mix in found])
    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    assert shares.var() == pytest.approx(1 / 8, abs=0.02)  # of Beta(1/2, 1/2)
    assert draw_mix(5, 3, 2, 7, 0.6, 0.5) == draws[3, 2]
    assert draw_mix(6, 3, 2, 7, 1.0, 0.5) != draw_mix(5, 3, 2, 7, 1.0, 0.5)
    assert draw_mix(0, 0, 0, 1, 1.0, 1.0) is None  # a lone sample has no other


def test_inputs_are_blended_row_by_row():
    a, b = torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4)
    mixed = mix_inputs(a, b, torch.tensor([1.0, 0.25, 0.0]))
    assert torch.equal(mixed[0], a[0])
    assert torch.equal(mixed[2], b[2])
    torch.testing.assert_close(mixed[1], 0.25 * a[1] + 0.75 * b[1])


label_rows = st.lists(st.booleans(), min_size=5, max_size=5).filter(any)


@given(label_rows, label_rows, label_rows, st.floats(0, 1, width=32))
def test_blended_labels_are_the_blend_of_directions(first, second, third, share):
    y_i, y_j, y_k = (torch.tensor([row], dtype=torch.float64) for row in (first, second, third))
    mixed = mix_labels(y_i, y_j, torch.tensor([share])).double()
    # Similarity to a third: λ S_ik + (1 − λ) S_jk, over the length of the blend of unit vectors.
    length = (share * y_i / y_i.norm() + (1 - share) * y_j / y_j.norm()).norm()
    expected = (share * label_similarity(y_i, y_k) + (1 - share) * label_similarity(y_j, y_k)) / length
    assert label_similarity(mixed, y_k).item() == pytest.approx(expected.item(), abs=1e-5)
    if first == second:
        assert torch.equal(mixed, y_i)


def test_half_of_each_is_as_similar_to_both_whatever_the_number_of_labels():
    labels = torch.tensor([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    mixed = mix_labels(labels[:1], labels[1:], torch.tensor([0.5]))
    assert label_similarity(mixed, labels.float()).tolist()[0] == pytest.approx([0.5**0.5] * 2)
    raw = 0.5 * labels.sum(dim=0, keepdim=True)
    assert label_similarity(raw, labels.float()).tolist()[0] == pytest.approx([0.38, 0.93], abs=0.005)
