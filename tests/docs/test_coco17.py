"""examples/coco17 builds the collection from the published files, and finds its rows among the
official images.
"""

import csv
import gzip
import hashlib
import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from channelhash.data.table import load_table
from channelhash.errors import InputError
from pages import DOCS, ROOT

sys.path.insert(0, str(ROOT / "examples" / "coco17"))
import coco_ids
import make_coco17

#: File, published cells, what they become, size of the photograph.
PUBLISHED = [
    ("0.jpg", '1,"A surfer."', None, (40, 30)),  # a person alone is no row
    ("1.jpg", '1 19,"Two men riding horses."', ("Two men riding horses.", "horse"), (190, 250)),
    (
        "2.jpg",
        '8 3 7,"A tram with "Los Angeles"."',
        ('A tram with Los Angeles".', "car;train;truck"),
        (320, 213),
    ),
    (
        "3.jpg",
        '10,"A sign says "Sex St," with $350."',
        ("A sign says Sex St, with $350.", "traffic light"),
        (300, 320),
    ),
    ("5.jpg", '8,"Men loading a van.\n."', ("Men loading a van.\n.", "truck"), (320, 66)),
    ("7.jpg", "5,A plane.", ("A plane.", "airplane"), (320, 213)),
    ("8.jpg", "5 1,A plane.", ("A plane.", "airplane"), (213, 320)),
    ("9.jpg", "17,A plane.", ("A plane.", "cat"), (320, 213)),
]


