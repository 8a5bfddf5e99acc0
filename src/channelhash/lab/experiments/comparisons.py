"""Whether methods differ, over queries, over seeds and, by their ranks, over collections: tests and
their tables.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import Cell, Table, signed
from channelhash.metrics.plots import arrow
from channelhash.metrics.report import PairedTest, paired_test
from channelhash.utils.seeds import generator


class SeedTest(NamedTuple):
    """Mean difference over common seeds, its 95 % interval and two-sided p-value, and the number of
    seeds.
    """

    difference: float
    lower: float
    upper: float
    p_value: float
    seeds: int

    @classmethod
    def of(cls, differences: ArrayLike, ratio: float = 0.0) -> Self:
        """Run the paired t-test: mean d of n differences, d ± t_{n−1} · s · √(1/n + ratio), s their
        sample deviation.

        Args:
            differences: one a seed.
            ratio: `split_ratio` of their runs.

        >>> [round(value, 3) for value in SeedTest.of([0.25, 0.5, 0.75])]
        [0.5, -0.121, 1.121, 0.074, 3]
        >>> [round(value, 3) for value in SeedTest.of([0.25, 0.5, 0.75], ratio=0.2)]
        [0.5, -0.286, 1.286, 0.111, 3]
        """
        values = np.asarray(differences, dtype=np.float64)
        if len(values) < 2:
            raise ValueError(
                f"{len(values)} differences; a test over seeds needs two or more common seeds"
            )
        mean = values.mean()
        freedom = len(values) - 1
        error = values.std(ddof=1) * np.sqrt(1 / len(values) + ratio)
        reach = stats.t.ppf(0.975, freedom) * error
        # Equal differences leave no doubt, whichever way.
        p_value = 2 * stats.t.sf(abs(mean) / error, freedom) if error else 0.0 if mean else 1.0
        return cls(
            float(mean), float(mean - reach), float(mean + reach), float(p_value), len(values)
        )


def split_ratio(results: Sequence[Result]) -> float:
    """Return n_test / n_train of runs whose seeds draw a split each; 0 where they share one.

    Splits of one collection have rows in common, so their scores vary together and s²/n is less
    than the variance of the mean; it becomes s² · (1/n + n_test / n_train) (Nadeau and Bengio
    2003). n_test is the number of test queries, which scores are means over. n_train is that of T,
    not of R or of all other rows: nothing else is learned from, and the larger ratio is the more
    careful one.
    """
    data = [run.settings["data"] for run in results]
    if (
        len({each.get("seed") for each in data}) < 2
        or data[0].get("splits")
        or data[0].get("split_method") == "given"
    ):
        return 0.0
    return float(np.mean([_test_share(run) for run in results]))


def _test_share(run: Result) -> float:
    """Return n_test / n_train of a run's split: settings may be numbers a label, or a default."""
    file = run.folder / "splits.json"
    if file.exists() or "split_counts" in run.measured:
        counts = run.measure(
            "split_counts", lambda: json.loads(file.read_text(encoding="utf-8"))["counts"]
        )
        return float(counts["query"] / counts["train"])
    data = run.settings["data"]  # published scores, whose settings are numbers of rows
    return float(data["queries"] / data["train"])


@dataclass
class _Comparison:
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


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm (1979): the chance of one false claim or more among all is at most
    the level.

    The i-th smallest of m p-values (i from 0) becomes max over the smaller ones of min(1, (m − i) ·
    p). SciPy corrects the rate of false discoveries (`false_discovery_control`), which is another
    promise.

    >>> holm([0.04, 0.01])
    [0.04, 0.02]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def _compare_methods(results: Sequence[Result], resamples: int = 10_000) -> list[_Comparison]:
    """Compare methods by tie-aware mAP over R after the last epoch, for each task and code length;
    p-values are corrected over all of it (`holm`).

    Over queries, the AP of each query is first averaged over the common seeds, then tested once:
    one test a seed would count the same queries several times.

    Costs O(queries · resamples) time for each pair, task and code length.
    """
    runs: dict[tuple[str, int, str], dict[int, Result]] = {}
    for result in results:
        for task in result.tasks():
            runs.setdefault((result.method, result.n_bits, task), {})[result.seed] = result
    tasks = dict.fromkeys(task for _, _, task in runs)
    lengths = sorted({n_bits for _, n_bits, _ in runs})
    methods = dict.fromkeys(result.method for result in results)
    tests: list[_Comparison] = []
    for task, n_bits, (second, first) in product(tasks, lengths, combinations(methods, 2)):
        of_first, of_second = (runs.get((method, n_bits, task)) for method in (first, second))
        if of_first and of_second:
            tests.append(
                _Comparison(
                    first, second, n_bits, task, *_compare(of_first, of_second, task, resamples)
                )
            )
    for over in ("queries", "seeds"):
        counted = [test for test in tests if getattr(test, over)]
        for test, p_value in zip(
            counted, holm([getattr(test, over).p_value for test in counted]), strict=True
        ):
            setattr(test, f"{over}_p", p_value)
    return tests


