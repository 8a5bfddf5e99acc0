"""Tie-oblivious AP in the order of the database: the counting pass against a sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch


def collection(n: int, k: int, c: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return ch.codes.pack(random.random((n, k)) < 0.5), random.random((n, c)) < 0.2


def assert_as_sorted(queries, database, query_labels, database_labels, k):
    pairs = queries, database, query_labels, database_labels
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=k)
    actual = ch.metrics.average_precisions_in_order(*pairs, histogram)
    distances = ch.codes.hamming_distances(queries, database)
    related = (query_labels.astype(int) @ database_labels.T) > 0
    expected = [ch.metrics.average_precision_in_order(d, r) for d, r in zip(distances, related, strict=True)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 130), st.integers(1, 20), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_the_counting_pass_equals_a_stable_sort(k, c, nq, nd, seed):
    queries, query_labels = collection(nq, k, c, seed)
    database, database_labels = collection(nd, k, c, seed + 1)
    assert_as_sorted(queries, database, query_labels, database_labels, k)


@pytest.mark.parametrize(("k", "c"), [(6, 24), (64, 24), (150, 70)])
def test_ranks_go_on_over_blocks_of_items(k, c):
    queries, query_labels = collection(11, k, c, 0)
    database, database_labels = collection(2500, k, c, 1)
    assert_as_sorted(queries, database, query_labels, database_labels, k)


def test_a_histogram_of_other_data_is_refused():
    codes, labels = collection(5, 12, 4, 0)
    histogram = ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=12)
    with pytest.raises(ValueError, match="not of these 4 queries over these 5 items"):
        ch.metrics.average_precisions_in_order(codes[:4], codes, labels[:4], labels, histogram)
    with pytest.raises(ValueError, match="not of these 5 queries over these 4 items"):
        ch.metrics.average_precisions_in_order(codes, codes[:4], labels, labels[:4], histogram)
    with pytest.raises(ValueError, match="query labels are"):
        ch.metrics.average_precisions_in_order(codes, codes, labels[:4], labels, histogram)
