"""Whether methods differ, over queries, over seeds and, by their ranks, over collections: tests and
their tables.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import signed
from channelhash.lab.experiments.text_tables import Cell, Row, Table
from channelhash.metrics.plots import arrow
from channelhash.metrics.resampling import PairedTest, paired_test
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
        if error:
            p_value = 2 * stats.t.sf(abs(mean) / error, freedom)
        else:  # equal differences leave no doubt, whichever way
            p_value = 0.0 if mean else 1.0
        return cls(
            float(mean), float(mean - reach), float(mean + reach), float(p_value), len(values)
        )


def common_seeds(cells: Iterable[Mapping[int, float]]) -> list[int]:
    """Return the seeds that all cells, maps of seeds to scores, have.

    >>> common_seeds([{0: 0.5, 1: 0.6}, {1: 0.7}])
    [1]
    """
    seeds = list(map(set, cells))
    return sorted(set.intersection(*seeds)) if seeds else []


def in_order(scores: Mapping[int, float], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the scores of these seeds."""
    return np.array([scores[seed] for seed in seeds])


def split_ratio(results: Sequence[Result]) -> float:
    """Return n_test / n_train of runs whose seeds draw a split each; 0 if they share one.

    Splits of one collection have rows in common, so their scores vary together and s²/n is less
    than the variance of the mean. It becomes s² · (1/n + n_test / n_train) (Nadeau and Bengio
    2003). n_test is the number of test queries, which scores are means over. n_train is that of T,
    not of R or of all other rows: nothing else is learned from, and the larger ratio is the more
    careful one.
    """
    seeds = {run.settings["data"].get("seed") for run in results}
    if len(seeds) < 2:
        return 0.0
    data = results[0].settings["data"]
    if data.get("splits") or data.get("split_method") == "given":
        return 0.0
    return float(np.mean([_test_share(run) for run in results]))


def _test_share(run: Result) -> float:
    """Return n_test / n_train of the rows that a run's split drew: settings may be numbers a label,
    or a default.
    """
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
    p). SciPy's `false_discovery_control` corrects the rate of false discoveries, which is another
    promise.

    >>> holm([0.04, 0.01])
    [0.04, 0.02]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


#: A corrected p-value up to this counts as a difference.
LEVEL = 0.05


def is_clear(tests: Mapping[str, SeedTest]) -> list[str]:
    """Return the names of the tests whose p-value, corrected over all of them, is up to `LEVEL`."""
    corrected = holm([test.p_value for test in tests.values()])
    return [name for name, p_value in zip(tests, corrected, strict=True) if p_value <= LEVEL]


def difference_rows(tests: Mapping[str, Mapping[str, SeedTest]]) -> tuple[Row, ...]:
    """Return the rows of a table of tests in points: a row a name, a column a collection, whose
    `is_clear` are bold.
    """
    columns = [_difference_cells(each) for each in tests.values()]
    rows = []
    for name in dict.fromkeys(chain.from_iterable(tests.values())):
        rows.append((Cell(name), *(column.get(name, Cell("–")) for column in columns)))
    return tuple(rows)


def _difference_cells(tests: Mapping[str, SeedTest]) -> dict[str, Cell]:
    clear = is_clear(tests)
    cells = {}
    for name, test in tests.items():
        text = f"{signed(test.difference)} [{signed(test.lower)}, {signed(test.upper)}]"
        cells[name] = Cell(text, name in clear)
    return cells


def _compare_methods(results: Sequence[Result], resamples: int = 10_000) -> list[_Comparison]:
    """Compare methods by tie-aware mAP over R after the last epoch, for each task and code length;
    p-values are corrected over all of it (`holm`).

    Over queries, the AP of each query is first averaged over the common seeds, then tested once:
    one test a seed would count the same queries several times.

    Costs O(queries · resamples) time for each pair, task and code length.
    """
    # (task, code length) -> method -> seed -> run
    cells: dict[tuple[str, int], dict[str, dict[int, Result]]] = {}
    tasks: dict[str, None] = {}
    for result in results:
        for task in result.tasks():
            tasks[task] = None
            methods = cells.setdefault((task, result.n_bits), {})
            methods.setdefault(result.method, {})[result.seed] = result
    order = dict.fromkeys(result.method for result in results)
    lengths = sorted({n_bits for _, n_bits in cells})
    tests: list[_Comparison] = []
    for task, n_bits in product(tasks, lengths):
        runs = cells.get((task, n_bits), {})
        methods_here = [method for method in order if method in runs]
        for second, first in combinations(methods_here, 2):
            found = _compare(runs[first], runs[second], task, resamples)
            tests.append(_Comparison(first, second, n_bits, task, *found))
    _correct_p_values(tests)
    return tests


def _correct_p_values(tests: Sequence[_Comparison]) -> None:
    """Correct the p-values of all tests over queries together, and of all over seeds."""
    for over in ("queries", "seeds"):
        made = [test for test in tests if getattr(test, over)]
        corrected = holm([getattr(test, over).p_value for test in made])
        for test, p_value in zip(made, corrected, strict=True):
            setattr(test, f"{over}_p", p_value)


