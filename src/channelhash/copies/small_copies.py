"""Groups of pictures that are copies of one picture, which their small copies say, whatever their
codes are.

*Shape.* A grey copy has 16 × 16 means of the upright picture, whatever its proportions. Without the
means of its rows and columns, which all pictures with a horizon share, 256 values of mean 0 are
left, which must correlate:

    (⟨a, b⟩ / 256 + 4) / sqrt((⟨a, a⟩ / 256 + 4) (⟨b, b⟩ / 256 + 4)) >= 0.85

*Brightness.* The 4 lets any two pictures without contrast pass. So the root mean square difference
of their 4 × 4 means of red, green and blue must be at most 32 levels, and twice the lesser contrast
c (the root of ⟨a, a⟩ / 256) more; 8 + 8 c levels where that is less, as two skies without a cloud
differ by nothing else.

*Colour.* A red car and a blue one are different, a paler copy is none. Of the 16 × 16 means of Cb
and Cr, the colours without brightness, those of the more colourful picture are made as pale as the
other's: by the ratio of their standard deviations, 0 for a grey copy. They are shifted by at most
12 levels, as another white balance does. Then no cell may lie more than 15 levels, and three tenths
of the stronger colour more, outside of the colours of the other's 3 × 3 cells around.

*Detail.* Pages, receipts and screenshots of one layout have one shape. Where at least 0.4 of a
picture has one level of grey, give or take 8, `channelhash.copies.detail` compares more.

In a group, each picture is alike to another, and all correlate by 0.75 at least, so that no chain
joins different ones. Size, compression, brightness and contrast change little, a border of 5 % that
is cut off somewhat more. Each pair is compared in the eight positions that turns by 90° and mirrors
give; in seven, shapes must correlate by 0.08 more.
"""

import sqlite3
import struct
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.detail import (
    FINE_SIDE,
    Floats,
    Pairs,
    read_now,
    same_detail,
    shrink,
    stack,
    turn_by,
    unit,
)
from channelhash.errors import InputError
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.machine import one_blas_thread, usable_cores
from channelhash.utils.progress import Progress, no_progress

#: Side of a small copy.
_SIDE = 16
#: Positions of a picture, and how much more shapes must correlate in all but the first.
_TURNS = 8
_TURNED = 0.08
#: Constant of the correlation of shapes: the variance of noise in small copies.
_NOISE = 4
#: Means a side of which brightness is compared, levels that they may differ by at most, how many
#: more for a level of contrast, and what is left of the first, plus as much a level of contrast, in
#: a picture without.
_PATCHES = 4
_LEVELS = 32
_PER_CONTRAST = 2
_PLAIN = 8
#: Levels by which colours may be shifted as a whole, and what part of a colour they may differ by
#: besides the limit.
_SHIFT = 12
_OF_COLOUR = 0.3
#: Red, green and blue -> Cb and Cr, as JPEG has them.
_CHROMA = np.array([[-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]], dtype=np.float32)
#: Side of the grey copy in which the background is looked for, its share from which a picture is a
#: page, and levels of grey on both sides that belong to it.
_TEXT_SIDE = 128
_BACKGROUND = 0.4
_SHADES = 8
#: Version of the small copies that a store keeps, and of how they are compared: others are read and
#: compared again.
_VERSION = 2
#: Copies that are kept in memory, some 100 MB; pictures that are compared with as many others at a
#: time, and pairs whose colours are.
_CACHED = 1 << 16
_TILE = 384
_COLOURED = 1 << 10
#: Pictures that are read between two writes to a store's file.
_AT_ONCE = 256

#: What a store keeps of a small copy behind its cells: `text` and `sharpness`.
_REST = struct.Struct("<?f")
_Places = NDArray[np.int64]


class _Limits(NamedTuple):
    """What two pictures must reach: the correlation of their shapes, and levels that their colours
    may differ by.
    """

    shape: float
    colour: float


#: Of two pictures. A white balance of 15 % on red and blue differs by 13 levels at most in 99 % of
#: photographs.
_ALIKE = _Limits(0.85, 15)
#: Of any two in a group: copies that were changed in opposite ways, as one cut and one with a
#: border, or one warmer and one cooler, may differ somewhat more.
_IN_GROUP = _Limits(0.75, 22)


