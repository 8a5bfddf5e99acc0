"""Items are ranked by all that is known of a question, and by ids only where nothing is."""

import numpy as np
import pytest

import channelhash as ch
from channelhash.search.hits import SearchOptions, _rank_codes, search_hits
from channelhash.search.query import query_like
from channelhash.search.rank import _asymmetric_distances, _quantize, cosines
from channelhash.search.sqlite import store as sqlite_store

N, N_BITS = 80, 6
RANDOM = np.random.default_rng(0)
OUTPUTS = RANDOM.normal(size=(N, N_BITS))
CODES = ch.codes.pack(OUTPUTS >= 0)
NAMES = [f"i{row:02}" for row in RANDOM.permutation(N)]
QUESTIONS = RANDOM.normal(size=(5, N_BITS))


@pytest.fixture(params=[False, True], ids=["bits", "projected"])
def store(request, tmp_path):
    opened = ch.open_store(tmp_path / "store", N_BITS, projections=request.param)
    opened.add(NAMES, CODES, projections=OUTPUTS if request.param else None)
    yield opened
    opened.close()


def literal(question: np.ndarray, projected: bool) -> list[tuple[float, int, str]]:
    """What items are ordered by, distance and id of all, best first."""
    bits = [int(((question >= 0) != (row >= 0)).sum()) for row in OUTPUTS]
    if projected:
        scores = cosines(question, _quantize(OUTPUTS)).tolist()
        return sorted((-score, bit, name) for score, bit, name in zip(scores, bits, NAMES, strict=True))
    sure = _asymmetric_distances(question, CODES)
    rows = sorted((bit, value, name) for bit, value, name in zip(bits, sure, NAMES, strict=True))
    return [(value, bit, name) for bit, value, name in rows]


@pytest.mark.parametrize("first", [500, 1])
def test_ties_are_ordered_by_what_is_known(store, monkeypatch, first):
    monkeypatch.setattr(sqlite_store, "FIRST", first)
    for question in QUESTIONS:
        code = ch.codes.pack(question[None] >= 0)[0]
        expected = literal(question, store.projected)
        for k in (1, 7, N):
            ranked = _rank_codes(store, code, question, k)
            assert ranked.keys == sorted(ranked.keys)
            if store.projected or first > 1 or k == N:
                assert list(zip(ranked.distances, ranked.ids, strict=True)) == [row[1:] for row in expected[:k]]
            else:  # the nearest by id, then in their best order
                assert ranked.distances == sorted(bit for _, bit, _ in expected)[:k]
        for radius, limit in ((2, None), (2, 4), (0, None)):
            within = [row[1:] for row in literal(question, projected=False) if row[1] <= radius]
            ranked = _rank_codes(store, code, question, limit, radius)
            if first > 1 or limit is None:
                assert list(zip(ranked.distances, ranked.ids, strict=True)) == within[:limit]
        by_bits = _rank_codes(store, code, None, 9)
        assert list(zip(by_bits.distances, by_bits.ids, strict=True)) == sorted(row[1:] for row in expected)[:9]


def test_an_item_of_a_store_with_projections_asks_with_its_own(store):
    query = query_like(store, NAMES[3])
    hits = search_hits(store, query, SearchOptions(k=5))
    if store.projected:
        assert [hit.id for hit in hits] == [row[2] for row in literal(query.outputs, True)[:5]]
        assert (hits[0].id, hits[0].distance) == (NAMES[3], 0)
        reranked = search_hits(store, query, SearchOptions(k=5, rerank=N))
        sure = _asymmetric_distances(query.outputs, np.stack([hit.code for hit in reranked]))
        assert sure.tolist() == sorted(sure)
    else:
        assert query.outputs is None
