"""Text in drawn pictures is read, once, and found."""

import random
import sys

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageDraw, ImageFont

import channelhash as ch
from channelhash.photos.metadata import open_reader
from channelhash.photos.source import Source
from channelhash.photos.stores import NewCodes, add_to_store, create_store, read_again
from refusals import check_refusal
from small_stores import encode_into, small_model

SYLLABLES, FONTS, LETTERS = map(str.split, (
    "bar cac cop fal gra har kem lan lio mea mon nus pep qua rid sol tun vex wal zim",
    "Sans Sans-Bold Sans-Oblique SansMono SansCondensed Serif Serif-Bold", "A B C D E F G H J K L M N P R S T U V X Y",
))  # fmt: skip


def lines_of(rng, kind):
    """Return the lines in a picture of a kind, the phrase to be found, and the size of its letters."""
    words = lambda k: " ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(k))  # noqa: E731
    pair = lambda: "".join(rng.choices(LETTERS, k=2))  # noqa: E731
    if kind == "plate":
        return [line := f"{pair()} {rng.randrange(100, 1000)} {pair()}"], line, rng.randrange(30, 60)
    if kind == "receipt":
        lines = [f"{words(2)} {rng.randrange(1000, 10_000) / 100}" for _ in range(16)]
        return lines, rng.choice(lines), rng.randrange(22, 34)
    if kind == "screenshot":
        lines = [f"{words(4)} {pair()}{rng.randrange(1000)} {words(1)}" for _ in range(10)]
        return lines, rng.choice(lines), rng.randrange(20, 28)
    line = f"{words(2)} {rng.randrange(10, 10_000)}".upper()
    return line.split() if kind == "sign" else [line], line, rng.randrange(50, 90)


def draw(path, number):
    """Draw a picture in noise, slightly turned; some stand on their heads but for EXIF. Return the phrase in it."""
    rng, kind = random.Random(number), ("plate", "receipt", "screenshot", "sign", "meme")[number % 5]
    size = wide, high = rng.choice([(1600, 1200), (1200, 1600), (1280, 960)])
    ink, paper = (tuple(rng.randrange(low, low + 85) for _ in range(3)) for low in rng.sample((0, 170), 2))
    image = Image.effect_noise((wide // 8, high // 8), 60).resize(size).convert("RGB")
    image = Image.blend(image, Image.new("RGB", size, (60, 50, 70)), 0.6)
    lines, phrase, points = lines_of(rng, kind)
    text, start = "\n".join(lines), (points // 2, points // 2)
    try:
        face = ImageFont.truetype(f"DejaVu{rng.choice(FONTS)}.ttf", points)
    except OSError:  # this machine has no such fonts
        face = ImageFont.load_default(points)
    box = ImageDraw.Draw(image).multiline_textbbox(start, text, face, stroke_width=2)
    block = Image.new("RGBA", [int(side) + points // 2 for side in box[2:]], None if kind == "meme" else paper)
    how = {"fill": "white", "stroke_width": 2, "stroke_fill": "black"} if kind == "meme" else {"fill": ink}
    ImageDraw.Draw(block).multiline_text(start, text, font=face, **how)
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
    phrases = {f"{number}.jpg": draw(tmp_path / f"{number}.jpg", number) for number in range(200)}
    encode_into(store, model, Source.read(tmp_path))
    lost = {name: phrase for name, phrase in phrases.items() if store.search_words(phrase, 1).ids != [name]}
    print(f"{200 - len(lost)} of 200 phrases are found first; not: {lost}")
    assert len(lost) <= 10


def test_text_is_read_left_alone_or_looked_for_as_asked_and_what_has_none_stops_nothing(tmp_path, monkeypatch):
    folder, place = tmp_path / "photos", str(tmp_path / "store")
    folder.mkdir()
    phrase = draw(folder / "0.jpg", 0)
    sign = Image.new("RGB", (400, 100), "white")
    ImageDraw.Draw(sign).text((20, 20), "STOP HARPER", "black", ImageFont.load_default(40))
    sign.rotate(180).save(folder / "head.png")
    for name, size in {"dot": (1, 1), "strip": (9000, 2), "huge": (7000, 5000)}.items():
        Image.new("RGB", size, "white").save(folder / f"{name}.png")
    (folder / "words.jpg").write_text("STOP HARPER")
    small_model(tmp_path)
    done = create_store(place, NewCodes(str(tmp_path / "model")), read_again(place, folder, ocr=False))
    assert (done.added, len(done.problems)) == (5, 1)
    for asked, replaced in ((None, 0), (True, 5), (True, 0)):
        done = add_to_store(place, read_again(place, None, ocr=asked))
        assert (done.replaced, done.unchanged) == (replaced, 5 - replaced)
        with ch.open_store(place) as store:
            first = [store.search_words(words, 1).ids for words in (phrase, "harper stop")]
            assert first == ([["0.jpg"], ["head.png"]] if asked else [[], []])
            assert store.get(["dot.png"])[0].metadata.get("ocr") == ("" if asked else None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    open_reader.cache_clear()
    check_refusal(r"pip install 'channelhash\[ocr\]'", read_again, place, None, ocr=True)
    assert add_to_store(place, read_again(place, None)).unchanged == 5
