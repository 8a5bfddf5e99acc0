"""Line charts as inline SVG: transparent, with text that takes the page's colour."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from channelhash.utils.plotting import inline_svg, legend_below, line

Points = Sequence[tuple[float, float]]
# Grey that shows on white and on black paper.
_GREY = "0.55"


@dataclass(frozen=True)
class Chart:
    """A drawing: its title, the ``<svg>`` element, and what it shows in words."""

    title: str
    svg: Markup
    description: str


def line_chart(title: str, x_label: str, series: Mapping[str, Points]) -> Chart:
    """Draw ``series``: name -> (x, y) by rising x; points that are not finite are left out.

    Raises:
        ValueError: there is no finite point.

    >>> line_chart("Mean loss", "epoch", {"loss": [(1, 2.5), (2, 0.5)]}).description
    'Mean loss over epoch. loss: 2.5 to 0.5.'
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(x + y)] for name, points in series.items()}
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        raise ValueError(f"{title}: there is nothing to draw")
    figure = Figure(figsize=(6.4, 3.9), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(finite.items()):
        x, y = np.array(points, dtype=float).T
        line(axes, number, x, y, name)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(color=_GREY)
    axes.spines[:].set_color(_GREY)
    axes.grid(color=_GREY, alpha=0.3)
    if len(finite) > 1:
        legend_below(figure, axes)
        figure.legends[0].set_frame_on(False)  # its paper would be white
    ends = "; ".join(f"{name}: {points[0][1]:.4g} to {points[-1][1]:.4g}" for name, points in finite.items())
    # Drawn by matplotlib, which escapes the texts.
    return Chart(title, Markup(inline_svg(figure, title)), f"{title} over {x_label}. {ends}.")
