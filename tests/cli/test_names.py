"""``config``, ``list`` and the help of the command line; short options of ``train`` beside the keys they stand for."""

from pathlib import Path

import pytest
from click import Context
from typer.main import get_command

from channelhash.cli import train as train_command
from channelhash.cli.main import app
from channelhash.config import read_config
from channelhash.data import DATA_KINDS
from channelhash.lab.experiments.studies import EXPERIMENTS
from channelhash.losses import LOSSES
from channelhash.models import MODELS
from channelhash.models.description import ENCODER_FORMS
from channelhash.models.encoders import _ENCODERS
from channelhash.presets import preset_path, presets
from channelhash.search import STORES
from small_runs import assert_refused, feature_config, run_command, run_json, run_text, write_features


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


def test_stores_and_encoders_are_listed_by_their_forms(capsys):
    assert set(_ENCODERS) <= {form.partition(":")[0] for form in ENCODER_FORMS}
    forms = run_json(capsys, "list", "stores")
    assert all(any(form.startswith(scheme) for form in forms) for scheme in STORES)


def test_configurations_are_listed_and_shown(capsys):
    assert set(run_json(capsys, "config", "list")) == set(presets())
    assert run_command("config", "show", "fast") == 0
    assert capsys.readouterr().out == preset_path("fast").read_text(encoding="utf-8")
    assert_refused(capsys, "config", "show", "fats", says="no preset 'fats'; there are benchmark, cliphash, coco-text")


def test_short_options_are_the_keys_they_stand_for(tmp_path, capsys):
    features = write_features(tmp_path / "f.npz")
    config = feature_config(tmp_path / "c.yaml", tmp_path / "other.npz", epochs=3)
    short = ["--data", features, "--epochs", "1", "--set", "train.epochs=2"]
    assert run_command("train", config, *short, "--out", tmp_path / "run") == 0
    keys = [f"data.path={features}", "data.kind=features", "train.epochs=2"]
    assert read_config(tmp_path / "run" / "config.yaml") == read_config(config, keys)
    odd = {"i.csv": "pictures", "a: b.csv": "2024", "[x], 'y\"\\.csv": "1e4", "größe #1.csv": "~"}
    for table, pictures in odd.items():
        keys = train_command._short_overrides(preset_path("table"), Path(table), Path(pictures), 4)
        found = read_config(preset_path("table"), keys)
        paths = Path(table).absolute(), Path(pictures).absolute()
        assert (found.source.path, found.source.root, found.train.epochs) == (*paths, 4)
    assert_refused(capsys, "train", "--data", "i.json", says="--data i.json: a file ends in .csv, .tsv, .jsonl")
    for preset, keys in {"wikipedia": ['data.root="./."'], "mirflickr-tags": ['data.path="./."']}.items():
        assert train_command._short_overrides(preset_path(preset), Path(), None, None) == keys


@pytest.mark.parametrize("group", ["", "index", "data", "config"])
@pytest.mark.parametrize("columns", [80, 140])
def test_no_sentence_of_a_list_of_commands_is_cut(group, columns):
    command = get_command(app)
    context = Context(command, info_name="channelhash", max_content_width=columns, terminal_width=columns)
    if group:
        command = command.get_command(context, group)
        context = Context(command, context, group, max_content_width=columns, terminal_width=columns)
    lines = command.get_help(context).splitlines()[1:]  # the first ends in [ARGS]...
    assert not [line for line in lines if line.endswith("...")]
    assert max(map(len, lines)) <= columns
