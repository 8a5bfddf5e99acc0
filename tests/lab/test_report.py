"""The pages of a run and of a grid hold what their folders know, as text, and need nothing else;
their charts.
"""

import json
import math
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from channelhash.codes import CodeSet
from channelhash.lab.experiments.text_tables import Cell, Table, write_tables
from channelhash.lab.report import page
from channelhash.lab.report.grid_page import write_report
from channelhash.lab.report.page import Mark, level_chart, line_chart, print_score
from channelhash.lab.report.scores import read_evaluations, score_table
from channelhash.metrics.report import evaluate
from channelhash.utils.seeds import generator
from small_runs import assert_refused, feature_config, run_command, run_json, write_features

VOID = {"meta", "img", "br", "line", "circle", "polyline", "link", "hr", "input"}
ADDRESSES = {
    "src",
    "href",
    "srcset",
    "poster",
    "action",
    "data",
    "xlink:href",
    "formaction",
    "background",
}


class ReadPage(HTMLParser):
    """What a page holds; AssertionError where it is not well formed."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ""
        self.tags = []
        self.ids = []
        self.addresses = []
        self.images = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"<{tag} {name}> is a script"
            if name in ADDRESSES:
                (self.images if tag == "img" else self.addresses).append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in VOID:
            self.open.append((tag, self.getpos()))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> at {self.getpos()} closes nothing"
        opened, where = self.open.pop()
        assert opened == tag, f"</{tag}> at {self.getpos()}, but <{opened}> of {where} is open"

    def handle_data(self, data):
        if not self.open or self.open[-1][0] not in {"style", "script"}:
            self.words += data


def read_page(html: str) -> ReadPage:
    """Read a whole page; AssertionError where it is not well formed, or needs anything but
    itself.
    """
    page = ReadPage()
    page.feed(html)
    page.close()
    assert not page.open, f"never closed: {page.open}"
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert len(set(page.ids)) == len(page.ids)
    assert all(address.startswith("data:image/") for address in page.images), page.images
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses), (
        page.addresses
    )
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    page.words = " ".join(page.words.split())
    return page


HOSTILE = '<script>alert("a & b")</script>'


def page_of(folder: Path) -> ReadPage:
    return read_page(write_report(folder).read_text(encoding="utf-8"))


def missing(page: ReadPage, *said: str) -> list[str]:
    """What a page does not say."""
    return [words for words in said if words not in page.words]


def load(path: Path):
    return json.loads(path.read_text())


def hostile_features(path: Path) -> Path:
    """Features whose captions, ids and label names try to be elements; every other picture is
    there.
    """
    write_features(path)
    known = dict(np.load(path))
    n, c = known["labels"].shape
    pictures = path.parent / "pictures"
    pictures.mkdir()
    for i in range(n):
        Image.new("RGB", (40, 30), (i, 0, 0)).save(pictures / f"{i}.png")
    texts = {"id": "<i>{}", "captions": f"{HOSTILE} {{}}", "pictures": "pictures/{}.png"}
    hostile = {name: np.array([text.format(i) for i in range(n)]) for name, text in texts.items()}
    np.savez(
        path, **known | hostile, label_names=np.array([f"</td><b>{name}" for name in range(c)])
    )
    return path


def in_order(page: ReadPage, *sections: str) -> bool:
    """Whether the page's sections come in this order."""
    return [name for name in page.ids if name in sections] == list(sections)


