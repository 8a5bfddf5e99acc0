"""Records: rows chosen by labels, collections joined, rows matched, and what is refused."""

import csv
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from channelhash.data import collection
from channelhash.data.collection import (
    Collection,
    DataSource,
    Partners,
    _with_labels,
    describe,
    labels_as,
    readable,
)
from channelhash.data.folder import load_any
from channelhash.data.records import Records, labels_from_names
from channelhash.data.splits import Splits, draw_splits
from refusals import check_refusal
from small_stores import picture_folder


def records(prefix, labels, names, **items):
    ids = tuple(f"{prefix}{row}" for row in range(len(labels)))
    return Records(
        ids, items or {"text": ids}, np.array(labels, dtype=bool), tuple(map(str, names))
    )


ABC = records("i", [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]], "abc")


def test_rows_are_chosen_by_their_labels():
    assert _with_labels(ABC) is ABC
    only = _with_labels(ABC, only=["a", "c"])
    assert only.ids == ("i0", "i1", "i2")
    assert only.label_names == ("a", "b", "c")
    without = _with_labels(ABC, without=["b"])
    assert without.ids == ("i0", "i2", "i3")
    assert without.label_names == ("a", "c")
    np.testing.assert_array_equal(without.labels, [[1, 0], [0, 1], [0, 0]])
    assert without.removed == {"labels not chosen": 1}
    assert _with_labels(ABC, only=["a"], without=["b"]).ids == ("i0",)
    both = {*_with_labels(ABC, only=["b", "c"]).ids, *_with_labels(ABC, without=["b", "c"]).ids}
    assert both == set(ABC.ids)  # the two parts of a trial are the whole
    check_refusal("no label 'd'; it has a, b, c", _with_labels, ABC, only=["d"])
    check_refusal("leave no row", _with_labels, ABC, only=["b"], without=["a"])


def test_collections_are_joined_by_the_names_of_labels():
    other = records("j", [[1, 1], [0, 1]], "db")
    joined = Collection((ABC, other)).records
    assert joined.ids == ("i0", "i1", "i2", "i3", "j0", "j1")
    assert joined.label_names == ("a", "b", "c", "d")
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]]
    np.testing.assert_array_equal(joined.labels, expected)
    assert joined.items["text"] == joined.ids
    assert joined.found == 6
    assert Collection((ABC,)).records is ABC
    np.testing.assert_array_equal(labels_as(other.labels, "db", "bxd"), [[1, 0, 1], [1, 0, 0]])


_WIDE = np.zeros((4, 3), np.float32)
_NARROW = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (
            records("i", [[1]], "a", image=_WIDE[:1], text=_WIDE[:1]),
            "1 ids are in both collections, such as 'i0'",
        ),
        (records("j", np.eye(2), "ab", image=_WIDE[:2]), "the new items have no texts"),
        (
            records("j", np.eye(2), "ab", image=_NARROW, text=_WIDE[:2]),
            "new images are features of width 2, the old ones features of width 3",
        ),
        (
            records("j", np.eye(2), "ab", image=_WIDE[:2], text=("x", "y")),
            "new texts are raw items, the old ones features of width 3",
        ),
    ],
    ids=["an id twice", "no texts", "another width", "no features"],
)
def test_collections_that_do_not_fit_are_not_joined(new, says):
    features = records("i", np.eye(4), "abcd", image=_WIDE, text=_WIDE)
    check_refusal(says, getattr, Collection((features, new)), "records")


def named(ids):
    return Records(tuple(ids), {"text": tuple(ids)}, np.zeros((len(ids), 0), dtype=bool), ())


names = st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1)


@settings(max_examples=30)
@given(names, names)
def test_partners_are_the_rows_of_one_id(own, theirs):
    common = set(own) & set(theirs)
    if not common:
        check_refusal("joined by id", Partners.match, named(own), named(theirs))
        return
    found = Partners.match(named(own), named(theirs))
    assert {own[i]: theirs[j] for i, j in enumerate(found.of_student) if j >= 0} == {
        name: name for name in common
    }
    assert {theirs[j]: own[i] for j, i in enumerate(found.of_teacher) if i >= 0} == {
        name: name for name in common
    }
    alone = {line.split(":")[0].removeprefix("item ") for line in found.unmatched}
    assert alone == set(own) ^ set(theirs)
    assert len(found.unmatched) == len(alone)


