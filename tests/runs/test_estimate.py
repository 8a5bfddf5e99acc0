"""What a dry run measures: more and more items at a time, for seconds at most."""

import statistics
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from channelhash.config import read_config
from channelhash.runs import estimate
from channelhash.runs.estimate import measured_cost, plan_run, update_fewer
from small_runs import feature_config, write_features

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
    assert cost.least <= cost.seconds <= cost.most
    if len(sizes) > 1:
        assert cost.seconds == pytest.approx(constant / sizes[-1] + each)
        assert cost.least == pytest.approx(cost.most)  # the machine does not vary


def test_a_whole_batch_is_measured_three_times():
    machine, seen = Machine(0.0, 0.01, 5.0), []
    cost = measured_cost(machine.work, 2, 12, CPU, lambda done, total: seen.append((done, total)), lambda: machine.now)
    assert machine.calls == [2, 2, 4, 8, 12, 12, 12]
    assert seen == [(n, 12) for n in machine.calls]
    assert cost.seconds == pytest.approx(statistics.median([0.01] * 3))


def test_parameters_beyond_a_number_keep_neither_gradient_nor_averages():
    layers = [torch.nn.Linear(8, 8, bias=False) for _ in range(4)]
    optimizer = torch.optim.Adam([layer.weight for layer in layers])
    assert update_fewer(optimizer, 2 * 64) == 2 * 64 * 4
    before = [layer.weight.detach().clone() for layer in layers]
    torch.nn.Sequential(*layers)(torch.ones(3, 8)).sum().backward()
    optimizer.step()
    assert [layer.weight.grad is not None for layer in layers] == [True, True, False, False]
    assert [layer.weight in optimizer.state for layer in layers] == [True, True, False, False]
    same = [torch.equal(layer.weight, old) for layer, old in zip(layers, before, strict=True)]
    assert same == [False, False, True, True]


def test_a_plan_adds_what_updates_of_the_parameters_left_out_take(tmp_path, monkeypatch):
    config = read_config(feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz")))
    whole = plan_run(config)
    asked = []

    def rest(optimizer, left_out):
        asked.append((len(optimizer.state), left_out))
        return 1000.0

    monkeypatch.setattr(estimate, "_UPDATED", 10)
    monkeypatch.setattr(estimate, "_seconds_of_the_rest", rest)
    plan = plan_run(config)
    ((updated, left_out),) = asked
    assert updated == 1
    assert 0 < left_out < 4 * whole["parameters"]["trainable"]
    assert plan["seconds"]["step"] == pytest.approx(1000, abs=20)
    assert plan["seconds"]["total_least"] >= 1000 * plan["steps"]
    assert plan["memory"]["gradients_and_optimizer_mb"] == whole["memory"]["gradients_and_optimizer_mb"]


def test_the_rest_of_an_update_is_by_what_the_others_take(monkeypatch):
    values = torch.zeros(100, requires_grad=True)
    values.grad = torch.ones(100)
    clock = iter([0.0, 1.0, 5.0, 7.0, 10.0, 15.0])
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: next(clock))
    assert estimate._seconds_of_the_rest(torch.optim.Adam([values]), left_out=1200) == pytest.approx(6)
    assert estimate._seconds_of_the_rest(torch.optim.Adam([values]), left_out=0) == 0