def shuffle_labels(run: Path) -> None:
    """Give each item of the retrieval set the labels of another, so that its codes tell nothing of
    them.
    """
    path = run / "codes" / "test-retrieval.parquet"
    codes = CodeSet.load(path)
    replace(codes, labels=np.random.default_rng(0).permutation(codes.labels)).save(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that was trained and evaluated."""
    root = tmp_path_factory.mktemp("report")
    config = feature_config(root / "c.yaml", hostile_features(root / "f.npz"))
    assert run_command("train", config, "--out", root / "my run") == 0
    assert run_command("evaluate", root / "my run") == 0
    return root / "my run"


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(finished, tmp_path / "my run"))


def test_a_runs_page_holds_all_that_the_folder_knows(run, capsys):
    assert run_json(capsys, "report", run) == {"report": str(run / "report.html")}
    html = (run / "report.html").read_text(encoding="utf-8")
    assert not re.findall("<script|<i>|<b>", html)  # texts never become elements
    page = read_page(html)
    sections = "how-good retrieval-examples training plots scores data code-health"
    assert in_order(page, *sections.split(), "configuration", "environment", "repeat-it")
    said = [HOSTILE, "</td><b>3", "inside, %", "This run is better than chance."]
    for task, report in load(run / "metrics.json")["tasks"].items():
        said.append(task.replace("->", " → "))
        report.pop("median_rank", None)
        for value in (*report.values(), *report["map_at"].values()):
            if isinstance(value, float | int):
                said.append(print_score(value))
    said += [f" {len(rows):,} " for rows in load(run / "splits.json")["rows"].values()]
    said.append(load(run / "environment.json")[-1]["packages"]["torch"])
    said.append("channelhash train 'my run'/config.yaml --out 'my run-again'")
    assert missing(page, *said) == []
    assert "Training has not ended" not in page.words
    assert page.words.count("query (image)") == page.words.count("query (text)") == 4
    assert page.words.count("right") + page.words.count("wrong") >= 48
    assert len(page.images) == 3 + 2 * 4 * 7  # the plots, and a picture a card


def test_a_run_at_chance_says_so_and_a_loss_may_have_no_channels(run):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(settings | {"loss": {"name": "tdsrdh"}}))
    shuffle_labels(run)
    page = page_of(run)
    assert re.search(
        r"This run is at chance: image → text gets [\d.]+ %, chance [\d.]+ to", page.words
    )
    assert "The run's loss has no channels" in page.words
    assert "inside, %" not in page.words


def test_pictures_that_are_gone_leave_their_words(run):
    shutil.rmtree(run.parent / "pictures", ignore_errors=True)
    path = run / "codes" / "test-retrieval.parquet"
    codes = CodeSet.load(path)
    replace(codes, images=[str(run / "nowhere" / name) for name in codes.ids]).save(path)
    page = page_of(run)
    said = "pictures of the examples cannot be read any more"
    assert missing(page, said, HOSTILE) == []
    assert len(page.images) == 3 + 8  # the queries' pictures alone
    assert str(run) not in page.words


def test_an_unfinished_run_says_so_and_shows_the_rest(run):
    (run / "environment.json").unlink()
    assert "No environment was recorded" in page_of(run).words
    (run / "metrics.json").unlink()
    assert "The run was not evaluated: `channelhash evaluate 'my run'`" in page_of(run).words
    for name in ("model", "codes", "plots"):
        shutil.rmtree(run / name)
    log = (run / "log.jsonl").read_text().splitlines()
    (run / "log.jsonl").write_text("\n".join(log[:3]) + "\n")
    page = page_of(run)
    said = "Training has not ended: 3 of 6 epochs are done."
    assert missing(page, said, "3 epochs in") == []
    assert "Code health" not in page.words


def test_a_run_of_another_version_is_shown_as_far_as_it_is_understood(run):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["loss"]["kappa"] = 0.5
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    (run / "metrics.json").write_text('{"image->text": 0.5}')
    (run / "splits.json").write_text('{"query": [1]}')
    (run / "log.jsonl").write_text('{"step": 1}\n')
    (run / "environment.json").write_text("{}")
    (run / "codes" / "test-query.parquet").write_bytes(b"PAR1")
    page = page_of(run)
    said = [
        "config.yaml: unknown key loss.kappa",
        "metrics.json: holds no scores",
        "splits.json: not the",
        "log.jsonl, line 1: no epoch of this version",
        "environment.json: not a list",
        "kappa: 0.5",
        "test-query.parquet: not a",
    ]
    assert missing(page, *said) == []
    assert str(run.parent) not in page.words.replace(settings["data"]["path"], "")


@pytest.fixture
def grid(run, tmp_path) -> Path:
    """A grid's folder made by hand: one run finished, one failed, one that never started."""
    folder = tmp_path / "grid"
    done = folder / "runs" / "done"
    broken = folder / "runs" / "broken"
    shutil.copytree(run, done)
    broken.mkdir(parents=True)
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["loss"]["gamma_w"] = 2.5
    (broken / "config.yaml").write_text(yaml.safe_dump(settings))
    (broken / "failed.txt").write_text(f"JobError: {HOSTILE}")
    epochs = {"last": {"test": load(run / "metrics.json")["tasks"]}}
    (done / "result.json").write_text(json.dumps({"epochs": epochs, "seconds": 12.34}))
    np.savez(done / "query_ap.npz", **{"last|test|image->text": np.array([0.5])})
    names = {"done": "DSCH", "broken": "DSCH wide", "later": "SCH <small>"}
    runs = [
        {"name": name, "method": method, "settings": settings} for name, method in names.items()
    ]
    index = {
        "title": "Which channel?",
        "command": "channelhash experiment losses --seeds 3",
        "runs": runs,
    }
    (folder / "grid.json").write_text(json.dumps(index))
    (folder / "tables").mkdir()
    rows = ((Cell("image → text"), Cell("DSCH | <b>*1*</b>"), Cell("55.4 ± 0.2", bold=True)),)
    write_tables(
        [Table("map", "mAP by task", ("Task", "Method", "k = 16"), rows, "Best in <i>.")],
        folder / "tables",
    )
    (folder / "tables" / "other.md").write_text(f"{HOSTILE}\n| a |\n| b | c |\n")
    (folder / "plots").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "plots" / "gamma-w.png")
    return folder


