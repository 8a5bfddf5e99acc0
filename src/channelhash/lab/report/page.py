"""The parts of a page, its template, and scores as such parts: beside chance, and as tables. All
text is escaped.
"""

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from channelhash.codes import CodeSet
from channelhash.lab.experiments.results import cross_tasks
from channelhash.metrics import bootstrap_interval
from channelhash.metrics.histogram import hamming_histogram
from channelhash.metrics.plots import COLORS, arrow, legend_below, line
from channelhash.utils.seeds import generator

#: Grey that shows on white and on black paper.
_GREY = "0.55"


class _Chart(NamedTuple):
    """A drawing: its title, the ``<svg>`` element, and what it shows in words."""

    title: str
    svg: Markup
    description: str


class Mark(NamedTuple):
    """A value of a `level_chart`, in percent.

    Attributes:
        x: where it is.
        name: what it is, for readers who hear the page.
        interval: ends of a line through it.
    """

    x: float
    name: str
    interval: tuple[float, float] | None = None


def line_chart(
    title: str, x_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> _Chart | None:
    """Draw ``series``: name -> (count x, y) by rising x, without points that are not finite; None
    where no point is.

    >>> line_chart("Mean loss", "epoch", {"loss": [(1, 2.5), (2, 0.5)]}).description
    'Mean loss over epoch. loss: 2.5 to 0.5.'
    """
    finite = {}
    for name, points in series.items():
        drawn = [(x, y) for x, y in points if math.isfinite(x + y)]
        if drawn:
            finite[name] = drawn
    if not finite:
        return None
    figure, axes = _paper(3.0)
    for number, (name, points) in enumerate(finite.items()):
        x, y = np.array(points, dtype=float).T
        line(axes, number, x, y, name)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = "; ".join(
        f"{name}: {points[0][1]:.4g} to {points[-1][1]:.4g}" for name, points in finite.items()
    )
    return _finish(figure, axes, title, f"{title} over {x_label}. {ends}.")


def level_chart(
    title: str, rows: Mapping[str, Sequence[Mark]], chance: Mapping[str, tuple[float, float]]
) -> _Chart:
    """Draw values side by side, a row a name, with the interval of chance as a band.

    >>> marks = [Mark(40.0, "seed 0: 40.0")]
    >>> level_chart("mAP, %", {"DSCH": marks}, {"DSCH": (30.0, 31.0)}).description
    'mAP, %. DSCH: seed 0: 40.0; chance 30.0 to 31.0.'
    """
    figure, axes = _paper(1.2 + 0.36 * len(rows))
    lines = []
    xs: list[float] = []
    places: list[int] = []
    for place, (name, marks) in enumerate(rows.items()):
        lines.append(f"{name}: {', '.join(mark.name for mark in marks)}")
        if name in chance:
            low, high = chance[name]
            _draw_chance(axes, place, low, high)
            lines[place] += f"; chance {low:.1f} to {high:.1f}"
        for mark in marks:
            xs.append(mark.x)
            places.append(place)
            if mark.interval:
                axes.plot(mark.interval, (place, place), color=COLORS[0], linewidth=2)
    axes.scatter(xs, places, 36, COLORS[0], label="run", zorder=3)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    return _finish(figure, axes, title, f"{title}. {'. '.join(lines)}.")


def _draw_chance(axes: Axes, place: int, low: float, high: float) -> None:
    """Draw the band of chance of a row; the first stands in the legend."""
    axes.barh(
        place,
        high - low,
        0.8,
        low,
        color=_GREY,
        alpha=0.5,
        edgecolor=_GREY,
        linewidth=2,
        label=None if axes.containers else "chance",
    )


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
    """Return a figure as an ``<svg>`` element of an HTML page, transparent, with text as text."""
    if len(axes.get_legend_handles_labels()[0]) > 1:
        legend_below(figure, axes)
        figure.legends[0].set_frame_on(False)  # its paper would be white
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    # Names of groups such as axes_1, which nothing refers to, would be the same in two drawings.
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)
    return _Chart(title, Markup(svg), description)  # drawn by matplotlib, which escapes the texts


#: Text of a cell that is flush right.
_NUMBER = re.compile(r"[-−+]?[\d,.]+( %)?|–")


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Listing(NamedTuple):
    """Lines to copy, or a file as it is."""

    text: str


class Table(NamedTuple):
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
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.header)
        return [set(column) != {"–"} and all(map(_NUMBER.fullmatch, column)) for column in columns]


class Plot(NamedTuple):
    """An image within the page; ``uri`` as `data_uri` returns it."""

    uri: str
    caption: str

    @classmethod
    def read_all(cls, folder: Path) -> list[Self]:
        """Read the PNG files of a folder, by name; none if the folder is missing."""
        paths = sorted(folder.glob("*.png"))
        return [
            cls(data_uri(path.read_bytes(), "image/png"), re.sub("[-_]", " ", path.stem))
            for path in paths
        ]


class Charts(NamedTuple):
    """Charts side by side."""

    charts: Sequence[_Chart]


class Card(NamedTuple):
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


class Answers(NamedTuple):
    """Queries, each with the items that it found: one row of cards a query."""

    caption: str
    rows: Sequence[Sequence[Card]]


#: What a section consists of; the template tells blocks apart by the names of their classes.
Block = Text | Listing | Table | Plot | Charts | Answers


class Section(NamedTuple):
    """A heading, which the table of contents names, and what is below it."""

    title: str
    blocks: Sequence[Block]


