"""Raw originals beside their JPEG: a pair counts once, and by the raw file where no picture beside
it can be read.
"""

import pytest
from tests.indexing.test_metadata import photograph, raw_file

import channelhash as ch
from channelhash.data.folder import _raw_twins
from channelhash.utils.image_files import RAW_ENDINGS, raw_problem
from channelhash.utils.seeds import generator
from picture_runs import write_pictures
from small_stores import EXTRACTORS

needs_raw = pytest.mark.skipif(bool(raw_problem()), reason="needs the extra raw")


@pytest.mark.parametrize(
    ("raw", "picture", "is_pair"),
    [
        *((f"1{ending.upper()}", "1.jpg", True) for ending in sorted(RAW_ENDINGS)),
        ("IMG_1.cr2", "img_1.JPEG", True),
        ("1.nef", "1.NEF.jpg", True),
        ("1.dng", "1.HEIC", True),
        ("PXL_1.RAW-02.ORIGINAL.dng", "PXL_1.RAW-01.COVER.jpg", True),
        ("PXL_1.RAW-02.ORIGINAL.dng", "PXL_1.RAW-01.MP.COVER.jpg", True),
        ("PXL_1.RAW-02.ORIGINAL.dng", "PXL_2.RAW-01.COVER.jpg", False),
        ("1.dng", "1.png", False),
        ("1.dng", "1.gif", False),
        ("1.dng", "1-edited.jpg", False),
        ("1.dng", "1 (1).jpg", False),
        ("raw/1.dng", "1.jpg", False),
    ],
)
def test_only_the_picture_of_the_same_camera_makes_a_pair(raw, picture, is_pair):
    assert _raw_twins([raw, picture]) == ({raw: [picture]} if is_pair else {})
    assert _raw_twins([raw, picture], damaged=[picture]) == {}


def bring_up_to_date(photos):
    index = ch.index(photos, encoder=EXTRACTORS, n_bits=16, prune=True, trust_code=True)
    with index.store:
        return index.store.ids(), index.indexed


def damage(path, draw):
    content = path.read_bytes()
    kept = [b"", content[: len(content) // 2], bytes(len(content)), b"<html>not found</html>"]
    path.write_bytes(kept[int(draw.integers(0, len(kept)))])


@needs_raw
@pytest.mark.parametrize("seed", range(4))
def test_a_photograph_is_found_by_its_raw_file_while_its_jpeg_is_damaged_or_gone(seed, tmp_path):
    draw = generator(0, "pairs", seed)
    photos = tmp_path / "photos"
    write_pictures(photos, 3)
    (photos / "items.csv").unlink()
    others = [f"images/{n}.png" for n in range(3)]
    names = ["IMG_1", "b/IMG_2", "b/IMG_3"]
    (photos / "b").mkdir()
    states = dict.fromkeys(names, "whole")
    for name in names:
        raw_file(photos / f"{name}.DNG")
        photograph(photos / f"{name}.jpg")
    for _ in range(4):
        for name in names:
            states[name] = str(draw.choice(["whole", "damaged", "gone"]))
            jpeg = photos / f"{name}.jpg"
            if states[name] == "gone":
                jpeg.unlink(missing_ok=True)
            else:
                photograph(jpeg)
            if states[name] == "damaged":
                damage(jpeg, draw)
        ids, done = bring_up_to_date(photos)
        raw = [f"{name}.DNG" for name in names if states[name] != "whole"]
        whole = [f"{name}.jpg" for name in names if states[name] == "whole"]
        assert set(raw) <= set(ids), states
        assert {name for name in ids if name.endswith(".DNG")} == set(raw), states
        assert set(ids) >= {*whole, *others}
        problems = [line for line in done.problems if ".jpg" in line]
        assert len(problems) == list(states.values()).count("damaged")
        again, done = bring_up_to_date(photos)
        assert again == ids
        assert (done.added, done.replaced, done.pruned) == (0, 0, 0), "nothing is read twice"


@needs_raw
def test_a_folder_in_which_only_raw_files_can_be_read_is_indexed(tmp_path):
    for name in ("1", "2"):
        raw_file(tmp_path / f"{name}.dng")
        (tmp_path / f"{name}.jpg").touch()
    ids, done = bring_up_to_date(tmp_path)
    assert ids == ["1.dng", "2.dng"]
    assert (done.added, len(done.problems)) == (2, 2)
