"""How a scan of many codes is divided, and where it begins: each by itself, then together against the plain one."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.search.index.test_index import assert_same, plainly

from channelhash.search.index import CodeIndex
from channelhash.search.index import brute_force as exact
from channelhash.search.index import linear_scan as scan
from channelhash.search.index.arrays import Search, code_words, distinct_codes

FEW, GROUP = scan._FEW, scan._GROUP
NO_MASK = np.empty(0, np.bool_)


def scattered(n: int, seed: int, n_bytes: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, n_bytes), dtype=np.uint8)


def sizes(n_queries: int, n_codes: int, words: int = 1) -> SimpleNamespace:
    """What the division of a scan looks at."""
    return SimpleNamespace(queries=np.zeros((n_queries, words)), codes=np.broadcast_to(0, (words, n_codes)))


@pytest.mark.parametrize("n_queries", [1, 2, 8, 9, 17])
@pytest.mark.parametrize("n_codes", [1, 4, 5, 99, 100])
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("segments", [1, 2, 4, 7])
def test_tasks_take_each_query_with_each_code_once(n_queries, n_codes, group, segments):
    taken = np.zeros((n_queries, n_codes), int)
    groups = -(-n_queries // group)
    for task in range(groups * segments):
        first, last, segment, begin, end = scan._part.py_func(
            task, scan._Division(groups * segments, group, segments), sizes(n_queries, n_codes)
        )
        assert 0 <= segment < segments
        assert first < last <= min(first + group, n_queries)
        assert 0 <= end <= n_codes
        assert end - begin <= -(-n_codes // segments)
        taken[first:last, begin:end] += 1
    assert (taken == 1).all()


@pytest.mark.parametrize(
    ("n_queries", "n_codes", "words", "threads", "expected"),
    [
        (1, FEW - 1, 1, 4, (1, GROUP, 1)),  # too few pairs to wake other cores
        (9, 100, 1, 4, (2, GROUP, 1)),
        (16, 100, 1, 4, (2, GROUP, 1)),
        (1, FEW, 1, 4, (8, 1, 8)),  # two tasks a core
        (1, FEW // 2, 2, 4, (8, 1, 8)),  # words count, not codes
        (1, FEW, 1, 1, (2, 1, 2)),
        (3, FEW, 1, 2, (6, 1, 2)),
        (4, FEW, 1, 2, (4, 1, 1)),
        (7, FEW, 1, 2, (7, 1, 1)),
        (8, FEW, 1, 2, (4, 2, 1)),
        (9, FEW, 1, 2, (5, 2, 1)),
        (32, FEW, 1, 2, (4, 8, 1)),
        (100, FEW, 1, 2, (13, GROUP, 1)),  # a block stays in the first cache for so many queries
    ],
)
def test_every_core_has_two_tasks_where_there_are_many_pairs(n_queries, n_codes, words, threads, expected, monkeypatch):
    monkeypatch.setattr(scan, "loop_threads", lambda: threads)
    assert scan._division(sizes(n_queries, n_codes, words)) == expected


@pytest.mark.parametrize("n_bits", [32, 64, 128])
@pytest.mark.parametrize("density", [None, 0.3, 0.0])
@pytest.mark.parametrize(("k", "least"), [(1, 24), (1, 65), (3, 24), (8, 24), (40, 24)])
def test_the_first_limit_is_the_kth_distance_around_a_querys_place(n_bits, density, k, least, monkeypatch):
    monkeypatch.setattr(scan, "_AROUND", least)
    monkeypatch.setattr(scan, "BLOCK", 64)
    n, begin, end = 700, 30, 670
    packed = scattered(n, 0, n_bits // 8)
    if n_bits == 128:
        packed[:, :8] = packed[np.arange(n) % 4, :8]  # a query's place is before all codes that share its first word
    distinct = distinct_codes(packed, n_bits)
    mask = NO_MASK if density is None else np.random.default_rng(1).random(n) < density
    mask[:1] = True  # of no density, the first row alone
    sorted_codes = packed[distinct.rows]  # all different
    counts = mask[distinct.rows] if len(mask) else np.ones(n, bool)
    queries = np.concatenate(
        [scattered(6, 2, n_bits // 8), sorted_codes[[30, 350, 669]], packed[:1], sorted_codes[[0, 699]]]
    )
    words = code_words(queries, n_bits)
    search = Search(words, *distinct, mask, k, n_bits, n_bits)
    around = max(least, 8 * k)
    tally = np.zeros(n_bits + 1, np.int64)
    for query, packed_query in zip(words, queries, strict=True):
        place = begin + int(np.searchsorted(distinct.codes[0, begin:end], query[0]))
        low = min(max(begin, place - around // 2), end - around)
        window = slice(low, low + around)
        distances = np.unpackbits(sorted_codes[window] ^ packed_query, axis=1).sum(axis=1)[counts[window]]
        kth = int(np.sort(distances)[k - 1]) if len(distances) >= k else n_bits
        for given in (n_bits, 12, 0):
            buffer = np.empty(64, np.uint16)
            found = scan._first_limit.py_func(query, search, begin, end, buffer, tally, given)
            assert found == (min(given, kth) if end - begin >= 8 * around else given)
            assert not tally.any()


@pytest.mark.parametrize("more", [-1, 0])
def test_short_segments_have_no_first_limit(more, monkeypatch):
    monkeypatch.setattr(scan, "_AROUND", 10)
    packed = scattered(300, 0)
    search = Search(code_words(packed[:1], 64), *distinct_codes(packed, 64), NO_MASK, 1, 64, 64)
    limit = scan._first_limit.py_func(
        search.queries[0], search, 100, 180 + more, np.empty(1024, np.uint16), np.zeros(65, np.int64), 64
    )
    assert (limit < 64) is (more == 0)


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
