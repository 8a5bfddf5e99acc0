"""A grid's scores as the paper prints them.

A score is a block a task, a row a method, a column a code length or model. Every cell is mean ±
sample standard deviation (ddof 1) over the seeds, in percent. A missing run is named in its cell:
nothing is averaged away.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple, Self

import numpy as np

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.text_tables import Cell, Row, Table
from channelhash.metrics.plots import arrow

#: What was searched -> in words.
VIEW_NAMES = {
    "test": "test queries, retrieval set R",
    "leak_free": "test queries, retrieval set R∖T without training rows",
    "apart": "test queries, retrieval set R∖T, both apart from validation rows",
    "validation": "validation queries and retrieval set",
}
#: Which weights -> in words; the last epoch is primary (``protocol.md`` § 6).
_CHECKPOINT_NAMES = {"last": "last epoch", "best": "epoch best on validation"}
#: Score of `metrics.TaskReport` -> as it is printed.
_SCORE_NAMES = {"map_tie_aware": "mAP_T", "roc_auc_micro": "ROC-AUC"}


class Spread(NamedTuple):
    """Mean and sample standard deviation (NaN of a single run), in percent, and the number of
    runs.
    """

    mean: float
    std: float
    runs: int

    @classmethod
    def of(cls, scores: Sequence[float]) -> Self | None:
        """Summarise scores in [0, 1]; None if there are none.

        >>> Spread.of([0.25, 0.75]).mean
        50.0
        """
        if not len(scores):
            return None
        percent = 100 * np.asarray(scores, dtype=np.float64)
        std = float(percent.std(ddof=1)) if len(percent) > 1 else float("nan")
        return cls(float(percent.mean()), std, len(percent))

    def text(self) -> str:
        """Print mean and standard deviation, or the mean alone of a single run.

        >>> Spread(84.19, 0.37, 3).text(), Spread.of([0.8419]).text()
        ('84.19 ± 0.37', '84.19')
        """
        return f"{self.mean:.2f}" if np.isnan(self.std) else f"{self.mean:.2f} ± {self.std:.2f}"


def spread_cells(scores: Sequence[Sequence[float]]) -> list[Cell]:
    """Print mean and deviation of each list of scores, the best means bold; a dash for none.

    >>> [cell.text for cell in spread_cells([[0.8419], []])]
    ['84.19', '–']
    """
    spreads = [Spread.of(each) for each in scores]
    best = _best_means(spreads)
    return [
        Cell(each.text() if each else "–", bold) for each, bold in zip(spreads, best, strict=True)
    ]


def signed(points: float) -> str:
    """Print a difference.

    >>> signed(-1.234)
    '−1.23'
    """
    return f"{points:+.2f}".replace("-", "−")


def outcome(
    results: Sequence[Result],
    task: str,
    score: str = "map_tie_aware",
    view: str = "test",
    checkpoint: str = "last",
) -> tuple[Spread | None, str]:
    """Summarise and print the scores of the runs of one cell, which differ in their seed alone."""
    _check_seeds(results)
    scores = []
    absent = Counter[str]()
    for result in results:
        if result.status != "finished":
            absent[result.status] += 1
        elif task not in result.tasks(view, checkpoint):
            absent["not evaluated"] += 1
        elif np.isnan(result.score(task, score, view, checkpoint)):
            absent["undefined"] += 1
        else:
            scores.append(result.score(task, score, view, checkpoint))
    spread = Spread.of(scores)
    counts = ", ".join(f"{n} {reason}" for reason, n in absent.items())
    if spread is None:
        return None, counts or "–"
    of_all = f" ({spread.runs} of {len(results)}; {counts})" if counts else ""
    return spread, spread.text() + of_all


def _check_seeds(results: Sequence[Result]) -> None:
    """Check that runs differ in their seed alone."""
    seeds: dict[int, Result] = {}
    for result in results:
        first = next(iter(seeds.values()), result)
        if _compared(result) != _compared(first):
            raise InputError(
                f"{result.name} and {first.name} stand in one cell but differ in data set, model "
                "or loss; name their methods differently"
            )
        if result.seed in seeds:
            raise InputError(
                f"{result.name} and {seeds[result.seed].name} are the same method, length and seed"
            )
        seeds[result.seed] = result


def _compared(result: Result) -> tuple[object, ...]:
    return result.settings["data"]["kind"], result.settings["model"], result.settings["loss"]


def losses_table(
    results: Sequence[Result],
    view: str = "test",
    checkpoint: str = "last",
    score: str = "map_tie_aware",
) -> Table:
    """Return tie-aware mAP or graded NDCG: a block a task, a row a method, a column a code length.

    Raises:
        InputError: see `outcome`.
    """
    name = "losses"
    title = "Methods by tie-aware mAP"
    if score == "ndcg_graded":
        name = "ndcg-graded"
        title = "Methods by graded NDCG"
    place = (score, view, checkpoint)
    return _by_method(results, name, title, lambda run: f"k = {run.n_bits}", place)


def architectures_table(
    results: Sequence[Result], view: str = "test", checkpoint: str = "last"
) -> Table:
    """Return tie-aware mAP: a block a task, a row a method, a column a model and code length."""
    title = "Architectures by tie-aware mAP"
    place = ("map_tie_aware", view, checkpoint)
    return _by_method(
        results,
        "architectures",
        title,
        lambda run: f"{run.settings['model']['name']}, k = {run.n_bits}",
        place,
    )


def gamma_w_table(
    results: Sequence[Result], view: str = "validation", checkpoint: str = "last"
) -> Table:
    """Return tie-aware mAP and ROC-AUC (micro): a block a score, a row a γ_w, a column a task."""
    runs: dict[float, list[Result]] = {}
    for result in results:
        if "gamma_w" not in result.settings["loss"]:
            raise InputError(
                f"{result.name}: its loss has no gamma_w; a table of γ_w takes runs of DSCH alone"
            )
        runs.setdefault(float(result.settings["loss"]["gamma_w"]), []).append(result)
    tasks = _task_names(results, view, checkpoint)
    cells = {f"{value:g}": [runs[value]] * len(tasks) for value in sorted(runs)}
    rows: list[Row] = []
    for score, name in _SCORE_NAMES.items():
        rows += _block(name, cells, tasks, (score, view, checkpoint))
    title = (
        f"Exponent γ_w of the channel width: {VIEW_NAMES[view]}, {_CHECKPOINT_NAMES[checkpoint]}"
    )
    header = ("Figure", "γ_w", *map(arrow, tasks))
    return Table(f"gamma-w-{view}-{checkpoint}", title, header, tuple(rows), _caption(results))


def all_views(
    build: Callable[[Sequence[Result], str, str], Table],
    results: Sequence[Result],
    first: str = "test",
) -> list[Table]:
    """Build a table for every view and checkpoint that some run was evaluated on, the view
    ``first`` before the others.

    If no run has finished, a single table says what became of each.
    """
    views = sorted(VIEW_NAMES, key=lambda view: view != first)
    shown = [
        build(results, view, checkpoint)
        for checkpoint, view in product(_CHECKPOINT_NAMES, views)
        if _is_evaluated(results, view, checkpoint)
    ]
    return shown or [build(results, first, "last")]


def _is_evaluated(results: Sequence[Result], view: str, checkpoint: str) -> bool:
    return any(view in result.epochs.get(checkpoint, ()) for result in results)


def _task_names(results: Sequence[Result], view: str, checkpoint: str) -> list[str]:
    """Return the tasks that some run was evaluated on, in their order; a stand-in if there are
    none.

    >>> _task_names([], "test", "last")
    ['every task']
    """
    of_runs = (result.tasks(view, checkpoint) for result in results)
    return list(dict.fromkeys(chain.from_iterable(of_runs))) or ["every task"]


#: Score, view and checkpoint, which a table or a block of it is about.
_Place = tuple[str, str, str]


def _by_method(
    results: Sequence[Result],
    name: str,
    title: str,
    column_of: Callable[[Result], str],
    place: _Place,
) -> Table:
    """Return a block a task, a row a method; ``column_of`` names the column of a run."""
    _, view, checkpoint = place
    columns = list(dict.fromkeys(map(column_of, sorted(results, key=lambda result: result.n_bits))))
    runs: dict[str, list[list[Result]]] = {}
    for result in results:
        cells = runs.setdefault(result.method, [[] for _ in columns])
        cells[columns.index(column_of(result))].append(result)
    rows: list[Row] = []
    for task in _task_names(results, view, checkpoint):
        rows += _block(arrow(task), runs, [task] * len(columns), place)
    title = f"{title}: {VIEW_NAMES[view]}, {_CHECKPOINT_NAMES[checkpoint]}"
    header = ("Task", "Method", *columns)
    return Table(f"{name}-{view}-{checkpoint}", title, header, tuple(rows), _caption(results))


def _block(
    name: str, runs: Mapping[str, Sequence[Sequence[Result]]], tasks: Sequence[str], place: _Place
) -> list[Row]:
    """Return the rows of a block, the best of each column bold, then the chance level.

    Args:
        name: the first cell of each row.
        runs: label of a row -> the runs of each cell, a list a column.
        tasks: the task of each column.
        place: what the block is about.
    """
    labels = [Cell(label) for label in (*runs, "chance")]
    columns = [[Cell(name)] * len(labels), labels]
    for task, *cells in zip(tasks, *runs.values(), strict=True):
        outcomes = [outcome(cell, task, *place) for cell in cells]
        best = _best_means([spread for spread, _ in outcomes])
        column = [Cell(text, bold) for (_, text), bold in zip(outcomes, best, strict=True)]
        chance = _chance(list(chain.from_iterable(cells)), task, *place)
        columns.append([*column, Cell(chance)])
    return list(zip(*columns, strict=True))


def _best_means(spreads: Sequence[Spread | None]) -> list[bool]:
    """Say which means are the highest as printed, to two decimals: several if they tie, none
    without a second to beat.

    >>> _best_means([Spread.of([0.5]), Spread.of([0.25]), None])
    [True, False, False]
    """
    means = [None if spread is None else round(spread.mean, 2) for spread in spreads]
    scores = [mean for mean in means if mean is not None]
    return [len(scores) > 1 and mean == max(scores) for mean in means]


def _chance(results: Sequence[Result], task: str, score: str, view: str, checkpoint: str) -> str:
    """Print the score of codes without information: the share of relevant items, or 50 for ROC-AUC;
    a range if the data differ.

    The chance level of NDCG depends on every query's gains and is not known here.
    """
    evaluated = [result for result in results if task in result.tasks(view, checkpoint)]
    if score == "ndcg_graded" or not evaluated:
        return "–"
    if score == "roc_auc_micro":
        return "50.00"
    levels = [result.score(task, "chance", view, checkpoint) for result in evaluated]
    low = f"{100 * min(levels):.2f}"
    high = f"{100 * max(levels):.2f}"
    return low if low == high else f"{low} … {high}"


def _caption(results: Sequence[Result]) -> str:
    """Say how to read the numbers, over how many seeds, and what became of runs without a
    result.
    """
    seeds = len({result.seed for result in results})
    parts = [
        f"In percent, mean ± sample standard deviation (ddof 1) over {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}; no ± where there is a single run. Best mean of each "
        "column and block in bold. Chance is what codes without information give."
    ]
    parts += [
        f"Failed: {result.name} ({result.error})."
        for result in results
        if result.status == "failed"
    ]
    missing = [result.name for result in results if result.status == "missing"]
    if missing:
        parts.append(f"Not run to the end: {', '.join(missing)}.")
    return " ".join(parts)
