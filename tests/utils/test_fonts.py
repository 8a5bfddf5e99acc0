"""Contact sheets draw letters, not boxes."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from channelhash.utils.image_grid import _font_file, _font_files, _letters, draw_line

NO_LETTER = "\U000f0000"


def drawn(text: str) -> np.ndarray:
    image = Image.new("L", (40, 24), "white")
    draw_line(ImageDraw.Draw(image), (4, 4), text, 11)
    return np.asarray(image)


@pytest.mark.parametrize("letter", "üßéñłżЖяΩα")
def test_letters_of_european_alphabets_are_no_boxes(letter):
    assert _font_file(letter) == _font_files()[0]
    assert (drawn(letter) != drawn(NO_LETTER)).any()
    assert (drawn(letter) != drawn(" ")).any()


def test_a_letter_that_the_first_font_lacks_is_drawn_by_another():
    first, *others = _font_files()
    letter = chr(min(set().union(*map(_letters, others)) - _letters(first)))
    file = _font_file(letter)
    assert file in others
    assert ord(letter) in _letters(file)
    assert drawn(f"{letter} ü").shape == drawn("u").shape


def test_where_no_font_has_a_letter_a_box_is_drawn():
    assert _font_file(NO_LETTER) is None
    assert (drawn(NO_LETTER) < 255).any()
