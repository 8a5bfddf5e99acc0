"""Tables of a grid as the paper prints them: a block a task, a row a method, a column a code length or model.

Every cell is mean ± sample standard deviation (ddof 1) over the seeds, in percent. A run that is not there is named in
its cell: nothing is averaged away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.significance import seed_test
from channelhash.lab.experiments.tables.rendering import Cell, Table

#: What was searched -> in words.
VIEW_NAMES = {
    "test": "test queries, retrieval set R",
    "leak_free": "test queries, retrieval set R∖T without training rows",
    "validation": "validation queries and retrieval set",
}
#: Which weights -> in words; the last epoch is primary (``protocol.md`` § 6).
CHECKPOINT_NAMES = {"last": "last epoch", "best": "epoch best on validation"}
#: Figure of `metrics.TaskReport` -> as it is printed.
FIGURE_NAMES = {"map_tie_aware": "mAP_T", "roc_auc_micro": "ROC-AUC"}
#: The same, in a title.
_FIGURE_TITLES = {"map_tie_aware": "tie-aware mAP", "ndcg_graded": "graded NDCG"}


class Spread(NamedTuple):
    """Mean and sample standard deviation (NaN of a single number), in percent, and the number of numbers."""

    mean: float
    std: float
    runs: int


@dataclass(frozen=True)
class Outcome:
    """What the runs of one cell gave.

    Attributes:
        shares: figure of each run that has one, in [0, 1].
        absent: why each other run has none: ``"failed"``, ``"missing"``, ``"not evaluated"``, ``"undefined"``.
    """

    shares: tuple[float, ...]
    absent: tuple[str, ...]

    def spread(self) -> Spread | None:
        """Of the runs that have a figure; None if none has."""
        return spread(self.shares) if self.shares else None

    def text(self) -> str:
        """``"84.19 ± 0.37"``; with runs absent ``"84.19 ± 0.37 (2 of 3; 1 failed)"`` or ``"3 missing"``."""
        counts = ", ".join(f"{self.absent.count(reason)} {reason}" for reason in dict.fromkeys(self.absent))
        found = self.spread()
        if found is None:
            return counts or "–"
        if not counts:
            return print_spread(found)
        return f"{print_spread(found)} ({found.runs} of {found.runs + len(self.absent)}; {counts})"


def spread(shares: Sequence[float]) -> Spread:
    """Mean and sample standard deviation of figures in [0, 1], in percent; at least one."""
    percent = 100 * np.asarray(shares, dtype=np.float64)
    std = float(percent.std(ddof=1)) if len(percent) > 1 else float("nan")
    return Spread(float(percent.mean()), std, len(percent))


def print_spread(found: Spread) -> str:
    """``"84.19 ± 0.37"``, or ``"84.19"`` of a single run."""
    return f"{found.mean:.2f}" if np.isnan(found.std) else f"{found.mean:.2f} ± {found.std:.2f}"


def difference_cell(points: NDArray[np.float64]) -> Cell:
    """Return the mean of differences, paired by seed, with Student's 95 % interval, bold where it excludes zero.

    >>> difference_cell(np.array([1.0, 1.2, 1.4]))
    Cell(text='+1.20 [+0.70, +1.70]', bold=True)
    >>> difference_cell(np.array([-1.0])).text
    '−1.00'
    """
    if len(points) < 2:
        return Cell(_signed(float(points.mean())))
    test = seed_test(points)
    interval = f"[{_signed(test.lower)}, {_signed(test.upper)}]"
    return Cell(f"{_signed(test.difference)} {interval}", test.lower > 0 or test.upper < 0)


def _signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def outcome(
    results: Sequence[Result], task: str, figure: str = "map_tie_aware", view: str = "test", checkpoint: str = "last"
) -> Outcome:
    """What the runs of one cell gave: runs that differ in their seed alone.

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
    shares, absent = [], []
    for result in results:
        if result.status != "finished":
            absent.append(str(result.status))
        elif task not in result.epochs.get(checkpoint, {}).get(view, {}):
            absent.append("not evaluated")
        elif np.isnan(share := result.score(task, figure, view, checkpoint)):
            absent.append("undefined")
        else:
            shares.append(share)
    return Outcome(tuple(shares), tuple(absent))


