"""Records: rows chosen by labels, collections joined, rows matched, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from channelhash.data.collection import (
    DataSource,
    _choose_by_labels,
    find_partners,
    join_records,
    join_splits,
    labels_as,
    readable,
)
from channelhash.data.records import Records, labels_from_names
from channelhash.data.splits import Splits, draw_splits
from channelhash.errors import InputError


def records(prefix, labels, names, **items):
    ids = tuple(f"{prefix}{row}" for row in range(len(labels)))
    return Records(ids, items or {"text": ids}, np.array(labels, dtype=bool), tuple(names))


ABC = records("i", [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]], "abc")


def test_rows_are_chosen_by_their_labels():
    assert _choose_by_labels(ABC) is ABC
    only = _choose_by_labels(ABC, only=["a", "c"])
    assert only.ids == ("i0", "i1", "i2")
    assert only.label_names == ("a", "b", "c")
    without = _choose_by_labels(ABC, without=["b"])
    assert without.ids == ("i0", "i2", "i3")
    assert without.label_names == ("a", "c")
    np.testing.assert_array_equal(without.labels, [[1, 0], [0, 1], [0, 0]])
    assert without.removed == {"labels not chosen": 1}
    assert _choose_by_labels(ABC, only=["a"], without=["b"]).ids == ("i0",)
    both = {*_choose_by_labels(ABC, only=["b", "c"]).ids, *_choose_by_labels(ABC, without=["b", "c"]).ids}
    assert both == set(ABC.ids)  # the two parts of a trial are the whole
    with pytest.raises(InputError, match="no label 'd'; it has a, b, c"):
        _choose_by_labels(ABC, only=["d"])
    with pytest.raises(InputError, match="leave no row"):
        _choose_by_labels(ABC, only=["b"], without=["a"])


def test_labels_are_joined_by_name():
    other = records("j", [[1, 1], [0, 1]], "db")
    joined = join_records([ABC, other])
    assert joined.ids == ("i0", "i1", "i2", "i3", "j0", "j1")
    assert joined.label_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(
        joined.labels,
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]],
    )
    assert joined.items["text"] == joined.ids
    assert joined.found == 6
    assert join_records([ABC]) is ABC
    np.testing.assert_array_equal(labels_as(other.labels, "db", "bxd"), [[1, 0, 1], [1, 0, 0]])


def test_collections_that_do_not_fit_are_refused():
    wide, narrow = np.zeros((4, 3), np.float32), np.zeros((2, 2), np.float32)
    features = records("i", np.eye(4), "abcd", image=wide, text=wide)
    with pytest.raises(InputError, match="1 ids are in both collections, such as 'i0'"):
        join_records([features, records("i", [[1]], "a", image=wide[:1], text=wide[:1])])
    with pytest.raises(InputError, match="the new items have no texts"):
        join_records([features, records("j", np.eye(2), "ab", image=wide[:2])])
    with pytest.raises(InputError, match="new images are features of width 2, the old ones features of width 3"):
        join_records([features, records("j", np.eye(2), "ab", image=narrow, text=wide[:2])])
    with pytest.raises(InputError, match="new texts are raw items, the old ones features of width 3"):
        join_records([features, records("j", np.eye(2), "ab", image=wide[:2], text=("x", "y"))])


def test_partitions_are_joined_row_by_row():
    first = draw_splits(records("i", np.ones((20, 1)), "a"), seed=1)
    second = draw_splits(records("j", np.ones((30, 1)), "a"), seed=2)
    both = join_splits(first, second, 20)
    for name, rows in vars(both).items():
        np.testing.assert_array_equal(rows[rows < 20], getattr(first, name))
        np.testing.assert_array_equal(rows[rows >= 20] - 20, getattr(second, name))
        assert (np.diff(rows) > 0).all()
    assert sorted([*both.query, *both.retrieval]) == list(range(50))


def named(ids):
    return Records(tuple(ids), {"text": tuple(ids)}, np.zeros((len(ids), 0), dtype=bool), ())


names = st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1)


@settings(max_examples=30)
@given(names, names)
def test_partners_are_the_rows_of_one_id(own, theirs):
    common = set(own) & set(theirs)
    if not common:
        with pytest.raises(InputError, match="joined by id"):
            find_partners(named(own), named(theirs))
        return
    found = find_partners(named(own), named(theirs))
    assert {own[i]: theirs[j] for i, j in enumerate(found.of_student) if j >= 0} == {name: name for name in common}
    assert {theirs[j]: own[i] for j, i in enumerate(found.of_teacher) if i >= 0} == {name: name for name in common}
    alone = {line.split(":")[0].removeprefix("item ") for line in found.unmatched}
    assert alone == set(own) ^ set(theirs)
    assert len(found.unmatched) == len(alone)


def test_partitions_follow_their_items():
    found = find_partners(named("zyxba"), named("abcyx"))
    rows = {name: np.array(part) for name, part in (("query", [0, 2]), ("retrieval", [1, 3, 4]), ("train", [1, 4]))}
    none = np.array([], dtype=np.int64)
    splits = found.splits(Splits(**rows, validation_query=none, validation_retrieval=none))
    assert [part.tolist() for part in vars(splits).values()] == [[4], [1, 2, 3], [2, 3], [], []]
    with pytest.raises(InputError, match="none of the teacher's query items"):
        found.splits(Splits(np.array([2]), np.array([0]), none, none, none))


def test_an_id_twice_is_refused_unless_the_lists_are_the_same():
    twice = find_partners(named("aab"), named("aab"))
    assert twice.of_student.tolist() == twice.of_teacher.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="the teacher's data has the id 'a' twice"):
        find_partners(named("ab"), named("aab"))


ONE_LABEL = np.ones((2, 1), dtype=bool)


def test_columns_of_another_length_and_unknown_labels_are_refused():
    with pytest.raises(ValueError, match=r"labels are \(2, 1\), expected \(1, 1\)"):
        Records(("a",), {}, ONE_LABEL, ("label",))
    with pytest.raises(ValueError, match="1 text values for 2 ids"):
        Records(("a", "b"), {"text": ("a dog",)}, ONE_LABEL, ("label",))
    with pytest.raises(ValueError, match="1 image values for 2 ids"):
        Records(("a", "b"), {}, ONE_LABEL, ("label",), display={"image": ("a.jpg",)})
    with pytest.raises(InputError, match=r"t\.csv: row 2 has the unknown label 'cat'; known: dog, sea"):
        labels_from_names([["dog"], ["cat"]], ["dog", "sea"], "t.csv")


def test_images_that_cannot_be_decoded_are_left_out_of_every_kind(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (64, 64)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "b.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:300])
    (tmp_path / "t.csv").write_text("id,image,text,labels\n1,a.jpg,x,y\n2,b.jpg,x,y\n3,b.jpg,z,y\n4,a.jpg,z,y\n")
    source = DataSource("table", {"path": tmp_path / "t.csv", "skip_bad": True})
    records, again = source.load(), source.load()
    assert (records.ids, records.removed, records.found) == (("1", "4"), {"unreadable picture": 2}, 4)
    assert [line.split(": ")[0] for line in records.problems] == ["id 2", "id 3"]
    assert records.content_hash() == again.content_hash()
    with pytest.raises(InputError, match=r"no picture of 2 rows can be read; the first problem is id 2: unreadable"):
        readable(DataSource("table", {"path": tmp_path / "t.csv"}).load().take([1, 2]))
