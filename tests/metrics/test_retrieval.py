"""Scores of ranked answers against their definitions, term by term."""

from math import isnan, log2

import numpy as np
import pytest
from hypothesis import given, strategies as st

from channelhash.metrics.retrieval import ndcg_at_k, neighbour_recall, recall_of_relevant

NAMES = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10)
GRADES = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 3), max_size=10)


@given(NAMES, GRADES, st.integers(1, 12))
def test_ndcg_is_the_sum_over_ranks(answers, grades, k):
    gained = sum(grades.get(name, 0) / log2(rank + 1) for rank, name in enumerate(answers[:k], 1))
    ideal = sorted(grades.values(), reverse=True)[:k]
    best = sum(grade / log2(rank + 1) for rank, grade in enumerate(ideal, 1))
    found = ndcg_at_k(answers, grades, k)
    if best:
        assert found == pytest.approx(gained / best)
    else:
        assert isnan(found)


@given(NAMES, GRADES, st.integers(1, 12))
def test_recall_counts_the_relevant_among_the_first(answers, grades, k):
    relevant = [name for name, grade in grades.items() if grade > 0]
    found = recall_of_relevant(answers, grades, k)
    if relevant:
        assert found == sum(name in answers[:k] for name in relevant) / len(relevant)
    else:
        assert isnan(found)


def test_recall_of_neighbours_counts_common_rows():
    found = np.array([[5, 2, 9], [1, 2, 3]])
    exact = np.array([[2, 5, 7], [4, 5, 6]])
    assert neighbour_recall(found, exact).tolist() == [pytest.approx(2 / 3), 0]
