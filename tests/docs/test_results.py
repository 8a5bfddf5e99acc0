"""The tables of the pages of results say what the raw results beside them say."""

import csv
import re
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import pytest

from channelhash.lab.experiments.comparisons import seed_test
from channelhash.lab.experiments.experiment import load_experiment
from channelhash.lab.experiments.results import Result, read_runs
from channelhash.lab.experiments.tables import Table, to_markdown
from lab.grids import with_query_means
from pages import DOCS

RESULTS = DOCS / "reference" / "results"
WHICH_LOSS = DOCS / "explanation" / "which-loss.md"
#: ``<!-- tables/FILE: EXPERIMENT TABLE -->`` or ``… TABLE of FOLDER`` (of trials), and the table below it.
#: FILE is in RESULTS, wherever the page is.
_MADE = re.compile(r"^<!-- (tables/\S+): (\S+) (\S+)(?: of (\S+))? -->\n\n((?:\|.*\n)+)", re.M)

#: Of the columns of the page: score and retrieval set.
_COLUMNS = (("map_tie_aware", "test"), ("map_tie_aware", "leak_free"))
TASKS = ("image->text", "text->image", "image->image", "text->text")


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
    """Find the pages, wherever they are in the documentation, with a table that names its raw scores."""
    return [page for page in sorted(DOCS.rglob("*.md")) if "\n<!-- tables/" in page.read_text(encoding="utf-8")]


def _prose(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.stem)
def test_tables_and_counts_are_made_of_raw_scores(page: Path):
    text = page.read_text(encoding="utf-8")
    tables = _MADE.findall(text)
    assert len(tables) == text.count("\n<!-- tables/")
    for file, experiment, name, trials, shown in tables:
        header, _, *rows = _rows(shown.splitlines())
        made = to_markdown(_made(file, experiment, trials)[name]).splitlines()[2:]
        columns, _, *expected = _rows([line for line in made if line.startswith("|")])
        places = [columns.index(column) for column in header]
        assert len(rows) == len(set(rows))
        assert set(rows) <= {tuple(row[place] for place in places) for row in expected}
    prose = re.sub(r"^\|.*$|^```.*?^```$", "", text, flags=re.M | re.S)
    in_tables = {count for line in re.findall(r"^\|.*$", text, re.M) for count in re.findall(r"\d+ of \d+", line)}
    assert set(re.findall(r"\d+ of \d+", prose)) <= in_tables


def test_every_raw_file_has_its_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in [*RESULTS.glob("*.md"), WHICH_LOSS])
    for path in (RESULTS / "tables").iterdir():
        assert path.name in pages, path.name


def test_the_tables_of_real_tags_are_made_of_their_runs():
    every = read_runs(RESULTS / "tables" / "tags-runs.csv")[""]
    runs, scores = [run for run in every if run.n_bits == 32], {}
    for method in {run.method for run in runs}:
        of_method = sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
        assert [run.seed for run in of_method] == [0, 1, 2, 3, 4]
        scores[method] = [[100 * run.score("text->text", *column) for run in of_method] for column in _COLUMNS]
    page = (RESULTS / "tags.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (.+?) \| ([\d+−].*?) \|$", page, re.M)
    rows = {method: cells.split(" | ") for method, cells in lines}
    for method, values in scores.items():
        assert rows.pop(method) == [f"{mean(each):.2f} ± {stdev(each):.2f}" for each in values]
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
        first, second = (scores[method] for method in name.split(" − "))
        for a, b, cell in zip(first, second, cells, strict=True):
            test = seed_test([x - y for x, y in zip(a, b, strict=True)])
            expected = f"{test.difference:+.2f} \\[{test.lower:+.2f}, {test.upper:+.2f}\\]"
            assert cell == expected.replace("-", "−")


def test_what_is_said_of_seventeen_losses_is_so():
    made = _made("tables/weights-coco17-runs.csv.gz", "weights", "")
    rows = {row[0].text: [float(cell.text.split()[0]) for cell in row[1:5]] for row in made["means"].rows}
    published, tuned, published_new, tuned_new = zip(*rows.values(), strict=True)
    said = _prose(WHICH_LOSS)
    assert (len(rows), sum(score >= max(tuned) - 2 for score in tuned)) == (17, 11)
    assert "on R, eleven of the seventeen lie within 2 points of the best" in said
    runs = read_runs(RESULTS / "tables/weights-coco17-runs.csv.gz")[""]
    score = {
        name: 100 * mean(run.score(task) for run in runs if run.method == name for task in TASKS)
        for name in {run.method for run in runs}
    }
    gains = [f"{score[f'{name}, tuned'] - score[name]:+.1f}" for name in ("DSCH", "SCH", "HashNet", "DNPH")]
    assert "{} points for DSCH, {} for SCH, {} for HashNet and {} for DNPH".format(*gains) in said
    assert rows["CSQ"][0] == max(published)
    assert sum(score > rows["CSQ"][2] for score in published_new) == 8
    assert "CSQ is first on R and ninth on R∖T" in said
    assert rows["DSCH"][3] == max(tuned_new)
    assert f"{rows['DSCH'][3]:.1f} % mAP" in said
    assert rows["BSCH"][1] == max(tuned)
    behind = {
        row[0].text: -float(row[1].text.split()[0].replace("−", "-")) for row in made["differences-leak_free"].rows
    }
    assert max(score for name, score in behind.items() if name not in ("SCH, tuned", "BSCH, tuned")) < -1.05
    clear = {row[0].text for row in made["differences-leak_free"].rows if row[1].bold}
    level = {f"{name}, tuned" for name in ("SCH", "BSCH", "TALR", "DCGH", "DNPH", "DCMH / DPSH")} | {"TALR"}
    assert set(behind) - clear == level
    assert min(-score for name, score in behind.items() if name not in ("SCH, tuned", "BSCH, tuned")) >= 1.05
    on_r = {row[0].text: [cell.text for cell in row[1:3]] for row in made["differences-test"].rows}
    difference, p = on_r["BSCH, tuned"]
    assert f"minus BSCH is {difference}, p = {p}.".replace("-", "−") in said.replace("\\", "")
    assert (
        f"{-behind['RSCH']:.2f} points behind the recommendation on R∖T and {on_r['RSCH'][0].split()[0][1:]} on R."
        in said
    )
    over_queries = [row[3].bold for row in made["differences-leak_free"].rows]
    assert len(over_queries) == 33
    assert all(over_queries)


