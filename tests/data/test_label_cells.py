"""Labels in the notations that people and programs write: read where there is one meaning, doubted where not."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.data.coco import load_coco
from channelhash.data.collection import DataSource
from channelhash.data.describe import describe
from channelhash.data.features import load_features
from channelhash.data.label_cells import label_doubts, split_labels
from channelhash.data.table import load_table
from channelhash.errors import InputError

SETS = [["ant"], ["ant", "bee"], ["bee"], ["cow"], ["cow", "ant"], ["elk"]]
COMPOSED, APART = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"


def doubts(cells, separator=";"):
    return label_doubts([split_labels(cell, separator) for cell in cells], separator, "t.csv")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("['ant', 'bee']", ["ant", "bee"]),
        ('["ant", "bee"]', ["ant", "bee"]),
        ("['ant' 'bee']", ["ant", "bee"]),
        ("['ant'\n 'bee' ]", ["ant", "bee"]),
        ("('ant',)", ["ant"]),
        ("{'ant', 'bee'}", ["ant", "bee"]),
        ("[]", []),
        ("[3, 12]", ["3", "12"]),
        ("['ant', nan, None]", ["ant"]),
        ('["caf\\u00e9", null]', [COMPOSED]),
        ("""["d'or", 'a\\'b', "x;y"]""", ["d'or", "a'b", "x;y"]),
        (" ant ;bee; ", ["ant", "bee"]),
        (APART, [COMPOSED]),
        ("[unsure]", ["[unsure]"]),
        ('["\\ud800"]', ['["\\ud800"]']),
    ],
)
def test_lists_in_print_are_lists(cell, labels):
    assert split_labels(cell) == labels
    assert split_labels(cell, ",") == labels or "," not in cell or cell[0] not in "[({"


@pytest.mark.parametrize("sign", [", ", ",", "|", " | ", " ", "#", "\t", "\n"])
def test_a_separator_that_was_not_set_is_doubted(sign):
    (line,) = doubts([sign.join(labels) for labels in SETS])
    assert "t.csv holds 'ant" in line
    setting = line.partition("label_separator=")[2]
    assert json.loads(setting.replace("'", '"')) == (sign.strip() or sign)
    prefixes = [sign.join(["ant", "bee", "cow"][: n % 3 + 1]) for n in range(9)]
    assert len(doubts(prefixes)) == 1
    assert len(doubts([sign.join(pair) for pair in (("ant", "bee"), ("bee", "cow"), ("cow", "ant"))])) == 1


def test_semicolons_are_doubted_where_another_sign_was_set():
    assert "label_separator=';'" in doubts([";".join(labels) for labels in SETS], ",")[0]
    assert doubts([";".join(labels) for labels in SETS]) == []
    assert doubts(["ant;", "bee;", " ant ; bee ;"]) == []
    assert "label_separator='|'" in doubts(["ant|", "bee|"])[0]


@pytest.mark.parametrize(
    "cells",
    [
        ["0 1 0 1", "1 0 0 0"],
        ["[0, 1, 0]", "[1, 1, 0]"],
        ["[0. 1. 0.]", "[1. 0. 0.]"],
        ["0;1;0", "1;0;0"],
        ["0,1,0", "1,0,0"],
        ["0101", "1000"],
        [[0, 1, 0], [1, 0, 0]],
    ],
    ids=str,
)
def test_vectors_of_zeros_and_ones_are_doubted(cells):
    (line,) = doubts(cells)
    assert "label_columns" in line


@pytest.mark.parametrize("word", ["nan", "None", "N/A", "null"])
def test_a_word_for_nothing_is_doubted(word):
    (line,) = doubts(["ant", word, "bee"])
    assert f"{word!r}" in line
    assert "leave these cells empty" in line


def test_a_list_that_cannot_be_read_is_doubted():
    assert "in quotes" in doubts(["[ant, bee]", "[bee]"])[0]
    assert "in quotes" in doubts(["{'ant': 1}", "bee"])[0]


