"""Groups of images that are copies of one image.

In a group each image is alike to another one. Any two reach the wider limits `IN_GROUP`, or one is
a moved copy of what is near the other, so that no chain joins different images.
What has been compared can be kept: the next run compares only what is new.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.comparison import (
    ALIKE,
    IN_GROUP,
    alike_wholes,
    confirm,
    correlate,
    part_by_mirrors,
)
from channelhash.copies.detail import Floats, PairMask, Places
from channelhash.copies.moved import Views, confirm_moved, may_be_moved, views_of
from channelhash.copies.small_copies import KeptCopies, SmallCopy
from channelhash.utils.machine import one_blas_thread, usable_cores
from channelhash.utils.progress import Progress, no_progress

#: Images that are compared with as many others at a time, so that products stay in the cache.
_TILE = 384
#: Rounds that join chains of moved copies, each twice as long as the last: up to eight links.
_LINKS = 3


def group_copies(
    codes: PackedCodes,
    copies: Sequence[SmallCopy],
    radius: int | None = None,
    kept: KeptCopies | None = None,
    apart: Mapping[int, Collection[int]] | None = None,
    progress: Progress = no_progress,
) -> list[Places]:
    """Find the groups of items whose images are all alike, joined by steps of at most ``radius``
    bits.

    Args:
        codes: of the items.
        copies: of their images.
        radius: None if codes do not count.
        kept: what was compared before and is from now on, tile by tile; only if these are all
            images of a store.
        apart: place -> numbers; items that share one are in different groups.
        progress: of the comparisons.

    >>> colour = np.zeros((16, 16, 3), np.uint8)
    >>> ramp = np.outer(np.arange(16), np.arange(16)).astype(np.uint8)
    >>> greys = [ramp, np.eye(16, dtype=np.uint8) * 99, ramp]
    >>> copies = [SmallCopy("", grey, colour, False) for grey in greys]
    >>> [places.tolist() for places in group_copies(np.zeros((3, 1), np.uint8), copies)]
    [[0, 2]]
    """
    images = _ImageGroups(codes, copies, radius, np.arange(len(copies)), np.zeros((0, 2), np.int64))
    is_new = _recall(kept, images) if kept else np.ones(len(copies), dtype=bool)
    _compare_new(images, is_new, kept, progress)
    apart = apart or {}
    groups = []
    for chained in rows_by_number(images.numbers):
        if len(chained) > 1:
            numbers = [apart.get(place, ()) for place in chained.tolist()]
            links = images.moved[images.numbers[images.moved[:, 0]] == images.numbers[chained[0]]]
            near = _near(images.copies_at(chained), np.searchsorted(chained, links))
            cliques = _cliques(near, numbers)
            groups += [chained[places] for places in cliques if len(places) > 1]
    return groups


@dataclass
class _ImageGroups:
    """Images, and the groups that they form so far.

    Attributes:
        codes: of their items.
        copies: small ones.
        radius: most bits between two that are joined; None if codes do not count.
        numbers: ``(n,)``, of the group of each.
        moved: ``(pairs, 2)``, places of images of which one may be a moved copy of the other.
    """

    codes: PackedCodes
    copies: Sequence[SmallCopy]
    radius: int | None
    numbers: Places
    moved: Places

    def copies_at(self, places: Places) -> list[SmallCopy]:
        """Return the small copies at some places."""
        return [self.copies[place] for place in places.tolist()]

    def join(self, rows: Places, columns: Places, pairs: "_Candidates") -> None:
        """Join the groups of those pairs, of images at some places and others, that are alike."""
        copies = self.copies_at(rows)
        others = self.copies_at(columns)
        asked = pairs.wholes & self._are_apart(rows, columns)
        self._join_pairs(rows, columns, confirm(copies, others, asked))
        asked = pairs.moved & self._are_apart(rows, columns)
        found = self._join_pairs(rows, columns, confirm_moved(copies, others, asked))
        self.moved = np.concatenate([self.moved, found])

    def _are_apart(self, rows: Places, columns: Places) -> PairMask:
        """Return which pairs are in different groups, and have near codes if codes count."""
        apart: PairMask = self.numbers[rows][:, None] != self.numbers[columns]
        if self.radius is not None:
            apart &= hamming_distances(self.codes[rows], self.codes[columns]) <= self.radius
        return apart

    def _join_pairs(self, rows: Places, columns: Places, pairs: PairMask) -> Places:
        one, other = np.nonzero(pairs)
        self.numbers = join_groups(self.numbers, rows[one], columns[other])
        return np.stack([rows[one], columns[other]], axis=1)


class _Candidates(NamedTuple):
    """The pairs of two tiles that may be alike.

    Attributes:
        wholes: as wholes.
        moved: one as a part of the other.
    """

    wholes: PairMask
    moved: PairMask


#: What is compared of a tile first: parts by mirrors of its images, and their views.
_Outlines = tuple[Floats, Views]


def _compare_new(
    images: _ImageGroups, is_new: NDArray[np.bool_], kept: KeptCopies | None, progress: Progress
) -> None:
    """Compare each new image with all others, tile by tile, and join the groups of like ones."""
    n_new = int(is_new.sum())
    if not n_new:
        return
    order = np.argsort(~is_new, kind="stable")
    tiles = [order[tile] for tile in _tiles(len(order))]
    outlines = [_outline(images.copies_at(tile)) for tile in tiles]
    n_rows = -(-n_new // _TILE)
    total = sum(len(tiles) - first for first in range(n_rows))
    done = 0
    with ThreadPoolExecutor(usable_cores()) as pool, one_blas_thread():
        for first in range(n_rows):
            rows = tiles[first][: n_new - first * _TILE]
            before = images.numbers, len(images.moved)
            find = partial(_candidates, _outline(images.copies_at(rows)))
            found = pool.map(find, outlines[first:])
            for columns, pairs in zip(tiles[first:], found, strict=True):
                if pairs is not None:
                    images.join(rows, columns, pairs)
                done += 1
                progress(done, total)
            if kept:
                _remember(kept, images, rows, before)


def _outline(copies: Sequence[SmallCopy]) -> _Outlines:
    return part_by_mirrors(copies), views_of(copies)


def _candidates(a: _Outlines, b: _Outlines) -> _Candidates | None:
    """Return the pairs of two tiles that may be alike; None if there is none, as mostly."""
    a_parts, a_views = a
    b_parts, b_views = b
    wholes: PairMask = correlate(a_parts, b_parts) >= ALIKE.shape
    moved = np.zeros_like(wholes)
    one, other = np.nonzero(may_be_moved(a_views, b_views) | may_be_moved(b_views, a_views).T)
    moved[a_views.owners[one], b_views.owners[other]] = True
    return _Candidates(wholes, moved) if wholes.any() or moved.any() else None


def _recall(kept: KeptCopies, images: _ImageGroups) -> NDArray[np.bool_]:
    """Join the groups that are kept, and return which images must be compared with all others."""
    places = {copy.path: place for place, copy in enumerate(images.copies)}
    compared = kept.compared()
    pairs = kept.pairs()
    stale = _stale_paths(compared, pairs, places.keys())
    if stale:
        kept.forget(stale)
    joined = [(places[one], places[other]) for one, other in pairs if one not in stale]
    images.moved = np.array(joined, dtype=np.int64).reshape(-1, 2)
    images.numbers = join_groups(images.numbers, *images.moved.T)
    known = compared - stale
    # Of several items with one file, the last one stands for it.
    is_known = [
        copy.path in known and places[copy.path] == place
        for place, copy in enumerate(images.copies)
    ]
    return ~np.array(is_known, dtype=bool)


def _stale_paths(
    compared: set[str], pairs: Sequence[tuple[str, str]], present: Collection[str]
) -> set[str]:
    """Return the paths whose comparisons do not hold any more.

    A group of which an image is gone, or was read again, is compared again: that image may have
    connected the others.
    """
    paths = list(dict.fromkeys(chain.from_iterable(pairs)))
    numbers = {path: number for number, path in enumerate(paths)}
    ends = _ends([(numbers[one], numbers[other]) for one, other in pairs])
    groups = join_groups(np.arange(len(paths)), *ends)
    whole = compared.intersection(present)
    is_lost = np.array([path not in whole for path in paths], dtype=bool)
    is_stale = np.isin(groups, groups[is_lost])
    return {paths[number] for number in np.flatnonzero(is_stale).tolist()} | (compared - whole)


def _ends(pairs: Sequence[tuple[int, int]]) -> tuple[Places, Places]:
    one, other = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return one, other


def _remember(
    kept: KeptCopies, images: _ImageGroups, compared: Places, before: tuple[Places, int]
) -> None:
    """Keep which images have been compared with all others, and which groups that has joined."""
    numbers, n_moved = before
    changed = np.flatnonzero(images.numbers != numbers)
    joined = np.stack([changed, images.numbers[changed]], axis=1)
    pairs = np.concatenate([joined, images.moved[n_moved:]])
    paths = [copy.path for copy in images.copies]
    kept.remember(
        [paths[place] for place in compared.tolist()],
        [(paths[one], paths[other]) for one, other in pairs.tolist()],
    )


def _cliques(near: PairMask, apart: Sequence[Collection[int]]) -> list[Places]:
    """Put each image into the first group whose images are all near it and share no number with it,
    so that no chain joins different ones.
    """
    numbers = np.zeros(len(apart), dtype=np.int64)
    sizes: list[int] = []
    for place, own in enumerate(apart):
        fits = near[place, :place]
        barred = set(own)
        if barred:
            others = range(place)
            fits[[other for other in others if not barred.isdisjoint(apart[other])]] = False
        counts = np.bincount(numbers[:place], fits, len(sizes))
        fitting = np.flatnonzero(counts == sizes)
        numbers[place] = fitting[0] if len(fitting) else len(sizes)
        if not len(fitting):
            sizes.append(0)
        sizes[numbers[place]] += 1
    return rows_by_number(numbers)


def _near(copies: Sequence[SmallCopy], links: Places) -> PairMask:
    """Return for any two images whether they can be in one group, given the pairs that may be moved
    copies.
    """
    near = np.zeros((len(copies), len(copies)), dtype=bool)
    for tile in _tiles(len(copies)):
        for other in _tiles(tile.stop):
            near[tile, other] = alike_wholes(copies[tile], copies[other], IN_GROUP)
    near |= near.T
    asked = np.zeros_like(near)
    asked[links[:, 0], links[:, 1]] = True
    moved = confirm_moved(copies, copies, asked)
    same = (moved | moved.T | np.eye(len(copies), dtype=bool)).astype(np.float32)
    for _ in range(_LINKS):
        same = (same @ same > 0).astype(np.float32)
    return near | (same @ near @ same > 0)


def _tiles(n: int) -> list[slice]:
    return [slice(start, start + _TILE) for start in range(0, n, _TILE)]


def rows_by_number(numbers: Places) -> list[Places]:
    """Return the rows of each number, in ascending order.

    >>> [rows.tolist() for rows in rows_by_number(np.array([4, 2, 4]))]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def join_groups(numbers: Places, rows: Places, columns: Places) -> Places:
    """Return the numbers of the groups ``(n,)`` after joining those of each row and its column. A
    group has the smallest of its numbers.

    >>> join_groups(np.arange(4), np.array([0, 3]), np.array([2, 2])).tolist()
    [0, 1, 0, 0]
    """
    # Of each group, the smallest number among the groups that it is joined with so far.
    roots = np.arange(len(numbers))
    while True:
        left = roots[numbers[rows]]
        right = roots[numbers[columns]]
        if np.array_equal(left, right):
            joined: Places = roots[numbers]
            return joined
        np.minimum.at(roots, np.maximum(left, right), np.minimum(left, right))
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]
