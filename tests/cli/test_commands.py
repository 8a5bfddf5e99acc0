"""The commands, as a person runs them."""

import inspect
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints
from unittest.mock import Mock

import numpy as np
import pytest
from click import Context
from PIL import Image
from typer.main import get_command

import channelhash as ch
from channelhash.cli import main
from channelhash.cli.main import app
from channelhash.config import read_config, read_sections
from channelhash.data import DATA_KINDS
from channelhash.lab import demo, download
from channelhash.lab.experiments.studies import EXPERIMENTS
from channelhash.losses import LOSSES
from channelhash.models import MODELS, load_model
from channelhash.models.description import ENCODER_FORMS
from channelhash.models.encoders import _ENCODERS
from channelhash.presets import preset_path, presets, short_overrides
from channelhash.search import STORES
from data import nuswide_tree
from data.mirflickr_tree import write_tree
from extras import needs
from pages import DOCS, run_page
from picture_runs import picture_config, tiny_clip, write_pictures
from small_runs import (
    assert_refused,
    feature_config,
    run_command,
    run_json,
    run_text,
    train_run,
    write_features,
)

GROUPS = get_command(app).commands
#: All commands but the two that only list names.
COMMANDS = sorted(GROUPS.keys() - {"index", "data", "config", "list"})
COMMANDS += [f"{group} {name}" for group in ("index", "data") for name in GROUPS[group].commands]
PLOTS = ["distances.png", "precision-recall.png", "radius.png"]
TASKS = ["image->text", "text->image", "image->image", "text->text"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command, capsys):
    assert f"Example: channelhash {command}" in " ".join(
        run_text(capsys, *command.split(), "--help").split()
    )


