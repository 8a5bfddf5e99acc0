"""The tables of the pages of results say what the raw results beside them say."""

import csv
import importlib
import re
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from channelhash.lab.experiments.experiment import load_experiment
from channelhash.lab.experiments.results import by_method
from channelhash.lab.experiments.studies.tuning import chosen_trials, rate_of, validation_score
from channelhash.lab.experiments.text_tables import Table, to_markdown
from lab.grids import read_runs
from pages import DOCS, ROOT

RESULTS = DOCS / "reference" / "results"
WHICH_LOSS = DOCS / "explanation" / "which-loss.md"
FACTORIAL = RESULTS / "tables" / "factorial-runs.csv.gz"
#: ``<!-- tables/FILE: EXPERIMENT TABLE -->`` or ``… TABLE of FOLDER`` (of trials or of one of
#: several collections), and the table below it. FILE is in RESULTS, wherever the page is.
_MADE = re.compile(r"^<!-- (tables/\S+): (\S+) (\S+)(?: of (\S+))? -->\n\n((?:\|.*\n)+)", re.M)

#: Of the columns of the page: score and retrieval set.
_COLUMNS = (("map_tie_aware", "test"), ("map_tie_aware", "leak_free"))


@cache
def _made(file: str, experiment: str, folder: str) -> dict[str, Table]:
    """Make the tables of a grid again from raw scores."""
    study, groups = load_experiment(experiment), read_runs(RESULTS / file)
    if folder not in groups:
        return {table.name: table for table in study.across(groups)}
    make = study.trials.get(folder, study.tables)
    return {table.name: table for table in make(groups[folder])}


