"""Contact sheets: rows of images with captions as one image."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

from channelhash.utils.files import atomic_path
from channelhash.utils.fonts import draw_line, wrap_text
from channelhash.utils.image_files import decode, open_image

#: Pixels of the side of a cell.
_CELL = 148
#: Pixels of the longer side of the image in it.
_IMAGE = 124
#: Pixels between two lines of a caption.
_LINE = 14
#: Pixels of a letter's height.
_LETTERS = 11
#: Pixels between the query and what it found.
_GAP = 12
#: Most lines of a caption.
_CAPTION_LINES = 3
#: Lines of text that stand in the place of an image.
_LINES = 8
#: Colours of right and of wrong answers.
_MARKS = {True: (24, 140, 60), False: (200, 45, 40)}


class SheetCell(NamedTuple):
    """One image of a row.

    Attributes:
        image: file or image to draw; None, or a file that cannot be read any more, draws the text
            instead.
        caption: a few short lines below.
        right: marks an answer right (green, thick) or wrong (red, thin); None leaves it unmarked.

    >>> SheetCell(None, "a dog on a beach", right=True).caption
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


def write_contact_sheet(rows: Sequence[Sequence[SheetCell]], path: Path) -> None:
    """Write a PNG with a row of cells for each query: the query first, then what it found."""
    columns = max(len(row) for row in rows)
    row_height = _CELL + _CAPTION_LINES * _LINE + 2
    sheet = Image.new("RGB", (columns * _CELL + _GAP, len(rows) * row_height), "white")
    for r, row in enumerate(rows):
        for c, cell in enumerate(row):
            x = c * _CELL + (_GAP if c else 0)
            _draw_cell(sheet, cell, x, r * row_height)
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def _draw_cell(sheet: Image.Image, cell: SheetCell, x: int, y: int) -> None:
    draw = ImageDraw.Draw(sheet)
    margin = (_CELL - _IMAGE) // 2
    image = _load(cell.image)
    if image is None:
        box = (x + margin, y + margin, x + margin + _IMAGE, y + margin + _IMAGE)
        draw.rectangle(box, fill=(238, 240, 244))
        lines = list(islice(wrap_text(cell.caption, _IMAGE - 16, _LETTERS), _LINES + 1))
        _draw_lines(draw, (x + margin + 8, y + margin + 8), lines[:_LINES])
        captions = ["…"] if len(lines) > _LINES else []
    else:
        image.thumbnail((_IMAGE, _IMAGE))
        left = x + (_CELL - image.width) // 2
        top = y + margin + (_IMAGE - image.height) // 2
        sheet.paste(image, (left, top))
        box = (left - 4, top - 4, left + image.width + 3, top + image.height + 3)
        captions = list(islice(wrap_text(cell.caption, _IMAGE, _LETTERS), _CAPTION_LINES))
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
    """Draw lines of text in black from (left, top) down."""
    left, top = place
    for number, text in enumerate(lines):
        draw_line(draw, (left, top + number * _LINE + _LETTERS), text, _LETTERS)