class SmallCopy(NamedTuple):
    """A small copy of a picture file.

    Attributes:
        path: of the file.
        grey: ``(16, 16)`` uint8.
        colour: ``(16, 16, 3)`` uint8, red, green and blue.
        text: whether its detail counts: much of it is background, as of a page.
        sharpness: variance of the Laplacian of a larger grey copy.
        turn: how it was turned since it was read, see `turn_by`.
    """

    path: str
    grey: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    text: bool
    sharpness: float = 0.0
    turn: int = 0

    def turned(self, turn: int) -> "SmallCopy":
        """Return the copy of the picture in one of its eight positions."""
        return self._replace(
            grey=turn_by(self.grey, turn), colour=turn_by(self.colour, turn), turn=turn
        )

    def pack(self) -> bytes:
        """Return what `unpack` reads."""
        return self.grey.tobytes() + self.colour.tobytes() + _REST.pack(self.text, self.sharpness)

    @classmethod
    def unpack(cls, path: str, content: bytes) -> "SmallCopy":
        """Return the copy of a file that was packed."""
        values = np.frombuffer(content, np.uint8, 4 * _SIDE**2)
        rest = content[-_REST.size :]
        grey = values[: _SIDE**2].reshape(_SIDE, _SIDE)
        colour = values[_SIDE**2 :].reshape(_SIDE, _SIDE, 3)
        return cls(path, grey, colour, *_REST.unpack(rest))


def read_copies(
    opened: sqlite3.Connection | None, paths: Sequence[str], progress: Progress = no_progress
) -> list[SmallCopy | None]:
    """Read the small copies of picture files; a store's file keeps them, and gives those of files
    that are unchanged.

    The last ones stay in memory until their files change.

    >>> read_copies(None, ["none.jpg"])
    [None]
    """
    known = opened.execute("SELECT path, state, copy FROM copies") if opened else ()
    cache = {path: (state, content) for path, state, content in known}

    def read(path: str, changed: str) -> tuple[SmallCopy, str]:
        before, content = cache.get(path, ("", b""))
        state = f"{changed} {_VERSION}"
        return (
            (SmallCopy.unpack(path, content), "")
            if before == state
            else (_read_small(path, state), state)
        )

    copies: list[SmallCopy | None] = []
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            batch = list(
                pool.map(lambda path: read_now(read, path), paths[start : start + _AT_ONCE])
            )
            rows = [(each[0].path, each[1], each[0].pack()) for each in batch if each and each[1]]
            if opened and rows:
                with opened:
                    opened.execute("BEGIN IMMEDIATE")
                    opened.executemany("INSERT OR REPLACE INTO copies VALUES (?, ?, ?, 0)", rows)
            copies += [each and each[0] for each in batch]
            progress(len(copies), len(paths))
    return copies


@lru_cache(_CACHED)
def _read_small(path: str, _changed: str) -> SmallCopy:
    with open_image(path) as opened:
        larger = shrink(decode(opened, FINE_SIDE), FINE_SIDE)
    grey = shrink(larger, _TEXT_SIDE).convert("L")
    around = np.ones(2 * _SHADES + 1)
    background = np.convolve(grey.histogram(), around).max() / _TEXT_SIDE**2
    return SmallCopy(
        path,
        np.asarray(shrink(grey, _SIDE)),
        np.asarray(shrink(larger, _SIDE)),
        bool(background >= _BACKGROUND),
        _sharpness_of(np.asarray(larger.convert("L"), dtype=np.float32)),
    )


def _sharpness_of(grey: Floats) -> float:
    """Return the variance of the Laplacian of a grey copy."""
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return float((4 * grey[1:-1, 1:-1] - around).var())


def alike(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], limits: _Limits = _ALIKE
) -> Pairs:
    """Return for each of ``n`` pictures and each of ``m`` others whether they are alike.

    >>> dark = np.outer(np.arange(16), np.arange(16)).astype(np.uint8) // 2
    >>> colour = np.zeros((16, 16, 3), np.uint8)
    >>> one, *more = [SmallCopy("", grey, colour, False) for grey in (dark, 2 * dark, 2 * dark[::-1], 2 * dark**2)]
    >>> alike([one], more).tolist()
    [[True, True, False]]
    """
    return _confirm(
        copies, others, _correlate(_split(copies), _split(others)) >= limits.shape, limits
    )


def _confirm(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], pairs: Pairs, limits: _Limits
) -> Pairs:
    """Return those of the pairs that are alike in one of the eight positions."""
    rows, columns = np.flatnonzero(pairs.any(axis=1)), np.flatnonzero(pairs.any(axis=0))
    near = np.zeros_like(pairs)
    cut = np.ix_(rows, columns)
    left, right = (
        [side[place] for place in places.tolist()]
        for side, places in ((copies, rows), (others, columns))
    )
    for turn in range(_TURNS):
        rest = pairs[cut] & ~near[cut]
        if not rest.any():
            break
        least = limits._replace(shape=limits.shape + _TURNED) if turn else limits
        near[cut] |= _alike_as_they_are(left, [copy.turned(turn) for copy in right], least, rest)
    return near


