import math
import xml.etree.ElementTree as ET

import pytest

from channelhash.lab.report.page import Mark, level_chart, line_chart
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


def titles(svg: str) -> list[str]:
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("title")]


def test_every_point_says_its_value_on_hover():
    assert titles(line_chart("loss", "epoch", SERIES).svg) == [
        *(f"<a> & b: {y:.4g} at epoch {x}" for x, y in SERIES["<a> & b"]),
        *(f"c: {y:.4g} at epoch {x}" for x, y in SERIES["c"]),
    ]
    long = titles(line_chart("loss", "bits", {"a": [(x, x / 7) for x in range(1000)]}).svg)
    assert 50 <= len(long) <= 100
    assert long[0] == "a: 0 at bits 0"
    assert titles(line_chart("Precision, %", "recall, %", {"a": [(1 / 3, 50.0)]}).svg) == ["a: 50 at recall 0.3333"]


def test_levels_are_marked_beside_the_interval_of_chance():
    rows = {
        "<DSCH>": [Mark(40.0, "seed 0 & <1>: 40", (35.0, 45.0)), Mark(70.0, "own: 70")],
        "LSH": [Mark(33.0, "lsh: 33")],
    }
    chart = level_chart("mAP, %", rows, {"<DSCH>": (30.0, 31.0)})
    assert sorted(titles(chart.svg)) == sorted(mark.tip for marks in rows.values() for mark in marks)
    for word in ("<DSCH>", "LSH", "run", "chance"):
        assert word in words(chart.svg)
    assert "chance" not in words(level_chart("mAP, %", rows, {}).svg)
    assert "<DSCH>: seed 0 & <1>: 40, own: 70; chance 30.0 to 31.0" in chart.description
