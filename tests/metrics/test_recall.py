"""Recall@K and median rank against counting over every order of ties."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import channelhash as ch
from channelhash.codes import CodeSet, pack
from channelhash.metrics import counterparts, recall_at_k
from channelhash.metrics.recall import FirstGroup, _first_groups, instance_recall
from metrics.ranking_equations import literal_recall
from refusals import check_refusal


def literal_first_ranks(similarities, own):
    """Rank of the first counterpart in every order of the items that keeps larger similarities
    ahead.
    """
    orders = itertools.permutations(range(len(similarities)))
    kept = [
        o
        for o in orders
        if all(similarities[a] >= similarities[b] for a, b in itertools.pairwise(o))
    ]
    return [1 + min(order.index(row) for row in own) for order in kept]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.data())
def test_scores_are_the_mean_over_all_orders_of_ties(data):
    n = data.draw(st.integers(1, 6))
    rows = st.lists(st.integers(-1, 2), min_size=n, max_size=n)
    similarities = np.array(data.draw(st.lists(rows, min_size=1, max_size=3)))
    own = [data.draw(st.sets(st.integers(0, n - 1), max_size=n)) for _ in similarities]
    pairs = np.array([sorted(rows) + [-1] * (n - len(rows)) for rows in own])
    found = _first_groups(lambda rows: similarities[rows], similarities.shape, pairs)
    ranks = [
        literal_first_ranks(s, rows) if rows else [np.nan]
        for s, rows in zip(similarities, own, strict=True)
    ]
    np.testing.assert_allclose(found.rank(), [np.mean(each) for each in ranks])
    for k in range(1, n + 2):
        expected = [
            np.mean(np.array(each) <= k) if rows else np.nan
            for each, rows in zip(ranks, own, strict=True)
        ]
        np.testing.assert_allclose(found.found_within(k), expected, atol=1e-12)


def test_signs_as_real_values_score_as_their_codes():
    random = np.random.default_rng(1)
    bits = {name: random.random((40, 12)) < 0.5 for name in ("image", "text")}
    codes = CodeSet(
        [str(i) for i in range(40)], {name: pack(b) for name, b in bits.items()}, None, 12
    )
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
    expected = {"recall_at": {"1": 1.0}, "median_rank": 1.0, "queries": 2, "skipped": 1}
    assert recall_at_k(codes, texts, k=[1])["image->text"] == expected
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
    check_refusal(
        message, recall_at_k, *values, None if pairs is None else np.array(pairs), error=ValueError
    )


def test_sets_that_do_not_fit_are_refused():
    zero = np.zeros((1, 1), np.uint8)
    codes = CodeSet(["a"], {"image": zero}, None, 8, model="one")
    other = CodeSet(["a"], {"text": zero}, None, 8, model="other")
    shorter = CodeSet(["a"], {"text": zero}, None, 7)
    for query, database, message in (
        (codes, other, "different models"),
        (codes, shorter, "query codes have 8 bits, database codes 7"),
        (codes, codes, "only one modality"),
        (codes, {"text": np.eye(1)}, "both codes or both real values"),
    ):
        check_refusal(message, recall_at_k, query, database, error=ValueError)
    with pytest.raises(ValueError, match="K is 0"):
        recall_at_k({"image": np.eye(2)}, {"text": np.eye(2)}, np.arange(2), k=[0])


def code_set(n, seed, images=None, labels=None, modalities=("image", "text"), prefix="q"):
    random = np.random.default_rng(seed)
    codes = {name: random.integers(0, 256, (n, 2), dtype=np.uint8) for name in modalities}
    return ch.CodeSet([f"{prefix}{row}" for row in range(n)], codes, labels, 16, images=images)


def test_texts_of_one_image_are_its_counterparts_and_the_image_is_there_once():
    images = ["a", "b", "a", "c", "b", "d", "a"]
    codes = code_set(7, 0, images)
    report = instance_recall(codes, codes)
    first = [0, 1, 3, 5]  # rows of the images a, b, c, d
    texts = [{row for row, image in enumerate(images) if image == name} for name in "abcd"]
    places = [{"abcd".index(image)} for image in images]
    for task, queries, items, own in (
        ("image->text", codes.codes["image"][first], codes.codes["text"], texts),
        ("text->image", codes.codes["text"], codes.codes["image"][first], places),
    ):
        assert (report[task]["queries"], report[task]["recall_items"]) == (len(queries), len(items))
        expected = literal_recall(
            queries, items, own, lambda a, b: -int(np.bitwise_count(a ^ b).sum())
        )
        assert report[task]["recall_at"] == pytest.approx(expected["recall_at"])
        assert report[task]["median_rank"] == pytest.approx(expected["median_rank"])


def test_the_database_is_searched_where_it_holds_counterparts_else_the_queries_themselves():
    query, other = code_set(6, 0), code_set(9, 1, prefix="item")
    assert instance_recall(query, other) == instance_recall(query, query)
    found = instance_recall(query.take([0, 1]), query)["text->image"]
    assert (found["recall_items"], found["queries"], found["skipped"]) == (6, 2, 0)
    texts, images = (
        ch.CodeSet(query.ids, {name: query.codes[name]}, None, 16) for name in ("text", "image")
    )
    assert list(instance_recall(texts, images)) == ["text->image"]
    assert instance_recall(texts, other) == {}


def test_evaluation_adds_recall_to_the_scores_by_label_and_has_recall_alone_without_labels():
    labels = np.eye(2)[[0, 1, 0, 1, 0, 1]] > 0
    labelled, plain = code_set(6, 0, labels=labels), code_set(6, 0)
    scores = ch.metrics.evaluate(labelled, labelled)
    recall = ch.metrics.evaluate(plain, plain)
    assert list(recall) == ["image->text", "text->image"]
    for task, report in recall.items():
        assert report == instance_recall(plain, plain)[task]
        assert {"recall_at", "median_rank", "recall_items"} <= report.keys()
        assert scores[task]["recall_at"] == report["recall_at"]
        assert scores[task]["map_tie_aware"] > 0
    assert "recall_at" not in scores["image->image"]
    with pytest.raises(ValueError, match="or an image and a text of each query"):
        ch.metrics.evaluate(*[code_set(3, 0, modalities=("text",))] * 2)
    check_refusal("needs the labels", ch.metrics.evaluate, labelled, plain, error=ValueError)
