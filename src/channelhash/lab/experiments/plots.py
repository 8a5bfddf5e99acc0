"""Plots of a grid's results: training, scores over the code length and over γ_w."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from channelhash.lab.experiments.results import Result
from channelhash.metrics.plots import COLORS, arrow, legend_below, line
from channelhash.training.validation import read_log, selection_score

# The lines of one run's ``log.jsonl``, an epoch each.
_Log = Sequence[Mapping[str, Any]]


# Score -> as it is printed.
_NAMES = {"map_tie_aware": "mAP$_T$", "roc_auc_micro": "ROC-AUC (micro)"}


def grid_plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Draw the plots that a grid's finished runs allow; none if none is finished."""
    finished = [result for result in results if result.status == "finished"]
    plots = {name: _gamma_w_plot(sweep) for name, sweep in _sweeps(finished).items()}
    lengths = sorted({result.n_bits for result in finished})
    if len(lengths) > 1:
        plots["map-over-bits"] = _code_length_plot(finished)
    for k in lengths:
        logs: dict[str, list[_Log]] = {}
        for result in finished:
            if result.n_bits == k and (log := read_log(result.folder / "log.jsonl")):
                logs.setdefault(result.method, []).append(log)
        if logs:
            plots[f"training-k{k}"] = _training_plot(logs)
    return plots


def _training_plot(logs: Mapping[str, Sequence[_Log]]) -> Figure:
    """Draw loss and validation mAP_T, mean of the cross-modal tasks, by epoch: a line a method.

    >>> [axes.get_title() for axes in _training_plot({"SCH": [[{"loss": 2.0}, {"loss": 1.0}]]}).axes]
    ['Training loss', 'Validation, mean of the cross-modal tasks']
    """
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    losses, scores = figure.subplots(2, sharex=True)
    for number, (method, seeds) in enumerate(logs.items()):
        epochs, validated = _epochs(seeds, "loss"), _epochs(seeds, "validation")
        values = np.array([[log[epoch]["loss"] for epoch in epochs] for log in seeds], dtype=float)
        _band(losses, number, epochs + 1, 100 * values / values[:, :1], method)
        means = [
            [selection_score(log[epoch]["validation"]) for epoch in validated] for log in seeds
        ]
        _band(scores, number, validated + 1, 100 * np.array(means, dtype=float), method)
    losses.set(ylabel="loss, % of the first epoch's", title="Training loss")
    title = "Validation, mean of the cross-modal tasks"
    scores.set(xlabel="epoch", ylabel=f"{_NAMES['map_tie_aware']}, %", title=title)
    scores.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
    legend_below(figure, losses)
    return figure


def _code_length_plot(finished: Sequence[Result]) -> Figure:
    """Draw tie-aware mAP (test queries, R, last epoch) over the code length, one panel a task and
    one line a method.

    Bars are sample std over seeds.
    """
    tasks = finished[0].tasks()
    lengths = sorted({result.n_bits for result in finished})
    methods = list(dict.fromkeys(result.method for result in finished))
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(max(4.6 * columns, 6), 3.2 * rows + 1), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    for axes, task in zip(panels, tasks, strict=False):
        for number, method in enumerate(methods):
            groups = [
                [r.score(task) for r in finished if (r.method, r.n_bits) == (method, k)]
                for k in lengths
            ]
            # A little aside, so that error bars do not lie on one another.
            aside = 0.05 * (number - (len(methods) - 1) / 2)
            means, spreads = _means(groups)
            line(axes, number, np.arange(len(lengths)) + aside, means, method, spreads)
        chance = np.mean([result.score(task, "chance") for result in finished])
        axes.set_title(f"{arrow(task)} (chance {100 * chance:.1f} %)", fontsize=10)
        axes.set_xticks(range(len(lengths)), [str(k) for k in lengths])
        axes.set(xlabel="code length k, bits", ylabel=f"{_NAMES['map_tie_aware']}, %")
        axes.grid(alpha=0.3)
    figure.suptitle(
        f"{_NAMES['map_tie_aware']} over code length, mean ± sample std over seeds", fontsize=11
    )
    legend_below(figure, panels[0])
    return figure


def _gamma_w_plot(finished: Sequence[Result]) -> Figure:
    """Draw mAP_T and ROC-AUC (micro) of validation after the last epoch over γ_w, one line a task.

    Bars are sample std over seeds.
    """
    values = sorted({float(result.settings["loss"]["gamma_w"]) for result in finished})
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    panels = figure.subplots(2, sharex=True)
    for axes, (score, name) in zip(panels, _NAMES.items(), strict=True):
        for number, task in enumerate(finished[0].tasks("validation")):
            groups = [
                [
                    r.score(task, score, "validation")
                    for r in finished
                    if r.settings["loss"]["gamma_w"] == value
                ]
                for value in values
            ]
            means, spreads = _means(groups)
            line(axes, number, np.array(values), means, arrow(task), spreads)
        axes.set_ylabel(f"{name}, %")
        axes.grid(alpha=0.3)
    panels[-1].set(xlabel="γ$_w$", xticks=values)
    figure.suptitle(
        f"DSCH, k = {finished[0].n_bits}, validation set, mean ± sample std over seeds", fontsize=11
    )
    legend_below(figure, panels[0])
    return figure


def _sweeps(finished: Sequence[Result]) -> dict[str, list[Result]]:
    """Group validated runs that differ in nothing but γ_w and seed, by the name of their plot; two
    γ_w or more.
    """
    groups: dict[str, list[Result]] = {}
    for result in finished:
        loss = result.settings["loss"]
        if "gamma_w" in loss and "validation" in result.epochs["last"]:
            groups.setdefault(f"gamma-w-k{result.n_bits}-kq{loss['kappa_q']:g}", []).append(result)
    return {
        name: group
        for name, group in groups.items()
        if len({r.settings["loss"]["gamma_w"] for r in group}) > 1
    }


def _means(groups: Sequence[Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and sample std of each group in percent; NaN for the mean of no values and the
    std of one.
    """
    means = [100 * float(np.mean(group)) if group else float("nan") for group in groups]
    spreads = [
        100 * float(np.std(group, ddof=1)) if len(group) > 1 else float("nan") for group in groups
    ]
    return np.array(means), np.array(spreads)


def _epochs(seeds: Sequence[_Log], key: str) -> NDArray[np.int64]:
    """Return the epochs, from 0, in which every log has ``key``."""
    shared = set.intersection(
        *({number for number, entry in enumerate(log) if key in entry} for log in seeds)
    )
    return np.array(sorted(shared), dtype=np.int64)


def _band(
    axes: Axes, number: int, x: NDArray[Any], values: NDArray[np.float64], label: str
) -> None:
    """Draw the mean of ``(seeds, epochs)`` as a line, shaded from the lowest to the highest."""
    if not len(x):
        return
    line(axes, number, x, values.mean(axis=0), label)
    if len(values) > 1:
        color = COLORS[number % len(COLORS)]
        axes.fill_between(
            x, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0
        )
