"""The compiled search against the plain one, that against sorting everything, near-duplicates, and
forged arrays.
"""

import itertools
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.search.contract import random_codes

import channelhash as ch
from channelhash.duplicates.groups import group_codes
from channelhash.lab import brute_force as exact
from channelhash.search import index as code_index
from channelhash.search.checks import MOST_BITS
from channelhash.search.index import CodeIndex, layout
from channelhash.search.index.layout import Matches
from channelhash.utils.optional_imports import has_loops
from extras import needs
from refusals import check_refusal

needs("fast")

from channelhash.search.index import clusters as clustering, scans  # noqa: E402


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Search with the compiled loops from the first code on; a test that means NumPy's scan says
    so.
    """
    monkeypatch.setattr(code_index, "_left_to_numpy", 0)


def draw(n: int, k: int, clusters: int, seed: int) -> np.ndarray:
    """Packed codes around a few prototypes: many rows share a code or a distance."""
    random = np.random.default_rng(seed)
    prototypes = np.random.default_rng(0).random((clusters, k)) < 0.5
    bits = prototypes[random.integers(0, clusters, n)] ^ (random.random((n, k)) < 0.05)
    return ch.codes.pack(bits)


def place(kind: str, n: int, k: int, seed: int) -> np.ndarray:
    """Bits ``(n, k)`` placed to be hard: the query of `queries_for` is all zeros, among others."""
    random = np.random.default_rng(seed)
    bits = random.random((n, k)) < 0.5
    # all at one distance from zeros, or at two that follow each other
    if kind in ("sphere", "shells"):
        far = max(1, k // 3) + (
            random.integers(0, 2, n) if kind == "shells" and k > 2 else np.zeros(n, int)
        )
        bits = random.permuted(np.arange(k) < far[:, None], axis=1)
    elif kind == "steps":  # one bit more each
        bits = np.arange(k) < (np.arange(n) % (k + 1))[:, None]
    elif kind == "opposites":
        bits[1::2] = ~bits[::2][: n // 2]
    elif kind == "one":
        bits[:] = bits[:1]
    elif kind == "clustered":
        bits = (random.random((3, k)) < 0.5)[random.integers(0, 3, n)] ^ (
            random.random((n, k)) < 0.08
        )
    elif kind == "correlated":  # as real ones: signs of maps of a few numbers
        bits = random.normal(size=(n, 4)) @ random.normal(size=(4, k)) > 0
    return bits


def queries_for(bits: np.ndarray, seed: int) -> np.ndarray:
    """Zeros, ones, a code, its opposite, and a code with some bits flipped."""
    n, k = bits.shape
    random = np.random.default_rng(seed)
    code = bits[random.integers(n)] if n else random.random(k) < 0.5
    return np.array(
        [np.zeros(k, bool), np.ones(k, bool), code, ~code, code ^ (random.random(k) < 0.1)]
    )


def assert_same(found: list[Matches], expected: list[Matches]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.distances, other.distances)


def within(queries, database, ids, radius) -> list[Matches]:
    """All codes at distance <= ``radius``, of all by (distance, id)."""
    every = [
        (match, match.distances <= radius)
        for match in exact.nearest(queries, database, ids, len(database) + 1)
    ]
    return [Matches(match.rows[near], match.distances[near]) for match, near in every]


def plainly(
    question, queries: np.ndarray, codes: np.ndarray, bound: int, allowed: np.ndarray | None
) -> list[Matches]:
    """`exact.nearest` or `within` over the allowed rows."""
    rows = np.arange(len(codes)) if allowed is None else np.flatnonzero(allowed)
    ids = [f"{row:09}" for row in rows]
    return [
        Matches(rows[hit.rows], hit.distances) for hit in question(queries, codes[rows], ids, bound)
    ]


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=pytest.mark.slow)])
def test_answers_are_those_of_the_plain_search(examples):
    lengths = st.integers(1, 300) | st.sampled_from(
        [8, 31, 32, 33, 63, 64, 65, 128, 129, 512, 1000, 1024]
    )
    rows = st.integers(0, 60) | st.sampled_from([700, 1500])
    kinds = st.sampled_from(
        ["random", "sphere", "shells", "steps", "opposites", "one", "clustered", "correlated"]
    )
    drawn = given(lengths, rows, kinds, st.integers(0, 2**31), st.data())
    settings(max_examples=examples)(drawn(check_answers))()


def check_answers(k, n, kind, seed, data):
    bits = place(kind, n, k, seed)
    codes, queries = ch.codes.pack(bits), ch.codes.pack(queries_for(bits, seed))
    wanted = data.draw(st.integers(1, n + 3) | st.just(max(1, n)), "wanted")
    radius = data.draw(st.integers(0, k + 2), "radius")
    density = data.draw(st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]), "density")
    allowed = None if density is None else np.random.default_rng(seed).random(n) < density
    nearest = plainly(exact.nearest, queries, codes, wanted, allowed)
    inside = plainly(within, queries, codes, radius, allowed)
    first = [Matches(hit.rows[:wanted], hit.distances[:wanted]) for hit in inside]
    # NumPy alone; a compiled scan of all codes; clusters; these on all cores.
    for left_to_numpy, clusters, few_words in (
        (1 << 60, None, 1 << 19),
        (0, None, 1 << 19),
        (0, True, 1 << 19),
        (0, True, 0),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(code_index, "_left_to_numpy", left_to_numpy)
            patch.setattr(scans, "few_words", few_words)
            patch.setattr(code_index, "_AT_ONCE", 4)
            index = CodeIndex.build(codes, k, clusters)
            assert len(index) == n
            assert index.n_distinct == len({code.tobytes() for code in codes})
            assert_same(index.nearest(queries, wanted, allowed), nearest)
            assert_same(index.within(queries, radius, allowed), inside)
            assert_same(index.within(queries, radius, allowed, limit=wanted), first)


def test_the_compiled_loops_are_loaded_once_numpy_has_compared_so_many_words(monkeypatch):
    asked = []
    for name, owner, function in (
        ("plain", code_index, "_scan_nearest"),
        ("compiled", scans, "search_all"),
    ):
        scan = getattr(owner, function)
        monkeypatch.setattr(
            owner, function, lambda search, name=name, scan=scan: asked.append(name) or scan(search)
        )
    monkeypatch.setattr(code_index, "_left_to_numpy", 3 * 50)
    monkeypatch.setattr(code_index, "_uncounted", 0)  # a server of this process may have set it
    index = CodeIndex.build(
        np.random.default_rng(0).permutation(256)[:50].astype(np.uint8)[:, None], 8
    )
    for _ in range(5):
        index.nearest(np.zeros((1, 1), np.uint8), 3)
    assert asked == ["plain"] * 3 + ["compiled"] * 2
    monkeypatch.setattr(code_index, "_left_to_numpy", 1 << 30)
    code_index.compile_loops()
    index.nearest(np.zeros((1, 1), np.uint8), 3)
    assert asked[-2:] == ["compiled"] * 2


@pytest.fixture
def without_numba(monkeypatch):
    has_loops.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    yield
    has_loops.cache_clear()


@pytest.mark.usefixtures("without_numba")
def test_without_loops_numpy_searches_on_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(code_index, "_FEWEST_CLUSTERED", 100)
    monkeypatch.setattr(CodeIndex, "_search_compiled", None)
    codes = draw(5_000, 64, 3, 0)
    index = CodeIndex.build(codes, 64)
    for _ in range(2):
        code_index.compile_loops()
        assert_same(
            index.nearest(codes[:9], 20), plainly(exact.nearest, codes[:9], codes, 20, None)
        )
    (message,) = caplog.messages
    assert "pip install 'channelhash[fast]'" in message


def test_arguments_that_do_not_fit_are_refused(monkeypatch):
    codes = draw(4, 12, 2, 0)
    index = CodeIndex.build(codes, 12)
    refuses = partial(check_refusal, error=ValueError)
    refuses("k is 0; at least 1 item", index.nearest, codes, 0)
    refuses("radius is -1; a distance is at least 0", index.within, codes, -1)
    refuses("limit is 0; at least 1 item", index.within, codes, 3, limit=0)
    refuses("codes of 12 bits are", index.nearest, codes[:, :1], 1)
    refuses(r"a mask is \(4,\) bool, not \(3,\) bool", index.nearest, codes, 1, np.ones(3, bool))
    refuses(
        r"a mask is \(4,\) bool, not \(4,\) int64", index.within, codes, 1, np.ones(4, np.int64)
    )
    monkeypatch.setattr(layout, "_MOST_ROWS", 4)
    refuses("4 codes are too many for one index", CodeIndex.build, codes, 12)


@pytest.mark.parametrize("n_bits", [64, 70, 200])
@pytest.mark.parametrize("kind", ["clustered", "correlated", "random"])
def test_many_codes_around_many_pivots_give_the_answers_of_the_plain_search(
    kind, n_bits, monkeypatch
):
    monkeypatch.setattr(clustering, "_PIVOTS", 64)
    monkeypatch.setattr(clustering, "_FEWER_PIVOTS", 16)
    monkeypatch.setattr(clustering, "_BLOCK", 16)
    bits = place(kind, 5_000, n_bits, 0)
    codes, queries = ch.codes.pack(bits), ch.codes.pack(queries_for(bits, 0))
    index = CodeIndex.build(codes, n_bits, clusters=True)
    for segments in (1, 3):
        monkeypatch.setattr(scans, "_division", lambda n_queries, n=segments: (2, n))
        monkeypatch.setattr(scans, "few_words", 0)
        for k in (1, 20, 300):
            assert_same(index.nearest(queries, k), plainly(exact.nearest, queries, codes, k, None))


def literal_share_read(index: CodeIndex, query: np.ndarray, k: int) -> float:
    """What share of the words cannot be given up by who knows the k-th distance."""
    of = {
        name: values.astype(np.int64) for name, values in index.arrays().items() if name[0] != "n"
    }
    words, pivots = index.arrays()["codes"], index.arrays()["cluster_pivots"]
    query_words = query.view(">u8").astype(np.uint64)
    limit = np.sort(np.bitwise_count(words ^ query_words[:, None]).sum(axis=0))[k - 1]
    read = 0
    for c, (first, last) in enumerate(itertools.pairwise(of["cluster_chunks"])):
        agree = ~(query_words ^ pivots[:, c])
        away = np.bitwise_count(query_words ^ pivots[:, c]).sum(dtype=np.int64)
        for j in range(first, last):
            start = of["cluster_offsets"][c] + 64 * (j - first)
            end = min(start + 64, of["cluster_offsets"][c + 1])
            bounds = np.full(end - start, away - of["cluster_reach"][j])
            for w in range(len(words)):
                if (bounds > limit).all():
                    break
                read += end - start
                differ = (words[w, start:end] ^ query_words[w]) & agree[w]
                bounds += 2 * np.bitwise_count(differ).astype(np.int64)
    return read / words.size


def test_the_share_of_words_read_is_little_more_than_must_be_read():
    """The first limit is the k-th distance to codes of the nearest pivot, hence somewhat larger."""
    bits = place("correlated", 20_000, 256, 0) ^ (
        np.random.default_rng(1).random((20_000, 256)) < 0.1
    )
    codes = ch.codes.pack(bits)
    index = CodeIndex.build(codes[:-9], 256, clusters=True)
    least = np.mean([literal_share_read(index, query, 10) for query in codes[-9:]])
    assert 0.8 * least <= index.share_read(codes[-9:], 10) <= 1.3 * least < 0.4
    assert CodeIndex.build(codes, 256, clusters=False).share_read(codes[-9:], 10) > least


@pytest.mark.parametrize("clustered", [True, False])
def test_codes_in_clusters_get_them_and_scattered_ones_do_not(clustered, monkeypatch):
    monkeypatch.setattr(code_index, "_FEWEST_CLUSTERED", 1_000)
    monkeypatch.setattr(clustering, "_PIVOTS", 64)
    codes = draw(30_000, 128, 20, 0) if clustered else random_codes(30_000, n_bits=128)
    assert ("cluster_pivots" in CodeIndex.build(codes, 128).arrays()) is clustered
    assert "cluster_pivots" not in CodeIndex.build(codes[:900], 128).arrays()


@given(
    st.integers(1, 70),
    st.integers(0, 40),
    st.integers(1, 50),
    st.integers(0, 2**31),
    st.integers(0, 20),
    st.sampled_from([60, 1 << 24]),
)
def test_answers_are_the_first_of_the_sorted_database_in_blocks_of_any_size(
    k, nd, wanted, seed, radius, entries
):
    random = np.random.default_rng(seed)
    prototypes = random.random((3, k)) < 0.5  # many items share a code, so that ties are common
    database = prototypes[random.integers(0, 3, nd)] ^ (random.random((nd, k)) < 0.02)
    queries = random.random((4, k)) < 0.5
    ids = [f"item {i}" for i in random.permutation(nd)]
    packed = ch.codes.pack(queries), ch.codes.pack(database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_BLOCK_ENTRIES", entries)
        answers = exact.nearest(*packed, ids, wanted), within(*packed, ids, radius)
    for query, hit, near in zip(queries, *answers, strict=True):
        expected = sorted(
            (int((query != code).sum()), name) for code, name in zip(database, ids, strict=True)
        )
        found = [(int(d), ids[row]) for row, d in zip(hit.rows, hit.distances, strict=True)]
        assert found == expected[:wanted]
        inside = [(int(d), ids[row]) for row, d in zip(near.rows, near.distances, strict=True)]
        assert inside == [pair for pair in expected if pair[0] <= radius]


@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize("density", [None, 0.01])
def test_a_scan_in_segments_gives_the_answers_of_the_plain_one(segments, density, monkeypatch):
    """16,385 codes a segment, but for the last: just enough for first limits, and a last block and
    chunk of one.
    """
    n = 16_385 * segments - (segments > 2)
    packed, queries = random_codes(n, 0, 64), random_codes(9, 1, 64)
    queries[1] = packed[n // 2]
    queries[2], queries[3] = 0, 255  # before and behind all codes
    allowed = None if density is None else np.random.default_rng(2).random(n) < density
    monkeypatch.setattr(scans, "few_words", 0)  # on all cores
    monkeypatch.setattr(scans, "_division", lambda n_queries: (8, segments))
    index = CodeIndex.build(packed, 64, clusters=False)
    for k in (1, 20, n):
        assert_same(
            index.nearest(queries, k, allowed), plainly(exact.nearest, queries, packed, k, allowed)
        )
    assert_same(index.within(queries, 20, allowed), plainly(within, queries, packed, 20, allowed))


def literal_groups(codes: np.ndarray, radius: int) -> list[list[int]]:
    """The rows that are connected by pairs within the radius: in one step, two, four, …, more than
    there are rows.
    """
    near = ch.codes.hamming_distances(codes, codes) <= radius
    for _ in range(7):
        near = near @ near
    return sorted(
        [*group]
        for group in {tuple(np.flatnonzero(row).tolist()) for row in near}
        if len(group) > 1
    )


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
    assert sorted(group.tolist() for group in group_codes(codes, k, radius)) == literal_groups(
        codes, radius
    )


def test_many_equal_codes_are_one_code():
    """All pairs of these would be 2·10¹⁰."""
    codes = np.zeros((200_000, 8), np.uint8)
    codes[-1] = 255
    (group,) = group_codes(codes, n_bits=64)
    assert group.tolist() == list(range(len(codes) - 1))


# Files that nobody vouches for: whatever they hold is refused, or searched without leaving an
# array.

BITS = 44


def arrays() -> dict[str, np.ndarray]:
    """The arrays of an index of 300 codes in clusters around two prototypes."""
    index = CodeIndex.build(draw(300, BITS, 2, 0), BITS, clusters=True)
    return {name: values.copy() for name, values in index.arrays().items()}


def put(name: str, place: object, value: object) -> object:
    return lambda of: of[name].__setitem__(place, value)


def change(name: str, make) -> object:
    return lambda of: of.update({name: make(of[name])})


NAMES = (
    "codes",
    "starts",
    "rows",
    "cluster_pivots",
    "cluster_offsets",
    "cluster_chunks",
    "cluster_reach",
    "cluster_farthest",
    "cluster_cost",
)
FORGERIES = {
    **{
        f"{name} of another type": change(name, lambda values: values.astype(np.float64))
        for name in NAMES
    },
    **{f"fewer {name}": change(name, lambda values: values[..., :-1].copy()) for name in NAMES},
    **{
        f"{name} in a row": change(name, lambda values: values.reshape(-1)[:1].copy()[0])
        for name in NAMES
    },
    **{f"more {name}": change(name, lambda values: values.repeat(2, axis=0)) for name in NAMES},
    "no rows": lambda of: of.pop("rows"),
    "no reach": lambda of: of.pop("cluster_reach"),
    **{
        f"n_bits {n_bits!r}": change("n_bits", lambda _, value=n_bits: np.array(value))
        for n_bits in (44.0, [44, 44], 0, 32, 43, MOST_BITS + 1)
    },
    "padding": put("codes", (0, 7), 1),
    "starts behind the rows": put("starts", -1, 301),
    "starts not from 0": put("starts", 0, 1),
    "starts that go back": put("starts", 1, 200),
    "a code without rows": lambda of: put("starts", 2, of["starts"][1])(of),
    "a row behind the last": put("rows", 5, 300),
    "a row twice": lambda of: put("rows", 5, of["rows"][6])(of),
    "no pivots": lambda of: of.update(
        {
            name: of[name][:, :0].copy() if name == "cluster_pivots" else of[name][:0].copy()
            for name in NAMES[3:]
        }
    ),
    "an offset of a pivot behind the codes": put("cluster_offsets", -1, 301),
    "an offset of a pivot not from 0": put("cluster_offsets", 0, 1),
    "offsets of pivots that go back": put("cluster_offsets", 1, 1 << 31),
    "chunks that do not follow from offsets": put("cluster_chunks", -1, 1 << 31),
}


def search_in(index: CodeIndex) -> None:
    queries = draw(3, index.n_bits, 2, 1)
    for k in (1, 400):
        index.nearest(queries, k)
        index.nearest(queries, k, np.arange(len(index)) % 3 == 0)
    index.within(queries, index.n_bits)
    index.within(queries, 4)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_arrays_that_do_not_fit_are_refused(forgery):
    of = arrays()
    FORGERIES[forgery](of)
    check_refusal(r"^.+$", CodeIndex.from_arrays, of, error=ValueError)


def test_clusters_of_older_snapshots_are_left_for_a_scan():
    of = arrays()
    del of["cluster_chunks"]
    of["cluster_shift"] = np.zeros(1, np.int64)
    old = CodeIndex.from_arrays(of)
    assert "cluster_pivots" not in old.arrays()
    assert_same(
        old.nearest(old.packed(), 9), CodeIndex.build(old.packed(), BITS).nearest(old.packed(), 9)
    )


@pytest.mark.parametrize("n", [50, pytest.param(5_000, marks=pytest.mark.slow)])
def test_arrays_with_changed_bytes_are_refused_or_searched(n):
    """A search of the changed arrays would end the tests by a signal if it left one of them."""
    random = np.random.default_rng(0)
    whole = arrays()
    refused = 0
    for _ in range(n):
        name = random.choice(list(whole))
        values = whole[name].copy()
        content = values.reshape(-1).view(np.uint8)
        content[random.integers(0, len(content), random.integers(0, 4))] = random.integers(256)
        try:
            search_in(CodeIndex.from_arrays(whole | {name: values}))
        except ValueError:
            refused += 1
    assert 0 < refused < n


def test_codes_of_more_bits_than_a_distance_holds_are_refused():
    longest = np.full((2, -(-MOST_BITS // 8)), 255, np.uint8)
    longest[:, -1] = 0b11111100
    (found,) = CodeIndex.build(longest, MOST_BITS).nearest(np.zeros_like(longest[:1]), 5)
    assert found.distances.tolist() == [MOST_BITS] * 2
    check_refusal(
        "65535 bits cannot be searched", CodeIndex.build, longest, MOST_BITS + 1, error=ValueError
    )
