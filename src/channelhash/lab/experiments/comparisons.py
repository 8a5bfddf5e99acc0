"""Whether methods differ, over queries and over seeds, and how often each is best: tests and their tables."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from channelhash.errors import InputError
from channelhash.lab.experiments.rendering import Cell, Table
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import CHECKPOINT_NAMES, VIEW_NAMES, outcome, spread, task_names
from channelhash.metrics.significance import PairedTest, paired_test
from channelhash.utils.plotting import arrow


class SeedTest(NamedTuple):
    """Mean difference over common seeds, its 95 % interval and two-sided p-value, and the number of seeds."""

    difference: float
    lower: float
    upper: float
    p_value: float
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """Two methods in one cell: mean of ``first`` − ``second``, scores in [0, 1].

    Attributes:
        first: a method.
        second: the method that it is compared with.
        n_bits: code length.
        task: retrieval task.
        queries: test over queries, None without a common seed.
        seeds: test over seeds, None with fewer than two common ones.
        queries_p: p-value over queries, corrected for all comparisons made together.
        seeds_p: p-value over seeds, likewise.
    """

    first: str
    second: str
    n_bits: int
    task: str
    queries: PairedTest | None
    seeds: SeedTest | None
    queries_p: float | None = None
    seeds_p: float | None = None


class _View(NamedTuple):
    """Where a score stands in a result."""

    task: str
    view: str
    checkpoint: str


def seed_test(differences: ArrayLike) -> SeedTest:
    """Run the paired t-test: mean d of n differences, d ± t_{n−1} · s/√n with their sample deviation s.

    Args:
        differences: first method − second, one a seed.

    Raises:
        ValueError: fewer than two seeds.

    >>> [round(value, 3) for value in seed_test([0.25, 0.5, 0.75])]
    [0.5, -0.121, 1.121, 0.074, 3]
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"{len(values)} differences; a test over seeds needs two or more common seeds")
    with warnings.catch_warnings(action="ignore"):  # equal differences leave no doubt, whichever way
        test = stats.ttest_1samp(values, 0)
        lower, upper = test.confidence_interval(0.95)
    p_value = float(test.pvalue) if values.any() else 1.0
    return SeedTest(float(values.mean()), float(lower), float(upper), p_value, len(values))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm (1979): the chance of one false claim or more among all is at most the level.

    The i-th smallest of m p-values (i from 0) becomes max over the smaller ones of min(1, (m − i) · p). SciPy corrects
    the rate of false discoveries (`false_discovery_control`), which is another promise.

    >>> holm([0.04, 0.01])
    [0.04, 0.02]
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
    """Compare methods by tie-aware mAP, for each task and code length; p-values are corrected over all of it (`holm`).

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
    if pairs is None:
        pairs = [(first, second) for i, second in enumerate(methods) for first in methods[i + 1 :]]
    for name in {name for pair in pairs for name in pair} - set(methods):
        raise InputError(f"no method {name!r} in this grid; it has {', '.join(methods)}")
    tests: list[Comparison] = []
    for task in dict.fromkeys(task for result in finished for task in result.tasks(view, checkpoint)):
        place = _View(task, view, checkpoint)
        for n_bits in sorted({result.n_bits for result in finished}):
            runs = {method: _by_seed(finished, method, n_bits, place) for pair in pairs for method in pair}
            for first, second in pairs:
                if runs[first] and runs[second]:
                    both = _compare(runs[first], runs[second], place, resamples)
                    tests.append(Comparison(first, second, n_bits, task, *both))
    query_ps = iter(holm([test.queries.p_value for test in tests if test.queries]))
    seed_ps = iter(holm([test.seeds.p_value for test in tests if test.seeds]))
    return [
        replace(
            test,
            queries_p=next(query_ps) if test.queries else None,
            seeds_p=next(seed_ps) if test.seeds else None,
        )
        for test in tests
    ]


def _by_seed(results: Sequence[Result], method: str, n_bits: int, place: _View) -> dict[int, Result]:
    runs: dict[int, Result] = {}
    for result in results:
        if (result.method, result.n_bits) == (method, n_bits) and place.task in result.tasks(*place[1:]):
            if result.seed in runs:
                raise InputError(f"{result.name} and {runs[result.seed].name} are the same method, length and seed")
            runs[result.seed] = result
    return runs


def _compare(
    first: Mapping[int, Result], second: Mapping[int, Result], place: _View, resamples: int
) -> tuple[PairedTest | None, SeedTest | None]:
    """Test two methods over queries and over seeds, as far as they have seeds in common."""
    seeds = sorted(first.keys() & second.keys())
    sides = [[runs[seed] for seed in seeds] for runs in (first, second)]
    scores = [[run.score(place.task, view=place.view, checkpoint=place.checkpoint) for run in side] for side in sides]
    over_queries = _test_queries(sides, place, resamples) if seeds else None
    return over_queries, seed_test(np.subtract(scores[0], scores[1])) if len(seeds) > 1 else None


def _test_queries(sides: Sequence[Sequence[Result]], place: _View, resamples: int) -> PairedTest:
    """Run `paired_test` on the queries' mean AP over seeds; every run must have a score for the same queries."""
    task, view, checkpoint = place
    first, key = sides[0][0], (checkpoint, view, task)
    for result in (run for side in sides for run in side):
        if key not in result.query_ap:
            raise InputError(f"{result.name} has no AP of single queries ({task}, {view}, {checkpoint}); run it again")
        if not np.array_equal(np.isnan(result.query_ap[key]), np.isnan(first.query_ap[key])):
            raise InputError(
                f"{result.name} and {first.name} were not evaluated on the same queries ({task}); "
                "compare runs with the same data set and partition"
            )
    means = [np.mean([run.query_ap[key] for run in side], axis=0) for side in sides]
    return paired_test(means[0], means[1], resamples)


