"""Drawn screens and receipts of one layout: one in which a digit or a word differs is another one,
a copy that was compressed or resized is not.
"""

import colorsys
import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from channelhash.copies.moved import alike
from channelhash.copies.small_copies import read_copies
from channelhash.utils.fonts import draw_line
from channelhash.utils.seeds import generator

WORDS = ("Bakery", "Rent", "Coffee", "Train ticket", "Transfer", "Market", "Books")
DIGITS = "0123456789"


def rows_of(seed):
    """Draw names and amounts of the rows of a receipt."""
    draw = generator(0, "rows", seed)
    return [
        (str(draw.choice(WORDS)), f"{draw.integers(1, 300)}.{draw.integers(0, 100):02}")
        for _ in range(draw.integers(3, 12))
    ]


def another_digit(seed, rows):
    draw = generator(0, "digit", seed)
    row = int(draw.integers(0, len(rows)))
    name, amount = rows[row]
    place = int(draw.choice([n for n, letter in enumerate(amount) if letter.isdigit()]))
    digit = str(draw.choice([digit for digit in DIGITS if digit != amount[place]]))
    changed = amount[:place] + digit + amount[place + 1 :]
    return [*rows[:row], (name, changed), *rows[row + 1 :]]


def another_word(seed, rows):
    row = int(generator(0, "word", seed).integers(0, len(rows)))
    name = WORDS[(WORDS.index(rows[row][0]) + 1) % len(WORDS)]
    return [*rows[:row], (name, rows[row][1]), *rows[row + 1 :]]


def screen(seed, rows):
    """Draw rows in letters of a size, on a light or a dark page."""
    draw = generator(0, "screen", seed)
    size, is_dark = int(draw.choice([22, 26, 30])), bool(draw.integers(0, 2))
    page, ink = ("#121214", "#ececec") if is_dark else ("#fafafa", "black")
    image = Image.new("RGB", (600, 150 + 60 * len(rows)), page)
    drawn, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    header = tuple(draw.integers(0, 150, 3).tolist())
    drawn.rectangle([0, 0, 600, 90], fill=header)
    drawn.text((40, 25), "My Bank", font=ImageFont.load_default(40), fill="white")
    for number, (name, amount) in enumerate(rows):
        drawn.text((40, 130 + 60 * number), name, font=font, fill=ink)
        drawn.text((420, 130 + 60 * number), amount, font=font, fill=ink)
    return image


