"""A folder of photographs stands for its store."""

import os
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from channelhash.search import choose_place, find_or_keep, find_store, kind_of
from refusals import check_refusal


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache" / "channelhash"))
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").touch()
    return folder


def test_the_store_in_the_folder_is_opened_by_its_name(photos):
    assert kind_of(photos) == "folder"
    assert find_store(photos) is None
    assert find_or_keep(photos) == photos
    with ch.open_store(choose_place(photos), n_bits=8) as store:
        store.add(["a.jpg"], np.array([[7]], np.uint8))
    assert find_store(photos) == photos / ".channelhash"
    assert ch.open_store(photos).ids() == ["a.jpg"]


def test_where_nothing_can_be_written_one_line_says_what_to_do(photos, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check_refusal("no store can be made", choose_place, photos)


OURS = {
    "store.json": '{"format": "channelhash store 3", "n_bits": 8}',
    "config.yaml": "data:\n  kind: table\nloss:\n  name: dsch\nmodel:\n  name: small\ntrain:\n  epochs: 1\n",
    "config.json": '{"name": "small", "n_bits": 8, "architecture": {}}',
    os.path.join("model", "config.json"): '{"name": "small", "n_bits": 8, "architecture": {}}',
}


@pytest.mark.parametrize("own", OURS)
def test_stores_runs_and_models_are_no_plain_folders_and_those_of_other_programs_are(photos, own):
    (photos / own).parent.mkdir(exist_ok=True)
    (photos / own).write_text(OURS[own])
    assert kind_of(photos) != "folder"
    for content in ("", '{"name": "gallery", "format": "store"}', "data: here\nmodel: Canon\n"):
        (photos / own).write_text(content)
        assert kind_of(photos) == "folder"
