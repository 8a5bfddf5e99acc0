"""Occlusion: what becomes of a pair's distance when a part of a picture is hidden, or a word is left out.

Zeiler and Fergus 2014 (§ 4.2) slide a grey square over a picture and watch the class probability; here the relaxed
Hamming distance of the pair (eq. (2) of the paper) and its bits are watched. The model is only called: any function
from items to outputs can be explained.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from channelhash.channels import relaxed_hamming
from channelhash.codes import binarize
from channelhash.explanation.agreeing_bits import Outputs

#: ``n`` items of one modality to real-valued outputs ``(n, k)``.
Encode = Callable[[Sequence[Any]], Outputs]
Figures = NDArray[np.float64]
Fill = Literal["grey", "blur"]
Cell = tuple[int, int]

#: What a larger picture is reduced to before parts of it are hidden; more than any model here reads.
SHORT_SIDE = 512
_GREY = (128, 128, 128)
# Occluded pictures held at a time.
_BATCH = 32
_ORIENTATION = 0x0112  # the EXIF tag


@dataclass(frozen=True)
class Grid:
    """A picture as ``rows`` × ``columns`` cells, over which a patch of ``patch`` × ``patch`` cells moves cell by cell.

    Attributes:
        rows: cells from top to bottom.
        columns: cells from left to right.
        patch: side of the patch in cells.
    """

    rows: int
    columns: int
    patch: int

    def positions(self) -> list[Cell]:
        """Upper left cell of every position of the patch, row by row."""
        return [(r, c) for r in range(self.rows - self.patch + 1) for c in range(self.columns - self.patch + 1)]

    def covered(self, position: Cell) -> list[Cell]:
        """The cells under the patch."""
        row, column = position
        return [(r, c) for r in range(row, row + self.patch) for c in range(column, column + self.patch)]

    def box(self, cell: Cell, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """A cell in pixels (left, top, right, bottom) of a picture of ``size`` (width, height)."""
        (row, column), (width, height) = cell, size
        return (
            round(column * width / self.columns),
            round(row * height / self.rows),
            round((column + 1) * width / self.columns),
            round((row + 1) * height / self.rows),
        )

    def cell_means(self, values: NDArray[Any]) -> Figures:
        """Mean over the positions that cover each cell.

        Args:
            values: ``(len(positions),)``, one a position.

        Returns:
            ``(rows, columns)``.
        """
        total, count = np.zeros((self.rows, self.columns)), np.zeros((self.rows, self.columns))
        for (row, column), value in zip(self.positions(), values.tolist(), strict=True):
            here = np.s_[row : row + self.patch, column : column + self.patch]
            total[here] += value
            count[here] += 1
        return total / count


def picture_grid(size: tuple[int, int], cells: int, patch: int) -> Grid:
    """The grid of a picture of ``size`` (width, height): ``cells`` along the short side, cells nearly square."""
    short = min(size)
    columns, rows = (max(cells, round(cells * side / short)) for side in size)
    return Grid(rows, columns, patch)


def reduced(picture: Image.Image) -> Image.Image:
    """The picture in RGB, its short side at most 512 pixels; not turned: models read pixels as they are stored."""
    factor = SHORT_SIDE / min(picture.size)
    if factor < 1:
        target = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
        picture.draft("RGB", target)  # a JPEG file is decoded straight to a nearby smaller size
        return picture.convert("RGB").resize(target, Image.Resampling.BILINEAR)
    return picture.convert("RGB")


def hidden(picture: Image.Image, grid: Grid, cells: Collection[Cell], fill: Fill) -> Image.Image:
    """The picture with some cells filled with grey, or with the picture blurred beyond recognition."""
    shown = picture.copy()
    filler = _filler(picture, fill)
    for cell in cells:
        box = grid.box(cell, picture.size)
        shown.paste(filler.crop(box), box)
    return shown


def _filler(picture: Image.Image, fill: Fill) -> Image.Image:
    if fill == "blur":
        return picture.filter(ImageFilter.GaussianBlur(min(picture.size) / 8))
    return Image.new("RGB", picture.size, _GREY)


def occluded(picture: Image.Image, grid: Grid, fill: Fill) -> Iterator[Image.Image]:
    """The picture with the patch at each of its positions, row by row."""
    filler = _filler(picture, fill)
    for position in grid.positions():
        shown = picture.copy()
        corners = [grid.box(cell, picture.size) for cell in grid.covered(position)]
        box = (corners[0][0], corners[0][1], corners[-1][2], corners[-1][3])
        shown.paste(filler.crop(box), box)
        yield shown


def distance_changes(whole: Outputs, parts: Outputs, other: Outputs) -> Figures:
    """How much farther from the other item a part lies than the whole: d(part, other) − d(whole, other), in bits.

    Args:
        whole: ``(k,)`` outputs of the whole item.
        parts: ``(n, k)`` outputs of it with something left out.
        other: ``(k,)`` outputs of the other item.

    Returns:
        ``(n,)`` in [−k, k]: positive where what was left out holds the pair together, negative where it parts it.
    """
    rows = torch.from_numpy(np.concatenate([whole[None], parts]).astype(np.float64))
    distances: Figures = relaxed_hamming(rows, torch.from_numpy(other.astype(np.float64))[None])[:, 0].numpy()
    changes: Figures = distances[1:] - distances[0]
    return changes


def flipped_bits(whole: Outputs, parts: Outputs) -> NDArray[np.bool_]:
    """Which bits each part has other than the whole: ``(n, k)``."""
    flips: NDArray[np.bool_] = binarize(parts) != binarize(whole[None])
    return flips


@dataclass(frozen=True)
class PictureMap:
    """What the parts of a picture do for a pair, cell by cell: means over the patches that cover a cell.

    Attributes:
        picture: what was looked at, upright and reduced.
        influence: ``(rows, columns)`` change of the relaxed distance in bits; positive holds the pair together.
        flips: ``(rows, columns)`` number of the picture's own bits that flip.
        patch: side of the patch in cells.
        strongest: numbers (from 1) of the bits that flip under the patch that changes the distance most.
        flipping: ``(k,)`` share of the positions at which each bit flips.
    """

    picture: Image.Image
    influence: Figures
    flips: Figures
    patch: int
    strongest: tuple[int, ...]
    flipping: Figures


def map_picture(picture: Image.Image, grid: Grid, encode: Encode, other: Outputs, fill: Fill) -> PictureMap:
    """Slide the patch over a picture.

    Args:
        picture: what `reduced` gives.
        grid: cells and patch.
        encode: pictures to outputs; called with at most 32 at a time.
        other: ``(k,)`` outputs of the other item of the pair.
        fill: what the patch shows.
    """
    whole = encode([picture])[0]
    parts, pictures = [], occluded(picture, grid, fill)
    while batch := list(islice(pictures, _BATCH)):
        parts.append(encode(batch))
    rows = np.concatenate(parts)
    changes, flips = distance_changes(whole, rows, other), flipped_bits(whole, rows)
    strongest = flips[int(np.abs(changes).argmax())]
    return PictureMap(
        picture,
        grid.cell_means(changes),
        grid.cell_means(flips.sum(axis=1)),
        grid.patch,
        tuple((np.flatnonzero(strongest) + 1).tolist()),
        flips.mean(axis=0),
    )


def upright(found: PictureMap, orientation: int) -> PictureMap:
    """The map of a picture that its EXIF orientation says to turn before it is shown."""
    if orientation not in range(2, 9):
        return found

    def turned(values: Image.Image) -> Image.Image:
        values.getexif()[_ORIENTATION] = orientation
        return ImageOps.exif_transpose(values)

    def turned_cells(cells: Figures) -> Figures:
        return np.asarray(turned(Image.fromarray(cells.astype(np.float32))), dtype=np.float64)

    return PictureMap(
        turned(found.picture.copy()),
        turned_cells(found.influence),
        turned_cells(found.flips),
        found.patch,
        found.strongest,
        found.flipping,
    )


def orientation_of(picture: Image.Image) -> int:
    """The EXIF orientation of an opened picture, 1 where there is none."""
    return int(picture.getexif().get(_ORIENTATION, 1))


@dataclass(frozen=True)
class WordInfluence:
    """What one word does for a pair.

    Attributes:
        word: as it stands in the text; each occurrence is a word of its own.
        influence: change of the relaxed distance in bits without it; positive holds the pair together.
        flips: numbers (from 1) of the bits that flip without it.
    """

    word: str
    influence: float
    flips: tuple[int, ...]


def map_words(text: str, encode: Encode, other: Outputs, most: int) -> list[WordInfluence]:
    """Leave out each word (or tag) of a text in turn.

    Args:
        text: words separated by white space.
        encode: texts to outputs.
        other: ``(k,)`` outputs of the other item of the pair.
        most: only the first so many words.
    """
    words = text.split()
    if not words:
        return []
    rows = encode([text, *without_each(words, most)])
    changes, flips = distance_changes(rows[0], rows[1:], other), flipped_bits(rows[0], rows[1:])
    return [
        WordInfluence(word, change, tuple((np.flatnonzero(bits) + 1).tolist()))
        for word, change, bits in zip(words, changes.tolist(), flips, strict=False)
    ]


def without_each(words: Sequence[str], most: int) -> list[str]:
    """The text without its first word, without its second, … up to the ``most``-th."""
    return [" ".join([*words[:i], *words[i + 1 :]]) for i in range(min(most, len(words)))]