@pytest.mark.parametrize("words", [["evaluate", "--help"], ["--version"]])
def test_help_and_version_do_not_import_torch_or_matplotlib(words):
    code = (
        f"import sys; sys.argv = ['channelhash', *{words}]\nfrom channelhash.cli.main import main\n"
    )
    code += (
        "try: main()\nexcept SystemExit: pass\nassert not {'torch', 'matplotlib'} & "
        "set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--help" in words or done.stdout.strip() == ch.__version__


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished feature run, evaluated."""
    root = tmp_path_factory.mktemp("run")
    run = train_run(feature_config(root / "c.yaml", write_features(root / "f.npz"), epochs=12))
    assert run_command("evaluate", run) == 0
    return run


def test_train_learns_and_prints_json_alone_on_stdout(tmp_path, capfd):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=12)
    assert run_command("train", config, "--out", tmp_path / "run", "--json") == 0
    stdout, stderr = capfd.readouterr()
    result = json.loads(stdout)
    assert (result["run"], result["epochs"]) == (str(tmp_path / "run"), 12)
    assert (set(result["validation"]), stdout.count("\n")) == (set(TASKS), 1)
    assert "epochs, last mean loss" not in stderr


def test_evaluate_gives_the_figures_people_script_against(run, capsys):
    result = run_json(capsys, "evaluate", run)
    assert (result["n_bits"], list(result["tasks"])) == (12, TASKS)
    for report in result["tasks"].values():
        names = "map_tie_aware map_lower map_upper map_at precision_at ndcg roc_auc_micro"
        assert set(names.split()) <= set(report)
        assert report["map_lower"] <= report["map_tie_aware"] <= report["map_upper"]
        assert report["map_tie_aware"] > report["chance"] + 0.1
        assert (report["queries"], report["skipped"]) == (40, 0)
    assert result == json.loads((run / "metrics.json").read_text())
    assert sorted(path.name for path in (run / "plots").glob("*.png")) == PLOTS


def test_evaluate_on_other_parts(run, capsys):
    results = {}
    options = {
        "validation": "--split=validation",
        "best": "--checkpoint=best",
        "leak-free": "--leak-free",
    }
    for name, option in options.items():
        results[name] = run_json(capsys, "evaluate", run, option)["tasks"]["image->text"]
        assert sorted(path.name for path in (run / "plots" / name).iterdir()) == PLOTS
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert results["validation"]["map_tie_aware"] == pytest.approx(
        log[-1]["validation"]["image->text"], abs=1e-12
    )
    whole = json.loads((run / "metrics.json").read_text())["tasks"]["image->text"]
    assert results["leak-free"]["map_tie_aware"] != whole["map_tie_aware"]
    refused = ("evaluate", run, "--split=validation", "--leak-free")
    assert_refused(capsys, *refused, says="no training rows anyway")


def test_encode_then_search_by_id(run, tmp_path, capsys):
    out = tmp_path / "codes.parquet"
    assert run_command("encode", run, "--data", run.parent / "f.npz", "--out", out) == 0
    codes = ch.CodeSet.load(out)
    assert (len(codes), codes.model) == (240, ch.load_model(run).fingerprint())
    results = run_json(capsys, "search", out, "--like", "item007", "-k", "4", "--modality", "text")[
        "results"
    ]
    distances = ch.codes.hamming_distances(codes.codes["text"][7:8], codes.codes["text"])[0]
    expected = sorted((int(d), name) for d, name in zip(distances, codes.ids, strict=True))[:4]
    assert [(hit["distance"], hit["id"]) for hit in results] == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{run} a --text b", "--text: the query is given twice"),
        ("{run} --text dog", "names no extractor"),
        ("{codes} --text dog", "add --model with the run that made these codes"),
        ("{empty} --text dog", "{empty}: has no pictures; put some into it, or make a store"),
        ("{empty}/gone dog", "gone: no such folder; check the name"),
        ("{empty}/gone.parquet dog", "gone.parquet: no such folder or file; check"),
    ],
)
def test_search_that_makes_no_sense_is_refused(run, capsys, tmp_path, words, says):
    codes = run / "codes" / "test-retrieval.parquet"
    words = words.format(run=run, codes=codes, empty=tmp_path)
    assert_refused(capsys, "search", *words.split(), says=says.format(empty=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.epoch=3", "unknown key train.epoch; did you mean 'epochs'?"),
        ("model.name=smal", "unknown model.name 'smal'; did you mean 'small'?"),
        ("loss.name=dshc", "unknown loss.name 'dshc'; did you mean 'dsch'?"),
        ("loss.name=python:", "loss.name python:: write it as python:package.module:Name"),
        ("loss.name=[dsch]", "unknown loss.name ['dsch']"),
        ("tain.epochs=3", "unknown section 'tain'; did you mean 'train'?"),
        ("train.epochs=many", "train.epochs: input should be a valid integer"),
        ("model.n_bits=0", "model.n_bits: a code has at least 1 bit, got 0"),
        ("data.train=0", "data.train: there are no training rows; set it to 1 or more"),
        ("train.device=gpu", "device 'gpu' is not there"),
        ("train.device=cuda:99", "device 'cuda:99' is not there"),
        ("data.queries=999", "queries: 999 asked for, but there are 240 usable rows"),
        ("train", "write it as section.key=value"),
    ],
)
def test_mistakes_in_a_configuration_are_one_line(tmp_path, capsys, override, says):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"))
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", "--set", override, says=says)


def test_configuration_files_that_cannot_be_read_are_named(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    assert_refused(capsys, "train", path, says="no such configuration file")
    for text, says in (("data: [", "not readable YAML"), ("3", "a configuration has the sections")):
        path.write_text(text)
        assert_refused(capsys, "train", path, says=says)
    path.write_text("data: {kind: features, path: x.npz}\nmodel: {name: features}")
    assert_refused(capsys, "train", path, says="loss.name: is missing")


def test_unknown_options_and_runs_end_with_status_2_and_debug_shows_the_traceback(capsys, tmp_path):
    assert run_command("train", "--nonsense") == 2
    assert_refused(capsys, "evaluate", tmp_path, says="not a run's folder")
    assert run_command("evaluate", tmp_path, "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder with a table of 80 small pictures."""
    return write_pictures(tmp_path_factory.mktemp("pictures"), 80).parent


def table_config(path: Path, table: Path) -> Path:
    model = {"name": "small", "n_bits": 8, "image_size": 16, "width": 8}
    return picture_config(path, table, model, epochs=8, learning_rate=3e-3)


@pytest.fixture(scope="module")
def picture_run(pictures, tmp_path_factory) -> Path:
    """A finished run on the pictures."""
    return train_run(
        table_config(tmp_path_factory.mktemp("run") / "c.yaml", pictures / "items.csv")
    )


def test_a_persons_table_from_pictures_to_answers(pictures, picture_run, tmp_path, capsys):
    assert run_command("evaluate", picture_run) == 0
    results = run_json(capsys, "search", picture_run, "--text", "red", "-k", "5")["results"]
    assert {tuple(hit["labels"]) for hit in results} == {("red",)}
    sheet = tmp_path / "answers.png"
    question = ("--image", pictures / "images" / "2.png", "-k", "3", "--sheet", sheet)
    results = run_json(capsys, "search", picture_run, *question)["results"]
    assert {(*hit["labels"], hit["text"].split()[2]) for hit in results} == {("blue", "blue")}
    assert Image.open(sheet).size[0] > 400
    out = tmp_path / "folder.parquet"
    assert run_command("encode", picture_run, "--data", pictures, "--out", out) == 0
    assert ch.CodeSet.load(out).ids[:2] == ("images/0.png", "images/1.png")
    assert (
        run_command("search", out, "--text", "blue", "--model", picture_run, "-k", "1", "--json")
        == 0
    )


def test_new_items_need_no_labels_and_may_be_skipped(pictures, picture_run, tmp_path, capsys):
    table, out = tmp_path / "new.csv", tmp_path / "new.parquet"
    (tmp_path / "broken.png").write_bytes((pictures / "images" / "0.png").read_bytes()[:60])
    table.write_text(
        f"id,image,text\nx,images/0.png,words\ny,gone.png,words\nz,{tmp_path / 'broken.png'},words\n"
    )
    arguments = ["encode", picture_run, "--data", table, "--root", pictures, "--out", out]
    assert_refused(capsys, *arguments, says="line 3 (id y): no such picture")
    assert not out.exists()
    assert run_json(capsys, *arguments, "--skip-bad")["removed"] == {
        "missing picture": 1,
        "unreadable picture": 1,
    }
    codes = ch.CodeSet.load(out)
    assert (codes.ids, codes.labels) == (("x",), None)
    gone = ("encode", picture_run, "--data", tmp_path / "gone", "--out", out)
    assert_refused(capsys, *gone, says="no such folder")


def test_a_batch_that_is_larger_than_the_training_set_is_all_of_it(tmp_path, capsys):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=2)
    words = ("train", config, "--set=train.batch_size=121", "--out", tmp_path / "run")
    line = "train.batch_size is 121, and 120 rows are trained on: a batch is all of them"
    assert run_command(*words, "--dry-run") == 0
    assert f"problem: {line}\n" in capsys.readouterr().err
    plan = run_json(capsys, *words, "--dry-run")
    assert (plan["steps"], plan["problems"]) == (2, [line])
    assert run_json(capsys, *words)["problems"] == [line]


