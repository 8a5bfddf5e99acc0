"""Find groups of near-duplicates in a store: items whose images are alike, or whose codes are near.
For each group, propose which item to keep.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.grouping import group_copies, join_groups, rows_by_number
from channelhash.copies.small_copies import KeptCopies, SmallCopy, read_copies
from channelhash.duplicates.decisions import Decisions, open_decisions, recall
from channelhash.duplicates.keepers import Photo, describe_copies, find_keeper, judge, path_of
from channelhash.search.checks import check_count
from channelhash.search.fold import default_radius
from channelhash.search.store import Item, Store
from channelhash.utils.contact_sheet import SheetCell, bits, write_contact_sheet
from channelhash.utils.image_files import RAW_ENDINGS
from channelhash.utils.progress import StageProgress, no_stage_progress

#: Items that are read at a time.
_ITEMS = 1000
#: Distinct codes that are compared with others at a time; a block of distances stays in the cache.
_CODES = 250
#: Others that they are compared with at a time.
_OTHER_CODES = 1000


#: Device and number of a file, whatever its names.
Identity = tuple[int, int]


def identity_of(path: str) -> Identity | None:
    """Return what a file and all links to it share; None where there is no file.

    >>> identity_of("none.jpg") is None
    True
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def links_in(store: Store) -> dict[Identity, str]:
    """Return the identities of the files that symbolic links among a store's images lead to, and
    the id of a link to each. Takes one pass over the store.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     links_in(store)
    {}
    """
    links = {}
    for item in store.listed():
        path = path_of(item)
        identity = identity_of(path) if os.path.islink(path) else None
        if identity is not None:
            links[identity] = item.id
    return links


def is_raw(path: str) -> bool:
    """Return whether an image file is a raw original.

    >>> is_raw("RAW/IMG_1.CR2"), is_raw("IMG_1.CR2.jpg")
    (True, False)
    """
    return os.path.splitext(path)[1].lower() in RAW_ENDINGS


