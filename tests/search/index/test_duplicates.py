"""Groups of near-duplicates against all pairs and a literal union."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.index.test_index import draw

import channelhash as ch
from channelhash.search.index import duplicates
from channelhash.search.index.duplicates import duplicate_groups


def literal_groups(codes: np.ndarray, radius: int) -> list[list[int]]:
    """Every pair is looked at; a pair within the radius makes one set of two."""
    sets = [{row} for row in range(len(codes))]
    for a in range(len(codes)):
        for b in range(a):
            if ch.codes.hamming_distances(codes[a : a + 1], codes[b : b + 1])[0, 0] <= radius:
                joined = sets[a] | sets[b]
                for row in joined:
                    sets[row] = joined
    groups = {tuple(sorted(members)) for members in sets if len(members) > 1}
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group))]


def found(codes: np.ndarray, n_bits: int, radius: int) -> list[list[int]]:
    return [group.tolist() for group in duplicate_groups(codes, n_bits, radius)]


@settings(max_examples=60)
@given(
    st.integers(1, 200) | st.sampled_from([1, 2, 31, 32, 33, 63, 64, 65, 128, 129]),
    st.integers(0, 70),
    st.integers(1, 8),
    st.integers(0, 9),
    st.integers(0, 2**31),
)
def test_groups_are_those_of_all_pairs(k, n, clusters, radius, seed):
    codes = draw(n, k, clusters, seed)
    assert found(codes, k, radius) == literal_groups(codes, radius)


@settings(max_examples=40)
@given(st.integers(2, 70), st.integers(1, 6), st.integers(0, 2**31), st.data())
def test_every_cut_finds_all(k, radius, seed, data):
    radius = min(radius, k - 1)
    parts = data.draw(st.integers(radius, min(k, radius + 3)), "parts")
    codes = draw(60, k, 3, seed)
    with pytest.MonkeyPatch.context() as patch:
        cut = lambda codes, n_bits, radius: duplicates._masks_of_cut(parts, codes.dtype, n_bits, radius)  # noqa: E731
        patch.setattr(duplicates, "_masks", cut)
        assert found(codes, k, radius) == literal_groups(codes, radius)


def test_many_equal_codes_are_one_code():
    """All pairs of these would be 2·10¹⁰."""
    codes = np.zeros((200_000, 8), np.uint8)
    codes[-1] = 255
    (group,) = duplicate_groups(codes, n_bits=64)
    assert group.tolist() == list(range(len(codes) - 1))


def test_planted_duplicates_are_found_among_random_codes():
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (20_000, 16), dtype=np.uint8)
    rows = random.permutation(20_000)[:600].reshape(2, 300)
    for row, source in zip(*rows.tolist(), strict=True):
        flipped = np.unpackbits(codes[source])
        flipped[random.choice(128, random.integers(0, 4), replace=False)] ^= 1
        codes[row] = np.packbits(flipped)
    assert sorted(found(codes, 128, 3)) == sorted(sorted(pair) for pair in rows.T.tolist())
