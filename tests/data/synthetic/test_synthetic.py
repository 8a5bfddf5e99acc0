"""The embedded data set: what it exercises, and that it is the same for everybody."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from channelhash.data.mirflickr import load_mirflickr
from channelhash.data.synthetic import load_synthetic, synthesize
from channelhash.data.synthetic.hashtags import WORDS, write_hashtags
from channelhash.data.synthetic.scenes import IMPLIED, LABELS, draw_scene
from channelhash.errors import InputError
from channelhash.utils.seeds import generator


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    synthesize(folder / "set", 500)
    return folder / "set"


@pytest.fixture(scope="module")
def everything(root):
    """All samples, those without labels or tags too: label sets by number, hashtags by number."""
    labels = {number: set() for number in range(1, 501)}
    for name in LABELS:
        for line in (root / "annotations" / f"{name}.txt").read_text().splitlines():
            labels[int(line)].add(name)
    folder = root / "mirflickr" / "meta" / "tags_raw"
    return labels, {number: (folder / f"tags{number}.txt").read_text().splitlines() for number in labels}


def test_labels_imply_one_another(everything):
    for labels in everything[0].values():
        for label in labels:
            assert set(IMPLIED.get(label, ())) <= labels


def test_every_label_occurs_with_a_long_tail(everything):
    counts = sorted((sum(name in labels for labels in everything[0].values()) for name in LABELS), reverse=True)
    assert counts[-1] >= 1
    assert counts[0] > 0.3 * 500
    assert counts[-4] < 0.07 * 500


def test_numbers_of_labels_and_hashtags_are_in_their_ranges(everything):
    labels, tags = everything
    sizes = [len(names) for names in labels.values()]
    assert (min(sizes), max(sizes) <= 14) == (0, True)
    assert max(sizes) >= 8
    sizes = [len(words) for words in tags.values()]
    assert (min(sizes), max(sizes) <= 20) == (0, True)
    assert max(sizes) >= 12


def test_hashtags_are_what_people_write(everything):
    tags = [tag for words in everything[1].values() for tag in words]
    assert any(tag.startswith("geo:lat=") for tag in tags)
    assert {"nikon", "2007"} <= set(tags)
    assert any(tag.isupper() for tag in tags)
    assert any(tag.startswith("beautiful") and len(tag) > 9 for tag in tags)  # run together
    words = {word for synonyms in WORDS.values() for word in synonyms}
    letters = {"".join(sorted(word)) for word in words}
    swapped = [tag for tag in tags if tag not in words and "".join(sorted(tag)) in letters]
    assert len(swapped) > 5


def test_pictures_vary_in_size(root):
    sizes = {Image.open(path).size for path in (root / "mirflickr").glob("im1*.jpg")}
    assert len(sizes) > 50
    assert all(80 <= side <= 128 for size in sizes for side in size)


def test_each_picture_is_a_function_of_its_seed_and_number(tmp_path, root):
    def digest(folder, count):
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".jpg", ".txt"))
        kept = [p for p in files if "annotations" not in p.parts and int("".join(filter(str.isdigit, p.stem))) <= count]
        return hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in kept)).hexdigest()

    synthesize(tmp_path / "a", 30)
    assert digest(tmp_path / "a", 30) == digest(root, 30)
    synthesize(tmp_path / "b", 30, seed=1)
    assert digest(tmp_path / "b", 30) != digest(root, 30)


def test_an_interrupted_call_goes_on_where_it_was(tmp_path):
    def stop(done, total):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesize(tmp_path / "a", 30, progress=stop)
    first = (tmp_path / "a" / "mirflickr" / "im5.jpg").stat().st_mtime_ns
    synthesize(tmp_path / "a", 30)
    assert (tmp_path / "a" / "mirflickr" / "im5.jpg").stat().st_mtime_ns == first
    synthesize(tmp_path / "b", 30)
    for path in (tmp_path / "b").rglob("*.*"):
        if path.is_file():
            assert (tmp_path / "a" / path.relative_to(tmp_path / "b")).read_bytes() == path.read_bytes()


def test_a_folder_with_something_else_is_left_alone(tmp_path, root):
    with pytest.raises(InputError, match="holds an embedded data set made with"):
        synthesize(root, 501)
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no embedded data set"):
        synthesize(tmp_path, 10)
    assert json.loads((root / "synthetic.json").read_text())["finished"]


def test_the_loader_of_the_real_archive_reads_it(root):
    records = load_synthetic(root, 500)
    assert records.found == 500
    assert 380 < len(records) < 480
    assert set(records.removed) == {"no tag", "no label", "no tag that occurs 2 times"}
    assert records.problems == ()
    again = load_mirflickr(root, min_tag_count=2, raw_tags=True)
    assert again.content_hash() == records.content_hash()


def test_pictures_and_words_tell_of_labels_without_giving_them_away(root):
    """Mean colours of a 4 × 4 grid, and single words, say more than chance about labels, and less than all."""
    records = load_synthetic(root, 500)
    colors = np.array([np.asarray(Image.open(p).resize((4, 4))).ravel() for p in records.items["image"]], dtype=float)
    related = (records.labels.astype(int) @ records.labels.T) > 0
    np.fill_diagonal(related, False)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=2) + np.diag(np.full(len(colors), np.inf))
    nearest = related[np.arange(len(colors)), distances.argmin(axis=1)].mean()
    assert related.mean() + 0.1 < nearest < 0.98
    words = [set(text.lower().split()) for text in records.items["text"]]
    shared = np.array([[len(a & b) for b in words] for a in words])
    np.fill_diagonal(shared, 0)
    assert related.mean() + 0.05 < related[shared > 0].mean() < 0.95


def test_a_scene_needs_no_files():
    picture, labels = draw_scene(generator(3, "scene", 1))
    assert picture.mode == "RGB"
    assert write_hashtags(labels, generator(3, "tags", 1)) == write_hashtags(labels, generator(3, "tags", 1))


def test_two_processes_draw_one_set(tmp_path):
    root = tmp_path / "set"
    script = f"""
from pathlib import Path
from channelhash.data.synthetic import load_synthetic
load_synthetic(Path({str(root)!r}), 40)
"""
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list((root / "mirflickr").glob("*.jpg"))) == 40


def test_a_set_without_images_is_refused(tmp_path):
    with pytest.raises(InputError, match="a data set has at least 1"):
        synthesize(tmp_path / "set", 0)
