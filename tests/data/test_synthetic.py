"""The embedded data set: what it exercises, and that it is the same for everybody."""

import json

import numpy as np
import pytest
from PIL import Image

from channelhash.data import synthetic
from channelhash.data.flickr import load_mirflickr
from channelhash.utils.seeds import generator
from refusals import check_refusal
from small_runs import interrupt_at

N = 200


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    synthetic.synthesize(folder / "set", N)
    return folder / "set"


def test_labels_have_a_long_tail_and_imply_one_another(root):
    labels = {number: set() for number in range(1, N + 1)}
    for name in synthetic._WORDS:
        for line in (root / "annotations" / f"{name}.txt").read_text().splitlines():
            labels[int(line)].add(name)
    for names in labels.values():
        assert {synthetic._IMPLIED[name] for name in names if name in synthetic._IMPLIED} <= names
    sizes = [len(names) for names in labels.values()]
    assert min(sizes) == 0
    assert 7 <= max(sizes) <= 14
    counts = sorted(sum(name in names for names in labels.values()) for name in synthetic._WORDS)
    assert counts[0] >= 1
    assert counts[-1] > 0.3 * N
    assert counts[3] < 0.08 * N


def test_hashtags_are_what_people_write():
    labels = frozenset({"dog", "sea", "people"})
    written = [synthetic._write_hashtags(labels, generator(0, "tags", n)) for n in range(500)]
    sizes = [len(tags) for tags in written]
    assert min(sizes) == 0
    assert max(sizes) <= 20
    assert max(sizes) >= 12
    tags = [tag for words in written for tag in words]
    assert any(tag.startswith("geo:lat=") for tag in tags)
    assert {"nikon", "2007"} <= set(tags)
    assert any(tag.isupper() for tag in tags)
    assert any(tag.startswith("beautiful") and len(tag) > 9 for tag in tags)  # run together
    words = {word for synonyms in synthetic._WORDS.values() for word in synonyms.split()}
    letters = {"".join(sorted(word)) for word in words}
    # letters swapped
    assert sum(tag not in words and "".join(sorted(tag)) in letters for tag in tags) > 5


def test_each_picture_is_a_function_of_its_seed_and_number(tmp_path, root):
    sizes = {Image.open(path).size for path in (root / "mirflickr").glob("im1*.jpg")}
    assert len(sizes) > 50
    assert all(80 <= side <= 128 for size in sizes for side in size)
    for seed, same in ((0, True), (1, False)):
        synthetic.synthesize(tmp_path / str(seed), 12, seed=seed)
        for file in ("im7.jpg", "meta/tags_raw/tags7.txt"):
            drawn = (tmp_path / str(seed) / "mirflickr" / file).read_bytes()
            assert (drawn == (root / "mirflickr" / file).read_bytes()) is same


def test_an_interrupted_call_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        synthetic.synthesize(tmp_path / "a", 12, progress=interrupt_at(6))
    first = (tmp_path / "a" / "mirflickr" / "im5.jpg").stat().st_mtime_ns
    synthetic.synthesize(tmp_path / "a", 12)
    assert (tmp_path / "a" / "mirflickr" / "im5.jpg").stat().st_mtime_ns == first
    synthetic.synthesize(tmp_path / "b", 12)
    for path in (tmp_path / "b").rglob("*.*"):
        if path.is_file():
            assert (
                tmp_path / "a" / path.relative_to(tmp_path / "b")
            ).read_bytes() == path.read_bytes()


def test_a_folder_with_something_else_is_left_alone(tmp_path, root):
    check_refusal("a data set has at least 1", synthetic.synthesize, tmp_path / "set", 0)
    check_refusal("holds an embedded data set made with", synthetic.synthesize, root, N + 1)
    (tmp_path / "note.txt").write_text("mine")
    check_refusal("holds no embedded data set", synthetic.synthesize, tmp_path, 10)
    assert json.loads((root / "synthetic.json").read_text())["finished"]


def test_pictures_and_words_tell_of_labels_without_giving_them_away(root):
    """Mean colours of a 4 × 4 grid, and single words, say more than chance about labels, and less
    than all.
    """
    records = synthetic.load_synthetic(root, N)
    assert records.found == N
    assert 0.75 * N < len(records) < 0.96 * N
    assert {"no tag", "no tag that occurs 2 times"} <= set(records.removed)
    assert records.problems == ()
    assert (
        load_mirflickr(root, min_tag_count=2, raw_tags=True).content_hash()
        == records.content_hash()
    )
    colors = np.array(
        [np.asarray(Image.open(p).resize((4, 4))).ravel() for p in records.items["image"]],
        dtype=float,
    )
    related = (records.labels.astype(int) @ records.labels.T) > 0
    np.fill_diagonal(related, False)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=2) + np.diag(
        np.full(len(colors), np.inf)
    )
    nearest = related[np.arange(len(colors)), distances.argmin(axis=1)].mean()
    assert related.mean() + 0.1 < nearest < 0.98
    words = [set(text.lower().split()) for text in records.items["text"]]
    shared = np.array([[len(a & b) for b in words] for a in words])
    np.fill_diagonal(shared, 0)
    assert related.mean() + 0.05 < related[shared > 0].mean() < 0.95
