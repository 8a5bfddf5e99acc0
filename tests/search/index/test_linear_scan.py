"""A scan that is divided among cores, against the plain one."""

import numpy as np
import pytest
from tests.search.index.test_index import assert_same, plainly

from channelhash.search.index import CodeIndex
from channelhash.search.index import brute_force as exact
from channelhash.search.index import linear_scan as scan

FEW = scan._FEW


def scattered(n: int, seed: int, n_bytes: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, n_bytes), dtype=np.uint8)


@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize("density", [None, 0.01])
def test_a_scan_in_segments_gives_the_answers_of_the_plain_one(segments, density, monkeypatch):
    """16,385 codes a segment, but for the last: just enough for first limits, and a last block and chunk of one."""
    n = 16_385 * segments - (segments > 2)
    packed, queries = scattered(n, 0), scattered(9, 1)
    queries[1] = packed[n // 2]
    queries[2], queries[3] = 0, 255  # before and behind all codes
    allowed = None if density is None else np.random.default_rng(2).random(n) < density
    monkeypatch.setattr(scan, "_FEW", 1 << 40)  # one core: the same tasks, without compiling the loop over them
    monkeypatch.setattr(scan, "_division", lambda search: scan._Division(2 * segments, 8, segments))
    index = CodeIndex.build(packed, 64, clusters=False)
    for k in (1, 20, n):
        assert_same(index.nearest(queries, k, allowed), plainly(exact.nearest, queries, packed, k, allowed))
    assert_same(index.within(queries, 20, allowed), plainly(exact.within, queries, packed, 20, allowed))


@pytest.mark.slow  # compiles the loops over all cores
def test_a_scan_on_all_cores_gives_the_answers_of_the_plain_one():
    packed, queries = scattered(FEW // 3 + 1, 0), scattered(3, 1)
    index = CodeIndex.build(packed, 64, clusters=False)
    assert_same(index.nearest(queries, 5), plainly(exact.nearest, queries, packed, 5, None))
    assert_same(index.within(queries, 18), plainly(exact.within, queries, packed, 18, None))
