"""Bits, packed bytes and distances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import channelhash as ch

BITS = arrays(bool, st.tuples(st.integers(0, 6), st.integers(1, 200)))


@given(BITS)
def test_unpack_undoes_pack_for_any_number_of_bits(bits):
    n, k = bits.shape
    packed = ch.codes.pack(bits)
    assert packed.shape == (n, -(-k // 8))
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(ch.codes.unpack(packed, k), bits)


def test_padding_bits_are_zero_and_the_first_bit_is_the_most_significant():
    assert ch.codes.pack(np.ones((1, 9), bool)).tolist() == [[0xFF, 0x80]]
    assert ch.codes.pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0]])).tolist() == [[0x80]]


@given(st.integers(1, 200), st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_distances_count_differing_bits(k, nq, nd, seed):
    random = np.random.default_rng(seed)
    queries, database = random.random((nq, k)) < 0.5, random.random((nd, k)) < 0.5
    expected = (queries[:, None] != database[None]).sum(-1)
    actual = ch.codes.hamming_distances(ch.codes.pack(queries), ch.codes.pack(database))
    np.testing.assert_array_equal(actual, expected)
    assert np.issubdtype(actual.dtype, np.integer)


def test_zero_counts_as_plus_one_for_arrays_and_tensors():
    values = [[0.0, -0.0, 1e-30, -1e-30]]
    for outputs in (np.array(values), torch.tensor(values), torch.tensor(values, dtype=torch.bfloat16)):
        assert ch.codes.binarize(outputs)[0, :3].tolist() == [True, True, True]
    assert ch.codes.binarize(torch.tensor(values))[0, 3].item() is False


def test_nan_outputs_are_refused():
    with pytest.raises(ValueError, match="1 of 2 outputs are NaN, the first in row 1"):
        ch.codes.binarize(np.array([[1.0, 2.0], [np.nan, 1.0]]))


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="codes of 9 bits are"):
        ch.codes.unpack(np.zeros((2, 1), np.uint8), 9)
    with pytest.raises(ValueError, match="bits past the 9th are set"):
        ch.codes.unpack(np.full((1, 2), 255, np.uint8), 9)
    with pytest.raises(ValueError, match="differ in length"):
        ch.codes.hamming_distances(np.zeros((1, 1), np.uint8), np.zeros((1, 2), np.uint8))
    with pytest.raises(ValueError, match="0 and 1"):
        ch.codes.pack(np.array([[1, -1]]))
    for bits in (np.array([1, 0]), np.zeros((2, 0), bool)):
        with pytest.raises(ValueError, match=r"bits are an \(n, k\) array with k >= 1, not "):
            ch.codes.pack(bits)
    with pytest.raises(ValueError, match="n_bits is 0; a code has at least 1 bit"):
        ch.codes.unpack(np.zeros((1, 0), np.uint8), 0)
