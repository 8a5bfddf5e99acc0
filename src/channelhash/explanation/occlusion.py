"""Occlusion: how a pair's distance changes when a part of an image is hidden or a word is left out.

Zeiler and Fergus 2014 (§ 4.2) slide a grey square over an image and record the class probability.
Here the relaxed Hamming distance of the pair (eq. (2) of the paper) and the pair's bits are
recorded. The model is only called, so any function from items to outputs can be explained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from channelhash.codes import binarize, unit_rows
from channelhash.errors import InputError, argument
from channelhash.utils.image_files import decode, upright_size

#: ``(n, k)`` outputs of a model, or ``(k,)`` of one item.
Outputs = NDArray[np.float32]
#: Maps ``n`` items of one modality to real-valued outputs ``(n, k)``.
Encode = Callable[[Sequence[Any]], Outputs]
_Influences = NDArray[np.float64]
_Fill = Literal["grey", "blur"]
_GridCell = tuple[int, int]

#: Short side in pixels to which larger images are reduced before parts are hidden; no model here
#: reads more.
_SHORT_SIDE = 512
#: Occluded images in memory at a time.
_BATCH = 32


class _PatchGrid(NamedTuple):
    """An image as ``rows`` × ``columns`` cells, over which a square patch moves cell by cell.

    Attributes:
        rows: cells from top to bottom.
        columns: cells from left to right.
        patch: side of the patch in cells.

    >>> _PatchGrid(2, 3, patch=2).positions()
    [(0, 0), (0, 1)]
    """

    rows: int
    columns: int
    patch: int

    def positions(self) -> list[_GridCell]:
        """Return the upper left cell of every position of the patch, row by row."""
        rows = range(self.rows - self.patch + 1)
        columns = range(self.columns - self.patch + 1)
        return list(product(rows, columns))

    def box(self, position: _GridCell, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the patch's (left, top, right, bottom) in pixels of an image of ``size`` (width,
        height).
        """
        row, column = position
        width, height = size
        left = round(column * width / self.columns)
        right = round((column + self.patch) * width / self.columns)
        top = round(row * height / self.rows)
        bottom = round((row + self.patch) * height / self.rows)
        return left, top, right, bottom

    def cell_means(self, values: NDArray[Any]) -> _Influences:
        """Average ``(len(positions),)`` values over the positions that cover each cell: ``(rows,
        columns)``.
        """
        total = np.zeros((self.rows, self.columns))
        count = np.zeros((self.rows, self.columns))
        for (row, column), value in zip(self.positions(), values.tolist(), strict=True):
            patch = np.s_[row : row + self.patch, column : column + self.patch]
            total[patch] += value
            count[patch] += 1
        return total / count


@dataclass(frozen=True)
class MapSettings:
    """How parts of an item are hidden.

    Attributes:
        cells: cells along an image's short side.
        patch: side of the hidden patch in cells; it moves by one cell.
        fill: what the patch shows: grey, or the image blurred.
        max_words: number of words of a text that are left out in turn, at most.
        max_positions: number of positions of the patch, at most; an image that needs more gets no
            map.

    >>> MapSettings(cells=4).patch
    2
    """

    cells: int = 8
    patch: int = 2
    fill: _Fill = "grey"
    max_words: int = 100
    max_positions: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= 64:
            raise InputError(
                f"{argument('cells')}: {self.cells} along the short side; give 1 to 64"
            )
        if not 1 <= self.patch <= self.cells:
            raise InputError(
                f"{argument('patch')}: a side of {self.patch} cells; give 1 to {self.cells}, "
                "no more than the short side has"
            )

    def grid(self, size: tuple[int, int]) -> _PatchGrid:
        """Divide an image of ``size`` (width, height) into nearly square cells, ``cells`` along its
        short side.

        >>> MapSettings(cells=8, patch=2).grid((640, 480))
        _PatchGrid(rows=8, columns=11, patch=2)
        """
        columns, rows = (max(self.cells, round(self.cells * side / min(size))) for side in size)
        return _PatchGrid(rows, columns, self.patch)


def reduce_image(image: Image.Image) -> Image.Image:
    """Return the image as models read it, its short side at most 512 pixels.

    >>> reduce_image(Image.new("L", (4000, 2000))).size
    (1024, 512)
    """
    width, height = upright_size(image)
    factor = _SHORT_SIDE / min(width, height)
    image = decode(image, _SHORT_SIDE)
    if factor >= 1:
        return image
    return image.resize(
        (max(1, round(width * factor)), max(1, round(height * factor))), Image.Resampling.BILINEAR
    )


def _make_filler(image: Image.Image, fill: _Fill) -> Image.Image:
    """Return the image that a hidden part shows: grey, or the image blurred beyond recognition.

    >>> _make_filler(Image.new("RGB", (8, 8)), "grey").getpixel((0, 0))
    (128, 128, 128)
    """
    if fill == "blur":
        return image.filter(ImageFilter.GaussianBlur(min(image.size) / 8))
    return Image.new("RGB", image.size, (128, 128, 128))


