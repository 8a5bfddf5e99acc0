"""Rounded vectors against a slow transcription: component by component, level by level."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from channelhash.codes.quantizer import Quantizer, _bits_of, _numbers_of, normal_levels
from refusals import check_refusal


def vectors(n=200, d=24, seed=0):
    """Vectors whose components vary more and less, around a mean that is not zero."""
    random = np.random.default_rng(seed)
    spread = np.linspace(2, 0.1, d)
    return (random.normal(size=(n, d)) * spread + random.normal(size=d)).astype(np.float32)


@pytest.mark.parametrize("n_bits", [1, 2, 3, 5])
def test_each_level_is_the_mean_of_its_cell(n_bits):
    levels = normal_levels(n_bits).astype(float)
    grid = np.linspace(-8, 8, 400_001)
    weights = np.exp(-(grid**2) / 2)
    nearest = np.abs(grid[:, None] - levels).argmin(axis=1)
    for number, level in enumerate(levels):
        cell = nearest == number
        assert level == pytest.approx(np.average(grid[cell], weights=weights[cell]), abs=2e-3)


@given(st.integers(1, 8).flatmap(lambda n_bits: st.tuples(st.just(n_bits), arrays(
    np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.integers(0, 2**n_bits - 1)
))))  # fmt: skip
def test_numbers_come_back_from_their_bits(drawn):
    n_bits, numbers = drawn
    bits = _bits_of(numbers, n_bits)
    assert bits.shape == (len(numbers), numbers.shape[1] * n_bits)
    np.testing.assert_array_equal(_numbers_of(bits, n_bits), numbers)


@pytest.mark.parametrize("bits", [0.5, 1, 2, 4])
def test_rows_are_the_nearest_levels_of_the_components(bits):
    rows = vectors()
    quantizer = Quantizer.fit(rows, bits)
    decoded = quantizer.decode(quantizer.encode(rows))
    usual = np.sqrt(np.square(quantizer.spread).sum())
    for vector, stored in zip(rows[:20], decoded[:20], strict=True):
        components = (vector - quantizer.mean) @ quantizer.rotation
        length = np.linalg.norm(components) / usual
        rounded = np.zeros(len(components))
        for place, value in enumerate(components):
            levels = normal_levels(int(quantizer.bits[place])).astype(float)
            spread = quantizer.spread[place]
            rounded[place] = levels[np.abs(value / (spread * length) - levels).argmin()] * spread
        scale = np.float16((components @ rounded) / (rounded @ rounded))
        expected = quantizer.mean + quantizer.rotation @ (float(scale) * rounded)
        np.testing.assert_allclose(stored, expected, atol=2e-3)


@pytest.mark.parametrize("bits", [0.5, 1, 3, 8])
def test_a_row_has_the_bytes_that_are_named_and_no_more_bits_than_asked(bits):
    quantizer = Quantizer.fit(vectors(), bits)
    assert quantizer.encode(vectors(n=3)).shape == (3, quantizer.n_bytes)
    assert quantizer.bits.sum() <= round(24 * bits)
    assert quantizer.n_bytes <= -(-round(24 * bits) // 8) + 2


def test_inner_products_are_those_of_the_decoded_vectors():
    rows = vectors()
    quantizer = Quantizer.fit(rows, 2)
    stored = quantizer.encode(rows)
    questions = vectors(n=5, seed=1)
    expected = questions @ quantizer.decode(stored).T
    np.testing.assert_allclose(quantizer.inner_products(questions, stored), expected, atol=1e-3)


def test_more_bits_come_nearer_and_components_that_vary_more_get_them():
    rows = vectors()
    errors = []
    for bits in (0.5, 1, 2, 4):
        quantizer = Quantizer.fit(rows, bits)
        errors.append(float(np.square(quantizer.decode(quantizer.encode(rows)) - rows).mean()))
        assert (np.diff(quantizer.bits.astype(int)) <= 0).all()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02 * errors[0]


def test_a_vector_that_is_the_mean_stays_the_mean():
    rows = vectors()
    quantizer = Quantizer.fit(rows, 2)
    decoded = quantizer.decode(quantizer.encode(quantizer.mean[None]))
    np.testing.assert_allclose(decoded[0], quantizer.mean, atol=1e-3)


@pytest.mark.parametrize("bits", [0, -1, 9])
def test_impossible_bits_are_refused(bits):
    check_refusal("bits .*: a number takes more than 0 to 8 bits", Quantizer.fit, vectors(), bits)
