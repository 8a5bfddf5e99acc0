"""Charts, scores and the standing beside chance."""

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from channelhash.codes.code_set import CodeSet
from channelhash.lab.report import page, run_page
from channelhash.lab.report.page import Mark, level_chart, line_chart
from channelhash.metrics.report import evaluate
from channelhash.utils.seeds import generator
from lab.test_report import read_page

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
    ticks, _, _ = words(line_chart("loss", "epoch", {"a": [(1, 1.0), (2, 2.0)]}).svg).partition("epoch")
    assert ticks.split() == ["1", "2"], "whole epochs"
    other = line_chart("mAP", "epoch", SERIES)
    page = read_page(f"<style></style>{chart.svg}{other.svg}")  # ids are unique, addresses within the page
    assert page.ids
    assert page.tags.count("style") == 1


def test_points_that_are_not_finite_are_left_out():
    finite = line_chart("loss", "epoch", {"a": [(1, 1.0), (4, 2.0)]})
    gaps = line_chart("loss", "epoch", {"a": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)], "b": [(1, math.nan)]})
    assert gaps == finite
    assert line_chart("loss", "epoch", {"a": [(1, math.nan)]}) is None


def test_levels_are_marked_beside_the_interval_of_chance():
    rows = {"<DSCH>": [Mark(40.0, "seed 0 & <1>: 40", (35.0, 45.0)), Mark(70.0, "own: 70")]}
    rows["LSH"] = [Mark(33.0, "lsh: 33")]
    chart = level_chart("mAP, %", rows, {"<DSCH>": (30.0, 31.0)})
    assert all(word in words(chart.svg) for word in ("<DSCH>", "LSH", "run", "chance"))
    assert "<DSCH>: seed 0 & <1>: 40, own: 70; chance 30.0 to 31.0" in chart.description


TASKS = {
    "image->text": {"map_tie_aware": 0.5, "new_score": 0.25, "map_at": {"50": 0.75}, "curve": [0.1, None],
                    "queries": 3},
    "text->image": {"map_tie_aware": 0.6, "chance": 0.125, "by_radius": {"recall": [0.0, 1.0, 0.5]}},
}  # fmt: skip


def test_every_key_becomes_a_row_whatever_it_is_called():
    table = run_page._score_table("test split", TASKS)
    assert table.header == ["score", "image → text", "text → image"]
    assert table.rows == [
        ("mAP tie-aware", "50.00", "60.00"), ("new score", "25.00", "–"), ("mAP@50", "75.00", "–"),
        ("queries counted", "3", "–"), ("chance level", "–", "12.50"),
    ]  # fmt: skip
    report = {"conventions": {"sch": {"map@50": {"in_order": None, "upper": 0.5}}}}
    rows = [("as others print it: sch map@50, in order", "–"), ("as others print it: sch map@50, upper", "50.00")]
    assert run_page._score_table("test split", {"image->text": report}).rows == rows


def test_figures_of_a_grids_run_are_found_by_epoch_and_view(tmp_path):
    epochs = {"last": {"test": TASKS, "leak_free": TASKS}, "best": {"validation": TASKS}}
    (tmp_path / "result.json").write_text(json.dumps({"epochs": epochs}))
    (tmp_path / "metrics.json").write_text(json.dumps({"tasks": TASKS}))
    titles = [title for title, _ in run_page._read_evaluations(tmp_path)]
    assert titles == ["test split, last epoch", "leak free, last epoch", "validation split, best epoch"]


def code_sets(seed: int, told: bool) -> tuple[CodeSet, CodeSet]:
    """Queries and a database of random codes, or of codes that are their labels."""
    random = np.random.default_rng(seed)

    def codes(n: int) -> CodeSet:
        labels = random.random((n, 8)) < 0.2
        labels[np.arange(n), random.integers(0, 8, n)] = True
        bits = np.packbits(labels, axis=1) if told else random.integers(0, 256, (n, 1), dtype=np.uint8)
        return CodeSet([str(i) for i in range(n)], {"image": bits, "text": bits}, labels, n_bits=8)

    return codes(30), codes(60)


def test_chance_is_what_the_same_codes_get_with_shuffled_labels():
    query, database = code_sets(0, told=True)
    random = generator(0, "chance", "image->text")
    shuffled = [replace(database, labels=random.permutation(database.labels)) for _ in range(39)]
    levels = [evaluate(query, codes)["image->text"]["map_tie_aware"] for codes in shuffled]
    standing, report = page.Standing.by_labels(query, database)[0], evaluate(query, database)["image->text"]
    assert standing.chance == pytest.approx((min(levels), max(levels)))
    assert standing.score == pytest.approx(report["map_tie_aware"])
    assert standing.interval == pytest.approx(tuple(report["map_interval"].values()))


def test_random_codes_are_at_chance_and_codes_that_tell_labels_are_not():
    guesses = [page.Standing.by_labels(*code_sets(seed, told=False)) for seed in range(20)]
    at_chance = [standing.at_chance for standings in guesses for standing in standings]
    assert np.mean(at_chance) >= 0.85  # 39 of 40 are expected
    for seed in range(5):
        query, database = code_sets(seed, told=True)
        assert not any(standing.at_chance for standing in page.Standing.by_labels(query, database))
    assert page.Standing.by_labels(query, CodeSet(database.ids, database.codes, None, n_bits=8)) == []
    assert page.verdict([]) == ""


@pytest.mark.parametrize(("recall", "at_chance"), [(0.05, True), (0.1, True), (0.4, False)])
def test_recall_stands_beside_the_binomial_interval_of_guessing(recall, at_chance):
    report = {"recall_at": {"10": recall}, "recall_items": 100, "queries": 100}
    (standing,) = page.Standing.by_recall({"image->text": report, "text->text": {"map_tie_aware": 1.0}})
    assert standing.chance == pytest.approx((0.05, 0.16), abs=0.011)  # scipy.stats.binom(100, 0.1).interval(0.95)
    assert standing.at_chance is at_chance
    assert standing.measure == "Recall@10"