def shrunk(path):
    """The rule, in other words than the script's."""
    image = Image.open(path)
    short = min(image.size)
    if short > 128:
        image = image.resize(
            [round(side * 128 / short) for side in image.size], Image.Resampling.LANCZOS
        )
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=80, optimize=True)
    return encoded.getvalue()


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with noise for photographs, and the table of its rows in the place of the real
    one.
    """
    folder, random = tmp_path / "clone", np.random.default_rng(0)
    (folder / "data").mkdir(parents=True)
    lines, rows = (
        ["ImageID,Labels,Caption"],
        [["id", "image", "labels", "caption", "width", "height", "sha256"]],
    )
    for name, cells, expected, (width, height) in PUBLISHED:
        path = folder / "data" / name
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(
            path, quality=75
        )
        lines.append(f"{name},{cells}")
        if expected:
            digits = hashlib.sha256(shrunk(path)).hexdigest()[:12]
            letters = "".join(
                sign for sign in expected[0].lower() if sign.isascii() and sign.isalnum()
            )
            caption = hashlib.sha256(letters.encode()).hexdigest()[:12]
            rows.append(
                [name.removesuffix(".jpg"), name, expected[1], caption, width, height, digits]
            )
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = tmp_path / "rows.csv.gz"
    with gzip.open(table, "wt", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows(rows)
    for module in (make_coco17, coco_ids):
        monkeypatch.setattr(module, "ROWS", table)
    monkeypatch.setattr(make_coco17, "QUERIES", 2)
    monkeypatch.setattr(make_coco17, "TRAIN", 3)
    return folder


def test_a_clone_becomes_the_collection(clone, tmp_path, capsys):
    out = tmp_path / "made"
    assert make_coco17.main([str(out), "--clone", str(clone)]) == 0
    printed = capsys.readouterr().out
    assert "images  7 of 7 have the bytes of ours" in printed
    records = load_table(out / "items.csv", out / "images")
    assert list(records.items["text"]) == [expected[0] for *_, expected, _ in PUBLISHED if expected]
    names = [";".join(np.array(records.label_names)[row]) for row in records.labels]
    assert names == [expected[1] for *_, expected, _ in PUBLISHED if expected]
    for path in (out / "images").iterdir():
        assert path.read_bytes() == shrunk(clone / "data" / path.name)
    splits = json.loads((out / "splits-0.json").read_text())
    assert splits["counts"]["query"] == 2
    assert splits["data_hash"] == records.content_hash()
    assert f"splits-0.json  {splits['rows_hash']}" in printed
    Image.new("RGB", (190, 250)).save(clone / "data" / "1.jpg")  # another JPEG
    assert make_coco17.main([str(tmp_path / "again"), "--clone", str(clone)]) == 1
    assert "images  6 of 7" in (said := capsys.readouterr()).out
    assert "1.jpg" in said.err


def test_another_version_of_the_published_table_is_refused(clone, tmp_path):
    table = clone / "train.csv"
    table.write_text(
        table.read_text(encoding="utf-8").replace("17,A plane.", "16,A plane."), encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"1 of 7 rows differ, the first is 9\.jpg"):
        make_coco17.main([str(tmp_path / "made"), "--clone", str(clone)])
    assert not (tmp_path / "made").exists()


def official(folder, entries):
    """Write annotations as MS-COCO does: (number, caption, categories, width, height)."""
    folder.mkdir()
    licence = {"url": "http://creativecommons.org/licenses/by-nc-sa/2.0/", "id": 5, "name": "…"}
    captions, instances = (
        {"images": [], "licenses": [licence], "annotations": []},
        {"annotations": []},
    )
    for number, caption, categories, width, height in entries:
        name = f"COCO_train2014_{number:012}.jpg"
        image = {"license": 5, "file_name": name, "height": height, "width": width, "id": number}
        captions["images"].append(image)
        for place, text in enumerate((caption, "Something else.")):
            captions["annotations"].append(
                {"image_id": number, "id": 10 * number + place, "caption": text}
            )
        instances["annotations"] += 2 * [
            {"image_id": number, "category_id": category} for category in categories
        ]
    for kind, content in (("captions", captions), ("instances", instances)):
        (folder / f"{kind}_train2014.json").write_text(json.dumps(content), encoding="utf-8")


OFFICIAL = [
    (36, "A surfer.", [1], 80, 60),
    (49, "Two men riding horses. ", [19, 1], 381, 500),
    (71, 'A tram with "Los Angeles".', [3, 7, 8], 640, 427),
    (81, 'A sign says "Sex St," with $350.', [10, 62], 600, 640),
    (86, "Men loading a van.\n.", [3, 8], 640, 133),  # the published labels lack the car
    (89, "A plane.", [5], 640, 427),
    (92, "A plane.", [1, 5], 427, 640),
    (94, "A plane.", [1, 17], 640, 426),
    (109, "A plane.", [3, 5], 640, 480),
]


def test_rows_are_found_among_the_official_images(clone, tmp_path, capsys):
    official(tmp_path / "annotations", OFFICIAL)
    table = tmp_path / "ids.csv"
    assert coco_ids.main([str(table), "--annotations", str(tmp_path / "annotations")]) == 0
    assert "7 of 7 rows found, 6 of them with the same labels" in capsys.readouterr().out
    with open(table, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    columns = [" ".join(row[name] for row in rows) for name in ("id", "coco_id", "same_labels")]
    assert columns == ["1 2 3 5 7 8 9", "49 71 81 86 89 92 94", "1 1 1 0 1 1 1"]
    assert rows[0]["file_name"] == "COCO_train2014_000000000049.jpg"
    assert rows[0]["license"] == "http://creativecommons.org/licenses/by-nc-sa/2.0/"


def test_what_two_images_fit_is_left_out(clone, tmp_path, capsys):
    official(tmp_path / "annotations", [*OFFICIAL, (110, "a plane", [5], 641, 425)])
    photographs = tmp_path / "train2014"
    photographs.mkdir()
    for number, _, _, width, height in OFFICIAL:
        Image.new("RGB", (width, height)).save(photographs / f"COCO_train2014_{number:012}.jpg")
    out = tmp_path / "made"
    arguments = [
        "--annotations",
        str(tmp_path / "annotations"),
        "--photographs",
        str(photographs),
        "--out",
        str(out),
    ]
    assert coco_ids.main([str(tmp_path / "ids.csv"), *arguments]) == 1
    assert "6 of 7 rows found" in capsys.readouterr().out
    records = load_table(out / "items.csv", out / "images")
    assert list(records.ids) == ["1", "2", "3", "5", "8", "9"]
    assert Image.open(out / "images" / "2.jpg").size == (192, 128)
    assert Image.open(out / "images" / "5.jpg").size == (320, 66)


def test_the_page_states_the_checksums_of_the_splits(tmp_path):
    rows = make_coco17.read_rows(make_coco17.ROWS)
    assert len({row.id for row in rows}) == len(rows) == 10_000
    items = tmp_path / "items.csv"
    # captions are not here, and splits need none
    make_coco17.write_items(rows, ["a caption"] * len(rows), items)
    page = (DOCS / "how-to" / "coco-17.md").read_text(encoding="utf-8")
    for name, value in make_coco17.write_splits(items).items():
        assert f"{name}  {value}" in page
