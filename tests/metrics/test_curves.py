"""Curves against their definitions, pair by pair."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from channelhash.metrics import HammingHistogram
from channelhash.metrics.histogram import pair_shares


@st.composite
def histograms(draw) -> HammingHistogram:
    """A few queries, some of which may have no relevant item or find nothing near by; one at least has one."""
    k, queries = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    counts = st.lists(st.integers(0, 4), min_size=k + 1, max_size=k + 1)
    relevant = np.array([draw(counts) for _ in range(queries)])
    relevant[0, draw(st.integers(0, k))] += 1
    return HammingHistogram(relevant + np.array([draw(counts) for _ in range(queries)]), relevant)


@given(histograms())
def test_pair_shares_count_pairs(histogram):
    pairs = [
        (distance, row < relevant)
        for totals, relevants in zip(histogram.total, histogram.relevant, strict=True)
        for distance, (total, relevant) in enumerate(zip(totals, relevants, strict=True))
        for row in range(total)
    ]
    shares = pair_shares(histogram.total, histogram.relevant)
    for values, wanted in ((shares.relevant, True), (shares.irrelevant, False)):
        distances = [distance for distance, relevant in pairs if relevant == wanted]
        expected = [distances.count(d) / len(distances) if distances else 0 for d in range(histogram.n_bits + 1)]
        np.testing.assert_allclose(values, expected, atol=1e-12)
