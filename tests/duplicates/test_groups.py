"""Which files of a group can go: never the last one of a picture, whatever its names are, and no
raw original for a picture that was developed from it; and which copy is the one to keep.
"""

import os
import shutil

import numpy as np
import pytest
from PIL import ImageOps

import channelhash as ch
from channelhash.copies.small_copies import SmallCopy
from channelhash.duplicates import Photo, find_duplicates, move_rest
from channelhash.duplicates.groups import describe_copies, propose_keeper
from channelhash.search.items import Item
from channelhash.utils.seeds import generator
from picture_runs import photograph


def store_of(folder, files):
    """Make a store of pictures, ids -> paths and what else is known of them."""
    store = ch.open_store(folder / "store", n_bits=8)
    codes = np.zeros((len(files), 1), np.uint8)
    metadata = [{"image": str(path), **known} for path, known in files.values()]
    store.add(list(files), {"image": codes}, metadata=metadata)
    return store


def spare_files(store):
    return [
        photo.path
        for group in find_duplicates(store)
        for photo in group.photos
        if photo.id != group.keeper
    ]


def link(draw, path, target):
    """Make a link to a file, or to a link: hard, absolute, relative, or through a linked folder."""
    kind = draw.integers(0, 4)
    if kind == 0:
        os.link(os.path.realpath(target), path)
    elif kind == 1:
        path.symlink_to(target)
    elif kind == 2:
        path.symlink_to(os.path.relpath(target, path.parent))
    else:
        folder = path.with_name(f"{path.name} folder")
        folder.symlink_to(target.parent, target_is_directory=True)
        return folder / target.name
    return path