def _compare(
    first: Mapping[int, Result], second: Mapping[int, Result], task: str, resamples: int
) -> tuple[PairedTest | None, SeedTest | None]:
    """Test two methods over the queries' mean AP over seeds, and over seeds, as far as they have
    seeds in common.
    """
    if not (seeds := sorted(first.keys() & second.keys())):
        return None, None
    sides = [[runs[seed] for seed in seeds] for runs in (first, second)]
    key = ("last", "test", task)
    for run in (*sides[0], *sides[1]):
        if key not in run.query_ap:
            raise InputError(
                f"{run.name} has no AP of single queries ({', '.join(key)}); run it again"
            )
        if not np.array_equal(np.isnan(run.query_ap[key]), np.isnan(sides[0][0].query_ap[key])):
            raise InputError(
                f"{run.name} and {sides[0][0].name} were not evaluated on the same queries "
                f"({task}); compare runs with the same data set and partition"
            )
    means = [np.mean([run.query_ap[key] for run in side], axis=0) for side in sides]
    scores = [[run.score(task) for run in side] for side in sides]
    over_seeds = (
        SeedTest.of(np.subtract(scores[0], scores[1]), split_ratio(sides[0]))
        if len(seeds) > 1
        else None
    )
    return paired_test(means[0], means[1], resamples), over_seeds


#: A corrected p-value up to this counts as a difference.
LEVEL = 0.05


def _significance_table(comparisons: Sequence[_Comparison]) -> Table:
    """Tabulate comparisons of `_compare_methods`, a block a task; p-values up to `LEVEL` in
    bold.
    """
    rows = []
    for test in comparisons:
        queries = test.queries
        seeds = test.seeds
        none = Cell("–")
        over_queries = (Cell("no common seed"), none, none)
        over_seeds = (none, none, none)
        if queries:
            difference = Cell(signed(100 * queries.difference))
            over_queries = difference, _p_value(test.queries_p), Cell(str(queries.queries))
        if seeds:
            interval = Cell(f"{signed(100 * seeds.lower)} … {signed(100 * seeds.upper)}")
            over_seeds = interval, _p_value(test.seeds_p), Cell(str(seeds.seeds))
        methods = Cell(f"{test.first} against {test.second}, k = {test.n_bits}")
        rows.append((Cell(arrow(test.task)), methods, *over_queries, *over_seeds))
    return Table(
        "significance-test-last",
        "Differences of tie-aware mAP: test queries, retrieval set R, last epoch",
        (
            "Task",
            "Methods",
            "Difference",
            "p (queries)",
            "Queries",
            "95 % interval (seeds)",
            "p (seeds)",
            "Seeds",
        ),
        tuple(rows),
        "First method − second, in percentage points, over their common seeds. Over queries: "
        "sign-flip permutation test of each query's AP, averaged over seeds; it speaks of these "
        "trained models on other queries. Over seeds: paired t-test and t interval, corrected "
        "where each seed draws a split (Nadeau and Bengio 2003); it speaks of training again. p "
        f"with Holm's correction over all comparisons made together, bold up to {LEVEL}; intervals "
        "are not corrected. A difference holds where both p are bold.",
    )


def significance_tables(results: Sequence[Result]) -> list[Table]:
    """Compare methods and return the table; none of too few finished runs, or of runs without AP of
    single queries.
    """
    if not any(
        ("last", "test", task) in result.query_ap for result in results for task in result.tasks()
    ):
        return []
    comparisons = _compare_methods(results)
    return [_significance_table(comparisons)] if comparisons else []


