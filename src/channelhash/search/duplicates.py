"""Near-duplicates of a store: groups of items with pictures that are alike, or with near codes.

Whether two pictures are copies of one picture, their small copies say, whatever their codes are:

*Shape.* A grey copy has 16 × 16 means of the upright picture, whatever its proportions. Without the means of its rows
and columns, which all pictures with a horizon share, 256 values of mean 0 are left, which must correlate:

    (⟨a, b⟩ / 256 + 4) / sqrt((⟨a, a⟩ / 256 + 4) (⟨b, b⟩ / 256 + 4)) >= 0.85

*Colour.* The 4 lets any two pictures without contrast pass. So the root mean square difference of their 4 × 4 means of
red, green and blue must be at most 32 levels, and twice the lesser contrast (the root of ⟨a, a⟩ / 256) more.

*Detail.* Pages, receipts and screenshots of one layout have one shape. Where at least 0.4 of a picture has one level of
grey, give or take 8, larger grey copies are compared, of up to 256 × 256 smoothed means. Each tile of 8 × 8 must
correlate by the formula above, with 16 in place of 4: at least 0.5, or 0.8 where a picture is too small for 128 × 128.

In a group, each picture is alike to another, and all correlate by 0.75 at least, so that no chain joins different ones.
Size, compression, brightness and contrast change little, a border of 5 % that is cut off somewhat more.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.index import rows_by_number
from channelhash.search.items import check_count
from channelhash.search.store import Store
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet

_SIDE, _SHAPE, _CHAIN, _CONTRAST = 16, 0.85, 0.75, 4
_COLOURS, _LEVELS, _PER_CONTRAST = 4, 32, 2
_TEXT_SIDE, _BACKGROUND, _SHADES = 128, 0.4, 8
_FINE_SIDE, _CELLS, _FINE_CONTRAST, _TILES = 256, 8, 16, 0.5
_COARSE, _COARSE_TILES = 64, 0.8  # a small picture's grid, and what its tiles must reach
# Copies that are kept in memory, some 60 MB and 130 MB; pictures that are compared with as many others at a time.
_CACHED, _FINE_CACHED, _TILE = 1 << 16, 1 << 11, 1 << 9

_Floats = NDArray[np.float32]
_Pairs = NDArray[np.bool_]
_Read = TypeVar("_Read")


class _Copy(NamedTuple):
    """A small copy of a picture file.

    Attributes:
        path: of the file.
        grey: ``(16, 16)`` uint8.
        colour: ``(4, 4, 3)`` uint8.
        text: whether its detail counts: much of it is background, as of a page.
    """

    path: str
    grey: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    text: bool


class _Detail(NamedTuple):
    """A larger copy of a picture file: ``(256, 256)`` uint8, and the side of the finest grid that it fills twice."""

    cells: NDArray[np.uint8]
    grid: int


def _read_small(path: str) -> _Copy | None:
    """Read the small copy of one picture file; the last ones are kept until their files change."""
    return _try(__read_small, path) if path else None


def _try(read: Callable[[str, int], _Read], path: str) -> _Read | None:
    """Read a file as it is now; None where it cannot be read."""
    try:
        status = Path(path).stat()
        # An editor may put the time of the content back, but not that of the last change.
        return read(path, max(status.st_mtime_ns, status.st_ctime_ns))
    except OSError:
        return None


@lru_cache(_CACHED)
def __read_small(path: str, _changed: int) -> _Copy:
    with open_image(path) as opened:
        image = _shrink(decode(opened, 2 * _TEXT_SIDE), _TEXT_SIDE)
    grey = image.convert("L")
    background = np.convolve(grey.histogram(), np.ones(2 * _SHADES + 1)).max() / _TEXT_SIDE**2
    shape, colour = (np.asarray(_shrink(picture, side)) for picture, side in ((grey, _SIDE), (image, _COLOURS)))
    return _Copy(path, shape, colour, bool(background >= _BACKGROUND))


def _shrink(image: Image.Image, side: int) -> Image.Image:
    return image.resize((side, side), Image.Resampling.BOX)


@lru_cache(_FINE_CACHED)
def _read_detail(path: str, _changed: int) -> _Detail:
    with open_image(path) as opened:
        pixels = min(opened.size) // 2
        cells = np.asarray(_shrink(decode(opened, 2 * _FINE_SIDE).convert("L"), _FINE_SIDE), dtype=np.float32)
    for axis in (0, 1):  # what is as fine as a cell changes with the size of a copy
        cells = ((np.roll(cells, 1, axis) + 2 * cells + np.roll(cells, -1, axis)) / 4).astype(np.float32)
    grid = _FINE_SIDE
    while grid > max(pixels, 2 * _CELLS):
        grid //= 2
    return _Detail(cells.round().astype(np.uint8), grid)


def _alike(copies: Sequence[_Copy], others: Sequence[_Copy], shape: float = _SHAPE) -> _Pairs:
    """Return for each of ``n`` pictures and each of ``m`` others whether they are alike.

    >>> dark, colour = np.outer(np.arange(16), np.arange(16)).astype(np.uint8) // 2, np.zeros((4, 4, 3), np.uint8)
    >>> one, *more = [_Copy("", grey, colour, False) for grey in (dark, 2 * dark, 2 * dark[::-1])]
    >>> _alike([one], more).tolist()
    [[True, False]]
    """
    a, a_energies = _unit(_stack(copy.grey for copy in copies), _CONTRAST)
    b, b_energies = _unit(_stack(copy.grey for copy in others), _CONTRAST)
    near: _Pairs = a @ b.T >= shape
    if not near.any():
        return near
    a, b = (_stack(copy.colour.ravel() for copy in side) for side in (copies, others))
    squares = (a**2).mean(axis=1)[:, None] + (b**2).mean(axis=1) - 2 / a.shape[1] * (a @ b.T)
    contrasts = np.sqrt(np.minimum.outer(a_energies, b_energies))
    near &= np.sqrt(np.maximum(squares, 0)) <= _LEVELS + _PER_CONTRAST * contrasts
    text = near & np.logical_or.outer([copy.text for copy in copies], [copy.text for copy in others])
    text &= np.not_equal.outer([copy.path for copy in copies], [copy.path for copy in others])
    rows, columns = np.flatnonzero(text.any(axis=1)), np.flatnonzero(text.any(axis=0))
    cut = np.ix_(rows, columns)
    a_details = [_try(_read_detail, copies[row].path) for row in rows.tolist()]
    b_details = [_try(_read_detail, others[column].path) for column in columns.tolist()]
    near[cut] &= ~text[cut] | _same_detail(a_details, b_details, text[cut])
    return near


def _same_detail(a: Sequence[_Detail | None], b: Sequence[_Detail | None], pairs: _Pairs) -> _Pairs:
    """Return those of the pairs whose larger copies are alike, on the finest grid of both."""
    a_grids, b_grids = (np.array([detail.grid if detail else 0 for detail in side]) for side in (a, b))
    finest = np.minimum.outer(a_grids, b_grids)
    same = np.zeros_like(pairs)  # nothing is alike to a file that has gone since
    for grid in np.unique(finest[finest > 0]).tolist():
        rows, columns = np.flatnonzero(a_grids >= grid), np.flatnonzero(b_grids >= grid)
        cut = np.ix_(rows, columns)
        same[cut] |= _same_tiles(_cells(a, rows, grid), _cells(b, columns, grid), pairs[cut] & (finest[cut] == grid))
    return same


def _cells(details: Sequence[_Detail | None], rows: NDArray[np.int64], grid: int) -> _Floats:
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
        one, other = (_unit(_tile_row(side, start), _FINE_CONTRAST)[0] for side in (a[rows], b[columns]))
        pairs[np.ix_(rows, columns)] &= (one @ other.transpose(0, 2, 1)).min(axis=0) >= least
    return pairs


def _tile_row(cells: _Floats, start: int) -> _Floats:
    """Return one row of the tiles of ``n`` larger copies, ``(tiles, n, 8, 8)``."""
    rows = cells[:, start : start + _CELLS]
    return rows.reshape(len(cells), _CELLS, -1, _CELLS).transpose(2, 0, 1, 3)


def _stack(images: Iterable[NDArray[np.uint8]]) -> _Floats:
    return np.array(list(images), dtype=np.float32)


def _unit(images: _Floats, least: float) -> tuple[_Floats, _Floats]:
    """Return unit vectors of images ``(…, side, side)``, whose products are the correlations, and mean squares.

    The last element of a vector stands for ``least``, which all images have in common.
    """
    means = images.mean(axis=-1, keepdims=True) + images.mean(axis=-2, keepdims=True)
    values = (images - means + images.mean(axis=(-2, -1), keepdims=True)).reshape(*images.shape[:-2], -1)
    energies = (values**2).mean(axis=-1)
    rest = np.full((*values.shape[:-1], 1), np.sqrt(least * values.shape[-1]), dtype=np.float32)
    lengths = np.sqrt((energies + least) * values.shape[-1])
    return np.concatenate([values, rest], axis=-1) / lengths[..., None], energies


def _split_alike(codes: PackedCodes, copies: Sequence[_Copy], radius: int | None) -> list[NDArray[np.int64]]:
    """Find groups of items whose pictures are all alike, each joined by steps of at most ``radius`` bits.

    >>> colour = np.zeros((4, 4, 3), np.uint8)
    >>> a, b = np.outer(np.arange(16), np.arange(16)).astype(np.uint8), np.eye(16, dtype=np.uint8) * 99
    >>> copies = [_Copy("", grey, colour, False) for grey in (a, b, a)]
    >>> [places.tolist() for places in _split_alike(np.zeros((3, 1), np.uint8), copies, 0)]
    [[0, 2]]
    """
    numbers = np.arange(len(codes))
    for tile, other in combinations_with_replacement(_tiles(len(codes)), 2):
        near = _alike(copies[tile], copies[other])
        if radius is not None:
            near &= hamming_distances(codes[tile], codes[other]) <= radius
        near &= numbers[tile, None] != numbers[other]
        if near.any():
            rows, columns = np.nonzero(near)
            numbers = _joined(numbers, rows + tile.start, columns + other.start)
    return [
        group[places]
        for group in rows_by_number(numbers)
        if len(group) > 1
        for places in _cliques([copies[place] for place in group])
        if len(places) > 1
    ]


def _cliques(copies: Sequence[_Copy]) -> list[NDArray[np.int64]]:
    """Put each picture into the first group whose pictures are all alike to it, so that a chain joins no others.

    Two copies that were changed in opposite ways, as one cut and one with a border, may differ somewhat more.
    """
    numbers = np.zeros(len(copies), dtype=np.int64)
    sizes: list[int] = []
    for tile in _tiles(len(copies)):
        near = np.hstack([_alike(copies[tile], copies[other], _CHAIN) for other in _tiles(tile.stop)])
        for place in range(tile.start, min(tile.stop, len(copies))):
            counts = np.bincount(numbers[:place], near[place - tile.start, :place], len(sizes))
            fitting = np.flatnonzero(counts == sizes)
            numbers[place] = fitting[0] if len(fitting) else len(sizes)
            if not len(fitting):
                sizes.append(0)
            sizes[numbers[place]] += 1
    return rows_by_number(numbers)


def _tiles(n: int) -> list[slice]:
    return [slice(start, start + _TILE) for start in range(0, n, _TILE)]


def _joined(numbers: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the groups ``(n,)`` after joining those of each row and its column."""
    roots = np.arange(len(numbers))  # of each group, the smallest number among those that it is joined with so far
    while True:
        one, other = roots[numbers[rows]], roots[numbers[columns]]
        if np.array_equal(one, other):
            joined: NDArray[np.int64] = roots[numbers]
            return joined
        np.minimum.at(roots, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]


