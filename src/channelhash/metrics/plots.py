"""Plots of an evaluation as PNG files: precision against recall, the lookup by radius, distances of
pairs.

All plots have one look: readable in grey, on paper and by colour-blind people. Colours are Okabe
and Ito's, which colour-blind people tell apart; each line has its own dash and mark as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from channelhash.metrics.histogram import HammingHistogram
from channelhash.utils.files import atomic_path

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", ":")
_MARKS = ("o", "s", "^", "D", "v")
# Marks on one line, so that those of long curves do not run into a band.
_MARK_COUNT = 16
_RESOLUTION = 120

_Histograms = Mapping[str, HammingHistogram]


def write_plots(histograms: _Histograms, folder: Path, title: str) -> list[Path]:
    """Draw the plots of all tasks."""
    figures = {
        "precision-recall": _precision_recall_plot(histograms),
        "radius": _radius_plot(histograms),
        "distances": _distances_plot(histograms),
    }
    paths = []
    for name, figure in figures.items():
        figure.suptitle(f"{title}\n{_sizes(histograms)}", fontsize=10)
        paths += write_figure(figure, folder, name, ["png"])
    return paths


def _precision_recall_plot(histograms: _Histograms) -> Figure:
    """Plot precision against recall of the lookup within radius 0 … k, over all queries together.

    >>> import channelhash as ch
    >>> histogram = ch.metrics.HammingHistogram(np.array([[1, 3]]), np.array([[1, 1]]))
    >>> len(_precision_recall_plot({"image->text": histogram}).axes)
    1
    """
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots()
    for number, (task, histogram) in enumerate(histograms.items()):
        curve = histogram.precision_recall_curve()
        line(axes, number, 100 * curve.recall, 100 * curve.precision, arrow(task))
    first = next(iter(histograms.values()))
    # Precision at recall 1, which is what any order gets: the same in all tasks, which have the
    # same labels.
    chance = 100 * first.relevant.sum() / first.total.sum()
    axes.axhline(chance, color="0.35", linewidth=1, linestyle=(0, (1, 3)), label="chance")
    _percent_axis(axes, "precision, %")
    axes.set(
        xlabel="recall, %",
        xlim=(0, 102),
        title=f"Precision and recall within radius 0 … {first.n_bits} bits",
    )
    legend_below(figure, axes)
    return figure


def _percent_axis(axes: Axes, label: str) -> None:
    """Give ``axes`` a vertical axis of percent, from 0 to 100."""
    axes.set(ylim=(0, 102), ylabel=label)
    axes.grid(alpha=0.3)


def _radius_plot(histograms: _Histograms) -> Figure:
    """Plot precision, recall and share of empty answers of the lookup within each radius, means
    over queries.

    >>> import channelhash as ch
    >>> histogram = ch.metrics.HammingHistogram(np.array([[1, 3]]), np.array([[1, 1]]))
    >>> len(_radius_plot({"image->text": histogram}).axes)
    3
    """
    figure = Figure(figsize=(6.4, 8.6), layout="constrained")
    panels = figure.subplots(3, sharex=True)
    farthest = max(
        int(np.flatnonzero(counts.total.any(axis=0))[-1]) for counts in histograms.values()
    )
    for number, (task, histogram) in enumerate(histograms.items()):
        for axes, values in zip(panels, histogram.by_radius(), strict=True):
            line(axes, number, np.arange(farthest + 1), 100 * values[: farthest + 1], arrow(task))
    for axes, title, what in zip(
        panels,
        (
            "Precision by radius (an empty answer counts as 0)",
            "Recall by radius",
            "Queries that find nothing",
        ),
        ("mean precision, %", "mean recall, %", "share of queries, %"),
        strict=True,
    ):
        _percent_axis(axes, what)
        axes.set_title(title)
    panels[-1].set_xlabel("Hamming radius, bits")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, panels[0])
    return figure


def _distances_plot(histograms: _Histograms) -> Figure:
    """Plot the distances of pairs that share a label and of those that share none, one panel a
    task.

    >>> import channelhash as ch
    >>> histogram = ch.metrics.HammingHistogram(np.array([[1, 3]]), np.array([[1, 1]]))
    >>> len(_distances_plot({"image->text": histogram}).axes)
    1
    """
    columns = min(2, len(histograms))
    rows = -(-len(histograms) // columns)
    figure = Figure(figsize=(max(5.2 * columns, 6.4), 3 * rows + 1), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (task, histogram) in zip(panels.ravel(), histograms.items(), strict=False):
        relevant = histogram.relevant.sum(axis=0)
        irrelevant = histogram.total.sum(axis=0) - relevant
        edges = np.arange(histogram.n_bits + 2) - 0.5
        for pairs, color, face, hatch, label in (
            (relevant, COLORS[0], (COLORS[0], 0.35), None, "pairs that share a label"),
            (irrelevant, COLORS[1], "none", "///", "pairs that share none"),
        ):
            shares = 100 * pairs / max(1, int(pairs.sum()))
            axes.stairs(
                shares,
                edges,
                fill=True,
                facecolor=face,
                edgecolor=color,
                hatch=hatch,
                linewidth=1.5,
                label=label,
            )
        axes.set_title(arrow(task))
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in panels[:, 0]:
        axes.set_ylabel("share of such pairs, %")
    # those with none below them
    for axes in panels.ravel()[max(0, len(histograms) - columns) : len(histograms)]:
        axes.set_xlabel("Hamming distance, bits")
        axes.tick_params(labelbottom=True)
    for axes in panels.ravel()[len(histograms) :]:
        axes.set_visible(False)
    legend_below(figure, panels[0, 0])
    return figure


def _sizes(histograms: _Histograms) -> str:
    first = next(iter(histograms.values()))
    skipped = f" ({first.skipped} of them without a relevant item)" if first.skipped else ""
    return (
        f"{first.n_bits} bits, {len(first.total):,} queries{skipped}, "
        f"{int(first.total[0].sum()):,} items"
    )


def line(
    axes: Axes,
    number: int,
    x: np.ndarray,
    y: np.ndarray,
    label: str,
    spread: np.ndarray | None = None,
) -> None:
    """Draw one curve; the ``number``-th has the same colour, dash and mark in every plot.

    >>> axes = Figure().subplots()
    >>> line(axes, 0, np.arange(3), np.arange(3), "SCH")
    >>> axes.lines[0].get_label()
    'SCH'
    """
    color = COLORS[number % len(COLORS)]
    dash = _DASHES[number % len(_DASHES)]
    mark = _MARKS[number % len(_MARKS)]
    (curve,) = axes.plot(
        x, y, color=color, linestyle=dash, marker=mark, linewidth=1.6, markersize=4.5, label=label
    )
    curve.set_markevery(max(1, len(x) // _MARK_COUNT))
    if spread is not None:
        axes.errorbar(x, y, spread, fmt="none", ecolor=color, elinewidth=1.2, capsize=3)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend where it hides no curve, however many there are."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(handles)))


def arrow(task: str) -> str:
    """Return a task's name as it is printed.

    >>> arrow("image->text")
    'image → text'
    """
    return task.replace("->", " → ")


def write_figure(
    figure: Figure, folder: Path, name: str, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure as ``folder/name.png`` and ``folder/name.svg``; the same figure gives the same
    bytes.
    """
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        # An SVG has no date, and its ids are drawn from the file's name.
        metadata = {"Date": None} if kind == "svg" else {}
        with atomic_path(path) as temporary, mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(temporary, format=kind, dpi=_RESOLUTION, metadata=metadata)
    return paths
