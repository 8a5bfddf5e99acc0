"""One look for all plots: readable in grey, on paper and by colour-blind people; written as PNG and SVG.

Colours are Okabe and Ito's, which colour-blind people tell apart; each line has its own dash and mark as well. Surfaces
and heat maps use cividis, whose lightness alone carries the value.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from channelhash.utils.files import atomic_path

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
COLOR_MAP = "cividis"
_DASHES = ("-", "--", "-.", ":")
_MARKS = ("o", "s", "^", "D", "v")
# Marks on one line, so that those of long curves do not run into a band.
_MARK_COUNT = 16
_RESOLUTION = 120


def line(axes: Axes, number: int, x: np.ndarray, y: np.ndarray, label: str, spread: np.ndarray | None = None) -> None:
    """Draw one curve; the ``number``-th has the same colour, dash and mark in every plot.

    >>> axes = Figure().subplots()
    >>> line(axes, 0, np.arange(3), np.arange(3), "SCH")
    >>> axes.lines[0].get_label()
    'SCH'
    """
    color = COLORS[number % len(COLORS)]
    axes.plot(
        x,
        y,
        color=color,
        linestyle=_DASHES[number % len(_DASHES)],
        marker=_MARKS[number % len(_MARKS)],
        markevery=max(1, len(x) // _MARK_COUNT),
        markersize=4.5,
        linewidth=1.6,
        label=label,
    )
    if spread is not None:
        axes.errorbar(x, y, spread, fmt="none", ecolor=color, elinewidth=1.2, capsize=3)


def percent_axis(axes: Axes, label: str) -> None:
    """Give ``axes`` a vertical axis of percent, from 0 to 100.

    >>> axes = Figure().subplots()
    >>> percent_axis(axes, "mAP, %")
    >>> axes.get_ylabel()
    'mAP, %'
    """
    axes.set_ylim(0, 102)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def chance_line(axes: Axes, percent: float) -> None:
    """Draw what no information gets, dotted.

    >>> axes = Figure().subplots()
    >>> chance_line(axes, 12.5)
    >>> len(axes.lines)
    1
    """
    axes.axhline(percent, color="0.35", linewidth=1, linestyle=(0, (1, 3)), label="chance")


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


def write_figure(figure: Figure, folder: Path, name: str, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure as ``folder/name.png`` and ``folder/name.svg``; the same figure gives the same bytes."""
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        # An SVG has no date, and its ids are drawn from the file's name.
        metadata = {"Date": None} if kind == "svg" else {}
        with atomic_path(path) as temporary, mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(temporary, format=kind, dpi=_RESOLUTION, metadata=metadata)
    return paths


def inline_svg(figure: Figure, name: str) -> str:
    """Return a figure as an ``<svg>`` element of an HTML page, transparent, with text as text.

    >>> inline_svg(Figure(), "empty")[:4]
    '<svg'
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # Names of groups such as axes_1, which nothing refers to, would be the same in two drawings.
    return re.sub(r' id="[\w.]+_\d+"', "", svg)
