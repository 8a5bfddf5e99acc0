"""Plots of measured growth, of cost over the size of the collection, and of simulated completion times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from channelhash.lab.capacity.cost import plan
from channelhash.lab.capacity.measured_growth import JOBS, Measurement
from channelhash.lab.capacity.plans import Need
from channelhash.lab.capacity.simulation import Outcome
from channelhash.utils.plotting import legend_below, line, write_figure

_SIZE = (6.4, 4.4)


def write_plots(
    folder: Path,
    measurements: Sequence[Measurement],
    need: Need,
    rates: Mapping[str, float],
    outcomes: Mapping[str, Sequence[Outcome]],
) -> list[Path]:
    """Write ``scale-growth``, ``scale-cost`` and ``scale-completion``, each as PNG and SVG."""
    plots = {
        "scale-growth": growth_plot(measurements),
        "scale-cost": cost_plot(need, rates),
        "scale-completion": completion_plot(outcomes),
    }
    return [path for name, figure in plots.items() for path in write_figure(figure, folder, name)]


def growth_plot(measurements: Sequence[Measurement]) -> Figure:
    """Draw the measured core-seconds of each job over the number of items.

    >>> from channelhash.lab.capacity.measured_growth import read_growth
    >>> growth_plot(read_growth()).axes[0].get_title()
    'Measured growth'
    """
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for number, job in enumerate(JOBS):
        points = sorted((row.items, row.core_seconds) for row in measurements if row.job == job)
        if len(points) > 1:  # one point is a rate, not a growth
            x, y = np.array(points, dtype=float).T
            line(axes, number, x, y, job)
    axes.set(xscale="log", yscale="log", xlabel="items", ylabel="core-seconds", title="Measured growth")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return figure


def cost_plot(need: Need, rates: Mapping[str, float]) -> Figure:
    """Draw memory of an index, core-hours and serving nodes for 10⁶ … 10¹⁰ items, with all else as in ``need``."""
    sizes = np.logspace(6, 10, 17)
    plans = [plan(replace(need, items=float(n)), rates) for n in sizes]
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    memory, work, nodes = figure.subplots(1, 3)
    for number, store in enumerate(("embedded", "milvus")):
        line(memory, number, sizes, np.array([result["bytes"][store] for result in plans]) / 1e9, store)
    for number, job in enumerate(("encode", "evaluate", "index")):
        line(work, number, sizes, np.array([result["core_hours"][job] for result in plans]), job)
    for number, reason in enumerate(("by_memory", "by_rate")):
        line(nodes, number, sizes, np.array([result["nodes"][reason] for result in plans]), reason.replace("_", " "))
    for axes, label in ((memory, "GB of memory, one copy"), (work, "core-hours"), (nodes, "nodes")):
        axes.set(xscale="log", yscale="log", xlabel="items", title=label)
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def completion_plot(outcomes: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Draw the share of simulated runs that are over by a time, a line a policy.

    >>> runs = [Outcome(60.0, 0, 0.0), Outcome(120.0, 0, 0.0)]
    >>> len(completion_plot({"retry": runs}).axes[0].lines)
    1
    """
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for number, (policy, runs) in enumerate(outcomes.items()):
        minutes = np.sort([run.seconds / 60 for run in runs])
        lost = np.mean([run.lost for run in runs])
        percent = 100 * np.arange(1, len(minutes) + 1) / len(minutes)
        line(axes, number, minutes, percent, policy + (f" ({lost:.1f} tasks lost)" if lost else ""))
    axes.set(xlabel="minutes", ylabel="runs that are over, %", title="Simulated completion of a job")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return figure