def _rows(lines: list[str]) -> list[tuple[str, ...]]:
    """The cells of Markdown's rows, a block's name in each of its rows."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        first, *others = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        rows.append((first or rows[-1][0], *others))
    return rows


#: The pages, wherever they are in the documentation, with a table that names its raw scores.
_PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if "\n<!-- tables/" in page.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_tables_and_counts_are_made_of_raw_scores(page: Path):
    text = page.read_text(encoding="utf-8")
    tables = _MADE.findall(text)
    assert len(tables) == text.count("\n<!-- tables/")
    for file, experiment, name, folder, shown in tables:
        header, _, *rows = _rows(shown.splitlines())
        made = to_markdown(_made(file, experiment, folder)[name]).splitlines()[2:]
        columns, _, *expected = _rows([line for line in made if line.startswith("|")])
        places = [columns.index(column) for column in header]
        assert len(rows) == len(set(rows))
        assert set(rows) <= {tuple(row[place] for place in places) for row in expected}
    prose = re.sub(r"^\|.*$|^```.*?^```$", "", text, flags=re.M | re.S)
    in_tables = {
        count
        for line in re.findall(r"^\|.*$", text, re.M)
        for count in re.findall(r"\d+ of \d+", line)
    }
    assert set(re.findall(r"\d+ of \d+", prose)) <= in_tables


def test_every_raw_file_has_its_page():
    pages = "".join(
        page.read_text(encoding="utf-8") for page in [*RESULTS.glob("*.md"), WHICH_LOSS]
    )
    for path in (RESULTS / "tables").iterdir():
        assert path.name in pages, path.name


def test_the_table_of_initial_weights_is_made_of_its_runs():
    scores: dict[str, list[float]] = {}
    for run in read_runs(RESULTS / "tables" / "initial-coco17-runs.csv.gz")[""]:
        loss, initial = run.settings["loss"], run.settings["model"]["initial"]
        name = f"κ_q {loss['kappa_q']:g}" + (
            f", AP {ap:g}" if (ap := loss["average_precision"]) else ""
        )
        for score, view in _COLUMNS:
            mean_of_tasks = 100 * mean(run.score(task, score, view) for task in run.tasks(view))
            scores.setdefault(f"{name}|{view}|{initial}", []).append(mean_of_tasks)
    section = (
        WHICH_LOSS.read_text(encoding="utf-8")
        .partition("## Initial weights")[2]
        .partition("\n```")[0]
    )
    rows = re.findall(r"^\| (κ_q.*?)(?: \(.*?\))? \| (.*) \|$", section, re.M)
    assert len(rows) == len(scores) / 4
    for name, cells in rows:
        keys = [
            f"{name}|{view}|{initial}" for _, view in _COLUMNS for initial in ("paper", "pytorch")
        ]
        expected = [f"{mean(scores[key]):.2f} ± {stdev(scores[key]):.2f}" for key in keys]
        assert cells.replace("*", "").split(" | ") == expected


def test_the_table_of_recommended_weights_is_made_of_its_runs():
    scores: dict[str, dict[str, str]] = {}
    for place, runs in read_runs(RESULTS / "tables" / "recommendation-runs.csv.gz").items():
        preset, _, collection = place.partition("/")
        for run in runs:
            loss, initial = run.settings["loss"], run.settings["model"].get("initial")
            row = (
                f"{loss['name'].upper()}, κ_q {loss['kappa_q']:g}, AP {loss['average_precision']:g}"
            )
            row += ", paper's initial weights" if initial == "paper" else ""
            column = f"{collection}, {preset}, {run.settings['train']['learning_rate']:g}"
            scores.setdefault(row, {})[column] = f"{validation_score(run):.1f}"
    page = (RESULTS / "benchmark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+, κ_q [\d.]+, AP \d.*?) \| (.*) \|$", page, re.M)
    settings = ("benchmark, 0.002", "benchmark, 0.00632", "recommended, 0.001")
    columns = [
        f"{place}, {setting}"
        for setting in settings
        for place in ("wikipedia", "features", "nuswide-tags")
    ]
    for row, cells in rows:
        assert cells.split(" | ") == [scores[row].get(column, "–") for column in columns]
    assert len(rows) > 5


def test_no_learning_rate_of_the_factorial_lies_at_an_end_of_what_was_tried():
    every = read_runs(RESULTS / "tables" / "factorial-trials.csv.gz")
    assert [place.removesuffix("/trials") for place in every] == [*read_runs(FACTORIAL)]
    for trials in every.values():
        methods = by_method(trials)
        for method, best in chosen_trials(methods).items():
            rates = [rate_of(trial) for trial in methods[method]]
            assert min(rates) < rate_of(best) < max(rates)


def _recalls() -> dict[tuple[str, ...], list[list[float]]]:
    """(learned from, codes, test, task, ranked by) -> R@1, R@5, R@10, median rank of each seed, or
    mAP by label.
    """
    found: dict[tuple[str, ...], list[list[float]]] = {}
    with open(
        RESULTS / "tables" / "photo-encoder-recall.csv", newline="", encoding="utf-8"
    ) as file:
        for row in csv.DictReader(file):
            key = tuple(
                row[name] for name in ("learned_from", "codes", "test", "task", "ranked_by")
            )
            values = [
                row[name] for name in ("recall_at_1", "recall_at_5", "recall_at_10", "median_rank")
            ]
            found.setdefault(key, []).append(
                [float(value) for value in values if value] or [float(row["map_tie_aware"])]
            )
    return found


def test_the_table_of_the_encoder_photo_is_made_of_its_recalls():
    text, recalls = (RESULTS / "photo-encoder.md").read_text(encoding="utf-8"), _recalls()
    ranked = ("256 bits, then int8", "256 bits", "64 bits")
    for test in ("MS-COCO, 1,000", "MS-COCO, 5,000", "Flickr8k"):
        for ranked_by in ranked:
            [[one, _, ten, rank]], [[_, _, back, _]] = (
                recalls["MS-COCO", "rotated heads", test, task, ranked_by]
                for task in ("text->image", "image->text")
            )
            cells = [f"{one:.1f}", f"{ten:.1f}", f"{rank:.0f}", f"{back:.1f}"]
            assert (
                f"| {test if ranked_by == ranked[0] else ''} | {ranked_by} | {' | '.join(cells)} |\n"
                in text
            )


def test_the_table_of_hubs_is_made_of_recalls_of_what_ships():
    text, recalls = (RESULTS / "photo-encoder.md").read_text(encoding="utf-8"), _recalls()

    def ten(test: str, n_bits: int, codes: str, then: str = ", then int8") -> str:
        [[_, _, recall, _], *_] = recalls[
            "MS-COCO", codes, test, "text->image", f"{n_bits} bits{then}"
        ]
        return f"{recall:.1f}"

    plain, corrected = "rotated heads", "rotated heads, less hubs"
    for test in ("MS-COCO, 1,000", "MS-COCO, 5,000", "MS-COCO, 20,000", "Flickr8k"):
        cells = [ten(test, n_bits, codes) for n_bits in (64, 256) for codes in (plain, corrected)]
        assert f"| {test} | {' | '.join(cells)} |\n" in text
    alone = [ten("MS-COCO, 20,000", n_bits, plain, "") for n_bits in (64, 256)]
    assert f"find {alone[0]} (64) and {alone[1]} % (256)" in text
    english, chinese, arabic = (
        ten(test, 256, corrected) for test in ("Flickr8k", "Flickr8k, Chinese", "Flickr8k, Arabic")
    )
    row = re.search(r"^\| Flickr8k, R@10 \|(.*)\|$", text, re.M)
    assert row is not None
    assert re.findall(r"[\d.]+", row[1]) == [english, chinese, arabic]


def test_the_rows_of_the_test_of_photo_are_as_many_different_ones_as_it_says():
    file = RESULTS / "tables" / "photo-encoder-test-rows.txt"
    numbers = [int(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert numbers == sorted({*numbers})
    assert (len(numbers), numbers[-1] < 40_000) == (5000, True)
    drawn = np.random.default_rng(45).permutation(40_000)[:5011].tolist()  # 11 are XTD10's
    assert {*numbers} < {*drawn}


def test_what_fits_is_as_often_right_as_the_page_says():
    text = (RESULTS / "photo-encoder.md").read_text(encoding="utf-8")
    right: dict[str, list[str]] = {}
    drawn = []
    off = []
    file = RESULTS / "tables" / "photo-encoder-fits.csv"
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        counts = int(row["answers"]) >= 30
        share = float(row["right"])
        right.setdefault(row["questions"], []).append(f"{100 * share:.0f}" if counts else "–")
        if counts and len(row["questions"]) == 2:
            drawn.append(row["questions"])
            if abs(share - float(row["said"])) > 0.11:
                off.append(row["questions"])
    names = ("English", "German", "Spanish", "French", "Chinese", "Arabic")
    for language, name in zip(("en", "de", "es", "fr", "zh", "ar"), names, strict=True):
        assert f"| {name} | {' | '.join(right[language][3:])} |\n" in text
    assert off == ["en", "de", "de", "es", "es", "es", "es", "zh", "ar", "ar", "ar", "ar"]
    assert len(drawn) == 60
    assert "Of the sixty tenths that are drawn, forty-eight lie within 11 points" in text
    common, phrases, two = (right[kind][3] for kind in ("label", "phrase", "two labels"))
    assert (
        f"{common} % is right for common objects, {phrases} % for phrases and {two} % for" in text
    )


@pytest.fixture
def quality(monkeypatch):
    """The module that makes the tables of quality per byte."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("quality_tables")


