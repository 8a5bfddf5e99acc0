"""Tables of comparisons between methods: tests over queries and seeds, and counts of cells won."""

from collections.abc import Sequence

from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.significance import Comparison, compare_methods
from channelhash.lab.experiments.stats.wins import count_wins
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import CHECKPOINT_NAMES, VIEW_NAMES, outcome, spread, task_names
from channelhash.utils.plotting import arrow

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
