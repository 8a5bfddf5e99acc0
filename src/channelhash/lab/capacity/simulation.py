"""A job of many tasks on workers that die and workers that are slow, under three policies. Seeded, no clock."""

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from channelhash.errors import InputError
from channelhash.lab.capacity.plans import Job
from channelhash.utils.seeds import generator

Policy = Literal["no retry", "retry", "speculative"]
POLICIES: tuple[Policy, ...] = ("no retry", "retry", "speculative")
# Deaths in the time of one task, beyond which hardly one in twenty attempts succeeds.
_MOST_DEATHS = 3


@dataclass(frozen=True)
class Outcome:
    """How one simulated job ended.

    Attributes:
        seconds: until the last task was done or lost.
        lost: tasks without a result.
        wasted: share of the workers' working time that was not used.
    """

    seconds: float
    lost: int
    wasted: float


def check(job: Job) -> None:
    """Refuse a job that hardly ends.

    Raises:
        InputError: a task on a slow worker hardly ever ends before its worker dies.

    >>> check(Job(task_seconds=60))
    """
    expected = job.failures_per_hour * job.task_seconds * job.slow_factor / 3600
    if expected > _MOST_DEATHS:
        raise InputError(
            f"a task on a slow worker lasts {job.task_seconds * job.slow_factor:g} s, in which a worker dies "
            f"{expected:.1f} times; cut the job into shorter tasks"
        )


def simulate(job: Job, policy: Policy, seed: int, runs: int = 200) -> list[Outcome]:
    """Simulate independent runs; the same workers are slow in the same run of every policy.

    >>> calm = Job(tasks=10, workers=4, task_seconds=60, spread=0, failures_per_hour=0, slow_share=0)
    >>> simulate(calm, "retry", seed=0, runs=1)
    [Outcome(seconds=180.0, lost=0, wasted=0.0)]
    """
    return [_one_run(job, policy, generator(seed, "job", run)) for run in range(runs)]


def _one_run(job: Job, policy: Policy, random: np.random.Generator) -> Outcome:
    """Simulate one run.

    No retry: the task of a dead worker is lost. Retry: it is done again. Speculative: besides, an idle worker starts a
    second copy of the task that has run longest, and the first copy to end counts.
    """
    pace = np.where(random.random(job.workers) < job.slow_share, job.slow_factor, 1.0) * job.task_seconds
    waiting, idle = deque(range(job.tasks)), deque(range(job.workers))
    running: dict[int, tuple[int, float, int]] = {}  # worker -> (task, since, number of the attempt)
    copies = [0] * job.tasks
    events: list[tuple[float, int, str, int]] = []  # (when, attempt, "done" | "dead" | "back", worker)
    attempts = count()
    open_tasks, lost, clock, worked, used = job.tasks, 0, 0.0, 0.0, 0.0

    def choose() -> int | None:
        if waiting:
            return waiting.popleft()
        alone = [(since, task) for task, since, _ in running.values() if copies[task] == 1]
        return min(alone)[1] if policy == "speculative" and alone else None

    while open_tasks:
        while idle and (task := choose()) is not None:
            worker, attempt = idle.popleft(), next(attempts)
            needs = pace[worker] * np.exp(job.spread * random.standard_normal())
            life = random.exponential(3600 / job.failures_per_hour) if job.failures_per_hour else np.inf
            ends, what = (needs, "done") if needs <= life else (life, "dead")
            running[worker] = (task, clock, attempt)
            copies[task] += 1
            heapq.heappush(events, (clock + float(ends), attempt, what, worker))
        clock, attempt, what, worker = heapq.heappop(events)
        if what == "back":
            idle.append(worker)
            continue
        if worker not in running or running[worker][2] != attempt:
            continue  # another copy was first, and this one was stopped
        task, since, _ = running.pop(worker)
        worked += clock - since
        copies[task] -= 1
        if what == "done":
            used += clock - since
            idle.append(worker)
            for twin in [twin for twin, (copied, _, _) in running.items() if copied == task]:
                worked += clock - running.pop(twin)[1]
                copies[task] -= 1
                idle.append(twin)
            open_tasks -= 1
            continue
        heapq.heappush(events, (clock + job.restart_seconds, next(attempts), "back", worker))
        if policy == "no retry":
            lost, open_tasks = lost + 1, open_tasks - 1
        elif copies[task] == 0:
            waiting.appendleft(task)
    return Outcome(clock, lost, 1 - used / worked if worked else 0.0)


def summary(outcomes: list[Outcome]) -> dict[str, float]:
    """Summarise runs: ``{"p50", "p95", "max": seconds, "lost": mean number of tasks, "wasted": mean share}``.

    >>> summary([Outcome(60.0, 0, 0.0), Outcome(120.0, 2, 0.5)])
    {'p50': 90.0, 'p95': 117.0, 'max': 120.0, 'lost': 1.0, 'wasted': 0.25}
    """
    seconds = np.array([outcome.seconds for outcome in outcomes])
    return {
        "p50": float(np.quantile(seconds, 0.5)),
        "p95": float(np.quantile(seconds, 0.95)),
        "max": float(seconds.max()),
        "lost": float(np.mean([outcome.lost for outcome in outcomes])),
        "wasted": float(np.mean([outcome.wasted for outcome in outcomes])),
    }
