"""Bits of a pair against the equations, written out."""

import math

import numpy as np
import pytest
import torch

from channelhash.channels import relaxed_hamming
from channelhash.explanation.bit_labels import compare_bits


def pair(seed: int, k: int = 13) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=k).astype(np.float32), random.normal(size=k).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_strengths_and_shares_are_what_they_say(seed):
    first, second = pair(seed)
    size = {0: math.sqrt(sum(float(x) ** 2 for x in first) / 13), 1: math.sqrt(sum(float(x) ** 2 for x in second) / 13)}
    for j, bit in enumerate(compare_bits(first, second)):
        assert bit.number == j + 1
        assert bit.values == (first[j] >= 0, second[j] >= 0)
        assert bit.agrees == (bit.values[0] == bit.values[1])
        assert bit.strengths == pytest.approx((abs(first[j]) / size[0], abs(second[j]) / size[1]))
        assert bit.share == pytest.approx(float(first[j]) * float(second[j]) / (13 * size[0] * size[1]))
        assert (bit.share > 0) == bit.agrees


@pytest.mark.parametrize("seed", range(3))
def test_the_shares_sum_up_to_the_relaxed_distance(seed):
    first, second = pair(seed)
    cosine = sum(bit.share for bit in compare_bits(first, second))
    relaxed = relaxed_hamming(torch.from_numpy(first)[None], torch.from_numpy(second)[None])
    assert 6.5 * (1 - cosine) == pytest.approx(float(relaxed), abs=1e-5)


def test_of_bare_bits_each_counts_the_same_and_none_has_a_strength():
    first = np.array([1, -1, 1, 1], dtype=np.float32)
    second = np.array([0.1, -2, -0.3, 0.4], dtype=np.float32)
    bits = compare_bits(first, second, (False, True))
    assert [bit.strengths[0] for bit in bits] == [None] * 4
    assert all(bit.strengths[1] is not None for bit in bits)
    assert {abs(bit.share) for bit in compare_bits(first, -first, (False, False))} == {0.25}


def test_outputs_without_direction_have_no_share():
    bits = compare_bits(np.zeros(3, np.float32), np.ones(3, np.float32))
    assert [(bit.share, bit.strengths[0], bit.agrees) for bit in bits] == [(0.0, 0.0, True)] * 3
