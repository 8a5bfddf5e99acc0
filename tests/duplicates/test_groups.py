"""Which files of a group can go: never the last one of a picture, whatever its names are, and no
raw original for a picture that was developed from it; and which copy is the one to keep.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import ImageEnhance, ImageOps

import channelhash as ch
from channelhash.copies.small_copies import SmallCopy
from channelhash.duplicates import Photo, find_duplicates, keepers, move_rest, moves
from channelhash.duplicates.keepers import describe_copies, find_keeper, judge
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


OTHER = Photo("b", taken=True, date="2019-07-14", turned=True, colours=-1, derived=True)
#: What is told -> what speaks for a photo that is like `OTHER` otherwise.
FACTS = {
    "has the camera's data": {"camera": True},
    "upright": {"turned": False},
    "in colour": {"colours": 1},
    "most pixels": {"width": 3, "height": 2},
    "oldest": {"date": "2019-07-13"},
    "name of an original": {"derived": False},
    "has rating, title or keywords": {"described": 1},
}


def judged(*photos):
    """The photo that is kept, why, and which others stay."""
    keeper = find_keeper(photos)
    return keeper.id, *judge(keeper, [photo for photo in photos if photo is not keeper])


@pytest.mark.parametrize("second", FACTS)
@pytest.mark.parametrize("reason", FACTS)
def test_one_fact_is_enough_unless_another_contradicts(reason, second):
    one = OTHER._replace(id="a", **FACTS[reason])
    assert judged(one, OTHER) == judged(OTHER, one) == ("a", reason, [])
    both = one._replace(**FACTS[second])
    told = [each for each in FACTS if each in (reason, second)]
    assert judged(OTHER, both) == ("a", ", ".join(told), [])
    rival = OTHER._replace(**FACTS[second])
    if reason != second:
        first = "a" if told[0] == reason else "b"
        assert judged(one, rival) == (first, told[0], [{"a": "b", "b": "a"}[first]])
    assert judged(OTHER._replace(id="a"), OTHER) == ("a", "unsure", ["b"])


@pytest.mark.parametrize(
    ("one", "other", "is_sure"),
    [
        ((4000, 3000), (1333, 1000), True),
        ((4000, 3000), (1000, 1333), True),
        ((4000, 3000), (3996, 2997), True),
        ((4240, 3240), (4000, 3000), False),
        ((4000, 3000), (3000, 3000), False),
        ((4000, 3000), (2000, 2500), True),
    ],
)
def test_more_pixels_count_in_one_shape_and_many_more_in_any(one, other, is_sure):
    expected = ("a", "most pixels", []) if is_sure else ("a", "unsure", ["b"])
    assert judged(Photo("a", "", *one), Photo("b", "", *other)) == expected


@given(
    st.from_regex(r"[a-z]{3}_?[0-9]{4}", fullmatch=True),
    st.sampled_from(["-", " ", "_", " (", "."]),
    st.sampled_from(["edited", "copy", "bw", "small 2"]),
)
def test_a_name_with_a_word_more_is_that_of_a_copy_and_one_with_a_number_is_not(name, mark, word):
    items = [Item(f"{each}.jpg", {}, {}) for each in (name, name + mark + word, f"{name}_2")]
    photos = describe_copies(items, [None] * 3)
    assert [photo.derived for photo in photos] == [False, True, False]


@pytest.mark.parametrize("turn", range(1, 8))
def test_a_copy_that_is_turned_against_most_or_the_cameras_is_not_kept(turn):
    grey = np.outer(np.arange(16), np.arange(16)[::-1] ** 2).astype(np.uint8)
    grey[2:5, 9:12] = 250
    copy = SmallCopy("", grey, np.zeros((16, 16, 3), np.uint8), False)

    def turned(taken, *copies):
        items = [Item(str(n), {}, {"taken": date}) for n, date in enumerate(taken)]
        return [photo.turned for photo in describe_copies(items, list(copies))]

    one = copy.turned(turn)
    assert turned([None] * 4, one, copy, copy, copy) == [True, False, False, False]
    assert turned([None, "2019"], copy, one) == [True, False]
    assert turned(["2019", None, None], one, copy, copy) == [False, True, True]
    assert turned([None] * 3, one, copy, copy) == [False] * 3, "two may be copies of a copy"
    assert turned(["2019"] * 2, one, copy) == [False] * 2, "nobody knows"


def resize(image, draw):
    share = draw.uniform(0.4, 0.9)
    return image.resize((round(image.width * share), round(image.height * share)))


#: Kind of copy -> how it is drawn, and why the original stays where pictures alone tell it apart.
KINDS = {
    "resized": (resize, "most pixels"),
    "bordered": (
        lambda image, draw: ImageOps.expand(image, int(draw.integers(8, 14)), "silver"),
        "without border",
    ),
    "grey": (lambda image, draw: image.convert("L"), "in colour"),
    "compressed": (lambda image, draw: image, "largest file"),
    "mirrored": (lambda image, draw: ImageOps.mirror(image), ""),
    "turned": (
        lambda image, draw: image.rotate(90 * int(draw.integers(1, 4)), expand=True),
        "",
    ),
    "brightened": (
        lambda image, draw: ImageEnhance.Brightness(image).enhance(draw.uniform(1.05, 1.12)),
        "",
    ),
}
CAMERA = {"taken": "2019-07-14 10:20:30", "camera": "D750"}
#: What tells an original and its copy apart: the end of the copy's name, what is known of each.
WAYS = {
    "the camera's data": ("", CAMERA, {}),
    "a name": ("-edited", CAMERA, CAMERA),
    "nothing": ("", {}, {}),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_original_stays_and_where_nothing_tells_it_apart_both(kind, way, seed, tmp_path):
    draw = generator(0, "kinds", kind, seed)
    change, reason = KINDS[kind]
    end, of_original, of_copy = WAYS[way]
    image = photograph(seed).resize((720, 600))
    image.save(tmp_path / "1.jpg", quality=95)
    change(image, draw).save(tmp_path / "2.jpg", quality=int(draw.integers(60, 85)))
    original, copy = ("a", "b") if draw.integers(2) else ("b", "a")
    copy += end
    files = {original: (tmp_path / "1.jpg", of_original), copy: (tmp_path / "2.jpg", of_copy)}
    [group] = find_duplicates(store_of(tmp_path, files))
    if way == "nothing" and not reason:
        assert group.rest == []
    else:
        assert (group.keeper, group.rest) == (original, [copy])
        assert group.reason == reason or way != "nothing"


def test_rating_title_and_keywords_of_an_item_count_but_no_rejection(tmp_path):
    for name in "abc":
        photograph(0).save(tmp_path / f"{name}.png")
    files = {
        "a": (tmp_path / "a.png", {"rating": -1}),
        "b": (tmp_path / "b.png", {"rating": 5, "title": "x"}),
        "c": (tmp_path / "c.png", {"labels": ["sea"]}),
    }
    [group] = find_duplicates(store_of(tmp_path, files))
    assert [photo.described for photo in group.photos] == [2, 0, 1]
    assert (group.keeper, group.unsure) == ("b", [])
    assert group.reason == "has rating, title or keywords"


def test_what_is_no_copy_of_the_kept_one_itself_stays_without_a_complaint(tmp_path, monkeypatch):
    """The kept one and another are copies of a third one."""
    for name, side in {"a": 180, "b": 120, "c": 90}.items():
        photograph(0).resize((side, side)).save(tmp_path / f"{name}.png")
    store = store_of(tmp_path, {name: (tmp_path / f"{name}.png", {}) for name in "abc"})

    def alike_but_two(some, others):
        names = {Path(some[0].path).stem + Path(other.path).stem for other in others}
        return np.array([[names.isdisjoint({"ac"})]])

    monkeypatch.setattr(keepers, "alike", alike_but_two)
    monkeypatch.setattr(moves, "alike", alike_but_two)
    [group] = find_duplicates(store)
    assert (group.keeper, group.rest, group.unsure) == ("a", ["b"], ["c"])
    moved = move_rest(store, {group.keeper: group.rest}, tmp_path.with_name("moved"))
    assert (list(moved.paths), moved.problems) == (["b"], [])


@pytest.mark.parametrize(
    ("taken", "rest"), [("2019-07-14 10:20:30", ["b"]), ("2019-07-14 10:20:31", [])]
)
def test_two_shots_of_one_scene_stay(taken, rest, tmp_path):
    for name in "ab":
        photograph(0).save(tmp_path / f"{name}.png")
    times = {"a": "2019-07-14 10:20:30", "b": taken}
    files = {name: (tmp_path / f"{name}.png", {"taken": time}) for name, time in times.items()}
    [group] = find_duplicates(store_of(tmp_path, files))
    assert group.rest == rest
