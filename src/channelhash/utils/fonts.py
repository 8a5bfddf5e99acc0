"""Text of any script in a picture: each run of letters in the first font at hand that has them.

Fonts that the extra ``photos`` brings come first, then Pillow's own, then those of the system. A
letter that no font has is drawn as U+FFFD, the replacement character.
"""

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path

from PIL import ImageDraw, ImageFont

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

#: Packages of the extra ``photos`` -> their fonts; that of Latin, Greek and Cyrillic comes first.
_PACKAGES = {
    "manimgx_fonts": ("NotoSans[[]*", "NotoSans[A-Z]*", "NotoEmoji*"),
    "noto_cjk_sans_jp_regular": ("NotoSansCJK*",),
}
#: Stands for Pillow's own font, which has little more than ASCII.
_OWN = ""
_MISSING = "\ufffd"
#: Never a letter: a font draws it as it draws all that it lacks.
_NO_LETTER = "\U0010ffff"
#: Letters of other fonts are larger than those of Pillow's own.
_SCALE = 0.95
#: Open fonts; a system may have hundreds.
_MOST_OPEN = 64
#: Zero-width joiner, and what changes or ends an emoji.
_JOINER = "\u200d"
_MODIFIERS = {"\u200c", _JOINER, *map(chr, (*range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080)))}
#: Classes of letters with a direction.
_STRONG = ("L", "R", "AL")
_ENDINGS = (".ttf", ".otf", ".ttc")


def wrap_text(text: str, width: int, size: int) -> Iterator[str]:
    """Yield lines of at most ``width`` pixels, at spaces if possible; line breaks are kept.

    >>> list(wrap_text("a dog on a beach", 48, size=11))
    ['a dog on', 'a beach']
    """
    for paragraph in text.splitlines() or [""]:
        line = ""
        for piece in _pieces(paragraph, width, size):
            if line and _length(line + piece, size) > width:
                yield line
                line = ""
            line += piece if line else piece.lstrip()
        yield line


def _pieces(paragraph: str, width: int, size: int) -> Iterator[str]:
    """Yield what a line may end behind: words, each after a space, and letters of a word that fits
    on no line.
    """
    for word in paragraph.split():
        fits = len(word) <= width and _length(word, size) <= width
        first, *others = [word] if fits else _letters(word)
        yield f" {first}"
        yield from others


def draw_line(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: int) -> None:
    """Draw one line of text in black from (left, baseline) on."""
    left, baseline = place
    for font, run in _runs(text):
        opened = _open(font, size)
        draw.text((left, baseline), run, fill="black", font=opened, anchor="ls")
        left += opened.getlength(run)


def _length(text: str, size: int) -> float:
    return sum(_open(font, size).getlength(run) for font, run in _runs(text))


def _runs(line: str) -> list[tuple[str, str]]:
    """Return the runs of a line, each with its font: one that has the whole line, or else the first
    that has the letter.
    """
    letters = _drawable(line)
    fonts = [_find_font(letter) or _OWN for letter in letters]
    for font in dict.fromkeys(fonts):
        if all(_has(font, letter) for letter in letters):
            return [(font, "".join(letters))]
    _join_words(letters, fonts)
    places = groupby(range(len(letters)), key=fonts.__getitem__)
    return [(font, "".join(map(letters.__getitem__, run))) for font, run in places]


def _drawable(line: str) -> list[str]:
    """Return the letters of a line; what no font has is replaced."""
    return [_MISSING if _find_font(letter) is None else letter for letter in _letters(line)]


def _join_words(letters: Sequence[str], fonts: list[str]) -> None:
    """Give what has no direction, as spaces and digits have none, the font of the words on both
    sides.

    So several words of Arabic are one run, which is drawn from right to left.
    """
    strong = [i for i, sign in enumerate(letters) if unicodedata.bidirectional(sign[0]) in _STRONG]
    for before, after in pairwise(strong):
        font = fonts[before]
        if font == fonts[after]:
            for place in range(before + 1, after):
                fonts[place] = font if _has(font, letters[place]) else fonts[place]


