"""Fold near-duplicates among answers into the first of them."""

from collections.abc import Sequence

import numpy as np

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.comparison import alike
from channelhash.copies.small_copies import SmallCopy, read_copies

#: Codes that are compared with all others at a time.
_TILE = 1000
#: One bit of radius for so many bits of a code, where codes alone decide.
_BITS = 16
#: The least radius: codes of 32 bits and fewer would allow none.
_LEAST = 3
#: How much wider the radius is where pictures decide, as codes only say which are worth a look.
_WIDE = 3


def default_radius(n_bits: int, pictures: bool = False) -> int:
    """Return the bits within which codes alone make near-duplicates, or, with pictures, these are
    worth a look.

    >>> default_radius(256), default_radius(32), default_radius(256, pictures=True)
    (16, 3, 48)
    """
    return max(_LEAST, n_bits * (_WIDE if pictures else 1) // _BITS)


def fold(
    codes: PackedCodes, radius: int, most: int | None = None, images: Sequence[str] = ()
) -> dict[int, list[int]]:
    """Fold each code into the first earlier one within ``radius`` bits that is not folded itself.

    With ``images``, pictures decide, too; of those that cannot be read, codes within
    `default_radius` do.

    >>> fold(np.array([[0], [255], [1], [3], [254]], np.uint8), radius=1)
    {0: [2], 1: [4], 3: []}
    """
    copies = _read_near(codes, radius, images) if images else {}
    narrow = min(radius, default_radius(8 * codes.shape[1])) if images else radius
    folded: dict[int, list[int]] = {}
    for place in range(len(codes)):
        stay = list(folded)
        copy = copies.get(place)
        bits_apart = hamming_distances(codes[place : place + 1], codes[stay])[0]
        near = np.flatnonzero(bits_apart <= (narrow if copy is None else radius)).tolist()
        fitting = [stay[n] for n in near if (copies.get(stay[n]) is None) == (copy is None)]
        if copy is not None and fitting:
            is_alike = alike([copy], [other for n in fitting if (other := copies[n])])[0]
            fitting = [n for n, same in zip(fitting, is_alike.tolist(), strict=True) if same]
        if fitting:
            folded[fitting[0]].append(place)
        elif most is None or len(folded) < most:
            folded[place] = []
    return folded


def _read_near(
    codes: PackedCodes, radius: int, images: Sequence[str]
) -> dict[int, SmallCopy | None]:
    """Return place -> small copy of the pictures whose codes are near another's."""
    starts = range(0, len(codes), _TILE)
    near = [
        (hamming_distances(codes[start : start + _TILE], codes) <= radius).sum(axis=1)
        for start in starts
    ]
    places = np.flatnonzero(np.concatenate(near) > 1).tolist()
    return dict(zip(places, read_copies([images[place] for place in places]), strict=True))
