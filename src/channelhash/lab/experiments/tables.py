"""Tables: text cells as Markdown, LaTeX and CSV, and a grid's scores as the paper prints them.

A score is a block a task, a row a method, a column a code length or model. Every cell is mean ±
sample standard deviation (ddof 1) over the seeds, in percent. A missing run is named in its cell:
nothing is averaged away.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from jinja2 import Environment, PackageLoader

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.metrics.plots import arrow
from channelhash.utils.files import write_text


class Cell(NamedTuple):
    """Text of a cell; bold marks the best.

    >>> Cell("84.19", bold=True)
    Cell(text='84.19', bold=True)
    """

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table of text. Consecutive rows with the same first cell are a block, which is named once.

    Attributes:
        name: stem of its files and its LaTeX label.
        title: what is compared, one line.
        header: a text per column.
        rows: each as long as ``header``.
        caption: how to read it, and what is missing in it.
        labels: how many of the first columns name the row; the others hold numbers, flush right.

    Raises:
        ValueError: a row has another length than ``header``.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    labels: int = 2

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"row {number} has {len(row)} cells, the header {len(self.header)}"
                )

    def blocks(self) -> list[list[tuple[Cell, ...]]]:
        """Split the rows where the first cell changes.

        >>> a, b = (Cell("a"), Cell("1")), (Cell("b"), Cell("2"))
        >>> [len(block) for block in Table("t", "Title", ("", "n"), (a, a, b), "").blocks()]
        [2, 1]
        """
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row[0])]


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to ``folder`` as ``NAME.md``, ``.tex`` and ``.csv``; return the files."""
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError(f"two tables have one name among {', '.join(names)}")
    formats = {"md": _to_markdown, "tex": _to_latex, "csv": _to_csv}
    texts = {
        folder / f"{table.name}.{ending}": render(table)
        for table in tables
        for ending, render in formats.items()
    }
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def _to_markdown(table: Table) -> str:
    """Render GitHub's Markdown: title, table, caption; the name of a block stands in its first row.

    >>> row = (Cell("SCH"), Cell("83.7", bold=True))
    >>> print(_to_markdown(Table("t", "mAP by loss", ("Loss", "mAP"), (row,), "", 1)))
    **mAP by loss**
    <BLANKLINE>
    | Loss | mAP |
    | --- | ---: |
    | SCH | **83.7** |
    <BLANKLINE>
    <BLANKLINE>
    <BLANKLINE>
    """
    return _TEMPLATES.get_template("table.md.j2").render(table=table)


def _to_latex(table: Table) -> str:
    r"""Render a ``table`` float in booktabs style; needs ``\usepackage{booktabs}``, and UTF-8
    beyond ASCII.

    >>> _to_latex(Table("t", "mAP", ("Loss", "γ_w"), ((Cell("SCH"), Cell("50 %")),), "", 1)).splitlines()[6:9]
    ['Loss & $\\gamma_{w}$ \\\\', '\\midrule', 'SCH & 50 \\% \\\\']
    """
    # In LaTeX, {{ is not rare: its template writes << … >>.
    latex = _TEMPLATES.overlay(variable_start_string="<<", variable_end_string=">>")
    return latex.get_template("table.tex.j2").render(table=table)


def _to_csv(table: Table) -> str:
    r"""Render the cells, one line a row, the name of a block in every row; no title and no caption.

    >>> _to_csv(Table("t", "mAP by loss", ("Loss", "mAP"), ((Cell("SCH"), Cell("83.7")),), ""))
    'Loss,mAP\nSCH,83.7\n'
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([cell.text for cell in row] for row in table.rows)
    return target.getvalue()


def _markdown(text: str) -> str:
    """On one line, signs of Markdown escaped; an underscore between letters means nothing there."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\|*`<>\[\]#~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", one_line)


_GREEK = dict(
    zip(
        "γκλτψαβ",
        (r"\gamma", r"\kappa", r"\lambda", r"\tau", r"\psi", r"\alpha", r"\beta"),
        strict=True,
    )
)
_SIGNS = dict(
    zip("±→−×≤∖√", (r"\pm", r"\to", "-", r"\times", r"\le", r"\setminus", r"\surd"), strict=True)
)
_WORDS = {
    "\\": "backslash",
    "~": "asciitilde",
    "^": "asciicircum",
    "<": "less",
    ">": "greater",
    "|": "bar",
}
_LATEX_SIGNS = {
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
    **{sign: f"${command}$" for sign, command in (_GREEK | _SIGNS).items()},
    **{sign: rf"\text{name}{{}}" for sign, name in _WORDS.items()},
    # After a row's \\ brackets and stars would be read as its arguments.
    **dict(
        zip('[*"–…²', ("{[}", "{*}", "''", "--", r"\ldots{}", r"\textsuperscript{2}"), strict=True)
    ),
}
_SYMBOL = re.compile(r"(?P<base>mAP|[γκλτψαβ])_(?P<index>\w+)|.", re.ASCII)


def _latex(text: str) -> str:
    """On one line, LaTeX's signs escaped, symbols as mathematics; indices such as the w of γ_w are
    set as such.
    """

    def sign(match: re.Match[str]) -> str:
        if match["base"]:
            base = _GREEK.get(match["base"], rf"\mathrm{{{match['base']}}}")
            index = match["index"].replace("_", r"\_")
            return rf"${base}_{{{index}}}$"
        return _LATEX_SIGNS.get(match[0], match[0])

    return _SYMBOL.sub(sign, " ".join(text.split()))


_TEMPLATES = Environment(
    loader=PackageLoader(__package__, "."), trim_blocks=True, keep_trailing_newline=True
)
_TEMPLATES.filters |= {"md": _markdown, "tex": _latex}