def turns_of(copies: Sequence[SmallCopy]) -> list[int]:
    """Return the position in which each of some copies of a picture is most like the first one, 0
    where it is as it is.

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


def _split(copies: Sequence[SmallCopy]) -> Floats:
    """Return the unit vectors of pictures in four parts ``(n, 4, 65)``, each of which a mirror
    keeps or negates.

    These are the sums and differences of rows, and of columns, that are equally far from the
    middle.
    """
    vectors = unit(stack(copy.grey for copy in copies), _NOISE)[0]
    images = vectors[:, :-1].reshape(-1, _SIDE, _SIDE)
    half = _SIDE // 2
    parts = np.zeros((len(copies), 4, half * half + 1), dtype=np.float32)
    for place, (row, column) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        rows = images[:, :half] + row * images[:, : -half - 1 : -1]
        part = (rows[:, :, :half] + column * rows[:, :, : -half - 1 : -1]) / 2
        parts[:, place, :-1] = part.reshape(len(copies), half * half)
    parts[:, 0, -1] = vectors[:, -1]
    return parts


def _correlate(a: Floats, b: Floats) -> Floats:
    """Return the largest correlation ``(n, m)`` of split pictures among the eight positions of each
    other.

    A mirror changes signs of parts alone, so four products do for four positions; the transposed
    parts give the others.
    """
    half = _SIDE // 2
    transposed = b[:, [0, 2, 1, 3]]
    transposed[:, :, :-1] = (
        transposed[:, :, :-1].reshape(-1, 4, half, half).swapaxes(2, 3).reshape(-1, 4, half * half)
    )
    best = None
    for other in (b, transposed):
        even, across, down, odd = (a[:, part] @ other[:, part].T for part in range(4))
        upright = even + across
        mirrored = np.subtract(even, across, out=even)
        upright += np.abs(down + odd)
        mirrored += np.abs(np.subtract(down, odd, out=down), out=down)
        np.maximum(upright, mirrored, out=upright)
        best = upright if best is None else np.maximum(best, upright, out=best)
    assert best is not None
    return best


def _alike_as_they_are(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], limits: _Limits, pairs: Pairs
) -> Pairs:
    """Return which of the pairs are alike in their positions."""
    a, a_energies = unit(stack(copy.grey for copy in copies), _NOISE)
    b, b_energies = unit(stack(copy.grey for copy in others), _NOISE)
    near: Pairs = pairs & (a @ b.T >= limits.shape)
    if not near.any():
        return near
    contrasts = np.sqrt(np.minimum.outer(a_energies, b_energies))
    levels = np.minimum(_LEVELS, _PLAIN + _PLAIN * contrasts) + _PER_CONTRAST * contrasts
    a, b = (stack(copy.colour for copy in side) for side in (copies, others))
    near &= _differences(a, b) <= levels
    near &= _same_colours(a, b, near, limits.colour)
    text = near & np.logical_or.outer(
        [copy.text for copy in copies], [copy.text for copy in others]
    )
    text &= np.not_equal.outer([copy.path for copy in copies], [copy.path for copy in others])
    rows, columns = np.flatnonzero(text.any(axis=1)), np.flatnonzero(text.any(axis=0))
    cut = np.ix_(rows, columns)
    left = [(copies[row].path, copies[row].turn) for row in rows.tolist()]
    right = [(others[column].path, others[column].turn) for column in columns.tolist()]
    near[cut] &= ~text[cut] | same_detail(left, right, text[cut])
    return near


def _differences(a: Floats, b: Floats) -> Floats:
    """Return the root mean square differences ``(n, m)`` of coloured copies in 4 × 4 patches."""
    step = _SIDE // _PATCHES
    left, right = (
        copies.reshape(-1, _PATCHES, step, _PATCHES, step, 3)
        .mean(axis=(2, 4))
        .reshape(len(copies), 3 * _PATCHES**2)
        for copies in (a, b)
    )
    products = left @ right.T
    squares = (left**2).mean(axis=1)[:, None] + (right**2).mean(axis=1)
    differences: Floats = np.sqrt(np.maximum(squares - 2 / left.shape[1] * products, 0))
    return differences


def _same_colours(a: Floats, b: Floats, pairs: Pairs, limit: float) -> Pairs:
    """Return those of the pairs of coloured copies whose colours do not contradict each other."""
    same = np.zeros_like(pairs)
    rows, columns = np.nonzero(pairs)
    colours = np.concatenate([a, b]) @ _CHROMA.T
    deviations = colours.std(axis=(1, 2))
    # In pictures of one colour, which have no spread, the 1 leaves colours as strong as they are.
    spreads = np.sqrt((deviations**2).sum(axis=1)) + 1
    least, most = _range_around(colours)
    for start in range(0, len(rows), _COLOURED):
        part = slice(start, start + _COLOURED)
        one = rows[part]
        other = len(a) + columns[part]
        is_paler = spreads[one] <= spreads[other]
        pale, strong = np.where(is_paler, one, other), np.where(is_paler, other, one)
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
    """Return the least and the most of each cell ``(n, 16, 16, 2)`` and the cells around it, as
    borders move things a little.
    """
    least = colours
    most = colours
    for axis in (1, 2):
        around = [(1, 1) if of == axis else (0, 0) for of in range(4)]
        low, high = (np.pad(cells, around, mode="edge") for cells in (least, most))
        moved = [slice(start, start + _SIDE) for start in range(3)]
        least = np.min([low.swapaxes(1, axis)[:, part] for part in moved], axis=0).swapaxes(1, axis)
        most = np.max([high.swapaxes(1, axis)[:, part] for part in moved], axis=0).swapaxes(1, axis)
    return least, most


def _outside(colours: Floats, least: Floats, most: Floats) -> Floats:
    """Return for each cell ``(n, 16, 16)`` how far its colour lies outside of a range."""
    beyond: Floats = np.maximum(least - colours, colours - most).max(axis=-1)
    return beyond


def group_copies(
    codes: PackedCodes,
    copies: Sequence[SmallCopy],
    radius: int | None = None,
    opened: sqlite3.Connection | None = None,
    apart: Mapping[int, Collection[int]] | None = None,
    progress: Progress = no_progress,
) -> list[_Places]:
    """Find groups of items whose pictures are all alike, each joined by steps of at most ``radius``
    bits.

    Args:
        codes: of the items.
        copies: of their pictures.
        radius: None if codes do not count.
        opened: a store's file where all of its pictures are compared: it keeps which ones were,
            tile by tile.
        apart: place -> numbers, of which items in one group share none.
        progress: of the comparisons.

    >>> colour = np.zeros((16, 16, 3), np.uint8)
    >>> a, b = np.outer(np.arange(16), np.arange(16)).astype(np.uint8), np.eye(16, dtype=np.uint8) * 99
    >>> copies = [SmallCopy("", grey, colour, False) for grey in (a, b, a)]
    >>> [places.tolist() for places in group_copies(np.zeros((3, 1), np.uint8), copies)]
    [[0, 2]]
    """
    n = len(copies)
    numbers = np.arange(len(copies))
    is_new = np.ones(n, dtype=bool)
    if opened:
        is_new, rows, columns = _recall(opened, copies)
        numbers = join_groups(numbers, rows, columns)
    order = np.argsort(~is_new, kind="stable")
    n_new = int(is_new.sum())
    tiles = [order[tile] for tile in _tiles(n)] if n_new else []
    parts = [_split([copies[place] for place in tile.tolist()]) for tile in tiles]
    done = 0
    total = sum(len(tiles) - first for first in range(-(-n_new // _TILE)))
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(usable_cores()))
        with suppress(InputError):  # without the extra that limits threads it takes longer
            stack.enter_context(one_blas_thread())
        for first in range(-(-n_new // _TILE)):
            tile_rows = tiles[first][: n_new - first * _TILE]
            before = numbers
            candidates = pool.map(
                partial(_candidates, parts[first][: len(tile_rows)]), parts[first:]
            )
            for tile, near in zip(tiles[first:], candidates, strict=True):
                if near is not None:
                    near &= numbers[tile_rows][:, None] != numbers[tile]
                    if radius is not None:
                        near &= hamming_distances(codes[tile_rows], codes[tile]) <= radius
                    left, right = (
                        [copies[place] for place in places.tolist()] for places in (tile_rows, tile)
                    )
                    rows, columns = np.nonzero(_confirm(left, right, near, _ALIKE))
                    numbers = join_groups(numbers, tile_rows[rows], tile[columns])
                done += 1
                progress(done, total)
            if opened:
                changed = np.flatnonzero(numbers != before)
                _remember(opened, copies, tile_rows, changed, numbers[changed])
    return [
        group[places]
        for group in rows_by_number(numbers)
        if len(group) > 1
        for places in _cliques(
            [copies[place] for place in group], [(apart or {}).get(place, ()) for place in group]
        )
        if len(places) > 1
    ]


def _candidates(a: Floats, b: Floats) -> Pairs | None:
    """Return the pairs of one tile that may be alike, mostly none."""
    near: Pairs = _correlate(a, b) >= _ALIKE.shape
    return near if near.any() else None


def _recall(
    opened: sqlite3.Connection, copies: Sequence[SmallCopy]
) -> tuple[NDArray[np.bool_], _Places, _Places]:
    """Return which pictures are new to the others, and the pairs of places that are joined.

    A group of which a picture is gone, or was read again, is compared again: it may have connected
    the others.
    """
    places = {copy.path: place for place, copy in enumerate(copies)}
    compared = {path for (path,) in opened.execute("SELECT path FROM copies WHERE compared")}
    pairs = opened.execute("SELECT one, other FROM joined").fetchall()
    numbers = {
        path: number for number, path in enumerate({path: 0 for pair in pairs for path in pair})
    }
    ends = np.array([[numbers[path] for path in pair] for pair in pairs], dtype=np.int64).reshape(
        -1, 2
    )
    groups = join_groups(np.arange(len(numbers)), ends[:, 0], ends[:, 1])
    lost = np.array([path not in places or path not in compared for path in numbers], dtype=bool)
    broken = np.isin(groups, groups[lost])
    stale = {path for path, number in numbers.items() if broken[number]} | (
        compared - places.keys()
    )
    if stale:
        with opened:
            opened.execute("BEGIN IMMEDIATE")
            opened.executemany(
                "UPDATE copies SET compared = 0 WHERE path = ?", [(path,) for path in stale]
            )
            opened.executemany("DELETE FROM joined WHERE one = ?", [(path,) for path in stale])
    known = compared - stale
    is_new = [
        copy.path not in known or places[copy.path] != place for place, copy in enumerate(copies)
    ]
    joined = [[places[path] for path in pair] for pair in pairs if pair[0] not in stale]
    rows, columns = np.array(joined, dtype=np.int64).reshape(-1, 2).T
    return np.array(is_new, dtype=bool), rows, columns


def _remember(
    opened: sqlite3.Connection, copies: Sequence[SmallCopy], places: _Places, *pairs: _Places
) -> None:
    """Keep which pictures have been compared with all others, and which ones that has joined."""
    left, right = ([copies[place].path for place in side.tolist()] for side in pairs)
    with opened:
        opened.execute("BEGIN IMMEDIATE")
        opened.executemany("INSERT INTO joined VALUES (?, ?)", zip(left, right, strict=True))
        paths = [(copies[place].path,) for place in places.tolist()]
        opened.executemany("UPDATE copies SET compared = 1 WHERE path = ?", paths)


def _cliques(copies: Sequence[SmallCopy], apart: Sequence[Collection[int]]) -> list[_Places]:
    """Put each picture into the first group whose pictures are all alike to it, so that a chain
    joins no others, and share no number with it.
    """
    numbers = np.zeros(len(copies), dtype=np.int64)
    sizes: list[int] = []
    for tile in _tiles(len(copies)):
        near = np.hstack(
            [alike(copies[tile], copies[other], _IN_GROUP) for other in _tiles(tile.stop)]
        )
        for place in range(tile.start, min(tile.stop, len(copies))):
            fits = near[place - tile.start, :place]
            if barred := set(apart[place]):
                fits[[other for other in range(place) if not barred.isdisjoint(apart[other])]] = (
                    False
                )
            counts = np.bincount(numbers[:place], fits, len(sizes))
            fitting = np.flatnonzero(counts == sizes)
            numbers[place] = fitting[0] if len(fitting) else len(sizes)
            if not len(fitting):
                sizes.append(0)
            sizes[numbers[place]] += 1
    return rows_by_number(numbers)


def _tiles(n: int) -> list[slice]:
    return [slice(start, start + _TILE) for start in range(0, n, _TILE)]


def rows_by_number(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each number, in ascending order.

    >>> [rows.tolist() for rows in rows_by_number(np.array([4, 2, 4]))]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def join_groups(numbers: _Places, rows: _Places, columns: _Places) -> _Places:
    """Return the numbers of the groups ``(n,)`` after joining those of each row and its column.

    >>> join_groups(np.arange(4), np.array([0, 3]), np.array([2, 2])).tolist()
    [0, 1, 0, 0]
    """
    # of each group, the smallest number among those that it is joined with so far
    roots = np.arange(len(numbers))
    while True:
        left, right = roots[numbers[rows]], roots[numbers[columns]]
        if np.array_equal(left, right):
            joined: _Places = roots[numbers]
            return joined
        np.minimum.at(roots, np.maximum(left, right), np.minimum(left, right))
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]
