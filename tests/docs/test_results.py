"""The tables of the pages of results say what the raw results beside them say."""

import csv
import re
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import pytest

from channelhash.lab.experiments.experiment import load_experiment
from channelhash.lab.experiments.query_means import with_query_means
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.score_files import read_runs
from channelhash.lab.experiments.stats.significance import seed_test
from channelhash.lab.experiments.tables.rendering import Table, to_markdown
from pages import DOCS

RESULTS = DOCS / "reference" / "results"
#: ``<!-- tables/FILE: EXPERIMENT TABLE -->`` or ``… TABLE of FOLDER`` (of trials), and the table below it.
_MADE = re.compile(r"^<!-- (tables/\S+): (\S+) (\S+)(?: of (\S+))? -->\n\n((?:\|.*\n)+)", re.M)

#: Of the columns of the page: score and retrieval set.
_COLUMNS = (("map_tie_aware", "test"), ("map_tie_aware", "leak_free"), ("roc_auc_micro", "test"))


@cache
def _made(file: str, experiment: str, trials: str) -> dict[str, Table]:
    """Make the tables of a grid again from raw scores, and from the AP of single queries where that is published."""
    study, results = load_experiment(experiment), read_runs(RESULTS / file)[trials]
    queries = RESULTS / file.replace("-runs.csv.gz", "-queries.npz")
    if queries.suffix == ".npz" and queries.exists():
        results = with_query_means(results, queries)
    return {table.name: table for table in ([study.trials[trials](results)] if trials else study.tables(results))}