def test_a_collection_without_relevant_pairs_is_refused(tmp_path, capsys):
    path = tmp_path / "f.npz"
    np.savez(path, image=np.ones((60, 4)), text=np.ones((60, 4)), labels=np.eye(60, dtype=int))
    config = feature_config(tmp_path / "c.yaml", path)
    sizes = ["--set=data.queries=5", "--set=data.train=40"]
    says = "no query shares a label with an item of the retrieval set"
    for options in ([], ["--set=data.validation_queries=0"], ["--dry-run"]):
        out = ["--out", tmp_path / "a"]
        assert_refused(capsys, "train", config, *sizes, *options, *out, says=says)
    parts = ["query"] * 5 + ["train"] * 40 + ["validation"] * 15
    ids = np.array([f"{part}{row}" for row, part in enumerate(parts)])
    labels = np.eye(60, dtype=int)
    labels[:45] = labels[0]  # of queries and training rows
    np.savez(path, image=np.ones((60, 4)), text=np.ones((60, 4)), labels=labels, id=ids)
    given = [f"--set=data.{key}" for key in ("queries=null", "train=null", "split_method=given")]
    says = "none of the 7 validation queries shares a label"
    assert_refused(capsys, "train", config, *given, "--out", tmp_path / "b", says=says)


def test_bad_rows_stop_a_run_or_are_left_out_and_listed(pictures, tmp_path, capsys, caplog):
    table = tmp_path / "items.csv"
    (tmp_path / "broken.png").write_bytes((pictures / "images" / "0.png").read_bytes()[:60])
    bad = (
        "\n80,gone.png,a word,red\nitem003,images/3.png,a "
        f"word,red\n81,{tmp_path / 'broken.png'},a word,red\n"
    )
    table.write_text((pictures / "items.csv").read_text().strip() + bad)
    config = table_config(tmp_path / "c.yaml", table)
    train = ("train", config, f"--set=data.root={pictures}", "--out", tmp_path / "b")
    assert_refused(capsys, *train, says="line 82 (id 80): no such picture")
    problems = run_json(capsys, *train, "--skip-bad")["problems"]
    assert len(problems) == 3
    assert problems[2].startswith(f"id 81: unreadable picture {tmp_path / 'broken.png'} (")
    assert (tmp_path / "b" / "problems.txt").read_text().splitlines() == problems
    (line,) = (
        record.getMessage() for record in caplog.records if record.name == "channelhash.train"
    )
    assert line.endswith(f"the last is: {problems[-1]}")