#: What was searched -> in words.
VIEW_NAMES = {
    "test": "test queries, retrieval set R",
    "leak_free": "test queries, retrieval set R∖T without training rows",
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
        """Summarise one score in [0, 1] or more; None of none.

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
    scores, absent = [], []
    for result in results:
        if result.status != "finished":
            absent.append(str(result.status))
        elif task not in result.tasks(view, checkpoint):
            absent.append("not evaluated")
        elif np.isnan(value := result.score(task, score, view, checkpoint)):
            absent.append("undefined")
        else:
            scores.append(value)
    spread = Spread.of(scores)
    counts = ", ".join(f"{n} {reason}" for reason, n in Counter(absent).items())
    if spread is None:
        return None, counts or "–"
    return spread, spread.text() + (
        f" ({spread.runs} of {len(results)}; {counts})" if counts else ""
    )


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
    name, title = (
        ("ndcg-graded", "graded NDCG") if score == "ndcg_graded" else ("losses", "tie-aware mAP")
    )
    place = (score, view, checkpoint)
    return _by_method(results, name, f"Methods by {title}", lambda run: f"k = {run.n_bits}", place)


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
    scores = _SCORE_NAMES.items()
    rows = [
        row
        for score, name in scores
        for row in _block(name, cells, tasks, (score, view, checkpoint))
    ]
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
    """Call ``build`` for every view and checkpoint that some run was evaluated on; ``first`` at the
    last epoch leads.

    With no finished run, that table alone says what became of each.
    """
    evaluated = {
        (name, view)
        for result in results
        for name, views in result.epochs.items()
        for view in views
    }
    order = [first, *(view for view in VIEW_NAMES if view != first)]
    places = [
        (view, name) for name in _CHECKPOINT_NAMES for view in order if (name, view) in evaluated
    ]
    return [build(results, view, checkpoint) for view, checkpoint in places or [(first, "last")]]


def _task_names(results: Sequence[Result], view: str, checkpoint: str) -> list[str]:
    """Return the tasks that some run was evaluated on, in their order; a stand-in while there is
    none.

    >>> _task_names([], "test", "last")
    ['every task']
    """
    return list(
        dict.fromkeys(task for result in results for task in result.tasks(view, checkpoint))
    ) or ["every task"]


#: Score, view and checkpoint, which a table or a block of it is about.
_Place = tuple[str, str, str]


def _by_method(
    results: Sequence[Result],
    name: str,
    title: str,
    column_of: Callable[[Result], str],
    place: _Place,
) -> Table:
    """Return a block a task, a row a method; ``column_of`` names the column in which a run
    stands.
    """
    _, view, checkpoint = place
    columns = list(dict.fromkeys(map(column_of, sorted(results, key=lambda result: result.n_bits))))
    runs: dict[str, list[list[Result]]] = {
        result.method: [[] for _ in columns] for result in results
    }
    for result in results:
        runs[result.method][columns.index(column_of(result))].append(result)
    rows: list[tuple[Cell, ...]] = []
    for task in _task_names(results, view, checkpoint):
        rows += _block(arrow(task), runs, [task] * len(columns), place)
    title = f"{title}: {VIEW_NAMES[view]}, {_CHECKPOINT_NAMES[checkpoint]}"
    return Table(
        f"{name}-{view}-{checkpoint}",
        title,
        ("Task", "Method", *columns),
        tuple(rows),
        _caption(results),
    )


def _block(
    name: str, runs: Mapping[str, Sequence[Sequence[Result]]], tasks: Sequence[str], place: _Place
) -> list[tuple[Cell, ...]]:
    """Return the rows of a block, the best of each column bold, then the chance level.

    ``runs`` are those of each cell: label of a row -> a list a column; ``tasks`` the task of each
    column.
    """
    outcomes = {
        label: [outcome(cell, task, *place) for cell, task in zip(row, tasks, strict=True)]
        for label, row in runs.items()
    }
    best = [
        _best_means([spread for spread, _ in column])
        for column in zip(*outcomes.values(), strict=True)
    ]
    rows = [
        (
            Cell(name),
            Cell(label),
            *(Cell(text, bold[number]) for (_, text), bold in zip(row, best, strict=True)),
        )
        for number, (label, row) in enumerate(outcomes.items())
    ]
    columns = zip(zip(*runs.values(), strict=True), tasks, strict=True)
    chances = [
        Cell(_chance([run for cell in column for run in cell], task, *place))
        for column, task in columns
    ]
    return [*rows, (Cell(name), Cell("chance"), *chances)]


def _best_means(spreads: Sequence[Spread | None]) -> list[bool]:
    """Say which means are the highest as printed, to two decimals: several if they tie, none
    without a second to beat.

    >>> _best_means([Spread.of([0.5]), Spread.of([0.25]), None])
    [True, False, False]
    """
    means = [None if cell is None else round(cell.mean, 2) for cell in spreads]
    scores = [mean for mean in means if mean is not None]
    return [len(scores) > 1 and mean == max(scores) for mean in means]


def _chance(results: Sequence[Result], task: str, score: str, view: str, checkpoint: str) -> str:
    """Return the score of no information: the share of relevant items, or 50 for ROC-AUC; a range
    if the data differ.

    The chance level of NDCG depends on every query's gains and is not known here.
    """
    if score == "ndcg_graded":
        return "–"
    levels = [
        0.5 if score == "roc_auc_micro" else result.score(task, "chance", view, checkpoint)
        for result in results
        if task in result.tasks(view, checkpoint)
    ]
    if not levels:
        return "–"
    low, high = f"{100 * min(levels):.2f}", f"{100 * max(levels):.2f}"
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
    if missing := [result.name for result in results if result.status == "missing"]:
        parts.append(f"Not run to the end: {', '.join(missing)}.")
    return " ".join(parts)
