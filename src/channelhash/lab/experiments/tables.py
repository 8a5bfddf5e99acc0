"""Tables of a grid as the paper prints them: a block a task, a row a method, a column a code length or model.

Every cell is mean ± sample standard deviation (ddof 1) over the seeds, in percent. A missing run is named in its cell:
nothing is averaged away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from channelhash.errors import InputError
from channelhash.lab.experiments.rendering import Cell, Table
from channelhash.lab.experiments.results import Result
from channelhash.utils.plotting import arrow

#: What was searched -> in words.
VIEW_NAMES = {
    "test": "test queries, retrieval set R",
    "leak_free": "test queries, retrieval set R∖T without training rows",
    "validation": "validation queries and retrieval set",
}
#: Which weights -> in words; the last epoch is primary (``protocol.md`` § 6).
CHECKPOINT_NAMES = {"last": "last epoch", "best": "epoch best on validation"}
#: Score of `metrics.TaskReport` -> as it is printed.
SCORE_NAMES = {"map_tie_aware": "mAP_T", "roc_auc_micro": "ROC-AUC"}
#: The same, in a title.
_SCORE_TITLES = {"map_tie_aware": "tie-aware mAP", "ndcg_graded": "graded NDCG"}


class Spread(NamedTuple):
    """Mean and sample standard deviation (NaN of a single run), in percent, and the number of runs."""

    mean: float
    std: float
    runs: int


@dataclass(frozen=True)
class Outcome:
    """Scores of the runs of one cell.

    Attributes:
        scores: score of each run that has one, in [0, 1].
        absent: why each other run has none: ``"failed"``, ``"missing"``, ``"not evaluated"``, ``"undefined"``.
    """

    scores: tuple[float, ...]
    absent: tuple[str, ...]

    def spread(self) -> Spread | None:
        """Summarise the runs that have a score; None if none has."""
        return spread(self.scores) if self.scores else None

    def text(self) -> str:
        """Print the cell.

        >>> Outcome((0.8, 0.9), ("failed",)).text(), Outcome((), ("missing", "missing")).text()
        ('85.00 ± 7.07 (2 of 3; 1 failed)', '2 missing')
        """
        counts = ", ".join(f"{self.absent.count(reason)} {reason}" for reason in dict.fromkeys(self.absent))
        summary = self.spread()
        if summary is None:
            return counts or "–"
        if not counts:
            return print_spread(summary)
        return f"{print_spread(summary)} ({summary.runs} of {summary.runs + len(self.absent)}; {counts})"


def spread(scores: Sequence[float]) -> Spread:
    """Return mean and sample standard deviation of one score in [0, 1] or more, in percent.

    >>> spread([0.25, 0.75]).mean
    50.0
    """
    percent = 100 * np.asarray(scores, dtype=np.float64)
    std = float(percent.std(ddof=1)) if len(percent) > 1 else float("nan")
    return Spread(float(percent.mean()), std, len(percent))


def print_spread(summary: Spread) -> str:
    """Print mean and standard deviation, or the mean alone of a single run.

    >>> print_spread(Spread(84.19, 0.37, 3)), print_spread(spread([0.8419]))
    ('84.19 ± 0.37', '84.19')
    """
    return f"{summary.mean:.2f}" if np.isnan(summary.std) else f"{summary.mean:.2f} ± {summary.std:.2f}"


def outcome(
    results: Sequence[Result], task: str, score: str = "map_tie_aware", view: str = "test", checkpoint: str = "last"
) -> Outcome:
    """Collect the scores of the runs of one cell, which differ in their seed alone.

    Raises:
        InputError: they differ in data set, model or loss, or two have one seed; their mean would hide it.
    """
    seeds: dict[int, Result] = {}
    for result in results:
        first = next(iter(seeds.values()), result)
        if _compared(result) != _compared(first):
            raise InputError(
                f"{result.name} and {first.name} stand in one cell but differ in data set, model or loss; "
                "name their methods differently"
            )
        if result.seed in seeds:
            raise InputError(f"{result.name} and {seeds[result.seed].name} are the same method, length and seed")
        seeds[result.seed] = result
    scores, absent = [], []
    for result in results:
        if result.status != "finished":
            absent.append(str(result.status))
        elif task not in result.epochs.get(checkpoint, {}).get(view, {}):
            absent.append("not evaluated")
        elif np.isnan(value := result.score(task, score, view, checkpoint)):
            absent.append("undefined")
        else:
            scores.append(value)
    return Outcome(tuple(scores), tuple(absent))


def _compared(result: Result) -> tuple[object, ...]:
    return result.settings["data"]["kind"], result.settings["model"], result.settings["loss"]


class _Cell(NamedTuple):
    """The runs of a cell, and which of their scores it shows."""

    results: list[Result]
    task: str
    score: str


class _View(NamedTuple):
    """Where scores stand in a result."""

    view: str
    checkpoint: str

    def describe(self) -> str:
        return f"{VIEW_NAMES[self.view]}, {CHECKPOINT_NAMES[self.checkpoint]}"


def losses_table(
    results: Sequence[Result], view: str = "test", checkpoint: str = "last", score: str = "map_tie_aware"
) -> Table:
    """Return tie-aware mAP or graded NDCG: a block a task, a row a method, a column a code length.

    Raises:
        InputError: see `outcome`.
    """
    columns = [_length(result) for result in sorted(_started(results), key=lambda result: result.n_bits)]
    name = "losses" if score == "map_tie_aware" else score.replace("_", "-")
    title = f"Methods by {_SCORE_TITLES[score]}"
    return _by_method(results, name, title, _View(view, checkpoint), columns, _length, score)


def architectures_table(results: Sequence[Result], view: str = "test", checkpoint: str = "last") -> Table:
    """Return tie-aware mAP: a block a task, a row a method, a column a model.

    Raises:
        InputError: see `outcome`.
    """
    columns = [_model(result) for result in _started(results)]
    title = f"Architectures by {_SCORE_TITLES['map_tie_aware']}"
    return _by_method(results, "architectures", title, _View(view, checkpoint), columns, _model)


def gamma_w_table(results: Sequence[Result], view: str = "validation", checkpoint: str = "last") -> Table:
    """Return tie-aware mAP and ROC-AUC (micro): a block a score, a row a γ_w, a column a task.

    Raises:
        InputError: see `outcome`; or a run's loss has no γ_w.
    """
    started = _started(results)
    for result in started:
        if "gamma_w" not in result.settings["loss"]:
            raise InputError(f"{result.name}: its loss has no gamma_w; a table of γ_w takes runs of DSCH alone")
    tasks = task_names(results, view, checkpoint)
    runs: dict[float, list[Result]] = {}
    for result in started:
        runs.setdefault(float(result.settings["loss"]["gamma_w"]), []).append(result)
    rows: list[tuple[Cell, ...]] = []
    place = _View(view, checkpoint)
    for score, name in SCORE_NAMES.items():
        cells = {f"{value:g}": [_Cell(runs[value], task, score) for task in tasks] for value in sorted(runs)}
        rows += _block(name, cells, place)
    return Table(
        f"gamma-w-{view}-{checkpoint}",
        f"Exponent γ_w of the channel width: {place.describe()}",
        ("Figure", "γ_w", *map(arrow, tasks)),
        tuple(rows),
        _caption(results),
    )


def all_views(
    build: Callable[[Sequence[Result], str, str], Table], results: Sequence[Result], first: str = "test"
) -> list[Table]:
    """Call ``build`` for every view and checkpoint that some run was evaluated on; ``first`` at the last epoch leads.

    With no finished run, that table alone says what became of each.
    """
    evaluated = {
        (checkpoint, view) for result in results for checkpoint, views in result.epochs.items() for view in views
    }
    order = [first, *(view for view in VIEW_NAMES if view != first)]
    places = [(view, name) for name in CHECKPOINT_NAMES for view in order if (name, view) in evaluated]
    return [build(results, view, checkpoint) for view, checkpoint in places or [(first, "last")]]


def task_names(results: Sequence[Result], view: str, checkpoint: str) -> list[str]:
    """Return the tasks that some run was evaluated on, in their order; a stand-in while there is none.

    >>> task_names([], "test", "last")
    ['every task']
    """
    names = [task for result in results for task in result.epochs.get(checkpoint, {}).get(view, {})]
    return list(dict.fromkeys(names)) or ["every task"]


def _by_method(
    results: Sequence[Result],
    name: str,
    title: str,
    place: _View,
    columns: Sequence[str],
    column_of: Callable[[Result], str],
    score: str = "map_tie_aware",
) -> Table:
    """Return a block a task, a row a method; ``column_of`` says in which of ``columns`` a run stands."""
    started, columns = _started(results), list(dict.fromkeys(columns))
    methods = dict.fromkeys(result.method for result in started)
    rows: list[tuple[Cell, ...]] = []
    for task in task_names(results, *place):
        cells = {
            method: [
                _Cell([run for run in started if (run.method, column_of(run)) == (method, column)], task, score)
                for column in columns
            ]
            for method in methods
        }
        rows += _block(arrow(task), cells, place)
    header, name = ("Task", "Method", *columns), f"{name}-{place.view}-{place.checkpoint}"
    return Table(name, f"{title}: {place.describe()}", header, tuple(rows), _caption(results))


def _block(name: str, cells: dict[str, list[_Cell]], place: _View) -> list[tuple[Cell, ...]]:
    """Return the rows of a block: one an entry of ``cells``, the best of each column bold, then the chance level."""
    outcomes = {label: [outcome(*cell, *place) for cell in row] for label, row in cells.items()}
    best = [best_means([cell.spread() for cell in column]) for column in zip(*outcomes.values(), strict=True)]
    rows = [
        (Cell(name), Cell(label), *(Cell(cell.text(), bold[number]) for cell, bold in zip(row, best, strict=True)))
        for number, (label, row) in enumerate(outcomes.items())
    ]
    chances = [Cell(_chance(column, place)) for column in zip(*cells.values(), strict=True)]
    return [*rows, (Cell(name), Cell("chance"), *chances)]


def best_means(spreads: Sequence[Spread | None]) -> list[bool]:
    """Say which means are the highest as printed, to two decimals: several if they tie, none without a second to beat.

    >>> best_means([spread([0.5]), spread([0.25]), None])
    [True, False, False]
    """
    means = [None if cell is None else round(cell.mean, 2) for cell in spreads]
    scores = [mean for mean in means if mean is not None]
    return [len(scores) > 1 and mean == max(scores) for mean in means]


def _chance(column: Sequence[_Cell], place: _View) -> str:
    """Return the score of no information: the share of relevant items, or 50 for ROC-AUC; a range if the data differ.

    The chance level of NDCG depends on every query's gains and is not known here.
    """
    if any(cell.score == "ndcg_graded" for cell in column):
        return "–"
    levels = []
    for results, task, score in column:
        for result in results:
            if task in result.epochs.get(place.checkpoint, {}).get(place.view, {}):
                levels.append(0.5 if score == "roc_auc_micro" else result.score(task, "chance", *place))
    if not levels:
        return "–"
    low, high = f"{100 * min(levels):.2f}", f"{100 * max(levels):.2f}"
    return low if low == high else f"{low} … {high}"


def _length(result: Result) -> str:
    return f"k = {result.n_bits}"


def _model(result: Result) -> str:
    return f"{result.settings['model']['name']}, {_length(result)}"


def _started(results: Sequence[Result]) -> list[Result]:
    """Return the runs whose settings are known; `_caption` names the others."""
    return [result for result in results if result.settings]


def _caption(results: Sequence[Result]) -> str:
    """Say how to read the numbers, over how many seeds, and what became of runs without a result."""
    seeds = len({result.seed for result in _started(results)})
    parts = [
        f"In percent, mean ± sample standard deviation (ddof 1) over {seeds} {'seed' if seeds == 1 else 'seeds'}; "
        "no ± where there is a single run. Best mean of each column and block in bold. "
        "Chance is what codes without information give."
    ]
    unknown = [result.name for result in results if not result.settings]
    if unknown:
        parts.append(f"In no cell, because they never started: {', '.join(unknown)}.")
    parts += [f"Failed: {result.name} ({result.error})." for result in results if result.status == "failed"]
    missing = [result.name for result in results if result.status == "missing" and result.settings]
    if missing:
        parts.append(f"Not run to the end: {', '.join(missing)}.")
    return " ".join(parts)