def test_describe_counts_a_collection_too_small_for_its_splits(tmp_path, capsys):
    write_tree(tmp_path)
    arguments = [
        "data",
        "describe",
        "mirflickr25k",
        "--data",
        tmp_path,
        "--set=data.min_tag_count=2",
    ]
    result = run_json(capsys, *arguments)
    assert (result["found"], result["usable"], result["partitions"]) == (10, 6, {})
    assert result["removed"] == {"no tag": 2, "no label": 1, "no tag that occurs 2 times": 1}
    problems = " / ".join(result["problems"])
    assert "the official collection has 25000" in problems
    assert "queries: 2000 asked for, but there are 6 usable rows" in problems


@pytest.mark.parametrize("column", ["image", "text"])
def test_one_modality_alone_is_enough(pictures, tmp_path, capsys, column):
    rows = [line.split(",") for line in (pictures / "items.csv").read_text().splitlines()]
    kept = [0, rows[0].index(column), 3]
    (tmp_path / "items.csv").write_text("\n".join(",".join(row[i] for i in kept) for row in rows))
    config = table_config(tmp_path / "c.yaml", tmp_path / "items.csv")
    root = [f"--set=data.root={pictures}"]
    validation = run_json(capsys, "train", config, *root, "--out", tmp_path / "run")["validation"]
    assert list(validation) == [f"{column}->{column}"]
    assert validation[f"{column}->{column}"] > 0.8


def test_nuswide_from_loopback_and_its_pictures_are_counted(tmp_path, capsys, monkeypatch):
    tree = nuswide_tree.write_tree(tmp_path / "tree")
    for folder in ("ImageList", "Groundtruth", "NUS_WID_Tags"):  # the archives, already fetched
        archive = shutil.make_archive(
            str(tmp_path / "root" / "archives" / folder), "zip", tree / folder
        )
        assert archive.endswith(f"{folder}.zip")
    monkeypatch.setattr(download, "_fetch", None)  # nothing may be requested
    result = run_json(capsys, "data", "download", "nuswide", "--out", tmp_path / "root")
    assert (result["pictures"], result["listed"]) == (0, 6)
    shutil.copytree(tree / "Flickr", tmp_path / "root" / "Flickr")
    assert "6 of 6 pictures found" in run_text(
        capsys, "data", "download", "nuswide", "--out", tmp_path / "root"
    )
    sizes = [
        part
        for size in ("data.queries=2", "data.train=2", "data.validation_queries=1")
        for part in ("--set", size)
    ]
    result = run_json(capsys, "data", "describe", "nuswide", "--data", tmp_path / "root", *sizes)
    assert (result["found"], result["usable"], result["partitions"]["query"]) == (6, 6, 2)


