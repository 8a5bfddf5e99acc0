"""What a store of photographs was made of, kept with it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from channelhash.errors import InputError
from channelhash.indexing.source import PhotoSource, read_photo_source, write_photo_source
from channelhash.search.local.check import backup_store


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    (folder / ".channelhash").mkdir(parents=True)
    (folder / "captions.csv").touch()
    return folder


def test_folder_and_store_move_together(photos, tmp_path):
    write_photo_source(
        photos / ".channelhash", PhotoSource(photos, photos / "captions.csv", exclude=("*.png", "raw/*"))
    )
    moved = tmp_path / "disk" / "pictures"
    shutil.move(photos, moved)
    source = read_photo_source(moved / ".channelhash")
    assert source == PhotoSource(moved, moved / "captions.csv", ("*.png", "raw/*"))


def test_a_store_elsewhere_names_the_folder_absolutely(photos, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    write_photo_source(Path("elsewhere"), PhotoSource(Path("photos")))
    shutil.move("elsewhere", "moved")
    assert read_photo_source(Path("moved")) == PhotoSource(photos)


def test_other_stores_have_none(tmp_path):
    assert read_photo_source(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"folder": "/a", "checksum": "0"}'])
def test_a_damaged_one_is_one_line(photos, content):
    write_photo_source(photos / ".channelhash", PhotoSource(photos))
    (photos / ".channelhash" / "source.json").write_text(content)
    with pytest.raises(InputError, match=r"source\.json: is damaged; remove it, and name folder"):
        read_photo_source(photos / ".channelhash")


def test_a_backup_has_it_too(photos, tmp_path):
    place = photos / ".channelhash"
    write_photo_source(place, PhotoSource(photos))  # before the store has its first items
    store = ch.open_store(place, n_bits=8)
    store.add(["a.jpg"], np.array([[7]], np.uint8))
    store.close()
    backup_store(place, tmp_path / "copy")
    assert (tmp_path / "copy" / "source.json").read_text() == (place / "source.json").read_text()