def half(image):
    return image.resize((image.width // 2, image.height // 2))


COPIES = {
    "q60": (lambda image: image, {"quality": 60}),
    "q95": (lambda image: image, {"quality": 95}),
    "half": (half, {"quality": 90}),
    "half q60": (half, {"quality": 60}),
    "dark": (lambda image: ImageEnhance.Brightness(image).enhance(0.9), {"quality": 90}),
    "blurred": (lambda image: image.filter(ImageFilter.GaussianBlur(1)), {"quality": 90}),
}


def write(image, path, change=lambda image: image, options=None):
    changed = io.BytesIO()
    change(image).save(changed, "PNG" if options is None else "JPEG", **(options or {}))
    path.write_bytes(changed.getvalue())
    return str(path)


@pytest.mark.parametrize("change", [another_digit, another_word])
@pytest.mark.parametrize("seed", range(3))
def test_a_digit_or_word_that_differs_makes_another_screen(change, seed, tmp_path):
    rows = rows_of(seed)
    original = write(screen(seed, rows), tmp_path / "original.png")
    other = write(screen(seed, change(seed, rows)), tmp_path / "other.png")
    for kind, how in COPIES.items():
        copies = read_copies(
            [
                original,
                write(screen(seed, rows), tmp_path / f"{kind}.jpg", *how),
                other,
                write(screen(seed, change(seed, rows)), tmp_path / f"other {kind}.jpg", *how),
            ],
        )
        pairs = alike(copies, copies).tolist()
        assert pairs == [[n // 2 == m // 2 for m in range(4)] for n in range(4)], kind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("١٢٣٫٥٠", "١٢٤٫٥٠"),
        ("۳۵۷٫۰۰", "۳۵۸٫۰۰"),
        ("3 March 2024", "8 March 2024"),
        ("-20.00", "+20.00"),
    ],
    ids=["Arabic digits", "Persian digits", "a date", "a sign"],
)
def test_other_digits_signs_and_dates_differ_too(one, other, tmp_path):
    files = []
    for text in (one, other):
        image = Image.new("RGB", (500, 400), "white")
        for row in range(4):
            shown = text if row == 2 else "Total 17.20"
            draw_line(ImageDraw.Draw(image), (40, 90 + 80 * row), shown, size=28)
        files += [write(image, tmp_path / f"{len(files)}.png")]
        files += [write(image, tmp_path / f"{len(files)}.jpg", *COPIES["q60"])]
    copies = read_copies(files)
    assert alike(copies, copies).tolist() == [
        [n // 2 == m // 2 for m in range(4)] for n in range(4)
    ]


def scene(seed, turn=0.0):
    """Draw shapes in strong colours, all hues turned by a part of the circle."""
    draw = generator(0, "scene", seed)

    def colour():
        hue, strength, light = draw.uniform(0, 1), draw.uniform(0.5, 1), draw.uniform(0.4, 0.9)
        return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue + turn, strength, light))

    image = Image.new("RGB", (320, 240), colour())
    drawn = ImageDraw.Draw(image)
    for _ in range(12):
        left, top = draw.integers(0, 280), draw.integers(0, 200)
        width, height = draw.integers(30, 160), draw.integers(30, 120)
        shape = drawn.ellipse if draw.integers(0, 2) else drawn.rectangle
        shape([left, top, left + width, top + height], fill=colour())
    return image


def tint(image, red, blue):
    factors = np.array([red, 1, blue])
    return Image.fromarray((np.asarray(image) * factors).clip(0, 255).astype(np.uint8))


PALER = {
    "grey": lambda image: image.convert("L"),
    "paler": lambda image: ImageEnhance.Color(image).enhance(0.5),
    "stronger": lambda image: ImageEnhance.Color(image).enhance(1.3),
    "warmer": lambda image: tint(image, 1.07, 0.93),
    "cooler": lambda image: tint(image, 0.93, 1.07),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "half q60": half,
}


@pytest.mark.parametrize("seed", range(6))
def test_other_hues_make_another_picture_and_paler_ones_do_not(seed, tmp_path):
    turn = generator(0, "hue", seed).uniform(0.2, 0.8)
    image = scene(seed)
    files = [write(image, tmp_path / "original.png")]
    files += [
        write(change(image), tmp_path / f"{kind}.jpg", options={"quality": 60})
        for kind, change in PALER.items()
    ]
    files += [write(scene(seed, turn), tmp_path / "other.png")]
    copies = read_copies(files)
    found = dict(zip(["original", *PALER, "other"], alike(copies[:1], copies)[0], strict=True))
    assert [kind for kind, is_copy in found.items() if not is_copy] == ["other"]


@pytest.mark.parametrize("seed", range(4))
def test_one_thing_in_another_colour_of_the_same_brightness_makes_another_picture(seed, tmp_path):
    """A thing that covers 2 to 30 % of a photograph that is otherwise the same."""
    draw = generator(0, "thing", seed)
    side = np.sqrt(draw.uniform(0.02, 0.3))
    box = [100, 60, 100 + round(320 * side), 60 + round(240 * side)]
    grey = int(draw.integers(70, 130))
    files = []
    for colour in ((grey + 60, grey - 31, grey), (grey - 60, grey + 31, grey), (grey, grey, grey)):
        image = scene(seed).filter(ImageFilter.GaussianBlur(2))
        ImageDraw.Draw(image).rectangle(box, fill=colour)
        files.append(write(image, tmp_path / f"{len(files)}.jpg", options={"quality": 80}))
    copies = read_copies(files)
    assert alike(copies, copies).tolist() == np.eye(3, dtype=bool).tolist()
