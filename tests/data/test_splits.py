"""Partitions: disjoint where they must be, reproducible, bound to their collection."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from channelhash.data.records import Records
from channelhash.data.splits import Splits, _stratified_sample, draw_splits
from refusals import check_refusal


def records(ids: list[str]) -> Records:
    return Records(
        tuple(ids), {"text": tuple("t" for _ in ids)}, np.ones((len(ids), 1), bool), ("x",)
    )


def numbered(n: int) -> Records:
    return records([f"im{i}" for i in range(n)])


ROWS_AN_ID = st.lists(st.integers(1, 6), min_size=2, max_size=30) | st.integers(2, 60).map(
    lambda n: [1] * n
)


def long_tail(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 8)) < np.geomspace(0.5, 0.01, 8)


@given(ROWS_AN_ID, st.integers(0, 10**6), st.data())
def test_ids_of_any_number_of_rows_are_drawn_whole(rows_an_id, seed, data):
    ids = [f"im{i}" for i, rows in enumerate(rows_an_id) for _ in range(rows)]
    n, most = len(ids), max(rows_an_id)
    method = data.draw(st.sampled_from(["random", "stratified"])) if most == 1 else "random"
    items = replace(records(ids), labels=long_tail(n, seed), label_names=tuple("abcdefgh"))
    queries = data.draw(st.integers(1, n - 1))
    train = data.draw(st.integers(0, n - queries))
    asked_for_validation = data.draw(st.integers(0, max(n - queries - train - 1, 0)))
    order = data.draw(st.permutations(range(n))) if method == "random" else list(range(n))
    drawn = draw_splits(items, queries, train, asked_for_validation, seed, method)
    parts = {name: {ids[row] for row in rows} for name, rows in vars(drawn).items()}
    apart = [parts[name] for name in ("query", "train", "validation_query", "validation_retrieval")]
    assert sum(map(len, apart)) == len(set(ids)) == len(set.union(*apart))
    assert parts["retrieval"] == set(ids) - parts["query"] != set()
    assert sum(drawn.counts().values()) - len(drawn.retrieval) == n
    assert 0 < len(drawn.query) < n
    assert abs(len(drawn.query) - queries) < most
    left = n - len(drawn.query)
    assert abs(len(drawn.train) - min(train, left)) < most
    left -= len(drawn.train)
    assert abs(len(drawn.validation_query) - min(asked_for_validation, left)) < most
    again = draw_splits(items.take(order), queries, train, asked_for_validation, seed, method)
    assert [{ids[order[row]] for row in rows} for rows in vars(again).values()] == list(
        parts.values()
    )


def test_default_sizes_are_those_of_the_docstring():
    def sizes(n, *asked):
        return list(draw_splits(numbered(n), *asked).counts().values())

    assert sizes(2) == [1, 1, 0, 0, 1]
    assert sizes(100) == [10, 90, 45, 10, 35]
    assert sizes(20_010) == [2000, 18_010, 9005, 2000, 7005]
    assert sizes(30, 12) == [12, 18, 9, 4, 5]
    assert sizes(30, 3, 26) == [3, 27, 26, 0, 1]


@given(st.lists(st.integers(1, 4), min_size=12, max_size=40), st.integers(0, 10**6))
def test_the_rest_is_trained_on(rows_an_id, seed):
    ids = [f"im{number}" for number, size in enumerate(rows_an_id) for _ in range(size)]
    q, r, t, vq, vr = (
        len(part) for part in vars(draw_splits(records(ids), 4, "rest", 4, seed=seed)).values()
    )
    assert q + r == len(ids)
    assert t + vq + vr == r
    assert max(vq - 4, 0) + vr <= 1 + 3 + 4  # a row, and what whole ids cannot make


def test_splits_come_back_and_are_bound_to_their_data(tmp_path):
    data, path = numbered(40), tmp_path / "splits.json"
    splits = draw_splits(data, 10, 20)
    assert splits.query.tolist() != draw_splits(data, 10, 20, seed=1).query.tolist()
    splits.save(data, path, {"seed": 0})
    np.testing.assert_equal(vars(Splits.load(path, data)), vars(splits))
    check_refusal("belong to another collection", Splits.load, path, numbered(41))
    document = json.loads(path.read_text())
    document["rows"]["query"][0] += 1
    path.write_text(json.dumps(document))
    check_refusal("do not match their hash", Splits.load, path, data)
    path.write_text("{")
    check_refusal("not a readable splits file", Splits.load, path, data)


def test_splits_that_cannot_be_drawn_or_read_are_refused(tmp_path):
    check_refusal(
        "queries: 20 asked for, but there are 20 usable rows", draw_splits, numbered(20), 20
    )
    check_refusal("queries: 0 asked for", draw_splits, numbered(20), 0)
    check_refusal(
        "train: 16 asked for, but 15 rows are left after 5 queries",
        draw_splits,
        numbered(20),
        5,
        16,
    )
    check_refusal(
        "validation_queries: 5 asked for, but 5 rows are left", draw_splits, numbered(20), 5, 10, 5
    )
    check_refusal("1 usable rows: at least 2 are needed", draw_splits, records(list("a")))
    says = "per_class needs queries and train, as numbers a label"
    check_refusal(says, draw_splits, records(list("abcd")), method="per_class")
    check_refusal(says, draw_splits, numbered(9), -1, 2, method="per_class")
    check_refusal(
        "per_class: 9 queries a label are all 9 rows",
        draw_splits,
        numbered(9),
        9,
        2,
        method="per_class",
    )
    check_refusal(
        "stratified needs unique ids", draw_splits, records(list("aabb")), method="stratified"
    )
    check_refusal("no such splits file", Splits.load, tmp_path / "splits.json", records(list("ab")))
    check_refusal("all 3 usable rows have the same id", draw_splits, records(["a", "a", "a"]), 1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_stratified_sample_keeps_label_shares_better_than_a_random_one(seed):
    labels = long_tail(4000, 0)
    rows = np.arange(4000)
    wanted = labels.sum(axis=0) * 0.1
    drawn = _stratified_sample(labels, rows, 400, np.random.default_rng(seed))
    random = np.random.default_rng(seed).permutation(rows)[:400]
    errors = [np.abs(labels[part].sum(axis=0) - wanted) for part in (drawn, random)]
    assert errors[0].max() <= 2
    assert errors[0].sum() < errors[1].sum() / 3


@pytest.mark.parametrize(
    ("method", "sizes", "most"), [("stratified", (8, 16), 1), ("per_class", (2, 4), 0)]
)
def test_classes_are_shared_out_and_the_only_row_of_one_is_in_one_partition(method, sizes, most):
    classes = np.repeat([0, 1, 2, 3, 4], [10, 10, 10, 10, 1])
    data = replace(
        numbered(41), labels=classes[:, None] == np.arange(5), label_names=tuple("abcde")
    )
    splits = draw_splits(data, *sizes, method=method)
    counts = [data.labels[rows].sum(axis=0)[:4] for rows in (splits.query, splits.train)]
    assert np.abs(np.array(counts) - [[2], [4]]).max() <= most
    parts = [rows for name, rows in vars(splits).items() if name != "retrieval"]
    assert sum(4 in classes[rows] for rows in parts) == 1


def test_splits_can_be_drawn_by_a_number_a_label():
    data = replace(numbered(600), labels=long_tail(600, 3), label_names=tuple("abcdefgh"))
    splits = draw_splits(data, 5, 20, 30, method="per_class")
    apart = (splits.query, splits.train, splits.validation_query, splits.validation_retrieval)
    assert sorted(np.concatenate(apart)) == list(range(600))
    assert {*splits.train} | {*splits.validation_query} <= {*splits.retrieval}
    counts = data.labels[splits.query].sum(axis=0)
    assert (counts >= np.minimum(5, data.labels.sum(axis=0))).all()  # all rows of a rare label
    assert len(splits.validation_query) == 30
    assert len(splits.query) <= 8 * 5
    assert counts[0] > 5  # the skew that the paper objects to
