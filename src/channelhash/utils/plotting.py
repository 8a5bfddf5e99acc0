"""One look for all plots: readable in grey, on paper and by colour-blind people; written as PNG and SVG.

Colours are Okabe and Ito's, which colour-blind people tell apart; each line has its own dash and mark as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from channelhash.utils.files import atomic_path

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
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
    style: dict[str, Any] = {"linestyle": _DASHES[number % len(_DASHES)], "marker": _MARKS[number % len(_MARKS)]}
    style["markevery"] = max(1, len(x) // _MARK_COUNT)
    axes.plot(x, y, color=color, linewidth=1.6, markersize=4.5, label=label, **style)
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


def write_figure(figure: Figure, folder: Path, name: str, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure as ``folder/name.png`` and ``folder/name.svg``; the same figure gives the same bytes."""
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        # An SVG has no date, and its ids are drawn from the file's name.
        metadata = {"Date": None} if kind == "svg" else {}
        with atomic_path(path) as temporary, mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(temporary, format=kind, dpi=_RESOLUTION, metadata=metadata)
    return paths
