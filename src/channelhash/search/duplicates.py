"""Near-duplicates of a store: groups of items with near codes and pictures that are alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.search.alike import read_greys, split_alike
from channelhash.search.store import Item, Store
from channelhash.search.validation import check_count
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet

# Bits of a code for one of the radius, unless another is asked for, and the least; items that are read at a time.
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
    """Return the bits within which two items may be near-duplicates, unless another number is asked for.

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
    """Find all groups of items that are connected by steps of at most ``radius`` bits between alike pictures.

    The ends of a chain may be farther apart than the radius: `DuplicateGroup.distances` show it.

    Args:
        store: the store to look through.
        radius: in bits, inclusive; 0 finds equal codes. By default a 16th of the bits, and at least 3.
        modality: modality whose codes count; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        pictures: of image codes, compare the pictures, too (`channelhash.search.alike`). Items whose picture is not
            there or cannot be read are near-duplicates of such items only, by codes alone.

    Returns:
        The largest group first, equally large ones by their first id. Time and memory as in
        `channelhash.search.index.duplicates.duplicate_groups`; pictures are read of items with near codes alone.

    Raises:
        InputError: ``radius`` is below 0, the store has no such codes, or the filter is wrong.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> codes = {"image": np.array([[0], [7], [255]], np.uint8)}
    >>> [group.ids for group in find_duplicates(open_codes(ch.CodeSet(["a", "b", "c"], codes, None, n_bits=8)))]
    [['a', 'b']]
    """
    from channelhash.search.index.duplicates import duplicate_groups  # compiled code, seconds to load

    given = None if radius is None else check_count(radius, "radius", 0)
    ids, codes = store.codes(modality, where)
    if not ids or store.n_bits is None:
        return []
    n_apart = default_radius(store.n_bits) if given is None else given
    groups = duplicate_groups(codes, store.n_bits, n_apart)
    if pictures and groups and store.choose_modality(modality) == "image":
        groups = _split(store, ids, codes, groups, n_apart)
    return [
        DuplicateGroup([ids[row] for row in rows], hamming_distances(codes[rows[:1]], codes[rows])[0].tolist())
        for rows in map(np.ndarray.tolist, groups)
    ]


def image_path(item: Item) -> str:
    """Return the path of an item's image, empty if it has none."""
    return str(item.metadata.get("image") or "")


def _split(
    store: Store, ids: list[str], codes: PackedCodes, groups: list[NDArray[np.int64]], radius: int
) -> list[NDArray[np.int64]]:
    """Split groups of near codes into those of pictures that are alike, in the order of `duplicate_groups`."""
    rows = np.concatenate(groups)
    paths = [
        image_path(item)
        for start in range(0, len(rows), _ITEMS)
        for item in store.get([ids[row] for row in rows[start : start + _ITEMS].tolist()])
    ]
    greys = iter(read_greys(paths))
    split = []
    for group in groups:
        split += [group[places] for places in split_alike(codes[group], list(islice(greys, len(group))), radius)]
    return sorted(split, key=lambda group: (-len(group), int(group[0])))


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