def test_a_grids_page_lists_its_runs_tables_and_plots(grid):
    page = page_of(grid)
    said = [
        "Which channel?",
        "1 of 3 runs failed",
        "1 of 3 runs have not ended",
        "loss gamma_w",
        "2.5",
        "12.3",
        f"JobError: {HOSTILE}",
        "SCH <small>",
        "mAP by task",
        "gamma w",
        "not run yet",
        "image → textDSCH | <b>*1*</b>55.4 ± 0.2 Best in <i>.",
        "channelhash experiment losses --seeds 3",
        "gamma_l: 1.0",
    ]
    tasks = load(grid / "runs" / "done" / "result.json")["epochs"]["last"]["test"]
    assert missing(page, *said, print_score(tasks["image->text"]["map_tie_aware"])) == []
    assert "<b>55.4 ± 0.2</b>" in (grid / "report.html").read_text(encoding="utf-8")
    assert "gamma_w:" not in page.words  # it is no setting that all runs share
    captions = re.compile(re.escape(HOSTILE) + r" \d")  # of the examples
    assert "alert" not in captions.sub("", page.words.replace(f"JobError: {HOSTILE}", ""))
    assert len(page.images) == 1 + 2 * 4 * 7  # the plot, and a picture a card of the examples


def test_a_grids_page_begins_with_how_good_its_runs_are(grid):
    page = page_of(grid)
    sections = "how-good retrieval-examples plots tables runs configuration"
    assert in_order(page, *sections.split())
    said = [
        "A grid of 3 runs: 3 methods, 12 bits, seeds 0",
        "0 of 1 trained runs are at chance.",
        "Answers of done, the best by mean mAP.",
    ]
    assert missing(page, *said) == []
    run = grid / "runs" / "done"
    shuffle_labels(run)
    result = load(run / "result.json")
    for scores in result["epochs"]["last"]["test"].values():
        scores["map_tie_aware"] = scores["chance"] / 2
    (run / "result.json").write_text(json.dumps(result))
    assert "1 of 1 trained runs are at chance." in page_of(grid).words
    (run / "metrics.json").unlink()
    page = page_of(run)  # a run of a grid has a page of its own
    assert "test split, last epoch; shares in %" in page.words
    assert "not evaluated" not in page.words


def test_other_folders_and_files_are_refused(tmp_path, grid, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    for place in (empty, tmp_path / "nowhere", grid / "grid.json"):
        assert_refused(capsys, "report", place, says=f"{place}: neither a run's folder")
    (empty / "config.yaml").write_text("- 1")
    assert_refused(capsys, "report", empty, says="config.yaml: is no run's configuration")
    (empty / "config.yaml").write_text("a: [")
    assert_refused(capsys, "report", empty, says="config.yaml: not readable YAML")
    (grid / "runs" / "done" / "result.json").write_text("{}")
    assert_refused(capsys, "report", grid, says="result.json: not a result of this version")
    config = grid / "runs" / "done" / "config.yaml"
    config.write_text(config.read_text().replace("n_bits: 12\n", "n_bits: eight\n"))
    says = f"{config}: not a run's configuration (model.n_bits is 'eight'); remove the"
    assert_refused(capsys, "report", grid, says=says)
    (grid / "grid.json").write_text('{"runs": []}')
    assert_refused(capsys, "report", grid, says="grid.json: not a grid of this version")


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
    ticks, _, _ = words(line_chart("loss", "epoch", {"a": [(1, 1.0), (2, 2.0)]}).svg).partition(
        "epoch"
    )
    assert ticks.split() == ["1", "2"], "whole epochs"
    other = line_chart("mAP", "epoch", SERIES)
    # ids are unique, addresses within the page
    page = read_page(f"<style></style>{chart.svg}{other.svg}")
    assert page.ids
    assert page.tags.count("style") == 1


def test_points_that_are_not_finite_are_left_out():
    finite = line_chart("loss", "epoch", {"a": [(1, 1.0), (4, 2.0)]})
    gaps = line_chart(
        "loss",
        "epoch",
        {"a": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)], "b": [(1, math.nan)]},
    )
    assert gaps == finite
    assert line_chart("loss", "epoch", {"a": [(1, math.nan)]}) is None


