"""Plots of a grid's results: training, scores over the code length and over γ_w."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from channelhash.lab.experiments.results import Result
from channelhash.training.trainer import read_log, selection_score
from channelhash.utils.plotting import COLORS, arrow, legend_below, line

#: The lines of one run's ``log.jsonl``, an epoch each.
Log = Sequence[Mapping[str, Any]]
# Methods are moved aside by this much of a code length's place, so that error bars do not lie on one another.
_ASIDE = 0.05


def grid_plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Draw the plots that a grid's finished runs allow; none if none is finished.

    Args:
        results: of one data set.

    Returns:
        Name of the file -> plot: ``map-over-bits`` if there are several code lengths, ``gamma-w-k<bits>-kq<κ_q>`` where
        runs differ in γ_w alone, and ``training-k<bits>``.
    """
    finished = [result for result in results if result.status == "finished"]
    plots = {name: gamma_w_plot(sweep) for name, sweep in _sweeps(finished).items()}
    lengths = sorted({result.n_bits for result in finished})
    if len(lengths) > 1:
        plots["map-over-bits"] = code_length_plot(finished)
    for k in lengths:
        logs: dict[str, list[Log]] = {}
        for result in finished:
            if result.n_bits == k and (log := read_log(result.folder / "log.jsonl")):
                logs.setdefault(result.method, []).append(log)
        if logs:
            plots[f"training-k{k}"] = training_plot(logs)
    return plots


def training_plot(logs: Mapping[str, Sequence[Log]]) -> Figure:
    """Draw loss and validation mAP_T by epoch: of one run with a line a task, or of several methods with a line each.

    Args:
        logs: method -> logs of its seeds, see `trainer.read_log`; lines are means over seeds, shaded from the lowest to
            the highest. Losses of several methods have units of their own: each is a share of its first epoch's then.

    >>> [axes.get_title() for axes in training_plot({"SCH": [[{"loss": 2.0}, {"loss": 1.0}]]}).axes]
    ['Training loss', 'Validation']
    """
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    losses, scores = figure.subplots(2, sharex=True)
    alone = len(logs) == 1
    for number, (method, seeds) in enumerate(logs.items()):
        epochs = _epochs(seeds, "loss")
        values = np.array([[log[epoch]["loss"] for epoch in epochs] for log in seeds], dtype=float)
        _band(losses, number, epochs + 1, values if alone else 100 * values / values[:, :1], method)
        validated = _epochs(seeds, "validation")
        curves: dict[str, Callable[[dict[str, float]], float]] = {method: selection_score}
        if alone and len(validated):
            # Cross-modal tasks first, as in every report, so that a task looks the same in all plots.
            report = seeds[0][int(validated[0])]["validation"]
            tasks = sorted(report, key=lambda task: len(set(task.split("->"))) == 1)
            curves = {arrow(task): itemgetter(task) for task in tasks}
        for offset, (label, pick) in enumerate(curves.items()):
            values = np.array([[pick(log[epoch]["validation"]) for epoch in validated] for log in seeds], dtype=float)
            _band(scores, number + offset, validated + 1, 100 * values, label)
    losses.set_ylabel("mean loss of an epoch" if alone else "loss, % of the first epoch's")
    losses.set_title("Training loss")
    scores.set_ylabel(f"{_print_name('map_tie_aware')}, %")
    scores.set_title("Validation" if alone else "Validation, mean of the cross-modal tasks")
    scores.set_xlabel("epoch")
    scores.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
    if alone:
        figure.suptitle(next(iter(logs)), fontsize=10)
    legend_below(figure, scores if alone and scores.lines else losses)
    return figure


def code_length_plot(results: Sequence[Result]) -> Figure:
    """Draw tie-aware mAP (test queries, R, last epoch) over the code length, one panel a task and one line a method.

    Bars are sample std over seeds.

    Args:
        results: of one data set; finished ones are drawn.

    Raises:
        ValueError: no run is finished.
    """
    finished = _finished(results)
    tasks = finished[0].tasks()
    lengths = sorted({result.n_bits for result in finished})
    methods = list(dict.fromkeys(result.method for result in finished))
    figure, panels = task_panels(tasks)
    name = _print_name("map_tie_aware")
    for axes, task in zip(panels, tasks, strict=True):
        for number, method in enumerate(methods):
            groups = [[r.score(task) for r in finished if (r.method, r.n_bits) == (method, k)] for k in lengths]
            aside = _ASIDE * (number - (len(methods) - 1) / 2)
            means, spreads = _means(groups)
            line(axes, number, np.arange(len(lengths)) + aside, means, method, spreads)
        chance = np.mean([result.score(task, "chance") for result in finished])
        axes.set_title(f"{arrow(task)} (chance {100 * chance:.1f} %)", fontsize=10)
        axes.set_xticks(range(len(lengths)), [str(k) for k in lengths])
        axes.set_xlabel("code length k, bits")
        axes.set_ylabel(f"{name}, %")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{name} over code length, mean ± sample std of {_seeds(finished)}", fontsize=11)
    legend_below(figure, panels[0])
    return figure