def _rows(lines: list[str]) -> list[tuple[str, ...]]:
    """The cells of Markdown's rows, a block's name in each of its rows."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        first, *others = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        rows.append((first or rows[-1][0], *others))
    return rows


def _pages() -> list[Path]:
    pages = [*RESULTS.glob("*.md"), DOCS / "explanation" / "which-loss.md"]
    return [page for page in pages if _MADE.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.stem)
def test_tables_and_counts_are_made_of_raw_scores(page: Path):
    text = page.read_text(encoding="utf-8")
    for file, experiment, name, trials, shown in _MADE.findall(text):
        header, _, *rows = _rows(shown.splitlines())
        made = to_markdown(_made(file, experiment, trials)[name]).splitlines()[2:]
        columns, _, *expected = _rows([line for line in made if line.startswith("|")])
        places = [columns.index(column) for column in header]
        assert len(rows) == len(set(rows))
        assert set(rows) <= {tuple(row[place] for place in places) for row in expected}
    prose = re.sub(r"^\|.*$|^```.*?^```$", "", text, flags=re.M | re.S)
    in_tables = {count for line in re.findall(r"^\|.*$", text, re.M) for count in re.findall(r"\d+ of \d+", line)}
    assert set(re.findall(r"\d+ of \d+", prose)) <= in_tables


def test_the_tables_of_real_tags_are_made_of_their_runs():
    every = read_runs(RESULTS / "tables" / "tags-runs.csv")[""]
    runs, scores = [run for run in every if run.n_bits == 32], {}
    for method in {run.method for run in runs}:
        of_method = sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
        assert [run.seed for run in of_method] == [0, 1, 2, 3, 4]
        scores[method] = [[100 * run.score("text->text", *column) for run in of_method] for column in _COLUMNS]
    page = (RESULTS / "tags.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (.+?) \| ([\d+−].*?) \|(?:  \|)?$", page, re.M)
    rows = {method: cells.split(" | ") for method, cells in lines}
    for method, values in scores.items():
        assert rows.pop(method)[:3] == [f"{mean(each):.2f} ± {stdev(each):.2f}" for each in values]
    lengths = sorted({run.n_bits for run in every})
    for method in [name.removesuffix(", here") for name in rows if name.endswith(", here")]:
        found = [
            [100 * run.score("text->text") for run in every if (run.method, run.n_bits) == (method, n_bits)]
            for n_bits in lengths
        ]
        assert rows.pop(f"{method}, here") == [f"{mean(each):.2f} ± {stdev(each):.2f}" for each in found]
        rows.pop(f"{method}, printed", None)
    assert len(rows) == 3
    for name, cells in rows.items():
        first, second = (scores[method][:2] for method in name.split(" − "))
        for a, b, cell in zip(first, second, cells, strict=True):
            test = seed_test([x - y for x, y in zip(a, b, strict=True)])
            expected = f"{test.difference:+.2f} \\[{test.lower:+.2f}, {test.upper:+.2f}\\]"
            assert cell == expected.replace("-", "−")


def test_what_is_said_of_seventeen_losses_is_so():
    made = _made("tables/weights-coco17-runs.csv.gz", "weights", "")
    rows = {row[0].text: [float(cell.text.split()[0]) for cell in row[1:5]] for row in made["means"].rows}
    published, tuned, published_new, tuned_new = zip(*rows.values(), strict=True)
    said = " ".join((DOCS / "explanation" / "which-loss.md").read_text(encoding="utf-8").split())
    assert (len(rows), sum(score >= max(tuned) - 2 for score in tuned)) == (17, 11)
    assert "eleven of the seventeen lie within 2 points on R" in said
    gains = {name: f"{row[1] - row[0]:.1f}" for name, row in rows.items()}
    assert [gains[name] for name in ("DSCH", "SCH", "HashNet")] == ["3.0", "3.9", "5.0"]
    assert "+3.0 points for DSCH, +3.9 for SCH, +5.0 for HashNet" in said
    assert rows["CSQ"][0] == max(published)
    assert sum(score > rows["CSQ"][2] for score in published_new) == 8
    assert "CSQ is first on R and ninth on R∖T" in said
    assert rows["DSCH"][3] == max(tuned_new)
    assert rows["BSCH"][1] == max(tuned)
    behind = {
        row[0].text: -float(row[1].text.split()[0].replace("−", "-")) for row in made["differences-leak_free"].rows
    }
    assert max(score for name, score in behind.items() if name not in ("SCH, tuned", "BSCH, tuned")) < -1.05
    clear = {row[0].text for row in made["differences-leak_free"].rows if row[1].bold}
    level = {f"{name}, tuned" for name in ("SCH", "BSCH", "TALR", "DCGH", "DNPH", "DCMH / DPSH")} | {"TALR"}
    assert set(behind) - clear == level


def test_what_the_rate_brings_and_what_the_weights_is_said_of_the_trials():
    def score(run: Result) -> float:
        return 100 * mean(run.score(task, view="validation") for task in ("image->text", "text->image"))

    (first,) = read_runs(RESULTS / "tables" / "rate-coco17-runs.csv.gz")[""]
    trials = read_runs(RESULTS / "tables" / "weights-coco17-trials.csv.gz")
    rates = {run.settings["train"]["learning_rate"]: score(run) for run in trials["tuning"] if run.method == "DSCH"}
    best = max(rates, key=rates.__getitem__)
    (recommended,) = (
        score(run)
        for run in trials["tuning-weights"]
        if run.method == "DSCH, tuned"
        and (run.settings["loss"]["kappa_q"], run.settings["loss"]["average_precision"]) == (0.3, 8)
    )
    said = (
        f"{score(first):.1f} % at the rate 1e-4, {rates[best]:.1f} at its best rate (2e-3), {recommended:.1f} with the "
        f"recommended weights at that rate. So the rate brings {rates[best] - score(first):.1f} points and the weights "
        f"bring {recommended - rates[best]:.1f}."
    )
    assert (first.settings["train"]["learning_rate"], best) == (1e-4, 2e-3)
    assert said in " ".join((DOCS / "explanation" / "which-loss.md").read_text(encoding="utf-8").split())


def _recalls() -> dict[tuple[str, ...], list[list[float]]]:
    """(learned from, codes, test, task, ranked by) -> R@1, R@5, R@10, median rank of each seed, or mAP by label."""
    found: dict[tuple[str, ...], list[list[float]]] = {}
    with open(RESULTS / "tables" / "photo-encoder-recall.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in ("learned_from", "codes", "test", "task", "ranked_by"))
            values = [row[name] for name in ("recall_at_1", "recall_at_5", "recall_at_10", "median_rank")]
            found.setdefault(key, []).append(
                [float(value) for value in values if value] or [float(row["map_tie_aware"])]
            )
    return found


def test_the_tables_of_the_encoder_photo_are_made_of_its_recalls():
    page, recalls = (RESULTS / "photo-encoder.md").read_text(encoding="utf-8"), _recalls()
    bits = ["256 bits", "128 bits", "64 bits"]
    printed = {name: name for name in ("real values", *bits)} | {
        "256 bits, then int8 values of the first 500": "256 bits, then int8"
    }
    for test in ("MS-COCO, 1,000", "MS-COCO, 5,000", "Flickr8k"):
        for line, ranked_by in printed.items():
            cells = []
            for task in ("text->image", "image->text"):
                seeds = recalls["MS-COCO", "rotated heads", test, task, ranked_by]
                one, five, ten, rank = zip(*seeds, strict=True)
                cells += [
                    f"{mean(one):.1f}",
                    f"{mean(five):.1f}",
                    f"{mean(ten):.1f} ± {stdev(ten):.1f}",
                    f"{mean(rank):.0f}",
                ]
            assert f"| {line} | {' | '.join(cells)} |\n" in page
    for line in bits:
        tasks = ("image->text", "text->image", "image->image", "text->text")
        scores = [
            mean(v for (v,) in recalls["MS-COCO", "rotated heads", "COCO-17's labels", task, line]) for task in tasks
        ]
        assert f"| {line} | {' | '.join(f'{score:.1f}' for score in scores)} |\n" in page
    beside = {
        "heads (mean of three seeds)": "rotated heads",
        "CCA-ITQ of the same features and pairs (one seed)": "CCA-ITQ",
    }
    beside["the same space before it was rotated, its signs (BQ; one seed)"] = "before the rotation"
    ranked = ("real values", "256 bits, then int8", "256 bits", "64 bits")
    for line, codes in beside.items():
        tens = [
            mean(seed[2] for seed in recalls["MS-COCO", codes, test, "text->image", ranked_by])
            for test in ("MS-COCO, 1,000", "Flickr8k")
            for ranked_by in ranked
        ]
        assert f"| {line} | {' | '.join(f'{ten:.1f}' for ten in tens)} |\n" in page
    one, five, ten, rank = zip(
        *recalls["Flickr8k", "rotated heads", "Flickr8k", "text->image", "256 bits, then int8"], strict=True
    )
    learned = f"{mean(one):.1f} | {mean(five):.1f} | {mean(ten):.1f} ± {stdev(ten):.1f} | {mean(rank):.0f} |\n"
    assert f"256 bits, then int8 (mean of three seeds) | {learned}" in page