def _p_value(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(print_p(value), value <= LEVEL)


def print_p(value: float) -> str:
    """Print a p-value.

    >>> print_p(0.0001), print_p(0.05)
    ('< 0.001', '0.050')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _mean_ranks(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the mean rank of each method over collections, 1 for the best; equal scores share
    their ranks.

    Args:
        scores: ``(collections, methods)``, higher is better.

    >>> _mean_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1]]).tolist()
    [1.5, 1.75, 2.75]
    """
    return np.asarray(stats.rankdata(-np.asarray(scores, dtype=np.float64), axis=1).mean(axis=0))


#: Permutations of Friedman's test: all of them where there are no more, else so many draws, whose
#: smallest p-value is 0.00001.
_PERMUTATIONS = 99_999


def _friedman_p(scores: ArrayLike) -> float | None:
    """Return the p-value of Friedman's test that all methods are alike; None of fewer than two
    methods or collections, where there is nothing to test.

    The usual forms (χ², F) hold for many collections. Here the ranks of each collection are
    permuted, as they could be if all methods were alike: p is the share of permutations whose mean
    ranks lie as far apart. Ties keep their ranks.

    >>> _friedman_p([[3, 2, 1], [3, 1, 2], [3, 2, 1], [2, 3, 1]]), _friedman_p([[3, 2, 1]])
    (0.125, None)
    """
    values = np.asarray(scores, dtype=np.float64)
    if min(values.shape) < 2:
        return None
    ranks = 2 * stats.rankdata(values, axis=1)  # twice, for whole numbers

    def spread(*methods: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        sums = np.stack([method.sum(axis=axis) for method in methods])
        return np.asarray(np.square(sums).sum(axis=0))

    test = stats.permutation_test(
        tuple(ranks.T),
        spread,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_PERMUTATIONS,
        batch=1000,
        alternative="greater",
        random_state=generator(0, "Friedman's test"),
    )
    return float(test.pvalue)


def _critical_difference(methods: int, collections: int) -> float:
    """Return Nemenyi's critical difference of mean ranks, q_α √(k (k + 1) / 6 N) (Demšar 2006, §
    3.2.2).

    Two of k methods whose mean ranks over N collections are closer are not told apart.

    >>> round(_critical_difference(4, 14), 2)
    1.25
    """
    q = stats.studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * collections)))


def ranks_table(scores: Mapping[tuple[str, str], Mapping[str, float]], form: str) -> Table:
    """Tabulate losses by their mean rank over collections in the first view, the raw scores beside
    it.

    Args:
        scores: collection and view -> loss -> score in [0, 1].
        form: of the losses, in words.
    """
    collections = list(dict.fromkeys(collection for collection, _ in scores))
    views = list(dict.fromkeys(view for _, view in scores))
    every = list(dict.fromkeys(loss for each in scores.values() for loss in each))
    losses = [loss for loss in every if all(_is_scored(loss, each) for each in scores.values())]
    columns = {place: np.array([each[loss] for loss in losses]) for place, each in scores.items()}
    by_view = {
        view: np.stack([columns[collection, view] for collection in collections]) for view in views
    }
    ranks = {view: _mean_ranks(each) for view, each in by_view.items()}
    rows = []
    for row in np.argsort(ranks[views[0]], kind="stable"):
        cells = [
            Cell(f"{ranks[view][row]:.1f}", ranks[view][row] == ranks[view].min()) for view in views
        ]
        cells += [
            Cell(f"{100 * each[row]:.2f}", each[row] == each.max()) for each in columns.values()
        ]
        rows.append((Cell(losses[row]), *cells))
    missing = ", ".join(loss for loss in every if loss not in losses)
    return Table(
        f"ranks-{form.replace(' ', '-')}",
        f"Losses {form}, by their mean rank over {len(collections)} collections",
        (
            "Loss",
            *(f"Mean rank, {view}" for view in views),
            *(f"{name}, {view}" for name, view in columns),
        ),
        tuple(rows),
        "Ranks by the mean tie-aware mAP of all tasks, code lengths and seeds, which stands beside "
        f"them in percent. {_rank_tests(by_view)}"
        + (f" Not finished everywhere: {missing}." if missing else ""),
        labels=1,
    )


def _is_scored(loss: str, scores: Mapping[str, float]) -> bool:
    return bool(np.isfinite(scores.get(loss, np.nan)))


def _rank_tests(by_view: Mapping[str, NDArray[np.float64]]) -> str:
    """Say which mean ranks differ; ``by_view`` holds the scores ``(collections, losses)`` of each
    view.
    """
    p_values = {view: _friedman_p(scores) for view, scores in by_view.items()}
    tests = [f"{print_p(p)} on {view}" for view, p in p_values.items() if p is not None]
    collections, losses = next(iter(by_view.values())).shape
    if not tests:
        return (
            f"No test: it takes two losses and two collections, and there are {losses} and "
            f"{collections}."
        )
    apart = _critical_difference(losses, collections)
    return (
        f"Friedman's test that all losses are alike, by permutations: p = {', '.join(tests)}. Mean "
        f"ranks that differ by less than {apart:.1f} are not told apart (Nemenyi, 5 %), and none "
        f"is where p is above {LEVEL}."
    )
