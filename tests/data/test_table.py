"""A person's own table in every format, and every way it can be wrong."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from channelhash.data.table import load_table
from channelhash.errors import InputError

ROWS = [
    {"id": "a", "image": "a.jpg", "text": "A dog, running", "labels": "dog;grass"},
    {"id": "b", "image": "b.jpg", "text": "Café\nby night", "labels": "night"},
    {"id": "c", "image": "c.jpg", "text": "nothing", "labels": ""},
]


@pytest.fixture
def root(tmp_path):
    for row in ROWS:
        Image.new("RGB", (8, 8)).save(tmp_path / row["image"])
    return tmp_path


def write(root, rows, ending="csv"):
    path = root / f"items.{ending}"
    if ending in ("csv", "tsv"):
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if ending == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_records(root, ending):
    records = load_table(write(root, ROWS, ending))
    assert records.ids == ("a", "b", "c")
    assert records.items["text"] == tuple(row["text"] for row in ROWS)
    assert records.items["image"] == tuple(root / row["image"] for row in ROWS)
    assert records.label_names == ("dog", "grass", "night")
    assert records.labels.tolist() == [[True, True, False], [False, False, True], [False, False, False]]


def test_label_lists_label_columns_and_other_names(root):
    listed = [{**row, "labels": [x for x in row["labels"].split(";") if x]} for row in ROWS]
    assert load_table(write(root, listed, "jsonl")).labels.sum() == 3
    wide = [{"key": r["id"], "words": r["text"], "dog": "1" if "dog" in r["labels"] else "0", "cat": 0} for r in ROWS]
    records = load_table(write(root, wide), id_column="key", text_column="words", label_columns=["dog", "cat"])
    assert list(records.items) == ["text"]
    assert records.label_names == ("dog", "cat")
    assert records.labels.tolist() == [[True, False], [False, False], [False, False]]


def test_a_byte_order_mark_and_windows_lines_are_read(root):
    path = root / "items.csv"
    path.write_bytes(b"\xef\xbb\xbfid,text,labels\r\n1,hello,x\r\n")
    assert load_table(path).ids == ("1",)


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(lambda text: text.strip())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT, min_size=1, max_size=5), st.sampled_from(["csv", "tsv", "jsonl", "parquet"]))
def test_any_text_comes_through(tmp_path, texts, ending):
    rows = [{"id": str(i), "text": text, "labels": "x"} for i, text in enumerate(texts)]
    assert load_table(write(tmp_path, rows, ending)).items["text"] == tuple(texts)


BAD_ROWS = {
    "duplicate id": ({"id": "a"}, "the id 'a' is already that of line 2"),
    "no id": ({"id": " "}, "has no id"),
    "empty text": ({"text": " "}, "the column 'text' is empty"),
    "missing picture": ({"image": "gone.jpg"}, "no such picture"),
    "unreadable picture": ({"image": "bad.jpg"}, "unreadable picture"),
    "unknown label": ({"labels": "dgo"}, "unknown label 'dgo'; did you mean 'dog'?"),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_is_named_and_can_be_left_out(root, reason):
    change, says = BAD_ROWS[reason]
    (root / "bad.jpg").write_bytes(b"\xff\xd8 broken")
    bad = {"id": "d", "image": "c.jpg", "text": "words", "labels": "dog", **change}
    path = write(root, [ROWS[0], bad, ROWS[2]])
    options = {"label_names": ["dog", "grass", "night"], "verify_images": True}
    with pytest.raises(InputError) as caught:
        load_table(path, **options)
    assert str(caught.value).startswith(f"{path}, line 3")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    records = load_table(path, skip_bad=True, **options)
    assert records.ids == ("a", "c")
    assert records.removed == {reason: 1}
    assert says in records.problems[0]
    assert records.found == 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.csv", b"id,text,labels\n", "the table has no rows"),
        ("x.csv", b"", "the table has no rows"),
        ("x.csv", b"id,txet,labels\n1,a,b\n", "unknown column 'image' asked for"),
        ("x.csv", b"idd,text,labels\n1,a,b\n", "unknown column 'id' asked for; did you mean 'idd'?"),
        ("x.csv", b"id,text,labels\n1,a\n", "line 2: 2 cells, but the header has 3"),
        ("x.csv", b"id,text,labels\n1,\xff\xfe,b\n", "not UTF-8 text (byte 17)"),
        ("x.jsonl", b'{"id": 1}\n{"id": \n', "line 2: not JSON"),
        ("x.jsonl", b"[1]\n", "line 1: not a JSON object"),
        ("x.parquet", b"PAR1 truncated", "not a readable Parquet file, perhaps truncated"),
        ("x.xlsx", b"", "a table ends in .csv, .tsv, .jsonl, .parquet"),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_table(path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_missing_file_and_a_table_without_usable_rows_are_named(root):
    with pytest.raises(InputError, match="no such table"):
        load_table(root / "nothing.csv")
    path = write(root, [{**ROWS[0], "text": ""}])
    with pytest.raises(InputError, match="no usable row is left of 1"):
        load_table(path, skip_bad=True)