def test_the_tables_of_quality_per_byte_are_made_of_its_rows(quality):
    text = quality.PAGE.read_text(encoding="utf-8")
    made = quality.tables(quality.read_rows(), quality.read_tests())
    assert text.count("<!-- quality: ") == len(made)
    for name, table in made.items():
        assert f"{quality.with_name(name, table)}\n" in text


def test_the_tests_of_quality_per_byte_are_made_of_its_rows(quality, monkeypatch):
    rows = quality.by_set(quality.read_rows())
    tests = quality.read_tests()
    for test in tests:
        first, second = (
            next(row for row in rows[test.data_set][name] if row.n_bytes == n_bytes)
            for name, n_bytes in (
                (test.method, test.n_bytes),
                (quality.OURS_ALONE if test.ours <= 16 else quality.OURS, test.ours),
            )
        )
        difference = np.mean(getattr(first, test.score) - getattr(second, test.score))
        assert difference == pytest.approx(test.difference, abs=1e-4)
    few = [row for settings in rows["med-minilm"].values() for row in settings]
    made = {test[:5]: f"{test.p_value:.3g}" for test in quality.compare(few)}
    assert made == {
        test[:5]: f"{test.p_value:.3g}" for test in tests if test.data_set == "med-minilm"
    }


def test_the_table_of_networks_from_pixels_is_made_of_its_scores():
    page = (RESULTS / "benchmark.md").read_text(encoding="utf-8")
    found: dict[tuple[str, str], list[float]] = {}
    with open(RESULTS / "tables" / "pixels.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tried = {(row["loss"], row["form"], row["learning_rate"]) for row in rows if row["seed"] == "2"}
    for row in rows:
        if (row["loss"], row["form"], row["learning_rate"]) in tried:
            found.setdefault((row["loss"], row["form"]), []).append(float(row["leak_free"]))
    assert len(found) == 9
    for scores in found.values():
        assert len(scores) == 3
        assert f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}" in page


def test_what_pairs_without_labels_teach_is_said_as_measured():
    page = (DOCS / "explanation" / "which-loss.md").read_text(encoding="utf-8")
    scores: dict[str, list[tuple[float, float]]] = {}
    with open(RESULTS / "tables" / "unlabelled.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            scores.setdefault(row["method"], []).append((float(row["map"]), float(row["recall"])))
    for method in ("CCA-ITQ", "InfoNCE", "DSCH"):
        by_labels, of_pairs = np.mean(scores[method], axis=0)
        assert f"{by_labels:.1f}" in page
        assert f"{of_pairs:.1f}" in page
