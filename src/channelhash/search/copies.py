"""Groups of pictures that are copies of one picture, which their small copies say, whatever their
codes are.

*Shape.* A grey copy has 16 × 16 means of the upright picture, whatever its proportions. Without the
means of its rows and columns, which all pictures with a horizon share, 256 values of mean 0 are
left, which must correlate:

    (⟨a, b⟩ / 256 + 4) / sqrt((⟨a, a⟩ / 256 + 4) (⟨b, b⟩ / 256 + 4)) >= 0.85

*Colour.* The 4 lets any two pictures without contrast pass. So the root mean square difference of
their 4 × 4 means of red, green and blue must be at most 32 levels, and twice the lesser contrast c
(the root of ⟨a, a⟩ / 256) more; 8 + 8 c levels where that is less, as two skies without a cloud
differ by nothing else.

*Detail.* Pages, receipts and screenshots of one layout have one shape. Where at least 0.4 of a
picture has one level of grey, give or take 8, larger grey copies are compared, of up to 256 × 256
smoothed means. Each tile of 8 × 8 must correlate by the formula above, with 16 in place of 4: at
least 0.5, or 0.8 where a picture is too small for 128 × 128.

In a group, each picture is alike to another, and all correlate by 0.75 at least, so that no chain
joins different ones. Size, compression, brightness and contrast change little, a border of 5 % that
is cut off somewhat more. Each pair is compared in the eight positions that turns by 90° and mirrors
give; in seven, shapes must correlate by 0.08 more.
"""

import os
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.errors import InputError
from channelhash.search.index import rows_by_number
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.machine import one_blas_thread, usable_cores
from channelhash.utils.progress import Progress, no_progress

_SIDE, _SHAPE, _CHAIN, _CONTRAST = 16, 0.85, 0.75, 4
_COLOURS, _LEVELS, _PER_CONTRAST, _PLAIN = 4, 32, 2, 8
_TEXT_SIDE, _BACKGROUND, _SHADES = 128, 0.4, 8
_FINE_SIDE, _CELLS, _FINE_CONTRAST, _TILES = 256, 8, 16, 0.5
_VERSION = 1  # of the small copies that a store keeps
# positions of a picture; how much more shapes must correlate in all but the first
_TURNS, _TURNED = (8, 0.08)
_COARSE, _COARSE_TILES = 64, 0.8  # a small picture's grid, and what its tiles must reach
# Copies that are kept in memory, some 60 MB and 130 MB; pictures that are compared with as many
# others at a time.
_CACHED, _FINE_CACHED, _TILE = 1 << 16, 1 << 11, 384
_AT_ONCE = 256  # pictures that are read between two writes to a store's file

_Floats = NDArray[np.float32]
_Places = NDArray[np.int64]
_Pairs = NDArray[np.bool_]
_Read = TypeVar("_Read")