def test_synthesize_then_describe(tmp_path, capsys):
    assert run_command("data", "synthesize", tmp_path / "s", "--images", "40", "--json") == 0
    sizes = [
        part
        for size in ("data.n_images=40", "data.queries=4", "data.train=8")
        for part in ("--set", size)
    ]
    describe = ("data", "describe", "synthetic", "--data", tmp_path / "s", *sizes)
    result = run_json(capsys, *describe)
    assert (result["found"], result["usable"] + sum(result["removed"].values())) == (40, 40)
    assert (len(result["labels"]), result["partitions"]["query"]) == (24, 4)
    shown = run_text(capsys, *describe)
    assert f"40 samples found, {result['usable']} usable" in shown
    assert f"shares a label with probability {100 * result['chance']:.1f} %" in shown
    assert_refused(
        capsys, "data", "synthesize", tmp_path / "s", "--images", "41", says="use another folder"
    )
    assert_refused(capsys, "data", "describe", "sintetic", says="did you mean 'synthetic'?")
    says = "--set: keys of the section data alone are read here"
    assert_refused(capsys, *describe, "--set=train.epochs=3", says=says)


@pytest.mark.slow
def test_the_demo_makes_everything_it_says(tmp_path, capsys, monkeypatch):
    """The demo at a tenth of its quick size; `.ci/run` runs the quick one."""

    def tiny(folder: Path, loss: str, quick: bool, seed: int = 0):
        values = {
            "data": {
                "kind": "synthetic",
                "root": folder / "data",
                "n_images": 120,
                "queries": 15,
                "train": 64,
            },
            "model": {"name": "small", "n_bits": 16, "image_size": 32, "width": 8},
            "loss": {"name": loss},
            "train": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-3, "validate_every": 0},
        }
        return demo.make_config(values)

    monkeypatch.setattr(demo, "demo_config", tiny)
    printed = run_text(capsys, "demo", "--quick", "--out", tmp_path / "d")
    shown = ("image → text", "Next, words of your own", "portrait of a woman")
    for words in ("dsch", "sch", "tdsrdh", "chance", *shown):
        assert words in printed
    result = run_json(capsys, "demo", "--quick", "--out", tmp_path / "d")
    assert {tuple(tasks) for tasks in result["losses"].values()} == {tuple(TASKS)}
    assert (set(result["sheets"]), len(result["texts"])) == ({"text", "image"}, 5)
    for fit in result["texts"].values():
        assert 0 <= fit["fitting"] <= fit["shown"] == 7
        assert f"{fit['fitting']} of 7" in printed
    for sheet in result["sheets"].values():
        assert Image.open(sheet).size == (8 * 148 + 12, 5 * 192)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            KeyError("rows"),
            "KeyError: 'rows'; this is a bug, please report it; --debug shows where",
        ),
        (RecursionError("maximum depth"), "RecursionError: maximum depth; this is a bug"),
        (
            MemoryError("Unable to allocate 7 TiB"),
            "out of memory (Unable to allocate 7 TiB); take a smaller input",
        ),
    ],
)
def test_the_unforeseen_ends_in_one_line(error, says, monkeypatch, capsys):
    monkeypatch.setattr(main, "app", Mock(side_effect=error))
    assert_refused(capsys, "search", says=says, status=1)


