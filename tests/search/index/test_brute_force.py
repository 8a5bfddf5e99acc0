"""Exact search against sorting everything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import channelhash as ch
from channelhash.search.index import brute_force as exact


def by_sorting(query: np.ndarray, database: np.ndarray, ids: list[str]) -> list[tuple[int, str]]:
    return sorted((int((query != code).sum()), name) for code, name in zip(database, ids, strict=True))


@given(st.integers(1, 70), st.integers(0, 40), st.integers(1, 50), st.integers(0, 2**31), st.integers(0, 20))
def test_answers_are_the_first_of_the_sorted_database(k, nd, wanted, seed, radius):
    random = np.random.default_rng(seed)
    prototypes = random.random((3, k)) < 0.5  # many items share a code, so that ties are common
    database = prototypes[random.integers(0, 3, nd)] ^ (random.random((nd, k)) < 0.02)
    queries = random.random((4, k)) < 0.5
    ids = [f"item {i}" for i in random.permutation(nd)]
    packed = ch.codes.pack(queries), ch.codes.pack(database) if nd else np.zeros((0, -(-k // 8)), np.uint8)
    for query, hit, near in zip(
        queries, exact.nearest(*packed, ids, wanted), exact.within(*packed, ids, radius), strict=True
    ):
        expected = by_sorting(query, database, ids)
        found = [(int(d), ids[row]) for row, d in zip(hit.rows, hit.distances, strict=True)]
        assert found == expected[:wanted]
        inside = [(int(d), ids[row]) for row, d in zip(near.rows, near.distances, strict=True)]
        assert inside == [pair for pair in expected if pair[0] <= radius]


def test_blocks_of_queries_change_nothing(monkeypatch):
    random = np.random.default_rng(0)
    queries, database = (ch.codes.pack(random.random((n, 16)) < 0.5) for n in (9, 50))
    ids = [str(i) for i in range(50)]
    whole = [hit.rows.tolist() for hit in exact.nearest(queries, database, ids, 5)]
    monkeypatch.setattr(exact, "_BLOCK_ENTRIES", 100)
    assert [hit.rows.tolist() for hit in exact.nearest(queries, database, ids, 5)] == whole