# Bits of a code for one of the radius of codes alone, and the least; items that are read at a time.
_BITS, _LEAST, _ITEMS = 16, 3, 1000


@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are near-duplicates of each other.

    Attributes:
        ids: sorted.
        distances: of each item, the number of bits in which its code differs from the first one's.

    >>> DuplicateGroup(["a", "b"], [0, 2]).ids
    ['a', 'b']
    """

    ids: list[str]
    distances: list[int]


def default_radius(n_bits: int) -> int:
    """Return the bits within which codes alone make near-duplicates, unless another number is asked for.

    >>> default_radius(256), default_radius(32)
    (16, 3)
    """
    return max(_LEAST, n_bits // _BITS)


def find_duplicates(
    store: Store,
    radius: int | None = None,
    modality: str | None = None,
    where: str | None = None,
    pictures: bool = True,
) -> list[DuplicateGroup]:
    """Find the groups of items whose pictures are all alike, or, where there are none to compare, whose codes are near.

    Codes of a small copy are often far from the original's, so by default pictures alone decide. Groups by codes alone
    are connected by steps of at most ``radius`` bits: the ends of a chain may be farther apart, as
    `DuplicateGroup.distances` show.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [7], [255]], np.uint8)}
    >>> [group.ids for group in find_duplicates(open_codes(ch.CodeSet(["a", "b", "c"], codes, None, n_bits=8)))]
    [['a', 'b']]
    """
    if radius is not None:
        check_count(radius, "radius", 0)
    ids, codes = store.codes(modality, where)
    if not ids or store.n_bits is None:
        return []
    if pictures and store.choose_modality(modality) == "image":
        groups = _by_pictures(store, ids, codes, radius)
    else:
        groups = _by_codes(codes, store.n_bits, radius)
    return [
        DuplicateGroup([ids[row] for row in rows], hamming_distances(codes[rows[:1]], codes[rows])[0].tolist())
        for rows in map(np.ndarray.tolist, groups)
    ]


def _by_codes(codes: PackedCodes, n_bits: int, radius: int | None) -> list[NDArray[np.int64]]:
    from channelhash.search.index.duplicates import duplicate_groups  # compiled code, seconds to load

    return duplicate_groups(codes, n_bits, default_radius(n_bits) if radius is None else radius)


def _by_pictures(store: Store, ids: list[str], codes: PackedCodes, radius: int | None) -> list[NDArray[np.int64]]:
    """Return the groups of rows whose pictures are alike, and, of those without a picture, whose codes are near."""
    n_bits = store.n_bits or 0
    near = [np.arange(len(ids))] if radius is None else _by_codes(codes, n_bits, radius)
    rows = [row for group in near for row in group.tolist()]
    paths = [
        str(item.metadata.get("image") or "")
        for start in range(0, len(rows), _ITEMS)
        for item in store.get([ids[row] for row in rows[start : start + _ITEMS]])
    ]
    with ThreadPoolExecutor() as pool:
        copies = dict(zip(rows, pool.map(_read_small, paths), strict=True))
    groups = []
    for group in near:
        seen = [copy for row in group.tolist() if (copy := copies[row]) is not None]
        is_seen = np.array([copies[row] is not None for row in group.tolist()])
        pictured, others = group[is_seen], group[~is_seen]
        groups += [pictured[places] for places in _split_alike(codes[pictured], seen, radius)]
        if len(others) > 1:
            groups += [others[places] for places in _by_codes(codes[others], n_bits, radius)]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def fold(codes: PackedCodes, radius: int, most: int | None = None, images: Sequence[str] = ()) -> dict[int, list[int]]:
    """Fold each code into the first earlier one within ``radius`` bits that is not folded itself.

    >>> fold(np.array([[0], [255], [1], [3], [254]], np.uint8), radius=1)
    {0: [2], 1: [4], 3: []}
    """
    folded: dict[int, list[int]] = {}
    for place in range(len(codes)):
        stay = list(folded)
        near = np.flatnonzero(hamming_distances(codes[place : place + 1], codes[stay])[0] <= radius).tolist()
        first = next((stay[n] for n in near if not images or _same_picture(images[stay[n]], images[place])), None)
        if first is not None:
            folded[first].append(place)
        elif most is None or len(folded) < most:
            folded[place] = []
    return folded


def _same_picture(path: str, other: str) -> bool:
    """Return whether two pictures are alike; those that cannot be read are."""
    first, second = _read_small(path), _read_small(other)
    if first is None or second is None:
        return first is second
    return bool(_alike([first], [second])[0, 0])


def draw_groups(store: Store, groups: Sequence[DuplicateGroup], path: Path, most: int = 8) -> None:
    """Draw groups as a PNG, a row each, of at most ``most`` items."""
    rows = []
    for group in groups:
        items = store.get(group.ids[:most])
        cells = []
        for item, distance in zip(items, group.distances, strict=False):
            image = item.metadata.get("image")
            cells.append(Cell(Path(str(image)) if image else None, f"{bits(distance)}: {item.id}"))
        rows.append(cells)
    write_contact_sheet(rows, path)
