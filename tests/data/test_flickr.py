"""The layouts of MIRFLICKR-25k and NUS-WIDE, read as they are."""

import pytest

from channelhash.data.flickr import IMAGE_LAYOUTS, count_images, load_mirflickr, load_nuswide
from data import mirflickr_tree, nuswide_tree
from data.test_bulk import labels_of
from refusals import check_refusal, refusal

ANNOTATIONS = "mirflickr25k_annotations_v080"


@pytest.fixture
def root(tmp_path):
    return mirflickr_tree.write_tree(tmp_path)


@pytest.fixture
def nuswide(tmp_path):
    return nuswide_tree.write_tree(tmp_path)


def check_counts(records, tree):
    """Compare the rows with those found by hand; return the labels of each."""
    assert records.ids == tree.USABLE
    assert records.items["text"] == tree.TEXTS
    assert records.removed == tree.REMOVED
    return labels_of(records)


def test_a_tree_with_odd_cases_gives_the_counts_done_by_hand(root):
    records = load_mirflickr(root, min_tag_count=2)
    carried = check_counts(records, mirflickr_tree)
    assert carried == [{"sea", "sky"}, {"sea"}, {"sea"}, {"sky"}, {"sea"}, {"sky"}]
    assert records.found == 10
    assert records.label_names == ("night", "plant_life", "sea", "sky")
    assert records.items["image"][0] == root / "mirflickr" / "im1.jpg"
    (line,) = records.problems
    assert line.endswith("tags6.txt: not UTF-8, read as Latin-1")


def test_labels_and_the_filter_of_top_tags_can_be_chosen(root):
    records = load_mirflickr(root, min_tag_count=2, label_names=["sky", "night"])
    assert records.ids == ("im1", "im6", "im10")
    assert records.label_names == ("sky", "night")
    check_refusal(
        "unknown label 'skye'; did you mean 'sky'", load_mirflickr, root, label_names=["skye"]
    )
    records = load_mirflickr(root, top_tags=1)
    assert records.ids == ("im1", "im2", "im5", "im9")
    assert records.removed["none of the 1 most frequent tags"] == 3


def test_a_bad_line_is_named_and_can_be_skipped_and_a_missing_picture_is_listed(root):
    (root / "mirflickr" / "im3.jpg").unlink()
    (root / ANNOTATIONS / "plant_life.txt").write_text("4\n8\n")
    path = root / ANNOTATIONS / "sea.txt"
    path.write_text("1\nx7\n99\n2\n")
    message = refusal(load_mirflickr, root, min_tag_count=2)
    assert message.startswith(f"{path}, line 2: 'x7' is not the number of a picture")
    records = load_mirflickr(root, min_tag_count=2, skip_bad=True)
    assert records.found == 9
    assert any(
        "1 tag files have no picture, the first is tags3.txt" in line for line in records.problems
    )
    said = [line.split(", ")[1] for line in records.problems if "sea.txt" in line]
    assert said == [
        "line 2: 'x7' is not the number of a picture",
        "line 3: picture 99 is not there",
    ]


