"""Reciprocal rank fusion against every order of the ties."""

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.search.fusion import Ranking, fuse

KEYS = st.lists(st.integers(0, 2), min_size=0, max_size=5).map(sorted)


def orders(ranking):
    """Return every order of a ranking that its keys allow."""
    pairs = list(zip(ranking.keys, ranking.ids, strict=True))
    return [[name for _, name in order] for order in permutations(pairs) if [key for key, _ in order] == ranking.keys]


@given(KEYS, KEYS)
def test_it_is_the_mean_over_all_orders_of_ties(first, second):
    rankings = [Ranking("abcde"[: len(first)], first), Ranking("ecadb"[: len(second)], second)]
    expected = dict.fromkeys([*rankings[0].ids, *rankings[1].ids], 0.0)
    chosen = list(product(*map(orders, rankings)))
    for lists in chosen:
        for names in lists:
            for rank, name in enumerate(names, start=1):
                expected[name] += 1 / (60 + rank) / len(chosen)
    assert fuse(rankings) == pytest.approx(expected)


def test_an_item_of_two_rankings_goes_before_one_that_is_first_in_one():
    scores = fuse([Ranking(["a", "b"], [0, 1]), Ranking(["c", "b"], [0, 1])])
    assert max(scores, key=scores.get) == "b"
    assert scores["a"] == scores["c"]
    assert fuse([]) == {}
