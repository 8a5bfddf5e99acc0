"""The compiled pass equals the plain one; shards add up; what does not fit is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch
from channelhash.metrics.kernel import count_distances, count_distances_literally


def collection(n: int, k: int, c: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return ch.codes.pack(random.random((n, k)) < 0.5), random.random((n, c)) < 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 130), st.integers(0, 20), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_the_compiled_pass_equals_the_plain_one(k, c, nq, nd, seed):
    queries, query_labels = collection(nq, k, c, seed)
    database, database_labels = collection(nd, k, c, seed + 1)
    for actual, expected in zip(
        count_distances(queries, database, query_labels, database_labels, k),
        count_distances_literally(queries, database, query_labels, database_labels, k),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("k", "c"), [(64, 24), (64, 70), (128, 24), (1024, 70)])
def test_databases_longer_than_a_block_and_more_queries_than_a_group(k, c):
    queries, query_labels = collection(11, k, c, 0)
    database, database_labels = collection(2500, k, c, 1)
    hist = ch.metrics.hamming_histogram(queries, database, query_labels, database_labels, n_bits=k)
    total, relevant = count_distances_literally(queries, database, query_labels, database_labels, k)
    np.testing.assert_array_equal(hist.total, total)
    np.testing.assert_array_equal(hist.relevant, relevant)
    assert hist.total.dtype == np.int64
    assert hist.total.shape == (11, k + 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60), st.data())
def test_histograms_of_shards_add_up(nd, data):
    queries, query_labels = collection(4, 20, 5, 0)
    database, database_labels = collection(nd, 20, 5, 1)
    cut = data.draw(st.integers(1, nd - 1))
    order = np.random.default_rng(nd).permutation(nd)
    whole = ch.metrics.hamming_histogram(queries, database, query_labels, database_labels, n_bits=20)
    a, b = (
        ch.metrics.hamming_histogram(queries, database[rows], query_labels, database_labels[rows], n_bits=20)
        for rows in (order[:cut], order[cut:])
    )
    np.testing.assert_array_equal((a + b).total, whole.total)
    np.testing.assert_array_equal((a + b).relevant, whole.relevant)


def test_what_does_not_fit_is_refused():
    codes, labels = collection(3, 12, 4, 0)
    count = ch.metrics.hamming_histogram
    with pytest.raises(ValueError, match="codes of 20 bits are"):
        count(codes, codes, labels, labels, n_bits=20)
    with pytest.raises(ValueError, match="3 database codes, but database labels are"):
        count(codes, codes, labels, labels[:2], n_bits=12)
    with pytest.raises(ValueError, match="query labels have 4 columns"):
        count(codes, codes, labels, labels[:, :2], n_bits=12)
    with pytest.raises(ValueError, match="the database is empty"):
        count(codes, codes[:0], labels, labels[:0], n_bits=12)
    with pytest.raises(ValueError, match=r"not -1 \(row 1, column 0\)"):
        count(codes, codes, labels, np.array([[0, 1, 1, 0], [-1, 1, 1, 0], [0, 0, 0, 0]]), n_bits=12)
    with pytest.raises(ValueError, match="not nan"):
        count(codes, codes, np.full((3, 4), np.nan), labels, n_bits=12)
    with pytest.raises(ValueError, match="not of the same queries"):
        count(codes, codes, labels, labels, n_bits=12) + count(codes[:1], codes, labels[:1], labels, n_bits=12)


@pytest.mark.parametrize("k", [64, 12])
def test_codes_of_a_mapped_file_can_be_counted(tmp_path, k):
    codes, labels = collection(5, k, 4, 0)
    np.save(tmp_path / "codes.npy", codes)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    expected = ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=k)
    actual = ch.metrics.hamming_histogram(mapped, mapped, labels.astype(int), labels.astype(float), n_bits=k)
    np.testing.assert_array_equal(actual.total, expected.total)
    np.testing.assert_array_equal(actual.relevant, expected.relevant)
