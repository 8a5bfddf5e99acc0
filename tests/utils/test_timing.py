"""Rows: medians, scaled parts, memory beside what was there."""

import time

import numpy as np
import pytest

from channelhash.utils import timing
from channelhash.utils.timing import compare, describe_machine, measure_extra_memory


def test_the_time_of_a_part_is_scaled_to_the_whole(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    row = compare("x", "y", lambda: None, "other", lambda: None, repeats=3, part=0.25)
    assert (row["seconds"], row["baseline_seconds"], row["ratio"]) == (1, 4, 4)


def test_what_is_short_is_called_many_times_a_measurement(monkeypatch):
    monkeypatch.setattr(timing, "_SHORTEST", 0.05)
    now, calls = [0.0], [0]

    def run():
        calls[0] += 1
        now[0] += 0.01

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    assert compare("x", "y", run, repeats=3)["seconds"] == pytest.approx(0.01)
    assert calls[0] == 1 + 1 + 3 * 5  # warm-up, one to see how long it takes, five in each measurement


def test_extra_memory_is_what_a_run_takes_beside_what_was_there():
    kept = np.ones(20_000_000)  # 160 MB
    assert 70 < measure_extra_memory(lambda: np.ones(10_000_000).sum()) < 120
    assert measure_extra_memory(lambda: kept.sum()) < 40


def test_the_machine_is_named_by_its_processor_and_cores():
    assert describe_machine().endswith("cores")


def test_a_row_without_an_alternative_leaves_it_open():
    row = compare("x", "y", lambda: None)
    assert row["baseline_seconds"] is row["ratio"] is None
    assert row["peak_mb"] >= 0
