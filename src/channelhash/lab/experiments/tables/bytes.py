"""Table and plot of methods at equal bytes an item."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from channelhash.lab.experiments.results import Result, measured
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import Spread, best_means, print_spread, spread
from channelhash.utils.plotting import arrow, legend_below, line

#: What was measured of a run, by its name for `measured`.
MEASURED = "bytes"
#: The code alone, and its first answers ordered anew by stored real values; in words.
STAGES = {"code": "code alone", "two_stages": "second stage"}
# Score -> as it is printed.
_SCORES = {"map": "mAP", "recall_at_10": "R@10"}
_CAPTION = (
    "In percent, mean ± sample standard deviation over {seeds}, each with a split of its own; best mean of each "
    "number of bytes in bold. mAP: tie-aware, by shared labels, test queries over R. R@10: expected share of queries "
    "whose own counterpart is among the first ten of all items. Second stage: the first 500 ordered anew by int8 "
    "values, which take so many bytes more: of learned codes the model's outputs, of others the whole common space. "
    "What is not learned starts from canonical variates of the training rows. µs: processor time of one search for the "
    "first ten among all items, in a batch of all queries; the least over seeds and three repetitions, mean of both "
    "directions."
)

# (nominal bytes, method) -> what was measured with each seed.
_Measured = Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]


def bytes_tables(results: Sequence[Result]) -> list[Table]:
    """Return the scores of each method at each number of bytes: a block a number of bytes, a row a method."""
    by_size = _read(results)
    columns = [(stage, score, task) for stage in STAGES for score, task in product(_SCORES, _tasks(by_size))]
    rows: list[tuple[Cell, ...]] = []
    for n_bytes in sorted({n_bytes for n_bytes, _ in by_size}):
        methods = [method for size, method in by_size if size == n_bytes]
        cells = {column: _cells([by_size[n_bytes, method] for method in methods], *column) for column in columns}
        for place, method in enumerate(methods):
            seeds, row = by_size[n_bytes, method], [Cell(str(n_bytes)), Cell(method)]
            for stage in STAGES:
                row.append(Cell(str(seeds[0]["bytes"]) if stage == "code" else f"+{seeds[0]['second_stage_bytes']}"))
                row += [cells[column][place] for column in columns if column[0] == stage]
                row.append(Cell(f"{1e6 * min(np.mean([*each[stage]['seconds'].values()]) for each in seeds):.0f}"))
            rows.append(tuple(row))
    header = ["Bytes", "Method"]
    for stage, words in STAGES.items():
        names = [f"{_SCORES[score]} {arrow(task)}" for of, score, task in columns if of == stage]
        after = f", {words}" * (stage != "code")
        header += [f"{words}, bytes", *(f"{name}{after}" for name in (*names, "µs"))]
    n_seeds = len({result.seed for result in results if result.settings})
    missing = [f"{each.name} ({each.error or each.status})" for each in results if not measured(each, MEASURED)]
    caption = _CAPTION.format(seeds=f"{n_seeds} seed{'s' * (n_seeds > 1)}") + (
        f" Not measured: {', '.join(missing)}." if missing else ""
    )
    return [Table("bytes", "Equal bytes an item", tuple(header), tuple(rows), caption)]


def bytes_plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Draw both scores over the bytes of the code: a row a stage, a column a score and task, a line a method."""
    by_size = _read(results)
    if not by_size:
        return {}
    methods = list(dict.fromkeys(method for _, method in by_size))
    columns = list(product(_SCORES, _tasks(by_size)))
    figure = Figure(figsize=(3.4 * len(columns), 8), layout="constrained")
    panels = figure.subplots(len(STAGES), len(columns), squeeze=False, sharey="col")
    for (stage, words), axes_of_stage in zip(STAGES.items(), panels, strict=True):
        for (score, task), axes in zip(columns, axes_of_stage, strict=True):
            for number, method in enumerate(methods):
                points = {
                    seeds[0]["bytes"]: _spread(seeds, stage, score, task)
                    for (_, name), seeds in sorted(by_size.items())
                    if name == method
                }
                means, stds = (np.array([getattr(point, key) for point in points.values()]) for key in ("mean", "std"))
                line(axes, number, np.array(list(points)), means, method, stds)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.set_title(f"{_SCORES[score]} {arrow(task)}, {words}", fontsize=10)
            axes.set_xlabel("bytes of the code")
            axes.grid(alpha=0.3)
        axes_of_stage[0].set_ylabel("%")
    legend_below(figure, panels[0][0])
    return {"bytes": figure}


def _read(results: Sequence[Result]) -> _Measured:
    """Read what was measured, by bytes and then in the order of the methods."""
    by_size: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for result in results:
        if figures := measured(result, MEASURED):
            by_size.setdefault((result.n_bits // 8, result.method), []).append(figures)
    return by_size


def _tasks(by_size: _Measured) -> list[str]:
    return next((list(seeds[0]["code"]["map"]) for seeds in by_size.values()), [])


def _spread(seeds: Sequence[Mapping[str, Any]], stage: str, score: str, task: str) -> Spread:
    return spread([each[stage][score][task] for each in seeds])


def _cells(methods: Sequence[Sequence[Mapping[str, Any]]], stage: str, score: str, task: str) -> list[Cell]:
    """Return the cells of one score for methods at one number of bytes."""
    spreads = [_spread(seeds, stage, score, task) for seeds in methods]
    bold = best_means(spreads)
    return [Cell(print_spread(each), best) for each, best in zip(spreads, bold, strict=True)]
