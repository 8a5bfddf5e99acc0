"""What a proof shows: a table as lines and Markdown, JSON, and a plot of quality over bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.compression.proof import Proof, choose
from channelhash.compression.task import Task
from channelhash.compression.trials import Row
from channelhash.errors import InputError, argument
from channelhash.metrics.resampling import Interval, bootstrap_interval
from channelhash.utils.machine import usable_cores
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Doubles = NDArray[np.float64]

#: Endings of plots.
_ENDINGS = (".png", ".svg", ".pdf")
#: Look of what the market does, in no colour of our codes; a mark for each.
_RIVAL: dict[str, Any] = {
    "color": "black",
    "markerfacecolor": "white",
    "markersize": 7,
    "elinewidth": 1.2,
    "capsize": 3,
}
_MARKS = ("X", "P", "*")
#: Name of the plain quality that a choice goes by, in sentences.
_QUALITIES = {False: "R@10", True: "nDCG@10"}


class Report(NamedTuple):
    """A proof and what it was asked for.

    Attributes:
        task: the data.
        proof: all measurements.
        keep: wanted quality, as a share of what the floats are worth.
        seed: of all draws.
    """

    task: Task
    proof: Proof
    keep: float
    seed: int

    @property
    def chosen(self) -> Row | None:
        """The smallest code that is not significantly worse than wanted."""
        return choose(self.proof.rows, self.keep)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        floats, *_ = self.proof.rows
        centring = self.proof.centring
        chosen = self.chosen
        return {
            "vectors": len(self.task.vectors),
            "width": self.task.vectors.width,
            "questions": self.proof.n_questions,
            "held_out": self.task.held_out,
            "seed": self.seed,
            "cores": usable_cores(),
            "centred": self.proof.is_centred,
            "centring": None if centring is None else centring.as_dict(),
            "codes": [row.as_dict(floats) for row in self.proof.rows],
            "keep": 100 * self.keep,
            "chosen": None if chosen is None else chosen.name,
            "notes": self.proof.notes,
        }

    def title(self) -> str:
        """Return what was measured."""
        kind = "held out of them" if self.task.held_out else "given"
        return (
            f"{len(self.task.vectors):,} vectors of {self.task.vectors.width} numbers, "
            f"{self.proof.n_questions:,} questions ({kind}); R@10: of the ten nearest in floats; "
            f"mean and 95 % interval; seed {self.seed}, {usable_cores()} cores"
        )

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and cells."""
        floats, *_ = self.proof.rows
        header = ["", "bytes", "R@10, %"]
        if floats.scores.is_judged:
            header += ["nDCG@10, %", "less floats'", "R@100, %"]
        cells = [[row.name, f"{row.n_bytes:,}", *_figures(row, floats)] for row in self.proof.rows]
        return [*header, "ms a question", "s to build"], cells

    def lines(self) -> list[str]:
        """Return what the table says."""
        wanted = f"{100 * self.keep:g} %"
        chosen = self.chosen
        found = f"No code keeps {wanted}; give more bits"
        if chosen is not None:
            floats, *_ = self.proof.rows
            quality, whole = (
                f"{100 * np.nanmean(row.scores.quality):.1f}" for row in (chosen, floats)
            )
            found = (
                f"Smallest code that is not significantly worse than {wanted}: {chosen.name} "
                f"({chosen.n_bytes:,} bytes), {_QUALITIES[floats.scores.is_judged]} {quality} of "
                f"{whole}"
            )
        return [self._centring_line(), found]

    def _centring_line(self) -> str:
        """Return what second stages keep, and why."""
        kept = "less their mean" if self.proof.is_centred else "as they are"
        centring = self.proof.centring
        if centring is None:
            return f"Second stages keep vectors {kept}"
        n = f"{centring.questions:,}"
        asked = f"{n} other questions" if centring.is_apart else f"these {n} questions themselves"
        return (
            f"Second stages keep vectors {kept}: {centring.name} has "
            f"{_QUALITIES[centring.is_judged]} {100 * centring.plain.mean:.1f} with vectors as "
            f"they are and {100 * centring.centred.mean:.1f} less their mean "
            f"({_signed(centring.difference)}; on {asked})"
        )

    def markdown(self) -> str:
        """Return the table as GitHub's Markdown, below a caption and above what it says."""
        header, cells = self.table()
        rule = ["---", *["---:"] * (len(header) - 1)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *cells])
        return "\n\n".join([self.title(), table, *self.lines(), *self.proof.notes]) + "\n"