def _compared(result: Result) -> tuple[object, ...]:
    return result.settings["data"]["kind"], result.settings["model"], result.settings["loss"]


class _Asked(NamedTuple):
    """One cell: the runs it is about, and which of their figures."""

    results: list[Result]
    task: str
    figure: str


def losses_table(
    results: Sequence[Result], view: str = "test", checkpoint: str = "last", figure: str = "map_tie_aware"
) -> Table:
    """Tie-aware mAP or graded NDCG: a block a task, a row a method, a column a code length.

    Raises:
        InputError: see `outcome`.
    """
    placed = _placed(results)
    lengths = sorted({result.n_bits for result in placed})
    name = "losses" if figure == "map_tie_aware" else figure.replace("_", "-")
    columns = [f"k = {k}" for k in lengths]
    return _by_method(results, f"{name}-{view}-{checkpoint}", "Methods", columns, _length, view, checkpoint, figure)


def architectures_table(results: Sequence[Result], view: str = "test", checkpoint: str = "last") -> Table:
    """Tie-aware mAP: a block a task, a row a method, a column a model.

    Raises:
        InputError: see `outcome`.
    """
    models = list(dict.fromkeys(_model(result) for result in _placed(results)))
    return _by_method(results, f"architectures-{view}-{checkpoint}", "Architectures", models, _model, view, checkpoint)


def gamma_w_table(results: Sequence[Result], view: str = "validation", checkpoint: str = "last") -> Table:
    """Tie-aware mAP and ROC-AUC (micro): a block a figure, a row a γ_w, a column a task.

    Raises:
        InputError: see `outcome`; or a run's loss has no γ_w.
    """
    placed = _placed(results)
    for result in placed:
        if "gamma_w" not in result.settings["loss"]:
            raise InputError(f"{result.name}: its loss has no gamma_w; a table of γ_w takes runs of DSCH alone")
    tasks = task_names(results, view, checkpoint)
    runs: dict[float, list[Result]] = {}
    for result in placed:
        runs.setdefault(float(result.settings["loss"]["gamma_w"]), []).append(result)
    rows: list[tuple[Cell, ...]] = []
    for figure, name in FIGURE_NAMES.items():
        asked = {f"{value:g}": [_Asked(runs[value], task, figure) for task in tasks] for value in sorted(runs)}
        rows += _block(name, asked, view, checkpoint)
    return Table(
        f"gamma-w-{view}-{checkpoint}",
        f"Exponent γ_w of the channel width: {_what(view, checkpoint)}",
        ("Figure", "γ_w", *map(arrow, tasks)),
        tuple(rows),
        _caption(results),
    )


def all_views(
    build: Callable[[Sequence[Result], str, str], Table], results: Sequence[Result], first: str = "test"
) -> list[Table]:
    """`build` for every view and checkpoint that some run was evaluated on; ``first`` at the last epoch leads.

    With no finished run that one alone, which then says what became of each.
    """
    seen = {(checkpoint, view) for result in results for checkpoint, views in result.epochs.items() for view in views}
    order = [first, *(view for view in VIEW_NAMES if view != first)]
    found = [(view, checkpoint) for checkpoint in CHECKPOINT_NAMES for view in order if (checkpoint, view) in seen]
    return [build(results, view, checkpoint) for view, checkpoint in found or [(first, "last")]]


def arrow(task: str) -> str:
    """``"image->text"`` as it is printed."""
    return task.replace("->", " → ")


