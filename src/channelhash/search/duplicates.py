"""Near-duplicates of a store: groups of items with pictures that are alike, or with near codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.alike import read_copies, split_alike
from channelhash.search.store import Item, Store
from channelhash.search.validation import check_count
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet

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

    Codes of a small copy are often far from the original's, so by default pictures alone decide
    (`channelhash.search.alike`). Groups by codes alone are connected by steps of at most ``radius`` bits: the ends of a
    chain may be farther apart, as `DuplicateGroup.distances` show.

    Args:
        store: the store to look through.
        radius: in bits, inclusive; 0 finds equal codes. Left out, codes do not matter where pictures are compared, and
            elsewhere it is a 16th of the bits, at least 3. With it, only pictures of items with near codes are read.
        modality: modality whose codes count; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        pictures: compare the pictures of items with image codes. Items whose picture is not there or cannot be read are
            near-duplicates of such items only, by codes alone.

    Returns:
        The largest group first, equally large ones by their first id. Pictures take O(n²) time and are read once;
        codes alone take what `channelhash.search.index.duplicates.duplicate_groups` says.

    Raises:
        InputError: ``radius`` is below 0, the store has no such codes, or the filter is wrong.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
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


def image_path(item: Item) -> str:
    """Return the path of an item's image, empty if it has none."""
    return str(item.metadata.get("image") or "")


def _by_codes(codes: PackedCodes, n_bits: int, radius: int | None) -> list[NDArray[np.int64]]:
    from channelhash.search.index.duplicates import duplicate_groups  # compiled code, seconds to load

    return duplicate_groups(codes, n_bits, default_radius(n_bits) if radius is None else radius)


def _by_pictures(store: Store, ids: list[str], codes: PackedCodes, radius: int | None) -> list[NDArray[np.int64]]:
    """Return the groups of rows whose pictures are alike, and, of those without a picture, whose codes are near."""
    n_bits = store.n_bits or 0
    near = [np.arange(len(ids))] if radius is None else _by_codes(codes, n_bits, radius)
    rows = [row for group in near for row in group.tolist()]
    paths = [
        image_path(item)
        for start in range(0, len(rows), _ITEMS)
        for item in store.get([ids[row] for row in rows[start : start + _ITEMS]])
    ]
    copies = dict(zip(rows, read_copies(paths), strict=True))
    groups = []
    for group in near:
        seen = [copy for row in group.tolist() if (copy := copies[row]) is not None]
        is_seen = np.array([copies[row] is not None for row in group.tolist()])
        pictured, others = group[is_seen], group[~is_seen]
        groups += [pictured[places] for places in split_alike(codes[pictured], seen, radius)]
        if len(others) > 1:
            groups += [others[places] for places in _by_codes(codes[others], n_bits, radius)]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def draw_groups(store: Store, groups: Sequence[DuplicateGroup], path: Path, most: int = 8) -> None:
    """Draw groups as a PNG, a row each, of at most ``most`` items."""
    rows = []
    for group in groups:
        items = store.get(group.ids[:most])
        cells = []
        for item, distance in zip(items, group.distances, strict=False):
            image = image_path(item)
            cells.append(Cell(Path(image) if image else None, f"{bits(distance)}: {item.id}"))
        rows.append(cells)
    write_contact_sheet(rows, path)
