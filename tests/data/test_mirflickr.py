"""The MIRFLICKR-25k layout, read as it is."""

import pytest

from channelhash.data.mirflickr import load_mirflickr
from data import mirflickr_tree as tree
from refusals import check_refusal, refusal


@pytest.fixture
def root(tmp_path):
    return tree.write_tree(tmp_path)


def test_a_tree_with_odd_cases_gives_the_counts_done_by_hand(root):
    records = load_mirflickr(root, min_tag_count=2)
    assert (records.ids, records.items["text"]) == (tree.USABLE, tree.TEXTS)
    assert (records.removed, records.found) == (tree.REMOVED, 10)
    assert records.label_names == ("night", "plant_life", "sea", "sky")
    carried = [{name for name, has in zip(records.label_names, row, strict=True) if has} for row in records.labels]
    assert carried == [{"sea", "sky"}, {"sea"}, {"sea"}, {"sky"}, {"sea"}, {"sky"}]
    assert records.items["image"][0] == root / "mirflickr" / "im1.jpg"
    assert len(records.problems) == 1
    assert records.problems[0].endswith("tags6.txt: not UTF-8, read as Latin-1")


def test_labels_and_the_filter_of_top_tags_can_be_chosen(root):
    records = load_mirflickr(root, min_tag_count=2, label_names=["sky", "night"])
    assert (records.ids, records.label_names) == (("im1", "im6", "im10"), ("sky", "night"))
    check_refusal("unknown label 'skye'; did you mean 'sky'", load_mirflickr, root, label_names=["skye"])
    records = load_mirflickr(root, top_tags=1)
    assert records.ids == ("im1", "im2", "im5", "im9")
    assert records.removed["none of the 1 most frequent tags"] == 3


def test_a_missing_picture_is_listed(root):
    (root / "mirflickr" / "im3.jpg").unlink()
    (root / "mirflickr25k_annotations_v080" / "plant_life.txt").write_text("4\n8\n")
    records = load_mirflickr(root, min_tag_count=2)
    assert records.found == 9
    assert any("1 tag files have no picture, the first is tags3.txt" in line for line in records.problems)


def test_a_bad_line_is_named_and_can_be_skipped(root):
    path = root / "mirflickr25k_annotations_v080" / "sea.txt"
    path.write_text("1\nx7\n99\n2\n")
    message = refusal(load_mirflickr, root, min_tag_count=2)
    assert message.startswith(f"{path}, line 2: 'x7' is not the number of a picture")
    records = load_mirflickr(root, min_tag_count=2, skip_bad=True)
    said = [line.split(", ")[1] for line in records.problems if "sea.txt" in line]
    assert said == ["line 2: 'x7' is not the number of a picture", "line 3: picture 99 is not there"]


def test_what_is_missing_is_named(root, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    check_refusal("no pictures im1", load_mirflickr, empty)
    (root / "mirflickr" / "meta" / "tags" / "tags5.txt").unlink()
    check_refusal(r"tags5.txt: no such tag file", load_mirflickr, root)
    assert "im5" not in load_mirflickr(root, min_tag_count=2, skip_bad=True).ids
    check_refusal(r"meta/tags_raw: no such folder; unpack mirflickr25k\.zip", load_mirflickr, root, raw_tags=True)
    check_refusal("no label files", load_mirflickr, root, annotations=empty)


def remove_relevant_labels(root):
    (root / "mirflickr25k_annotations_v080" / "sea_r1.txt").unlink()


def nest_with_leftovers_of_a_mac(root):
    (root / "__MACOSX" / "mirflickr").mkdir(parents=True)
    (root / "__MACOSX" / "mirflickr" / "im1.jpg").write_bytes(b"")
    for folder in ("mirflickr", "mirflickr/meta/tags", "mirflickr25k_annotations_v080"):
        (root / folder / ".DS_Store").write_bytes(b"\0")
    (root / "mirflickr" / "._im1.jpg").write_bytes(b"\0")
    (root / "mirflickr" / "meta" / "tags" / "._tags1.txt").write_bytes(b"\xff")
    (root / "mirflickr25k_annotations_v080" / "._sea.txt").write_bytes(b"\xff")
    (root / "downloads").mkdir()
    (root / "mirflickr").rename(root / "downloads" / "mirflickr")
    (root / "mirflickr25k_annotations_v080").rename(root / "downloads" / "annotations")


def write_in_other_capitals(root):
    pictures = root / "mirflickr"
    for path in pictures.glob("*.jpg"):
        path.rename(path.with_suffix(".JPG"))
    (pictures / "meta" / "tags").rename(pictures / "meta" / "Tags")
    pictures.rename(root / "MIRFlickr")
    labels = root / "mirflickr25k_annotations_v080"
    (labels / "sea.txt").rename(labels / "Sea.TXT")
    (labels / "sea_r1.txt").rename(labels / "Sea_R1.txt")
    labels.rename(root / "Annotations")


@pytest.mark.parametrize("change", [remove_relevant_labels, nest_with_leftovers_of_a_mac, write_in_other_capitals])
def test_a_tree_as_others_unpack_it_is_the_same(root, change):
    change(root)
    records = load_mirflickr(root, min_tag_count=2)
    assert (records.ids, records.items["text"], records.removed) == (tree.USABLE, tree.TEXTS, tree.REMOVED)
    assert (records.label_names, len(records.problems)) == (("night", "plant_life", "sea", "sky"), 1)


def test_tags_of_numbers_are_no_labels_and_relevant_labels_are_not_enough(root):
    (root / "mirflickr" / "meta" / "tags" / "tags1.txt").write_text("2007\n")
    for name in tree.LABELS:
        (root / "mirflickr25k_annotations_v080" / f"{name}.txt").unlink()
    check_refusal(r"has only \*_r1\.txt files, of relevant labels; add .*sky\.txt", load_mirflickr, root)