def test_the_page_is_written(tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert run_json(capsys, "landscape", "--out", page) == {"page": str(page)}
    assert page.read_text().startswith("<!doctype html>")
    assert_refused(capsys, "landscape", "--out", tmp_path, says="is a folder; name the page")


# The commands config and list, short options, and help


@pytest.mark.parametrize(("kind", "expected"), [
    ("losses", LOSSES), ("models", MODELS), ("encoders", ENCODER_FORMS), ("data", DATA_KINDS),
    ("experiments", EXPERIMENTS),
])  # fmt: skip
def test_everything_that_can_be_named_is_listed_with_a_line(kind, expected, capsys):
    found = run_json(capsys, "list", kind)
    assert set(found) == set(expected)
    assert all(len(meaning) > 10 for meaning in found.values())
    shown = run_text(capsys, "list", kind)
    assert all(name in shown for name in found)
    assert set(_ENCODERS) <= {form.partition(":")[0] for form in ENCODER_FORMS}
    forms = run_json(capsys, "list", "stores")
    assert all(any(form.startswith(scheme) for form in forms) for scheme in STORES)


def test_configurations_are_listed_and_shown(capsys):
    assert set(run_json(capsys, "config", "list")) == set(presets())
    assert run_command("config", "show", "fast") == 0
    assert capsys.readouterr().out == preset_path("fast").read_text(encoding="utf-8")
    assert_refused(
        capsys,
        "config",
        "show",
        "fats",
        says="no preset 'fats'; there are benchmark, cliphash, coco-text",
    )


def test_short_options_are_the_keys_they_stand_for(tmp_path, capsys):
    features = write_features(tmp_path / "f.npz")
    config = feature_config(tmp_path / "c.yaml", tmp_path / "other.npz", epochs=3)
    short = ["--data", features, "--epochs", "1", "--set=train.epochs=2"]
    assert run_command("train", config, *short, "--out", tmp_path / "run") == 0
    keys = [f"data.path={features}", "data.kind=features", "train.epochs=2"]
    assert read_config(tmp_path / "run" / "config.yaml") == read_config(config, keys)
    odd = {"i.csv": "pictures", "a: b.csv": "2024", "[x], 'y\"\\.csv": "1e4", "größe #1.csv": "~"}
    for table, pictures in odd.items():
        keys = short_overrides(read_sections(preset_path("table")), Path(table), Path(pictures), 4)
        found = read_config(preset_path("table"), keys)
        paths = Path(table).absolute(), Path(pictures).absolute()
        assert (found.source.path, found.source.root, found.train.epochs) == (*paths, 4)
    assert_refused(
        capsys, "train", "--data", "i.json", says="--data i.json: a file ends in .csv, .tsv, .jsonl"
    )
    for preset, keys in {
        "wikipedia": ['data.root="./."'],
        "mirflickr-tags": ['data.path="./."'],
    }.items():
        assert short_overrides(read_sections(preset_path(preset)), Path()) == keys


@pytest.mark.parametrize("group", ["", "index", "data", "config"])
@pytest.mark.parametrize("columns", [80, 140])
def test_no_sentence_of_a_list_of_commands_is_cut(group, columns):
    command = get_command(app)
    context = Context(
        command, info_name="channelhash", max_content_width=columns, terminal_width=columns
    )
    if group:
        command = command.get_command(context, group)
        context = Context(
            command, context, group, max_content_width=columns, terminal_width=columns
        )
    lines = command.get_help(context).splitlines()[1:]  # the first ends in [ARGS]...
    assert not [line for line in lines if line.endswith("...")]
    assert max(map(len, lines)) <= columns


# The commands of MITH's protocol, dry, on small archives of the collections' layout


def write_coco(root: Path) -> Path:
    """Two parts of a collection in COCO's layout, eight images with a label and two without, as the
    page's table.
    """
    (root / "annotations").mkdir()
    for part, numbers in (("train2014", range(6)), ("val2014", range(6, 10))):
        (root / part).mkdir()
        images = [{"id": number, "file_name": f"{number}.jpg"} for number in numbers]
        for image in images:
            Image.new("RGB", (40, 30), (20 * image["id"], 90, 60)).save(
                root / part / image["file_name"]
            )
        labels = [
            {"image_id": number, "category_id": number % 4} for number in numbers if number % 4 < 3
        ]
        categories = [
            {"id": i, "name": name} for i, name in enumerate(("cat", "fire hydrant", "cup", "tie"))
        ]
        captions = [
            {"image_id": number, "caption": f"Number {number}, with a comma."} for number in numbers
        ]
        instances = {"images": images, "annotations": labels + labels[:1], "categories": categories}
        for name, document in (("instances", instances), ("captions", {"annotations": captions})):
            (root / "annotations" / f"{name}_{part}.json").write_text(json.dumps(document))
    page = (Path(__file__).parents[2] / "docs" / "reference" / "mith.md").read_text(
        encoding="utf-8"
    )
    script = next(
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "coco80.csv" in block
    )
    exec(script, {})
    return root / "coco80.csv"


@pytest.mark.parametrize(("preset", "place", "write", "usable"), [
    ("mith-mirflickr25k", "root", write_tree, 6),
    ("mith-nuswide21", "root", nuswide_tree.write_tree, 6),
    ("mith-coco80", "path", write_coco, 8),
])  # fmt: skip
def test_mith_presets_run_dry(preset, place, write, usable, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = {
        f"data.{place}": write(tmp_path),
        "data.queries": 1,
        "data.train": 3,
        "data.validation_queries": 1,
    }
    settings |= {"model.backbone": tiny_clip(tmp_path / "tiny.json"), "model.pretrained": "null"}
    settings |= {"train.batch_size": 2, "train.device": "cpu"}
    if preset == "mith-mirflickr25k":
        settings["data.min_tag_count"] = 2
    arguments = [f"--set={key}={value}" for key, value in settings.items()]
    plan = run_json(
        capsys, "train", "--preset", preset, "--dry-run", "--out", tmp_path / "run", *arguments
    )
    assert (plan["parameters"]["frozen"], plan["features"]) == (0, "online")
    assert sum(plan["rows"][part] for part in ("query", "retrieval")) == usable
    assert not (tmp_path / "run").exists()


# The command export


def test_exported_files_give_the_outputs_of_a_run_or_a_saved_model(picture_run, tmp_path, capsys):
    result = run_json(capsys, "export", picture_run, "--onnx")
    model = load_model(picture_run)
    assert result["out"] == str(picture_run / "onnx")
    assert result["files"] == {
        name: str(picture_run / "onnx" / f"{name}.onnx") for name in ("image", "text")
    }
    assert (result["model"], result["n_bits"], result["fingerprint"]) == (
        "small",
        8,
        model.fingerprint(),
    )
    assert max(result["largest_difference"].values()) < 1e-4
    model.save_pretrained(tmp_path / "saved")
    (tmp_path / "out").mkdir()  # an empty one will do
    export = (
        "export",
        tmp_path / "saved",
        "--onnx",
        "--out",
        tmp_path / "out",
        "--modality",
        "text",
    )
    lines = run_text(capsys, *export).splitlines()
    assert lines[0].startswith(
        f"{tmp_path / 'out' / 'text.onnx'}: text, outputs equal the model's within "
    )
    assert lines[1] == f"How to use them: {tmp_path / 'out' / 'export.json'}"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"text.onnx", "export.json"}


def test_the_documented_program_works(picture_run, tmp_path, capsys):
    shutil.copytree(picture_run / "model", tmp_path / "runs" / "mine" / "model")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)).save(
        tmp_path / "photo.jpg"
    )
    run_page(DOCS / "how-to" / "export.md", tmp_path)


