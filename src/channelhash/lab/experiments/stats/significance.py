"""Whether two methods differ: over queries, and over seeds.

The two questions are not the same, and a claim wants both answers. Over queries: would these trained models differ on
other queries of the same kind? There are thousands, so small differences show. Over seeds: would the methods differ if
they were trained again? There are three or five, so only large and steady differences show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.metrics.significance import PairedTest, paired_test


class SeedTest(NamedTuple):
    """Mean difference over common seeds, its confidence interval and two-sided p-value, and the number of seeds."""

    difference: float
    lower: float
    upper: float
    p_value: float
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """Two methods in one cell: mean of ``first`` − ``second``, shares in [0, 1].

    Attributes:
        first: a method.
        second: the method that it is compared with.
        n_bits: code length.
        task: retrieval task.
        queries: test over queries, None without a common seed.
        queries_p: its p-value, corrected for all comparisons made together.
        seeds: test over seeds, None with fewer than two common ones.
        seeds_p: its p-value, likewise.
    """

    first: str
    second: str
    n_bits: int
    task: str
    queries: PairedTest | None
    queries_p: float | None
    seeds: SeedTest | None
    seeds_p: float | None


def seed_test(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> SeedTest:
    """Paired t-test: mean difference d over n seeds, d ± t_{n−1} · s/√n with s the sample deviation of differences.

    Args:
        first: one figure a seed.
        second: of the other method, same seeds in the same order.
        confidence: of the interval.

    Raises:
        ValueError: fewer than two seeds, or different numbers of them.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"{len(first)} and {len(second)} figures; a test over seeds needs two or more common seeds")
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    n, mean = len(differences), float(differences.mean())
    error = float(differences.std(ddof=1) / np.sqrt(n))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * error
    # Equal differences leave no doubt, whichever way: 0 / 0 is no difference at all.
    p_value = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)
    return SeedTest(mean, mean - half, mean + half, p_value, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979): the chance of one false claim or more among all is at most the level.

    The i-th smallest of m p-values (i from 0) becomes max over the smaller ones of min(1, (m − i) · p).
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def compare_methods(
    results: Sequence[Result],
    pairs: Sequence[tuple[str, str]] | None = None,
    view: str = "test",
    checkpoint: str = "last",
    resamples: int = 10_000,
) -> list[Comparison]:
    """Compare methods by tie-aware mAP, for each task and code length; p-values corrected over all of it (`holm`).

    Over queries, the AP of each query is first averaged over the common seeds, then tested once: one test a seed would
    count the same queries several times.

    Args:
        results: of one grid, on one data set with one partition.
        pairs: which methods; None takes every pair, in the grid's order.
        view: which retrieval set.
        checkpoint: which weights.
        resamples: see `metrics.paired_test`; with m comparisons no corrected p-value is below m / (resamples + 1).

    Raises:
        InputError: a pair names an unknown method, or the runs were not evaluated on the same queries.

    Costs O(queries · resamples) time for each pair, task and code length.
    """
    finished = [
        result for result in results if result.status == "finished" and view in result.epochs.get(checkpoint, {})
    ]
    methods = list(dict.fromkeys(result.method for result in results))
    chosen = (
        [(first, second) for i, second in enumerate(methods) for first in methods[i + 1 :]] if pairs is None else pairs
    )
    for name in {name for pair in chosen for name in pair} - set(methods):
        raise InputError(f"no method {name!r} in this grid; it has {', '.join(methods)}")
    tests: list[tuple[str, str, int, str, PairedTest | None, SeedTest | None]] = []
    for task in dict.fromkeys(task for result in finished for task in result.tasks(view, checkpoint)):
        for n_bits in sorted({result.n_bits for result in finished}):
            for first, second in chosen:
                runs = [_by_seed(finished, method, n_bits, task, view, checkpoint) for method in (first, second)]
                common = sorted(runs[0].keys() & runs[1].keys())
                if not all(runs):
                    continue
                sides = [[side[seed] for seed in common] for side in runs]
                query = _over_queries(sides, task, view, checkpoint, resamples) if common else None
                one, other = ([run.score(task, view=view, checkpoint=checkpoint) for run in side] for side in sides)
                seeds = seed_test(one, other) if len(common) > 1 else None
                tests.append((first, second, n_bits, task, query, seeds))
    query_ps = iter(holm([test[4].p_value for test in tests if test[4]]))
    seed_ps = iter(holm([test[5].p_value for test in tests if test[5]]))
    return [
        Comparison(
            first,
            second,
            n_bits,
            task,
            query,
            next(query_ps) if query else None,
            seeds,
            next(seed_ps) if seeds else None,
        )
        for first, second, n_bits, task, query, seeds in tests
    ]


def _by_seed(
    results: Sequence[Result], method: str, n_bits: int, task: str, view: str, checkpoint: str
) -> dict[int, Result]:
    found: dict[int, Result] = {}
    for result in results:
        if (result.method, result.n_bits) == (method, n_bits) and task in result.tasks(view, checkpoint):
            if result.seed in found:
                raise InputError(f"{result.name} and {found[result.seed].name} are the same method, length and seed")
            found[result.seed] = result
    return found


def _over_queries(
    sides: Sequence[Sequence[Result]], task: str, view: str, checkpoint: str, resamples: int
) -> PairedTest:
    """`paired_test` of the queries' mean AP over seeds; every run must have a figure for the same queries."""
    first = sides[0][0]
    key = checkpoint, view, task
    for result in (run for side in sides for run in side):
        if key not in result.query_ap:
            raise InputError(f"{result.name} has no AP of single queries ({task}, {view}, {checkpoint}); run it again")
        if not np.array_equal(np.isnan(result.query_ap[key]), np.isnan(first.query_ap[key])):
            raise InputError(
                f"{result.name} and {first.name} were not evaluated on the same queries ({task}); "
                "compare runs with the same data set and partition"
            )
    one, other = (np.mean([run.query_ap[key] for run in side], axis=0) for side in sides)
    return paired_test(one, other, resamples)
