"""Near-duplicates among answers: what is folded into what where images decide, and where codes
alone must.
"""

import numpy as np
import pytest

import channelhash as ch
from channelhash.copies.moved import alike
from channelhash.copies.small_copies import read_copies
from channelhash.search.fold import default_radius, fold
from channelhash.utils.seeds import generator
from picture_runs import photograph

N_BITS = 64
RADII = (2, default_radius(N_BITS), default_radius(N_BITS, images=True))


def draw_codes(draw, n):
    """Draw codes around one, farther and farther off."""
    codes = np.tile(draw.integers(0, 2, N_BITS, dtype=np.uint8), (n, 1))
    for code in codes:
        code[draw.permutation(N_BITS)[: draw.integers(0, 10)]] ^= 1
    return ch.codes.pack(codes.astype(bool))


def fold_literally(codes, radius, copies):
    """Fold each code into the first that fits, comparing images, or codes of unread ones."""
    kept = {}
    for place, copy in enumerate(copies):
        fitting = []
        for other in kept:
            distance = int(np.bitwise_count(codes[place] ^ codes[other]).sum())
            if copy is None and copies[other] is None:
                fits = distance <= min(radius, N_BITS // 16)
            elif copy is None or copies[other] is None:
                fits = False
            else:
                fits = distance <= radius and alike([copy], [copies[other]])[0, 0]
            if fits:
                fitting.append(other)
        if fitting:
            kept[fitting[0]].append(place)
        else:
            kept[place] = []
    return kept


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("seed", range(5))
def test_images_decide_within_the_radius_and_unread_ones_only_within_the_narrow_one(
    seed, radius, tmp_path
):
    draw = generator(0, "fold", seed)
    images = []
    for place in range(20):
        path = tmp_path / f"{place}.png"
        if draw.integers(0, 2):
            photograph(int(draw.integers(0, 3))).save(path)
        images.append(str(path))
    codes = draw_codes(draw, len(images))
    assert fold(codes, radius, images=images) == fold_literally(codes, radius, read_copies(images))


@pytest.mark.parametrize("seed", range(5))
def test_codes_alone_decide_without_images(seed):
    draw = generator(1, "fold", seed)
    radius = int(draw.integers(0, N_BITS // 16 + 1))
    codes = draw_codes(draw, 40)
    assert fold(codes, radius) == fold_literally(codes, radius, [None] * len(codes))
