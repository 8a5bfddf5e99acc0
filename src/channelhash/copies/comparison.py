"""Compare images by their small copies: whether one is a copy of another, whatever their codes are.

Two images are alike if they agree in shape, brightness, colour and, if one is a page, detail.

*Shape.* A grey copy holds 16 × 16 means of the upright image, whatever its proportions. The means
of rows and columns, which all images with a horizon share, are subtracted. The 256 values a and b
that are left, of mean 0, must correlate:

    (⟨a, b⟩ / 256 + 4) / sqrt((⟨a, a⟩ / 256 + 4) (⟨b, b⟩ / 256 + 4)) ≥ 0.85

*Brightness.* The 4 lets any two images without contrast pass, so the 4 × 4 means of red, green and
blue are compared as well. With c, the lesser contrast of both (the root of ⟨a, a⟩ / 256), their
root mean square difference must be at most min(32, 8 + 8 c) + 2 c levels. The limit falls with the
contrast, as two skies without a cloud differ in nothing else.

*Colour.* A red car and a blue one are different images; a paler copy is a copy. Colours are the
16 × 16 means of Cb and Cr, which hold no brightness. Those of the more colourful image are made as
pale as the other's, by the ratio of their standard deviations (0 for a grey copy), and are shifted
by at most 12 levels, as another white balance does. After that, each cell of either image must lie
within the colours that the other has in the 3 × 3 cells around it, give or take 15 levels and three
tenths of the stronger colour.

*Detail.* Pages, receipts and screenshots of one layout have one shape. Where at least 0.4 of either
image has one level of grey, give or take 8, `channelhash.copies.detail` looks closer.

Each pair is compared in the eight positions that turns by 90° and mirrors give. In the seven that
are not upright, shapes must correlate by 0.08 more. Size, compression, brightness and contrast
change all this little.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from channelhash.copies.detail import (
    Floats,
    PairMask,
    Seen,
    rows_and_columns,
    same_detail,
    stack,
    turn_by,
    unit,
)
from channelhash.copies.small_copies import SIDE, SmallCopy

#: Positions of an image: two mirrors, each with and without a turn.
_TURNS = 8
#: How much more shapes must correlate in all positions but the first: seven more may agree by
#: chance.
_TURNED = 0.08
#: Constant of the correlation of shapes: the variance of noise in small copies.
NOISE = 4
#: Means a side of which brightness is compared; few, so that a border that is cut off moves little.
_PATCHES = 4
#: Levels by which the brightness of images with contrast may differ.
_LEVELS = 32
#: Levels by which brightness may differ besides, for each level of contrast.
_PER_CONTRAST = 2
#: Levels by which the brightness of images without contrast may differ, and for each level of
#: contrast as many again.
_PLAIN = 8
#: Levels by which colours may be shifted as a whole, as by another white balance.
_SHIFT = 12
#: Part of a colour by which it may differ besides the limit, as strong colours change more.
_OF_COLOUR = 0.3
#: Red, green and blue -> Cb and Cr, as JPEG has them.
CHROMA = np.array([[-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]], dtype=np.float32)
#: Pairs whose colours are compared, or that are aligned, at a time, which bounds memory.
AT_ONCE = 1 << 10


class AlikeLimits(NamedTuple):
    """What two images must reach.

    Attributes:
        shape: least correlation of their shapes.
        colour: most levels by which their colours may differ.
    """

    shape: float
    colour: float


#: For two images. A white balance of 15 % on red and blue changes 99 % of photographs by at most 13
#: levels.
ALIKE = AlikeLimits(0.85, 15)
#: For any two images in a group. Copies that were changed in opposite ways, as one cut and one with
#: a border, or one warmer and one cooler, may differ somewhat more.
IN_GROUP = AlikeLimits(0.75, 22)


def alike_wholes(
    copies: Sequence[SmallCopy],
    others: Sequence[SmallCopy],
    limits: AlikeLimits = ALIKE,
    among: PairMask | None = None,
) -> PairMask:
    """Return for each of ``n`` images and each of ``m`` others whether they are alike as wholes;
    only for the pairs ``among`` if these are given.

    >>> dark = np.outer(np.arange(16), np.arange(16)).astype(np.uint8) // 2
    >>> colour = np.zeros((16, 16, 3), np.uint8)
    >>> greys = [dark, 2 * dark, 2 * dark[::-1], 2 * dark**2]
    >>> one, *others = [SmallCopy("", grey, colour, False) for grey in greys]
    >>> alike_wholes([one], others).tolist()
    [[True, True, False]]
    """
    pairs = correlate(part_by_mirrors(copies), part_by_mirrors(others)) >= limits.shape
    return confirm(copies, others, pairs if among is None else pairs & among, limits)


def confirm(
    copies: Sequence[SmallCopy],
    others: Sequence[SmallCopy],
    pairs: PairMask,
    limits: AlikeLimits = ALIKE,
) -> PairMask:
    """Return those of the pairs ``(n, m)`` that are alike in one of the eight positions."""
    rows, columns = rows_and_columns(pairs)
    cut = np.ix_(rows, columns)
    left = [copies[row] for row in rows.tolist()]
    right = [others[column] for column in columns.tolist()]
    near = np.zeros_like(pairs)
    for turn in range(_TURNS):
        rest = pairs[cut] & ~near[cut]
        if not rest.any():
            break
        turned = [copy.turned(turn) for copy in right]
        least = limits._replace(shape=limits.shape + _TURNED) if turn else limits
        near[cut] |= alike_in_position(left, turned, least, rest)
    return near


def turns_of(copies: Sequence[SmallCopy]) -> list[int]:
    """Return for each copy of an image the position in which it is most like the first one; 0 where
    it is as it is.

    >>> grey = np.outer(np.arange(16), np.arange(16)).astype(np.uint8)
    >>> one = SmallCopy("", grey, np.zeros((16, 16, 3), np.uint8), False)
    >>> turns_of([one, one.turned(1), one])
    [0, 1, 0]
    """
    first = unit(stack([copies[0].grey]), NOISE)[0][0]
    turns = []
    for copy in copies:
        positions = stack(turn_by(copy.grey, turn) for turn in range(_TURNS))
        correlations = unit(positions, NOISE)[0] @ first
        correlations[1:] -= _TURNED
        turns.append(int(correlations.argmax()))
    return turns


def part_by_mirrors(copies: Sequence[SmallCopy]) -> Floats:
    """Return the unit vectors of images in four parts ``(n, 4, 65)``. A mirror keeps or negates
    each part as a whole.

    The parts are the sums and differences of rows, and of columns, that are equally far from the
    middle.
    """
    vectors = unit(stack(copy.grey for copy in copies), NOISE)[0]
    images = vectors[:, :-1].reshape(-1, SIDE, SIDE)
    half = SIDE // 2
    parts = np.zeros((len(copies), 4, half * half + 1), dtype=np.float32)
    for place, (row, column) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        rows = images[:, :half] + row * images[:, : -half - 1 : -1]
        part = (rows[:, :, :half] + column * rows[:, :, : -half - 1 : -1]) / 2
        parts[:, place, :-1] = part.reshape(len(copies), half * half)
    parts[:, 0, -1] = vectors[:, -1]
    return parts


def correlate(a: Floats, b: Floats) -> Floats:
    """Return the largest correlation ``(n, m)`` of each image with each other one in its eight
    positions; both as from `part_by_mirrors`.

    A mirror only changes the signs of parts, so four products give four positions. The transposed
    parts give the other four.
    """
    half = SIDE // 2
    transposed = b[:, [0, 2, 1, 3]]
    transposed[:, :, :-1] = (
        transposed[:, :, :-1].reshape(-1, 4, half, half).swapaxes(2, 3).reshape(-1, 4, half * half)
    )
    best = _correlate_mirrored(a, b)
    np.maximum(best, _correlate_mirrored(a, transposed), out=best)
    return best


def _correlate_mirrored(a: Floats, b: Floats) -> Floats:
    even, across, down, odd = (a[:, part] @ b[:, part].T for part in range(4))
    upright: Floats = even + across
    mirrored = np.subtract(even, across, out=even)
    upright += np.abs(down + odd)
    mirrored += np.abs(np.subtract(down, odd, out=down), out=down)
    np.maximum(upright, mirrored, out=upright)
    return upright


def alike_in_position(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], limits: AlikeLimits, pairs: PairMask
) -> PairMask:
    """Return those of the pairs that are alike in the positions they are in."""
    a, a_energies = unit(stack(copy.grey for copy in copies), NOISE)
    b, b_energies = unit(stack(copy.grey for copy in others), NOISE)
    near: PairMask = pairs & (a @ b.T >= limits.shape)
    if not near.any():
        return near
    contrasts = np.sqrt(np.minimum.outer(a_energies, b_energies))
    levels = np.minimum(_LEVELS, _PLAIN + _PLAIN * contrasts) + _PER_CONTRAST * contrasts
    colours = stack(copy.colour for copy in copies)
    other_colours = stack(copy.colour for copy in others)
    near &= _differences(colours, other_colours) <= levels
    near &= _same_colours(colours, other_colours, near, limits.colour)
    return _same_pages(copies, others, near)


def _differences(a: Floats, b: Floats) -> Floats:
    """Return the root mean square differences ``(n, m)`` of coloured copies in 4 × 4 patches."""
    left = _patches(a)
    right = _patches(b)
    products = left @ right.T
    squares = (left**2).mean(axis=1)[:, None] + (right**2).mean(axis=1)
    differences: Floats = np.sqrt(np.maximum(squares - 2 / left.shape[1] * products, 0))
    return differences


def _patches(colours: Floats) -> Floats:
    step = SIDE // _PATCHES
    means: Floats = colours.reshape(-1, _PATCHES, step, _PATCHES, step, 3).mean(axis=(2, 4))
    return means.reshape(len(colours), 3 * _PATCHES**2)


def _same_colours(a: Floats, b: Floats, pairs: PairMask, limit: float) -> PairMask:
    """Return those of the pairs of coloured copies whose colours do not contradict each other."""
    same = np.zeros_like(pairs)
    rows, columns = np.nonzero(pairs)
    colours = np.concatenate([a, b]) @ CHROMA.T
    deviations = colours.std(axis=(1, 2))
    # In images of one colour, which have no spread, the 1 leaves colours as strong as they are.
    spreads = np.sqrt((deviations**2).sum(axis=1)) + 1
    least, most = _range_around(colours)
    for start in range(0, len(rows), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        one = rows[part]
        other = len(a) + columns[part]
        is_paler = spreads[one] <= spreads[other]
        pale = np.where(is_paler, one, other)
        strong = np.where(is_paler, other, one)
        # Neither is the best fit of all cells: what differs in one place must not tint the rest.
        ratios = (spreads[pale] / spreads[strong])[:, None, None, None]
        paler = colours[pale]
        faded = ratios * colours[strong]
        shifts = np.median(paler - faded, axis=(1, 2), keepdims=True).clip(-_SHIFT, _SHIFT)
        fitted = faded + shifts
        strength = np.maximum((paler**2).sum(axis=-1), (fitted**2).sum(axis=-1)) ** 0.5
        beyond = np.maximum(
            _outside(paler, ratios * least[strong] + shifts, ratios * most[strong] + shifts),
            _outside(fitted, least[pale], most[pale]),
        )
        same[rows[part], columns[part]] = (beyond <= limit + _OF_COLOUR * strength).all(axis=(1, 2))
    return same


def _range_around(colours: Floats) -> tuple[Floats, Floats]:
    """Return the least and the most ``(n, 16, 16, 2)`` in the 3 × 3 cells around each cell, as
    borders move things a little.
    """
    padded = np.pad(colours, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    least = colours.copy()
    most = colours.copy()
    for row, column in np.ndindex(3, 3):
        moved = padded[:, row : row + SIDE, column : column + SIDE]
        np.minimum(least, moved, out=least)
        np.maximum(most, moved, out=most)
    return least, most


def _outside(colours: Floats, least: Floats, most: Floats) -> Floats:
    """Return for each cell ``(n, 16, 16)`` how far its colour lies outside a range."""
    beyond: Floats = np.maximum(least - colours, colours - most).max(axis=-1)
    return beyond


def _same_pages(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], pairs: PairMask
) -> PairMask:
    """Return the pairs without those of a page and another file that differ in detail."""
    pages = pairs & np.logical_or.outer(
        [copy.is_page for copy in copies], [copy.is_page for copy in others]
    )
    pages &= np.not_equal.outer([copy.path for copy in copies], [copy.path for copy in others])
    rows, columns = rows_and_columns(pages)
    cut = np.ix_(rows, columns)
    left = [_seen(copies[row]) for row in rows.tolist()]
    right = [_seen(others[column]) for column in columns.tolist()]
    pairs[cut] &= ~pages[cut] | same_detail(left, right, pages[cut])
    return pairs


def _seen(copy: SmallCopy) -> Seen:
    return copy.path, copy.turn
