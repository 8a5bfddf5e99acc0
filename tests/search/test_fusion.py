"""Reciprocal rank fusion against every order of the ties."""

from itertools import permutations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channelhash.search.rank import Ranking, fuse, fuse_partial

LACKS = st.sets(st.sampled_from(["x", "y", "z"]), max_size=2)
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


@example([[0], [], []], {"a": {"y"}})
@given(st.lists(KEYS, min_size=3, max_size=3), st.dictionaries(st.sampled_from("abcde"), LACKS))
def test_what_an_item_lacks_counts_as_it_does_for_others_on_average(keys, lacks):
    rankings = {}
    for name, order, places in zip("xyz", ("abcde", "ecadb", "bdaec"), keys, strict=True):
        ids = [item for item in order if name not in lacks.get(item, ())][: len(places)]
        rankings[name] = Ranking(ids, places[: len(ids)])
    alone = {name: fuse([ranking]) for name, ranking in rankings.items()}
    expected = {}
    for item in {item for ranking in rankings.values() for item in ranking.ids}:
        can = [name for name in "xyz" if name not in lacks.get(item, ())]
        everything = known = 0.0
        for other in "abcde":
            part = sum(alone[name].get(other, 0.0) for name in can)
            if not lacks.get(other) and part > 0:
                everything += sum(alone[name].get(other, 0.0) for name in "xyz")
                known += part
        factor = everything / known if known else 3 / len(can)
        expected[item] = factor * sum(alone[name].get(item, 0.0) for name in can)
    assert fuse_partial(rankings, lacks) == pytest.approx(expected)


def test_an_item_without_a_caption_stands_among_its_like_with_one():
    images = Ranking([f"{n:02}" for n in range(40)], list(range(40)))
    texts = Ranking([f"{n:02}" for n in range(0, 40, 2)], list(range(20)))
    scores = fuse_partial({"image": images, "text": texts}, {f"{n:02}": ["text"] for n in range(1, 40, 2)})
    best = sorted(scores, key=lambda name: (-scores[name], name))[:20]
    assert {int(name) for name in best} == set(range(20))  # every other one has a caption
