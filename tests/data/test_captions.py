"""Files of captions in the forms that people have."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.data.captions import match_captions, read_captions
from channelhash.errors import InputError

EXPECTED = {"a.jpg": ["a dog", "it runs"], "b.jpg": ["the sea"]}


def test_tables_and_lines_are_read_alike(tmp_path):
    rows = [("a.jpg", "a dog"), ("b.jpg", "the sea"), ("a.jpg", "it runs"), ("c.jpg", " ")]
    (tmp_path / "c.csv").write_text("file_name,Caption\n" + "".join(f"{name},{text}\n" for name, text in rows))
    (tmp_path / "c.tsv").write_text("image\ttext\n" + "".join(f"{name}\t{text}\n" for name, text in rows))
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"file": name, "captions": texts}) + "\n" for name, texts in EXPECTED.items())
    )
    columns = {"image": [name for name, _ in rows], "text": [text for _, text in rows]}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    (tmp_path / "c.txt").write_text("a.jpg#0\ta dog\r\n\nb.jpg\tthe sea\n./a.jpg#1\tit runs\n")
    for ending in ("csv", "tsv", "jsonl", "parquet", "txt"):
        assert read_captions(tmp_path / f"c.{ending}") == EXPECTED, ending


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("c.csv", "image,labels\na,b\n", r"no column for the caption; name one text or caption \(it has image, labels"),
        ("c.csv", "what,text\na,b\n", "no column for the picture"),
        ("c.csv", "image,text\na,b,c\n", "line 2: has 3 cells"),
        ("c.txt", "a.jpg words\n", "line 1: has no tab"),
        ("c.txt", "\n", "holds no captions"),
        ("c.txt", None, "no such file of captions"),
    ],
)
def test_what_holds_no_captions_is_refused_in_one_line(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=says) as refused:
        read_captions(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_caption_finds_its_image_by_the_end_of_its_path():
    names = ["2019/1.jpg", "2020/1.jpg", "2.jpg"]
    captions = {"2019/1.jpg": ["one"], "/old/2.jpg": ["two"], "1.jpg": ["which?"], "12.jpg": ["x", "y"]}
    found, lines = match_captions(captions, names, Path("c.csv"))
    assert found == [("one",), (), ("two",)]
    assert lines == ["c.csv: 3 captions are of 2 pictures that are not there: 1.jpg …"]