def _hide(image: Image.Image, box: tuple[int, int, int, int], filler: Image.Image) -> Image.Image:
    """Return a copy of the image that shows the filler in a box.

    >>> image = Image.new("RGB", (2, 1))
    >>> _hide(image, (1, 0, 2, 1), _make_filler(image, "grey")).getcolors()
    [(1, (128, 128, 128)), (1, (0, 0, 0))]
    """
    copy = image.copy()
    copy.paste(filler.crop(box), box)
    return copy


def _distance_changes(full: Outputs, parts: Outputs, partner: Outputs) -> _Influences:
    """Return how many bits farther from the partner each part is than the whole: d(part, ·) −
    d(whole, ·).

    >>> _distance_changes(np.ones(4), np.array([[1, 1, 1, 1], [1, 1, -1, -1]]), np.ones(4)).tolist()
    [0.0, 2.0]
    """
    cosines = unit_rows(np.concatenate([full[None], parts])) @ unit_rows(partner[None])[0]
    return np.asarray(0.5 * len(full) * (cosines[0] - cosines[1:]))


class ImageMap(NamedTuple):
    """Influence of the parts of an image on a pair, cell by cell: means over the patches that cover
    a cell.

    Attributes:
        image: the image, upright and reduced.
        influence: ``(rows, columns)`` change of the relaxed distance in bits; positive holds the
            pair together.
        flips: ``(rows, columns)`` number of the image's own bits that flip.
        patch: side of the patch in cells.
        strongest: numbers (from 1) of the bits that flip under the patch that changes the distance
            most.
        flipping: ``(k,)`` share of the positions at which each bit flips.
    """

    image: Image.Image
    influence: _Influences
    flips: _Influences
    patch: int
    strongest: tuple[int, ...]
    flipping: _Influences


def map_image(
    image: Image.Image, grid: _PatchGrid, encode: Encode, partner: Outputs, fill: _Fill
) -> ImageMap:
    """Slide the patch over an image.

    >>> def encode(images):  # one bit: is the left half bright?
    ...     bright = [np.asarray(image)[:, :4].mean() > 192 for image in images]
    ...     return np.array([[1.0 if is_bright else -1.0, 1.0] for is_bright in bright])
    >>> white = Image.new("RGB", (8, 8), "white")
    >>> grid = _PatchGrid(2, 2, patch=1)
    >>> map_image(white, grid, encode, encode([white])[0], "grey").flips.tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    full = encode([image])[0]
    positions = grid.positions()
    filler = _make_filler(image, fill)
    parts = []
    for start in range(0, len(positions), _BATCH):
        batch = positions[start : start + _BATCH]
        parts.append(
            encode([_hide(image, grid.box(position, image.size), filler) for position in batch])
        )
    rows = np.concatenate(parts)
    changes = _distance_changes(full, rows, partner)
    flips = binarize(rows) != binarize(full[None])
    return ImageMap(
        image,
        influence=grid.cell_means(changes),
        flips=grid.cell_means(flips.sum(axis=1)),
        patch=grid.patch,
        strongest=_numbers(flips[int(np.abs(changes).argmax())]),
        flipping=flips.mean(axis=0),
    )


class WordInfluence(NamedTuple):
    """Influence of one word on a pair.

    Attributes:
        word: the word; each occurrence in the text is a word of its own.
        influence: change of the relaxed distance in bits without it; positive holds the pair
            together.
        flips: numbers (from 1) of the bits that flip without it.

    >>> WordInfluence("dog", 2.0, flips=(3, 7)).influence
    2.0
    """

    word: str
    influence: float
    flips: tuple[int, ...]


def map_words(text: str, encode: Encode, partner: Outputs, max_words: int) -> list[WordInfluence]:
    """Leave out each word (or tag) of a text in turn.

    >>> def encode(texts):  # one bit a word
    ...     return np.array([[2 * ("red" in text) - 1, 2 * ("dog" in text) - 1] for text in texts])
    >>> influences = map_words("a red dog", encode, np.ones(2), max_words=10)
    >>> [(word.word, word.flips) for word in influences]
    [('a', ()), ('red', (1,)), ('dog', (2,))]
    """
    words = text.split()
    shorter = [" ".join([*words[:i], *words[i + 1 :]]) for i in range(min(max_words, len(words)))]
    rows = encode([text, *shorter])
    changes = _distance_changes(rows[0], rows[1:], partner)
    flips = binarize(rows[1:]) != binarize(rows[:1])
    influences = zip(words, changes.tolist(), flips, strict=False)
    return [WordInfluence(word, change, _numbers(bits)) for word, change, bits in influences]


def _numbers(bits: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the numbers (from 1) of the bits that are set."""
    return tuple((np.flatnonzero(bits) + 1).tolist())
