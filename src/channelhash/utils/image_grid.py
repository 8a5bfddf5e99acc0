"""Images in rows with captions: search results, augmentations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from channelhash.utils.files import atomic_path
from channelhash.utils.image_files import open_image, upright

_CELL = 148
_IMAGE = 124
_LINE = 14
_MARKS = {True: (24, 140, 60), False: (200, 45, 40), None: (150, 150, 150)}


@dataclass(frozen=True)
class Cell:
    """One image of a row.

    Attributes:
        image: file or image to draw; None draws the text instead.
        caption: a few short lines below.
        right: marks an answer right (green, solid) or wrong (red, dashed); None leaves it unmarked.

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
    """Write a PNG with one row of cells a query: the query first, then what it found.

    Args:
        rows: cells, row by row.
        path: PNG to write.
        caption_lines: lines below an image; longer captions are cut.
    """
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
    font = ImageFont.load_default(11)
    margin = (_CELL - _IMAGE) // 2
    if cell.image is None:
        box = (x + margin, y + margin, x + margin + _IMAGE, y + margin + _IMAGE)
        draw.rectangle(box, fill=(238, 240, 244))
        _frame(draw, box, cell.right)
        text, lines = cell.caption, wrap(cell.caption, 19)
        draw.multiline_text((x + margin + 8, y + margin + 8), "\n".join(lines[:8]), fill="black", font=font)
        caption = "" if lines[:8] == wrap(text, 19) else "…"
    else:
        if isinstance(cell.image, Image.Image):
            image = upright(cell.image).copy()
        else:
            with open_image(cell.image) as opened:
                image = upright(opened).convert("RGB")
        image.thumbnail((_IMAGE, _IMAGE))
        left, top = x + (_CELL - image.width) // 2, y + margin + (_IMAGE - image.height) // 2
        sheet.paste(image, (left, top))
        box = (left - 4, top - 4, left + image.width + 3, top + image.height + 3)
        _frame(draw, box, cell.right)
        caption = "\n".join(wrap(cell.caption)[:caption_lines])
    draw.multiline_text((x + margin, y + _CELL - 6), caption, fill="black", font=font, spacing=2)


def _frame(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], right: bool | None) -> None:
    """Draw a frame, solid for right and dashed for wrong: readable without colour."""
    if right is None:
        return
    left, top, end, bottom = box
    color = _MARKS[right]
    if right:
        draw.rectangle(box, outline=color, width=3)
        return
    for x in range(left, end, 10):
        for y in (top, bottom):
            draw.line([x, y, min(x + 5, end), y], fill=color, width=3)
    for y in range(top, bottom, 10):
        for x in (left, end):
            draw.line([x, y, x, min(y + 5, bottom)], fill=color, width=3)


def wrap(text: str, width: int = 22) -> list[str]:
    """Break text into lines of at most ``width`` characters, at spaces if possible; line breaks are kept.

    >>> wrap("a dog on a beach", width=8)
    ['a dog on', 'a beach']
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            while len(word) > width:
                lines += [line] * bool(line) + [word[:width]]
                line, word = "", word[width:]
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines
