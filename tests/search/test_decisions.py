"""Groups of copies from the first look to the move: what is read once, asked once, moved and moved back."""

import numpy as np
import pytest
from PIL import ImageOps
from tests.search.test_copies import KINDS, photograph

import channelhash as ch
from channelhash.search import copies
from channelhash.search.duplicates import Photo, _propose_keeper, find_duplicates
from channelhash.search.sqlite import decisions
from refusals import check_refusal
from small_runs import interrupt_at


@pytest.fixture
def store(tmp_path):
    """A folder with an original, half its size, mirrored and turned; and another picture."""
    home = tmp_path / "photos"
    (home / "sub").mkdir(parents=True)
    pictures = {"a.png": photograph(0), "sub/half.png": KINDS["half"](photograph(0)), "z.png": photograph(1)}
    pictures["mirrored.png"] = ImageOps.mirror(photograph(0)).resize((160, 140))
    for name, image in pictures.items():
        image.save(home / name)
    with ch.open_store(tmp_path / "store", n_bits=64, projections=True) as opened:
        outputs = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
        codes = ch.codes.pack(outputs > 0)
        metadata = [{"image": str(home / name), "note": name} for name in sorted(pictures)]
        opened.add(sorted(pictures), codes, metadata=metadata, projections={"image": outputs})
        yield opened


def groups(store):
    return [(group.keeper, group.ids) for group in find_duplicates(store)]


COPIES = ["a.png", "mirrored.png", "sub/half.png"]


@pytest.mark.parametrize(
    ("photos", "keeper", "reason"),
    [
        ([Photo("a", width=3, height=2, size=9), Photo("b", width=2, height=4)], "b", "most pixels"),
        ([Photo("a", sharpness=7.9), Photo("b", sharpness=10)], "b", "sharpest"),
        ([Photo("a", size=9), Photo("b", taken=True)], "b", "has the camera's date"),
        ([Photo("a (1).jpg"), Photo("a-copy 2"), Photo("a_edited"), Photo("b.jpg")], "b.jpg", "name of an original"),
        ([Photo("a", sharpness=8.1), Photo("b", sharpness=10)], "a", "all are equal"),
    ],
)  # fmt: skip
def test_the_best_copy_is_proposed_and_why(photos, keeper, reason):
    assert _propose_keeper(photos) == (keeper, reason)


def test_what_was_read_and_compared_is_not_again(store, tmp_path, monkeypatch):
    read, compared = [], []
    real_read, real_compare = copies._read_small, copies._candidates
    monkeypatch.setattr(copies, "_AT_ONCE", 1)
    monkeypatch.setattr(copies, "_read_small", lambda path, state: read.append(path) or real_read(path, state))
    monkeypatch.setattr(copies, "_candidates", lambda a, b: compared.append(len(a)) or real_compare(a, b))
    with pytest.raises(KeyboardInterrupt):
        find_duplicates(store, progress=lambda stage: interrupt_at(2))
    assert groups(store) == [("a.png", COPIES)]
    assert len(read) == 4, "two of them before the job was killed"
    for name, counts in {None: (0, 0), "z.png": (1, 1), "a.png": (1, 3), "mirrored.png": (1, 2)}.items():
        read.clear()
        compared.clear()
        if name:  # of a group all are compared again, as it may have joined the others
            photograph(2).save(tmp_path / "photos" / name)
        groups(store)
        assert (len(read), sum(compared)) == counts, name
    assert groups(store) == [("a.png", ["a.png", "mirrored.png", "z.png"])]


def test_what_is_decided_is_not_asked_again_until_another_joins(store, tmp_path):
    decisions.decide(store, "different", ["a.png", "sub/half.png"])
    assert groups(store) == [("a.png", ["a.png", "mirrored.png"])]
    decisions.decide(store, "keep", ["a.png", "mirrored.png"])
    with ch.open_store(tmp_path / "store") as again:
        assert groups(again) == []
    photograph(0).save(tmp_path / "photos" / "z.png")
    assert groups(store) == [("a.png", ["a.png", "mirrored.png", "z.png"])]
    assert [decisions.undo(store).kind for _ in range(2)] == ["keep", "different"]
    assert groups(store) == [("a.png", [*COPIES, "z.png"])]
    assert decisions.undo(store) is None
    check_refusal("no item has the id 'b'", decisions.decide, store, "keep", ["a.png", "b"])


def test_a_killed_move_is_taken_back_whole(store, tmp_path, monkeypatch):
    before, files = store.get(COPIES), {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    rest, target = {"a.png": COPIES[1:]}, tmp_path / "moved"
    assert list(decisions.move_rest(store, rest, target).paths) == COPIES[1:]
    assert not target.exists(), "a dry run"
    real, moves = decisions._move, []

    def killed(path, to):
        if moves:
            to.parent.mkdir()
            to.touch()
            raise KeyboardInterrupt
        moves.append(real(path, to))

    monkeypatch.setattr(decisions, "_move", killed)
    with pytest.raises(KeyboardInterrupt):
        decisions.move_rest(store, rest, target, dry_run=False)
    assert (target / "mirrored.png").exists()
    monkeypatch.setattr(decisions, "_move", real)
    assert sorted(decisions.undo(store).paths) == COPIES[1:]
    decisions.move_rest(store, rest, target, dry_run=False)
    assert (store.ids(), (target / "sub" / "half.png").exists()) == (["a.png", "z.png"], True)
    decisions.undo(store)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == files
    for old, new in zip(before, store.get(COPIES), strict=True):
        assert (old.metadata, *map(bytes, old.codes.values())) == (new.metadata, *map(bytes, new.codes.values()))
        assert np.array_equal(old.projections["image"], new.projections["image"])


def test_what_cannot_be_moved_stays_with_a_line(store, tmp_path):
    home, target = tmp_path / "photos", tmp_path / "moved"
    check_refusal("lies in", decisions.move_rest, store, {"a.png": COPIES[1:]}, home / "moved")
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "half.png").write_text("another")
    (home / "mirrored.png").unlink()
    moved = decisions.move_rest(store, {"a.png": [*COPIES[1:], "z.png"]}, target, dry_run=False)
    assert [line.split(":")[0] for line in moved.problems] == [*COPIES[1:], "z.png"]
    assert moved.paths == {}
    assert (target / "sub" / "half.png").read_text() == "another"
    (target / "sub" / "half.png").unlink()
    decisions.move_rest(store, {"a.png": ["sub/half.png"]}, target, dry_run=False)
    (home / "sub" / "half.png").write_text("again")
    assert "is there again" in decisions.undo(store).problems[0]
    assert len(store) == 3
    (tmp_path / "store" / "duplicates.sqlite").write_bytes(b"damaged" * 999)
    check_refusal("remove it", find_duplicates, store)