def test_what_cannot_be_meant_is_one_line(picture_run, tmp_path, capsys):
    assert_refused(
        capsys,
        "export",
        picture_run,
        says=f"name the format: channelhash export {picture_run} --onnx",
    )
    assert_refused(
        capsys, "export", tmp_path / "none", "--onnx", says=f"{tmp_path / 'none'}: no such folder"
    )
    assert_refused(
        capsys, "export", tmp_path, "--onnx", says="no config.json, this is not a saved model"
    )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    for used in (tmp_path / "used", tmp_path / "used" / "notes.txt"):
        says = f"{used}: is there already; remove it, or name another folder with --out"
        assert_refused(capsys, "export", picture_run, "--onnx", "--out", used, says=says)
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


@pytest.mark.parametrize(("codes", "modalities"), [("itq", ["image"]), ("auto", ["image", "text"])])
def test_a_store_of_fitted_codes_is_exported_with_its_codes(codes, modalities, tmp_path, capsys):
    needs("onnx")
    features = write_features(tmp_path / "f.npz")
    store = tmp_path / "s"
    assert run_command("index", "create", store, features, "--method", codes) == 0
    capsys.readouterr()
    result = run_json(capsys, "export", store, "--onnx", "--sql")
    names = ["codes.npz", "codes.py", "codes.onnx", "codes.sql"]
    folder = store / "exported"
    assert result["files"] == {
        name: [str(folder / name / file) for file in names] for name in modalities
    }
    model = load_model(store)
    assert (result["out"], result["fingerprint"]) == (str(folder), model.fingerprint())
    for name in modalities:
        rows = np.load(features)[name]
        codes, _ = runpy.run_path(str(folder / name / "codes.py"))["encode"](rows)
        assert (codes == model.encode(name, rows)).mean() > 0.999
    assert run_command("index", "check", store) == 0
    capsys.readouterr()
    export = ("export", store, "--out", tmp_path / "out", "--modality", "image")
    printed = run_text(capsys, *export).splitlines()
    assert printed == [str(tmp_path / "out" / "image" / name) for name in names[:2]]
    says = "audio: no map of it was fitted, so there is none to export"
    assert_refused(capsys, "export", store, "--modality", "audio", says=says)


