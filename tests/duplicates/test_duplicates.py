"""Groups of a store, from the first look to the move: what is read once, asked once, moved and moved
back.
"""

import numpy as np
import pytest
from PIL import ImageOps
from tests.search import contract

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.copies import grouping, small_copies
from channelhash.duplicates import (
    DuplicateGroup,
    decide,
    draw_groups,
    find_duplicates,
    move_rest,
    moves,
    regroup,
    undo_last,
)
from channelhash.search.fold import default_radius
from channelhash.search.hits import Query, SearchOptions, search_hits
from picture_runs import photograph
from refusals import check_refusal
from small_runs import interrupt_at


@pytest.fixture
def store(tmp_path):
    """A scene of three photographs at 0 bits, one of them with two copies; and an item 5 bits off
    without a picture.
    """
    for name, number in {"a": 0, "b": 1, "c": 2, "b2": 1, "b3": 1}.items():
        photograph(number).save(tmp_path / f"{name}.png")
    opened = ch.open_store(tmp_path / "store", n_bits=64)
    names, codes = ["a", "b", "c", "b2", "b3"], np.zeros((6, 8), np.uint8)
    codes[3:5, 0] = 0b11, 0b111
    codes[5, 7] = 0b11111
    metadata = [{"image": str(tmp_path / f"{name}.png")} for name in names] + [{}]
    opened.add([*names, "z"], {"image": codes, "text": codes}, metadata=metadata)
    return opened


def ids(groups):
    return [group.ids for group in groups]


def test_near_codes_of_different_photographs_are_no_duplicates(store, tmp_path):
    assert ids(find_duplicates(store)) == [["b", "b2", "b3"]]
    assert [group.distances for group in find_duplicates(store)] == [[0, 2, 3]]
    assert ids(find_duplicates(store, radius=1)) == [["b2", "b3"]]
    assert ids(find_duplicates(store, compare_images=False)) == [["a", "b", "b2", "b3", "c"]]
    assert ids(find_duplicates(store, modality="text")) == [["a", "b", "b2", "b3", "c"]], (
        "by words alone"
    )
    assert ids(find_duplicates(store, radius=5)) == [["b", "b2", "b3"]]
    (tmp_path / "c.png").unlink()
    assert ids(find_duplicates(store)) == [["b", "b2", "b3"]], "within 4 bits by codes alone"
    assert ids(find_duplicates(store, radius=5)) == [["b", "b2", "b3"], ["c", "z"]], (
        "both without a picture"
    )


@pytest.mark.parametrize("pictures", [True, False])
def test_what_is_deleted_while_duplicates_are_looked_for_is_in_no_group(
    store, pictures, tmp_path, monkeypatch
):
    read, gone = store.get, {"b3"}

    def delete_first(ids, missing_ok=False):
        store.delete(list(gone))
        return read(ids, missing_ok)

    monkeypatch.setattr(store, "get", delete_first)
    before = [["b", "b2"]] if pictures else [["a", "b", "b2", "c"]]
    groups = find_duplicates(store, compare_images=pictures)
    assert ids(groups) == before
    gone.add("b")
    draw_groups(store, groups, tmp_path / "groups.png")
    after = [] if pictures else [["a", "b2", "c"]]
    assert ids(find_duplicates(store, compare_images=pictures)) == after


def test_collapse_agrees(store):
    def folded(**options):
        hits = search_hits(store, Query(np.zeros(8, np.uint8)), SearchOptions(**options))
        return {hit.id: hit.duplicates for hit in hits}

    assert folded(collapse=default_radius(64)) == {
        "a": [],
        "b": ["b2", "b3"],
        "c": [],
        "z": [],
    }
    assert folded(collapse=4, k=2) == {"a": [], "b": ["b2", "b3"]}
    assert folded(collapse=4, modality="text") == {"a": ["b", "c", "b2", "b3"], "z": []}


def of_numbers(numbers: list[int]) -> np.ndarray:
    bits = [[number >> bit & 1 for bit in range(contract.N_BITS)] for number in numbers]
    return ch.codes.pack(np.array(bits, dtype=bool))


@pytest.mark.parametrize("kind", contract.KINDS)
def test_groups_of_a_store_old_and_new_items_together(kind, tmp_path):
    """Some codes lie in a snapshot, some were written since, one has gone."""
    with contract.KINDS[kind].open(tmp_path) as store:
        store.add(
            ["é", "b", "a", "far"],
            of_numbers([0b111, 0, 0b1, 0b111111110000]),
            metadata=[{"year": 1}] * 4,
        )
        if kind == "embedded":
            store.make_snapshot()
        store.add(["c", "gone"], of_numbers([0b11000000, 0]), metadata=[{"year": 2}] * 2)
        store.delete(["gone"])
        assert find_duplicates(store) == [DuplicateGroup(["a", "b", "c", "é"], [0, 1, 3, 2])]
        assert find_duplicates(store, radius=1) == [DuplicateGroup(["a", "b"], [0, 1])]
        assert find_duplicates(store, where="year = 1") == [
            DuplicateGroup(["a", "b", "é"], [0, 1, 2])
        ]
        assert find_duplicates(store, where="year = 3") == []
        check_refusal("no text codes", find_duplicates, store, modality="text")
        check_refusal("radius is -1", find_duplicates, store, radius=-1)


@pytest.fixture
def album(tmp_path):
    """A folder with an original, half its size, mirrored and turned; and another picture."""
    home = tmp_path / "photos"
    (home / "sub").mkdir(parents=True)
    pictures = {
        "a.png": photograph(0),
        "sub/half.png": photograph(0).resize((90, 75)),
        "z.png": photograph(1),
    }
    pictures["mirrored.png"] = ImageOps.mirror(photograph(0)).resize((160, 140))
    for name, image in pictures.items():
        image.save(home / name)
    with ch.open_store(tmp_path / "store", n_bits=64, stage=Stage(64)) as opened:
        outputs = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
        codes = ch.codes.pack(outputs > 0)
        metadata = [{"image": str(home / name), "note": name} for name in sorted(pictures)]
        opened.add(sorted(pictures), codes, metadata=metadata, projections={"image": outputs})
        yield opened


