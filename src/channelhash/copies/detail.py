"""Compare two images of one shape in detail, as pages, receipts and screenshots of one layout have
one shape.

*Lines.* The first comparison is cheap. It takes grey copies of up to 256 × 256 smoothed means in
tiles of 8 × 8 cells. Each tile must correlate by at least 0.3.

*Letters.* Then both images are brought to the finest grid that both fill, of at most 1,024 cells a
side. A digit that differs changes few cells of it, but changes them much: each window of 8 × 8
cells with contrast must correlate by 0.93. In a copy that was blurred or sharpened all windows
correlate less; if even the best quarter of them stays below 0.995, 0.65 is enough. Digits of at
most 7 pixels across are often not told apart.

The correlation of two tiles a and b, around their means, has a constant c, without which noise
would count in tiles of one colour:

    (⟨a, b⟩ + c) / sqrt((⟨a, a⟩ + c) (⟨b, b⟩ + c))
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.utils.image_files import decode, open_image, upright_size

#: Side of the grid of lines.
FINE_SIDE = 256
#: Cells a side of parts of images.
_PART_SIDE = 128
#: Side of a tile of lines, and of a window of letters, in cells.
_TILE = 8
#: Constant of the correlation of tiles: the variance of noise.
_NOISE = 16
#: Least correlation of a tile: low, as letters are compared after.
_SAME_TILE = 0.3
#: The longest side of the grid of letters, which bounds time and memory.
_LETTER_SIDE = 1024
#: Sides of the grid of letters are multiples of this, so that images of many sizes share few grids.
_LETTER_STEP = 16
#: Constant of the correlation of windows: the variance of what JPEG leaves around letters.
_RINGING = 64
#: Variance from which a window counts, in multiples of `_RINGING`.
_CONTRAST = 4
#: Least correlation of windows of a copy.
_SAME_WINDOW = 0.93
#: Correlation that a quarter of the windows exceed unless a copy was blurred or sharpened.
_BLURRED = 0.995
#: Least correlation of windows of a copy that was.
_SAME_BLURRED_WINDOW = 0.65
#: Grids of lines in memory, some 130 MB.
_LINES_CACHED = 1 << 11
#: Grids of letters in memory, up to 200 MB.
_LETTERS_CACHED = 1 << 7
#: Images that are compared with as many others at a time, so that their letters stay in memory.
_BLOCK = 1 << 5

#: Left, top, right and bottom.
Box = tuple[int, int, int, int]
#: An image file, and how it is turned, see `turn_by`.
Seen = tuple[str, int]
Floats = NDArray[np.float32]
PairMask = NDArray[np.bool_]
Places = NDArray[np.int64]
_Read = TypeVar("_Read")
_ImageArray = TypeVar("_ImageArray", NDArray[np.uint8], Floats)


class _Lines(NamedTuple):
    """A larger copy of an image file.

    Attributes:
        cells: ``(256, 256)``.
        grid: side of the finest grid that the image fills twice.
        sides: height and width of the image.
    """

    cells: NDArray[np.uint8]
    grid: int
    sides: tuple[int, int]


class _Letters(NamedTuple):
    """An image on a grid of letters.

    Attributes:
        cells: ``(h, w)``.
        means: of each window.
        variances: of each window.
    """

    cells: Floats
    means: Floats
    variances: Floats


def read_now(read: Callable[[str, str], _Read], path: str) -> _Read | None:
    """Return ``read(path, state)`` of a file as it is now; None if it cannot be read.

    The state is a text that changes with the file. An editor may put the time of the content back,
    but not that of the inode.

    >>> read_now(lambda path, state: state, "none.jpg") is None
    True
    """
    try:
        status = os.stat(path)
        return read(path, f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")
    except OSError:
        return None


def turn_by(image: _ImageArray, turn: int) -> _ImageArray:
    """Return an image ``(height, width, …)`` in one of its eight positions: bit 4 of ``turn``
    transposes it, then bits 1 and 2 mirror it.

    >>> turn_by(np.array([[1, 2], [3, 4]], np.uint8), 5).tolist()
    [[2, 4], [1, 3]]
    """
    if turn & 4:
        image = image.swapaxes(0, 1)
    return image[:: -1 if turn & 1 else 1, :: -1 if turn & 2 else 1]


def shrink(image: Image.Image, side: int) -> Image.Image:
    """Return the means of an image in a grid of ``side × side`` cells.

    >>> shrink(Image.new("L", (9, 5)), 2).size
    (2, 2)
    """
    return image.resize((side, side), Image.Resampling.BOX)


def rows_and_columns(pairs: PairMask) -> tuple[Places, Places]:
    """Return the rows, and the columns, that have any pair.

    >>> [side.tolist() for side in rows_and_columns(np.array([[False, True], [False, False]]))]
    [[0], [1]]
    """
    return np.flatnonzero(pairs.any(axis=1)), np.flatnonzero(pairs.any(axis=0))


def same_detail(a: Sequence[Seen], b: Sequence[Seen], pairs: PairMask) -> PairMask:
    """Return those of the pairs ``(n, m)`` of ``n`` images and ``m`` others that are the same in
    detail.

    A file that cannot be read any more is the same as no other.

    >>> same_detail([("none.jpg", 0)], [("none.jpg", 0)], np.array([[True]])).tolist()
    [[False]]
    """
    left = [_lines_of(seen) for seen in a]
    right = [_lines_of(seen) for seen in b]
    same = _same_lines(left, right, pairs)
    rows, columns = np.nonzero(same)
    in_blocks = np.lexsort((columns, rows, columns // _BLOCK, rows // _BLOCK))
    for row, column in zip(rows[in_blocks].tolist(), columns[in_blocks].tolist(), strict=True):
        one = left[row]
        other = right[column]
        if one and other:
            same[row, column] = _same_letters(a[row], b[column], _grid_of_both(one, other))
    return same


def _lines_of(seen: Seen) -> _Lines | None:
    path, turn = seen
    lines = read_now(_read_lines, path)
    if lines is None:
        return None
    height, width = lines.sides
    sides = (width, height) if turn & 4 else (height, width)
    return lines._replace(cells=turn_by(lines.cells, turn), sides=sides)


@lru_cache(_LINES_CACHED)
def _read_lines(path: str, _changed: str) -> _Lines:
    with open_image(path) as opened:
        width, height = upright_size(opened)
        grey = decode(opened, 2 * FINE_SIDE).convert("L")
    grid = FINE_SIDE
    while grid > max(min(width, height) // 2, 2 * _TILE):
        grid //= 2
    cells = _smooth(np.asarray(shrink(grey, FINE_SIDE), dtype=np.float32))
    return _Lines(cells.round().astype(np.uint8), grid, (height, width))


def _smooth(cells: Floats) -> Floats:
    """Average neighbouring cells: what is as fine as a cell changes with the size of a copy."""
    for axis in (0, 1):
        around = np.roll(cells, 1, axis) + np.roll(cells, -1, axis)
        cells = ((around + 2 * cells) / 4).astype(np.float32)
    return cells


def cells_in(path: str, box: Box) -> Floats | None:
    """Return the means ``(1, 128, 128)`` of levels of grey in a part of an image file, in 256ths;
    None if it cannot be read.

    >>> cells_in("none.jpg", (0, 0, 256, 256)) is None
    True
    """
    lines = read_now(_read_lines, path)
    if lines is None:
        return None
    part = Image.fromarray(lines.cells).resize((_PART_SIDE, _PART_SIDE), Image.Resampling.BOX, box)
    return np.asarray(part, dtype=np.float32)[None]


def correlate_tiles(a: Floats, b: Floats) -> float:
    """Return the least correlation of tiles of 8 × 8 cells of two images ``(height, width)``.

    >>> correlate_tiles(np.eye(8, dtype=np.float32), np.eye(8, dtype=np.float32))
    1.0
    """
    left, right = (
        unit(
            _smooth(cells).reshape(-1, _TILE, len(cells) // _TILE, _TILE).swapaxes(1, 2), 2 * _NOISE
        )[0]
        for cells in (a, b)
    )
    return float((left * right).sum(axis=-1).min())


def _same_lines(
    a: Sequence[_Lines | None], b: Sequence[_Lines | None], pairs: PairMask
) -> PairMask:
    """Return those of the pairs whose lines are the same on the finest grid of both."""
    a_grids = _grids(a)
    b_grids = _grids(b)
    finest = np.minimum.outer(a_grids, b_grids)
    same = np.zeros_like(pairs)
    for grid in np.unique(finest[finest > 0]).tolist():
        rows = np.flatnonzero(a_grids >= grid)
        columns = np.flatnonzero(b_grids >= grid)
        cut = np.ix_(rows, columns)
        same[cut] |= _same_tiles(
            _cells(a, rows, grid), _cells(b, columns, grid), pairs[cut] & (finest[cut] == grid)
        )
    return same


def _grids(copies: Sequence[_Lines | None]) -> NDArray[np.int64]:
    return np.array([lines.grid if lines else 0 for lines in copies], dtype=np.int64)


def _cells(copies: Sequence[_Lines | None], rows: Places, grid: int) -> Floats:
    """Return the cells of some copies that were read, as ``(n, grid, grid)``."""
    step = FINE_SIDE // grid
    chosen = [copies[row] for row in rows.tolist()]
    cells = stack(lines.cells for lines in chosen if lines)
    means: Floats = cells.reshape(len(rows), grid, step, grid, step).mean(axis=(2, 4))
    return means


def _same_tiles(a: Floats, b: Floats, pairs: PairMask) -> PairMask:
    """Return those of the pairs of cells on one grid whose tiles all correlate."""
    grid = a.shape[1]
    for start in range(0, grid, _TILE):
        rows, columns = rows_and_columns(pairs)
        if not len(rows):
            break
        left = _unit_tiles(a[rows, start : start + _TILE])
        right = _unit_tiles(b[columns, start : start + _TILE])
        pairs[np.ix_(rows, columns)] &= (left @ right.transpose(0, 2, 1)).min(axis=0) >= _SAME_TILE
    return pairs


def _unit_tiles(cells: Floats) -> Floats:
    """Return the unit vectors ``(tiles, n, 8 * 8 + 1)`` of a row of tiles ``(n, 8, grid)``."""
    tiles = cells.reshape(len(cells), _TILE, -1, _TILE).transpose(2, 0, 1, 3)
    return unit(tiles, _NOISE)[0]


def stack(images: Iterable[NDArray[np.uint8]]) -> Floats:
    """Return images of one shape as one array of floats.

    >>> stack([np.zeros((2, 2), np.uint8)]).shape
    (1, 2, 2)
    """
    return np.array(list(images), dtype=np.float32)


def unit(images: Floats, least: float) -> tuple[Floats, Floats]:
    """Return unit vectors of images ``(…, side, side)``, whose products are their correlations, and
    mean squares of their values.

    Means of rows and columns are subtracted. The last element of each vector stands for the
    constant ``least`` of the correlation.

    >>> vectors, energies = unit(np.eye(2, dtype=np.float32)[None], 0.75)
    >>> (vectors @ vectors.T).round(3).tolist(), energies.tolist()
    ([[1.0]], [0.25])
    """
    means = images.mean(axis=-1, keepdims=True) + images.mean(axis=-2, keepdims=True)
    *shape, height, width = images.shape
    values = images - means + images.mean(axis=(-2, -1), keepdims=True)
    values = values.reshape(*shape, height * width)
    energies = (values**2).mean(axis=-1)
    rest = np.full((*values.shape[:-1], 1), np.sqrt(least * values.shape[-1]), dtype=np.float32)
    lengths = np.sqrt((energies + least) * values.shape[-1])
    return np.concatenate([values, rest], axis=-1) / lengths[..., None], energies


def _grid_of_both(one: _Lines, other: _Lines) -> tuple[int, int]:
    """Return height and width of the finest grid of letters that two images fill."""
    height, width = (
        min(of_one, of_other, _LETTER_SIDE) // _LETTER_STEP * _LETTER_STEP
        for of_one, of_other in zip(one.sides, other.sides, strict=True)
    )
    return max(height, _LETTER_STEP), max(width, _LETTER_STEP)


def _same_letters(a: Seen, b: Seen, grid: tuple[int, int]) -> bool:
    """Return whether all windows with contrast of two images correlate on a grid."""
    one = _letters_of(a, grid)
    other = _letters_of(b, grid)
    if one is None or other is None:
        return False
    covariances = _average_windows(one.cells * other.cells) - one.means * other.means
    variances = (one.variances + _RINGING) * (other.variances + _RINGING)
    has_contrast = np.maximum(one.variances, other.variances) > _CONTRAST * _RINGING
    correlations = ((covariances + _RINGING) / np.sqrt(variances))[has_contrast]
    if not len(correlations):
        return True
    is_blurred = np.quantile(correlations, 0.75) < _BLURRED
    least = _SAME_BLURRED_WINDOW if is_blurred else _SAME_WINDOW
    return bool(correlations.min() >= least)


def _letters_of(seen: Seen, grid: tuple[int, int]) -> _Letters | None:
    path, turn = seen
    return read_now(lambda path, state: _read_letters(path, state, turn, grid), path)


@lru_cache(_LETTERS_CACHED)
def _read_letters(path: str, _changed: str, turn: int, grid: tuple[int, int]) -> _Letters:
    height, width = grid[::-1] if turn & 4 else grid
    with open_image(path) as opened:
        grey = decode(opened, _LETTER_SIDE).convert("L")
    resized = grey.resize((width, height), Image.Resampling.BILINEAR)
    # The middle of the levels is 0, so that squares of floats lose little.
    cells = turn_by(_smooth(np.asarray(resized, dtype=np.float32) - 128), turn)
    means = _average_windows(cells)
    return _Letters(cells, means, _average_windows(cells**2) - means**2)


def _average_windows(cells: Floats) -> Floats:
    """Return the mean of each window of 8 × 8 cells at steps of 4."""
    step = _TILE // 2
    height, width = cells.shape
    sums = cells.reshape(height // step, step, width).sum(axis=1)
    sums = sums.reshape(height // step, width // step, step).sum(axis=2)
    windows: Floats = sums[:-1, :-1] + sums[1:, :-1] + sums[:-1, 1:] + sums[1:, 1:]
    windows /= _TILE**2
    return windows
