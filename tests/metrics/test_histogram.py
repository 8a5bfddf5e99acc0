"""The compiled passes and NumPy's equal the plain ones, AP in the order of the database a sort;
shards add up.
"""

import sys
from dataclasses import asdict, replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import channelhash as ch
from channelhash.metrics import count_distances as counting
from channelhash.metrics.count_distances import count_distances, count_jointly
from channelhash.utils.optional_imports import has_loops
from refusals import check_refusal


@pytest.fixture(autouse=True, scope="module", params=["compiled", "without numba"])
def loops(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "compiled":
            patch.setitem(sys.modules, "numba", None)
        has_loops.cache_clear()
        yield
    has_loops.cache_clear()


def collection(
    n: int, k: int, c: int, seed: int, density: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return ch.codes.pack(random.random((n, k)) < 0.5), random.random((n, c)) < density


def drawn_pairs(
    nq: int, nd: int, k: int, c: int, seed: int = 0, density: float = 0.1
) -> tuple[np.ndarray, ...]:
    """Codes of queries and database, and their labels."""
    queries, query_labels = collection(nq, k, c, seed, density)
    database, database_labels = collection(nd, k, c, seed + 1, density)
    return queries, database, query_labels, database_labels


def assert_equal_counts(
    actual: ch.metrics.HammingHistogram, expected: ch.metrics.HammingHistogram
) -> None:
    np.testing.assert_equal(asdict(actual), asdict(expected))


# Code length, labels, queries, items, density of the labels, seed.
SHAPES = (
    st.integers(1, 1024) | st.sampled_from([1, 63, 64, 65, 128, 256, 1024]),
    st.integers(0, 130) | st.sampled_from([1, 64, 65]),
    st.integers(0, 20),
    st.integers(1, 70),
    st.sampled_from([0.02, 0.1, 0.6]),
    st.integers(0, 2**32 - 1),
)


# Long segments of equally many labels are emptied at their end, short ones item by item.
@example(16, 6, 11, 3000, 0.5, 0)
@example(16, 500, 11, 3000, 0.5, 0)
@example(64, 24, 11, 2500, 0.5, 0)
@example(1024, 70, 11, 2500, 0.5, 0)
@settings(max_examples=60)
@given(*SHAPES)
def test_passes_equal_the_plain_ones(k, c, nq, nd, density, seed):
    """Gains are the label similarities times the root of the number of a query's labels, by
    distance and by value.
    """
    pairs = queries, database, query_labels, database_labels = drawn_pairs(
        nq, nd, k, c, seed, density
    )
    total, relevant, gains = count_distances(pairs, k)
    distances, shared = (
        ch.codes.hamming_distances(queries, database),
        query_labels.astype(int) @ database_labels.T,
    )
    units = np.rint(2**32 * shared / np.sqrt(np.maximum(1, database_labels.sum(axis=1)))).astype(
        np.int64
    )
    for q in range(nq):
        np.testing.assert_array_equal(total[q], np.bincount(distances[q], minlength=k + 1))
        np.testing.assert_array_equal(
            relevant[q], np.bincount(distances[q, shared[q] > 0], minlength=k + 1)
        )
        np.testing.assert_array_equal(
            gains.by_distance[q], [units[q, distances[q] == d].sum() for d in range(k + 1)]
        )
        values, counts = np.unique(units[q, units[q] > 0], return_counts=True)
        np.testing.assert_array_equal(gains.gain[gains.query == q], values[::-1])
        np.testing.assert_array_equal(gains.count[gains.query == q], counts[::-1])
    jointly = count_jointly(pairs, k)
    expected = np.zeros_like(jointly)
    np.add.at(expected, (distances, shared), 1)
    np.testing.assert_array_equal(jointly, expected)


def test_queries_that_go_through_in_chunks_are_counted_alike(monkeypatch):
    pairs = drawn_pairs(30, 40, 20, 9)
    whole = ch.metrics.hamming_histogram(*pairs, n_bits=20)
    monkeypatch.setattr(counting, "_CELLS", 100)
    assert_equal_counts(ch.metrics.hamming_histogram(*pairs, n_bits=20), whole)


@settings(max_examples=40)
@given(st.integers(2, 200), st.integers(1, 100), st.integers(2, 5), st.data())
def test_histograms_of_shards_add_up(nd, k, n_shards, data):
    """Any split of the items, empty shards left out, gives the whole to the last count."""
    pairs = queries, database, query_labels, database_labels = drawn_pairs(4, nd, k, 5)
    shard = np.array(data.draw(st.lists(st.integers(0, n_shards - 1), min_size=nd, max_size=nd)))
    whole = ch.metrics.hamming_histogram(*pairs, n_bits=k)
    parts = [
        (queries, database[shard == s], query_labels, database_labels[shard == s])
        for s in set(shard.tolist())
    ]
    histograms = [ch.metrics.hamming_histogram(*part, n_bits=k) for part in parts]
    assert_equal_counts(reduce(add, histograms), whole)


CODES, LABELS = collection(3, 12, 4, 0)


@pytest.mark.parametrize(("change", "message"), [
    ({"n_bits": 20}, "codes of 20 bits are"),
    ({"database_labels": LABELS[:2]}, "3 database codes, but database labels are"),
    ({"database_labels": LABELS[:, :2]}, "query labels have 4 columns"),
    ({"database_labels": LABELS[:0], "database_codes": CODES[:0]}, "the database is empty"),
    ({"database_labels": -np.eye(3, 4, -1, int)}, r"not -1 \(row 1, column 0\)"),
    ({"query_labels": np.full((3, 4), np.nan)}, "not nan"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(change, message):
    pairs = {
        "query_codes": CODES,
        "database_codes": CODES,
        "query_labels": LABELS,
        "database_labels": LABELS,
    }
    check_refusal(
        message, ch.metrics.hamming_histogram, **{**pairs, "n_bits": 12, **change}, error=ValueError
    )


def test_histograms_of_other_queries_or_shapes_do_not_go_together():
    whole = ch.metrics.hamming_histogram(CODES, CODES, LABELS, LABELS, n_bits=12)
    one = ch.metrics.hamming_histogram(CODES[:1], CODES, LABELS[:1], LABELS, n_bits=12)
    fewer = replace(whole.gains, by_distance=whole.gains.by_distance[:2])
    check_refusal("not of the same queries", add, whole, one, error=ValueError)
    two_shapes = r"histograms are two \(nq, k \+ 1\) arrays, not \(3, 13\), \(2, 13\)"
    check_refusal(two_shapes, replace, whole, relevant=whole.relevant[:2], error=ValueError)
    says = r"gains of \(2, 13\) do not fit histograms of \(3, 13\)"
    check_refusal(says, replace, whole, gains=fewer, error=ValueError)


@pytest.mark.parametrize("k", [64, 12])
def test_codes_of_a_mapped_file_can_be_counted(tmp_path, k):
    codes, labels = collection(5, k, 4, 0)
    np.save(tmp_path / "codes.npy", codes)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    expected = ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=k)
    actual = ch.metrics.hamming_histogram(
        mapped, mapped, labels.astype(int), labels.astype(float), n_bits=k
    )
    assert_equal_counts(actual, expected)


@example(k=6, c=24, nq=11, nd=2500, seed=0)  # ranks go on over blocks of items
@example(k=64, c=24, nq=11, nd=2500, seed=0)
@example(k=150, c=70, nq=11, nd=2500, seed=0)
@settings(max_examples=60)
@given(
    k=st.integers(1, 300),
    c=st.integers(1, 130),
    nq=st.integers(1, 20),
    nd=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_counting_pass_equals_a_stable_sort(k, c, nq, nd, seed):
    pairs = queries, database, query_labels, database_labels = drawn_pairs(nq, nd, k, c, seed, 0.2)
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=k)
    actual = ch.metrics.average_precisions_in_order(*pairs, histogram)
    distances = ch.codes.hamming_distances(queries, database)
    related = (query_labels.astype(int) @ database_labels.T) > 0
    expected = [
        ch.metrics.average_precision_in_order(d, r) for d, r in zip(distances, related, strict=True)
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_histogram_of_other_data_is_refused():
    codes, labels = collection(5, 12, 4, 0)
    histogram = ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=12)
    for pairs, says in (
        ((codes[:4], codes, labels[:4], labels), "not of these 4 queries over 5 items"),
        ((codes, codes[:4], labels, labels[:4]), "not of these 5 queries over 4 items"),
        ((codes, codes, labels[:4], labels), "query labels are"),
    ):
        check_refusal(
            says, ch.metrics.average_precisions_in_order, *pairs, histogram, error=ValueError
        )
