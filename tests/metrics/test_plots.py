"""The plots show the figures that the histograms give, and say which task is which."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from tests.lab.test_code_health import collection

import channelhash as ch
from channelhash.metrics.plots import (
    _distances_plot,
    _precision_recall_plot,
    _radius_plot,
    write_plots,
)
from channelhash.metrics.report import count_tasks

TASKS = ["image → text", "text → image", "image → image", "text → text"]


@pytest.fixture(scope="module")
def histograms():
    return count_tasks(collection(20, 12, 4, seed=0), collection(90, 12, 4, seed=1))


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_precision_and_recall_are_those_of_every_task(histograms):
    figure = _precision_recall_plot(histograms)
    (axes,) = figure.axes
    *lines, chance = axes.lines
    for line, histogram in zip(lines, histograms.values(), strict=True):
        curve = histogram.precision_recall_curve()
        np.testing.assert_allclose(line.get_xdata(), 100 * curve.recall)
        np.testing.assert_allclose(line.get_ydata(), 100 * curve.precision)
    first = histograms["image->text"]
    assert chance.get_ydata()[0] == pytest.approx(100 * first.relevant.sum() / (20 * 90))
    assert legend_of(figure) == [*TASKS, "chance"]
    # different without colour
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == len(TASKS)


def test_lookups_are_those_within_each_radius(histograms):
    figure = _radius_plot(histograms)
    for row, (histogram, label) in enumerate(zip(histograms.values(), TASKS, strict=True)):
        for axes, figure_name in zip(figure.axes, ("precision", "recall", "empty"), strict=True):
            line = axes.lines[row]
            assert line.get_label() == label
            expected = [
                getattr(histogram.within_radius(radius), figure_name) for radius in line.get_xdata()
            ]
            np.testing.assert_allclose(line.get_ydata(), 100 * np.array(expected), atol=1e-9)
    assert legend_of(figure) == TASKS


def test_distances_have_a_panel_a_task_and_add_up_to_all_pairs(histograms):
    figure = _distances_plot(histograms)
    assert [axes.get_title() for axes in figure.axes] == TASKS
    for axes, histogram in zip(figure.axes, histograms.values(), strict=True):
        relevant, irrelevant = (patch.get_data().values for patch in axes.patches)
        for drawn, counts in (
            (relevant, histogram.relevant),
            (irrelevant, histogram.total - histogram.relevant),
        ):
            np.testing.assert_allclose(drawn, 100 * counts.sum(axis=0) / counts.sum())
    assert legend_of(figure) == ["pairs that share a label", "pairs that share none"]


@pytest.mark.parametrize("k", [1, 200])
def test_files_are_pictures_and_nothing_else_is_left(tmp_path, k):
    query, database = collection(5, k, 4, seed=0), collection(30, k, 4, seed=1)
    paths = write_plots(count_tasks(query, database), tmp_path / "new" / "plots", "theirs.mat")
    assert sorted((tmp_path / "new" / "plots").iterdir()) == sorted(paths)
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert min(picture.size) > 400
            colors = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        assert len(colors) > 20


def test_one_task_in_which_everything_is_relevant_is_drawn(tmp_path):
    codes = ch.codes.pack(np.eye(4, dtype=bool))
    items = ch.CodeSet(list("abcd"), {"text": codes}, np.ones((4, 1), bool), 4)
    histograms = count_tasks(items, items)
    _, irrelevant = _distances_plot(histograms).axes[0].patches
    assert not irrelevant.get_data().values.any()
    assert len(write_plots(histograms, tmp_path, "all alike")) == 3