@pytest.mark.parametrize(
    "cells",
    [
        ["new york, ny", "san diego, ca", "los angeles, ca", "san jose, ca", "portland, or", "portland, me", "portland"
         ],
        ["paris", "paris, texas", "paris, france", "london", "london, ontario", "london, england"],
        ["stop sign", "traffic light", "hot dog", "dog", "teddy bear", "bear", "baseball bat", "baseball glove"],
        [f"{a}, {b}" for a in ("smith", "jones", "lee") for b in ("anna", "john", "mary", "tom")],
        [f"{a} {b}" for a in ("red", "blue", "old") for b in ("car", "bus", "tram", "bike")],
        ["dog, cat"] * 5,
        ["0", "1"],
        ["1", "2", "10", "11"],
        ["tench, Tinca tinca", "goldfish, Carassius auratus", "bird"],
        [f"{a}/{b}" for a in ("animal", "plant") for b in ("a", "b", "c")] + ["animal", "plant"],
        [],
        [""],
    ],
    ids=lambda cells: " ".join(cells)[:20],
)  # fmt: skip
def test_honest_labels_are_not_doubted(cells):
    assert doubts(cells) == []


def write_table(path, cells):
    rows = "".join(f'{n},text {n},"{cell}"\n' for n, cell in enumerate(cells))
    path.write_text(f"id,text,labels\n{rows}", encoding="utf-8")
    return path


def test_a_doubt_is_a_problem_of_the_collection(tmp_path):
    path = write_table(tmp_path / "t.csv", [",".join(labels) for labels in SETS])
    (line,) = load_table(path).problems
    assert line.startswith(f"{path}: the column 'labels' holds 'ant,bee'")
    assert describe(load_table(path))["problems"][0] == line
    assert load_table(path, label_separator=",").problems == ()


def test_a_tab_may_be_spelt_with_a_backslash(tmp_path):
    path = write_table(tmp_path / "t.csv", ["ant\tbee", "bee"])
    assert load_table(path, label_separator="\\t").label_names == ("ant", "bee")


def test_two_normal_forms_are_one_label(tmp_path):
    path = write_table(tmp_path / "t.csv", [COMPOSED, APART, f"{APART} ; ant"])
    records = load_table(path)
    assert (sorted(records.label_names), records.labels.sum()) == (["ant", COMPOSED], 4)
    assert len(DataSource("table", {"path": path}, only_labels=[APART]).load()) == 3
    columns = tmp_path / "c.csv"
    columns.write_text(f"id,text,{APART}\na,x,1\n", encoding="utf-8")
    assert load_table(columns, label_columns=[APART]).label_names == (COMPOSED,)
    pq.write_table(
        pa.table({"id": ["a", "b"], "text": ["x", "y"], "labels": [[COMPOSED], [APART]]}), tmp_path / "p.parquet"
    )
    assert load_table(tmp_path / "p.parquet").label_names == (COMPOSED,)
    np.savez(tmp_path / "f.npz", text=np.ones((2, 2)), labels=np.eye(2), label_names=np.array([COMPOSED, APART]))
    with pytest.raises(InputError, match="several label_names are"):
        load_features(tmp_path / "f.npz")
    (tmp_path / "1.jpg").write_bytes(b"1")
    coco = {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "category_id": 2}]}
    coco["categories"] = [{"id": 1, "name": COMPOSED}, {"id": 2, "name": f"{APART} "}]
    (tmp_path / "i.json").write_text(json.dumps(coco))
    assert load_coco(tmp_path / "i.json").label_names == (COMPOSED,)


def test_labels_that_differ_in_capitals_alone_are_doubted(tmp_path):
    path = write_table(tmp_path / "t.csv", ["Stop sign", "stop  sign", "bee"])
    assert describe(load_table(path))["problems"] == [
        "labels 'Stop sign' and 'stop  sign' differ in capitals or blanks only; write one label one way"
    ]
