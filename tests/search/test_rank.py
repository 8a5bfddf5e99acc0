"""What orders items besides the distance of their codes, against formulas; ids decide only where
nothing else does.
"""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import channelhash as ch
from channelhash.codes import binarize, pack
from channelhash.codes.hubs import Bank
from channelhash.codes.stage import Stage
from channelhash.search import rank as module
from channelhash.search.hits import Query, SearchOptions, search_hits
from channelhash.search.question import query_like
from channelhash.search.rankings import rank_codes
from channelhash.search.sqlite import store as sqlite_store
from refusals import check_refusal

NUMBERS = st.integers(0, 2**31)


def literally(outputs: np.ndarray, bits: np.ndarray) -> list[float]:
    """A(u, b), the sum of |u_j| over the bits in which b is not the sign of u."""
    return [
        sum(abs(u) for u, bit in zip(outputs, row, strict=True) if bit != (u >= 0)) for row in bits
    ]


def draw(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, some of them 0, and bits of which many rows are the same."""
    random = np.random.default_rng(seed)
    outputs = random.normal(size=k).astype(np.float32) * (random.random(k) > 0.1)
    return outputs, (random.random((5, k)) < 0.5)[random.integers(0, 5, n)]


@given(st.integers(1, 70), st.integers(1, 40), NUMBERS)
def test_the_distance_is_its_formula_and_orders_as_euclid_does(k, n, seed):
    outputs, bits = draw(k, n, seed)
    found = module.asymmetric_distances(outputs, pack(bits))
    np.testing.assert_allclose(found, literally(outputs.astype(float), bits), atol=1e-9)
    signs = np.where(bits, 1.0, -1.0)
    squares = ((outputs.astype(float) - signs) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        squares, 4 * found + ((np.abs(outputs.astype(float)) - 1) ** 2).sum(), atol=1e-6
    )


def test_equal_codes_tie_exactly_wherever_they_stand():
    random = np.random.default_rng(0)
    outputs = random.normal(size=61)
    codes = pack(np.repeat(random.random((1, 61)) < 0.5, 1001, axis=0))
    assert len(set(module.asymmetric_distances(outputs, codes).tolist())) == 1


PAIR = np.array([[0.5, -2.0], [1.0, 0.0]], np.float32)
PAIR_CODES = {"image": pack(binarize(PAIR)), "text": pack(binarize(-PAIR))}


PAIR_STAGE = Stage(2)


def test_projections_of_the_codes_are_rounded_and_rows_of_bytes_are_kept():
    outputs = {"text": -PAIR, "image": PAIR}
    rows = module.check_projections(outputs, PAIR_CODES, PAIR_STAGE)
    for modality, values in outputs.items():
        expected = PAIR_STAGE.encode(modality, values)
        np.testing.assert_array_equal(rows[modality], expected)
    again = module.check_projections(rows, PAIR_CODES, PAIR_STAGE)
    np.testing.assert_equal(again, rows)


@pytest.mark.parametrize(
    ("image", "text", "says"),
    [
        (PAIR, PAIR, "text projections: are not the outputs of which"),
        (PAIR, -PAIR[:1], "text projections: are not the outputs"),
        (PAIR[:, :1], -PAIR, r"image projections: \(n, 2\) numbers are expected"),
        (np.full((2, 2), np.inf), -PAIR, "image projections: row 0 is not finite"),
        ([["a", "b"]], -PAIR, "image projections: .* numbers are expected"),
        (np.zeros((2, 3), np.uint8), -PAIR, r"image projections: \(n, 6\) numbers are expected"),
    ],
)
def test_other_projections_are_refused(image, text, says):
    projections = {"image": image, "text": text}
    check_refusal(says, module.check_projections, projections, PAIR_CODES, PAIR_STAGE)


def test_projections_of_one_of_two_modalities_are_refused():
    says = "projections: of image, but codes of image and text"
    check_refusal(says, module.check_projections, {"image": PAIR}, PAIR_CODES, PAIR_STAGE)


LACKS = st.sets(st.sampled_from(["x", "y", "z"]), max_size=2)
KEYS = st.lists(st.integers(0, 2), min_size=0, max_size=5).map(sorted)


def orders(ranking):
    """Return every order of a ranking that its keys allow."""
    pairs = list(zip(ranking.keys, ranking.ids, strict=True))
    return [
        [name for _, name in order]
        for order in permutations(pairs)
        if [key for key, _ in order] == ranking.keys
    ]


@given(KEYS, KEYS)
def test_it_is_the_mean_over_all_orders_of_ties(first, second):
    rankings = [
        module.Ranking("abcde"[: len(first)], first),
        module.Ranking("ecadb"[: len(second)], second),
    ]
    expected = dict.fromkeys([*rankings[0].ids, *rankings[1].ids], 0.0)
    chosen = list(product(*map(orders, rankings)))
    for lists in chosen:
        for names in lists:
            for rank, name in enumerate(names, start=1):
                expected[name] += 1 / (60 + rank) / len(chosen)
    assert module.fuse(rankings) == pytest.approx(expected)


@example([[0], [], []], {"a": {"y"}})
@given(st.lists(KEYS, min_size=3, max_size=3), st.dictionaries(st.sampled_from("abcde"), LACKS))
def test_what_an_item_lacks_counts_as_it_does_for_others_on_average(keys, lacks):
    rankings = {}
    for name, order, places in zip("xyz", ("abcde", "ecadb", "bdaec"), keys, strict=True):
        ids = [item for item in order if name not in lacks.get(item, ())][: len(places)]
        rankings[name] = module.Ranking(ids, places[: len(ids)])
    alone = {name: module.fuse([ranking]) for name, ranking in rankings.items()}
    expected = {}
    for item in {item for ranking in rankings.values() for item in ranking.ids}:
        can = [name for name in "xyz" if name not in lacks.get(item, ())]
        everything = known = 0.0
        for other in "abcde":
            part = sum(alone[name].get(other, 0.0) for name in can)
            if not lacks.get(other) and part > 0:
                everything += sum(alone[name].get(other, 0.0) for name in "xyz")
                known += part
        factor = everything / known if known else 3 / len(can)
        expected[item] = factor * sum(alone[name].get(item, 0.0) for name in can)
    assert module.fuse_partial(rankings, lacks) == pytest.approx(expected)


N, N_BITS = 80, 6
RANDOM = np.random.default_rng(0)
ITEMS = RANDOM.normal(size=(N, N_BITS))
CODES = ch.codes.pack(ITEMS >= 0)
NAMES = [f"i{row:02}" for row in RANDOM.permutation(N)]
QUESTIONS = RANDOM.normal(size=(5, N_BITS))


BANK = Bank(QUESTIONS[:3].astype(np.float16), temperature=0.1)
STAGES = [None, Stage(N_BITS), Stage(N_BITS, bank=BANK)]


@pytest.fixture(params=STAGES, ids=["bits", "projected", "corrected"])
def store(request, tmp_path):
    with ch.open_store(tmp_path / "store", N_BITS, stage=request.param) as opened:
        opened.add(NAMES, CODES, projections=ITEMS if request.param else None)
        yield opened


def literal(
    question: np.ndarray, stage: Stage | None, asked: str = "text"
) -> list[tuple[float, int, str]]:
    """What items are ordered by, distance and id of all, best first."""
    bits = [int(((question >= 0) != (row >= 0)).sum()) for row in ITEMS]
    keys = module.asymmetric_distances(question, CODES)
    if stage is not None:
        keys = -stage.scores("image", question, stage.encode("image", ITEMS), asked)
    return sorted(zip(keys.tolist(), bits, NAMES, strict=True))


@pytest.mark.parametrize("first", [500, 1])
def test_answers_are_ordered_by_what_is_known(store, monkeypatch, first):
    monkeypatch.setattr(sqlite_store, "FIRST", first)
    for question in QUESTIONS:
        query = Query(ch.codes.pack(question[None] >= 0)[0], question, "text")
        expected = literal(question, store.stage)
        for k in (1, 7, N):
            ranked = rank_codes(store, query, k, SearchOptions())
            assert ranked.keys == sorted(ranked.keys)
            if store.projected or first > 1 or k == N:
                found = list(zip(ranked.distances, ranked.ids, strict=True))
                assert found == [row[1:] for row in expected[:k]]
            else:  # the best of the nearest codes
                assert max(ranked.distances) <= sorted(bit for _, bit, _ in expected)[4 * k - 1]
        for radius, limit in ((2, None), (2, 4), (0, None)):
            near = [row for row in literal(question, stage=None) if row[1] <= radius]
            within = [row[1:] for row in sorted(near, key=lambda row: (row[1], row[0], row[2]))]
            ranked = rank_codes(store, query, limit, SearchOptions(radius=radius))
            if first > 1 or limit is None:
                assert list(zip(ranked.distances, ranked.ids, strict=True)) == within[:limit]
        by_bits = rank_codes(store, replace(query, outputs=None), 9, SearchOptions())
        nearest = sorted(row[1:] for row in expected)[:9]
        assert list(zip(by_bits.distances, by_bits.ids, strict=True)) == nearest


def test_an_item_of_a_store_with_projections_asks_with_its_own(store):
    query = query_like(store, NAMES[3])
    hits = search_hits(store, query, SearchOptions(k=5))
    if store.projected:
        assert [hit.id for hit in hits] == [
            row[2] for row in literal(query.outputs, store.stage, "image")[:5]
        ]
        assert (hits[0].id, hits[0].distance) == (NAMES[3], 0)
    else:
        assert query.outputs is None
