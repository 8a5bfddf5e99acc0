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

*Moved copies.* A copy may be cut, straightened, or framed by a border or a screenshot. Each image
has one or two views: the whole, and what is framed in it. Of two views, one is the template t, and
the other f shows more. The affine map M, 3 × 3 on homogeneous coordinates, is sought for which

    f(M x) ≈ t(x), both with mean 0 and deviation 1, in the middle seven eighths of t

by Gauss-Newton steps of the inverse compositional kind (Baker and Matthews, Int. J. Comput. Vis.
56, 2004), first on 16 × 16 cells, then on 32 × 32 and, from the files, on 64 × 64. There each tile
must correlate by 0.85, so that two photographs of a series, in which something moved, are none;
and both must be alike as above after the map. Pages are not sought, as letters do not show there.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from channelhash.copies.detail import (
    Floats,
    PairMask,
    Places,
    Seen,
    cells_in,
    correlate_tiles,
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
_NOISE = 4
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
_CHROMA = np.array([[-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]], dtype=np.float32)
#: Pairs whose colours are compared, or that are aligned, at a time, which bounds memory.
_AT_ONCE = 1 << 10
#: Red, green and blue -> grey.
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
#: Share of the sides of an image that a cut leaves on average, from which maps start.
_CUT = np.diag(np.array([0.86, 0.86, 1], dtype=np.float32))
#: Sides of which the outer sixteenths are left out of templates, as frames are seldom exact.
_MIDDLE = np.diag(np.array([0.875, 0.875, 1], dtype=np.float32))
#: Least product of outlines: 95 of 100 photographs of which a tenth was cut off on each side reach
#: it, and 1 of 10⁴ pairs of different ones.
_OUTLINE = 0.7
#: Part of colours in outlines.
_TINT = 0.3
#: Steps to a map: cells a side, how many, and the correlation that is needed to go on.
_STEPS = ((16, 3, 0.5), (16, 5, 0.8), (32, 3, 0.88))
#: Cells a side, and steps, of the last comparison.
_LAST = (64, 4)
#: How much of the other view a template may cover: a tenth cut off on each side leaves 0.64.
_COVERED = (0.4, 1.25)
#: Change of a map below which nothing has moved: less than a turn by 1°.
_STILL = 0.015
#: Most that a step changes a map by; longer ones go astray.
_STEP = 0.2
#: Share of the trace that is added to the diagonal of equations of steps.
_DAMPING = 1e-3
#: Least correlation of tiles. With it, no two different ones of 10,000 photographs of COCO are taken
#: for moved copies; it was chosen on these, too.
_SAME_TILE = 0.85


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


def alike(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], limits: AlikeLimits = ALIKE
) -> PairMask:
    """Return for each of ``n`` images and each of ``m`` others whether they are alike, as wholes or
    moved.

    >>> flat = SmallCopy("", np.zeros((16, 16), np.uint8), np.zeros((16, 16, 3), np.uint8), False)
    >>> alike([flat], [flat]).tolist()
    [[True]]
    """
    near = alike_wholes(copies, others, limits)
    return near | confirm_moved(copies, others, ~near)


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
        near[cut] |= _alike_in_position(left, turned, least, rest)
    return near


def turns_of(copies: Sequence[SmallCopy]) -> list[int]:
    """Return for each copy of an image the position in which it is most like the first one; 0 where
    it is as it is.

    >>> grey = np.outer(np.arange(16), np.arange(16)).astype(np.uint8)
    >>> one = SmallCopy("", grey, np.zeros((16, 16, 3), np.uint8), False)
    >>> turns_of([one, one.turned(1), one])
    [0, 1, 0]
    """
    first = unit(stack([copies[0].grey]), _NOISE)[0][0]
    turns = []
    for copy in copies:
        positions = stack(turn_by(copy.grey, turn) for turn in range(_TURNS))
        correlations = unit(positions, _NOISE)[0] @ first
        correlations[1:] -= _TURNED
        turns.append(int(correlations.argmax()))
    return turns


def part_by_mirrors(copies: Sequence[SmallCopy]) -> Floats:
    """Return the unit vectors of images in four parts ``(n, 4, 65)``. A mirror keeps or negates
    each part as a whole.

    The parts are the sums and differences of rows, and of columns, that are equally far from the
    middle.
    """
    vectors = unit(stack(copy.grey for copy in copies), _NOISE)[0]
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


def _alike_in_position(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], limits: AlikeLimits, pairs: PairMask
) -> PairMask:
    """Return those of the pairs that are alike in the positions they are in."""
    a, a_energies = unit(stack(copy.grey for copy in copies), _NOISE)
    b, b_energies = unit(stack(copy.grey for copy in others), _NOISE)
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
    colours = np.concatenate([a, b]) @ _CHROMA.T
    deviations = colours.std(axis=(1, 2))
    # In images of one colour, which have no spread, the 1 leaves colours as strong as they are.
    spreads = np.sqrt((deviations**2).sum(axis=1)) + 1
    least, most = _range_around(colours)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
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