def gamma_w_plot(results: Sequence[Result]) -> Figure:
    """Draw mAP_T and ROC-AUC (micro) of validation after the last epoch over γ_w, one line a task.

    Bars are sample std over seeds.

    Args:
        results: runs of DSCH that differ in nothing but γ_w and seed; finished ones are drawn.

    Raises:
        ValueError: no run is finished.
    """
    finished = _finished(results)
    values = sorted({float(result.settings["loss"]["gamma_w"]) for result in finished})
    figure = Figure(figsize=(6.4, 7), layout="constrained")
    panels = figure.subplots(2, sharex=True)
    for axes, name in zip(panels, ("map_tie_aware", "roc_auc_micro"), strict=True):
        for number, task in enumerate(finished[0].tasks("validation")):
            groups = [
                [r.score(task, name, "validation") for r in finished if r.settings["loss"]["gamma_w"] == value]
                for value in values
            ]
            means, spreads = _means(groups)
            line(axes, number, np.array(values), means, arrow(task), spreads)
        axes.set_ylabel(f"{_print_name(name)}, %")
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel("γ$_w$")
    panels[-1].set_xticks(values)
    figure.suptitle(
        f"DSCH over γ$_w$, k = {finished[0].n_bits}, validation set, mean ± sample std of {_seeds(finished)}",
        fontsize=11,
    )
    legend_below(figure, panels[0])
    return figure


def _finished(results: Sequence[Result]) -> list[Result]:
    finished = [result for result in results if result.status == "finished"]
    if not finished:
        raise ValueError("no run is finished: there is nothing to draw")
    return finished


def _sweeps(finished: Sequence[Result]) -> dict[str, list[Result]]:
    """Group validated runs that differ in nothing but γ_w and seed, by the name of their plot; two γ_w or more."""
    groups: dict[str, list[Result]] = {}
    for result in finished:
        loss = result.settings["loss"]
        if "gamma_w" in loss and "validation" in result.epochs["last"]:
            groups.setdefault(f"gamma-w-k{result.n_bits}-kq{loss['kappa_q']:g}", []).append(result)
    return {name: group for name, group in groups.items() if len({r.settings["loss"]["gamma_w"] for r in group}) > 1}


def _means(groups: Sequence[Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and sample std of each group in percent; NaN for the mean of no values and the std of one."""
    means = [100 * float(np.mean(group)) if group else float("nan") for group in groups]
    spreads = [100 * float(np.std(group, ddof=1)) if len(group) > 1 else float("nan") for group in groups]
    return np.array(means), np.array(spreads)


def _epochs(seeds: Sequence[Log], key: str) -> NDArray[np.int64]:
    """Return the epochs, from 0, in which every log has ``key``."""
    shared = set.intersection(*({number for number, entry in enumerate(log) if key in entry} for log in seeds))
    return np.array(sorted(shared), dtype=np.int64)


def _band(axes: Axes, number: int, x: NDArray[Any], values: NDArray[np.float64], label: str) -> None:
    """Draw the mean of ``(seeds, epochs)`` as a line, shaded from the lowest to the highest."""
    if not len(x):
        return
    line(axes, number, x, values.mean(axis=0), label)
    if len(values) > 1:
        color = COLORS[number % len(COLORS)]
        axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0)


def task_panels(tasks: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Make a panel for each task, two in a row.

    >>> figure, panels = task_panels(["image->text", "text->image", "text->text"])
    >>> len(panels)
    3
    """
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(max(4.6 * columns, 6), 3.2 * rows + 1), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    return figure, panels[: len(tasks)]


def _print_name(score: str) -> str:
    return {"map_tie_aware": "mAP$_T$", "roc_auc_micro": "ROC-AUC (micro)", "ndcg": "NDCG"}.get(score, score)


def _seeds(results: Sequence[Result]) -> str:
    """Say how many seeds the means are over."""
    groups: dict[tuple[Any, ...], int] = {}
    for result in results:
        key = (result.method, result.n_bits, result.settings["loss"].get("gamma_w"))
        groups[key] = groups.get(key, 0) + 1
    few, many = min(groups.values()), max(groups.values())
    return f"{few} seed{'s' * (few > 1)}" if few == many else f"{few} to {many} seeds"
