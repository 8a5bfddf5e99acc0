"""What is read from folders and tables before anything is encoded, and what a store keeps of it."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.photos.source import PhotoSource, Source
from picture_runs import write_pictures
from refusals import check_refusal
from small_runs import feature_config, write_features


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
    source = Source.read(table)
    assert source.records.ids == ("a", "b")
    assert source.metadata == [
        {"text": "one", "image": str(tmp_path / "images/0.png"), "labels": ["x", "y"],
         "year": 2019, "price": 1.5, "code": "007", "place": "Rome"},
        {"text": "two", "image": str(tmp_path / "images/1.png"), "labels": [],
         "year": 2020, "price": 2.0, "code": "012", "place": None},
    ]  # fmt: skip
    assert isinstance(source.metadata[0]["year"], int)
    assert len(source.records.problems) == 2


def test_features_and_configurations_are_sources(tmp_path):
    features = write_features(tmp_path / "f.npz", 20)
    config = feature_config(tmp_path / "c.yaml", features)
    for path in (features, config):
        source = Source.read(path)
        assert len(source.records) == 20
        assert set(source.metadata[0]) == {"labels"}
        np.testing.assert_array_equal(source.records.items["image"], np.load(features)["image"])


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no table")
    for path, root, says in (
        (tmp_path / "gone", None, "no such folder"),
        (tmp_path / "empty", None, "no pictures in this folder or below it"),
        (tmp_path / "empty", tmp_path, "--root: goes with a table"),
        (tmp_path / "notes.txt", None, "a table ends in"),
    ):
        check_refusal(says, Source.read, path, root)


def source_of(path, **columns):
    """The source that a table of so many rows is, as its ending says."""
    n = len(next(iter(columns.values())))
    ids, text = [f"i{row}" for row in range(n)], ["red"] * n
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, "text": text, **columns}), path)
    elif path.suffix == ".jsonl":
        rows = zip(ids, *columns.values(), strict=True)
        lines = [json.dumps(dict(zip(("id", *columns), row, strict=True), text="red")) for row in rows]
        path.write_text("\n".join(lines))
    else:
        rows = [",".join(row) for row in zip(ids, text, *columns.values(), strict=True)]
        path.write_text("\n".join([",".join(("id", "text", *columns)), *rows]))
    return Source.read(path)


def values_of(source, column):
    return [row.get(column) for row in source.metadata]


@pytest.mark.parametrize(("cells", "expected"), [
    (["1294030472427835393", "-1", ""], [1294030472427835393, -1, None]),
    (["12345678901234567890", "7"], ["12345678901234567890", 7]),
    (["9" * 5000, "7"], ["9" * 5000, 7]),
    (["1.5", "1294030472427835393", "1e-3"], [1.5, 1294030472427835393, 0.001]),
    (["x" * 140_000], ["x" * 140_000]),
    *(
        ([text, "7"], [text, "7"])
        for text in ("00123", "+5", "1_000", " 7", "0x10", "true", "NaN", "inf", "1e999", "x")
    ),
])  # fmt: skip
def test_numbers_in_csv_are_those_that_json_writes(tmp_path, cells, expected):
    values = values_of(source_of(tmp_path / "t.csv", v=cells), "v")
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_texts_of_typed_tables_are_no_numbers(tmp_path, ending):
    long = pa.array([2**63, 1], pa.uint64()) if ending == "parquet" else [2**63, 1]
    source = source_of(tmp_path / f"t.{ending}", v=["1", "2"], n=long, f=[1.5, float("nan")])
    assert (values_of(source, "v"), values_of(source, "n")) == (["1", "2"], [str(2**63), 1])
    assert values_of(source, "f") == [1.5, None]


def test_decimals_are_numbers_and_lists_are_texts(tmp_path):
    lists = [[1.0, None, float("nan")], []]
    source = source_of(tmp_path / "t.parquet", price=[Decimal("1.50"), Decimal(12)], seen=lists)
    assert values_of(source, "price") == [1.5, 12]
    assert values_of(source, "seen") == [["1"], []]


@pytest.mark.parametrize(("ending", "place", "bad"), [
    ("csv", "line 3", "x\0y"),
    ("jsonl", "line 2", "x\0y"),
    ("jsonl", "line 2", {"a": 1}),
    ("jsonl", "line 2", [["x"]]),
    ("parquet", "row 2", "x\0y"),
])  # fmt: skip
def test_one_value_that_no_store_can_hold_costs_its_row(tmp_path, ending, place, bad):
    path = tmp_path / f"t.{ending}"
    source = source_of(path, v=["a", bad, "c"])
    assert (source.records.ids, values_of(source, "v")) == (("i0", "i2"), ["a", "c"])
    (line,) = source.records.problems
    assert line.startswith(f"{path}, {place} (id i1): the column 'v' holds ")
    assert source.records.removed == {"value that cannot be stored": 1}


@pytest.mark.parametrize("column", [
    pa.array([b"\1", b"\2"]),
    pa.array([b"\1", b"\2"]).dictionary_encode(),
    pa.array([{"a": 1}, {"a": 2}]),
    pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([[["a"]], [["b"]]]),
], ids=lambda column: str(column.type))  # fmt: skip
def test_a_column_without_any_value_for_a_store_is_left_out(tmp_path, column):
    source = source_of(tmp_path / "t.parquet", v=column, year=[2019, 2020])
    assert source.metadata == [{"text": "red", "year": 2019}, {"text": "red", "year": 2020}]
    (line,) = source.records.problems
    assert line.startswith(f"{tmp_path / 't.parquet'}: the column 'v' is left out: its row 1 holds ")


@pytest.mark.parametrize(
    ("header", "place"),
    [(",id,text,year", 1), ("id,text,year,,", 4), ('id,text,year,"size """', 4), ("id,text,label,year", 3)],
)
def test_a_column_without_a_usable_name_is_left_out(tmp_path, header, place):
    names = header.split(",")
    cells = {"id": "a", "text": "red", "year": "2019"}
    (tmp_path / "t.csv").write_text(header + "\n" + ",".join(cells.get(name, "0") for name in names) + "\n")
    source = Source.read(tmp_path / "t.csv")
    assert source.metadata == [{"text": "red", "year": 2019}]
    assert source.records.problems[0].startswith(f"{tmp_path / 't.csv'}: column {place} is left out: ")


