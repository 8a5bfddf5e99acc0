import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.report.chart import BOTTOM, LEFT, RIGHT, TOP, line_chart, ticks

NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(NUMBERS, NUMBERS, st.booleans())
def test_ticks_are_round_even_and_span_the_values(first, second, whole):
    low, high = min(first, second), max(first, second)
    found = ticks(low, high, whole)
    step = found[1] - found[0]
    margin = 1e-6 * max(1.0, abs(low), abs(high))
    assert found[0] <= low + margin
    assert found[-1] >= high - margin
    assert 2 <= len(found) <= 8
    assert all(math.isclose(b - a, step, rel_tol=1e-6, abs_tol=margin) for a, b in itertools.pairwise(found))
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(mantissa - round_one) for round_one in (1, 2, 5, 10)) < 1e-3
    assert not whole or all(tick == round(tick) for tick in found)


def test_points_are_placed_within_the_axes_in_proportion():
    chart = line_chart("loss", "epoch", {"a": [(1, 0.0), (2, 5.0), (3, 10.0)], "b": [(1, 10.0)]})
    middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    assert chart.lines[0].corners == f"{LEFT:g},{BOTTOM:g} {middle[0]:g},{middle[1]:g} {RIGHT:g},{TOP:g}"
    assert chart.lines[1].marks == [(LEFT, TOP)]
    assert (chart.y_ticks[0], chart.y_ticks[-1]) == ((BOTTOM, "0"), (TOP, "10"))
    assert [text for _, text in chart.x_ticks] == ["1", "2", "3"]
    assert "a: 0 to 10" in chart.said


def test_points_that_are_not_finite_are_left_out():
    chart = line_chart("loss", "epoch", {"a": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)], "b": [(1, math.nan)]})
    assert [len(line.corners.split()) for line in chart.lines] == [2]
    with pytest.raises(ValueError, match="nothing to draw"):
        line_chart("loss", "epoch", {"a": [(1, math.nan)]})


@given(st.lists(st.tuples(st.integers(0, 300), NUMBERS), min_size=1, max_size=30))
def test_every_corner_lies_within_the_axes(points):
    for line in line_chart("x", "y", {"a": sorted(points)}).lines:
        for corner in line.corners.split():
            x, y = map(float, corner.split(","))
            assert LEFT <= x <= RIGHT
            assert TOP - 0.1 <= y <= BOTTOM + 0.1
