"""Near-duplicates of a store: groups of items with pictures that are alike, or near codes, and
which one to keep.
"""

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.small_copies import (
    SmallCopy,
    group_copies,
    join_groups,
    read_copies,
    rows_by_number,
    turns_of,
)
from channelhash.duplicates.decisions import (
    decisions,
    identity_of,
    is_raw,
    links_in,
    open_decisions,
)
from channelhash.search.browsing import date_of
from channelhash.search.checks import check_count
from channelhash.search.fold import default_radius
from channelhash.search.store import Item, Store
from channelhash.utils.contact_sheet import SheetCell, bits, write_contact_sheet
from channelhash.utils.image_files import open_image, upright_size
from channelhash.utils.progress import StageProgress, no_stage_progress

#: Items that are read at a time.
_ITEMS = 1000
#: Distinct codes that are compared at a time with `_ITEMS` others.
_CODES = 250
_COPY_NAME = re.compile(
    r"(\(\d+\)|~\d*|(^|[-_ .])(copy|kopie|copie|copia|edited|bearbeitet"
    r"|mirrored|flipped|rotated|turned|gespiegelt|gedreht)([-_ ]?\d+)?)$",
    re.IGNORECASE,
)


class Photo(NamedTuple):
    """What decides which one of several copies to keep.

    Attributes:
        id: of the item.
        path: of its file.
        width: in pixels, 0 if unknown.
        height: likewise.
        size: of the file in bytes.
        date: when it was taken, or its file was changed.
        taken: whether the date is the camera's.
        sharpness: see `channelhash.copies.small_copies`.
        turned: whether it is mirrored or turned, and more of its copies are not, or those that have
            the camera's date.
        described: what people said of it: the number of rating, title and keywords.

    >>> Photo("a.jpg", size=90_000).taken
    False
    """

    id: str
    path: str = ""
    width: int = 0
    height: int = 0
    size: int = 0
    date: str = ""
    taken: bool = False
    sharpness: float = 0.0
    turned: bool = False
    described: int = 0

    @property
    def facts(self) -> str:
        """Size, date and bytes in one line."""
        pixels = f"{self.width} × {self.height}" if self.width else ""
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 1e6 else f"{self.size / 1e3:.0f} kB"
        return ", ".join(filter(None, [pixels, self.date[:10], size if self.size else ""]))


class _Criterion(NamedTuple):
    """Why to keep a picture, what is compared, and what share of the best counts as equal."""

    reason: str
    measure: Callable[[Photo], float]
    share: float = 1.0


# The first that tells copies apart decides. What cannot be had again comes first: pixels, then what
# cameras and people said. A file that is a little larger was only compressed otherwise.
_CRITERIA = (
    _Criterion("most pixels", lambda photo: photo.width * photo.height),
    _Criterion("sharpest", lambda photo: photo.sharpness, share=0.8),  # compression adds edges, too
    _Criterion("upright", lambda photo: not photo.turned),
    _Criterion("has rating, title or keywords", lambda photo: photo.described),
    _Criterion("has the camera's date", lambda photo: photo.taken),
    _Criterion("largest file", lambda photo: photo.size, share=0.9),
    _Criterion("name of an original", lambda photo: not _COPY_NAME.search(Path(photo.id).stem)),
)


def _propose_keeper(photos: Sequence[Photo]) -> tuple[str, str]:
    """Return the id of the best of several copies, and why it is.

    >>> _propose_keeper([Photo("b (1).jpg", size=9), Photo("b.jpg", size=9), Photo("a.jpg", size=8)])
    ('b.jpg', 'largest file, name of an original')
    """
    left = list(photos)
    reasons = list[str]()
    for criterion in _CRITERIA:
        least = criterion.share * max(map(criterion.measure, left))
        best = [photo for photo in left if criterion.measure(photo) >= least]
        if len(best) < len(left):
            left = best
            reasons = [*reasons, criterion.reason]
    return left[0].id, ", ".join(reasons) or "all are equal"


