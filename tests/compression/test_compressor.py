"""Compressed vectors: candidates and their order against all vectors, one by one."""

import numpy as np
import pytest

from channelhash.codes import unpack
from channelhash.compression.compressor import Compressor, Searcher, prepare
from refusals import check_refusal


def vectors(n=400, d=32, seed=0):
    random = np.random.default_rng(seed)
    return (random.normal(size=(n, d)) * np.linspace(2, 0.2, d) + 0.3).astype(np.float32)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_with_all_candidates_the_order_is_that_of_the_stored_vectors(similarity, centred):
    rows = vectors()
    compressor = Compressor.fit(rows, 16, second=4, similarity=similarity, centred=centred)
    compressed = compressor.encode(rows)
    questions = vectors(n=5, seed=1)
    found = compressor.search(questions, compressed, k=10, first=len(rows))
    stored = compressor.quantizer.decode(compressed.rows)
    asked = prepare(questions, similarity)
    if centred:
        asked = prepare(asked - prepare(rows, similarity).mean(axis=0), similarity)
    scores = asked @ stored.T
    if similarity == "euclidean":
        scores = -np.square(asked[:, None] - stored[None]).sum(axis=2)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    assert (found.rows == expected).mean() > 0.95  # of equal ones to rounding the order is free


@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_a_second_stage_of_many_bits_keeps_vectors_less_their_mean(similarity):
    rows = vectors()
    compressor = Compressor.fit(rows, 16, 8, similarity, centred=True)
    prepared = prepare(rows, similarity)
    expected = prepare(prepared - prepared.mean(axis=0), similarity)
    stored = compressor.quantizer.decode(compressor.encode(rows).rows)
    np.testing.assert_allclose(stored, expected, atol=0.1 * expected.std())


def test_without_a_second_stage_bits_are_compared_with_real_outputs():
    rows = vectors()
    compressor = Compressor.fit(rows, 16, second=None)
    question = vectors(n=1, seed=1)
    found = compressor.search(question, compressor.encode(rows), k=5, first=len(rows))
    outputs = compressor.outputs(question)[0]
    bits = np.where(unpack(compressor.encode(rows).codes, 16), 1, -1)
    costs = (np.abs(outputs).sum() - bits @ outputs) / 2
    np.testing.assert_allclose(-found.scores[0], np.sort(costs)[:5], rtol=1e-5)


def test_by_bits_alone_the_nearest_codes_come_first():
    rows = vectors()
    compressor = Compressor.fit(rows, 16, second=None)
    compressed = compressor.encode(rows)
    question = vectors(n=1, seed=1)
    found = Searcher(compressor, compressed).search(question, k=5, by_bits=True)
    own = unpack(compressor.encode(question).codes, 16)
    distances = (unpack(compressed.codes, 16) != own).sum(axis=1)
    assert (-found.scores[0]).tolist() == np.sort(distances)[:5].tolist()


def test_blocks_and_threads_change_nothing(monkeypatch):
    rows = vectors()
    compressor = Compressor.fit(rows, 16, second=2)
    whole = compressor.encode(rows)
    monkeypatch.setattr("channelhash.compression.compressor._ROWS", 37)
    parts = compressor.encode(rows)
    assert (whole.codes == parts.codes).mean() > 0.999  # products of other sizes round otherwise
    assert (whole.rows == parts.rows).mean() > 0.99


@pytest.mark.parametrize(
    ("values", "n_bits", "says"),
    [
        (vectors(), 33, "n_bits 33: vectors of 32 numbers have 1 to 32"),
        (vectors(n=1), 8, "1 vector: codes are fitted to two or more"),
        (np.ones((5, 32), np.float32), 8, "all vectors are equal"),
    ],
)
def test_what_cannot_be_fitted_is_refused(values, n_bits, says):
    check_refusal(says, Compressor.fit, values, n_bits)
