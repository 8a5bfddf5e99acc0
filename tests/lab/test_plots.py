"""The plots show the results' own figures, and a folder gets those that its runs allow."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from channelhash.lab.experiments.plots import _code_length_plot, _gamma_w_plot, _training_plot, grid_plots
from channelhash.lab.experiments.results import Result
from lab.grids import CROSS_MODAL, made_result


def result(method: str, k: int, seed: int, value: float, gamma_w: float = 8.0, folder: Path = Path("none")) -> Result:
    shares, loss = dict(zip(CROSS_MODAL, (value, value + 0.01), strict=True)), {"gamma_w": gamma_w, "kappa_q": 0.01}
    views = ("test", "validation")
    made = made_result(method, seed, shares, k, loss=loss, roc_auc=value / 2, views=views, chance=0.25)
    return replace(made, folder=folder)


def log(losses: list[float], scores: dict[int, float]) -> list[dict]:
    entries = [{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses)]
    for epoch, score in scores.items():
        entries[epoch]["validation"] = {"text->text": 0.9, "image->text": score, "text->image": score + 0.1}
    return entries


def test_code_lengths_show_means_and_sample_std_of_each_method():
    values = {("A", 16): [0.5, 0.6, 0.7], ("A", 32): [0.6, 0.8], ("B", 16): [0.4]}
    results = [result(m, k, seed, v) for (m, k), group in values.items() for seed, v in enumerate(group)]
    figure = _code_length_plot(results)
    for number, axes in enumerate(figure.axes):
        lines = {line.get_label(): line for line in axes.lines}
        np.testing.assert_allclose(lines["A"].get_ydata(), [60 + number, 70 + number])
        np.testing.assert_allclose(lines["B"].get_ydata(), [40 + number, np.nan])
        halves = [(bar[1, 1] - bar[0, 1]) / 2 for bar in axes.collections[0].get_segments()]
        np.testing.assert_allclose(halves, [10, 100 * np.std([0.6, 0.8], ddof=1)])
        assert "chance 25.0 %" in axes.get_title()
    styles = {(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len([style for style, _ in styles if style != "None"]) == 2


def test_gamma_w_has_a_panel_for_each_figure():
    results = [result("DSCH", 32, seed, 0.5 + g / 100 + seed / 100, g) for g in (2.0, 4.0, 8.0) for seed in range(2)]
    precision, area = _gamma_w_plot(results).axes
    np.testing.assert_allclose(precision.lines[0].get_xdata(), [2, 4, 8])
    np.testing.assert_allclose(precision.lines[0].get_ydata(), [52.5, 54.5, 58.5])
    np.testing.assert_allclose(area.lines[0].get_ydata(), [26.25, 27.25, 29.25])


def test_several_methods_are_drawn_as_shares_and_means_over_seeds():
    logs = {"A": [log([4, 2, 1], {1: 0.5}), log([2, 1], {1: 0.7})], "B": [log([10, 10], {})]}
    losses, scores = _training_plot(logs).axes
    np.testing.assert_allclose(losses.lines[0].get_ydata(), [100, 50])  # the epochs that both seeds have
    np.testing.assert_allclose(losses.lines[1].get_ydata(), [100, 100])
    (line,) = scores.lines
    np.testing.assert_allclose(line.get_ydata(), [65])  # mean over two seeds of the mean of the cross-modal tasks


def test_a_grid_gets_the_plots_that_its_runs_allow(tmp_path):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log([2, 1], {1: 0.5})))
    results = [result("DSCH", 32, 0, 0.5, g, tmp_path) for g in (2.0, 8.0)]
    assert set(grid_plots(results)) == {"gamma-w-k32-kq0.01", "training-k32"}
    assert grid_plots([Result("a", tmp_path, "A", {}, "missing")]) == {}
    assert "map-over-bits" in grid_plots([*results, result("SCH", 16, 0, 0.4)])


def test_each_loss_has_its_mean_and_spread_in_every_form_on_each_collection():
    from plots import benchmark_plot  # of tools/site, which lab.grids reads from

    shares = {"A": (0.6, 0.62), "A, tuned": (0.6, 0.64), "A, recommended": (0.61, 0.61)}
    shares |= {"B": (0.2, 0.2), "B, tuned": (0.7, 0.7)}
    results = []
    for method, values in shares.items():
        results += [made_result(method, seed, share, views=("leak_free", "test")) for seed, share in enumerate(values)]
    better = [made_result(each.method, each.seed, 0.5, views=("leak_free", "test")) for each in results]
    panels = benchmark_plot({"features": results, "wikipedia": better}).axes
    assert [panel.get_title() for panel in panels] == ["COCO-17", "Wikipedia"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["A", "B"]
    published, tuned, ours = panels[0].containers
    assert list(published.lines[0].get_xdata()) == pytest.approx([61, 20])
    assert list(published.lines[0].get_ydata()) == [0, 1]
    assert list(tuned.lines[0].get_xdata()) == pytest.approx([62, 70])
    assert (list(ours.lines[0].get_xdata()), list(ours.lines[0].get_ydata())) == ([pytest.approx(61)], [0])
    (bar, *_) = tuned.lines[2][0].get_segments()
    assert bar[1, 0] - bar[0, 0] == pytest.approx(2 * np.std([60, 64], ddof=1))
    assert [text.get_text() for text in panels[0].texts] == ["◂ 20.0"]  # off the axis, with its number
