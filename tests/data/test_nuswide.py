"""The NUS-WIDE layout, read as it is."""

import pytest

from channelhash.data.nuswide import IMAGE_LAYOUTS, count_images, load_nuswide
from data import nuswide_tree as tree
from refusals import check_refusal, refusal


@pytest.fixture
def root(tmp_path):
    return tree.write_tree(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_tree_gives_the_counts_done_by_hand(tmp_path, encoding):
    records = load_nuswide(tree.write_tree(tmp_path, encoding=encoding), n_labels=3)
    assert (records.ids, records.items["text"]) == (tree.USABLE, tree.TEXTS)
    assert records.label_names == ("animal", "person", "sky")
    carried = [{name for name, has in zip(records.label_names, row, strict=True) if has} for row in records.labels]
    assert carried == tree.LABEL_SETS
    assert (records.removed, records.found) == (tree.REMOVED, 6)
    line = "id 702409954 occurs 2 times in the image list: its rows stay on one side of query and retrieval"
    assert records.problems == (line,)


@pytest.mark.parametrize("layout", IMAGE_LAYOUTS)
def test_every_layout_of_pictures_is_recognised(tmp_path, layout):
    root = tree.write_tree(tmp_path, layout)
    records = load_nuswide(root)
    assert len(records) == 6
    assert all(path.is_file() for path in records.items["image"])
    assert count_images(root) == (6, 6)


def test_labels_and_missing_pictures_are_named(root):
    assert load_nuswide(root, label_names=["castle"]).ids == ("12",)
    says = r"no file Labels_cat\.txt; there are labels animal, castle, person, sky"
    check_refusal(says, load_nuswide, root, label_names=["cat"])
    (root / "Flickr" / "sky" / "0005_11.jpg").unlink()
    check_refusal(r"no picture of sky\\0005_11\.jpg; looked for Flickr", load_nuswide, root)
    records = load_nuswide(root, skip_bad=True)
    assert "11" not in records.ids
    assert records.removed == {"missing picture": 1}
    assert list(load_nuswide(root, require_pictures=False).items) == ["text"]
    assert count_images(root) == (5, 6)


BAD = {
    "Groundtruth/AllLabels/Labels_sky.txt": [(b"1\n0\n0\n0\n1\n", "Labels_sky.txt: has 5 lines, the image list has 6"),
     (b"1\n0\nx\n0\n1\n0\n", "Labels_sky.txt, line 3: 'x' is not 0 or 1")],
    "ImageList/Imagelist.txt": [(b"", "the image list is empty"),
     (b"actor\\0001_x.jpg\n" * 6, "0001_x.jpg' does not end in _<id>.jpg")],
    "NUS_WID_Tags/All_Tags.txt": [(b"99 stray\n", "line 1: the id '99' is not in the image list")],
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "says"), [(n, c, s) for n, cases in BAD.items() for c, s in cases])
def test_bad_files_are_named(root, name, content, says):
    (root / name).write_bytes(content)
    message = refusal(load_nuswide, root)
    assert str(root / name) in message
    assert says in message


@pytest.mark.parametrize(("pattern", "says"), [
    ("All_Tags.txt", r"no NUS_WID_Tags/All_Tags\.txt or"), ("0*.jpg", "no usable sample is left of 6: "),
    ("Imagelist.txt", r"no ImageList/Imagelist\.txt or .* get it with"),
    ("Labels_*.txt", r"no files Labels_<name>\.txt; unpack Groundtruth\.zip"),
])  # fmt: skip
def test_missing_files_are_named(root, pattern, says):
    for path in root.rglob(pattern):
        path.unlink()
    check_refusal(says, load_nuswide, root, skip_bad=True)


def test_other_capitals_folders_and_leftovers_of_a_mac_do_not_matter(tmp_path):
    root = tree.write_tree(tmp_path)
    (root / "Groundtruth" / "AllLabels" / "._Labels_sky.txt").write_bytes(b"\0\5")
    (root / "Groundtruth" / "AllLabels" / ".DS_Store").write_bytes(b"\0\5")
    (root / "lists").mkdir()
    (root / "ImageList" / "Imagelist.txt").rename(root / "lists" / "ImageList.txt")
    (root / "Groundtruth").rename(root / "GroundTruth")
    (root / "NUS_WID_Tags").rename(root / "tags")
    for path in root.glob("Flickr/*/*.jpg"):
        path.rename(path.with_suffix(".JPG"))
    records = load_nuswide(root, n_labels=3)
    assert (records.ids, records.items["text"], records.removed) == (tree.USABLE, tree.TEXTS, tree.REMOVED)
