"""A person's own table in every format, and every way it can be wrong."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from channelhash.config import make_config
from channelhash.data.cells import label_doubts, split_labels, text_of
from channelhash.data.coco import load_coco
from channelhash.data.collection import DataSource, describe
from channelhash.data.features import load_features
from channelhash.data.table import load_table
from data.test_bulk import labels_of
from refusals import check_refusal, refusal

ENDINGS = ["csv", "tsv", "jsonl", "parquet"]
ROWS = [
    {"id": "a", "image": "a.jpg", "text": "A dog, running", "labels": "dog;grass"},
    {"id": "b", "image": "b.jpg", "text": "Café\nby night", "labels": "night"},
    {"id": "c", "image": "c.jpg", "text": "nothing", "labels": ""},
]
LEAVE_OUT = "; mend the row, or leave such rows out with skip_bad"


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
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_records_and_those_of_other_columns(root, ending):
    records = load_table(write(root, ROWS, ending))
    assert records.ids == ("a", "b", "c")
    assert records.items["text"] == tuple(row["text"] for row in ROWS)
    assert records.items["image"] == tuple(root / row["image"] for row in ROWS)
    assert records.removed == {}
    assert records.problems == ()
    assert records.found == 3
    rows = [
        {"key": row["id"], "words": row["text"], "dog": "dog" in row["labels"], "cat": 0}
        for row in ROWS
    ]
    records = load_table(
        write(root, rows, ending),
        id_column="key",
        text_column="words",
        label_columns=["dog", "cat"],
    )
    assert list(records.items) == ["text"]
    assert records.label_names == ("dog", "cat")
    assert records.labels.tolist() == [[True, False], [False, False], [False, False]]


def test_pictures_alone_texts_alone_and_no_labels(root):
    path = write(root, [{"id": row["id"], "image": row["image"]} for row in ROWS])
    for records in (load_table(path), load_table(path, label_columns=[])):
        assert list(records.items) == ["image"]
        assert records.labels.shape == (3, 0)
        assert records.label_names == ()
    says = f"{path}: has no column 'tags', its columns are 'id', 'image'; name one with overrides "
    assert refusal(load_table, path, labels_column="tags") == f"{says}data.labels_column=…"
    path = write(
        root, [{"id": row["id"], "text": row["text"], "labels": row["labels"]} for row in ROWS]
    )
    assert list(load_table(path).items) == ["text"]


def test_pictures_may_lie_below_another_root_or_be_left_unread(root):
    (root / "tables").mkdir()
    path = write(root / "tables", ROWS)  # none of its pictures is here
    assert load_table(path, root).items["image"][0] == root / "a.jpg"
    assert (
        refusal(load_table, path)
        == f"{path}, line 2 (id a): no such picture {root / 'tables' / 'a.jpg'}{LEAVE_OUT}"
    )
    records = load_table(path, image_column=None)
    assert list(records.items) == ["text"]
    assert records.problems == ()
    assert len(records) == 3
    assert "has no column 'image' or 'text'" in refusal(
        load_table, path, image_column=None, text_column=None
    )


@pytest.mark.parametrize("name", ["sub\\a.jpg", "sub/a.JPG", "sub\\a.Jpg"])
def test_image_names_of_other_systems_are_found(tmp_path, name):
    (tmp_path / "sub").mkdir()
    picture = tmp_path / "sub" / ("a.JPG" if name.endswith("Jpg") else "a.jpg")
    Image.new("RGB", (4, 4)).save(picture, "jpeg")
    records = load_table(write(tmp_path, [{"id": "1", "image": name, "labels": "x"}]))
    assert records.items["image"] == (picture,)


def test_a_byte_order_mark_windows_lines_and_quoted_newlines_are_read(tmp_path):
    path = tmp_path / "items.csv"
    path.write_bytes(
        '\ufeffid,text,labels\r\n1,"héllo ""you""\r\nthere",x\r\n\r\n1,again,x\r\n'.encode()
    )
    records = load_table(path, skip_bad=True)
    wide = tmp_path / "wide.csv"
    wide.write_bytes(path.read_bytes().decode("utf-8-sig").encode("utf-16"))
    assert load_table(wide, skip_bad=True).items["text"] == records.items["text"]
    assert records.ids == ("1",)
    assert records.items["text"] == ('héllo "you"\r\nthere',)
    assert records.problems == (f"{path}, line 5 (id 1): the id '1' is already that of line 2",)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "header",
    [
        ("ID", "Image", "Caption", "Tags"),
        (" Id", " file_name ", "TEXT", "Category"),
        ("id", "image", "text", "labels", "caption", "tags", "path"),
    ],
    ids=" ".join,
)
def test_columns_are_found_by_their_usual_names(root, header, ending):
    rows = []
    for row in ROWS:
        others = dict.fromkeys(header[4:], "other")
        rows.append({**dict(zip(header, row.values(), strict=False)), **others})
    own = load_table(write(root, ROWS, ending))
    records = load_table(write(root, rows, ending))
    assert (records.ids, records.items) == (own.ids, own.items)
    assert records.label_names == own.label_names


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("sign", [",", ";", "\t", ", ", "; "])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_cells_are_separated_as_the_header_is(root, ending, sign, encoding):
    lines = ["ID", "Image", "Caption", "Tags"], ["a", "a.jpg", '"Dog, cat; sea"', '"x;y"']
    path = root / f"items.{ending}"
    path.write_text("\n".join(map(sign.join, lines)), encoding=encoding)
    records = load_table(path)
    assert records.items == {"image": (root / "a.jpg",), "text": ("Dog, cat; sea",)}
    assert (records.ids, records.label_names) == (("a",), ("x", "y"))


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
    lambda text: text.strip()
)
LABEL = st.text("abcdé 🙂", min_size=1, max_size=4).map(str.strip).filter(bool)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(TEXT, TEXT, st.sets(LABEL, max_size=3)),
        min_size=1,
        max_size=5,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(ENDINGS),
)
def test_any_table_comes_through(tmp_path, rows, ending):
    path = write(
        tmp_path,
        [{"id": i, "text": text, "labels": ";".join(labels)} for i, text, labels in rows],
        ending,
    )
    records = load_table(path)
    assert records.ids == tuple(i for i, _, _ in rows)
    assert records.items["text"] == tuple(text for _, text, _ in rows)
    assert labels_of(records) == [labels for _, _, labels in rows]


TABLE = "id,image,text,labels\na,a.jpg,A dog,dog\n{}\nc,c.jpg,nothing,\n"
LINES = '{{"id": "a", "text": "A dog", "labels": "dog"}}\n{}\n{{"id": "c", "text": "nothing"}}\n'


@pytest.mark.parametrize(
    ("reason", "content", "row", "says"),
    [
        (
            "duplicate id",
            TABLE,
            "a,c.jpg,words,dog",
            "line 3 (id a): the id 'a' is already that of line 2",
        ),
        ("no id", TABLE, " ,c.jpg,words,dog", "line 3: has no id"),
        ("empty text", TABLE, "d,c.jpg, ,dog", "line 3 (id d): the column 'text' is empty"),
        ("missing picture", TABLE, "d,,words,dog", "line 3 (id d): the column 'image' is empty"),
        (
            "unreadable picture",
            TABLE,
            "d,empty.jpg,words,dog",
            "line 3 (id d): empty picture {root}/empty.jpg",
        ),
        (
            "wrong number of cells",
            TABLE,
            "d,c.jpg,words",
            "line 3: has 3 cells, but the header has 4",
        ),
        (
            "not JSON",
            LINES,
            '{"id": oops}',
            "line 2: is not JSON that can be read (Expecting value: line 1 column 8 (char 7))",
        ),
        ("not JSON", LINES, "[1]", "line 2: is not a JSON object {{…}}"),
        (
            "not a text",
            LINES,
            '{"id": "\\ud83d\\ude42", "text": "\\ud83d", "labels": "dog"}',
            "line 2 (id 🙂): the column 'text' is not UTF-8 text",
        ),
        (
            "not a text",
            LINES,
            '{"id": "d", "text": [["b"]], "labels": "dog"}',
            "line 2 (id d): the column 'text' holds a list, expected a text",
        ),
    ],
)
def test_a_bad_row_is_named_and_can_be_left_out(root, reason, content, row, says):
    (root / "empty.jpg").write_bytes(b"")
    path = root / f"items.{'csv' if content == TABLE else 'jsonl'}"
    path.write_text(content.format(row), encoding="utf-8")
    line = f"{path}, {says.format(root=root)}"
    assert refusal(load_table, path) == line + LEAVE_OUT
    records = load_table(path, skip_bad=True)
    assert records.ids == ("a", "c")
    assert records.removed == {reason: 1}
    assert records.problems == (line,)
    assert records.found == 3


@pytest.mark.parametrize(("ending", "labels"), [
    ("parquet", pa.array([1.0, float("nan"), 2.0, None])),
    ("parquet", pa.array([[1.0, float("nan")], [None], [2.0], None])),
    ("jsonl", [1.0, float("nan"), [2, float("nan")], None]),
])  # fmt: skip
def test_nan_is_no_label_and_a_class_is_a_whole_number(tmp_path, ending, labels):
    path = tmp_path / f"t.{ending}"
    columns = {"id": [1.0, 2.0, 3.0, 4.0], "text": list("abcd"), "labels": labels}
    if ending == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*columns.values(), strict=True)
        path.write_text(
            "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        )
    records = load_table(path)
    assert records.ids == ("1", "2", "3", "4")
    assert records.label_names == ("1", "2")
    assert records.labels.tolist() == [[True, False], [False, False], [False, True], [False, False]]


@pytest.mark.parametrize(
    ("column", "cell", "says"),
    [
        ("id", pa.array([b"a"]), "'id' holds bytes, expected a text"),
        ("text", pa.array([b"a"]), "'text' holds bytes, expected a text"),
        ("text", pa.array([{"a": 1}]), "'text' holds an object, expected a text"),
        ("text", pa.array(["a\0b"]), "'text' holds a NUL; take it out"),
        ("labels", pa.array([[b"a"]]), "'labels' holds bytes, expected a text"),
        ("labels", pa.array([[["a"]]]), "'labels' holds a list, expected a text"),
        ("image", pa.array([b"\x89PNG"]), "'image' holds the picture itself, expected a path"),
        (
            "image",
            pa.array([{"bytes": b"\x89PNG", "path": "a.jpg"}]),
            "'image' holds the picture itself",
        ),
        ("image", pa.array([{"a": 1}]), "'image' holds an object"),
    ],
)
def test_a_cell_of_another_type_is_named(root, column, cell, says):
    columns = {"id": ["a"], "text": ["x"], "image": ["a.jpg"], "labels": ["dog"], column: cell}
    pq.write_table(pa.table(columns), root / "t.parquet")
    message = refusal(load_table, root / "t.parquet").replace(" (id b'a')", "")
    assert f"row 1{'' if column == 'id' else ' (id a)'}: the column {says}" in message


@pytest.mark.parametrize("image", [b"a.jpg", {"bytes": None, "path": "a.jpg"}], ids=str)
def test_paths_of_images_come_in_several_types(root, image):
    pq.write_table(pa.table({"id": ["a"], "image": [image]}), root / "t.parquet")
    assert load_table(root / "t.parquet").items["image"] == (root / "a.jpg",)


@pytest.mark.parametrize("value", ["2", "", "yes"])
def test_a_label_column_holds_0_or_1(tmp_path, value):
    path = write(tmp_path, [{"id": "1", "text": "a", "dog": value}])
    line = f"{path}, line 2 (id 1): the label column 'dog' holds {value!r}, not 0 or 1"
    assert refusal(load_table, path, label_columns=["dog"]) == line + LEAVE_OUT


QUOTES = "a quotation mark is not closed or not doubled"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.csv", b"id,text,labels\n", ": the table has no rows"),
        ("x.csv", b"", ": the table has no rows"),
        (
            "x.csv",
            b"id,txet,labels\n1,a,b\n",
            (
                ": has no column 'image' or 'text', but 'id', 'txet', 'labels'; set image_column "
                "or text_column"
            ),
        ),
        (
            "x.csv",
            b"idd,text,labels\n1,a,b\n",
            (
                ": has no column 'id', its columns are 'idd', 'text', 'labels'; name one with "
                "overrides data.id_column=…"
            ),
        ),
        (
            "x.csv",
            b"id,text,Lables\n1,a,b\n",
            (
                ": has no column 'labels', but 'lables'; name it in labels_column, or say "
                "label_columns=[]"
            ),
        ),
        (
            "x.csv",
            b"id,text,labels,text\n1,a,b,c\n",
            ": has 2 columns 'text'; rename or remove all but one",
        ),
        (
            "x.csv",
            b'id,text,labels\n1,a,b\n2,"a,b\n3,a,b\n',
            f", line 3: {QUOTES} (unexpected end of data); mend it",
        ),
        (
            "x.tsv",
            b'id\ttext\tlabels\n1\t"a" b\tc\n',
            f", line 2: {QUOTES} ('\t' expected after '\"'); mend it",
        ),
        (
            "x.csv",
            b"id,Caption,Description,Tags\n1,a,b,c\n",
            (
                ": has no column 'text', but 'Caption' and 'Description'; name one with overrides "
                "data.text_column=Caption"
            ),
        ),
        (
            "x.csv",
            b"id,text,labels\n1,\xff\xfe,b\n",
            ", line 2: not UTF-8 text; save the file as UTF-8",
        ),
        ("x.jsonl", b"\n[1]\n[2]\n", ", line 2: is not a JSON object {…}; no row can be read"),
        ("x.jsonl", b'{"id": "\xe9"}\n', ", line 1: not UTF-8 text; save the file as UTF-8"),
        (
            "x.txt",
            b"id,text\n1,a\n",
            ": a table ends in .csv, .tsv, .jsonl, .parquet; rename it if its cells are separated "
            "by commas or tabs, or it has one JSON object a line",
        ),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(load_table, path) == f"{path}{says}"


def test_missing_files_tables_without_usable_rows_and_impossible_settings_are_named(root):
    assert refusal(load_table, root / "nothing.csv") == f"{root / 'nothing.csv'}: no such table"
    (root / "folder.csv").mkdir()
    assert (
        refusal(load_table, root / "folder.csv")
        == f"{root / 'folder.csv'}: is a folder, not a table"
    )
    path = write(root, [{**ROWS[0], "text": ""}])
    problem = f"{path}, line 2 (id a): the column 'text' is empty"
    says = (
        f"{path}: no usable row is left of 1: {{'empty text': 1}}; the first problem is {problem}"
    )
    assert refusal(load_table, path, skip_bad=True) == says
    path = write(root, ROWS)
    columns = "its columns are 'id', 'image', 'text', 'labels'; name one with overrides"
    assert (
        refusal(load_table, path, image_column="imgae")
        == f"{path}: has no column 'imgae', {columns} data.image_column=…"
    )
    assert (
        refusal(load_table, path, label_columns=["sea"])
        == f"{path}: has no column 'sea', {columns} data.label_columns=…"
    )
    says = "label_separator: is empty; give the character between two labels"
    assert refusal(load_table, path, label_separator="") == says
    assert (
        refusal(load_table, path, label_columns=["a", "b", "a"])
        == "label_columns: lists 'a' twice; remove one"
    )


def test_damaged_parquet_files_are_refused_and_never_read_in_part(root):
    path = write(root, ROWS, "parquet")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert refusal(load_table, path).startswith(
            f"{path}: not a readable Parquet file, perhaps truncated ("
        )
    middle = len(whole) // 10  # inside the first column's page
    path.write_bytes(whole[:middle] + bytes(40) + whole[middle + 40 :])
    assert refusal(load_table, path).startswith(
        f"{path}: not a readable Parquet file, perhaps truncated ("
    )


def test_only_the_columns_asked_for_are_read_from_parquet(root):
    """A table may carry embeddings of gigabytes beside its texts: a damaged page there does not
    matter.
    """
    rows = [{**row, "zzz": "marker" * 50} for row in ROWS]
    path = root / "items.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    first_page = pq.read_metadata(path).row_group(0).column(len(ROWS[0])).data_page_offset
    path.write_bytes(content[:first_page] + bytes(30) + content[first_page + 30 :])
    with pytest.raises(OSError, match=r".+"):
        pq.read_table(path)
    assert len(load_table(path)) == 3


def test_zeros_are_values_and_a_missing_cell_is_no_label(tmp_path):
    rows = [{"id": 0, "text": 0, "labels": 0}, {"id": 1, "text": 1, "labels": [0, 1]}]
    records = load_table(write(tmp_path, rows, "jsonl"))
    assert records.ids == ("0", "1")
    assert records.items["text"] == ("0", "1")
    assert records.label_names == ("0", "1")
    assert records.labels.tolist() == [[True, False], [True, True]]
    pq.write_table(
        pa.table({"id": ["a", "b"], "text": ["x", "y"], "dog": [1.0, float("nan")]}),
        tmp_path / "t.parquet",
    )
    assert load_table(tmp_path / "t.parquet", label_columns=["dog"]).labels.tolist() == [
        [True],
        [False],
    ]


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
    assert (
        len(doubts([sign.join(pair) for pair in (("ant", "bee"), ("bee", "cow"), ("cow", "ant"))]))
        == 1
    )


def test_semicolons_and_lists_that_cannot_be_read_are_doubted():
    assert "label_separator=';'" in doubts([";".join(labels) for labels in SETS], ",")[0]
    assert doubts([";".join(labels) for labels in SETS]) == []
    assert doubts(["ant;", "bee;", " ant ; bee ;"]) == []
    assert "label_separator=','" in doubts(["car,truck", "bee"])[0]
    assert "label_separator='|'" in doubts(["ant|", "bee|"])[0]
    assert "in quotes" in doubts(["[ant, bee]", "[bee]"])[0]
    assert "in quotes" in doubts(["{'ant': 1}", "bee"])[0]


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
        *(["ant", word, "bee"] for word in ("nan", "None", "N/A", "null")),
    ],
    ids=str,
)
def test_vectors_of_zeros_and_ones_and_words_for_nothing_are_doubted(cells):
    (line,) = doubts(cells)
    for says in (
        (repr(cells[1]), "leave these cells empty") if "ant" in cells else ("label_columns",)
    ):
        assert says in line


@pytest.mark.parametrize(
    "cells",
    [
        [
            "new york, ny",
            "san diego, ca",
            "los angeles, ca",
            "san jose, ca",
            "portland, or",
            "portland, me",
            "portland",
        ],
        ["paris", "paris, texas", "paris, france", "london", "london, ontario", "london, england"],
        [
            "stop sign",
            "traffic light",
            "hot dog",
            "dog",
            "teddy bear",
            "bear",
            "baseball bat",
            "baseball glove",
        ],
        [f"{a}, {b}" for a in ("smith", "jones", "lee") for b in ("anna", "john", "mary", "tom")],
        [f"{a} {b}" for a in ("red", "blue", "old") for b in ("car", "bus", "tram", "bike")],
        ["tench, Tinca tinca", "goldfish, Carassius auratus", "bird"],
        ["dog, cat"] * 5,
        [f"{a}/{b}" for a in ("animal", "plant") for b in ("a", "b", "c")] + ["animal", "plant"],
        ["0", "1"],
        ["1", "2", "10", "11"],
        [],
        [""],
    ],
    ids=lambda cells: " ".join(cells)[:20],
)
def test_honest_labels_are_not_doubted(cells):
    assert doubts(cells) == []


def write_cells(root, cells):
    return write(
        root, [{"id": n, "text": f"text {n}", "labels": cell} for n, cell in enumerate(cells)]
    )


def test_doubts_are_problems_of_the_collection(tmp_path):
    path = write_cells(tmp_path, [",".join(labels) for labels in SETS])
    (line,) = load_table(path).problems
    assert line.startswith(f"{path}: the column 'labels' holds 'ant,bee'")
    assert describe(load_table(path))["problems"][0] == line
    assert load_table(path, label_separator=",").problems == ()
    path = write_cells(tmp_path, ["ant\tbee", "bee"])
    assert load_table(path, label_separator="\\t").label_names == ("ant", "bee")
    path = write_cells(tmp_path, ["Stop sign", "stop  sign", "bee"])
    says = "differ in capitals, blanks or unseen characters only; write one label one way"
    assert describe(load_table(path))["problems"] == [f"labels 'Stop sign' and 'stop  sign' {says}"]
    path = write_cells(tmp_path, ["foot\u00adball", "football", "bee"])
    (line,) = describe(load_table(path))["problems"]
    assert line.endswith(says)


GAPS = ["\r\n", *"\n\t\u00a0\u2028\u2029\x0b\x85\u200b\u200d\u3000"]


@pytest.mark.parametrize("gap", GAPS, ids=ascii)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_label_is_whole_whatever_stands_in_it_and_nothing_stands_around_it(tmp_path, ending, gap):
    label = f"traffic{gap}light"
    cells = [label, f"{gap}{label}\ufeff ;dog", f"\u00ad{label}{gap}", "dog"]
    rows = [{"id": f"i{n}", "text": "a", "labels": cell} for n, cell in enumerate(cells)]
    records = load_table(write(tmp_path, rows, ending))
    assert records.label_names == ("dog", label)
    assert records.labels.tolist() == [[0, 1], [1, 1], [0, 1], [1, 0]]
    listed = [{**row, "labels": row["labels"].split(";")} for row in rows]
    if ending in ("jsonl", "parquet"):
        assert (
            load_table(write(tmp_path, listed, ending)).labels.tolist() == records.labels.tolist()
        )


def test_two_normal_forms_are_one_label(tmp_path):
    path = write_cells(tmp_path, [COMPOSED, APART, f"{APART} ; ant"])
    records = load_table(path)
    assert sorted(records.label_names) == ["ant", COMPOSED]
    assert records.labels.sum() == 4
    assert len(DataSource("table", {"path": path}, only_labels=[APART]).load()) == 3
    columns = tmp_path / "c.csv"
    columns.write_text(f"id,text,{APART}\na,x,1\n", encoding="utf-8")
    assert load_table(columns, label_columns=[APART]).label_names == (COMPOSED,)
    cells = {"id": ["a", "b"], "text": ["x", "y"], "labels": [[COMPOSED], [APART]]}
    pq.write_table(pa.table(cells), tmp_path / "p.parquet")
    assert load_table(tmp_path / "p.parquet").label_names == (COMPOSED,)
    np.savez(
        tmp_path / "f.npz",
        text=np.ones((2, 2)),
        labels=np.eye(2),
        label_names=np.array([COMPOSED, APART]),
    )
    check_refusal("several label_names are", load_features, tmp_path / "f.npz")
    (tmp_path / "1.jpg").write_bytes(b"1")
    coco = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 1, "category_id": 2}],
    }
    coco["categories"] = [{"id": 1, "name": COMPOSED}, {"id": 2, "name": f"{APART} "}]
    (tmp_path / "i.json").write_text(json.dumps(coco))
    assert load_coco(tmp_path / "i.json").label_names == (COMPOSED,)


VALUES, TEXTS = (
    [None, float("nan"), 1.0, 1.5, True, 2**70, 1e22],
    ["", "", "1", "1.5", "true", str(2**70), f"{10**22}"],
)


@pytest.mark.parametrize(("value", "expected"), list(zip(VALUES, TEXTS, strict=True)))
def test_a_plain_value_is_a_text_as_json_writes_it(value, expected):
    assert text_of(value) == expected


@given(st.lists(st.integers(-999, 10**12), min_size=1, max_size=5, unique=True), st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whole_numbers_are_one_label_however_they_are_written(tmp_path, numbers, data):
    """As integers, floats, texts with a point, printed lists; in a text table, JSON and Parquet."""
    forms = (str, "{}.0".format, "{}.".format, "[{}.0]".format, "[{}]".format, "['{}.0']".format)
    cells = [data.draw(st.sampled_from(forms))(number) for number in numbers for _ in range(2)]
    rows = [{"id": f"r{row}", "text": "a", "labels": cell} for row, cell in enumerate(cells)]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    values = [data.draw(st.sampled_from((int, float)))(number) for number in numbers for _ in "ab"]
    lines = [json.dumps(row | {"labels": value}) for row, value in zip(rows, values, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    for file in ("t.csv", "t.jsonl"):
        records = load_table(tmp_path / file)
        assert set(records.label_names) == set(map(str, numbers))
        assert records.labels.sum(axis=0).tolist() == [2] * len(numbers)
        assert (records.labels[::2] == records.labels[1::2]).all()


@pytest.mark.parametrize("name", ["1.5", "v1.0", "1.0.0", "1e3", "1,0", "٣.0", "1.0 star"])
def test_other_names_with_digits_stay_as_they_are(name):
    assert split_labels(name) == split_labels([name]) == [name]


_SMALL = {"model": {"name": "small"}, "loss": {"name": "dsch"}}


@pytest.mark.parametrize("names", ["[1, 2]", "[1.0, '2']", "['1', 2.0]"])
@pytest.mark.parametrize(("key", "ids"), [("only_labels", ("a", "b")), ("without_labels", ("c",))])
def test_labels_may_be_named_by_numbers_in_a_configuration(tmp_path, key, ids, names):
    """YAML reads ``[1, 2]`` as integers."""
    path = tmp_path / "t.csv"
    path.write_text("id,text,labels\na,x,1\nb,x,2.0\nc,x,3\n")
    data = {"kind": "table", "path": str(path), **yaml.safe_load(f"{key}: {names}")}
    config = make_config({"data": data, **_SMALL})
    (source,) = make_config(config.sections()).sources
    assert source.load().ids == ids


def test_columns_of_labels_may_be_named_by_numbers_in_a_configuration(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,text,1,2\na,x,1,0\nb,x,0,1\n")
    check_refusal(
        "data.label_columns.1: .* got True; write the text in quotes",
        make_config,
        {"data": {"kind": "table", "path": str(path), "label_columns": [1, True]}, **_SMALL},
    )
    data = {"kind": "table", "path": str(path), "label_columns": [1, 2]}
    (source,) = make_config({"data": data, **_SMALL}).sources
    assert source.load().label_names == ("1", "2")