def test_what_is_said_of_the_channel_on_simulated_features_is_so():
    rows = _made("tables/factorial-simulated-runs.csv.gz", "factorial", "")["effects-k32"].rows
    whole, channel, term = (
        [abs(float(cell.text.split()[0].replace("−", "-"))) for cell in row[1:]] for row in rows[:3]
    )
    assert [row[0].text.split(":")[0] for row in rows[:3]] == [
        "published comparison",
        "of it the channel",
        "of it the quantisation term",
    ]
    assert (
        f"the term brings {max(term):.1f} points, the channel costs {min(channel):.1f} to {max(channel):.1f}, and DSCH "
        f"with its term loses to SCH without it by {min(whole):.1f} to {max(whole):.1f}."
    ) in _prose(WHICH_LOSS)
    assert f"{min(term):.1f}" == f"{max(term):.1f}"


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
        f"{score(first):.1f} % at the rate 1e-4, {rates[best]:.1f} % at its best rate (2e-3), {recommended:.1f} % with "
        f"the recommended weights at that rate. So the rate brings {rates[best] - score(first):.1f} points and the "
        f"weights bring {recommended - rates[best]:.1f}."
    )
    assert (first.settings["train"]["learning_rate"], best) == (1e-4, 2e-3)
    assert said in _prose(WHICH_LOSS)


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


def test_the_figures_of_the_encoder_photo_are_made_of_its_recalls():
    text, recalls = (RESULTS / "photo-encoder.md").read_text(encoding="utf-8"), _recalls()
    prose, ranked = _prose(RESULTS / "photo-encoder.md"), ("256 bits, then int8", "256 bits", "64 bits")
    lost = []
    for test in ("MS-COCO, 1,000", "MS-COCO, 5,000", "Flickr8k"):
        for ranked_by in ranked:
            there, back = (
                recalls["MS-COCO", "rotated heads", test, task, ranked_by] for task in ("text->image", "image->text")
            )
            one, _, ten, rank = zip(*there, strict=True)
            tens = [seed[2] for seed in back]
            recalls_at_10 = [f"{mean(each):.1f} ± {stdev(each):.1f}" for each in (ten, tens)]
            cells = [f"{mean(one):.1f}", recalls_at_10[0], f"{mean(rank):.0f}", recalls_at_10[1]]
            assert f"| {test if ranked_by == ranked[0] else ''} | {ranked_by} | {' | '.join(cells)} |\n" in text
        for task in ("text->image", "image->text"):
            real, int8, bits = (
                [mean(each) for each in zip(*recalls["MS-COCO", "rotated heads", test, task, ranking], strict=True)]
                for ranking in ("real values", *ranked[:2])
            )
            lost.append(real[2] - bits[2])
            assert max(abs(a - b) for a, b in zip(real[:3], int8[:3], strict=True)) < 0.15
    assert f"256 signs lose {min(lost):.0f} to {max(lost):.0f} points of R@10 on both collections" in prose
    columns = {
        "these heads (three seeds)": "rotated heads",
        "the same before the rotation (one seed)": "before the rotation",
        "CCA-ITQ of the same features and pairs (one seed)": "CCA-ITQ",
    }
    for line, codes in columns.items():
        tens = [
            mean(seed[2] for seed in recalls["MS-COCO", codes, test, "text->image", ranked_by])
            for test in ("MS-COCO, 1,000", "Flickr8k")
            for ranked_by in ranked
        ]
        assert f"| {line} | {' | '.join(f'{ten:.1f}' for ten in tens)} |\n" in text
    by_label = {
        task: mean(v for (v,) in recalls["MS-COCO", "rotated heads", "COCO-17's labels", task, "256 bits"])
        for task in TASKS
    }
    first, second, third, last = (f"{by_label[task]:.1f} % for {task}".replace("->", " → ") for task in TASKS)
    assert f"{first}, {second}, {third} and {last}" in prose
    tens = [seed[2] for seed in recalls["Flickr8k", "rotated heads", "Flickr8k", "text->image", ranked[0]]]
    assert f"find {mean(tens):.1f} ± {stdev(tens):.1f} %." in prose
