"""Drawing by labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.data.records import Records
from channelhash.data.splits import draw_splits, per_class_sample, stratified_sample
from channelhash.errors import InputError


def long_tail(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 8)) < np.geomspace(0.5, 0.01, 8)


@given(st.integers(2, 200), st.integers(0, 10**6), st.data())
def test_a_stratified_sample_has_the_asked_size_and_only_given_rows(n, seed, data):
    rows = np.random.default_rng(seed).permutation(n)[: data.draw(st.integers(1, n))]
    count = data.draw(st.integers(0, len(rows)))
    drawn = stratified_sample(long_tail(n, seed), rows, count, np.random.default_rng(0))
    assert len(drawn) == len(set(drawn.tolist())) == count
    assert set(drawn.tolist()) <= set(rows.tolist())


def test_a_stratified_sample_keeps_label_shares_better_than_a_random_one():
    labels, rows = long_tail(4000, 0), np.arange(4000)
    wanted = labels.sum(axis=0) * 0.1
    for seed in range(5):
        drawn = stratified_sample(labels, rows, 400, np.random.default_rng(seed))
        random = np.random.default_rng(seed).permutation(rows)[:400]
        errors = [np.abs(labels[part].sum(axis=0) - wanted) for part in (drawn, random)]
        assert errors[0].max() <= 2
        assert errors[0].sum() < errors[1].sum() / 3


def test_draws_depend_on_the_seed_alone():
    labels, rows = long_tail(300, 0), np.arange(300)
    draws = [stratified_sample(labels, rows, 50, np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_so_many_per_class_and_all_of_a_rare_one():
    labels, rows = long_tail(2000, 0), np.arange(2000)
    drawn = per_class_sample(labels, rows, 30, np.random.default_rng(0))
    counts = labels[drawn].sum(axis=0)
    assert (counts >= np.minimum(30, labels.sum(axis=0))).all()
    assert len(drawn) <= 8 * 30
    assert counts[0] > 30  # the skew that the paper objects to


def records(n: int) -> Records:
    labels = long_tail(n, 3)
    names = tuple(f"l{j}" for j in range(labels.shape[1]))
    return Records(tuple(f"im{i}" for i in range(n)), {"text": ("t",) * n}, labels, names)


@pytest.mark.parametrize("method", ["stratified", "per_class"])
def test_splits_can_be_drawn_by_labels(method):
    data = records(600)
    sizes = {"queries": 5, "train": 20} if method == "per_class" else {"queries": 60, "train": 200}
    splits = draw_splits(data, **sizes, validation_queries=30, method=method)
    assert not set(splits.query.tolist()) & set(splits.retrieval.tolist())
    assert set(splits.train.tolist()) <= set(splits.retrieval.tolist())
    if method == "stratified":
        assert (len(splits.query), len(splits.train)) == (60, 200)
    else:
        assert (data.labels[splits.query].sum(axis=0) >= np.minimum(5, data.labels.sum(axis=0))).all()


def test_per_class_needs_its_numbers_and_unique_ids():
    with pytest.raises(InputError, match="split_method per_class needs queries and train"):
        draw_splits(records(100), method="per_class")
    data = records(100)
    double = Records(("im0", *data.ids[:-1]), data.items, data.labels, data.label_names)
    with pytest.raises(InputError, match="needs unique ids"):
        draw_splits(double, 10, 20, method="stratified")