def _letters(text: str) -> list[str]:
    """Split text into letters, each with the marks and joiners behind it; what steers the direction
    of text is left out.

    >>> _letters("e\\u0301a\\u202e b"), len(_letters("\\U0001f1f5\\U0001f1f9"))
    (['é', 'a', ' ', 'b'], 1)
    """
    letters: list[str] = []
    signs = (s for s in text if unicodedata.category(s) != "Cf" or s in _MODIFIERS)
    for sign in unicodedata.normalize("NFC", "".join(signs)):
        category = unicodedata.category(sign)
        if letters and _belongs(sign, category, letters[-1]):
            letters[-1] += sign
        elif sign.isspace():
            letters.append(" ")
        else:
            letters.append(_MISSING if category in ("Cc", "Cs") else sign)
    return letters


def _belongs(sign: str, category: str, before: str) -> bool:
    """Return whether a sign is part of the letter before it."""
    is_flag = _is_half_flag(sign) and len(before) == 1 and _is_half_flag(before)
    return category[0] == "M" or sign in _MODIFIERS or before.endswith(_JOINER) or is_flag


def _is_half_flag(sign: str) -> bool:
    return "\U0001f1e6" <= sign <= "\U0001f1ff"


@cache
def _find_font(letter: str) -> str | None:
    """Return the first font that has a letter with all its marks; None where none has."""
    return next((font for font in _all_fonts() if _has(font, letter)), None)


def _all_fonts() -> Iterator[str]:
    yield from _package_fonts()
    yield _OWN
    yield from _system_fonts()


@cache
def _package_fonts() -> Sequence[str]:
    """Return the files of the fonts that packages bring."""
    found: list[str] = []
    for package, patterns in _PACKAGES.items():
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            for pattern in patterns:
                found += map(str, sorted(Path(spec.origin).parent.glob(pattern)))
    return found


@cache
def _system_fonts() -> Sequence[str]:
    """Return the files of the fonts that are installed, in the order of their paths."""
    found: list[str] = []
    for folder in _system_folders():
        for path in sorted(folder.rglob("*")):
            # LastResort has a box for each script and no letter.
            if path.suffix.lower() in _ENDINGS and "LastResort" not in path.name:
                found.append(str(path))
    return found


def _system_folders() -> Sequence[Path]:
    """Return where this system keeps fonts, those of the person first."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")
    if sys.platform == "win32":
        own = Path(os.environ.get("LOCALAPPDATA", home), "Microsoft", "Windows", "Fonts")
        return own, Path(os.environ.get("WINDIR", r"C:\Windows"), "Fonts")
    own = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share", "fonts")
    return home / ".fonts", own, Path("/usr/local/share/fonts"), Path("/usr/share/fonts")


@cache
def _has(font: str, letter: str) -> bool:
    """Return whether a font has a letter with all its marks: it draws each otherwise than what it
    lacks.
    """
    try:
        opened = _open(font, 16)
        lacking = bytes(opened.getmask(_NO_LETTER))
        signs = [sign for sign in letter if not _is_invisible(sign)]
        return all(bytes(opened.getmask(sign)) != lacking for sign in signs)
    except (OSError, ValueError):  # a damaged font, or one of letters of another size alone
        return False


def _is_invisible(sign: str) -> bool:
    """Return whether a sign chooses how others are drawn, or is blank."""
    return sign.isspace() or unicodedata.category(sign) == "Cf" or "\ufe00" <= sign <= "\ufe0f"


@lru_cache(_MOST_OPEN)
def _open(font: str, size: int) -> _Font:
    if font == _OWN:
        return ImageFont.load_default(size)
    return ImageFont.truetype(font, round(_SCALE * size))
