"""Find copies that were moved: cut, straightened, or framed by a border or a screenshot.

Each image has one or two views: the whole, and what is framed in it. Of two views, one is the
template t, and the other f shows more. The affine map M, 3 × 3 on homogeneous coordinates, is
sought for which

    f(M x) ≈ t(x), both with mean 0 and deviation 1, in the middle seven eighths of t

by Gauss-Newton steps of the inverse compositional kind (Baker and Matthews, Int. J. Comput. Vis.
56, 2004), first on 16 × 16 cells, then on 32 × 32 and, from the files, on 64 × 64. There each tile
must correlate by 0.85, so that two photographs of a series, in which something moved, are none; and
both must be alike as wholes after the map (`channelhash.copies.comparison`). Pages are not sought,
as letters do not show there.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from channelhash.copies.comparison import (
    ALIKE,
    AT_ONCE,
    CHROMA,
    NOISE,
    AlikeLimits,
    alike_in_position,
    alike_wholes,
)
from channelhash.copies.detail import (
    Floats,
    PairMask,
    Places,
    cells_in,
    correlate_tiles,
    rows_and_columns,
    stack,
    unit,
)
from channelhash.copies.small_copies import SIDE, SmallCopy

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
#: Least correlation of tiles. With it, no two different ones of 10,000 photographs of COCO are
#: taken for moved copies; it was chosen on these, too.
_SAME_TILE = 0.85


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
    layers = np.moveaxis(colours @ np.vstack([_GREY, CHROMA]).T, -1, 0)
    return Views(
        views,
        np.array([place for place, _ in seen], dtype=np.int64),
        _outlines(layers),
        _outlines(np.stack([_warp(layer, _CUT, _places(SIDE)) for layer in layers])),
    )


def _outlines(layers: Floats) -> Floats:
    """Return unit vectors of 8 × 8 means of grey, and of 4 × 4 means of Cb and Cr."""
    grey, *tints = (_means(layer, side) for layer, side in zip(layers, (8, 4, 4), strict=True))
    vectors = [np.sqrt(1 - _TINT) * unit(grey, NOISE)[0]]
    vectors += [np.sqrt(_TINT / 2) * unit(tint, NOISE)[0] for tint in tints]
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
    for start in range(0, len(parts), AT_ONCE):
        for whole, part, change in _align(
            views, wholes[start : start + AT_ONCE], parts[start : start + AT_ONCE]
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
    deviations = np.sqrt(shown.var(axis=1) + NOISE)[:, None, None, None, None]
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
    normal: Floats = around / np.sqrt((around**2).mean(axis=1, keepdims=True) + NOISE)
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
    if not alike_in_position([one], [other], ALIKE, np.ones((1, 1), dtype=bool)).all():
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