@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are near-duplicates of each other.

    Attributes:
        ids: that of the keeper, then the others, sorted.
        distances: number of bits in which each item's code differs from the first one's.
        photos: what is known of each item.
        keeper: id of the item that is proposed to be kept.
        reason: why it is proposed.
        unsure: ids of the others that may be the original, or are no copies of it themselves.

    >>> DuplicateGroup(["a", "b"], [0, 2]).ids
    ['a', 'b']
    """

    ids: list[str]
    distances: list[int]
    photos: list[Photo] = field(default_factory=list, compare=False)
    keeper: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)
    unsure: list[str] = field(default_factory=list, compare=False)

    @property
    def rest(self) -> list[str]:
        """The ids of those that can go."""
        return [name for name in self.ids[1:] if name not in self.unsure]

    @property
    def spare_bytes(self) -> int:
        """Bytes of all files but that of the keeper."""
        return sum(photo.size for photo in self.photos[1:])


def find_duplicates(
    store: Store,
    radius: int | None = None,
    modality: str | None = None,
    where: str | None = None,
    compare_images: bool = True,
    progress: StageProgress = no_stage_progress,
) -> list[DuplicateGroup]:
    """Find the groups of items whose images are alike, or, without images, whose codes are near.

    Images decide by default, as the code of a small copy is often far from the original's. Codes
    are joined in steps of at most ``radius`` bits, so the ends of a chain may be farther apart.
    Groups that people have decided about are left out, see `channelhash.duplicates.decisions`. All
    but the keeper of a group can go: files with several names count once, links and what they lead
    to are left out unless they are the keeper, and raw originals are copies of each other only. A
    store in a folder keeps small copies of its images and what was compared, so the next time only
    what has changed is compared.

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
    >>> store = open_codes(ch.CodeSet(["a", "b", "c"], codes, None, n_bits=8))
    >>> [group.ids for group in find_duplicates(store)]
    [['a', 'b']]
    """
    if radius is not None:
        check_count(radius, "radius", 0)
    ids, codes = store.codes(modality, where)
    if not ids or store.n_bits is None:
        return []
    with open_decisions(store) as decisions:
        decided = decisions.numbers("different", "keep")
        if compare_images and store.choose_modality(modality) == "image":
            is_whole = where is None and radius is None
            groups, copies = _group_images(store, decisions, codes, ids, radius, is_whole, progress)
        else:
            groups = group_codes(codes, store.n_bits, radius)
            copies = {}
    found = []
    for part in _split_by_files(store, ids, groups):
        items = list(part.values())
        numbers = [decided.get(item.id, set()) for item in items]
        if set.intersection(*numbers):  # one decision is about all of them
            continue
        photos = describe_copies(items, list(map(copies.get, part)))
        found.append((photos, codes[list(part)]))
    return _form_groups(store, found)


def _form_groups(
    store: Store, found: Sequence[tuple[Sequence[Photo], PackedCodes]]
) -> list[DuplicateGroup]:
    """Return groups, given by photos and their codes, the largest first."""
    linked = links_in(store).keys() if found else ()
    formed = [_form_group(photos, codes, linked) for photos, codes in found]
    several = [group for group in formed if len(group.ids) > 1]
    return sorted(several, key=lambda group: (-len(group.ids), group.ids[0]))


def _form_group(
    photos: Sequence[Photo], codes: PackedCodes, linked: Collection[Identity | None]
) -> DuplicateGroup:
    """Propose which photo to keep, and leave out the others that links lead to: they stay."""
    keeper = find_keeper(photos)
    places = [
        place
        for place, photo in enumerate(photos)
        if photo is keeper or identity_of(photo.path) not in linked
    ]
    places.sort(key=lambda place: photos[place] is not keeper)
    members = [photos[place] for place in places]
    reason, unsure = judge(keeper, members[1:])
    distances = hamming_distances(codes[places[:1]], codes[places])[0].tolist()
    ids = [photo.id for photo in members]
    return DuplicateGroup(ids, distances, members, keeper.id, reason, unsure)


def _items_of(store: Store, ids: Sequence[str]) -> dict[str, Item]:
    """Return id -> item, without those that others have deleted since they were found."""
    items: dict[str, Item] = {}
    for start in range(0, len(ids), _ITEMS):
        some = store.get(ids[start : start + _ITEMS], missing_ok=True)
        items.update((item.id, item) for item in some)
    return items


def _split_by_files(
    store: Store, ids: Sequence[str], groups: Sequence[NDArray[np.int64]]
) -> Iterator[dict[int, Item]]:
    """Yield row -> item of each group for the items that are files of their own, those of raw
    originals apart.
    """
    items = _items_of(store, [ids[row] for row in _rows_of(groups)])
    for group in groups:
        stored = {row: items[ids[row]] for row in group.tolist() if ids[row] in items}
        for rows in _raw_and_developed({row: path_of(item) for row, item in stored.items()}):
            if len(rows) > 1:
                yield {row: stored[row] for row in rows}


def _raw_and_developed(paths: Mapping[int, str]) -> tuple[list[int], list[int]]:
    """Return the rows of files that are raw originals, and those of all other files."""
    raw = list[int]()
    developed = list[int]()
    for row in _one_row_a_file(paths):
        (raw if is_raw(paths[row]) else developed).append(row)
    return raw, developed


def _rows_of(groups: Sequence[NDArray[np.int64]]) -> list[int]:
    rows: list[int] = np.concatenate([np.zeros(0, np.int64), *groups]).tolist()
    return rows


def _one_row_a_file(paths: Mapping[int, str]) -> list[int]:
    """Return the rows of files that are no links. Of several names of one file this is the first
    that leads through no linked folder, or else the first.
    """
    files = dict[object, int]()
    for row, path in paths.items():
        if os.path.islink(path):
            continue
        file = identity_of(path) or row
        if file not in files or (_is_direct(path) and not _is_direct(paths[files[file]])):
            files[file] = row
    return sorted(files.values())


def _is_direct(path: str) -> bool:
    return os.path.realpath(path) == os.path.abspath(path)


def group_codes(
    codes: PackedCodes, n_bits: int, radius: int | None = None
) -> list[NDArray[np.int64]]:
    """Return the groups of rows whose codes are connected by steps of at most ``radius`` bits.

    Each distinct code is compared with all others: 37 s for 10⁵ codes of 256 bits on two cores.

    >>> codes = np.array([[0], [255], [1], [7], [255]], np.uint8)
    >>> [group.tolist() for group in group_codes(codes, n_bits=8, radius=2)]
    [[0, 2, 3], [1, 4]]
    """
    radius = default_radius(n_bits) if radius is None else radius
    distinct, places = np.unique(codes, axis=0, return_inverse=True)
    numbers = np.arange(len(distinct))
    for start in range(0, len(distinct), _CODES):
        tile = slice(start, start + _CODES)
        for first in range(start, len(distinct), _OTHER_CODES):
            other = slice(first, first + _OTHER_CODES)
            near = hamming_distances(distinct[tile], distinct[other]) <= radius
            near &= numbers[tile, None] != numbers[other]
            if near.any():
                rows, others = np.nonzero(near)
                numbers = join_groups(numbers, rows + start, others + first)
    return [group for group in rows_by_number(numbers[places.ravel()]) if len(group) > 1]


def _group_images(
    store: Store,
    decisions: Decisions,
    codes: PackedCodes,
    ids: Sequence[str],
    radius: int | None,
    is_whole: bool,
    progress: StageProgress,
) -> tuple[list[NDArray[np.int64]], dict[int, SmallCopy]]:
    """Return groups of rows, and the small copies of their images.

    In a group all images are alike, or those of no item can be read and codes are near. If these
    are all items of the store, and codes do not count, comparisons are kept.
    """
    n_bits = store.n_bits or 0
    near = [np.arange(len(ids))] if radius is None else group_codes(codes, n_bits, radius)
    copies = _copies_of(store, ids, _rows_of(near), decisions.copies, progress)
    different = decisions.numbers("different")
    kept = decisions.copies if is_whole else None
    advance = progress("compare pictures")
    groups = []
    for group in near:
        is_seen = np.array([row in copies for row in group.tolist()])
        seen = group[is_seen]
        unseen = group[~is_seen]
        small = [copies[row] for row in seen.tolist()]
        apart = {place: different.get(ids[row], ()) for place, row in enumerate(seen.tolist())}
        members = group_copies(codes[seen], small, radius, kept, apart, advance)
        groups += [seen[places] for places in members]
        groups += [unseen[places] for places in group_codes(codes[unseen], n_bits, radius)]
    return groups, copies


def _copies_of(
    store: Store, ids: Sequence[str], rows: Sequence[int], kept: KeptCopies, progress: StageProgress
) -> dict[int, SmallCopy]:
    """Return row -> small copy of the images that can be read."""
    items = _items_of(store, [ids[row] for row in rows])
    paths = [path_of(items[ids[row]]) if ids[row] in items else "" for row in rows]
    copies = read_copies(paths, kept, progress("read pictures"))
    return {row: copy for row, copy in zip(rows, copies, strict=True) if copy is not None}


def draw_groups(store: Store, groups: Sequence[DuplicateGroup], path: Path, most: int = 8) -> None:
    """Draw groups as a PNG, each a row of at most ``most`` items."""
    rows = []
    for group in groups:
        distances = dict(zip(group.ids, group.distances, strict=True))
        cells = []
        for item in store.get(group.ids[:most], missing_ok=True):
            image = path_of(item)
            title = f"{bits(distances[item.id])}: {item.id}"
            cells.append(SheetCell(Path(image) if image else None, title))
        rows.append(cells)
    write_contact_sheet(rows, path)


def regroup(
    store: Store, items: Sequence[Item], codes: PackedCodes, folded: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Fold answers that are copies of one image into the one that would be kept.

    Images whose small copies an earlier `find_duplicates` has left in the store's folder are
    compared as it does. Of others, only those that are folded already are read, to find which one
    would be kept. What people called different is not folded.

    Args:
        store: the store.
        items: the answers, best first.
        codes: ``(n, ceil(n_bits / 8))``, packed, of the answers.
        folded: place of an answer -> places of its near-copies, as `channelhash.search.fold` finds
            them.

    Returns:
        Place of what would be kept -> places of the others, in the order of the best of each group.

    Raises:
        InputError: what is kept in the store's folder cannot be read.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [0]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a (1).jpg", "a.jpg"], codes, None, n_bits=8))
    >>> items = store.get(["a (1).jpg", "a.jpg"])
    >>> regroup(store, items, codes["image"], {0: [1]})
    {1: [0]}
    """
    paths = [path_of(item) for item in items]
    recalled, different = recall(store, paths)
    by_id = sorted(enumerate(recalled), key=lambda pair: items[pair[0]].id)  # as all are grouped
    copies = {place: copy for place, copy in by_id if copy is not None}
    apart = [different.get(item.id, set()) for item in items]
    pairs = _pairs_of_copies(codes, copies, apart)
    for front, others in folded.items():
        pairs += [(front, other) for other in others if apart[front].isdisjoint(apart[other])]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    groups = rows_by_number(join_groups(np.arange(len(items)), rows, columns))
    return dict(_keeper_first(group.tolist(), items, paths, copies) for group in groups)


def _pairs_of_copies(
    codes: PackedCodes, copies: Mapping[int, SmallCopy], apart: Sequence[Collection[int]]
) -> list[tuple[int, int]]:
    """Return the places of the first and another answer of each group of copies."""
    places = np.array([*copies], dtype=np.int64)
    numbers = {row: apart[place] for row, place in enumerate(copies)}
    pairs = []
    for group in group_copies(codes[places], [*copies.values()], apart=numbers):
        first, *others = places[group].tolist()
        pairs += [(first, other) for other in others]
    return pairs


def _keeper_first(
    group: list[int], items: Sequence[Item], paths: Sequence[str], copies: Mapping[int, SmallCopy]
) -> tuple[int, list[int]]:
    """Return the place of what would be kept of a group, and the others."""
    if len(group) == 1:
        return group[0], []
    known = [copies.get(place) or read_copies([paths[place]])[0] for place in group]
    photos = describe_copies([items[place] for place in group], known)
    front = group[photos.index(find_keeper(photos))]
    return front, [place for place in group if place != front]
