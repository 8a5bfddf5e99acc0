"""Fold near-duplicates among answers into the first of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.copies.comparison import alike_wholes
from channelhash.copies.detail import PairMask
from channelhash.copies.small_copies import read_copies

_Places = NDArray[np.int64]
#: Codes that are compared with others at a time, to bound memory.
_TILE = 1000
#: Bits of a code for each bit of radius, if codes decide alone.
_BITS = 16
#: The least radius, for codes of up to 32 bits.
_LEAST = 3
#: Factor of the radius if images decide, since codes only say which images to compare.
_WIDE = 3


def default_radius(n_bits: int, images: bool = False) -> int:
    """Return the radius in bits within which codes make near-duplicates by themselves, or within
    which images are compared.

    >>> default_radius(256), default_radius(32), default_radius(256, images=True)
    (16, 3, 48)
    """
    return max(_LEAST, n_bits * (_WIDE if images else 1) // _BITS)


def fold(codes: PackedCodes, radius: int, images: Sequence[str] = ()) -> dict[int, list[int]]:
    """Fold each code into the first earlier one within ``radius`` bits that is not folded itself.

    With paths of ``images``, these must be alike, too. If neither of two images can be read, their
    codes must be within `default_radius`.

    >>> fold(np.array([[0], [255], [1], [3], [254]], np.uint8), radius=1)
    {0: [2], 1: [4], 3: []}
    """
    narrow = min(radius, default_radius(8 * codes.shape[1]))
    folded: dict[int, list[int]] = {}
    for start in range(0, len(codes), _TILE):
        tile = np.arange(start, min(start + _TILE, len(codes)))
        others = np.array([*folded, *tile])
        distances = hamming_distances(codes[tile], codes[others])
        pairs: PairMask = (distances <= radius) & (others < tile[:, None])
        if images and pairs.any():
            pairs = _confirm(pairs, distances <= narrow, tile, others, images)
        for place, row in zip(tile.tolist(), pairs, strict=True):
            first = next((other for other in others[row].tolist() if other in folded), None)
            if first is None:
                folded[place] = []
            else:
                folded[first].append(place)
    return folded


def _confirm(
    pairs: PairMask, are_nearer: PairMask, tile: _Places, others: _Places, images: Sequence[str]
) -> PairMask:
    """Return the pairs of near codes whose images are alike; or whose codes are nearer, if neither
    image can be read. Only images of near codes are read.
    """
    near = [*tile[pairs.any(axis=1)].tolist(), *others[pairs.any(axis=0)].tolist()]
    places = sorted(set(near))
    read = zip(places, read_copies([images[place] for place in places]), strict=True)
    copies = {place: copy for place, copy in read if copy is not None}
    left = np.isin(tile, [*copies])
    right = np.isin(others, [*copies])
    confirmed: PairMask = pairs & are_nearer & ~np.logical_or.outer(left, right)
    if left.any() and right.any():
        cut = np.ix_(left, right)
        confirmed[cut] = alike_wholes(
            [copies[place] for place in tile[left].tolist()],
            [copies[place] for place in others[right].tolist()],
            among=pairs[cut],
        )
    return confirmed
