"""Recall@K and median rank against counting over every order of ties."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channelhash.codes import pack
from channelhash.codes.code_set import CodeSet
from channelhash.metrics import counterparts, recall_at_k
from channelhash.metrics.recall import FirstGroup, _first_groups
from refusals import check_refusal


def literal_first_ranks(similarities, own):
    """Rank of the first counterpart in every order of the items that keeps larger similarities ahead."""
    orders = itertools.permutations(range(len(similarities)))
    kept = [o for o in orders if all(similarities[a] >= similarities[b] for a, b in itertools.pairwise(o))]
    return [1 + min(order.index(row) for row in own) for order in kept]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.data())
def test_scores_are_the_mean_over_all_orders_of_ties(data):
    n = data.draw(st.integers(1, 6))
    similarities = np.array(
        data.draw(st.lists(st.lists(st.integers(-1, 2), min_size=n, max_size=n), min_size=1, max_size=3))
    )
    own = [data.draw(st.sets(st.integers(0, n - 1), max_size=n)) for _ in similarities]
    pairs = np.array([sorted(rows) + [-1] * (n - len(rows)) for rows in own])
    found = _first_groups(lambda rows: similarities[rows], similarities.shape, pairs)
    ranks = [literal_first_ranks(s, rows) if rows else [np.nan] for s, rows in zip(similarities, own, strict=True)]
    np.testing.assert_allclose(found.rank(), [np.mean(each) for each in ranks])
    for k in range(1, n + 2):
        expected = [
            np.mean([rank <= k for rank in each]) if rows else np.nan for each, rows in zip(ranks, own, strict=True)
        ]
        np.testing.assert_allclose(found.found_within(k), expected, atol=1e-12)


def test_signs_as_real_values_score_as_their_codes():
    random = np.random.default_rng(1)
    bits = {name: random.random((40, 12)) < 0.5 for name in ("image", "text")}
    codes = CodeSet([str(i) for i in range(40)], {name: pack(b) for name, b in bits.items()}, None, 12)
    values = {name: np.where(b, 1.0, -1.0) for name, b in bits.items()}
    expected = recall_at_k(codes, codes)
    assert recall_at_k(values, values, np.arange(40)) == expected
    assert list(expected) == ["image->text", "text->image"]


def test_blocks_change_nothing(monkeypatch):
    random = np.random.default_rng(2)
    query, database = random.normal(size=(30, 4)), random.normal(size=(50, 4))
    codes = pack(query > 0), pack(database > 0)
    pairs = random.permutation(50)[:30]
    whole = FirstGroup.of_vectors(query, database, pairs), FirstGroup.of_codes(*codes, pairs, 4)
    monkeypatch.setattr("channelhash.metrics.recall._PAIRS", 130)
    cut = FirstGroup.of_vectors(query, database, pairs), FirstGroup.of_codes(*codes, pairs, 4)
    np.testing.assert_array_equal(np.array(whole), np.array(cut))


def test_queries_without_counterpart_are_left_out_and_counted():
    codes = CodeSet(["a", "b", "c"], {"image": np.array([[0], [7], [9]], np.uint8)}, None, 8)
    texts = CodeSet(["b", "a"], {"text": np.array([[7], [0]], np.uint8)}, None, 8)
    assert recall_at_k(codes, texts, k=[1])["image->text"] == {
        "recall_at": {"1": 1.0}, "median_rank": 1.0, "queries": 2, "skipped": 1,
    }  # fmt: skip
    assert counterparts(codes.ids, texts.ids).tolist() == [[1], [0], [-1]]


@pytest.mark.parametrize(("pairs", "message"), [
    ([-1, -1], "none of the 2 queries has a counterpart"),
    ([0, 2], "pairs name rows 0 to 2; the database has rows 0 to 1"),
    ([-2, 0], "pairs name rows -2 to 0"),
    ([0], r"pairs are \(nq,\) or \(nq, m\) database rows with nq = 2"),
    ([0.0, 1.0], "float64"),
    ([[0, 0], [1, -1]], "name a row twice for one query"),
    (None, "real values have no ids"),
])  # fmt: skip
def test_pairs_that_do_not_fit_are_refused(pairs, message):
    values = {"image": np.eye(2)}, {"text": np.eye(2)}
    check_refusal(message, recall_at_k, *values, None if pairs is None else np.array(pairs), error=ValueError)


def test_sets_that_do_not_fit_are_refused():
    codes = CodeSet(["a"], {"image": np.zeros((1, 1), np.uint8)}, None, 8, model="one")
    other = CodeSet(["a"], {"text": np.zeros((1, 1), np.uint8)}, None, 8, model="other")
    shorter = CodeSet(["a"], {"text": np.zeros((1, 1), np.uint8)}, None, 7)
    for query, database, message in (
        (codes, other, "different models"),
        (codes, shorter, "query codes have 8 bits, database codes 7"),
        (codes, codes, "only one modality"),
        (codes, {"text": np.eye(1)}, "both codes or both real values"),
    ):
        check_refusal(message, recall_at_k, query, database, error=ValueError)
    with pytest.raises(ValueError, match="K is 0"):
        recall_at_k({"image": np.eye(2)}, {"text": np.eye(2)}, np.arange(2), k=[0])