class Views(NamedTuple):
    """Views of images.

    Attributes:
        copies: small ones, of wholes and of what is framed in them, without pages.
        owners: places of the images that they show.
        whole: ``(views, 96)``, their outlines: unit vectors of shapes and colours.
        middle: those of their middles.
    """

    copies: list[SmallCopy]
    owners: Places
    whole: Floats
    middle: Floats


def views_of(copies: Sequence[SmallCopy]) -> Views:
    """Return the views of images.

    >>> len(views_of([]).whole)
    0
    """
    seen = [(place, view) for place, copy in enumerate(copies) for view in copy.views]
    views = [view for _, view in seen]
    colours = stack(view.colour for view in views).reshape(-1, SIDE, SIDE, 3)
    layers = np.moveaxis(colours @ np.vstack([_GREY, _CHROMA]).T, -1, 0)
    return Views(
        views,
        np.array([place for place, _ in seen], dtype=np.int64),
        _outlines(layers),
        _outlines(np.stack([_warp(layer, _CUT, _places(SIDE)) for layer in layers])),
    )


def _outlines(layers: Floats) -> Floats:
    """Return unit vectors of 8 × 8 means of grey, and of 4 × 4 means of Cb and Cr."""
    grey, *tints = (_means(layer, side) for layer, side in zip(layers, (8, 4, 4), strict=True))
    vectors = [np.sqrt(1 - _TINT) * unit(grey, _NOISE)[0]]
    vectors += [np.sqrt(_TINT / 2) * unit(tint, _NOISE)[0] for tint in tints]
    return np.concatenate(vectors, axis=1, dtype=np.float32)


def may_be_moved(a: Views, b: Views) -> PairMask:
    """Return whether each view of ``b`` may be a part of each of ``a``, moved.

    >>> may_be_moved(views_of([]), views_of([])).shape
    (0, 0)
    """
    may_be: PairMask = a.middle @ b.whole.T >= _OUTLINE
    return may_be


def confirm_moved(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], pairs: PairMask
) -> PairMask:
    """Return those of the pairs ``(n, m)`` of which one is a moved copy of the other.

    >>> confirm_moved([], [], np.zeros((0, 0), bool)).shape
    (0, 0)
    """
    rows, columns = rows_and_columns(pairs)
    n = len(rows)
    images = [copies[row] for row in rows.tolist()] + [others[place] for place in columns.tolist()]
    views = views_of(images)
    asked = np.zeros((len(images), len(images)), dtype=bool)
    asked[:n, n:] = pairs[np.ix_(rows, columns)]
    asked |= asked.T  # either may be a part of the other
    asked_views = asked[np.ix_(views.owners, views.owners)]
    wholes, parts = np.nonzero(may_be_moved(views, views) & asked_views)
    same = np.zeros_like(asked)
    for start in range(0, len(parts), _AT_ONCE):
        for whole, part, change in _align(
            views, wholes[start : start + _AT_ONCE], parts[start : start + _AT_ONCE]
        ):
            place = views.owners[whole], views.owners[part]
            same[place] = (
                same[place]
                or same[place[::-1]]
                or _same_moved(views.copies[whole], views.copies[part], change)
            )
    moved = np.zeros_like(pairs)
    moved[np.ix_(rows, columns)] = (same | same.T)[:n, n:]
    return moved


def _align(views: Views, wholes: Places, parts: Places) -> Iterator[tuple[int, int, Floats]]:
    """Yield the pairs of views that can be aligned, and their maps."""
    maps = np.repeat(_CUT[None], len(wholes), axis=0)
    for side, n_steps, least in _STEPS:
        templates = _means(stack(views.copies[part].fine for part in parts.tolist()), side)
        seen = _means(stack(views.copies[whole].fine for whole in wholes.tolist()), side)
        maps, correlations = _refine(templates, seen, maps, n_steps)
        covered = np.linalg.det(maps)
        is_aligned = (correlations >= least) & (covered > _COVERED[0]) & (covered < _COVERED[1])
        wholes = wholes[is_aligned]
        parts = parts[is_aligned]
        maps = maps[is_aligned]
        if not len(maps):
            break
    yield from zip(wholes.tolist(), parts.tolist(), maps, strict=True)