def _figures(row: Row, floats: Row) -> list[str]:
    """Return the cells of scores and times."""
    cells = [_percent(bootstrap_interval(row.scores.neighbours))]
    if floats.scores.is_judged:
        difference = row.scores.ndcg - floats.scores.ndcg
        cells.append(_percent(bootstrap_interval(row.scores.ndcg)))
        cells.append("" if row is floats else _signed(bootstrap_interval(difference)))
        cells.append(_percent(bootstrap_interval(row.scores.recall)))
    return [*cells, f"{row.question_ms:.2f}", f"{row.build_seconds:.1f}"]


def _percent(interval: Interval) -> str:
    mean, lower, upper = (100 * value for value in interval)
    return f"{mean:.1f} ({lower:.1f}–{upper:.1f})"


def _signed(interval: Interval) -> str:
    """Return a difference in percent.

    >>> _signed(Interval(-0.01, -0.02, 0.001))
    '−1.0, −2.0 to +0.1'
    """
    mean, lower, upper = (f"{100 * value:+.1f}".replace("-", "−") for value in interval)
    return f"{mean}, {lower} to {upper}"


def check_plot(path: Path) -> None:
    """Check before the work that a plot can be drawn into a file.

    Raises:
        InputError: it has another ending, or Matplotlib is missing.
    """
    if path.suffix not in _ENDINGS:
        raise InputError(f"{argument('plot')} {path}: a plot ends in {', '.join(_ENDINGS)}")
    with naming_extra("report"):
        import matplotlib  # noqa: F401


def write_plot(report: Report, path: Path) -> None:
    """Draw quality over bytes a vector, a panel for each quality, with 95 % intervals: a line a
    code length over its second stages, and a mark for each of the others.
    """
    from matplotlib.figure import Figure

    from channelhash.metrics.plots import legend_below, write_figure

    floats, *_ = report.proof.rows
    qualities = {"neighbours": "R@10, %"}
    if floats.scores.is_judged:
        qualities["ndcg"] = "nDCG@10, %"
    figure = Figure(figsize=(7.2, 1.4 + 3.4 * len(qualities)), layout="constrained")
    panels = figure.subplots(len(qualities), sharex=True, squeeze=False)[:, 0]
    for axes, (quality, label) in zip(panels, qualities.items(), strict=True):
        _draw(axes, report.proof.rows, quality)
        axes.set(ylabel=label)
    panels[-1].set(xlabel="bytes a vector")
    figure.suptitle(
        f"{len(report.task.vectors):,} vectors of {report.task.vectors.width} numbers, "
        f"{report.proof.n_questions:,} questions: mean and 95 % interval",
        fontsize=10,
    )
    legend_below(figure, panels[0])
    write_figure(figure, path.parent, path.stem, [path.suffix[1:]])


def _draw(axes: "Axes", rows: Sequence[Row], quality: str) -> None:
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    from channelhash.metrics.plots import line

    floats, *others = rows
    best = 100 * np.nanmean(getattr(floats.scores, quality))
    label = f"floats ({floats.n_bytes:,} bytes)"
    axes.axhline(best, color="0.35", linewidth=1, linestyle=(0, (1, 3)), label=label)
    for number, (label, group) in enumerate(_lines(others).items()):
        x, y, spread = _points(group, quality)
        line(axes, number, x, y, label, spread)
    rivals = [row for row in others if row.is_rival]
    for mark, row in zip(_MARKS, rivals, strict=True):
        x, y, spread = _points([row], quality)
        axes.errorbar(x, y, spread, fmt=mark, label=row.name, **_RIVAL)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)


def _points(rows: Sequence[Row], quality: str) -> tuple[_Doubles, _Doubles, _Doubles]:
    """Return bytes, means in percent, and how far their intervals reach down and up."""
    intervals = [bootstrap_interval(getattr(row.scores, quality)) for row in rows]
    means, lower, upper = 100 * np.array(intervals).T
    sizes = np.array([row.n_bytes for row in rows], np.float64)
    return sizes, means, np.array([means - lower, upper - means])


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return name and rows of each line: of each code, and of bits by distance of each method."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row.is_ours:
            code, _, _ = row.name.partition(",")
            lines.setdefault(f"{code}, second stages", []).append(row)
    for row in rows:
        if row.method and not row.is_ours:
            kind = "" if row.method == "itq" else f"{row.method} "
            lines.setdefault(f"{kind}bits by distance", []).append(row)
    return lines
