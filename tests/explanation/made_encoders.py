"""Encoders whose bits everybody can see: one bit a quadrant of a picture, one bit a word."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WORDS = ("red", "green", "blue", "dark")


def encode_quadrants(pictures: Sequence[Any]) -> NDArray[np.float32]:
    """``(n, 4)``: +1 where a quadrant (upper left, upper right, lower left, lower right) is bright, −1 where dark."""
    rows = []
    for picture in pictures:
        pixels = np.asarray(picture.convert("L"), dtype=np.float64)
        half_y, half_x = pixels.shape[0] // 2, pixels.shape[1] // 2
        quadrants = [
            pixels[:half_y, :half_x],
            pixels[:half_y, half_x:],
            pixels[half_y:, :half_x],
            pixels[half_y:, half_x:],
        ]
        rows.append([1.0 if quadrant.mean() > 160 else -1.0 for quadrant in quadrants])
    return np.array(rows, dtype=np.float32)


def encode_words(texts: Sequence[Any]) -> NDArray[np.float32]:
    """``(n, 4)``: +1 where a word is there, −1 where not."""
    return np.array([[1.0 if word in text.split() else -1.0 for word in WORDS] for text in texts], dtype=np.float32)


def white_quadrant(row: int, column: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A black picture with one white quadrant."""
    width, height = size
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[row * height // 2 : (row + 1) * height // 2, column * width // 2 : (column + 1) * width // 2] = 255
    return Image.fromarray(pixels)
