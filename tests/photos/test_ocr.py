"""Text in drawn pictures is read, once, and found."""

import random
import sys

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageDraw, ImageFont

import channelhash as ch
from channelhash.photos import ocr
from channelhash.photos.source import Source
from channelhash.photos.stores import NewCodes, add_to_store, create_store, read_again
from refusals import check_refusal
from small_stores import encode_into, small_model

STYLES = "Sans,Sans-Bold,Sans-Oblique,SansMono,SansCondensed,Serif,Serif-Bold".rsplit(",")
WORDS = (
    "harbour,lantern,gravel,pepper,tunnel,monday,violet,copper,walrus,bakery,quarter,falcon,meadow,signal,barrel,"
    "thunder,cactus,ribbon,velvet,anchor,museum,pillow,rocket,garden,winter,bottle,candle,marble,jungle,planet,saddle"
).rsplit(",")


def font(rng, size):
    try:
        return ImageFont.truetype(f"DejaVu{rng.choice(STYLES)}.ttf", size)
    except OSError:  # this machine has no such fonts
        return ImageFont.load_default(size)


def lines_of(rng, kind):
    """What a picture of a kind says: its lines, the phrase to be found, and the size of letters."""
    price = lambda: f"{rng.randrange(100)}.{rng.randrange(10, 100)}"  # noqa: E731
    words = rng.sample(WORDS, 3)
    if kind == "plate":
        a, b = ("".join(rng.choices("ABCDEFGHJKLMNPRSTUVXYZ", k=2)) for _ in range(2))
        return [phrase := f"{a} {rng.randrange(100, 1000)} {b}"], phrase, rng.randrange(30, 90)
    if kind == "receipt":
        lines = [f"{rng.choice(WORDS)} {rng.choice(WORDS)} {price()}" for _ in range(24)]
        return lines, rng.choice(lines), rng.randrange(22, 34)
    if kind == "screenshot":
        lines = [" ".join(rng.choices(WORDS, k=8)) for _ in range(18)]
        return lines, " ".join(rng.choice(lines).split()[:4]), rng.randrange(20, 28)
    words = " ".join(words[: 2 if kind == "sign" else 3]).upper()
    return words.split() if kind == "sign" else [words], words, rng.randrange(50, 120 if kind == "sign" else 90)


def draw(path, number):
    """Draw a picture in noise, slightly turned; some stand on their heads but for EXIF. Return the phrase in it."""
    rng, kind = random.Random(number), ("plate", "receipt", "screenshot", "sign", "meme")[number % 5]
    size = wide, high = rng.choice([(1600, 1200), (1200, 1600), (1280, 960)])
    ink, paper = (tuple(rng.randrange(low, low + 85) for _ in range(3)) for low in rng.sample((0, 170), 2))
    if kind == "meme":
        ink = (255, 255, 255)
    image = Image.effect_noise((wide // 8, high // 8), 60).resize(size).convert("RGB")
    image = Image.blend(image, Image.new("RGB", size, (60, 50, 70)), 0.6)
    lines, phrase, points = lines_of(rng, kind)
    face = font(rng, points)
    box = ImageDraw.Draw(image).multiline_textbbox((points // 2, points // 2), "\n".join(lines), face, stroke_width=2)
    block = Image.new("RGBA", (int(box[2]) + points // 2, int(box[3]) + points // 2), paper if kind != "meme" else None)
    stroke = {"stroke_width": 2, "stroke_fill": "black"} if kind == "meme" else {}
    ImageDraw.Draw(block).multiline_text((points // 2, points // 2), "\n".join(lines), ink, face, **stroke)
    block.thumbnail((0.9 * wide, 0.9 * high))
    block = block.rotate(0 if kind == "screenshot" else rng.uniform(-6, 6), Image.Resampling.BICUBIC, expand=True)
    image.paste(block, (rng.randrange(max(1, wide - block.width)), rng.randrange(max(1, high - block.height))), block)
    noise = np.random.default_rng(number).normal(0, rng.uniform(0, 14), (high, wide, 1))
    image, exif = Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)), Image.Exif()
    if rng.random() < 0.25:
        image, exif[ExifTags.Base.Orientation] = image.rotate(180), 3
    image.save(path, quality=rng.randrange(40, 95), exif=exif)
    return phrase


@pytest.mark.slow
def test_phrases_in_200_pictures_are_found_first(tmp_path, model, store):
    phrases = {}
    for number in range(200):
        name = f"{number}.jpg"
        phrases[name] = draw(tmp_path / name, number)
    encode_into(store, model, Source.read(tmp_path, exclude=["store/"]))
    lost = {name: phrase for name, phrase in phrases.items() if store.search_words(phrase, 1).ids != [name]}
    print(f"{200 - len(lost)} of 200 phrases are found first; not: {lost}")
    assert len(lost) <= 10


def test_text_is_read_once_and_what_has_none_stops_nothing(tmp_path, model, store, no_encoding):
    folder = tmp_path / "photos"
    folder.mkdir()
    phrases = [draw(folder / f"{number}.jpg", number) for number in (0, 1)]
    sign = Image.new("RGB", (400, 100), "white")
    ImageDraw.Draw(sign).text((20, 20), "STOP HARPER", "black", ImageFont.load_default(40))
    sign.rotate(180).save(folder / "head.png")
    for name, size in {"dot": (1, 1), "strip": (9000, 2), "huge": (7000, 5000)}.items():
        Image.new("RGB", size, "white").save(folder / f"{name}.png")
    (folder / "words.jpg").write_text("STOP HARPER")
    done = encode_into(store, model, Source.read(folder))
    assert (done.added, len(done.problems)) == (6, 1)
    assert [store.search_words(phrase, 1).ids for phrase in (*phrases, "harper stop")] == [
        ["0.jpg"],
        ["1.jpg"],
        ["head.png"],
    ]
    assert [item.metadata["ocr"] for item in store.get(["dot.png", "strip.png", "huge.png"])] == ["", "", ""]
    with no_encoding():
        assert encode_into(store, model, Source.read(folder)).unchanged == 6


def test_text_is_left_alone_or_looked_for_as_asked(tmp_path, monkeypatch):
    folder, place = tmp_path / "photos", str(tmp_path / "store")
    folder.mkdir()
    phrase = draw(folder / "0.jpg", 0)
    small_model(tmp_path)
    create_store(place, NewCodes(str(tmp_path / "model")), read_again(place, folder, ocr=False))
    for asked, replaced in ((None, 0), (True, 1), (True, 0)):
        Image.new("RGB", (40, 30)).save(folder / f"{asked}{replaced}.png")
        done = add_to_store(place, read_again(place, None, ocr=asked))
        assert (done.added, done.replaced) == (1, 2 * replaced)
        with ch.open_store(place) as store:
            assert store.search_words(phrase).ids == (["0.jpg"] if asked else [])
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    ocr.open_reader.cache_clear()
    check_refusal(r"pip install 'channelhash\[ocr\]'", read_again, place, None, ocr=True)
    draw(folder / "1.jpg", 5)
    assert add_to_store(place, read_again(place, None)).added == 1
