"""What a dry run measures: more and more items at a time, for seconds at most."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from channelhash.runs.estimate import measured_cost


@given(constant=st.floats(0, 2), each=st.floats(1e-4, 20), warm_up=st.floats(0, 30), last=st.integers(1, 200))
def test_it_ends_in_seconds_and_says_what_was_measured(constant, each, warm_up, last):
    calls, now = [], [0.0]

    def work(n):
        now[0] += constant + each * n + (0 if calls else warm_up)
        calls.append(n)

    seconds, measured = measured_cost(work, last, torch.device("cpu"), clock=lambda: now[0])
    assert calls[:2] in ([1], [1, 1])
    assert all(before <= after <= max(2 * before, 1) for before, after in pairwise(calls))
    assert now[0] <= max(10.0, constant + each + warm_up) + 1e-9
    assert measured == calls[-1] <= last
    if len(calls) > 1:
        assert seconds == pytest.approx(constant / measured + each)
        assert measured == last or now[0] + (constant + 2 * each * measured + warm_up) > 10.0 - 2 * constant - 1e-9