@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are near-duplicates of each other.

    Attributes:
        ids: sorted.
        distances: of each item, the number of bits in which its code differs from the first one's.
        photos: what is known of each.
        keeper: the id of the one that is proposed to be kept.
        reason: why.

    >>> DuplicateGroup(["a", "b"], [0, 2]).ids
    ['a', 'b']
    """

    ids: list[str]
    distances: list[int]
    photos: list[Photo] = field(default_factory=list, compare=False)
    keeper: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)


def find_duplicates(
    store: Store,
    radius: int | None = None,
    modality: str | None = None,
    where: str | None = None,
    compare_images: bool = True,
    progress: StageProgress = no_stage_progress,
) -> list[DuplicateGroup]:
    """Find the groups of items whose images are alike, or, without images, whose codes are near.

    Images decide by default, as codes of a small copy are often far from the original's. Codes are
    joined in steps of at most ``radius`` bits, so the ends of a chain may be farther apart. Groups
    that people said are different are left out. All but the keeper of a group can go: files with
    several names count once, links and what they lead to are left out unless they are kept, and raw
    originals are copies of each other only. A store in a folder keeps small copies of its images
    and what was compared, so the next time only what changed is compared.

    Args:
        store: the store.
        radius: how many bits near codes differ in, 0 or more; by default by the code length.
        modality: modality whose codes are compared; images if the store has any, else its only one.
        where: filter that items pass, see `channelhash.search.filters`.
        compare_images: whether images decide where there are some. False compares codes alone.
        progress: stage -> its callback, which gets the numbers done and in all.

    Raises:
        InputError: the radius is negative, the filter is wrong, or the store has no such codes.

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
    use_pictures = compare_images and store.choose_modality(modality) == "image"
    with open_decisions(store) as opened:
        decided = decisions(opened)
        if use_pictures:
            groups, copies = _by_pictures(
                store, opened, ids, codes, radius, where is None, progress
            )
        else:
            groups = _group_codes(codes, store.n_bits, radius)
            copies = {}
    found = []
    for part, items in _split_by_files(store, ids, groups):
        if not set.intersection(*(decided.get(ids[row], set()) for row in part)):
            photos = _describe_all(items, list(map(copies.get, part)))
            found.append((part, photos))
    linked = links_in(store).keys() if found else set[object]()
    formed = [_form_group(part, photos, codes, linked) for part, photos in found]
    return sorted(
        (group for group in formed if len(group.ids) > 1),
        key=lambda group: (-len(group.ids), group.ids[0]),
    )


def _form_group(
    rows: Sequence[int], photos: Sequence[Photo], codes: PackedCodes, linked: Set[object]
) -> DuplicateGroup:
    """Propose which photo to keep, and leave out the others that links lead to: they stay."""
    keeper, reason = _propose_keeper(photos)
    places = [
        place
        for place, photo in enumerate(photos)
        if photo.id == keeper or identity_of(photo.path) not in linked
    ]
    members = [photos[place] for place in places]
    of_codes = codes[[rows[place] for place in places]]
    distances = hamming_distances(of_codes[:1], of_codes)[0].tolist()
    return DuplicateGroup([photo.id for photo in members], distances, members, keeper, reason)


def _items(store: Store, ids: Sequence[str]) -> dict[str, Item]:
    """Return id -> item, without those that others have deleted since they were found."""
    items: dict[str, Item] = {}
    for start in range(0, len(ids), _ITEMS):
        some = store.get(ids[start : start + _ITEMS], missing_ok=True)
        items.update((item.id, item) for item in some)
    return items


def _path_of(item: Item) -> str:
    return str(item.metadata.get("image") or "")


def _split_by_files(
    store: Store, ids: Sequence[str], groups: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[list[int], list[Item]]]:
    """Yield the rows and items of each group that are files of their own, those of raw originals
    for themselves.
    """
    items = _items(store, [ids[row] for group in groups for row in group.tolist()])
    for group in groups:
        stored = {row: items[ids[row]] for row in group.tolist() if ids[row] in items}
        files = _one_row_a_file({row: _path_of(item) for row, item in stored.items()})
        raw = [row for row in files if is_raw(_path_of(stored[row]))]
        developed = [row for row in files if row not in raw]
        for part in (raw, developed):
            if len(part) > 1:
                yield part, [stored[row] for row in part]


def _one_row_a_file(paths: Mapping[int, str]) -> list[int]:
    """Return the rows of files, without links; of several names of one file, the first that leads
    through no link, or else the first.
    """
    files = dict[object, int]()
    for row, path in paths.items():
        name = identity_of(path) or row
        if os.path.islink(path):
            continue
        if name not in files or (_is_direct(path) and not _is_direct(paths[files[name]])):
            files[name] = row
    return sorted(files.values())


def _is_direct(path: str) -> bool:
    return os.path.realpath(path) == os.path.abspath(path)


def _describe_all(items: Sequence[Item], copies: Sequence[SmallCopy | None]) -> list[Photo]:
    """Return what is known of the copies in a group, and which ones are turned against most."""
    photos = [_describe(item, copy) for item, copy in zip(items, copies, strict=True)]
    seen = [copy for copy in copies if copy is not None]
    if len(seen) < len(copies):
        return photos
    turns = turns_of(seen)
    votes = Counter(turns)
    votes_of_cameras = Counter(
        turn for turn, photo in zip(turns, photos, strict=True) if photo.taken
    )
    most = max((votes_of_cameras[turn], votes[turn]) for turn in turns)
    return [
        photo._replace(turned=(votes_of_cameras[turn], votes[turn]) < most)
        for turn, photo in zip(turns, photos, strict=True)
    ]