def test_a_trained_model_has_no_statements_of_sql(picture_run, capsys):
    says = "only fitted codes go to SQL"
    assert_refused(capsys, "export", picture_run, "--onnx", "--sql", says=says)


def options_of(command, path=()):
    """Yield the command, the spellings of each of its options, what it takes and its help."""
    for name, other in getattr(command, "commands", {}).items():
        yield from options_of(other, (*path, name))
    for option in command.params:
        if path and option.param_type_name == "option" and "--help" not in option.opts:
            takes = get_type_hints(inspect.unwrap(command.callback))[option.name]
            spelled = (*option.opts, *option.secondary_opts)
            yield " ".join(path), spelled, kind_of(takes), option.help


def kind_of(annotation):
    """Words, also of a path, a number or a flag."""
    if get_origin(annotation) in (list, Union, UnionType):
        annotation = get_args(annotation)[0]
    return {int: "number", float: "number", bool: "flag"}.get(annotation, "words")


def subject_of(text):
    """The long words of what a help says first."""
    text = re.sub("^(for|with|instead)[^:,]*[:,] ", "", text.lower())
    return frozenset(re.findall("[a-z]{4,}", re.split("[;.:(,]", text)[0]))


WRITTEN = [
    page.read_text(encoding="utf-8") for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md")
]
DESCRIBED = list(options_of(get_command(app)))
OPTIONS = [(command, spelled) for command, spelled, _, _ in DESCRIBED]
#: Options of several commands mean the same everywhere: one page is enough.
SHARED = {spelled for spelled, n in Counter(spelled for _, spelled in OPTIONS).items() if n > 2}


def names(page, words):
    """Whether a page has a command or an option as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", page) is not None


@pytest.mark.parametrize(("command", "spelled"), OPTIONS, ids=lambda value: str(value))
def test_every_option_stands_on_a_page_of_its_command(command, spelled):
    pages = WRITTEN if spelled in SHARED else [page for page in WRITTEN if names(page, command)]
    assert any(names(page, option) for page in pages for option in spelled)


def test_an_option_takes_the_same_everywhere_and_a_plural_is_a_number():
    kinds = {(spelled[-1], kind) for _, spelled, kind, _ in DESCRIBED}
    assert Counter(name for name, _ in kinds).most_common(1)[0][1] == 1
    words = {name for name, kind in kinds if kind == "words"}
    assert [name for name in words if re.sub("y$", "ie", name) + "s" in words] == []


def test_one_thing_has_one_name():
    """Two options that do the same would say so in the same words, or in most of them."""
    subjects = {(spelled[-1], subject_of(text)) for _, spelled, _, text in DESCRIBED}
    for (name, words), (other, others) in combinations(subjects, 2):
        assert name == other or 3 * len(words & others) < 2 * len(words | others), (name, other)
