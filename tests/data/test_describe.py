"""The doctor: counts, chance, and problems with what to do."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from channelhash.data.describe import _PROTOCOLS, _recognise, describe
from channelhash.data.folder import _load_folder, find_images, load_any
from channelhash.data.records import Records
from channelhash.data.splits import draw_splits
from channelhash.errors import InputError


def make(labels: np.ndarray) -> Records:
    n, c = labels.shape
    return Records(tuple(map(str, range(n))), {"text": ("two words",) * n}, labels, tuple(f"l{j}" for j in range(c)))


@given(arrays(bool, st.tuples(st.integers(2, 12), st.integers(1, 4))))
def test_chance_is_the_share_of_pairs_with_a_common_label(labels):
    n = len(labels)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    expected = np.mean([(labels[i] & labels[j]).any() for i, j in pairs])
    assert describe(make(labels))["chance"] == pytest.approx(expected)


def test_problems_are_named(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    Image.new("RGB", (4, 4)).save(tmp_path / "good.jpg")
    (tmp_path / "copy.jpg").write_bytes((tmp_path / "good.jpg").read_bytes())
    names = ("good.jpg", "bad.jpg", "gone.jpg", "copy.jpg")
    items = {"image": tuple(tmp_path / name for name in names), "text": ("a", "b c", "d", "e f g h")}
    labels = np.array([[True, False], [False, False], [True, False], [True, False]])
    records = Records(("a", "b", "a", "c"), items, labels, ("sea", "sky"), {"no tag": 1}, ("a line",), found=5)
    calls = []
    result = describe(records, None, {"found": 25000}, True, progress=lambda done, of: calls.append((done, of)))
    assert (result["found"], result["usable"], result["removed"], result["partitions"]) == (5, 4, {"no tag": 1}, {})
    assert result["words_per_text"] == {"min": 1, "median": 1.5, "mean": 2, "max": 4}
    assert result["expected"] == {"found": 25000}
    bad = tmp_path / "bad.jpg"
    assert result["problems"] == [
        "a line",
        "found: 5 samples, the official collection has 25000; is the archive complete?",
        "1 of 4 samples have no label: they are similar to nothing and never relevant; label them or leave them out",
        "label 'sky' never occurs; leave it out of the labels",
        "id a occurs more than once: its rows stay on one side of query and retrieval",
        f"unreadable picture {bad} (of no known format); leave it out with --skip-bad, or get it again",
        f"no such picture {tmp_path / 'gone.jpg'}; leave it out with --skip-bad, or get it again",
        f"picture {tmp_path / 'copy.jpg'} is the same file as {tmp_path / 'good.jpg'}; leave one of them out",
    ]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_keys_that_people_script_against():
    records = make(np.ones((6, 2), dtype=bool))
    splits = draw_splits(records, 1, 2, 1)
    parts = {"query": 1, "retrieval": 5, "train": 2, "validation_query": 1, "validation_retrieval": 2}
    figures = {"min": 2.0, "median": 2.0, "mean": 2.0, "max": 2.0}
    assert describe(records, splits) == {
        "found": 6, "usable": 6, "labels": {"l0": 6, "l1": 6}, "partitions": parts, "expected": {}, "removed": {},
        "problems": [], "labels_per_item": figures, "words_per_text": figures, "chance": 1.0, "protocol": "",
        "measures": ["map"],
    }  # fmt: skip


def test_chance_of_more_label_sets_than_one_block():
    """All 2,047 sets of at least one of 11 labels, once each."""
    labels = (np.arange(1, 2048)[:, None] >> np.arange(11) & 1).astype(bool)
    shared = (labels.astype(int) @ labels.T > 0).sum() - len(labels)
    assert describe(make(labels))["chance"] == pytest.approx(shared / (2047 * 2046))


def test_a_folder_of_pictures_at_any_depth(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "deep" / "er" / "x.PNG")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.jpg")
    (tmp_path / "notes.txt").write_text("not a picture")
    assert load_any(tmp_path).ids == ("a.jpg", "deep/er/x.PNG")
    (tmp_path / "bad.jpg").write_bytes(b"")
    with pytest.raises(InputError, match="empty picture"):
        _load_folder(tmp_path)
    records = _load_folder(tmp_path, skip_bad=True)
    assert (records.ids, records.found, records.removed) == (("a.jpg", "deep/er/x.PNG"), 3, {"unreadable picture": 1})
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no pictures"):
        _load_folder(tmp_path / "empty")
    with pytest.raises(InputError, match="no such folder or file"):
        load_any(tmp_path / "gone")


def test_what_cannot_be_listed_is_a_line_each(tmp_path, monkeypatch):
    for name in ("a.png", "locked/b.png", "open/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    with open(os.fsencode(tmp_path) + b"/\xff.png", "wb"):
        pass
    scandir = os.scandir

    def scan(path):
        if path == tmp_path / "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    found = find_images(tmp_path)
    assert found.names == ["a.png", "open/c.png"]
    assert found.problems == (
        f"{tmp_path}/locked: cannot be read (Permission denied)",
        f"{tmp_path}/\ufffd.png: the name is not UTF-8; rename it",
    )
    with pytest.raises(InputError, match="locked: cannot be read"):
        find_images(tmp_path / "locked")


def labels_of(width: int, images: int, unlabelled: int) -> np.ndarray:
    labels = np.zeros((images, width), dtype=bool)
    labels[unlabelled:, 0] = True
    return labels


@pytest.mark.parametrize("numbers", _PROTOCOLS, ids=str)
def test_each_variant_is_known_by_its_three_numbers(numbers):
    labels, images, _ = numbers
    line = _recognise(labels_of(*numbers))
    assert line == f"{_PROTOCOLS[numbers][0]}, {labels} labels, {images:,} images: {_PROTOCOLS[numbers][1]}"
    assert _recognise(labels_of(labels, images - 1, 0)) == ""


def test_the_exclusion_list_is_recognised_though_the_number_of_images_is_right():
    wrong, right = (_recognise(labels_of(21, 195834, unlabelled)) for unlabelled in (3055, 0))
    assert "drops 3,055 images that have one of the 21 labels and keeps 3,055 that have none" in wrong
    assert "73,814" not in right


def test_the_counts_of_another_variant_are_no_problem_and_of_none_they_are():
    expected = {"found": 25000, "usable": 20015}
    for images, known in ((20015, True), (24581, True), (24000, False)):
        labels = labels_of(24, images, 0)
        labels[0] = True
        records = Records(tuple(map(str, range(images))), {"text": ("a",) * images}, labels, tuple(map(str, range(24))))
        summary = describe(records, expected=expected)
        assert bool(summary["protocol"]) == known
        assert any("usable: " in line for line in summary["problems"]) == (images == 24000)
