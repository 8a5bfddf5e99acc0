"""Partitions: disjoint where they must be, reproducible, bound to their collection."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.data.records import Records
from channelhash.data.splits import draw_splits, load_splits, save_splits
from channelhash.errors import InputError


def records(ids: list[str]) -> Records:
    return Records(tuple(ids), {"text": tuple("t" for _ in ids)}, np.ones((len(ids), 1), bool), ("x",))


def numbered(n: int) -> Records:
    return records([f"im{i}" for i in range(n)])


@given(st.integers(4, 200), st.integers(0, 10**6), st.data())
def test_partitions_are_parted_as_the_protocol_says(n, seed, data):
    queries = data.draw(st.integers(1, n - 2))
    train = data.draw(st.integers(0, n - queries))
    s = draw_splits(numbered(n), queries, train, seed=seed)
    q, r, t, vq, vr = (set(part.tolist()) for part in vars(s).values())
    assert (len(q), len(t)) == (queries, train)
    assert not q & r
    assert q | r == set(range(n))
    assert t <= r
    assert vq | vr == r - t
    assert not vq & vr


def test_the_draw_does_not_depend_on_the_order_of_the_rows():
    ids = [f"im{i}" for i in range(50)]
    shuffled = [ids[i] for i in np.random.default_rng(0).permutation(50)]
    drawn = [{order[row] for row in draw_splits(records(order), 10, 20).query} for order in (ids, shuffled)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != {ids[row] for row in draw_splits(records(ids), 10, 20, seed=1).query}


@given(st.lists(st.integers(1, 6), min_size=2, max_size=30), st.integers(0, 10**6), st.data())
def test_ids_of_any_number_of_rows_are_drawn_whole(rows_an_id, seed, data):
    ids = [f"im{i}" for i, rows in enumerate(rows_an_id) for _ in range(rows)]
    n, most = len(ids), max(rows_an_id)
    queries = data.draw(st.integers(1, n - 1))
    train = data.draw(st.integers(0, n - queries))
    asked_for_validation = data.draw(st.integers(0, max(n - queries - train - 1, 0)))
    order = data.draw(st.permutations(range(n)))
    drawn = draw_splits(records(ids), queries, train, asked_for_validation, seed)
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
    again = draw_splits(records([ids[row] for row in order]), queries, train, asked_for_validation, seed)
    assert [{ids[order[row]] for row in rows} for rows in vars(again).values()] == list(parts.values())


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
    q, r, t, vq, vr = (len(part) for part in vars(draw_splits(records(ids), 4, "rest", 4, seed=seed)).values())
    assert q + r == len(ids)
    assert t + vq + vr == r
    assert max(vq - 4, 0) + vr <= 1 + 3 + 4  # a row, and what whole ids cannot make


def test_splits_come_back_and_are_bound_to_their_data(tmp_path):
    data, path = numbered(40), tmp_path / "splits.json"
    splits = draw_splits(data, 10, 20)
    save_splits(splits, data, path, {"seed": 0})
    for name, rows in vars(load_splits(path, data)).items():
        np.testing.assert_array_equal(rows, vars(splits)[name])
    with pytest.raises(InputError, match="belong to another collection"):
        load_splits(path, numbered(41))
    document = json.loads(path.read_text())
    document["rows"]["query"][0] += 1
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="do not match their hash"):
        load_splits(path, data)
    path.write_text("{")
    with pytest.raises(InputError, match="not a readable splits file"):
        load_splits(path, data)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ((20, None, None), "queries: 20 asked for, but there are 20 usable rows"),
        ((0, None, None), "queries: 0 asked for"),
        ((5, 16, None), "train: 16 asked for, but 15 rows are left after 5 queries"),
        ((5, 10, 5), "validation_queries: 5 asked for, but 5 rows are left"),
    ],
)
def test_more_rows_than_there_are_is_an_error(sizes, says):
    with pytest.raises(InputError, match=says):
        draw_splits(numbered(20), *sizes)


def test_splits_that_cannot_be_drawn_or_read_are_refused(tmp_path):
    with pytest.raises(InputError, match="all 3 usable rows have the same id"):
        draw_splits(records(["a", "a", "a"]), 1, 1)
    with pytest.raises(InputError, match="1 usable rows: at least 2 are needed"):
        draw_splits(records(list("a")))
    with pytest.raises(InputError, match="no such splits file"):
        load_splits(tmp_path / "splits.json", records(list("ab")))
