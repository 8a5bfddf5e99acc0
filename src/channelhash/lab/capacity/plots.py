"""Plots of measured growth, of cost over the size of the collection, and of simulated completion times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from channelhash.lab.capacity.cost import Need, plan
from channelhash.lab.capacity.measured_growth import JOBS, Measurement
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
    """``scale-growth``, ``scale-cost`` and ``scale-completion``, each as PNG and SVG."""
    drawn = {
        "scale-growth": growth_plot(measurements),
        "scale-cost": cost_plot(need, rates),
        "scale-completion": completion_plot(outcomes),
    }
    return [path for name, figure in drawn.items() for path in write_figure(figure, folder, name)]


def growth_plot(measurements: Sequence[Measurement]) -> Figure:
    """Measured core-seconds of each job over the number of items."""
    figure, axes = _log_log("items", "core-seconds")
    for number, job in enumerate(JOBS):
        found = sorted((one for one in measurements if one.job == job), key=lambda one: one.items)
        if len(found) == 1:
            continue  # a rate, not a growth
        x = np.array([one.items for one in found], dtype=float)
        line(axes, number, x, np.array([one.core_seconds for one in found]), job)
    axes.set_title("Measured growth")
    legend_below(figure, axes)
    return figure


def cost_plot(need: Need, rates: Mapping[str, float]) -> Figure:
    """Memory of an index, core-hours and serving nodes, computed for 10⁶ … 10¹⁰ items with all else as in ``need``."""
    sizes = np.logspace(6, 10, 17)
    plans = [plan(replace(need, items=float(n)), rates) for n in sizes]
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    memory, work, nodes = figure.subplots(1, 3)
    for number, store in enumerate(("embedded", "milvus")):
        line(memory, number, sizes, np.array([found["bytes"][store] for found in plans]) / 1e9, store)
    for number, job in enumerate(("encode", "evaluate", "index")):
        line(work, number, sizes, np.array([found["core_hours"][job] for found in plans]), job)
    for number, reason in enumerate(("by_memory", "by_rate")):
        line(nodes, number, sizes, np.array([found["nodes"][reason] for found in plans]), reason.replace("_", " "))
    for axes, label in ((memory, "GB of memory, one copy"), (work, "core-hours"), (nodes, "nodes")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("items")
        axes.set_title(label)
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def completion_plot(outcomes: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Share of simulated runs that are over by a time, a line a policy."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for number, (policy, runs) in enumerate(outcomes.items()):
        minutes = np.sort([run.seconds / 60 for run in runs])
        lost = np.mean([run.lost for run in runs])
        share = 100 * np.arange(1, len(minutes) + 1) / len(minutes)
        line(axes, number, minutes, share, policy + (f" ({lost:.1f} tasks lost)" if lost else ""))
    axes.set_xlabel("minutes")
    axes.set_ylabel("runs that are over, %")
    axes.set_title("Simulated completion of a job")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    return figure


def _log_log(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes
