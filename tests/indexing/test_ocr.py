"""The text of long pictures: every line of it is read, once, and in order."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageDraw, ImageFont

from channelhash.indexing import ocr
from channelhash.indexing.source import Source
from small_stores import encode_into

pytest.importorskip("rapidocr")
SYLLABLES = ["bar", "cac", "cop", "fal", "gra", "har", "kem", "lan", "mea", "mon", "nus", "rid"]


def words(rng, k):
    return " ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(k))


def squeezed(lines):
    return [line.replace(" ", "").lower() for line in lines]


@pytest.mark.parametrize(
    ("size", "places"),
    [
        ((1080, 9000), [(40, y) for y in (10, 1840, 1920, 4000, 6100, 8930)]),
        ((7000, 800), [(20, 20), (1200, 200), (3000, 400), (6000, 700)]),
    ],
    ids=["tall", "wide"],
)
def test_lines_anywhere_in_a_long_picture_are_read_once_and_in_order(tmp_path, size, places):
    rng, image = random.Random(sum(size)), Image.new("RGB", size, "white")
    points = max(24, min(size) // 27)
    lines = [words(rng, 2) for _ in places]
    for place, line in zip(places, lines, strict=True):
        font = ImageFont.load_default(points)
        ImageDraw.Draw(image).text(place, line, "black", font)
    image.save(tmp_path / "long.png")
    text, problems = ocr.read_text(tmp_path / "long.png")
    assert (squeezed(text.split("\n")), problems) == (squeezed(lines), [])


@pytest.mark.parametrize("turned", [False, True])
def test_a_line_through_several_parts_is_one_line(tmp_path, turned):
    line, image = words(random.Random(7), 12), Image.new("RGB", (4000, 400), "white")
    ImageDraw.Draw(image).text((30, 150), line, "black", ImageFont.load_default(48))
    image.rotate(180 if turned else 0).save(tmp_path / "banner.png")
    text, _ = ocr.read_text(tmp_path / "banner.png")
    assert squeezed([text]) == squeezed([line])


@settings(max_examples=40)
@given(
    st.integers(1300, 6000),
    st.booleans(),
    st.lists(
        st.tuples(st.integers(8, 40), st.floats(0, 0.5), st.floats(0.6, 1)), min_size=1, max_size=99
    ),
)
def test_what_is_found_in_two_parts_is_joined(length, is_tall, drawn):
    across, size = 640, 1280
    width, height = (across, length) if is_tall else (length, across)
    lines, top = [], 0
    for line_height, start, end in drawn:
        if top + line_height < height:
            lines.append((int(start * width), top, int(end * width), top + line_height))
        top += line_height + 10
    # Each pixel says where it is, so that a part is known by its first one.
    pixels = np.zeros((height, width, 2), np.uint16)
    pixels[..., 0], pixels[..., 1] = np.meshgrid(range(width), range(height))

    def look(part):
        left, top = map(int, part[0, 0])
        right, bottom = left + part.shape[1], top + part.shape[0]
        seen = [
            (max(x, left), max(y, top), min(until, right), min(low, bottom))
            for x, y, until, low in lines
        ]
        inside = [box for box in seen if box[2] - box[0] > 3 and box[3] - box[1] > 3]
        return [ocr._rectangle(*box) - np.float32([left, top]) for box in inside]

    places = range(0, length - size // ocr._SHARED, size - size // ocr._SHARED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "_look", look)
        found = ocr._find_lines(pixels, places, size)
    boxes = [
        np.concatenate([box.min(axis=0), box.max(axis=0)]).round().astype(int) for box in found
    ]
    assert sorted(map(tuple, boxes)) == sorted(lines)


def test_what_is_not_looked_through_is_a_line(tmp_path, model, store, monkeypatch):
    monkeypatch.setattr(ocr, "_MOST_PARTS", 2)
    Image.new("RGB", (64, 2000), "white").save(tmp_path / "long.png")
    done = encode_into(store, model, Source.read(tmp_path))
    assert done.problems == (f"{tmp_path}/long.png: the text in it beyond its first 1,200 pixels",)


def test_long_pictures_that_an_earlier_version_read_are_read_again(tmp_path, model, store):
    for name, size in {"long.png": (500, 2000), "screen.png": (500, 1000)}.items():
        image = Image.new("RGB", size, "white")
        ImageDraw.Draw(image).text((20, 40), "STOP HARPER", "black", ImageFont.load_default(40))
        image.save(tmp_path / name)
    encode_into(store, model, Source.read(tmp_path))
    earlier = {"tags_from": "- ", "ocr": ""}
    store.update(["long.png", "screen.png"], [earlier, earlier])
    assert encode_into(store, model, Source.read(tmp_path)).replaced == 1
    assert store.get(["long.png"])[0].metadata["ocr"].split() == ["STOP", "HARPER"]
    assert encode_into(store, model, Source.read(tmp_path)).unchanged == 2


def test_pictures_stored_without_their_text_get_one_line_on_how_it_is_read(tmp_path, model, store):
    for row in range(2):
        Image.new("RGB", (64, 64), (row, 0, 0)).save(tmp_path / f"{row}.png")
    source = Source.read(tmp_path, exclude=["store"])
    assert encode_into(store, model, source).remarks == ()
    store.update(["0.png"], [{"ocr": None}])
    said = (
        f"pictures stored without the text in them: 1; channelhash index add {store.address} "
        "--ocr reads it, --no-ocr leaves it"
    )
    for ocr_option, remarks in ((None, (said,)), (False, ()), (True, ()), (None, ())):
        assert encode_into(store, model, replace(source, ocr=ocr_option)).remarks == remarks