class SmallCopy(NamedTuple):
    """A small copy of a picture file.

    Attributes:
        path: of the file.
        grey: ``(16, 16)`` uint8.
        colour: ``(4, 4, 3)`` uint8.
        text: whether its detail counts: much of it is background, as of a page.
        sharpness: variance of the Laplacian of a larger grey copy.
        turn: how it was turned since it was read, see `_turn`.
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
            grey=_turn(self.grey, turn), colour=_turn(self.colour, turn), turn=turn
        )

    def pack(self) -> bytes:
        """Return what `unpack` reads."""
        return (
            self.grey.tobytes()
            + self.colour.tobytes()
            + struct.pack("<?f", self.text, self.sharpness)
        )

    @classmethod
    def unpack(cls, path: str, content: bytes) -> "SmallCopy":
        """Return the copy of a file that was packed."""
        values, rest = np.frombuffer(content, np.uint8, _SIDE**2 + 3 * _COLOURS**2), content[-5:]
        grey, colour = (
            values[: _SIDE**2].reshape(_SIDE, _SIDE),
            values[_SIDE**2 :].reshape(_COLOURS, _COLOURS, 3),
        )
        return cls(path, grey, colour, *struct.unpack("<?f", rest))


def _turn(image: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """Return an image ``(side, side, …)`` in one of its eight positions: mirrored by bits 1 and 2,
    transposed by 4.
    """
    image = image.swapaxes(0, 1) if turn & 4 else image
    return image[:: -1 if turn & 1 else 1, :: -1 if turn & 2 else 1]


class _Detail(NamedTuple):
    """A larger copy of a picture file: ``(256, 256)`` uint8, and the side of the finest grid that
    it fills twice.
    """

    cells: NDArray[np.uint8]
    grid: int


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

    def read(path: str, state: str) -> tuple[SmallCopy, str]:
        before, content = cache.get(path, ("", b""))
        return (
            (SmallCopy.unpack(path, content), "")
            if before == state
            else (_read_small(path, state), state)
        )

    copies: list[SmallCopy | None] = []
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            batch = list(pool.map(lambda path: _try(read, path), paths[start : start + _AT_ONCE]))
            rows = [(each[0].path, each[1], each[0].pack()) for each in batch if each and each[1]]
            if opened and rows:
                with opened:
                    opened.execute("BEGIN IMMEDIATE")
                    opened.executemany("INSERT OR REPLACE INTO copies VALUES (?, ?, ?, 0)", rows)
            copies += [each and each[0] for each in batch]
            progress(len(copies), len(paths))
    return copies


def _try(read: Callable[[str, str], _Read], path: str) -> _Read | None:
    """Read a file as it is now, given its path and what changes with it; None where it cannot be
    read.

    An editor may put the time of the content back, but not that of the inode.
    """
    try:
        status = os.stat(path)
        return read(path, f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {_VERSION}")
    except OSError:
        return None


@lru_cache(_CACHED)
def _read_small(path: str, _changed: str) -> SmallCopy:
    with open_image(path) as opened:
        larger = _shrink(decode(opened, _FINE_SIDE), _FINE_SIDE)
    image = _shrink(larger, _TEXT_SIDE)
    grey, fine = image.convert("L"), np.asarray(larger.convert("L"), dtype=np.float32)
    edges = (
        4 * fine[1:-1, 1:-1] - fine[:-2, 1:-1] - fine[2:, 1:-1] - fine[1:-1, :-2] - fine[1:-1, 2:]
    )
    background = np.convolve(grey.histogram(), np.ones(2 * _SHADES + 1)).max() / _TEXT_SIDE**2
    shape, colour = (
        np.asarray(_shrink(picture, side)) for picture, side in ((grey, _SIDE), (image, _COLOURS))
    )
    return SmallCopy(path, shape, colour, bool(background >= _BACKGROUND), float(edges.var()))


def _shrink(image: Image.Image, side: int) -> Image.Image:
    return image.resize((side, side), Image.Resampling.BOX)


@lru_cache(_FINE_CACHED)
def _read_detail(path: str, _changed: str) -> _Detail:
    with open_image(path) as opened:
        pixels = min(opened.size) // 2
        cells = np.asarray(
            _shrink(decode(opened, 2 * _FINE_SIDE).convert("L"), _FINE_SIDE), dtype=np.float32
        )
    for axis in (0, 1):  # what is as fine as a cell changes with the size of a copy
        cells = ((np.roll(cells, 1, axis) + 2 * cells + np.roll(cells, -1, axis)) / 4).astype(
            np.float32
        )
    grid = _FINE_SIDE
    while grid > max(pixels, 2 * _CELLS):
        grid //= 2
    return _Detail(cells.round().astype(np.uint8), grid)


def alike(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], shape: float = _SHAPE
) -> _Pairs:
    """Return for each of ``n`` pictures and each of ``m`` others whether they are alike.

    >>> dark, colour = np.outer(np.arange(16), np.arange(16)).astype(np.uint8) // 2, np.zeros((4, 4, 3), np.uint8)
    >>> one, *more = [SmallCopy("", grey, colour, False) for grey in (dark, 2 * dark, 2 * dark[::-1], 2 * dark**2)]
    >>> alike([one], more).tolist()
    [[True, True, False]]
    """
    return _confirm(copies, others, _correlate(_split(copies), _split(others)) >= shape, shape)


def _confirm(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], pairs: _Pairs, shape: float
) -> _Pairs:
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
        least = shape + _TURNED if turn else shape
        near[cut] |= _alike_as_they_are(left, [copy.turned(turn) for copy in right], least, rest)
    return near


def _split(copies: Sequence[SmallCopy]) -> _Floats:
    """Return the unit vectors of pictures in four parts ``(n, 4, 65)``, each of which a mirror
    keeps or negates.

    These are the sums and differences of rows, and of columns, that are equally far from the
    middle.
    """
    vectors = _unit(_stack(copy.grey for copy in copies), _CONTRAST)[0]
    images, half = vectors[:, :-1].reshape(-1, _SIDE, _SIDE), _SIDE // 2
    parts = np.zeros((len(copies), 4, half * half + 1), dtype=np.float32)
    for place, (row, column) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        rows = images[:, :half] + row * images[:, : -half - 1 : -1]
        part = (rows[:, :, :half] + column * rows[:, :, : -half - 1 : -1]) / 2
        parts[:, place, :-1] = part.reshape(len(copies), half * half)
    parts[:, 0, -1] = vectors[:, -1]
    return parts


def _correlate(a: _Floats, b: _Floats) -> _Floats:
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
        upright, mirrored = even + across, np.subtract(even, across, out=even)
        upright += np.abs(down + odd)
        mirrored += np.abs(np.subtract(down, odd, out=down), out=down)
        np.maximum(upright, mirrored, out=upright)
        best = upright if best is None else np.maximum(best, upright, out=best)
    assert best is not None
    return best


def _alike_as_they_are(
    copies: Sequence[SmallCopy], others: Sequence[SmallCopy], shape: float, pairs: _Pairs
) -> _Pairs:
    """Return which of the pairs are alike in their positions."""
    a, a_energies = _unit(_stack(copy.grey for copy in copies), _CONTRAST)
    b, b_energies = _unit(_stack(copy.grey for copy in others), _CONTRAST)
    near: _Pairs = pairs & (a @ b.T >= shape)
    if not near.any():
        return near
    a, b = (_stack(copy.colour.ravel() for copy in side) for side in (copies, others))
    squares = (a**2).mean(axis=1)[:, None] + (b**2).mean(axis=1) - 2 / a.shape[1] * (a @ b.T)
    contrasts = np.sqrt(np.minimum.outer(a_energies, b_energies))
    levels = np.minimum(_LEVELS, _PLAIN + _PLAIN * contrasts)
    near &= np.sqrt(np.maximum(squares, 0)) <= levels + _PER_CONTRAST * contrasts
    text = near & np.logical_or.outer(
        [copy.text for copy in copies], [copy.text for copy in others]
    )
    text &= np.not_equal.outer([copy.path for copy in copies], [copy.path for copy in others])
    rows, columns = np.flatnonzero(text.any(axis=1)), np.flatnonzero(text.any(axis=0))
    cut = np.ix_(rows, columns)
    a_details = [_detail(copies[row]) for row in rows.tolist()]
    b_details = [_detail(others[column]) for column in columns.tolist()]
    near[cut] &= ~text[cut] | _same_detail(a_details, b_details, text[cut])
    return near


def _detail(copy: SmallCopy) -> _Detail | None:
    detail = _try(_read_detail, copy.path)
    return detail and detail._replace(cells=_turn(detail.cells, copy.turn))


def _same_detail(a: Sequence[_Detail | None], b: Sequence[_Detail | None], pairs: _Pairs) -> _Pairs:
    """Return those of the pairs whose larger copies are alike, on the finest grid of both."""
    a_grids, b_grids = (
        np.array([detail.grid if detail else 0 for detail in side]) for side in (a, b)
    )
    finest = np.minimum.outer(a_grids, b_grids)
    same = np.zeros_like(pairs)  # nothing is alike to a file that has gone since
    for grid in np.unique(finest[finest > 0]).tolist():
        rows, columns = np.flatnonzero(a_grids >= grid), np.flatnonzero(b_grids >= grid)
        cut = np.ix_(rows, columns)
        same[cut] |= _same_tiles(
            _cells(a, rows, grid), _cells(b, columns, grid), pairs[cut] & (finest[cut] == grid)
        )
    return same


def _cells(details: Sequence[_Detail | None], rows: _Places, grid: int) -> _Floats:
    """Return larger copies of some rows as ``(n, grid, grid)``."""
    step = _FINE_SIDE // grid
    cells = _stack(detail.cells for row in rows.tolist() if (detail := details[row]))
    means: _Floats = cells.reshape(len(rows), grid, step, grid, step).mean(axis=(2, 4))
    return means


def _same_tiles(a: _Floats, b: _Floats, pairs: _Pairs) -> _Pairs:
    """Return those of the pairs of larger copies of one grid of which all tiles correlate."""
    grid = a.shape[1]
    least = _TILES if grid > _COARSE else _COARSE_TILES
    for start in range(0, grid, _CELLS):
        rows, columns = np.flatnonzero(pairs.any(axis=1)), np.flatnonzero(pairs.any(axis=0))
        if not len(rows):
            break
        row_of_tiles = (side[:, start : start + _CELLS] for side in (a[rows], b[columns]))
        tiles = (
            cells.reshape(len(cells), _CELLS, -1, _CELLS).transpose(2, 0, 1, 3)
            for cells in row_of_tiles
        )
        # (tiles, n, 8 * 8 + 1)
        left, right = (_unit(of_side, _FINE_CONTRAST)[0] for of_side in tiles)
        pairs[np.ix_(rows, columns)] &= (left @ right.transpose(0, 2, 1)).min(axis=0) >= least
    return pairs


def _stack(images: Iterable[NDArray[np.uint8]]) -> _Floats:
    return np.array(list(images), dtype=np.float32)


def _unit(images: _Floats, least: float) -> tuple[_Floats, _Floats]:
    """Return unit vectors of images ``(…, side, side)``, whose products are the correlations, and
    mean squares.

    The last element of a vector stands for ``least``, which all images have in common.
    """
    means = images.mean(axis=-1, keepdims=True) + images.mean(axis=-2, keepdims=True)
    values = (images - means + images.mean(axis=(-2, -1), keepdims=True)).reshape(
        *images.shape[:-2], -1
    )
    energies = (values**2).mean(axis=-1)
    rest = np.full((*values.shape[:-1], 1), np.sqrt(least * values.shape[-1]), dtype=np.float32)
    lengths = np.sqrt((energies + least) * values.shape[-1])
    return np.concatenate([values, rest], axis=-1) / lengths[..., None], energies


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

    >>> colour = np.zeros((4, 4, 3), np.uint8)
    >>> a, b = np.outer(np.arange(16), np.arange(16)).astype(np.uint8), np.eye(16, dtype=np.uint8) * 99
    >>> copies = [SmallCopy("", grey, colour, False) for grey in (a, b, a)]
    >>> [places.tolist() for places in group_copies(np.zeros((3, 1), np.uint8), copies)]
    [[0, 2]]
    """
    n, numbers = len(copies), np.arange(len(copies))
    is_new = np.ones(n, dtype=bool)
    if opened:
        is_new, rows, columns = _recall(opened, copies)
        numbers = join_groups(numbers, rows, columns)
    order, n_new = np.argsort(~is_new, kind="stable"), int(is_new.sum())
    tiles = [order[tile] for tile in _tiles(n)] if n_new else []
    parts = [_split([copies[place] for place in tile.tolist()]) for tile in tiles]
    done, total = 0, sum(len(tiles) - first for first in range(-(-n_new // _TILE)))
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(usable_cores()))
        with suppress(InputError):  # without the extra that limits threads it takes longer
            stack.enter_context(one_blas_thread())
        for first in range(-(-n_new // _TILE)):
            tile_rows, before = tiles[first][: n_new - first * _TILE], numbers
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
                    rows, columns = np.nonzero(_confirm(left, right, near, _SHAPE))
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


def _candidates(a: _Floats, b: _Floats) -> _Pairs | None:
    """Return the pairs of one tile that may be alike, mostly none."""
    near: _Pairs = _correlate(a, b) >= _SHAPE
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

    Two copies that were changed in opposite ways, as one cut and one with a border, may differ
    somewhat more.
    """
    numbers = np.zeros(len(copies), dtype=np.int64)
    sizes: list[int] = []
    for tile in _tiles(len(copies)):
        near = np.hstack(
            [alike(copies[tile], copies[other], _CHAIN) for other in _tiles(tile.stop)]
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
