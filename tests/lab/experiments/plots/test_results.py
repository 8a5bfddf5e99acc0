"""The plots show the results' own figures, and a folder gets those that its runs allow."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.errors import InputError
from channelhash.lab.experiments.plots.codes import (
    channel_distances_plot,
    runs_precision_recall_plot,
    write_retrieval_sheet,
)
from channelhash.lab.experiments.plots.results import code_length_plot, gamma_w_plot, grid_plots, training_plot
from channelhash.lab.experiments.results import Result
from channelhash.losses import DSCHLoss
from channelhash.search.result_grid import answer_rows

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


def write_codes(folder: Path, seed: int, labels_seed: int = 0) -> Path:
    random, of_labels = np.random.default_rng(seed), np.random.default_rng(labels_seed)
    for role, n in (("query", 6), ("retrieval", 40)):
        codes = {name: ch.codes.pack(random.random((n, 12)) < 0.5) for name in ("image", "text")}
        labels = of_labels.random((n, 3)) < 0.5
        texts = [f"{role} {i}" for i in range(n)]
        ids = [f"{role}{i}" for i in range(n)]
        ch.CodeSet(ids, codes, labels, 12, label_names=["a", "b", "c"], texts=texts).save(
            folder / "codes" / f"test-{role}.parquet"
        )
    return folder


def test_precision_and_recall_of_runs_are_those_of_their_codes(tmp_path):
    runs = {name: write_codes(tmp_path / name, seed) for seed, name in enumerate(("A", "B"))}
    (axes,) = runs_precision_recall_plot(runs, "text->image").axes
    for line, (name, folder) in zip(axes.lines[:-1], runs.items(), strict=True):  # the last is chance
        query, database = (
            ch.CodeSet.load(folder / "codes" / f"test-{role}.parquet") for role in ("query", "retrieval")
        )
        counts = ch.metrics.hamming_histogram(
            query.codes["text"], database.codes["image"], query.labels, database.labels, n_bits=12
        )
        assert line.get_label() == name
        np.testing.assert_allclose(line.get_ydata(), 100 * counts.precision_recall_curve().precision)


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    runs = {"A": write_codes(tmp_path / "A", 0), "B": write_codes(tmp_path / "B", 1, labels_seed=1)}
    with pytest.raises(InputError, match="different data"):
        runs_precision_recall_plot(runs, "image->text")
    with pytest.raises(InputError, match="channelhash evaluate"):
        runs_precision_recall_plot({"C": tmp_path / "C"}, "image->text")
    with pytest.raises(InputError, match="codes of image and text"):
        runs_precision_recall_plot(runs, "image->sound")


def test_answers_are_marked_by_labels(tmp_path):
    run = write_codes(tmp_path / "A", 0)
    query, database = (ch.CodeSet.load(run / "codes" / f"test-{role}.parquet") for role in ("query", "retrieval"))
    rows = answer_rows(query, database, "text->image", count=3, answers=4)
    assert [row[0].caption for row in rows] == ["query 0", "query 2", "query 5"]
    for row, number in zip(rows, (0, 2, 5), strict=True):
        distances = ch.codes.hamming_distances(query.codes["text"][number : number + 1], database.codes["image"])[0]
        assert [int(cell.caption.split()[0]) for cell in row[1:]] == sorted(distances.tolist())[:4]
        for cell in row[1:]:
            found = int(cell.caption.split()[-1])
            assert cell.right == bool((query.labels[number] & database.labels[found]).any())
    with pytest.raises(ValueError, match="these codes have none"):
        answer_rows(query, replace(database, labels=None, label_names=()), "text->image")
    write_retrieval_sheet(run, tmp_path / "sheet.png", "text->image")
    with Image.open(tmp_path / "sheet.png") as sheet:
        colors = {color for _, color in sheet.getcolors(1 << 20)}
    assert {(24, 140, 60), (200, 45, 40)} <= colors  # framed although there are no pictures


def test_distances_are_shown_against_the_channel_of_their_kind():
    def health(distances: list[int]) -> dict[str, object]:
        return {"pairs": sum(distances), "distances": distances, "inside": 0.5, "below": 0.25, "above": 0.25}

    kinds = {"dissimilar": health([0, 0, 1, 3, 0]), "partly_similar": health([1, 1, 1, 1, 0])}
    kinds["identical_labels"] = {"pairs": 0, "distances": [0] * 5, "inside": None, "below": None, "above": None}
    figure = channel_distances_plot({"image-text": kinds}, DSCHLoss(4))
    apart, partly, same = figure.axes
    counts, band = apart.patches
    np.testing.assert_allclose(counts.get_data().values, [0, 0, 25, 75, 0])
    assert (band.get_x(), band.get_x() + band.get_width()) == (1.5, 4.5)  # distances 2, 3 and 4
    assert "4 pairs: 50 % inside" in apart.get_title()
    assert len(partly.patches) == 1
    assert "no such pairs" in same.get_title()
    assert same.patches[1].get_width() == 1  # distance 0 alone


def test_the_health_of_codes_is_drawn_as_it_comes(tmp_path):
    codes = ch.CodeSet.load(write_codes(tmp_path, 0) / "codes" / "test-retrieval.parquet")
    channels = ch.metrics.code_report(codes)["channels"]
    figure = channel_distances_plot(channels, DSCHLoss(12))
    drawn = [axes.patches[0].get_data().values for axes in figure.axes]
    counts = [np.array(health["distances"]) for kinds in channels.values() for health in kinds.values()]
    assert len(drawn) == 9
    for values, expected in zip(drawn, counts, strict=True):
        np.testing.assert_allclose(values, 100 * expected / expected.sum())
