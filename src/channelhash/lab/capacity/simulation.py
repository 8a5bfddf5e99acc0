"""A job of many tasks on workers that die and workers that are slow, under three policies. Seeded, no clock."""

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from channelhash.errors import InputError
from channelhash.utils.seeds import generator

Policy = Literal["no retry", "retry", "speculative"]
POLICIES: tuple[Policy, ...] = ("no retry", "retry", "speculative")
# Deaths in the time of one task, beyond which hardly one in twenty attempts succeeds.
_MOST_DEATHS = 3


@dataclass(frozen=True)
class Job:
    """Attributes:
    tasks: shards of the job.
    workers: each does one task at a time.
    task_seconds: median time of a task on a worker that is not slow.
    spread: standard deviation of the logarithm of that time, drawn anew for each attempt.
    failures_per_hour: of a worker while it works; the task that it was at is lost.
    restart_seconds: until a dead worker is back.
    slow_share: chance of each worker to be slow for the whole job.
    slow_factor: how much longer everything takes on a slow one.
    """

    tasks: int = 1000
    workers: int = 64
    task_seconds: float = 60
    spread: float = 0.3
    failures_per_hour: float = 0.1
    restart_seconds: float = 30
    slow_share: float = 0.05
    slow_factor: float = 5


@dataclass(frozen=True)
class Outcome:
    """Attributes:
    seconds: until the last task was done or lost.
    lost: tasks without a result.
    wasted: share of the workers' working time that went into what was not used.
    """

    seconds: float
    lost: int
    wasted: float


def check(job: Job) -> None:
    """Raises:
    InputError: a task on a slow worker hardly ever ends before its worker dies.
    """
    expected = job.failures_per_hour * job.task_seconds * job.slow_factor / 3600
    if expected > _MOST_DEATHS:
        raise InputError(
            f"a task on a slow worker lasts {job.task_seconds * job.slow_factor:g} s, in which a worker dies "
            f"{expected:.1f} times; cut the job into shorter tasks"
        )


def simulate(job: Job, policy: Policy, seed: int, runs: int = 200) -> list[Outcome]:
    """Independent runs; the same workers are slow in the same run of every policy."""
    return [_one_run(job, policy, generator(seed, "job", run)) for run in range(runs)]


def _one_run(job: Job, policy: Policy, random: np.random.Generator) -> Outcome:
    """No retry: the task of a dead worker is lost. Retry: it is done again. Speculative: besides, a worker that has
    nothing to do starts a second copy of the task that has been under way longest; the first copy to end counts."""
    pace = np.where(random.random(job.workers) < job.slow_share, job.slow_factor, 1.0) * job.task_seconds
    waiting, idle = deque(range(job.tasks)), deque(range(job.workers))
    running: dict[int, tuple[int, float, int]] = {}  # worker -> (task, since, number of the attempt)
    copies = [0] * job.tasks
    events: list[tuple[float, int, str, int]] = []  # (when, attempt, "done" | "dead" | "back", worker)
    attempts = count()
    open_tasks, lost, now, worked, used = job.tasks, 0, 0.0, 0.0, 0.0

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
            running[worker] = (task, now, attempt)
            copies[task] += 1
            heapq.heappush(events, (now + float(ends), attempt, what, worker))
        now, attempt, what, worker = heapq.heappop(events)
        if what == "back":
            idle.append(worker)
            continue
        if worker not in running or running[worker][2] != attempt:
            continue  # another copy was first, and this one was stopped
        task, since, _ = running.pop(worker)
        worked += now - since
        copies[task] -= 1
        if what == "done":
            used += now - since
            idle.append(worker)
            for other in [other for other, (same, _, _) in running.items() if same == task]:
                worked += now - running.pop(other)[1]
                copies[task] -= 1
                idle.append(other)
            open_tasks -= 1
            continue
        heapq.heappush(events, (now + job.restart_seconds, next(attempts), "back", worker))
        if policy == "no retry":
            lost, open_tasks = lost + 1, open_tasks - 1
        elif copies[task] == 0:
            waiting.appendleft(task)
    return Outcome(now, lost, 1 - used / worked if worked else 0.0)


def summary(outcomes: list[Outcome]) -> dict[str, float]:
    """``{"p50", "p95", "max": seconds, "lost": mean number of tasks, "wasted": mean share}``; see `Outcome`."""
    seconds = np.array([outcome.seconds for outcome in outcomes])
    return {
        "p50": float(np.quantile(seconds, 0.5)),
        "p95": float(np.quantile(seconds, 0.95)),
        "max": float(seconds.max()),
        "lost": float(np.mean([outcome.lost for outcome in outcomes])),
        "wasted": float(np.mean([outcome.wasted for outcome in outcomes])),
    }
