"""Maps light up exactly where a made encoder looks; the fast path against hiding one patch after another."""

import numpy as np
import pytest
from PIL import Image

from channelhash.explanation.api import Side, explain_pair
from channelhash.explanation.occlusion import MapSettings, _Grid, _hide, _make_filler, map_image, map_words

WORDS = ("red", "green", "blue", "dark")


def encode_quadrants(pictures):
    """``(n, 4)``: +1 where a quadrant (upper left, upper right, lower left, lower right) is bright, −1 where dark."""
    rows = []
    for picture in pictures:
        halves = np.array_split(np.asarray(picture.convert("L"), dtype=np.float64), 2)
        quadrants = [quadrant for half in halves for quadrant in np.array_split(half, 2, axis=1)]
        rows.append([1.0 if quadrant.mean() > 160 else -1.0 for quadrant in quadrants])
    return np.array(rows, dtype=np.float32)


def encode_words(texts):
    """``(n, 4)``: +1 where a word is there, −1 where not."""
    return np.array([[1.0 if word in text.split() else -1.0 for word in WORDS] for text in texts], dtype=np.float32)


def white_quadrant(row: int, column: int) -> Image.Image:
    """A black picture with one white quadrant."""
    pixels = np.zeros((48, 64, 3), dtype=np.uint8)
    pixels[24 * row : 24 * row + 24, 32 * column : 32 * column + 32] = 255
    return Image.fromarray(pixels)


def relaxed(a: np.ndarray, b: np.ndarray) -> float:
    """Equation (2) of the paper, for one pair."""
    cosine = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)) / np.linalg.norm(a) / np.linalg.norm(b)
    return len(a) / 2 * (1 - cosine)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_map_lights_up_exactly_in_the_quadrant_that_the_bit_looks_at(row, column):
    picture = white_quadrant(row, column)
    whole = encode_quadrants([picture])[0]
    found = map_image(picture, _Grid(4, 4, 2), encode_quadrants, whole, "grey")
    # A 2 × 2 patch fills a quadrant's 2 × 2 cells; only one that hides it whole makes its mean fall below 160.
    expected = np.zeros((4, 4), dtype=bool)
    expected[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = True
    np.testing.assert_array_equal(found.influence > 0, expected)
    np.testing.assert_array_equal(found.flips > 0, expected)
    assert found.strongest == (2 * row + column + 1,)
    assert (found.influence >= 0).all()
    np.testing.assert_array_equal(found.flipping > 0, np.arange(4) == 2 * row + column)


@pytest.mark.parametrize("word", WORDS)
def test_the_word_that_a_bit_looks_for_alone_matters(word):
    other = encode_words([word])[0]
    found = map_words(f"some {word} thing", encode_words, other, 10)
    assert [each.word for each in found] == ["some", word, "thing"]
    assert [each.flips for each in found] == [(), (WORDS.index(word) + 1,), ()]
    assert [each.influence for each in found] == pytest.approx([0, 1, 0])


def test_a_pair_explains_itself_with_its_quadrant_and_its_word():
    picture = white_quadrant(1, 0)
    image = Side("image", "picture", encode_quadrants([picture])[0], picture)
    text = Side("text", "words", encode_words(["the blue one"])[0], "the blue one")
    found = explain_pair((image, text), None, {"image": encode_quadrants, "text": encode_words}, MapSettings(cells=4))
    assert (found.distance, found.relaxed_distance) == (0, pytest.approx(0))
    assert found.image_maps[0].influence[3, 0] > 0 == found.image_maps[0].influence[0, 4]
    assert [word.word for word in found.words[1] if word.influence > 0] == ["blue"]
    assert found.image_maps[1] is None
    assert found.words[0] is None


@pytest.mark.parametrize("fill", ["grey", "blur"])
def test_a_map_is_hiding_one_patch_after_another(fill):
    random = np.random.default_rng(0)
    picture = Image.fromarray(random.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    weights, other = random.normal(size=(48 * 64 * 3, 9)), random.normal(size=9).astype(np.float32)

    def encode(pictures):
        return np.stack([np.asarray(each).ravel() / 255 @ weights for each in pictures]).astype(np.float32)

    grid = _Grid(6, 8, 3)
    total, count = np.zeros((6, 8)), np.zeros((6, 8))
    filler = _make_filler(picture, fill)
    before = relaxed(encode([picture])[0], other)
    for top, left in np.ndindex(4, 6):
        pixels, patch = np.asarray(picture).copy(), np.s_[8 * top : 8 * top + 24, 8 * left : 8 * left + 24]
        pixels[patch] = np.asarray(filler)[patch]
        change = relaxed(encode([Image.fromarray(pixels)])[0], other) - before
        total[top : top + 3, left : left + 3] += change
        count[top : top + 3, left : left + 3] += 1
    found = map_image(picture, grid, encode, other, fill)
    np.testing.assert_allclose(found.influence, total / count, atol=1e-5)


def test_the_cells_cover_a_picture_whatever_its_size():
    for size in [(64, 64), (640, 480), (101, 37), (37, 101), (9, 300)]:
        grid = MapSettings(8, 1).grid(size)
        assert min(grid.rows, grid.columns) == 8
        seen = np.zeros((size[1], size[0]), dtype=int)
        for row, column in np.ndindex(grid.rows, grid.columns):
            left, top, right, bottom = grid.box((row, column), size)
            seen[top:bottom, left:right] += 1
        assert (seen == 1).all()
        image = Image.new("RGB", size)
        hidden = _hide(image, (0, 0, *size), _make_filler(image, "grey"))
        assert hidden.getcolors() == [(size[0] * size[1], (128,) * 3)]


def test_words_are_left_out_one_at_a_time_and_only_the_first_ones():
    seen = []
    for most in (10, 1):
        map_words("a b a", lambda texts: seen.append(texts) or encode_words(texts), np.ones(4), most)
    assert seen == [["a b a", "b a", "a a", "a b"], ["a b a", "b a"]]
    assert map_words("  ", encode_words, np.ones(4), 10) == []
