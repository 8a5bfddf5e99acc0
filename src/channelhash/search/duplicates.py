"""Near-duplicates of a store: groups of items whose codes are within a few bits of each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from channelhash.codes import hamming_distances
from channelhash.search.store import Store
from channelhash.search.validation import check_count
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet

#: Bits within which two items are near-duplicates, unless another number is asked for.
RADIUS = 3


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


def find_duplicates(
    store: Store, radius: int = RADIUS, modality: str | None = None, where: str | None = None
) -> list[DuplicateGroup]:
    """Find all groups of items that are connected by steps of at most ``radius`` bits.

    The ends of a chain may be farther apart than the radius: `DuplicateGroup.distances` show it.

    Args:
        store: the store to look through.
        radius: in bits, inclusive; 0 finds equal codes.
        modality: modality whose codes count; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.

    Returns:
        The largest group first, equally large ones by their first id. Time and memory as in
        `channelhash.search.index.duplicates.duplicate_groups`.

    Raises:
        InputError: ``radius`` is below 0, the store has no such codes, or the filter is wrong.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> codes = {"image": np.array([[0], [7], [255]], np.uint8)}
    >>> [group.ids for group in find_duplicates(open_codes(ch.CodeSet(["a", "b", "c"], codes, None, n_bits=8)))]
    [['a', 'b']]
    """
    from channelhash.search.index.duplicates import duplicate_groups  # compiled code, seconds to load

    n_apart = check_count(radius, "radius", 0)
    ids, codes = store.codes(modality, where)
    if not ids or store.n_bits is None:
        return []
    return [
        DuplicateGroup([ids[row] for row in rows], hamming_distances(codes[rows[:1]], codes[rows])[0].tolist())
        for rows in map(np.ndarray.tolist, duplicate_groups(codes, store.n_bits, n_apart))
    ]


def draw_groups(store: Store, groups: Sequence[DuplicateGroup], path: Path, most: int = 8) -> None:
    """Draw groups as a PNG, a row each, of at most ``most`` items."""
    rows = []
    for group in groups:
        items = store.get(group.ids[:most])
        cells = []
        for item, distance in zip(items, group.distances, strict=False):
            image = str(item.metadata.get("image") or "")
            cells.append(Cell(Path(image) if image else None, f"{bits(distance)}: {item.id}"))
        rows.append(cells)
    write_contact_sheet(rows, path)
