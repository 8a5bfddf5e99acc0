"""Images in rows with captions: search results, augmentations."""

import textwrap
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from channelhash.utils.files import atomic_path
from channelhash.utils.image_files import decode, open_image

_CELL = 148
_IMAGE = 124
_LINE = 14
_LETTERS = 11
_MARKS = {True: (24, 140, 60), False: (200, 45, 40)}


class Cell(NamedTuple):
    """One image of a row.

    Attributes:
        image: file or image to draw; None, or a file that cannot be read any more, draws the text instead.
        caption: a few short lines below.
        right: marks an answer right (green, thick) or wrong (red, thin); None leaves it unmarked.

    >>> Cell(None, "a dog on a beach", right=True).caption
    'a dog on a beach'
    """

    image: Path | Image.Image | None
    caption: str
    right: bool | None = None


def bits(distance: int) -> str:
    """Print a distance in words.

    >>> bits(1), bits(3)
    ('1 bit', '3 bits')
    """
    return f"{distance} bit" if distance == 1 else f"{distance} bits"


def write_contact_sheet(rows: Sequence[Sequence[Cell]], path: Path, caption_lines: int = 3) -> None:
    """Write a PNG with one row of cells a query: the query first, then what it found."""
    columns = max(len(row) for row in rows)
    row_height = _CELL + caption_lines * _LINE + 2
    sheet = Image.new("RGB", (columns * _CELL + 12, len(rows) * row_height), "white")
    for r, row in enumerate(rows):
        for c, cell in enumerate(row):
            _draw_cell(sheet, cell, c * _CELL + (0 if c == 0 else 12), r * row_height, caption_lines)
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def _draw_cell(sheet: Image.Image, cell: Cell, x: int, y: int, caption_lines: int) -> None:
    draw = ImageDraw.Draw(sheet)
    margin = (_CELL - _IMAGE) // 2
    if (image := _load(cell.image)) is None:
        box = (x + margin, y + margin, x + margin + _IMAGE, y + margin + _IMAGE)
        draw.rectangle(box, fill=(238, 240, 244))
        lines = _wrap(cell.caption, 19)
        _draw_lines(draw, (x + margin + 8, y + margin + 8), lines[:8])
        captions = ["…"] if len(lines) > 8 else []
    else:
        image.thumbnail((_IMAGE, _IMAGE))
        left, top = x + (_CELL - image.width) // 2, y + margin + (_IMAGE - image.height) // 2
        sheet.paste(image, (left, top))
        box = (left - 4, top - 4, left + image.width + 3, top + image.height + 3)
        captions = _wrap(cell.caption)[:caption_lines]
    if cell.right is not None:  # thick for right and thin for wrong: readable without colour
        draw.rectangle(box, outline=_MARKS[cell.right], width=4 if cell.right else 1)
    _draw_lines(draw, (x + margin, y + _CELL - 6), captions)


def _load(image: Path | Image.Image | None) -> Image.Image | None:
    """Return a copy of the image to draw; None of a file that cannot be read any more."""
    if image is None:
        return None
    if isinstance(image, Image.Image):
        return decode(image).copy()
    try:
        with open_image(image) as opened:
            return decode(opened, 2 * _IMAGE)
    except OSError:
        return None


def _draw_lines(draw: ImageDraw.ImageDraw, place: tuple[int, int], lines: Sequence[str]) -> None:
    """Draw lines of text in black from (left, top) down, each in a font that has all of its letters."""
    for number, text in enumerate(lines):
        font: ImageFont.FreeTypeFont | ImageFont.ImageFont = ImageFont.load_default(_LETTERS)
        if not text.isascii():  # DejaVu's letters are larger than those of Pillow's own font
            font = ImageFont.truetype(_font_file(frozenset("".join(text.split()))), round(0.9 * _LETTERS))
        top = place[1] + number * _LINE
        draw.text((place[0], top + _LETTERS), text, fill="black", font=font, anchor="ls")


def _wrap(text: str, width: int = 22) -> list[str]:
    """Break text into lines of at most ``width`` characters, at spaces if possible; line breaks are kept.

    Letters of Chinese and Japanese are twice as wide as others: a text with any has half as many of them a line.

    >>> _wrap("a dog on a beach", width=8)
    ['a dog on', 'a beach']
    """
    width //= 2 if any(unicodedata.east_asian_width(letter) in "WF" for letter in text) else 1
    return [line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, width) or [""]]


@cache
def _font_file(letters: frozenset[str]) -> str:
    """Return the first font that has these letters; where none has, that of matplotlib, which is looked into first."""
    from matplotlib import font_manager, get_data_path

    bundled = str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))
    installed = [name for name in sorted(font_manager.findSystemFonts()) if "LastResort" not in name]  # all boxes
    return next((name for name in [bundled, *installed] if set(map(ord, letters)) <= _letters(name)), bundled)


@cache
def _letters(font: str) -> frozenset[int]:
    """Return the code points that a font has; none of a file that cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(font).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
