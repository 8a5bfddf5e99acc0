"""Rounded vectors against a slow transcription: component by component, level by level."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from channelhash.codes.quantizer import Quantizer, normal_levels
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


@given(st.integers(1, 40), st.floats(0.1, 8), st.integers(0, 9))
def test_every_component_has_its_own_bits_of_one_byte(d, bits, seed):
    quantizer = Quantizer.fit(vectors(n=30, d=d, seed=seed), bits)
    assert set(quantizer.bits.tolist()) <= {1, 2, 4, 8}
    numbers = np.random.default_rng(seed).integers(
        0, 2 ** quantizer.bits.astype(int), (5, len(quantizer.bits))
    )
    strings = [
        "".join(
            format(number, f"0{n_bits}b")
            for number, n_bits in zip(row, quantizer.bits, strict=True)
        )
        for row in numbers.tolist()
    ]
    expected = [
        list(
            int(string.ljust(8 * -(-len(string) // 8), "0"), 2).to_bytes(
                quantizer.n_bytes - 4, "big"
            )
        )
        for string in strings
    ]
    assert quantizer._pack(numbers.astype(np.uint8)).tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_few_vectors_do_not_fix_the_directions_of_those_to_come(n):
    rows = vectors(n=2000)
    quantizer = Quantizer.fit(rows[:n], 4)
    decoded = quantizer.decode(quantizer.encode(rows))
    cosines = (
        (decoded * rows).sum(1) / np.linalg.norm(decoded, axis=1) / np.linalg.norm(rows, axis=1)
    )
    assert np.quantile(cosines, 0.05) > 0.9


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_vectors_keep_their_lengths_and_are_the_nearest_to_themselves(bits):
    rows = vectors()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    quantizer = Quantizer.fit(units, bits)
    stored = quantizer.encode(units)
    decoded = quantizer.decode(stored)
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-3)
    for place in range(0, len(rows), 20):
        assert quantizer.inner_products(decoded[place], stored).argmax() == place


def test_equal_rows_get_bit_identical_inner_products():
    quantizer = Quantizer.fit(vectors(), 2)
    stored = quantizer.encode(np.repeat(vectors(n=1), 37, axis=0))
    assert len(set(quantizer.inner_products(vectors(n=1, seed=3)[0], stored).tolist())) == 1


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
            levels = quantizer.levels_of(int(quantizer.bits[place])).astype(float)
            spread = quantizer.spread[place]
            rounded[place] = levels[np.abs(value / (spread * length) - levels).argmin()] * spread
        moved = quantizer.rotation @ rounded
        scales = np.linspace(0, 3, 30_001)[:, None]
        lengths = np.linalg.norm(quantizer.mean + scales * moved, axis=1)
        near = np.flatnonzero(np.abs(lengths - np.linalg.norm(vector)) < 1e-3)
        least = (components @ rounded) / (rounded @ rounded)
        scale = scales[near][np.abs(scales[near] - least).argmin()]
        np.testing.assert_allclose(stored, quantizer.mean + scale * moved, atol=0.02)


@pytest.mark.parametrize("bits", [0.5, 1, 3, 8])
def test_a_row_has_as_many_bytes_as_asked(bits):
    quantizer = Quantizer.fit(vectors(), bits)
    assert quantizer.encode(vectors(n=3)).shape == (3, quantizer.n_bytes)
    assert quantizer.n_bytes == round(24 * bits / 8) + 4


def test_inner_products_are_those_of_the_decoded_vectors():
    rows = vectors()
    quantizer = Quantizer.fit(rows, 2)
    stored = quantizer.encode(rows)
    for question in vectors(n=5, seed=1):
        expected = quantizer.decode(stored) @ question
        np.testing.assert_allclose(quantizer.inner_products(question, stored), expected, atol=1e-3)


def test_more_bits_come_nearer_and_components_that_vary_more_get_them():
    rows = vectors()
    errors = []
    for bits in (0.5, 1, 2, 4):
        quantizer = Quantizer.fit(rows, bits)
        errors.append(float(np.square(quantizer.decode(quantizer.encode(rows)) - rows).mean()))
        assert (np.diff(quantizer.bits.astype(int)) <= 0).all()
    assert np.corrcoef(quantizer.bits, quantizer.spread)[0, 1] > 0.5
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 * errors[0]


def test_a_vector_that_is_the_mean_stays_the_mean():
    rows = vectors()
    quantizer = Quantizer.fit(rows, 2)
    decoded = quantizer.decode(quantizer.encode(quantizer.mean[None]))
    np.testing.assert_allclose(decoded[0], quantizer.mean, atol=1e-3)


@pytest.mark.parametrize("bits", [0, -1, 9])
def test_impossible_bits_are_refused(bits):
    check_refusal("bits .*: a number takes more than 0 to 8 bits", Quantizer.fit, vectors(), bits)