def _refine(templates: Floats, seen: Floats, maps: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """Return maps ``(n, 3, 3)`` after some steps, and the correlations that they reach.

    A step is the change of a map that makes the template most like what is seen, to first order:
    it is taken back. What it is solved with depends on the template alone.
    """
    n, side, _ = templates.shape
    middle = slice(side // 16, side - side // 16)
    places = _places(side)[:, middle, middle]
    shown = templates[:, middle, middle].reshape(n, -1)
    deviations = np.sqrt(shown.var(axis=1) + _NOISE)[:, None, None, None, None]
    rises = np.array(np.gradient(templates, 1 / side, axis=(1, 2)))[..., middle, middle]
    slopes = (rises.swapaxes(0, 1)[:, :, None] * places / deviations).reshape(n, 6, -1)
    slopes -= slopes.mean(axis=2, keepdims=True)
    squares = slopes @ slopes.swapaxes(1, 2)
    damping = _DAMPING * (1 + np.trace(squares, axis1=1, axis2=2))[:, None, None]
    solutions = np.linalg.solve(squares + damping * np.eye(6, dtype=np.float32), slopes)
    wanted = _normal(shown)
    for _ in range(n_steps):
        rest = _normal(_warp(seen, maps, places).reshape(n, -1)) - wanted
        changes = np.zeros_like(maps)
        changes[:, :2] = (solutions @ rest[:, :, None]).clip(-_STEP, _STEP).reshape(n, 2, 3)
        maps = maps @ np.linalg.inv(changes + np.eye(3, dtype=np.float32))
    return maps, (_normal(_warp(seen, maps, places).reshape(n, -1)) * wanted).mean(axis=1)


def _normal(values: Floats) -> Floats:
    """Return values ``(n, p)`` of mean 0 and deviation 1, but for noise."""
    around = values - values.mean(axis=1, keepdims=True)
    normal: Floats = around / np.sqrt((around**2).mean(axis=1, keepdims=True) + _NOISE)
    return normal


def _means(images: Floats, side: int) -> Floats:
    """Return the means of images ``(n, …, …)`` in ``side × side`` cells."""
    step = images.shape[-1] // side
    means: Floats = images.reshape(-1, side, step, side, step).mean(axis=(2, 4))
    return means


@cache
def _places(side: int) -> Floats:
    """Return y, x and 1 ``(3, side, side)`` of cells, from -1/2 to 1/2."""
    middles = (np.arange(side, dtype=np.float32) + 0.5) / side - 0.5
    return np.stack(
        [*np.meshgrid(middles, middles, indexing="ij"), np.ones((side, side), np.float32)]
    )


def _warp(images: Floats, maps: Floats, places: Floats) -> Floats:
    """Return what images ``(n, side, side)`` show at mapped places, between cells in proportion."""
    n, side, _ = images.shape
    _, height, width = places.shape
    mapped = (maps[..., :2, :] @ places.reshape(3, -1) + 0.5) * side - 0.5
    mapped = np.broadcast_to(mapped.clip(0, side - 1.001), (n, 2, height * width))
    corners = mapped.astype(np.int32)
    down, right = (mapped - corners).swapaxes(0, 1)
    first = (np.arange(n, dtype=np.int32)[:, None] * side + corners[:, 0]) * side + corners[:, 1]
    cells = images.ravel()
    above = cells[first] + (cells[first + 1] - cells[first]) * right
    first += side
    below = cells[first] + (cells[first + 1] - cells[first]) * right
    between: Floats = (above + (below - above) * down).reshape(n, height, width)
    return between


def _same_moved(whole: SmallCopy, part: SmallCopy, change: Floats) -> bool:
    """Return whether two views that are aligned are alike, and the same in all tiles.

    Where nothing has moved, wholes have been compared, and what is at their edges counts, too.
    """
    if whole.box == part.box and np.abs(change - np.eye(3)).max() < _STILL:
        return False
    one = _moved(part, _MIDDLE)
    other = _moved(whole, change @ _MIDDLE)
    if not _alike_in_position([one], [other], ALIKE, np.ones((1, 1), dtype=bool)).all():
        return False
    template = cells_in(part.path, part.box)
    seen = cells_in(whole.path, whole.box)
    if template is None or seen is None:
        return False
    side, n_steps = _LAST
    template = _means(template, side)
    maps, _ = _refine(template, _means(seen, side), change[None], n_steps)
    seen = _means(_warp(seen, maps, _places(seen.shape[-1])), side)
    edge = slice(side // 16, -side // 16)
    return correlate_tiles(template[0, edge, edge], seen[0, edge, edge]) >= _SAME_TILE


def _moved(copy: SmallCopy, change: Floats) -> SmallCopy:
    """Return the copy of what a map makes of an image."""
    layers = _warp(np.moveaxis(copy.colour, -1, 0).astype(np.float32), change, _places(SIDE))
    fine = _warp(copy.fine[None].astype(np.float32), change, _places(2 * SIDE))
    return copy._replace(
        grey=_means(fine, SIDE)[0].round().astype(np.uint8),
        colour=np.moveaxis(layers, 0, -1).round().astype(np.uint8),
    )
