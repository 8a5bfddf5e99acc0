"""Sidecars of pictures that are moved and moved back: they go along, another's stay, nothing is
written over, and a killed move loses none.
"""

import numpy as np
import pytest

import channelhash as ch
from channelhash.duplicates import move_rest, moves, undo_last
from channelhash.utils.seeds import generator
from picture_runs import photograph


def open_album(folder, names):
    """Make a store of equal pictures in a folder."""
    for name in names:
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(0).save(path, "PNG")
    store = ch.open_store(folder / "store", n_bits=8)
    metadata = [{"image": str(folder / "photos" / name)} for name in names]
    store.add(names, {"image": np.zeros((len(names), 1), np.uint8)}, metadata=metadata)
    return store


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


SIDECARS = {
    "IMG_1.jpg.xmp": True,
    "IMG_1.jpg.XMP": True,
    "IMG_1.xmp": True,
    "IMG_1.AAE": True,
    "IMG_1.jpg.json": True,
    "IMG_1.jpg.supplemental-metadata.json": True,
    "IMG_1.jpg.pp3": True,
    "IMG_10.xmp": False,
    "IMG_10.jpg.xmp": False,
    "IMG_1 (1).xmp": False,
    "IMG_1.json": False,
    "IMG_1.jpg.txt": False,
    "img_1.jpg.xmp": False,
}


@pytest.mark.parametrize("seed", range(5))
def test_sidecars_go_and_come_back_with_their_picture_alone(seed, tmp_path):
    draw = generator(0, "sidecars", seed)
    chosen = [name for name in SIDECARS if draw.integers(0, 2)] or ["IMG_1.xmp"]
    store = open_album(tmp_path, ["a.jpg", "sub/IMG_1.jpg"])
    photos, moved = tmp_path / "photos", tmp_path / "moved"
    for name in chosen:
        (photos / "sub" / name).write_text(name)
    before = contents(photos)
    move_rest(store, {"a.jpg": ["sub/IMG_1.jpg"]}, moved, dry_run=False)
    expected = {"sub/IMG_1.jpg", *(f"sub/{name}" for name in chosen if SIDECARS[name])}
    assert contents(moved).keys() == expected
    assert contents(photos).keys() == before.keys() - expected
    assert undo_last(store).problems == []
    assert contents(photos) == before
    assert contents(moved) == {}


@pytest.mark.parametrize("other", ["IMG_1.dng", "IMG_1.png", "IMG_1.mov", "IMG_1.HEIC"])
def test_a_sidecar_of_a_file_that_stays_stays(other, tmp_path):
    store = open_album(tmp_path, ["a.jpg", "IMG_1.jpg"])
    photos, moved = tmp_path / "photos", tmp_path / "moved"
    for name in (other, "IMG_1.xmp", "IMG_1.jpg.xmp"):
        (photos / name).write_text(name)
    move_rest(store, {"a.jpg": ["IMG_1.jpg"]}, moved, dry_run=False)
    assert contents(moved).keys() == {"IMG_1.jpg", "IMG_1.jpg.xmp"}


def test_a_sidecar_of_two_pictures_that_both_go_goes_once(tmp_path):
    store = open_album(tmp_path, ["a.jpg", "b.jpg", "b.png"])
    (tmp_path / "photos" / "b.xmp").write_text("both")
    before = contents(tmp_path / "photos")
    groups = {"a.jpg": ["b.jpg", "b.png"]}
    moved = move_rest(store, groups, tmp_path / "moved", dry_run=False)
    assert moved.problems == []
    assert contents(tmp_path / "moved").keys() == {"b.jpg", "b.png", "b.xmp"}
    assert undo_last(store).problems == []
    assert contents(tmp_path / "photos") == before


def test_a_sidecar_is_never_written_over(tmp_path):
    store = open_album(tmp_path, ["a.jpg", "b.jpg"])
    photos, target = tmp_path / "photos", tmp_path / "moved"
    (photos / "b.jpg.xmp").write_text("mine")
    target.mkdir()
    (target / "b.jpg.xmp").write_text("another's")
    moved = move_rest(store, {"a.jpg": ["b.jpg"]}, target, dry_run=False)
    assert moved == ("move", {}, ["b.jpg: stays, moved holds b.jpg.xmp already"])
    assert (photos / "b.jpg").exists()
    (target / "b.jpg.xmp").unlink()
    move_rest(store, {"a.jpg": ["b.jpg"]}, target, dry_run=False)
    (photos / "b.jpg.xmp").write_text("new")
    assert "b.jpg.xmp is there again" in undo_last(store).problems[0]
    assert (photos / "b.jpg.xmp").read_text() == "new"
    assert (target / "b.jpg.xmp").read_text() == "mine"
    assert "b.jpg" in store


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_move_that_ends_between_two_files_loses_none(error, after, tmp_path, monkeypatch):
    store = open_album(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    photos, real, done = tmp_path / "photos", moves._move, []
    for name in ("b.jpg.xmp", "c.xmp"):
        (photos / name).write_text(name)
    before = contents(photos)

    def end(path, target):
        if len(done) == after:
            done.append(None)
            raise error
        done.append(real(path, target))

    monkeypatch.setattr(moves, "_move", end)
    groups = {"a.jpg": ["b.jpg", "c.jpg"]}
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            move_rest(store, groups, tmp_path / "moved", dry_run=False)
    else:
        moved = move_rest(store, groups, tmp_path / "moved", dry_run=False)
        stays = "b.jpg" if after < 2 else "c.jpg"
        assert (list(moved.paths), moved.problems[0][:12]) == (
            [name for name in ("b.jpg", "c.jpg") if name != stays],
            f"{stays}: stays",
        )
        assert (photos / stays).exists()
    assert contents(tmp_path / "moved") | contents(photos) == before
    monkeypatch.setattr(moves, "_move", real)
    undo_last(store)
    assert contents(photos) == before
    assert store.ids() == ["a.jpg", "b.jpg", "c.jpg"]
