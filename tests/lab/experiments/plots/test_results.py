"""The plots show the results' own figures, and a folder gets those that its runs allow."""

import json
from pathlib import Path

import numpy as np
import pytest

from channelhash.lab.experiments.plots import code_length_plot, gamma_w_plot, grid_plots, training_plot
from channelhash.lab.experiments.results import Result

TASKS = ["image->text", "text->image"]


def result(method: str, k: int, seed: int, value: float, gamma_w: float = 8.0, folder: Path = Path("none")) -> Result:
    figures = {"map_tie_aware": value, "roc_auc_micro": value / 2, "chance": 0.25}
    view = {task: figures | {"map_tie_aware": value + 0.01 * i} for i, task in enumerate(TASKS)}
    settings = {
        "model": {"n_bits": k},
        "train": {"seed": seed},
        "loss": {"name": "dsch", "gamma_w": gamma_w, "kappa_q": 0.01},
    }
    epochs = {"last": {"test": view, "validation": view}}
    return Result(f"{method}-{k}-{seed}", folder, method, settings, "finished", "", epochs)


def log(losses: list[float], scores: dict[int, float]) -> list[dict]:
    entries = [{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses)]
    for epoch, score in scores.items():
        entries[epoch]["validation"] = {"text->text": 0.9, "image->text": score, "text->image": score + 0.1}
    return entries


def test_code_lengths_show_means_and_sample_std_of_each_method():
    values = {("A", 16): [0.5, 0.6, 0.7], ("A", 32): [0.6, 0.8], ("B", 16): [0.4]}
    results = [result(m, k, seed, v) for (m, k), group in values.items() for seed, v in enumerate(group)]
    results.append(Result("B-32-0", Path("none"), "B", {}, "failed", "out of memory"))
    figure = code_length_plot(results)
    for number, axes in enumerate(figure.axes):
        lines = {line.get_label(): line for line in axes.lines}
        np.testing.assert_allclose(lines["A"].get_ydata(), [60 + number, 70 + number])
        np.testing.assert_allclose(lines["B"].get_ydata(), [40 + number, np.nan])
        bars = axes.collections[0].get_segments()
        halves = [(bar[1, 1] - bar[0, 1]) / 2 for bar in bars]
        np.testing.assert_allclose(halves, [10, 100 * np.std([0.6, 0.8], ddof=1)])
        assert "chance 25.0 %" in axes.get_title()
    assert "1 to 3 seeds" in figure.get_suptitle()
    styles = {
        (line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines if line.get_linestyle() != "None"
    }
    assert len(styles) == 2


def test_gamma_w_has_a_panel_for_each_figure():
    results = [result("DSCH", 32, seed, 0.5 + g / 100 + seed / 100, g) for g in (2.0, 4.0, 8.0) for seed in range(2)]
    precision, area = gamma_w_plot(results).axes
    np.testing.assert_allclose(precision.lines[0].get_xdata(), [2, 4, 8])
    np.testing.assert_allclose(precision.lines[0].get_ydata(), [52.5, 54.5, 58.5])
    np.testing.assert_allclose(area.lines[0].get_ydata(), [26.25, 27.25, 29.25])


def test_without_a_finished_run_there_is_nothing_to_draw(tmp_path):
    missing = [Result("a", tmp_path, "A", {}, "missing")]
    for draw in (code_length_plot, gamma_w_plot):
        with pytest.raises(ValueError, match="no run is finished"):
            draw(missing)
    assert grid_plots(missing) == {}


def test_one_run_is_drawn_with_a_line_a_task_cross_modal_ones_first():
    losses, scores = training_plot({"DSCH": [log([4, 3, 2, 1], {1: 0.5, 3: 0.6})]}).axes
    np.testing.assert_allclose(losses.lines[0].get_ydata(), [4, 3, 2, 1])
    assert [line.get_label() for line in scores.lines] == ["image → text", "text → image", "text → text"]
    np.testing.assert_allclose(scores.lines[0].get_xdata(), [2, 4])
    np.testing.assert_allclose(scores.lines[0].get_ydata(), [50, 60])


def test_several_methods_are_drawn_as_shares_and_means_over_seeds():
    logs = {"A": [log([4, 2, 1], {1: 0.5}), log([2, 1], {1: 0.7})], "B": [log([10, 10], {})]}
    losses, scores = training_plot(logs).axes
    np.testing.assert_allclose(losses.lines[0].get_ydata(), [100, 50])  # the epochs that both seeds have
    np.testing.assert_allclose(losses.lines[1].get_ydata(), [100, 100])
    (line,) = scores.lines
    np.testing.assert_allclose(line.get_ydata(), [65])  # mean over two seeds of the mean of the cross-modal tasks


def test_a_grid_gets_the_plots_that_its_runs_allow(tmp_path):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log([2, 1], {1: 0.5})))
    results = [result("DSCH", 32, 0, 0.5, g, tmp_path) for g in (2.0, 8.0)]
    assert set(grid_plots(results)) == {"gamma-w-k32-kq0.01", "training-k32"}
    assert "map-over-bits" in grid_plots([*results, result("SCH", 16, 0, 0.4)])