def test_levels_are_marked_beside_the_interval_of_chance():
    rows = {"<DSCH>": [Mark(40.0, "seed 0 & <1>: 40", (35.0, 45.0)), Mark(70.0, "own: 70")]}
    rows["LSH"] = [Mark(33.0, "lsh: 33")]
    chart = level_chart("mAP, %", rows, {"<DSCH>": (30.0, 31.0)})
    assert all(word in words(chart.svg) for word in ("<DSCH>", "LSH", "run", "chance"))
    assert "<DSCH>: seed 0 & <1>: 40, own: 70; chance 30.0 to 31.0" in chart.description


TASKS = {
    "image->text": {
        "map_tie_aware": 0.5,
        "new_score": 0.25,
        "map_at": {"50": 0.75},
        "curve": [0.1, None],
        "queries": 3,
    },
    "text->image": {
        "map_tie_aware": 0.6,
        "chance": 0.125,
        "by_radius": {"recall": [0.0, 1.0, 0.5]},
    },
}


def test_every_key_becomes_a_row_whatever_it_is_called():
    table = score_table("test split", TASKS)
    assert table.header == ["score", "image → text", "text → image"]
    assert table.rows == [
        ("mAP tie-aware", "50.00", "60.00"), ("new score", "25.00", "–"), ("mAP@50", "75.00", "–"),
        ("queries counted", "3", "–"), ("chance level", "–", "12.50"),
    ]  # fmt: skip
    report = {"conventions": {"sch": {"map@50": {"in_order": None, "upper": 0.5}}}}
    rows = [
        ("as others print it: sch map@50, in order", "–"),
        ("as others print it: sch map@50, upper", "50.00"),
    ]
    assert score_table("test split", {"image->text": report}).rows == rows


def test_figures_of_a_grids_run_are_found_by_epoch_and_view(tmp_path):
    epochs = {"last": {"test": TASKS, "leak_free": TASKS}, "best": {"validation": TASKS}}
    (tmp_path / "result.json").write_text(json.dumps({"epochs": epochs}))
    (tmp_path / "metrics.json").write_text(json.dumps({"tasks": TASKS}))
    titles = [title for title, _ in read_evaluations(tmp_path)]
    assert titles == [
        "test split, last epoch",
        "leak free, last epoch",
        "validation split, best epoch",
    ]


def code_sets(seed: int, told: bool) -> tuple[CodeSet, CodeSet]:
    """Queries and a database of random codes, or of codes that are their labels."""
    random = np.random.default_rng(seed)

    def codes(n: int) -> CodeSet:
        labels = random.random((n, 8)) < 0.2
        labels[np.arange(n), random.integers(0, 8, n)] = True
        bits = (
            np.packbits(labels, axis=1) if told else random.integers(0, 256, (n, 1), dtype=np.uint8)
        )
        return CodeSet([str(i) for i in range(n)], {"image": bits, "text": bits}, labels, n_bits=8)

    return codes(30), codes(60)


def test_chance_is_what_the_same_codes_get_with_shuffled_labels():
    query, database = code_sets(0, told=True)
    random = generator(0, "chance", "image->text")
    shuffled = [replace(database, labels=random.permutation(database.labels)) for _ in range(39)]
    levels = [evaluate(query, codes)["image->text"]["map_tie_aware"] for codes in shuffled]
    standing, report = (
        page.Standing.by_labels(query, database)[0],
        evaluate(query, database)["image->text"],
    )
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
    assert (
        page.Standing.by_labels(query, CodeSet(database.ids, database.codes, None, n_bits=8)) == []
    )
    assert page.verdict([]) == ""


@pytest.mark.parametrize(("recall", "at_chance"), [(0.05, True), (0.1, True), (0.4, False)])
def test_recall_stands_beside_the_binomial_interval_of_guessing(recall, at_chance):
    report = {"recall_at": {"10": recall}, "recall_items": 100, "queries": 100}
    (standing,) = page.Standing.by_recall(
        {"image->text": report, "text->text": {"map_tie_aware": 1.0}}
    )
    # scipy.stats.binom(100, 0.1).interval(0.95)
    assert standing.chance == pytest.approx((0.05, 0.16), abs=0.011)
    assert standing.at_chance is at_chance
    assert standing.measure == "Recall@10"
