"""Feature files whose sets come in parts."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channelhash.data.features import load_features
from channelhash.data.splits import draw_splits
from channelhash.errors import InputError

IMAGE, TEXT, LABELS = np.arange(24.0).reshape(12, 2), np.eye(12), np.arange(36).reshape(12, 3) % 2
TRAIN, DATABASE, QUERY = range(5), range(5, 9), range(9, 12)


def write(path, **parts):
    """The rows of each part under its ending."""
    arrays = {}
    for ending, rows in parts.items():
        arrays |= {f"I_{ending}": IMAGE[list(rows)], f"T_{ending}": TEXT[list(rows)], f"L_{ending}": LABELS[list(rows)]}
    np.savez(path, **arrays)
    return path


def change(path, **arrays):
    """The file with some arrays replaced, or left out where None."""
    with np.load(path) as archive:
        merged = {**dict(archive), **arrays}
    np.savez(path, **{name: values for name, values in merged.items() if values is not None})
    return path


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        load_features(path, **options)
    return str(caught.value)


def row_of(records, name):
    return int(records.items["image"][records.ids.index(name), 0]) // 2


def test_rows_keep_the_part_they_came_from(tmp_path):
    records = load_features(write(tmp_path / "f.npz", te=QUERY, tr=TRAIN, db=DATABASE))
    assert [row_of(records, f"train{i}") for i in range(5)] == list(TRAIN)
    assert [row_of(records, f"database{i}") for i in range(4)] == list(DATABASE)
    assert [row_of(records, f"query{i}") for i in range(3)] == list(QUERY)
    assert len(records) == 12
    np.testing.assert_array_equal(records.items["text"], np.eye(12))
    np.testing.assert_array_equal(records.labels, LABELS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(9)), st.integers(1, 9))
def test_training_rows_that_the_database_repeats_are_read_once(tmp_path, database, n_train):
    train = sorted(database)[:n_train]
    path = change(write(tmp_path / "f.npz", tr=train, db=database, te=QUERY), L_tr=LABELS[train].astype(np.float32))
    records = load_features(path)
    assert len(records) == 12
    assert [row_of(records, f"train{i}") for i in range(n_train)] == train
    splits = draw_splits(records, method="given")
    assert sorted(records.items["image"][splits.retrieval, 0] // 2) == list(range(9))
    assert sorted(records.items["image"][splits.train, 0] // 2) == train


def test_equal_rows_of_the_database_are_each_a_row(tmp_path):
    records = load_features(write(tmp_path / "f.npz", tr=[0, 0], db=[0, 0, 0, 1], te=[2]))
    assert sorted(records.ids) == ["database2", "database3", "query0", "train0", "train1"]


def test_a_database_without_all_training_rows_stands_beside_them(tmp_path):
    assert len(load_features(write(tmp_path / "f.npz", tr=[0, 1], db=[1, 2, 3], te=[4]))) == 6


def test_given_splits_are_those_of_the_file(tmp_path):
    records = load_features(write(tmp_path / "f.npz", tr=TRAIN, db=DATABASE, te=QUERY))
    splits = draw_splits(records, validation_queries=1, method="given")
    assert {records.ids[row] for row in splits.query} == {f"query{i}" for i in range(3)}
    assert {records.ids[row] for row in splits.train} == {f"train{i}" for i in range(5)}
    assert set(splits.retrieval) == set(range(12)) - set(splits.query)
    validation = [*splits.validation_query, *splits.validation_retrieval]
    assert sorted(records.ids[row] for row in validation) == [f"database{i}" for i in range(4)]
    assert len(splits.validation_query) == 1
    order = np.arange(12)[::-1]
    again = draw_splits(records.take(order), validation_queries=1, method="given")
    for name, rows in vars(splits).items():
        assert set(order[vars(again)[name]]) == set(rows)


def test_given_splits_without_a_database_validate_on_nothing(tmp_path):
    splits = draw_splits(load_features(write(tmp_path / "f.npz", train=TRAIN, test=QUERY)), method="given")
    assert splits.counts() == {
        "query": 3,
        "retrieval": 5,
        "train": 5,
        "validation_query": 0,
        "validation_retrieval": 0,
    }


def test_given_splits_need_parts_and_no_sizes(tmp_path):
    records = load_features(write(tmp_path / "f.npz", tr=TRAIN, te=QUERY))
    with pytest.raises(InputError) as caught:
        draw_splits(records, queries=2, method="given")
    assert str(caught.value) == (
        "data.split_method given takes queries and train from the file; leave both settings out"
    )
    for others in (load_features(write(tmp_path / "g.npz", tr=TRAIN)), records.take(range(5, 8))):
        with pytest.raises(InputError) as caught:
            draw_splits(others, method="given")
        assert str(caught.value) == (
            "data.split_method given needs a features file with the parts I_te, T_te, L_te and I_tr … or I_db …; "
            "draw these splits at random"
        )


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"L_te": None}, "has I_te, but no L_te (labels)"),
        ({"T_tr": None}, "has I_tr, but no T_tr (text)"),
        ({"I_te": IMAGE[:2]}, "I_te is (2, 2), but L_te has 3 rows"),
        ({"I_te": np.array(["a", "b", "c"])}, "I_te holds <U1, expected numbers"),
        ({"I_te": np.ones((3, 4))}, "I_te is (3, 4), but I_tr is (5, 2)"),
        ({"L_tr": np.array(1)}, "I_tr is (5, 2), but L_tr has 1 rows"),
        (
            {"I_query": IMAGE[:1], "T_query": TEXT[:1], "L_query": LABELS[:1]},
            "has two query parts, one of them I_query, T_query, L_query",
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(tmp_path, arrays, says):
    path = change(write(tmp_path / "f.npz", tr=TRAIN, te=QUERY), **arrays)
    assert refusal(path) == f"{path}: {says}"


def test_one_named_array_does_not_go_with_parts(tmp_path):
    path = change(write(tmp_path / "f.npz", tr=TRAIN, te=QUERY), vgg=IMAGE)
    assert refusal(path, image_array="vgg") == (
        f"{path}: the labels come in parts (L_tr …), but one array is named; name labels_array too, or none"
    )


@pytest.mark.parametrize(
    ("train", "query"),
    [
        ("I_train T_train L_train", "I_test T_test L_test"),
        ("XTrain YTrain LTrain", "XTest YTest LTest"),
        ("image_tr text_tr label_tr", "image_te text_te label_te"),
    ],
)
def test_parts_have_many_names_and_may_be_stored_by_columns(tmp_path, train, query):
    arrays = dict(zip(train.split(), (IMAGE[:5].T, TEXT[:5].T, LABELS[:5].T), strict=True))
    arrays |= dict(zip(query.split(), (IMAGE[5:], TEXT[5:], LABELS[5:]), strict=True))
    np.savez(tmp_path / "f.npz", **arrays)
    records = load_features(tmp_path / "f.npz")
    np.testing.assert_array_equal(records.items["image"], IMAGE)
    np.testing.assert_array_equal(records.labels, LABELS)
    assert (records.ids[0], records.ids[-1], len(records.problems)) == ("train0", "query6", 3)
