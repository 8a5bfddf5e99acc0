"""Contact sheets."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from channelhash.utils import image_grid
from channelhash.utils.image_grid import Cell, _draw_lines, _wrap, write_contact_sheet


def test_a_picture_that_cannot_be_read_any_more_is_drawn_as_its_caption(tmp_path):
    (tmp_path / "cut.png").write_bytes(b"\x89PNG")
    cells = [Cell(tmp_path / name, "a dog") for name in ("gone.png", "cut.png")]
    write_contact_sheet([cells, [Cell(None, "a dog"), Cell(None, "a dog")]], tmp_path / "sheet.png")
    first, second = np.split(np.asarray(Image.open(tmp_path / "sheet.png")), 2)
    np.testing.assert_array_equal(first, second)


def test_wide_letters_keep_to_their_column():
    assert _wrap("浜辺の犬" * 6) == ["浜辺の犬浜辺の犬浜辺の", "犬浜辺の犬浜辺の犬浜辺", "の犬"]


def drawn(text: str) -> np.ndarray:
    image = Image.new("L", (40, 24), "white")
    _draw_lines(ImageDraw.Draw(image), (4, 4), [text])
    return np.asarray(image)


@pytest.mark.parametrize("letter", "üßéñłżЖяΩα")
def test_letters_of_european_alphabets_are_no_boxes(letter):
    assert (drawn(letter) != drawn("\U000f0000")).any()
    assert (drawn(letter) != drawn(" ")).any()


def test_a_line_is_drawn_in_the_first_font_that_has_all_its_letters(monkeypatch):
    fonts = {"first": "ab", "second": "ab犬", "third": "b犬é"}
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: sorted(fonts))
    monkeypatch.setattr(image_grid, "_letters", lambda name: set(map(ord, fonts.get(name, "aé"))))
    found = [image_grid._font_file(frozenset(line))[-10:] for line in ("éa", "犬a", "犬éb", "ø")]
    assert found == ["VuSans.ttf", "second", "third", "VuSans.ttf"]
