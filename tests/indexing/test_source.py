"""What is read from folders and tables before anything is encoded."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.errors import InputError
from channelhash.indexing.source import read_source
from picture_runs import write_pictures
from small_runs import feature_config, write_features
from small_stores import picture_folder


def test_a_folder_is_read_at_any_depth_without_what_is_hidden(tmp_path):
    folder = picture_folder(tmp_path / "photos", 4)
    for hidden in (".trash/x.png", "deep/._1.png"):
        (folder / hidden).parent.mkdir(exist_ok=True)
        (folder / hidden).write_bytes(b"no picture")
    (folder / "notes.txt").write_text("no picture either")
    (folder / "5.JPG").write_bytes(b"")
    source = read_source(folder)
    assert source.records.ids == ("0.png", "2.png", "5.JPG", "deep/er/1.png", "deep/er/3.png")
    assert source.metadata[3] == {"image": str(folder / "deep/er/1.png")}


def test_a_table_brings_its_further_columns_as_metadata(tmp_path):
    write_pictures(tmp_path, 4)
    table = tmp_path / "more.csv"
    table.write_text(
        "id,image,text,labels,year,price,code,place\n"
        "a,images/0.png,one,x;y,2019,1.5,007,Rome\n"
        "b,images/1.png,two,,2020,2,012,\n"
        "c,images/gone.png,three,x,2021,3,013,Bonn\n"
        "a,images/2.png,twice,x,1,1,014,Nowhere\n"
    )
    source = read_source(table)
    assert source.records.ids == ("a", "b")
    assert source.metadata == [
        {"text": "one", "image": str(tmp_path / "images/0.png"), "labels": ["x", "y"],
         "year": 2019, "price": 1.5, "code": "007", "place": "Rome"},
        {"text": "two", "image": str(tmp_path / "images/1.png"), "labels": [],
         "year": 2020, "price": 2.0, "code": "012", "place": None},
    ]  # fmt: skip
    assert isinstance(source.metadata[0]["year"], int)
    assert len(source.records.problems) == 2


def test_typed_tables_keep_their_types(tmp_path):
    rows = {"id": ["a", "b"], "text": ["one", "two"], "year": [2019, None], "tags": [["x"], []], "new": [True, False]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({name: values[i] for name, values in rows.items()}) + "\n" for i in range(2))
    )
    expected = [
        {"text": "one", "year": 2019, "tags": ["x"], "new": True},
        {"text": "two", "year": None, "tags": [], "new": False},
    ]
    for name in ("t.parquet", "t.jsonl"):
        assert read_source(tmp_path / name).metadata == expected


def test_features_and_configurations_are_sources(tmp_path):
    features = write_features(tmp_path / "f.npz", 20)
    config = feature_config(tmp_path / "c.yaml", features)
    for path in (features, config):
        source = read_source(path)
        assert len(source.records) == 20
        assert set(source.metadata[0]) == {"labels"}
        np.testing.assert_array_equal(source.records.items["image"], np.load(features)["image"])


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no table")
    for path, root, says in (
        (tmp_path / "gone", None, "no such folder or file"),
        (tmp_path / "empty", None, "no pictures in this folder or below it"),
        (tmp_path / "empty", tmp_path, "--root: goes with a table"),
        (tmp_path / "notes.txt", None, "a table ends in"),
    ):
        with pytest.raises(InputError, match=says):
            read_source(path, root)