def draw_album(seed, folder):
    """Draw three pictures of several files each, of which half are links, in and out of a folder;
    return ids -> paths of those that are known, and the picture of each path.
    """
    draw = generator(0, "album", seed)
    home, out = folder / "home", folder / "out"
    (home / "best").mkdir(parents=True)
    out.mkdir()
    picture_of, listed = {}, []
    for number in range(3):
        paths = []
        for n in range(int(draw.integers(2, 6))):
            place = [home, home / "best", out][int(draw.integers(0, 3))]
            path = place / f"{draw.integers(0, 10**6)} {number}-{n}.png"
            if paths and draw.integers(0, 2):
                path = link(draw, path, paths[int(draw.integers(0, len(paths)))])
            else:
                side = 180 - 30 * int(draw.integers(0, 3))
                photograph(number).resize((side, side * 5 // 6)).save(path)
            paths.append(path)
            picture_of[path] = number
            if place != out:
                listed.append(path)
    ids = {f"{n:02}": (path, {}) for n, path in enumerate(draw.permutation(listed).tolist())}
    return ids, picture_of


def readable_pictures(picture_of):
    return {number for path, number in picture_of.items() if path.exists()}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["delete", "move"])
def test_without_the_spare_files_each_picture_and_link_is_still_there(seed, how, tmp_path):
    files, picture_of = draw_album(seed, tmp_path)
    store = store_of(tmp_path, files)
    leads = [path for path, _ in files.values()]
    if how == "delete":
        for path in spare_files(store):
            assert not os.path.islink(path)
            os.remove(path)
    else:
        groups = {
            group.keeper: [name for name in group.ids if name != group.keeper]
            for group in find_duplicates(store)
        }
        assert move_rest(store, groups, tmp_path / "moved", dry_run=False).problems == []
    assert readable_pictures(picture_of) == {0, 1, 2}
    lost = [path for path in leads if os.path.lexists(path) and not path.exists()]
    assert lost == [], "a link leads to nothing"


def test_whoever_asks_for_it_moves_no_link_and_no_file_that_one_leads_to(tmp_path):
    for name, side in {"a": 180, "b": 120, "c": 90}.items():
        photograph(0).resize((side, side)).save(tmp_path / f"{name}.png")
    (tmp_path / "best.png").symlink_to("b.png")
    (tmp_path / "far.png").symlink_to(tmp_path / "best.png")
    os.link(tmp_path / "a.png", tmp_path / "hard.png")
    names = ["a.png", "b.png", "c.png", "best.png", "far.png", "hard.png"]
    store = store_of(tmp_path, {name: (tmp_path / name, {}) for name in names})
    assert [group.ids for group in find_duplicates(store)] == [["a.png", "c.png"]]
    moved = move_rest(store, {"a.png": names[1:]}, tmp_path.with_name("moved"))
    assert list(moved.paths) == ["c.png"]
    assert [line.split(": stays, ")[1][:12] for line in moved.problems] == [
        "the link far",
        "is a link, w",
        "is a link, w",
        "is the same ",
    ]
    in_circle = {"a.png": ["c.png"], "c.png": ["a.png"]}
    assert move_rest(store, in_circle, tmp_path.with_name("moved")).paths == {}


ENDINGS = ("dng", "CR2", "nef", "ARW", "raf", "rw2")


@pytest.mark.parametrize("seed", range(6))
def test_raw_originals_are_copies_of_raw_originals_only(seed, tmp_path, monkeypatch):
    """Of random copies, some are raw: they are read as what they are, as only names matter here."""
    monkeypatch.setattr("channelhash.utils.image_files.RAW_ENDINGS", frozenset())
    draw = generator(0, "raw", seed)
    files = {}
    for n in range(9):
        ending = str(draw.choice(ENDINGS)) if n % 3 == 1 or (n and draw.integers(0, 2)) else "jpg"
        folder = tmp_path / str(draw.choice(["", "raw", "2019"]))
        folder.mkdir(exist_ok=True)
        path = folder / f"{n}.{ending}"
        side = int(draw.integers(3, 6)) * 40
        photograph(0).resize((side, side)).save(path, "JPEG")
        files[f"{n}.{ending}"] = path, {}
    store = store_of(tmp_path, files)
    kinds = [{name.endswith("jpg") for name in group.ids} for group in find_duplicates(store)]
    assert all(len(kind) == 1 for kind in kinds), kinds
    raw = [name for name in files if not name.endswith("jpg")]
    others = [name for name in files if name.endswith("jpg")]
    expected = sum(len(names) - 1 for names in (raw, others) if names)
    assert len(spare_files(store)) == expected
    moved = move_rest(store, {others[0]: raw}, tmp_path.with_name("moved"))
    assert moved.paths == {}
    assert {line.split(": ")[1] for line in moved.problems} == {
        f"stays, is a raw original, and {others[0]} is none"
    }


@pytest.mark.parametrize(
    ("photos", "keeper", "reason"),
    [
        (
            [Photo("a", width=3, height=2, size=9), Photo("b", width=2, height=4)],
            "b",
            "most pixels",
        ),
        ([Photo("a", sharpness=7.9), Photo("b", sharpness=10)], "b", "sharpest"),
        ([Photo("a", size=9), Photo("b", taken=True)], "b", "has the camera's date"),
        (
            [Photo("a (1).jpg"), Photo("a-copy 2"), Photo("a_edited"), Photo("b.jpg")],
            "b.jpg",
            "name of an original",
        ),
        ([Photo("a", sharpness=8.1), Photo("b", sharpness=10)], "a", "all are equal"),
        ([Photo("a", turned=True, size=900), Photo("b", size=800)], "b", "upright"),
        (
            [Photo("a", size=920), Photo("b", described=1, size=900)],
            "b",
            "has rating, title or keywords",
        ),
        (
            [Photo("a", described=3, width=2, height=2), Photo("b", width=3, height=2)],
            "b",
            "most pixels",
        ),
        (
            [Photo("a", described=1), Photo("b", taken=True)],
            "a",
            "has rating, title or keywords",
        ),
        (
            [Photo("flipped.jpg", size=105), Photo("x.jpg", size=100)],
            "x.jpg",
            "name of an original",
        ),
        ([Photo("a", size=95), Photo("b", size=100)], "a", "all are equal"),
    ],
)
def test_the_best_copy_is_proposed_and_why(photos, keeper, reason):
    assert propose_keeper(photos) == (keeper, reason)


@pytest.mark.parametrize("turn", range(1, 8))
def test_a_copy_that_is_turned_against_most_or_the_cameras_is_not_kept(turn):
    grey = np.outer(np.arange(16), np.arange(16)[::-1] ** 2).astype(np.uint8)
    grey[2:5, 9:12] = 250
    copy = SmallCopy("", grey, np.zeros((16, 16, 3), np.uint8), False)

    def turned(taken, *copies):
        items = [Item(str(n), {}, {"taken": date}) for n, date in enumerate(taken)]
        return [photo.turned for photo in describe_copies(items, list(copies))]

    assert turned([None] * 3, copy.turned(turn), copy, copy) == [True, False, False]
    assert turned([None, "2019"], copy, copy.turned(turn)) == [True, False]
    assert turned(["2019", None, None], copy.turned(turn), copy, copy) == [False, True, True]
    assert turned([None] * 2, copy.turned(turn), copy) == [False, False], "nobody knows"


def test_rating_title_and_keywords_of_an_item_count_but_no_rejection(tmp_path):
    photograph(0).save(tmp_path / "a.png")
    ImageOps.mirror(photograph(0)).save(tmp_path / "b.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "c.png")
    files = {
        "a": (tmp_path / "a.png", {"rating": -1}),
        "b": (tmp_path / "b.png", {"rating": 5, "title": "x"}),
        "c": (tmp_path / "c.png", {"labels": ["sea"]}),
    }
    [group] = find_duplicates(store_of(tmp_path, files))
    assert [photo.described for photo in group.photos] == [0, 2, 1]
    assert group.keeper == "c"
    assert group.reason == "upright, has rating, title or keywords"