def groups(store):
    return [(group.keeper, group.ids) for group in find_duplicates(store)]


COPIES = ["a.png", "mirrored.png", "sub/half.png"]


def test_what_was_read_and_compared_is_not_again(album, tmp_path, monkeypatch):
    read, compared = [], []
    real_read, real_compare = small_copies._read_small, grouping._candidates
    monkeypatch.setattr(small_copies, "_AT_ONCE", 1)
    monkeypatch.setattr(
        small_copies, "_read_small", lambda path, state: read.append(path) or real_read(path, state)
    )
    monkeypatch.setattr(
        grouping, "_candidates", lambda a, b: compared.append(len(a[0])) or real_compare(a, b)
    )
    with pytest.raises(KeyboardInterrupt):
        find_duplicates(album, progress=lambda stage: interrupt_at(2))
    assert groups(album) == [("a.png", COPIES)]
    assert len(read) == 4, "two of them before the job was killed"
    for name, counts in {
        None: (0, 0),
        "z.png": (1, 1),
        "a.png": (1, 3),
        "mirrored.png": (1, 2),
    }.items():
        read.clear()
        compared.clear()
        if name:  # of a group all are compared again, as it may have joined the others
            photograph(2).save(tmp_path / "photos" / name)
        groups(album)
        assert (len(read), sum(compared)) == counts, name
    assert groups(album) == [("a.png", ["a.png", "mirrored.png", "z.png"])]


def test_answers_fold_as_groups_do_once_these_are_known_and_the_keeper_is_in_front(album):
    ids, codes = album.codes()
    query = Query(codes[ids.index("sub/half.png")])

    def folded():
        return [(hit.id, hit.duplicates) for hit in search_hits(album, query, options)]

    options = SearchOptions(regroup=regroup)
    assert sorted(folded()) == [(name, []) for name in sorted(ids)], "far codes, and nothing kept"
    find_duplicates(album)
    found = dict(folded())
    assert sorted(found["a.png"]) == COPIES[1:]
    assert folded()[0][0] == "a.png", "where the best of the group would be"
    decide(album, "different", ["a.png", "sub/half.png"])
    assert dict(folded())["a.png"] == ["mirrored.png"]


def test_what_is_decided_is_not_asked_again_until_another_joins(album, tmp_path):
    decide(album, "different", ["a.png", "sub/half.png"])
    assert groups(album) == [("a.png", ["a.png", "mirrored.png"])]
    decide(album, "keep", ["a.png", "mirrored.png"])
    with ch.open_store(tmp_path / "store") as again:
        assert groups(again) == []
    photograph(0).save(tmp_path / "photos" / "z.png")
    assert groups(album) == [("a.png", ["a.png", "mirrored.png", "z.png"])]
    assert [undo_last(album).kind for _ in range(2)] == ["keep", "different"]
    assert groups(album) == [("a.png", [*COPIES, "z.png"])]
    assert undo_last(album) is None
    check_refusal("no item has the id 'b'", decide, album, "keep", ["a.png", "b"])


def test_a_killed_move_is_taken_back_whole(album, tmp_path, monkeypatch):
    before, files = album.get(COPIES), {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    rest, target = {"a.png": COPIES[1:]}, tmp_path / "moved"
    assert list(move_rest(album, rest, target).paths) == COPIES[1:]
    assert not target.exists(), "a dry run"
    real, done = moves._move, []

    def killed(path, to):
        if done:
            to.parent.mkdir()
            to.touch()
            raise KeyboardInterrupt
        done.append(real(path, to))

    monkeypatch.setattr(moves, "_move", killed)
    with pytest.raises(KeyboardInterrupt):
        move_rest(album, rest, target, dry_run=False)
    assert (target / "mirrored.png").exists()
    monkeypatch.setattr(moves, "_move", real)
    assert sorted(undo_last(album).paths) == COPIES[1:]
    move_rest(album, rest, target, dry_run=False)
    assert album.ids() == ["a.png", "z.png"]
    assert (target / "sub" / "half.png").exists()
    undo_last(album)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == files
    for old, new in zip(before, album.get(COPIES), strict=True):
        assert (old.metadata, *map(bytes, old.codes.values())) == (
            new.metadata,
            *map(bytes, new.codes.values()),
        )
        assert np.array_equal(old.projections["image"], new.projections["image"])


def test_what_cannot_be_moved_stays_with_a_line(album, tmp_path):
    home, target = tmp_path / "photos", tmp_path / "moved"
    check_refusal("lies in", move_rest, album, {"a.png": COPIES[1:]}, home / "moved")
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "half.png").write_text("another")
    (home / "mirrored.png").unlink()
    moved = move_rest(album, {"a.png": [*COPIES[1:], "z.png"]}, target, dry_run=False)
    assert [line.split(":")[0] for line in moved.problems] == [*COPIES[1:], "z.png"]
    assert moved.paths == {}
    assert (target / "sub" / "half.png").read_text() == "another"
    (target / "sub" / "half.png").unlink()
    move_rest(album, {"a.png": ["sub/half.png"]}, target, dry_run=False)
    (home / "sub" / "half.png").write_text("again")
    assert "is there again" in undo_last(album).problems[0]
    assert len(album) == 3
    (tmp_path / "store" / "duplicates.sqlite").write_bytes(b"damaged" * 999)
    check_refusal("remove it", find_duplicates, album)
