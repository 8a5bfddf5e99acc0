"""What a dry run measures: more and more items at a time, for seconds at most."""

import statistics
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from channelhash.runs.estimate import measured_cost

CPU = torch.device("cpu")


class Machine:
    """A clock that goes on by what each call takes: a constant part, one for each item, and more in the first."""

    def __init__(self, constant: float, each: float, warm_up: float) -> None:
        self.constant, self.each, self.warm_up = constant, each, warm_up
        self.now, self.calls = 0.0, []

    def work(self, n: int) -> None:
        self.now += self.constant + self.each * n + (0 if self.calls else self.warm_up)
        self.calls.append(n)


@given(constant=st.floats(0, 2), each=st.floats(1e-4, 20), warm_up=st.floats(0, 30), last=st.integers(1, 200))
def test_it_ends_in_seconds_and_says_what_was_measured(constant, each, warm_up, last):
    machine = Machine(constant, each, warm_up)
    cost = measured_cost(machine.work, 1, last, CPU, clock=lambda: machine.now)
    sizes = machine.calls
    assert sizes[0] == 1
    assert all(before <= after <= max(2 * before, before) for before, after in pairwise(sizes))
    one = constant + each
    # The first call, and one that counts, are made however long they take: nothing less can be measured.
    assert machine.now <= max(10.0, 2 * one + warm_up) + 1e-9
    assert len(sizes) == 1 or len(set(sizes)) > 1 or last == 1 or warm_up + 4 * constant + 4 * each > 10.0 - 1e-9
    assert cost.items == sizes[-1] <= last
    if len(sizes) > 1:
        assert cost.seconds == pytest.approx(constant / sizes[-1] + each)


def test_a_whole_batch_is_measured_three_times():
    machine, seen = Machine(0.0, 0.01, 5.0), []
    cost = measured_cost(machine.work, 2, 12, CPU, lambda done, total: seen.append((done, total)), lambda: machine.now)
    assert machine.calls == [2, 2, 4, 8, 12, 12, 12]
    assert seen == [(n, 12) for n in machine.calls]
    assert cost.seconds == pytest.approx(statistics.median([0.01] * 3))