def _compare(
    first: Mapping[int, Result], second: Mapping[int, Result], task: str, resamples: int
) -> tuple[PairedTest | None, SeedTest | None]:
    """Test two methods over queries and over seeds, if they have enough seeds in common. The AP of
    a query is its mean over these seeds.
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None, None
    runs = [first[seed] for seed in seeds]
    others = [second[seed] for seed in seeds]
    _check_queries([*runs, *others], task)
    over_queries = paired_test(_mean_ap(runs, task), _mean_ap(others, task), resamples)
    if len(seeds) < 2:
        return over_queries, None
    differences = [first[seed].score(task) - second[seed].score(task) for seed in seeds]
    return over_queries, SeedTest.of(differences, split_ratio(runs))


def _mean_ap(runs: Sequence[Result], task: str) -> NDArray[np.float64]:
    """Return the mean AP over runs of each query."""
    return np.asarray(np.mean([run.query_ap["last", "test", task] for run in runs], axis=0))


def _check_queries(runs: Sequence[Result], task: str) -> None:
    """Check that runs were evaluated on the same queries."""
    key = ("last", "test", task)
    for run in runs:
        if key not in run.query_ap:
            raise InputError(
                f"{run.name} has no AP of single queries ({', '.join(key)}); run it again"
            )
        if not np.array_equal(np.isnan(run.query_ap[key]), np.isnan(runs[0].query_ap[key])):
            raise InputError(
                f"{run.name} and {runs[0].name} were not evaluated on the same queries "
                f"({task}); compare runs with the same data set and partition"
            )


def _significance_table(comparisons: Sequence[_Comparison]) -> Table:
    """Tabulate comparisons of `_compare_methods`, a block a task; p-values up to `LEVEL` in
    bold.
    """
    none = Cell("–")
    rows = []
    for test in comparisons:
        over_queries = (Cell("no common seed"), none, none)
        over_seeds = (none, none, none)
        if test.queries:
            difference = Cell(signed(100 * test.queries.difference))
            over_queries = difference, _p_value(test.queries_p), Cell(str(test.queries.queries))
        if test.seeds:
            interval = Cell(f"{signed(100 * test.seeds.lower)} … {signed(100 * test.seeds.upper)}")
            over_seeds = interval, _p_value(test.seeds_p), Cell(str(test.seeds.seeds))
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
    """Compare methods and return the table; none if too few runs have finished, or if they have no
    AP of single queries.
    """
    for result in results:
        if any(("last", "test", task) in result.query_ap for task in result.tasks()):
            comparisons = _compare_methods(results)
            return [_significance_table(comparisons)] if comparisons else []
    return []


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


#: Friedman's test goes through all permutations if there are no more, and else draws so many. The
#: smallest p-value of that many draws is 0.00001.
_PERMUTATIONS = 99_999


def _friedman_p(scores: ArrayLike) -> float | None:
    """Return the p-value of Friedman's test that all methods are alike; None for fewer than two
    methods or collections.

    The usual forms (χ², F) hold for many collections. Here the ranks of each collection are
    permuted, since any order is equally likely if all methods are alike: p is the share of
    permutations whose mean ranks lie as far apart. Ties keep their ranks.

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

    Two of k methods are not told apart if their mean ranks over N collections are closer.

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
    every = dict.fromkeys(chain.from_iterable(scores.values()))
    losses = [loss for loss in every if _is_complete(loss, scores.values())]
    missing = [loss for loss in every if loss not in losses]
    raw: dict[str, NDArray[np.float64]] = {}
    by_view: dict[str, list[NDArray[np.float64]]] = {}
    for (collection, view), each in scores.items():
        values = np.array([each[loss] for loss in losses])
        raw[f"{collection}, {view}".removeprefix(", ")] = values
        by_view.setdefault(view, []).append(values)
    n_collections = len(next(iter(by_view.values())))
    unfinished = f" Not finished everywhere: {', '.join(missing)}." if missing else ""
    return Table(
        f"ranks-{form.replace(' ', '-')}",
        f"Losses {form}, by their mean rank over {n_collections} collections",
        ("Loss", *(f"Mean rank, {view}" for view in by_view), *raw),
        _rank_rows(losses, list(by_view.values()), list(raw.values())),
        "Ranks by the mean tie-aware mAP of all tasks, code lengths and seeds, which stands beside "
        f"them in percent. {_rank_tests(by_view)}{unfinished}",
        labels=1,
    )


def _is_complete(loss: str, scores: Collection[Mapping[str, float]]) -> bool:
    """Return whether a loss has a score on every collection."""
    return all(np.isfinite(each.get(loss, np.nan)) for each in scores)


def _rank_rows(
    losses: Sequence[str], views: Sequence[ArrayLike], raw: Sequence[NDArray[np.float64]]
) -> tuple[Row, ...]:
    """Return a row a loss, in the order of the mean ranks in the first view; the best of each
    column is bold.
    """
    columns = [[Cell(loss) for loss in losses]]
    for scores in views:
        ranks = _mean_ranks(scores)
        columns.append([Cell(f"{rank:.1f}", rank == ranks.min()) for rank in ranks])
    for values in raw:
        columns.append([Cell(f"{100 * value:.2f}", value == values.max()) for value in values])
    rows = list(zip(*columns, strict=True))
    return tuple(rows[row] for row in np.argsort(_mean_ranks(views[0]), kind="stable"))


def _rank_tests(by_view: Mapping[str, ArrayLike]) -> str:
    """Say which mean ranks differ; ``by_view`` holds the scores ``(collections, losses)`` of each
    view.
    """
    tests = []
    for view, scores in by_view.items():
        p_value = _friedman_p(scores)
        if p_value is not None:
            tests.append(f"{print_p(p_value)} on {view}")
    collections, losses = np.shape(next(iter(by_view.values())))
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