class Page(NamedTuple):
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

    def render(self) -> str:
        r"""Return one HTML document; half a character (a lone surrogate), which JSON can hold,
        becomes "?".

        >>> "<h1>a?</h1>" in Page("a\ud800", "", [], [], []).render()
        True
        >>> "<h1>a &amp; b</h1>" in Page("a & b", "", [], [], []).render()
        True
        """
        templates = Environment(
            loader=PackageLoader("channelhash.lab.report", "."),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        sections = [section for section in self.sections if section.blocks]
        html = templates.get_template("page.html.j2").render(page=self, sections=sections)
        return html.encode("utf-8", "replace").decode()


def data_uri(content: bytes, media_type: str) -> str:
    """Return an address that holds ``content``.

    >>> data_uri(b"abc", "image/png")
    'data:image/png;base64,YWJj'
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


#: Shuffles of the labels: a score without information lies above their range once in 40 times, as
#: it lies above a 95 % interval.
_SHUFFLES = 39


class Standing(NamedTuple):
    """The score of a task beside chance, shares in [0, 1].

    Attributes:
        task: e.g. ``"image->text"``.
        score: tie-aware mAP; without labels Recall@10.
        interval: its 95 % interval over queries.
        chance: the 95 % interval of what codes without information get.
        measure: what the score is.

    >>> Standing("image->text", 0.40, (0.35, 0.45), (0.38, 0.41)).at_chance
    True
    """

    task: str
    score: float
    interval: tuple[float, float]
    chance: tuple[float, float]
    measure: str = "mAP"

    @property
    def at_chance(self) -> bool:
        """Whether chance reaches the score."""
        return self.score <= self.chance[1]

    @classmethod
    def by_labels(cls, query: CodeSet, database: CodeSet) -> list[Self]:
        """Score the cross-modal tasks by mAP; chance is the range of the same codes with the
        database's labels shuffled.

        Costs 40 histograms a task, 2 s for 2,000 queries of 18,000 items. Empty without labels.

        >>> packed = np.array([[0], [255]], np.uint8)
        >>> codes = CodeSet(["a", "b"], {"image": packed}, np.eye(2), n_bits=8)
        >>> Standing.by_labels(codes, codes)[0].score
        1.0
        """
        if query.labels is None or database.labels is None:
            return []
        standings = []
        for task in tasks_between(query, database):
            a, b = task.split("->")
            codes = query.codes[a], database.codes[b], query.labels
            histogram = hamming_histogram(*codes, database.labels, query.n_bits)
            if not histogram.counted:
                continue
            random = generator(0, "chance", task)
            draws = (random.permutation(database.labels) for _ in range(_SHUFFLES))
            shuffled = [
                hamming_histogram(*codes, labels, query.n_bits).mean_average_precision()
                for labels in draws
            ]
            mean, lower, upper = bootstrap_interval(histogram.average_precision(), resamples=1000)
            standings.append(cls(task, mean, (lower, upper), (min(shuffled), max(shuffled))))
        return standings

    @classmethod
    def by_recall(cls, tasks: Mapping[str, Mapping[str, Any]]) -> list[Self]:
        """Score tasks by Recall@10 of the query's own counterpart; intervals are binomial.

        >>> report = {"recall_at": {"10": 0.5}, "recall_items": 100, "queries": 100}
        >>> Standing.by_recall({"image->text": report})[0].at_chance
        False
        """
        standings = []
        for task, report in tasks.items():
            if "recall_items" in report:
                score = report["recall_at"]["10"]
                chance = min(1.0, 10 / report["recall_items"])
                random = generator(0, "chance", task)
                spread = [
                    random.binomial(report["queries"], p, 10_000) / report["queries"]
                    for p in (score, chance)
                ]
                interval, level = (np.quantile(draws, (0.025, 0.975)).tolist() for draws in spread)
                standings.append(cls(task, score, tuple(interval), tuple(level), "Recall@10"))
        return standings


def tasks_between(query: CodeSet, database: CodeSet) -> list[str]:
    """Return the cross-modal tasks of two code sets, or all if there are none."""
    return cross_tasks(map("->".join, product(query.codes, database.codes)))


def percent(share: tuple[float, float]) -> tuple[float, float]:
    """Return an interval of shares in percent."""
    return 100 * share[0], 100 * share[1]


def verdict(standings: Sequence[Standing]) -> str:
    """Say in words how a run stands; nothing if that is unknown.

    >>> verdict([Standing("image->text", 0.40, (0.35, 0.45), (0.38, 0.41))])
    'This run is at chance: image → text gets 40.0 %, chance 38.0 to 41.0 %.'
    """
    if not standings:
        return ""
    low = [standing for standing in standings if standing.at_chance]
    if not low:
        return "This run is better than chance."
    lines = []
    for standing in low:
        least, most = percent(standing.chance)
        score = f"{arrow(standing.task)} gets {100 * standing.score:.1f} %"
        lines.append(f"{score}, chance {least:.1f} to {most:.1f} %")
    return f"This run is {'at' if low == standings else 'partly at'} chance: {'; '.join(lines)}."


def print_score(value: Any) -> str:
    """Print a score: any float in percent, a count with separators, a dash for what is undefined.

    >>> print_score(0.81407), print_score(1500), print_score(None), print_score(float("nan"))
    ('81.41', '1,500', '–', '–')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{100 * value:.2f}"
