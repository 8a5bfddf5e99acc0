"""NDCG graded by label similarity: brute force over all orders of ties, and scikit-learn, which averages over ties."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import channelhash as ch
from channelhash.metrics import HammingHistogram
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


def test_a_histogram_without_gains_has_no_graded_figure():
    with pytest.raises(ValueError, match="graded NDCG needs the gains"):
        HammingHistogram(np.array([[1, 1]]), np.array([[1, 0]])).ndcg_graded()
