"""Plots of a grid's results: training, scores over the code length and over γ_w."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from channelhash.lab.experiments.results import Result, by_method, finished
from channelhash.lab.experiments.tables import Spread
from channelhash.metrics.plots import COLORS, arrow, legend_below, line
from channelhash.training.validation import read_log, selection_score

#: The lines of one run's ``log.jsonl``, an epoch each.
_Log = Sequence[Mapping[str, Any]]
#: Score -> as it is printed.
_NAMES = {"map_tie_aware": "mAP$_T$", "roc_auc_micro": "ROC-AUC (micro)"}


def grid_plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Draw the plots that a grid's finished runs allow; none if none is finished."""
    runs = finished(results)
    plots = {name: _gamma_w_plot(sweep) for name, sweep in _sweeps(runs).items()}
    lengths = sorted({run.n_bits for run in runs})
    if len(lengths) > 1:
        plots["map-over-bits"] = _code_length_plot(runs)
    for n_bits in lengths:
        logs = _logs([run for run in runs if run.n_bits == n_bits])
        if logs:
            plots[f"training-k{n_bits}"] = _training_plot(logs)
    return plots


def _logs(runs: Sequence[Result]) -> dict[str, list[_Log]]:
    """Read the logs of each method's runs."""
    logs: dict[str, list[_Log]] = {}
    for run in runs:
        log = read_log(run.folder / "log.jsonl")
        if log:
            logs.setdefault(run.method, []).append(log)
    return logs


def _training_plot(logs: Mapping[str, Sequence[_Log]]) -> Figure:
    """Draw loss and validation mAP_T, mean of the cross-modal tasks, by epoch: a line a method.

    >>> log = [{"loss": 2.0}, {"loss": 1.0}]
    >>> [axes.get_title() for axes in _training_plot({"SCH": [log]}).axes]
    ['Training loss', 'Validation, mean of the cross-modal tasks']
    """
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    losses, scores = figure.subplots(2, sharex=True)
    for number, (method, seeds) in enumerate(logs.items()):
        epochs, values = _curves(seeds, "loss", float)
        _band(losses, number, epochs, 100 * values / values[:, :1], method)
        epochs, means = _curves(seeds, "validation", selection_score)
        _band(scores, number, epochs, 100 * means, method)
    losses.set(ylabel="loss, % of the first epoch's", title="Training loss")
    title = "Validation, mean of the cross-modal tasks"
    scores.set(xlabel="epoch", ylabel=f"{_NAMES['map_tie_aware']}, %", title=title)
    scores.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
    legend_below(figure, losses)
    return figure


def _code_length_plot(runs: Sequence[Result]) -> Figure:
    """Draw tie-aware mAP (test queries, R, last epoch) over the code length, one panel a task and
    one line a method.

    Bars are sample std over seeds.
    """
    tasks = runs[0].tasks()
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(max(4.6 * columns, 6), 3.2 * rows + 1), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    for axes, task in zip(panels, tasks, strict=False):
        _draw_task(axes, runs, task)
    figure.suptitle(
        f"{_NAMES['map_tie_aware']} over code length, mean ± sample std over seeds", fontsize=11
    )
    legend_below(figure, panels[0])
    return figure


def _draw_task(axes: Axes, runs: Sequence[Result], task: str) -> None:
    """Draw the scores of a task over the code length, one line a method."""
    lengths = sorted({run.n_bits for run in runs})
    methods = by_method(runs)
    for number, (method, of_method) in enumerate(methods.items()):
        scores: dict[int, list[float]] = {n_bits: [] for n_bits in lengths}
        for run in of_method:
            scores[run.n_bits].append(run.score(task))
        # A little aside, so that error bars do not lie on one another.
        aside = 0.05 * (number - (len(methods) - 1) / 2)
        _line(axes, number, np.arange(len(lengths)) + aside, scores, method)
    chance = np.mean([run.score(task, "chance") for run in runs])
    axes.set_title(f"{arrow(task)} (chance {100 * chance:.1f} %)", fontsize=10)
    axes.set_xticks(range(len(lengths)), list(map(str, lengths)))
    axes.set(xlabel="code length k, bits", ylabel=f"{_NAMES['map_tie_aware']}, %")
    axes.grid(alpha=0.3)


def _gamma_w_plot(runs: Sequence[Result]) -> Figure:
    """Draw mAP_T and ROC-AUC (micro) of validation after the last epoch over γ_w, one line a task.

    Bars are sample std over seeds.
    """
    values = sorted({_gamma_w(run) for run in runs})
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    panels = figure.subplots(2, sharex=True)
    for axes, (score, name) in zip(panels, _NAMES.items(), strict=True):
        for number, task in enumerate(runs[0].tasks("validation")):
            scores: dict[float, list[float]] = {value: [] for value in values}
            for run in runs:
                scores[_gamma_w(run)].append(run.score(task, score, "validation"))
            _line(axes, number, np.array(values), scores, arrow(task))
        axes.set_ylabel(f"{name}, %")
        axes.grid(alpha=0.3)
    panels[-1].set(xlabel="γ$_w$", xticks=values)
    figure.suptitle(
        f"DSCH, k = {runs[0].n_bits}, validation set, mean ± sample std over seeds", fontsize=11
    )
    legend_below(figure, panels[0])
    return figure


def _gamma_w(run: Result) -> float:
    return float(run.settings["loss"]["gamma_w"])


def _sweeps(runs: Sequence[Result]) -> dict[str, list[Result]]:
    """Group validated runs that differ in nothing but γ_w and seed, by the name of their plot; two
    γ_w or more.
    """
    groups: dict[str, list[Result]] = {}
    for run in runs:
        loss = run.settings["loss"]
        if "gamma_w" in loss and "validation" in run.epochs["last"]:
            groups.setdefault(f"gamma-w-k{run.n_bits}-kq{loss['kappa_q']:g}", []).append(run)
    return {name: group for name, group in groups.items() if len(set(map(_gamma_w, group))) > 1}


def _line(
    axes: Axes,
    number: int,
    x: NDArray[Any],
    scores: Mapping[Any, Sequence[float]],
    label: str,
) -> None:
    """Draw the mean of each group of scores, in percent, and bars of their sample std; a gap for no
    score, no bar for one.
    """
    spreads = [Spread.of(group) for group in scores.values()]
    means = [spread.mean if spread else np.nan for spread in spreads]
    stds = [spread.std if spread else np.nan for spread in spreads]
    line(axes, number, x, np.array(means), label, np.array(stds))


def _curves(
    seeds: Sequence[_Log], key: str, value_of: Callable[[Any], float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the epochs, from 1, in which every log has ``key``, and its values ``(seeds,
    epochs)``.
    """
    shared = set(range(len(seeds[0])))
    for log in seeds:
        shared &= {number for number, entry in enumerate(log) if key in entry}
    epochs = sorted(shared)
    values = np.zeros((len(seeds), len(epochs)))
    for row, log in zip(values, seeds, strict=True):
        row[:] = [value_of(log[epoch][key]) for epoch in epochs]
    return np.array(epochs, dtype=np.int64) + 1, values


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