def test_partitions_follow_their_items_whose_ids_occur_once():
    found = Partners.match(named("zyxba"), named("abcyx"))
    rows = {
        name: np.array(part)
        for name, part in (("query", [0, 2]), ("retrieval", [1, 3, 4]), ("train", [1, 4]))
    }
    none = np.array([], dtype=np.int64)
    splits = found.splits(Splits(**rows, validation_query=none, validation_retrieval=none))
    assert [part.tolist() for part in vars(splits).values()] == [[4], [1, 2, 3], [2, 3], [], []]
    alone = Splits(np.array([2]), np.array([0]), none, none, none)
    check_refusal("none of the teacher's query items", found.splits, alone)
    twice = Partners.match(named("aab"), named("aab"))
    assert twice.of_student.tolist() == twice.of_teacher.tolist() == [0, 1, 2]
    check_refusal(
        "the teacher's data has the id 'a' twice", Partners.match, named("ab"), named("aab")
    )


def test_columns_of_another_length_and_unknown_labels_are_refused():
    rest = (np.ones((2, 1), dtype=bool), ("label",))
    check_refusal(
        r"labels are \(2, 1\), expected \(1, 1\)", Records, ("a",), {}, *rest, error=ValueError
    )
    check_refusal(
        "1 text values for 2 ids",
        Records,
        ("a", "b"),
        {"text": ("a dog",)},
        *rest,
        error=ValueError,
    )
    shown = {"image": ("a.jpg",)}
    check_refusal(
        "1 image values for 2 ids", Records, ("a", "b"), {}, *rest, display=shown, error=ValueError
    )
    says = r"t\.csv: row 2 has the unknown label 'cat'; known: dog, sea"
    check_refusal(says, labels_from_names, [["dog"], ["cat"]], ["dog", "sea"], "t.csv")