def test_what_is_missing_is_named(root, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    check_refusal("no pictures im1", load_mirflickr, empty)
    (root / "mirflickr" / "meta" / "tags" / "tags5.txt").unlink()
    check_refusal(r"tags5.txt: no such tag file", load_mirflickr, root)
    assert "im5" not in load_mirflickr(root, min_tag_count=2, skip_bad=True).ids
    check_refusal(
        r"meta/tags_raw: no such folder; unpack mirflickr25k\.zip",
        load_mirflickr,
        root,
        raw_tags=True,
    )
    check_refusal("no label files", load_mirflickr, root, annotations=empty)


def remove_relevant_labels(root):
    (root / ANNOTATIONS / "sea_r1.txt").unlink()


def nest_with_leftovers_of_a_mac(root):
    (root / "__MACOSX" / "mirflickr").mkdir(parents=True)
    (root / "__MACOSX" / "mirflickr" / "im1.jpg").write_bytes(b"")
    for folder in ("mirflickr", "mirflickr/meta/tags", ANNOTATIONS):
        (root / folder / ".DS_Store").write_bytes(b"\0")
    for name in (
        "mirflickr/._im1.jpg",
        "mirflickr/meta/tags/._tags1.txt",
        f"{ANNOTATIONS}/._sea.txt",
    ):
        (root / name).write_bytes(b"\xff")
    (root / "downloads").mkdir()
    (root / "mirflickr").rename(root / "downloads" / "mirflickr")
    (root / ANNOTATIONS).rename(root / "downloads" / "annotations")


def write_in_other_capitals(root):
    pictures = root / "mirflickr"
    for path in pictures.glob("*.jpg"):
        path.rename(path.with_suffix(".JPG"))
    (pictures / "meta" / "tags").rename(pictures / "meta" / "Tags")
    pictures.rename(root / "MIRFlickr")
    labels = root / ANNOTATIONS
    (labels / "sea.txt").rename(labels / "Sea.TXT")
    (labels / "sea_r1.txt").rename(labels / "Sea_R1.txt")
    labels.rename(root / "Annotations")


@pytest.mark.parametrize(
    "change", [remove_relevant_labels, nest_with_leftovers_of_a_mac, write_in_other_capitals]
)
def test_a_tree_as_others_unpack_it_is_the_same(root, change):
    change(root)
    records = load_mirflickr(root, min_tag_count=2)
    check_counts(records, mirflickr_tree)
    assert records.label_names == ("night", "plant_life", "sea", "sky")
    assert len(records.problems) == 1


def test_tags_of_numbers_are_no_labels_and_relevant_labels_are_not_enough(root):
    (root / "mirflickr" / "meta" / "tags" / "tags1.txt").write_text("2007\n")
    for name in mirflickr_tree.LABELS:
        (root / ANNOTATIONS / f"{name}.txt").unlink()
    check_refusal(
        r"has only \*_r1\.txt files, of relevant labels; add .*sky\.txt", load_mirflickr, root
    )


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_tree_with_an_id_twice_gives_the_counts_done_by_hand(tmp_path, encoding):
    records = load_nuswide(nuswide_tree.write_tree(tmp_path, encoding=encoding), n_labels=3)
    assert check_counts(records, nuswide_tree) == nuswide_tree.LABEL_SETS
    assert records.found == 6
    assert records.label_names == ("animal", "person", "sky")
    line = (
        "id 702409954 occurs 2 times in the image list: its rows stay on one side of query and "
        "retrieval"
    )
    assert records.problems == (line,)


@pytest.mark.parametrize("layout", IMAGE_LAYOUTS)
def test_every_layout_of_pictures_is_recognised(tmp_path, layout):
    root = nuswide_tree.write_tree(tmp_path, layout)
    records = load_nuswide(root)
    assert len(records) == 6
    assert all(path.is_file() for path in records.items["image"])
    assert count_images(root) == (6, 6)


def test_labels_and_missing_pictures_are_named(nuswide):
    assert load_nuswide(nuswide, label_names=["castle"]).ids == ("12",)
    says = r"no file Labels_cat\.txt; there are labels animal, castle, person, sky"
    check_refusal(says, load_nuswide, nuswide, label_names=["cat"])
    (nuswide / "Flickr" / "sky" / "0005_11.jpg").unlink()
    check_refusal(r"no picture of sky\\0005_11\.jpg; looked for Flickr", load_nuswide, nuswide)
    records = load_nuswide(nuswide, skip_bad=True)
    assert "11" not in records.ids
    assert records.removed == {"missing picture": 1}
    assert list(load_nuswide(nuswide, require_pictures=False).items) == ["text"]
    assert count_images(nuswide) == (5, 6)


SKY, IMAGES = "Groundtruth/AllLabels/Labels_sky.txt", "ImageList/Imagelist.txt"


@pytest.mark.parametrize(("name", "content", "says"), [
    (SKY, b"1\n0\n0\n0\n1\n", "Labels_sky.txt: has 5 lines, the image list has 6"),
    (SKY, b"1\n0\nx\n0\n1\n0\n", "Labels_sky.txt, line 3: 'x' is not 0 or 1"),
    (IMAGES, b"", "the image list is empty"),
    (IMAGES, b"actor\\0001_x.jpg\n" * 6, "0001_x.jpg' does not end in _<id>.jpg"),
    ("NUS_WID_Tags/All_Tags.txt", b"99 stray\n", "line 1: the id '99' is not in the image list"),
])  # fmt: skip
def test_bad_files_are_named(nuswide, name, content, says):
    (nuswide / name).write_bytes(content)
    message = refusal(load_nuswide, nuswide)
    assert str(nuswide / name) in message
    assert says in message


@pytest.mark.parametrize(("pattern", "says"), [
    ("All_Tags.txt", r"no NUS_WID_Tags/All_Tags\.txt, here or below; get it with"),
    ("Imagelist.txt", r"no ImageList/Imagelist\.txt, here or below; get it with"),
    ("Labels_*.txt", r"no files Labels_<name>\.txt; unpack Groundtruth\.zip"),
    ("0*.jpg", "no usable row is left of 6: "),
])  # fmt: skip
def test_missing_files_are_named(nuswide, pattern, says):
    for path in nuswide.rglob(pattern):
        path.unlink()
    check_refusal(says, load_nuswide, nuswide, skip_bad=True)


def test_other_capitals_folders_and_leftovers_of_a_mac_do_not_matter(nuswide):
    for name in ("._Labels_sky.txt", ".DS_Store"):
        (nuswide / "Groundtruth" / "AllLabels" / name).write_bytes(b"\0\5")
    (nuswide / "lists").mkdir()
    (nuswide / "ImageList" / "Imagelist.txt").rename(nuswide / "lists" / "ImageList.txt")
    (nuswide / "Groundtruth").rename(nuswide / "GroundTruth")
    (nuswide / "NUS_WID_Tags").rename(nuswide / "tags")
    for path in nuswide.glob("Flickr/*/*.jpg"):
        path.rename(path.with_suffix(".JPG"))
    check_counts(load_nuswide(nuswide, n_labels=3), nuswide_tree)
