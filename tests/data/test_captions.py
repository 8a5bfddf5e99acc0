"""Files of captions in the forms that people have."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from channelhash.data.captions import find_captions, read_captions
from channelhash.data.cells import MISSING
from channelhash.data.table import load_table
from refusals import check_refusal

EXPECTED = {"a.jpg": ["a dog", "it runs"], "b.jpg": ["the sea"]}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "c.csv",
            "image,labels\na,b\n",
            r"no column for the caption; name one text or caption \(it has image, labels",
        ),
        ("c.csv", "what,text\na,b\n", "no column for the picture"),
        ("c.csv", "text,image\na,b,c\n", "line 2: has 3 cells"),
        ("c.csv", 'image,text\na,"b\n', "line 2: a quotation mark is not closed"),
        ("c.json", "[1", r"not JSON .*\.jsonl"),
        ("c.json", '{"a.jpg": "a dog"}\n{}', r"not JSON .*\.jsonl"),
        ("c.json", '{"annotations": [{"image_id": 1, "caption": "a"}]}', "needs id and file_name"),
        ("c.json", '[["a.jpg", "a dog"]]', "COCO's, Karpathy's, {name: caption}"),
        ("c.txt", "A caf\udce9\n", "line 1: not UTF-8 text"),
        ("c.txt", "a.jpg words\n", "line 1: has no tab"),
        ("c.txt", "\n", "holds no captions"),
        ("c.txt", None, "no such file of captions"),
    ],
)
def test_what_holds_no_captions_is_refused_in_one_line(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    check_refusal(says, read_captions, tmp_path / name)


def find(folder, captions, names):
    (folder / "c.json").write_text(json.dumps(captions))
    return find_captions(folder / "c.json", names)


def test_a_caption_finds_its_image_by_the_end_of_its_path(tmp_path):
    captions = {
        "2019/1.jpg": ["one"],
        "/old/2.jpg": ["two"],
        "1.jpg": ["which?"],
        "12.jpg": ["x", "y"],
    }
    found, lines = find(tmp_path, captions, ["2019/1.jpg", "2020/1.jpg", "2.jpg"])
    assert found == [("one",), (), ("two",)]
    assert lines == [
        f"{tmp_path / 'c.json'}: pictures that are not there: 2, with 3 captions, such as 1.jpg"
    ]


ROWS = [("a.jpg", "a dog"), ("b.jpg", "the sea"), ("a.jpg", "it runs")]
IMAGES = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
ANNOTATIONS = [{"id": 7, "image_id": 1 + (name == "b.jpg"), "caption": text} for name, text in ROWS]
KARPATHY = [
    {
        "filename": f"{name}.jpg",
        "imgid": 0,
        "sentences": [{"raw": text, "tokens": text.split()} for text in texts],
    }
    for name, texts in (("a", ["a dog", "it runs"]), ("b", ["the sea"]))
]
OF_THE_FIELD = {
    "captions.txt": "image,caption\na.jpg,a dog\nb.jpg,the sea\na.jpg,it runs\n",
    "quoted.csv": '"image";"caption"\n"a.jpg";"a dog"\n"b.jpg";"the sea"\n"a.jpg";"it runs"\n',
    "lists.csv": 'raw,filename\n"[""a dog"", ""it runs""]",a.jpg\nthe sea,b.jpg\n',
    "results.csv": (
        "image_name| comment_number| comment\na.jpg| 0| a dog\na.jpg| 1   it runs\nb.jpg| 0| the "
        "sea\n"
    ),
    "flickr.token": "a.jpg#0\ta dog\r\na.jpg#enr#1\tit runs\r\nb.jpg#0\tthe sea\r\n",
    "c.csv": "file_name,Caption\na.jpg,a dog\nb.jpg,the sea\na.jpg,it runs\nc.jpg, \n",
    "c.tsv": "image\ttext\na.jpg\ta dog\nb.jpg\tthe sea\na.jpg\tit runs\nc.jpg\t \n",
    "c.jsonl": "".join(
        json.dumps({"file": name, "captions": texts}) + "\n" for name, texts in EXPECTED.items()
    ),
    "c.txt": "a.jpg#0\ta dog\r\n\nb.jpg\tthe sea\n./a.jpg#1\tit runs\n",
    "captions_x.json": {"images": IMAGES, "annotations": ANNOTATIONS},
    "dataset_x.json": {"dataset": "flickr8k", "images": KARPATHY},
    "lists.json": EXPECTED,
    "entries.json": [{"image": name, "caption": texts} for name, texts in EXPECTED.items()],
    "texts.json": [{"image": name, "caption": text} for name, text in ROWS],
}


@pytest.mark.parametrize("name", OF_THE_FIELD)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_of_the_field_are_read_as_they_are_downloaded(tmp_path, name, encoding):
    content = OF_THE_FIELD[name]
    (tmp_path / name).write_text(
        content if isinstance(content, str) else json.dumps(content), encoding=encoding
    )
    assert read_captions(tmp_path / name) == EXPECTED


SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_nothing_but_a_line_feed_ends_a_line(tmp_path, separator):
    caption = f"a dog{separator}and a cat"
    for name, content in {
        "c.txt": f"a.jpg#0\t{caption}\r\na.jpg#1\tit runs\n",
        "c.csv": f"image,caption\na.jpg,{caption}\r\na.jpg,it runs\n",
        "c.tsv": f"image\tcaption\na.jpg\t{caption}\na.jpg\tit runs\n",
        "c.jsonl": "".join(
            json.dumps({"image": "a.jpg", "text": text}, ensure_ascii=False) + "\n"
            for text in (caption, "it runs")
        ),
        "c.json": json.dumps({"a.jpg": [caption, "it runs"]}, ensure_ascii=False),
    }.items():
        if name == "c.jsonl" and separator < " ":
            continue  # JSON escapes these
        (tmp_path / name).write_bytes(content.encode())
        assert read_captions(tmp_path / name) == {"a.jpg": [caption, "it runs"]}, name


SEVERAL = st.lists(
    st.text(
        st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1
    ).filter(lambda text: text.strip() == text and text.lower() not in MISSING),
    min_size=1,
    max_size=4,
)
PRINTED = {
    "Python": repr,
    "JSON": json.dumps,
    "JSON in Unicode": lambda texts: json.dumps(texts, ensure_ascii=False),
    "NumPy": lambda texts: str(np.array(texts)),
    "NumPy's repr": lambda texts: repr(np.array(texts, object)),
    "NumPy's texts": lambda texts: repr([np.str_(text) for text in texts]),
    "a tuple": lambda texts: repr((*texts, "more")),
}


@pytest.mark.parametrize("form", PRINTED)
@given(texts=SEVERAL)
@settings(max_examples=25)
def test_a_list_in_print_is_several_captions_in_every_format(tmp_path_factory, form, texts):
    folder, cell = tmp_path_factory.mktemp("captions"), PRINTED[form](texts)
    expected = {"a.jpg": texts + ["more"] * (form == "a tuple")}
    sentences = [{"raw": cell}]
    for name, content in {
        "c.jsonl": {"image": "a.jpg", "text": cell},
        "c.json": {"a.jpg": cell},
        "k.json": {"images": [{"filename": "a.jpg", "sentences": sentences}]},
        "coco.json": {"images": IMAGES, "annotations": [{"image_id": 1, "caption": cell}]},
    }.items():
        (folder / name).write_text(json.dumps(content))
        assert read_captions(folder / name) == expected, name
    pq.write_table(pa.table({"image": ["a.jpg"], "text": [cell]}), folder / "c.parquet")
    assert read_captions(folder / "c.parquet") == expected
    with open(folder / "c.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption"), ("a.jpg", cell)])
    assert read_captions(folder / "c.csv") == expected
    if "\n" not in cell:
        (folder / "c.txt").write_text(f"a.jpg#0\t{cell}\n", encoding="utf-8")
        assert read_captions(folder / "c.txt") == expected
    (folder / "t.jsonl").write_text(json.dumps({"id": "1", "text": cell}))
    assert load_table(folder / "t.jsonl").items["text"] == ("\n".join(expected["a.jpg"]),)


@pytest.mark.parametrize(
    "caption",
    [
        "[laughing] a man",
        "[laughing]",
        "['a dog'] and more",
        "[1, 2]",
        "(a dog)",
        "('a dog')",
        '("Go", he said)',
        "{'a', 'b'}",
        "[a dog, a cat]",
        "['a dog",
    ],
)
def test_a_caption_that_only_begins_with_a_bracket_stays_what_it_is(tmp_path, caption):
    (tmp_path / "c.json").write_text(json.dumps({"a.jpg": caption}))
    assert read_captions(tmp_path / "c.json") == {"a.jpg": [caption]}
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "1", "text": caption}))
    assert load_table(tmp_path / "t.jsonl").items["text"] == (caption,)


def test_captions_come_from_parquet_may_hold_separators_and_names_folders(tmp_path):
    names, texts = ["a.jpg", "b.jpg", "a.jpg", "c.jpg"], ["a dog", "the sea", "it runs", " "]
    pq.write_table(pa.table({"image": names, "text": texts}), tmp_path / "c.parquet")
    assert read_captions(tmp_path / "c.parquet") == EXPECTED
    (tmp_path / "c.txt").write_text(
        'image,caption\na.jpg,A dog , running\nb.jpg,"The sea, ""blue"""\n'
    )
    assert read_captions(tmp_path / "c.txt") == {
        "a.jpg": ["A dog , running"],
        "b.jpg": ['The sea, "blue"'],
    }
    (tmp_path / "c.csv").write_text(
        'image_name| comment_number| comment\na.jpg| 0| "Go" , he | she said .\n'
    )
    assert read_captions(tmp_path / "c.csv") == {"a.jpg": ['"Go" , he | she said .']}
    images = [{"filepath": "val2014", "filename": "1.jpg", "sentences": [{"raw": "a dog"}]}]
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": images}))
    assert read_captions(tmp_path / "dataset_coco.json") == {"val2014/1.jpg": ["a dog"]}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("a/1.JPG", 0),
        ("A\\1.jpg", 0),
        ("1", 0),
        ("C:\\photos\\b\\2.png", 1),
        ("2.jpg", None),
        ("b/2", 1),
        ("3.jpg", 3),
    ],
)
def test_names_are_compared_as_strictly_as_they_can_be(tmp_path, name, row):
    found, lost = find(tmp_path, {name: ["x"]}, ["a/1.jpg", "b/2.PNG", "c/3.JPG", "d/3.jpg"])
    assert [place for place, texts in enumerate(found) if texts] == ([] if row is None else [row])
    assert len(lost) == (row is None)