def test_images_that_cannot_be_decoded_are_left_out_of_every_kind(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (64, 64)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "b.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:300])
    (tmp_path / "t.csv").write_text(
        "id,image,text,labels\n1,a.jpg,x,y\n2,b.jpg,x,y\n3,b.jpg,z,y\n4,a.jpg,z,y\n"
    )
    source = DataSource("table", {"path": tmp_path / "t.csv", "skip_bad": True})
    records, again = source.load(), source.load()
    assert records.ids == ("1", "4")
    assert records.removed == {"unreadable picture": 2}
    assert records.found == 4
    assert [line.split(": ")[0] for line in records.problems] == ["id 2", "id 3"]
    assert records.content_hash() == again.content_hash()
    says = "no picture of 2 rows can be read; the first problem is id 2: unreadable"
    check_refusal(
        says, readable, DataSource("table", {"path": tmp_path / "t.csv"}).load().take([1, 2])
    )


@given(arrays(bool, st.tuples(st.integers(2, 12), st.integers(1, 4))))
def test_chance_is_the_share_of_pairs_with_a_common_label(labels):
    n = len(labels)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    expected = np.mean([(labels[i] & labels[j]).any() for i, j in pairs])
    with patch.object(collection, "_BLOCK", 3):  # so many distinct sets are compared at once
        assert describe(records("i", labels, range(labels.shape[1])))["chance"] == pytest.approx(
            expected
        )


def test_problems_are_named(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    Image.new("RGB", (4, 4)).save(tmp_path / "good.jpg")
    (tmp_path / "copy.jpg").write_bytes((tmp_path / "good.jpg").read_bytes())
    names = ("good.jpg", "bad.jpg", "gone.jpg", "copy.jpg")
    items = {
        "image": tuple(tmp_path / name for name in names),
        "text": ("a", "b c", "NaN", "e f g h"),
    }
    labels = np.array([[True, False], [False, False], [True, False], [True, False]])
    records = Records(
        ("a", "b", "a", "c"), items, labels, ("sea", "sky"), {"no tag": 1}, ("a line",), found=5
    )
    calls = []
    result = describe(records, None, {"found": 25000}, lambda done, of: calls.append((done, of)))
    assert result["found"] == 5
    assert result["usable"] == 4
    assert result["removed"] == {"no tag": 1}
    assert result["partitions"] == {}
    assert result["words_per_text"] == {"min": 1, "median": 1.5, "mean": 2, "max": 4}
    assert result["expected"] == {"found": 25000}
    bad = tmp_path / "bad.jpg"
    assert result["problems"] == [
        "a line",
        "found: 5 samples, the official collection has 25000; is the archive complete?",
        "1 of 4 texts are words for a missing value, such as 'NaN'; empty these cells",
        (
            "1 of 4 samples have no label: they are similar to nothing and never relevant; label "
            "them or leave them out"
        ),
        (
            "label 'sea' is on all samples that have any: no two of them differ; give others, or "
            "leave it out"
        ),
        "label 'sky' never occurs; leave it out of the labels",
        "id a occurs more than once: its rows stay on one side of query and retrieval",
        (
            f"unreadable picture {bad} (of no known format); leave it out (skip_bad), or get "
            "it again"
        ),
        f"no such picture {tmp_path / 'gone.jpg'}; leave it out (skip_bad), or get it again",
        (
            f"picture {tmp_path / 'copy.jpg'} is the same file as {tmp_path / 'good.jpg'}; leave "
            "one of them out"
        ),
    ]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_keys_that_people_script_against():
    six = records("i", np.ones((6, 2)), "ab", text=("two words",) * 6)
    splits = draw_splits(six, 1, 2, 1)
    parts = {
        "query": 1,
        "retrieval": 5,
        "train": 2,
        "validation_query": 1,
        "validation_retrieval": 2,
    }
    figures = {"min": 2.0, "median": 2.0, "mean": 2.0, "max": 2.0}
    says = "is on all samples that have any: no two of them differ; give others, or leave it out"
    assert describe(six, splits) == {
        "found": 6,
        "usable": 6,
        "labels": {"a": 6, "b": 6},
        "partitions": parts,
        "expected": {},
        "removed": {},
        "problems": [f"label 'a' {says}", f"label 'b' {says}"],
        "labels_per_item": figures,
        "words_per_text": figures,
        "chance": 1.0,
        "protocol": "",
        "measures": ["map"],
    }


def test_a_folder_of_pictures_at_any_depth(tmp_path):
    folder = picture_folder(tmp_path / "photos", 2)
    for name in ("notes.txt", "clip.MP4", "bad.jpg"):
        (folder / name).write_bytes(b"")
    check_refusal("empty picture", load_any, folder)
    records = load_any(folder, skip_bad=True)
    assert records.ids == ("0.png", "deep/er/1.png")
    assert records.found == 3
    assert records.removed == {"unreadable picture": 1, ".mp4: videos are not read": 1}


def labels_of(width: int, images: int, unlabelled: int) -> np.ndarray:
    labels = np.zeros((images, width), dtype=bool)
    labels[unlabelled:, 0] = True
    return labels


_, *VARIANTS = csv.reader(
    Path(collection.__file__).with_name("protocols.csv").read_text("utf-8").splitlines()
)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_each_variant_is_known_by_its_three_numbers(variant):
    labels, images, unlabelled = map(int, variant[:3])
    line = collection._recognise(labels_of(labels, images, unlabelled))
    assert line == f"{variant[3]}, {labels} labels, {images:,} images: {variant[4]}"
    assert collection._recognise(labels_of(labels, images - 1, 0)) == ""


def test_the_exclusion_list_is_recognised():
    wrong, right = (
        collection._recognise(labels_of(21, 195834, unlabelled)) for unlabelled in (3055, 0)
    )
    assert (
        "drops 3,055 images that have one of the 21 labels and keeps 3,055 that have none" in wrong
    )
    assert "73,814" not in right


@pytest.mark.parametrize(("images", "known"), [(20015, True), (24581, True), (24000, False)])
def test_counts_of_another_variant_are_no_problem(images, known):
    labels = labels_of(24, images, 0)
    labels[0] = True
    summary = describe(records("i", labels, range(24)), expected={"found": 25000, "usable": 20015})
    assert bool(summary["protocol"]) == known
    assert any("usable: " in line for line in summary["problems"]) != known
