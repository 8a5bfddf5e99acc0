"""Exact search, signs and int8 against literal transcriptions."""

import numpy as np
import pytest
from tests.compression.test_task import vectors

from channelhash.codes import unpack
from channelhash.compression.rivals import Int8Rows, nearest, round_int8, signs


@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_neighbours_are_those_of_all_pairs(similarity, monkeypatch):
    monkeypatch.setattr("channelhash.compression.rivals._ROWS", 37)
    database = vectors()
    asked = vectors(n=7, seed=1)[:]
    rows = database[:].astype(np.float64)
    scores = asked @ rows.T
    if similarity == "cosine":
        scores = scores / np.linalg.norm(rows, axis=1)
    if similarity == "euclidean":
        scores = -np.square(asked[:, None] - rows[None]).sum(axis=2)
    expected = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(nearest(asked, database, 5, similarity), expected)


def test_each_row_of_int8_has_its_own_scale():
    rows = vectors()[:] * np.linspace(0.1, 9, 300, dtype=np.float32)[:, None]
    rounded = Int8Rows(round_int8(rows))
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    np.testing.assert_allclose(rounded[:], np.rint(rows / scales) * scales, rtol=1e-5)
    assert rounded.n_bytes == 16 + 4
    np.testing.assert_array_equal(rounded[np.array([5, 2])], rounded[:][[5, 2]])


def test_signs_are_of_the_numbers_themselves():
    rows = vectors()[:]
    np.testing.assert_array_equal(unpack(signs(rows), 16), rows >= 0)
