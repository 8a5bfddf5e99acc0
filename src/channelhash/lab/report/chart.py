"""Line charts as numbers in a drawing of fixed size; the page's template turns them into SVG, in the page's colours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Size of the drawing, and of the part within the axes.
WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 448.0, 12.0, 236.0
# Marks on one line, so that they do not run into a band.
_MARKS = 12

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line: its name, its corners ``"x,y x,y …"``, and where its marks are, in the drawing."""

    name: str
    corners: str
    marks: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A drawing: ticks are (place, text); ``said`` tells in words what is drawn."""

    title: str
    x_label: str
    lines: Sequence[Line]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    said: str


def line_chart(title: str, x_label: str, series: Mapping[str, Points]) -> Chart:
    """Draw ``series``: name -> (x, y) by rising x; points that are not finite are left out.

    Raises:
        ValueError: there is no finite point.
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(x + y)] for name, points in series.items()}
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        raise ValueError(f"{title}: there is nothing to draw")
    xs = [x for points in finite.values() for x, _ in points]
    ys = [y for points in finite.values() for _, y in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs), whole=True), ticks(min(ys), max(ys))
    # The lines may end between two ticks across, but not above the last one.
    low_x, high_x = min(xs), max(max(xs), min(xs) + 1)
    low_y, high_y = y_ticks[0], y_ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - low_x) / (high_x - low_x), (y - low_y) / (high_y - low_y)
        return round(LEFT + across * (RIGHT - LEFT), 1), round(BOTTOM - up * (BOTTOM - TOP), 1)

    lines = []
    for name, points in finite.items():
        placed = [place(x, y) for x, y in points]
        step = max(1, math.ceil(len(placed) / _MARKS))
        lines.append(Line(name, " ".join(f"{x:g},{y:g}" for x, y in placed), placed[::step]))
    ends = "; ".join(f"{name}: {points[0][1]:.4g} to {points[-1][1]:.4g}" for name, points in finite.items())
    return Chart(
        title,
        x_label,
        lines,
        [(place(x, low_y)[0], f"{x:g}") for x in x_ticks if low_x <= x <= high_x],
        [(place(low_x, y)[1], f"{y:g}") for y in y_ticks],
        f"{title} over {x_label}. {ends}.",
    )


def ticks(low: float, high: float, whole: bool = False, about: int = 5) -> list[float]:
    """Round numbers 1, 2 or 5 · 10ⁿ apart from at most ``low`` to at least ``high``, about ``about`` of them.

    Args:
        low: smallest value.
        high: largest value, >= ``low``.
        whole: only whole numbers.
        about: how many steps to aim at.

    >>> ticks(0.3, 1.9), ticks(1, 12, whole=True)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [0.0, 5.0, 10.0, 15.0])
    """
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * about >= span * 0.999)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]
