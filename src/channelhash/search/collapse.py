"""Answers without near-duplicates: later ones are folded into the first that they are near to."""

from collections.abc import Callable

import numpy as np

from channelhash.codes import PackedCodes, hamming_distances


def fold(
    codes: PackedCodes, radius: int, most: int | None = None, same: Callable[[int, int], bool] = lambda one, other: True
) -> dict[int, list[int]]:
    """Fold each code into the first earlier one within ``radius`` bits that is not folded itself.

    Args:
        codes: ``(n, b)`` packed codes, best answer first.
        radius: in bits, inclusive.
        most: number of codes that stay, at most; others are left out.
        same: whether two places may be near-duplicates; asked of those within the radius only.

    Returns:
        Place of each code that stays -> places of the codes that were folded into it. Unlike in a group of duplicates,
        all of these are within the radius. O(n m) for the m that stay.

    >>> fold(np.array([[0], [255], [1], [3], [254]], np.uint8), radius=1)
    {0: [2], 1: [4], 3: []}
    """
    kept: list[int] = []
    folded: dict[int, list[int]] = {}
    for place in range(len(codes)):
        near = np.flatnonzero(hamming_distances(codes[place : place + 1], codes[kept])[0] <= radius).tolist()
        first = next((kept[other] for other in near if same(kept[other], place)), None)
        if first is not None:
            folded[first].append(place)
        elif most is None or len(kept) < most:
            kept.append(place)
            folded[place] = []
    return folded