class Wins(NamedTuple):
    """Numbers of cells in which a method is strictly best, level with the best of the others, and behind it.

    >>> Wins(best=3, tied=1, behind=2).cells
    6
    """

    best: int
    tied: int
    behind: int

    @property
    def cells(self) -> int:
        """Number of all cells."""
        return sum(self)


def count_wins(cells: Sequence[Mapping[str, float]], method: str) -> Wins:
    """Count ``method`` against the best other one, cell by cell.

    Args:
        cells: method -> mean in percent; compared to two decimals, as tables print it.
        method: counted where a cell has it and at least one other.

    >>> count_wins([{"a": 1.0, "b": 2.0}, {"a": 2.001, "b": 2.0}], "b")
    Wins(best=1, tied=1, behind=0)
    """
    counts = {1: 0, 0: 0, -1: 0}
    for cell in cells:
        rivals = [round(mean, 2) for name, mean in cell.items() if name != method]
        if method in cell and rivals:
            mean, best = round(cell[method], 2), max(rivals)
            counts[(mean > best) - (mean < best)] += 1
    return Wins(counts[1], counts[0], counts[-1])


#: A corrected p-value up to this counts as a difference.
LEVEL = 0.05
_WHERE = f"{VIEW_NAMES['test']}, {CHECKPOINT_NAMES['last']}"


def significance_table(comparisons: Sequence[Comparison]) -> Table:
    """Tabulate comparisons of `compare_methods`, a block a task; p-values up to `LEVEL` in bold."""
    rows = []
    for comparison in comparisons:
        queries, seeds = comparison.queries, comparison.seeds
        rows.append(
            (
                Cell(arrow(comparison.task)),
                Cell(f"{comparison.first} against {comparison.second}, k = {comparison.n_bits}"),
                Cell(_points(queries.difference) if queries else "no common seed"),
                _p_value(comparison.queries_p),
                Cell(str(queries.queries) if queries else "–"),
                Cell(f"{_points(seeds.lower)} … {_points(seeds.upper)}" if seeds else "–"),
                _p_value(comparison.seeds_p),
                Cell(str(seeds.seeds) if seeds else "–"),
            )
        )
    return Table(
        "significance-test-last",
        f"Differences of tie-aware mAP: {_WHERE}",
        ("Task", "Methods", "Difference", "p (queries)", "Queries", "95 % interval (seeds)", "p (seeds)", "Seeds"),
        tuple(rows),
        "First method − second, in percentage points, over their common seeds. Over queries: sign-flip permutation "
        "test of each query's AP, averaged over seeds; it speaks of these trained models on other queries. Over seeds: "
        "paired t-test and t interval; it speaks of training again. p with Holm's correction over all comparisons made "
        f"together, bold up to {LEVEL}; intervals are not corrected. A difference holds where both p are bold.",
    )


def significance_tables(results: Sequence[Result], pairs: Sequence[tuple[str, str]] | None = None) -> list[Table]:
    """Compare methods and return the table; none of too few finished runs, or of runs without AP of single queries.

    Arguments as `compare_methods`.
    """
    finished = (result for result in results if result.status == "finished")
    if not any(("last", "test", task) in result.query_ap for result in finished for task in result.tasks()):
        return []
    comparisons = compare_methods(results, pairs)
    return [significance_table(comparisons)] if comparisons else []


def wins_table(results: Sequence[Result]) -> Table:
    """Count the cells (task × code length × model) in which each method is strictly best, tied, and behind.

    A cell in which a run failed or is missing is left out for all methods.

    Raises:
        InputError: see `results.outcome`.
    """
    started = [result for result in results if result.settings]
    methods = list(dict.fromkeys(result.method for result in started))
    cells, left_out = [], 0
    for place in dict.fromkeys((result.settings["model"]["name"], result.n_bits) for result in started):
        for task in task_names(started, "test", "last"):
            runs: dict[str, list[Result]] = {}
            for run in started:
                if (run.settings["model"]["name"], run.n_bits) == place:
                    runs.setdefault(run.method, []).append(run)
            outcomes = {name: outcome(group, task) for name, group in runs.items()}
            if any(cell.absent for cell in outcomes.values()):
                left_out += 1
            else:
                cells.append({method: spread(cell.scores).mean for method, cell in outcomes.items()})
    rows = []
    for method in methods:
        wins = count_wins(cells, method)
        rows.append((Cell(method), *(Cell(str(number)) for number in (*wins, wins.cells))))
    note = f" Cells left out because a run there has no figure: {left_out}." if left_out else ""
    return Table(
        "wins-test-last",
        f"Cells won by tie-aware mAP: {_WHERE}",
        ("Method", "Strictly best", "Tied", "Behind", "Cells"),
        tuple(rows),
        "A cell is a task at a code length; means over seeds, compared to two decimals as printed. Tied: level with "
        f"the best of the others. A count is no test: cells share queries, labels and seeds.{note}",
        labels=1,
    )


def _points(score: float) -> str:
    return f"{100 * score:+.2f}".replace("-", "−")


def _p_value(value: float | None) -> Cell:
    if value is None:
        return Cell("–")
    return Cell("< 0.001" if value < 0.001 else f"{value:.3f}", value <= LEVEL)
