"""Simulations against what can be said without one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.errors import InputError
from channelhash.lab.capacity.plans import Job, Serving
from channelhash.lab.capacity.serving_simulation import compare
from channelhash.lab.capacity.serving_simulation import simulate as serve
from channelhash.lab.capacity.simulation import POLICIES, check, simulate, summary

CALM = Job(tasks=10, workers=4, task_seconds=60, spread=0, failures_per_hour=0, slow_share=0)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_trouble_a_job_takes_its_rounds(policy):
    (outcome,) = simulate(CALM, policy, seed=0, runs=1)
    assert outcome.seconds == 180  # 4 + 4 + 2 tasks
    assert outcome.lost == 0


def test_all_workers_slow_is_the_same_job_slower():
    (outcome,) = simulate(replace(CALM, slow_share=1, slow_factor=3), "retry", seed=0, runs=1)
    assert outcome.seconds == 540


def test_a_copy_helps_against_a_slow_worker():
    """Two tasks, and a worker each, one of them slow: the fast one copies the other's task and ends first."""
    job = Job(tasks=2, workers=2, task_seconds=60, spread=0, failures_per_hour=0, slow_share=0.5, slow_factor=10)
    times = {policy: {one.seconds for one in simulate(job, policy, seed=0, runs=40)} for policy in POLICIES}
    assert times["retry"] == times["no retry"] == {60, 600}
    assert times["speculative"] == {60, 120, 600}  # 600: both are slow


def test_no_retry_loses_the_share_of_tasks_that_die():
    job = Job(tasks=400, workers=20, task_seconds=60, spread=0, failures_per_hour=6, slow_share=0)
    lost = np.mean([one.lost for one in simulate(job, "no retry", seed=1, runs=50)])
    assert lost / 400 == pytest.approx(1 - np.exp(-0.1), rel=0.05)


def test_a_task_done_again_wastes_what_was_done():
    """Work lost in an attempt that dies, over all work: known for exponential lives."""
    job = Job(tasks=500, workers=20, task_seconds=60, spread=0, failures_per_hour=6, slow_share=0)
    wasted = np.mean([one.wasted for one in simulate(job, "retry", seed=1, runs=30)])
    # Expected work of a task with deaths at rate r and length t: (e^{rt} − 1) / r.
    assert wasted == pytest.approx(1 - 0.1 / np.expm1(0.1), rel=0.1)


@settings(max_examples=30)
@given(
    job=st.builds(
        Job,
        tasks=st.integers(1, 40),
        workers=st.integers(1, 8),
        spread=st.just(0),
        failures_per_hour=st.floats(0, 20),
        slow_share=st.floats(0, 1),
        slow_factor=st.floats(1, 4),
    ),
    seed=st.integers(0, 100),
)
def test_retry_loses_nothing_and_time_is_at_least_the_work(job, seed):
    for policy in POLICIES:
        (outcome,) = simulate(job, policy, seed, runs=1)
        assert outcome == simulate(job, policy, seed, runs=1)[0]
        assert policy == "no retry" or outcome.lost == 0
        assert 0 <= outcome.wasted <= 1
        done = job.tasks - outcome.lost
        assert outcome.seconds >= done * job.task_seconds / job.workers - 1e-6


def test_tasks_that_never_end_are_refused():
    with pytest.raises(InputError, match="shorter tasks"):
        check(Job(task_seconds=36_000, failures_per_hour=1))
    check(Job())


def test_tasks_of_varying_length_keep_their_median():
    job = Job(tasks=1, workers=1, spread=0.3, failures_per_hour=0, slow_share=0)
    seconds = np.log([one.seconds for one in simulate(job, "retry", 0, runs=2000)])
    assert np.exp(np.median(seconds)) == pytest.approx(60, rel=0.03)
    assert seconds.std() == pytest.approx(0.3, rel=0.1)


def test_the_summary_is_of_all_runs():
    found = summary(simulate(CALM, "retry", 0, runs=3))
    assert found == {"p50": 180, "p95": 180, "max": 180, "lost": 0, "wasted": 0}


def test_every_part_has_a_machine_that_answers_as_often_as_the_formula_says():
    """(1 − (1 − up)^replicas)^parts, machines failing independently."""
    serving = Serving(parts=4, replicas=2, up=0.9)
    assert serve(serving, 0, 50_000)["answered"] == pytest.approx((1 - 0.1**2) ** 4, abs=0.003)


def test_the_slowest_of_many_parts_is_late_more_often():
    one, many = (serve(Serving(parts=parts), 0, 50_000) for parts in (1, 50))
    assert one["p50"] == pytest.approx(0.02, rel=0.02)
    assert many["p50"] > 1.5 * one["p50"]


def test_second_requests_shorten_the_tail_and_cost_their_share():
    found = compare(Serving(), seed=0)
    assert found["no"]["requests"] == 1
    assert found["after 95 %"]["requests"] == pytest.approx(1.05, abs=0.01)
    assert found["after 95 %"]["p99"] < found["no"]["p99"] / 2
    alone = compare(Serving(replicas=1), seed=0)
    assert alone["no"] == alone["after 95 %"]  # nobody else to ask
