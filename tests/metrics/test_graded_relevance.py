"""NDCG graded by label similarity: brute force over all orders of ties, and scikit-learn, which averages over ties."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import channelhash as ch
from channelhash.metrics import HammingHistogram, ranking
from metrics import ranking_equations as literal

LABELS = st.lists(st.booleans(), min_size=4, max_size=4)
# The label sets of a database, as groups of tied items, nearest first.
GROUPS = st.lists(st.lists(LABELS, max_size=4), min_size=1, max_size=3)


def histogram_of(wanted: list[bool], groups: list[list[list[bool]]]) -> HammingHistogram:
    """One query, and items whose codes lie as far from its as their group says."""
    items = [(d, labels) for d, group in enumerate(groups) for labels in group]
    k = len(groups)
    codes = ch.codes.pack(np.array([[bit < d for bit in range(k)] for d, _ in items]))
    query = ch.codes.pack(np.zeros((1, k), dtype=bool))
    labels = np.array([labels for _, labels in items])
    return ch.metrics.hamming_histogram(query, codes, np.array([wanted]), labels, n_bits=k)


@settings(max_examples=60)
@given(LABELS, GROUPS)
def test_graded_ndcg_is_the_mean_over_all_orders(wanted, groups):
    gains = [[literal.label_similarity(np.array(wanted), np.array(labels)) for labels in group] for group in groups]
    assume(any(any(group) for group in gains))
    expected = np.mean([literal.ndcg_graded(order) for order in literal.orders(gains)])
    assert histogram_of(wanted, groups).ndcg_graded() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_graded_ndcg_is_that_of_scikit_learn(nq, nd, k, c, seed):
    random = np.random.default_rng(seed)
    queries, items = (ch.codes.pack(random.random((n, k)) < 0.5) for n in (nq, nd + 1))
    query_labels, labels = (random.random((n, c)) < 0.4 for n in (nq, nd + 1))
    hist = ch.metrics.hamming_histogram(queries, items, query_labels, labels, n_bits=k)
    actual = ranking.ndcg_graded(hist.total, hist.gains)
    for q, distances in enumerate(ch.codes.hamming_distances(queries, items)):
        gains = np.array([literal.label_similarity(query_labels[q], other) for other in labels])
        if gains.any():
            assert actual[q] == pytest.approx(ndcg_score(gains[None], -distances[None]), abs=1e-9)
        else:
            assert np.isnan(actual[q])


def test_a_histogram_without_gains_has_no_graded_figure():
    with pytest.raises(ValueError, match="graded NDCG needs the gains"):
        HammingHistogram(np.array([[1, 1]]), np.array([[1, 0]])).ndcg_graded()