def _describe(item: Item, copy: SmallCopy | None) -> Photo:
    """Return what is known of a picture and its file, which may be gone."""
    metadata = item.metadata
    path = _path_of(item)
    size = 0
    width, height = metadata.get("width"), metadata.get("height")
    with suppress(OSError):
        size = os.stat(path).st_size
        if not isinstance(width, int) or not isinstance(height, int):
            with open_image(path) as opened:
                width, height = upright_size(opened)
    rating = metadata.get("rating")
    is_rated = isinstance(rating, int) and rating > 0  # 0 is none, and -1 a rejected picture
    return Photo(
        item.id,
        path,
        width if isinstance(width, int) else 0,
        height if isinstance(height, int) else 0,
        size,
        date_of(metadata),
        bool(metadata.get("taken")),
        copy.sharpness if copy else 0.0,
        described=is_rated + bool(metadata.get("title")) + bool(metadata.get("labels")),
    )


def _group_codes(
    codes: PackedCodes, n_bits: int, radius: int | None = None
) -> list[NDArray[np.int64]]:
    """Return the groups of rows whose codes are connected by steps of at most ``radius`` bits.

    Each distinct code is compared with all others, which takes 37 s for 10⁵ of 256 bits on two
    cores.

    >>> codes = np.array([[0], [255], [1], [7], [255]], np.uint8)
    >>> [group.tolist() for group in _group_codes(codes, n_bits=8, radius=2)]
    [[0, 2, 3], [1, 4]]
    """
    radius = default_radius(n_bits) if radius is None else radius
    distinct, places = np.unique(codes, axis=0, return_inverse=True)
    numbers = np.arange(len(distinct))
    for start in range(0, len(distinct), _CODES):
        tile = slice(start, start + _CODES)
        for first in range(start, len(distinct), _ITEMS):
            other = slice(first, first + _ITEMS)
            near = hamming_distances(distinct[tile], distinct[other]) <= radius
            near &= numbers[tile, None] != numbers[other]
            if near.any():
                rows, others = np.nonzero(near)
                numbers = join_groups(numbers, rows + start, others + first)
    return [group for group in rows_by_number(numbers[places.ravel()]) if len(group) > 1]


def _by_pictures(
    store: Store,
    opened: sqlite3.Connection,
    ids: list[str],
    codes: PackedCodes,
    radius: int | None,
    is_all: bool,
    progress: StageProgress,
) -> tuple[list[NDArray[np.int64]], dict[int, SmallCopy]]:
    """Return the groups of rows whose pictures are alike, and, of those without a picture, whose
    codes are near; and the small copies of the pictures.
    """
    n_bits = store.n_bits or 0
    different = decisions(opened, "different")
    near = [np.arange(len(ids))] if radius is None else _group_codes(codes, n_bits, radius)
    rows = [row for group in near for row in group.tolist()]
    items = _items(store, [ids[row] for row in rows])
    paths = [_path_of(items[ids[row]]) if ids[row] in items else "" for row in rows]
    copies = dict(zip(rows, read_copies(opened, paths, progress("read pictures")), strict=True))
    cache = opened if is_all and radius is None else None
    advance = progress("compare pictures")
    groups = []
    for group in near:
        seen = [copy for row in group.tolist() if (copy := copies[row]) is not None]
        is_seen = np.array([copies[row] is not None for row in group.tolist()])
        pictured = group[is_seen]
        others = group[~is_seen]
        apart = {
            place: different.get(ids[row], set()) for place, row in enumerate(pictured.tolist())
        }
        members = group_copies(codes[pictured], seen, radius, cache, apart, advance)
        groups += [pictured[places] for places in members]
        groups += [others[places] for places in _group_codes(codes[others], n_bits, radius)]
    return groups, {row: copy for row, copy in copies.items() if copy is not None}


def draw_groups(store: Store, groups: Sequence[DuplicateGroup], path: Path, most: int = 8) -> None:
    """Draw groups as a PNG, a row each, of at most ``most`` items."""
    rows = []
    for group in groups:
        items = store.get(group.ids[:most], missing_ok=True)
        distances = dict(zip(group.ids, group.distances, strict=True))
        cells = []
        for item in items:
            distance = distances[item.id]
            image = item.metadata.get("image")
            cells.append(
                SheetCell(Path(str(image)) if image else None, f"{bits(distance)}: {item.id}")
            )
        rows.append(cells)
    write_contact_sheet(rows, path)
