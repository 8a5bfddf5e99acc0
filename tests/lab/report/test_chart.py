import math
import xml.etree.ElementTree as ET

import pytest

from channelhash.lab.report.chart import line_chart
from lab.report.html_page import read_page

SERIES = {"<a> & b": [(1, 0.0), (2, 5.0), (3, 10.0)], "c": [(1, 10.0), (2, 2.5)]}


def words(svg: str) -> str:
    return " ".join(ET.fromstring(svg).itertext())


def test_a_chart_is_one_element_with_its_labels_as_text():
    chart = line_chart("loss", "epoch", SERIES)
    assert ET.fromstring(chart.svg).tag.endswith("svg")
    for text in ("epoch", "<a> & b", "c"):
        assert text in words(chart.svg)
    assert chart.description == "loss over epoch. <a> & b: 0 to 10; c: 10 to 2.5."
    assert line_chart("loss", "epoch", SERIES) == chart


def test_charts_of_one_page_do_not_share_ids_or_style():
    charts = [line_chart(title, "epoch", SERIES) for title in ("loss", "mAP")]
    page = read_page(f"<style></style>{charts[0].svg}{charts[1].svg}")  # ids are unique, addresses within the page
    assert page.ids
    assert page.tags.count("style") == 1


def test_the_horizontal_axis_counts_whole_epochs():
    ticks, _, _ = words(line_chart("loss", "epoch", {"a": [(1, 1.0), (2, 2.0)]}).svg).partition("epoch")
    assert ticks.split() == ["1", "2"]


def test_points_that_are_not_finite_are_left_out():
    finite = line_chart("loss", "epoch", {"a": [(1, 1.0), (4, 2.0)]})
    gaps = line_chart("loss", "epoch", {"a": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)], "b": [(1, math.nan)]})
    assert gaps == finite
    with pytest.raises(ValueError, match="nothing to draw"):
        line_chart("loss", "epoch", {"a": [(1, math.nan)]})
