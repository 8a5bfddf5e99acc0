"""The parts of a page, and its template. All text is escaped."""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from channelhash.utils.plotting import COLORS, inline_svg, legend_below, line

_Points = Sequence[tuple[float, float]]
# Grey that shows on white and on black paper.
_GREY = "0.55"


@dataclass(frozen=True)
class _Chart:
    """A drawing: its title, the ``<svg>`` element, and what it shows in words."""

    title: str
    svg: Markup
    description: str


@dataclass(frozen=True)
class Mark:
    """A value of a `level_chart`, in percent.

    Attributes:
        x: where it is.
        name: what it is, for readers who hear the page.
        interval: ends of a line through it.
    """

    x: float
    name: str
    interval: tuple[float, float] | None = None


def line_chart(title: str, x_label: str, series: Mapping[str, _Points]) -> _Chart | None:
    """Draw ``series``: name -> (count x, y) by rising x, without points that are not finite; None where no point is.

    >>> line_chart("Mean loss", "epoch", {"loss": [(1, 2.5), (2, 0.5)]}).description
    'Mean loss over epoch. loss: 2.5 to 0.5.'
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(x + y)] for name, points in series.items()}
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        return None
    figure, axes = _paper(3.0)
    for number, (name, points) in enumerate(finite.items()):
        x, y = np.array(points, dtype=float).T
        line(axes, number, x, y, name)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = "; ".join(f"{name}: {points[0][1]:.4g} to {points[-1][1]:.4g}" for name, points in finite.items())
    return _finish(figure, axes, title, f"{title} over {x_label}. {ends}.")


def level_chart(title: str, rows: Mapping[str, Sequence[Mark]], chance: Mapping[str, tuple[float, float]]) -> _Chart:
    """Draw values side by side, a row a name, with the interval of chance as a band.

    Args:
        title: what the values are.
        rows: name -> its values; at least one in all.
        chance: name -> interval of chance in percent, where it is known.

    >>> level_chart("mAP, %", {"DSCH": [Mark(40.0, "seed 0: 40.0")]}, {"DSCH": (30.0, 31.0)}).description
    'mAP, %. DSCH: seed 0: 40.0; chance 30.0 to 31.0.'
    """
    figure, axes = _paper(1.2 + 0.36 * len(rows))
    marks = [(place, mark) for place, values in enumerate(rows.values()) for mark in values]
    said = [f"{name}: {', '.join(mark.name for mark in values)}" for name, values in rows.items()]
    bands = {place: chance[name] for place, name in enumerate(rows) if name in chance}
    for place, (low, high) in bands.items():
        label = "chance" if place == min(bands) else None
        axes.barh(place, high - low, 0.8, low, color=_GREY, alpha=0.5, edgecolor=_GREY, linewidth=2, label=label)
        said[place] += f"; chance {low:.1f} to {high:.1f}"
    for place, mark in marks:
        if mark.interval:
            axes.plot(mark.interval, (place, place), color=COLORS[0], linewidth=2)
    x, y = np.array([(mark.x, place) for place, mark in marks], dtype=float).T
    axes.scatter(x, y, 36, COLORS[0], label="run", zorder=3)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    return _finish(figure, axes, title, f"{title}. {'. '.join(said)}.")


def _paper(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, height), layout="constrained")
    axes = figure.subplots()
    axes.tick_params(color=_GREY)
    axes.spines[:].set_color(_GREY)
    axes.set_axisbelow(True)
    axes.use_sticky_edges = False
    axes.grid(color=_GREY, alpha=0.3)
    return figure, axes


def _finish(figure: Figure, axes: Axes, title: str, description: str) -> _Chart:
    if len(axes.get_legend_handles_labels()[0]) > 1:
        legend_below(figure, axes)
        figure.legends[0].set_frame_on(False)  # its paper would be white
    # Drawn by matplotlib, which escapes the texts.
    return _Chart(title, Markup(inline_svg(figure, title)), description)


_NUMBER = re.compile(r"[-−+]?[\d,.]+( %)?|–")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Listing:
    """Lines to copy, or a file as it is."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows as long as the header; the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds only numbers (or dashes), which are flush right.

        >>> Table(["run", "mAP"], [("a", "50.0"), ("b", "–")]).numeric
        [False, True]
        """
        columns = [[row[i] for row in self.rows] for i in range(len(self.header))]
        return [all(_NUMBER.fullmatch(cell) for cell in column) and set(column) != {"–"} for column in columns]


@dataclass(frozen=True)
class Plot:
    """An image within the page; ``uri`` as `data_uri` returns it."""

    uri: str
    caption: str


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    charts: Sequence[_Chart]


@dataclass(frozen=True)
class Card:
    """A query or an item that it found.

    Attributes:
        heading: "query", or the distance.
        uri: its image; empty without one.
        text: its words; empty without them.
        detail: a line in small print: labels, id.
        right: whether the item is relevant; None for a query and where that is unknown.
    """

    heading: str
    uri: str
    text: str
    detail: str
    right: bool | None = None


@dataclass(frozen=True)
class Answers:
    """Queries, each with the items that it found: one row of cards a query."""

    caption: str
    rows: Sequence[Sequence[Card]]


# The template tells blocks apart by the names of their classes.
Block = Text | Listing | Table | Plot | Charts | Answers


class Section(NamedTuple):
    """A heading, which the table of contents names, and what is below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: name of the run or grid.
        subtitle: in one line.
        notes: what a reader must know first: what is missing, what failed.
        facts: (name, value): the few numbers that most readers look for.
        sections: the rest; those without blocks are left out.
        verdict: how good it is, in a sentence.
        at_chance: the verdict is bad news.
    """

    title: str
    subtitle: str
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    verdict: str = ""
    at_chance: bool = False


def render(page: Page) -> str:
    r"""Render the page as one HTML document; half a character (a lone surrogate), which JSON can hold, becomes "?".

    >>> "<h1>a?</h1>" in render(Page("a\ud800", "", [], [], []))
    True
    >>> "<h1>a &amp; b</h1>" in render(Page("a & b", "", [], [], []))
    True
    """
    templates = Environment(
        loader=PackageLoader("channelhash.lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [section for section in page.sections if section.blocks]
    html = templates.get_template("page.html.j2").render(page=page, sections=sections)
    return html.encode("utf-8", "replace").decode()


def data_uri(content: bytes, media_type: str) -> str:
    """Return an address that holds ``content``.

    >>> data_uri(b"abc", "image/png")
    'data:image/png;base64,YWJj'
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def plots_in(folder: Path) -> list[Plot]:
    """Read the PNG files of a folder, by name; none if the folder is missing."""
    return [
        Plot(data_uri(path.read_bytes(), "image/png"), path.stem.replace("-", " ").replace("_", " "))
        for path in sorted(folder.glob("*.png"))
    ]