def test_a_repeated_id_whose_first_row_is_bad_has_the_values_of_its_own_row(tmp_path):
    (tmp_path / "t.csv").write_text("id,text,year\na,,2019\na,red,2020\na,blue,2021\n")
    assert Source.read(tmp_path / "t.csv").metadata == [{"text": "red", "year": 2020}]


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    (folder / ".channelhash").mkdir(parents=True)
    (folder / "captions.csv").touch()
    return folder


def test_folder_and_store_move_together(photos, tmp_path):
    PhotoSource(photos, photos / "captions.csv", exclude=("*.png", "raw/*")).write(photos / ".channelhash")
    moved = shutil.move(photos, tmp_path / "disk" / "pictures")
    source = PhotoSource.read(moved / ".channelhash")
    assert source == PhotoSource(moved, moved / "captions.csv", ("*.png", "raw/*"))


def test_a_store_elsewhere_names_the_folder_absolutely(photos, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    PhotoSource(Path("photos")).write(Path("elsewhere"))
    shutil.move("elsewhere", "moved")
    assert PhotoSource.read(Path("moved")) == PhotoSource(photos)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"folder": "/a", "checksum": "0"}'])
def test_a_damaged_one_is_one_line(photos, content):
    PhotoSource(photos).write(photos / ".channelhash")
    (photos / ".channelhash" / "source.json").write_text(content)
    check_refusal(r"source\.json: is damaged; remove it, and name folder", PhotoSource.read, photos / ".channelhash")