def task_names(results: Sequence[Result], view: str, checkpoint: str) -> list[str]:
    """The tasks that some run was evaluated on, in their order; a stand-in while there is none."""
    found = [task for result in results for task in result.epochs.get(checkpoint, {}).get(view, {})]
    return list(dict.fromkeys(found)) or ["every task"]


def _by_method(
    results: Sequence[Result],
    name: str,
    compared: str,
    columns: Sequence[str],
    column_of: Callable[[Result], str],
    view: str,
    checkpoint: str,
    figure: str = "map_tie_aware",
) -> Table:
    """A block a task, a row a method; ``column_of`` says in which of ``columns`` a run stands."""
    placed = _placed(results)
    rows: list[tuple[Cell, ...]] = []
    for task in task_names(results, view, checkpoint):
        asked = {
            method: [
                _Asked([run for run in placed if (run.method, column_of(run)) == (method, column)], task, figure)
                for column in columns
            ]
            for method in dict.fromkeys(result.method for result in placed)
        }
        rows += _block(arrow(task), asked, view, checkpoint)
    title = f"{compared} by {_FIGURE_TITLES[figure]}: {_what(view, checkpoint)}"
    return Table(name, title, ("Task", "Method", *columns), tuple(rows), _caption(results))


def _block(name: str, asked: dict[str, list[_Asked]], view: str, checkpoint: str) -> list[tuple[Cell, ...]]:
    """The rows of a block: one an entry of ``asked``, the best of each column bold, then the chance level."""
    found = {label: [outcome(*cell, view, checkpoint) for cell in cells] for label, cells in asked.items()}
    columns = list(zip(*found.values(), strict=True))
    best = [best_means([cell.spread() for cell in column]) for column in columns]
    rows = [
        (Cell(name), Cell(label), *(Cell(cell.text(), bold[number]) for cell, bold in zip(cells, best, strict=True)))
        for number, (label, cells) in enumerate(found.items())
    ]
    chances = [Cell(_chance(list(column), view, checkpoint)) for column in zip(*asked.values(), strict=True)]
    return [*rows, (Cell(name), Cell("chance"), *chances)]


def best_means(spreads: Sequence[Spread | None]) -> list[bool]:
    """Which means are the highest as printed, to two decimals: several if they tie, none without a second to beat."""
    means = [None if found is None else round(found.mean, 2) for found in spreads]
    there = [mean for mean in means if mean is not None]
    return [len(there) > 1 and mean == max(there) for mean in means]


def _chance(column: Sequence[_Asked], view: str, checkpoint: str) -> str:
    """What no information gives: the share of relevant items, or 50 for ROC-AUC; a range if the data differ. Of NDCG it
    depends on every query's gains and is not known here."""
    if any(figure == "ndcg_graded" for _, _, figure in column):
        return "–"
    shares = []
    for results, task, figure in column:
        for result in results:
            if task in result.epochs.get(checkpoint, {}).get(view, {}):
                known = figure == "roc_auc_micro"
                shares.append(0.5 if known else result.score(task, "chance", view, checkpoint))
    low, high = (f"{100 * share:.2f}" for share in (min(shares, default=np.nan), max(shares, default=np.nan)))
    return "–" if not shares else low if low == high else f"{low} … {high}"


def _length(result: Result) -> str:
    return f"k = {result.n_bits}"


def _model(result: Result) -> str:
    return f"{result.settings['model']['name']}, {_length(result)}"


def _placed(results: Sequence[Result]) -> list[Result]:
    """Runs whose settings are known; `_caption` names the others."""
    return [result for result in results if result.settings]


def _what(view: str, checkpoint: str) -> str:
    return f"{VIEW_NAMES[view]}, {CHECKPOINT_NAMES[checkpoint]}"


def _caption(results: Sequence[Result]) -> str:
    """How to read the numbers, over how many seeds, and what became of runs without a result."""
    seeds = len({result.seed for result in _placed(results)})
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
