"""Forks: a child of a process that has searched and evaluated does so too, and harms nothing of its parent."""

import multiprocessing
import sys

import numpy as np
import pytest

import channelhash as ch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
N_BITS = 64


@pytest.mark.slow
def test_a_forked_child_searches_evaluates_and_writes_and_its_parent_goes_on(tmp_path):
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (2000, N_BITS // 8), dtype=np.uint8)
    labels = random.random((2000, 5)) < 0.3
    names = [f"{number:06}" for number in range(2000)]
    both = ch.CodeSet(names, {"image": codes, "text": codes}, labels, n_bits=N_BITS)
    store = ch.open_store(tmp_path / "s.store", N_BITS)
    store.add(names, {"image": codes})

    def answers():
        return store.search(codes[:20], k=5).ids, repr(ch.metrics.evaluate(both.take(range(100)), both))

    expected = answers()

    def check():
        assert answers() == expected
        store.add(["new"], {"image": ~codes[:1]})

    child = multiprocessing.get_context("fork").Process(target=check)
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert answers() == expected
    assert store.search(~codes[:1], k=1).ids == [["new"]]
