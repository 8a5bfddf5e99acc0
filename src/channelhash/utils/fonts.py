"""Find fonts with the letters of a text: Pillow's own for ASCII, DejaVu for most alphabets, or an installed one."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from PIL import ImageDraw, ImageFont

# Parts of the file names of fonts with many letters; they are looked into first.
_LARGE = ("cjk", "unicode", "fallback", "unifont", "pingfang", "hiragino", "yugoth", "msyh", "simsun", "malgun", "noto")
# Has a box with a number for every letter.
_PLACEHOLDERS = "LastResort"

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw_line(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: int) -> None:
    """Draw a line of text in black, each word in a font that has its letters.

    Args:
        draw: draws on the image.
        place: left, top.
        text: without line breaks.
        size: of the letters in pixels.
    """
    left, top = place
    for part, font in _parts(text, size):
        draw.text((left, top + size), part, fill="black", font=font, anchor="ls")  # one baseline for all fonts
        left += font.getlength(part)


def _parts(text: str, size: int) -> Iterator[tuple[str, Font]]:
    """Yield the pieces of a line with their fonts: the whole line, its words or single letters, as fonts have them."""
    pieces = [text]
    for cut in (lambda line: line.replace(" ", " \n").split("\n"), list):
        pieces = [part for piece in pieces for part in ([piece] if _has_font(piece) else cut(piece))]
    yield from ((piece, _font(_font_file(piece), size)) for piece in pieces)


def _has_font(letters: str) -> bool:
    return letters.isascii() or _font_file(letters) is not None


@cache
def _font(file: Path | None, size: int) -> Font:
    # DejaVu's letters are larger than those of Pillow's own font.
    return ImageFont.load_default(size) if file is None else ImageFont.truetype(str(file), round(0.9 * size))


@cache
def _font_file(letters: str) -> Path | None:
    """Return the first font file that has all letters; None for ASCII, and where no font has them."""
    if letters.isascii():
        return None
    wanted = {ord(letter) for letter in letters if not letter.isspace()}
    return next((file for file in _font_files() if wanted <= _letters(file)), None)


@cache
def _font_files() -> tuple[Path, ...]:
    """Return the font that matplotlib brings, then the installed ones, those first that have many letters."""
    import matplotlib
    from matplotlib import font_manager

    bundled = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    others = {Path(name) for name in font_manager.findSystemFonts()}
    others |= {Path(entry.fname) for entry in font_manager.fontManager.ttflist}

    def order(file: Path) -> tuple[bool, bool, str]:
        name = file.name.lower()
        return not any(part in name for part in _LARGE), "bold" in name or "italic" in name, str(file)

    return bundled, *sorted((file for file in others if _PLACEHOLDERS not in file.name), key=order)


@cache
def _letters(file: Path) -> frozenset[int]:
    """Return the code points that a font has; none for a file that cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(str(file)).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
