"""The passes in PyTorch give the counts of the compiled ones, to the last item."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch
from channelhash.metrics import count_distances as counting
from channelhash.metrics import torch_kernels as torch_counting
from metrics.test_histogram import assert_equal_counts


def collection(n: int, k: int, c: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return ch.codes.pack(random.random((n, k)) < 0.5), random.random((n, c)) < 0.2


def assert_same_as_compiled(nq, nd, k, c, seed, device):
    queries, query_labels = collection(nq, k, c, seed)
    database, database_labels = collection(nd, k, c, seed + 1)
    pairs = queries, database, query_labels, database_labels
    compiled = counting.count_distances(*pairs, k)
    assert_equal_counts(torch_counting.count_distances(*pairs, k, device), compiled)
    np.testing.assert_allclose(
        torch_counting.precisions_in_order(*pairs, k, device),
        counting.precisions_in_order(*pairs, compiled.total, compiled.relevant),
        rtol=1e-12,
    )


@settings(max_examples=20)
@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 1024), st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_counts_on_cpu_tensors_are_those_of_the_compiled_pass(nq, nd, k, c, seed):
    assert_same_as_compiled(nq, nd, k, c, seed, "cpu")


def test_blocks_of_queries_and_items_add_up(monkeypatch):
    monkeypatch.setattr(torch_counting, "_PAIRS", 200)
    monkeypatch.setattr(torch_counting, "_QUERIES", 5)
    assert_same_as_compiled(23, 130, 70, 9, 0, "cpu")


def test_the_device_selects_the_pass():
    """Another device than the CPU goes to PyTorch: its meta device, which holds no numbers, cannot answer."""
    codes, labels = collection(4, 8, 3, 0)
    with pytest.raises(NotImplementedError, match="Meta"):
        ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=8, device="meta")


@pytest.mark.gpu
def test_counts_on_a_gpu_are_those_of_the_compiled_pass():
    assert torch.cuda.is_available()
    for nq, nd, k, c in ((40, 5000, 64, 21), (300, 40_000, 128, 81), (3, 2000, 1024, 5)):
        assert_same_as_compiled(nq, nd, k, c, k, "cuda")


@pytest.mark.gpu
def test_evaluation_on_a_gpu_gives_the_report_of_the_cpu():
    random = np.random.default_rng(0)
    codes = {m: ch.codes.pack(random.random((500, 32)) < 0.5) for m in ("image", "text")}
    whole = ch.CodeSet([str(i) for i in range(500)], codes, random.random((500, 6)) < 0.3, 32)
    query, database = whole.take(range(50)), whole.take(range(50, 500))
    expected = ch.metrics.evaluate(query, database, cutoffs=(10,))
    for task, report in ch.metrics.evaluate(query, database, cutoffs=(10,), device="cuda").items():
        assert report.pop("map_in_order") == pytest.approx(expected[task].pop("map_in_order"), rel=1e-12)
        assert report == expected[task]
