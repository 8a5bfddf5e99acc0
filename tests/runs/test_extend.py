"""`channelhash extend`: old codes stay as they are, in the run, in its figures and in stores."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import channelhash as ch
from channelhash.codes import binarize, pack
from channelhash.config import read_run_config
from channelhash.data.collection import Collection
from channelhash.data.features import load_features
from channelhash.lab.distill import student_config
from channelhash.runs.evaluate import run_codes
from channelhash.runs.extend import _STORED, extension_config
from channelhash.runs.train import start_run
from channelhash.search.query import load_encoder
from channelhash.utils.progress import no_progress
from picture_runs import clip_model, picture_config, resnet_model, write_pictures
from refusals import check_refusal
from small_runs import (
    assert_refused,
    feature_config,
    interrupt_at,
    run_command,
    run_json,
    train_run,
    write_features,
)

OLD = [
    "--set=data.without_labels=[label 5]",
    "--set=data.queries=30",
    "--set=data.train=80",
]
NEW = ["--set=data.only_labels=[label 5]"]
QUICK = ["--set=train.epochs=3", "--set=train.batch_size=16"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished run ``old`` of the items without ``label 5``, and the features of all items."""
    folder = tmp_path_factory.mktemp("extension")
    config = feature_config(
        folder / "c.yaml", write_features(folder / "f.npz"), epochs=4, validate_every=0
    )
    assert run_command("train", config, "--out", folder / "old", *OLD) == 0
    return folder


def extend(place, out, *arguments, run="old"):
    return run_command(
        "extend", place / run, "--data", place / "f.npz", "--out", out, *NEW, *QUICK, *arguments
    )


@pytest.fixture(scope="module")
def extended(place):
    assert extend(place, place / "new") == 0
    return place / "new"


def test_the_joint_run_keeps_the_old_codes(place, extended):
    description = json.loads((extended / "extension.json").read_text())
    records, old_records = (
        Collection.load(read_run_config(run).sources).records for run in (extended, place / "old")
    )
    assert records.label_names == (*(f"label {j}" for j in range(5)), "label 5")
    assert description["labels"] == {"old": list(records.label_names[:5]), "new": ["label 5"]}
    assert description["items"] == {"old": len(old_records), "new": len(records) - len(old_records)}
    model, old_model = ch.load_model(extended), ch.load_model(place / "old")
    assert model.extends == (old_model.fingerprint(),)
    assert model.comparable(old_model.fingerprint())
    assert not old_model.comparable(model.fingerprint())
    codes = run_codes(extended)
    n_kept = description["stored_codes"]["items"]
    features = load_features(place / "f.npz")
    place_of = {name: row for row, name in enumerate(features.ids)}
    for modality in ("image", "text"):
        for part, maker in (
            (codes.retrieval.ids[:n_kept], old_model),
            (codes.retrieval.ids[n_kept:], model),
        ):
            values = features.items[modality][[place_of[name] for name in part]]
            expected = pack(binarize(maker.outputs(modality, values)))
            start = 0 if maker is old_model else n_kept
            np.testing.assert_array_equal(
                codes.retrieval.codes[modality][start : start + len(part)], expected
            )
    old_splits, splits = (
        json.loads((run / "splits.json").read_text())["rows"] for run in (place / "old", extended)
    )
    for name, rows in splits.items():
        assert [row for row in rows if row < len(old_records)] == old_splits[name]
    assert set(description["bits_moved"]) == {"image", "text"}
    assert run_command("evaluate", extended, "--json") == 0


def test_codes_that_the_old_run_has_written_are_taken_over(place, extended, tmp_path):
    shutil.copytree(place / "old", tmp_path / "old")
    run_codes(tmp_path / "old")
    command = [
        "extend",
        tmp_path / "old",
        "--data",
        place / "f.npz",
        *NEW,
        *QUICK,
        "--set=train.epochs=1",
    ]
    assert run_command(*command) == 0
    ours, theirs = (
        ch.CodeSet.load(run / "codes" / "stored.parquet")
        for run in (tmp_path / "old-extended", extended)
    )
    assert ours.ids == theirs.ids
    assert all(np.array_equal(ours.codes[m], theirs.codes[m]) for m in ours.codes)
    assert ours.model == theirs.model == ch.load_model(place / "old").fingerprint()


def test_a_term_keeps_old_items_where_they_are(place, tmp_path):
    moved = {}
    for keep in (0, 30):
        weights = [
            f"--set=extend.keep={keep}",
            "--set=train.epochs=8",
            "--set=train.learning_rate=0.01",
        ]
        assert extend(place, tmp_path / str(keep), *weights) == 0
        moved[keep] = json.loads((tmp_path / str(keep) / "extension.json").read_text())[
            "bits_moved"
        ]
    assert all(bits < 0.8 * moved[0][modality] for modality, bits in moved[30].items()), moved


def test_an_interrupted_extension_resumes_to_the_same_weights(place, extended, tmp_path):
    overrides = [word.removeprefix("--set=") for word in (*NEW, *QUICK)]
    config, folder = (
        extension_config(place / "old", place / "f.npz", overrides=overrides),
        tmp_path / "run",
    )
    with pytest.raises(KeyboardInterrupt):
        start_run(
            config,
            folder,
            progress=lambda name: interrupt_at(2) if name.startswith("train") else no_progress,
        )
    assert not (folder / "model").exists()
    assert extend(place, folder) == 2  # not without --resume
    assert extend(place, folder, "--resume") == 0
    first, second = (load_file(run / "model" / "model.safetensors") for run in (extended, folder))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_extension_can_be_extended(place, tmp_path):
    """Codes of the first model stay through two extensions, those of the second through one."""
    two = ["--set=data.only_labels=[label 4]", "--set=data.without_labels=[label 5]"]
    config = feature_config(tmp_path / "c.yaml", place / "f.npz", epochs=1, validate_every=0)
    part = [
        "--set=data.without_labels=[label 4, label 5]",
        "--set=data.queries=20",
        "--set=data.train=60",
    ]
    assert run_command("train", config, "--out", tmp_path / "a", *part) == 0
    for run, out, items in (("a", "b", two), ("b", "c", NEW)):
        extension = [
            "extend",
            tmp_path / run,
            "--data",
            place / "f.npz",
            "--out",
            tmp_path / out,
            *items,
        ]
        assert run_command(*extension, *QUICK, "--set=train.epochs=1") == 0
    models = {name: ch.load_model(tmp_path / name) for name in "abc"}
    assert models["c"].extends == (models["a"].fingerprint(), models["b"].fingerprint())
    b, c = run_codes(tmp_path / "b").retrieval, run_codes(tmp_path / "c").retrieval
    assert c.ids[: len(b)] == b.ids
    assert all(np.array_equal(c.codes[m][: len(b)], b.codes[m]) for m in b.codes)


def test_wrong_input_is_refused_in_one_line(place, extended, tmp_path, capsys):
    def refused(*arguments, says, run="old", data="f.npz"):
        command = [
            "extend",
            place / run,
            "--data",
            place / data,
            "--out",
            tmp_path / "x",
            *NEW,
            *QUICK,
        ]
        assert_refused(capsys, *command, *arguments, says=says)
        shutil.rmtree(tmp_path / "x", ignore_errors=True)

    refused(says="not a run's folder", run="nothing")
    refused(says="nothing.csv: no such table", data="nothing.csv")
    refused("--set=data.only_labels=[label 9]", says="no label 'label 9'")
    refused("--set=data.only_labels=null", says="ids are in both collections, such as 'item")
    refused("--set=data.train=0", says="data.train is 0 for the new items")
    refused("--set=model.hidden=[16]", says="an extension has the model of")
    refused("--set=extend.kep=1", says="did you mean 'keep'?")
    assert_refused(
        capsys,
        "train",
        extended / "config.yaml",
        "--dry-run",
        says="this configuration extends a run",
    )
    run = train_run(
        feature_config(tmp_path / "c.yaml", place / "f.npz", "tdsrdh", epochs=1, validate_every=0),
        *OLD,
    )
    refused(says="'tdsrdh' has no channels (bounds)", run=run)


def test_an_extension_of_a_run_that_was_trained_anew_is_refused(place, extended, tmp_path, capsys):
    shutil.copytree(extended, tmp_path / "new")
    stored = ch.CodeSet.load(tmp_path / "new" / _STORED)
    replace(stored, model="another").save(tmp_path / "new" / _STORED)
    shutil.rmtree(tmp_path / "new" / "model")
    says = "has been trained anew since; extend it into another --out"
    command = [
        "extend",
        place / "old",
        "--data",
        place / "f.npz",
        "--out",
        tmp_path / "new",
        "--resume",
    ]
    assert_refused(capsys, *command, *NEW, *QUICK, says=says)


def test_a_student_of_an_extension_is_given_all_items_and_extends_nothing(place, extended):
    teacher = read_run_config(extended)
    check_refusal("give them as one source", student_config, teacher, "features", None)
    student = student_config(teacher, "features", place / "f.npz")
    assert (student.extend, student.split.only_labels) == (None, None)
    check_refusal(
        "it extends no run", student_config, teacher, "features", place / "f.npz", ["extend.run=x"]
    )


def test_a_student_of_an_extension_asks_what_its_teacher_may_ask(place, extended, tmp_path, capsys):
    old, small = place / "old", tmp_path / "small"
    quick = ["--set=model.hidden=[8]", "--set=train.epochs=1"]
    distill = ["distill", extended, "--student", "features", "--data", place / "f.npz", *quick]
    assert run_command(*distill, "--out", small) == 0
    student, store = ch.load_model(small), tmp_path / "s.store"
    assert student.code_spaces == (
        ch.load_model(extended).fingerprint(),
        ch.load_model(old).fingerprint(),
    )
    assert student.extends == ()
    assert run_command("index", "create", store, place / "f.npz", "--encoder", old) == 0
    assert load_encoder(ch.open_store(store), small).fingerprint() == student.fingerprint()
    assert_refused(
        capsys, "index", "add", store, place / "f.npz", "--model", small, says="of another model"
    )
    (tmp_path / "token").write_text("a-token-that-is-long-enough-to-be-one\n")
    serving = ["--token-file", tmp_path / "token", "--port", 0]
    assert_refused(capsys, "serve", store, "--model", small, *serving, says="another model made")
    assert_refused(
        capsys, "extend", small, "--data", place / "f.npz", *NEW, says="extend the teacher"
    )


def test_a_store_goes_on_with_the_extended_model(place, extended, tmp_path, capsys):
    store, features = tmp_path / "s.store", np.load(place / "f.npz")
    is_new = features["labels"][:, 5]
    for name, rows in (("old", ~is_new), ("new", is_new)):
        np.savez(tmp_path / f"{name}.npz", **{key: features[key][rows] for key in features.files})
    assert (
        run_command("index", "create", store, tmp_path / "old.npz", "--encoder", place / "old") == 0
    )
    before = {item.id: item.codes for item in ch.open_store(store).get(ch.open_store(store).ids())}
    other = train_run(
        feature_config(tmp_path / "c.yaml", place / "f.npz", epochs=1, validate_every=0)
    )
    add = ["index", "add", store, tmp_path / "new.npz", "--model"]
    assert_refused(capsys, *add, other, says="made by another model")
    assert run_json(capsys, *add, extended)["added"] == int(is_new.sum())
    opened, model = ch.open_store(store), ch.load_model(extended)
    assert ch.load_model(store).fingerprint() == model.fingerprint()  # asks from now on
    for item in opened.get(sorted(before)):
        assert all(np.array_equal(item.codes[m], before[item.id][m]) for m in item.codes)
    names = [str(name) for name in features["id"][is_new]]
    expected = model.encode("image", features["image"][is_new])
    np.testing.assert_array_equal([item.codes["image"] for item in opened.get(names)], expected)
    opened.close()
    # with the store's own model now
    assert run_command("index", "add", store, tmp_path / "new.npz", "--json") == 0
    assert json.loads(capsys.readouterr().out)["unchanged"] == int(is_new.sum())
    assert (
        run_command("index", "add", store, tmp_path / "new.npz", "--model", place / "old", "--json")
        == 0
    )
    # the older one does not take it back
    assert ch.load_model(store).fingerprint() == model.fingerprint()
    assert run_command("search", store, "--like", "item000", "-k", "3", "--json") == 0


@pytest.mark.parametrize(
    "name",
    [
        "small",
        pytest.param("cliphash", marks=pytest.mark.slow),
        pytest.param("tdsrdh", marks=pytest.mark.slow),
    ],
)
def test_pictures_and_words_of_a_table(tmp_path, name):
    """With a frozen backbone as well, whose features of old items are not computed again."""
    head, *lines = write_pictures(tmp_path, 60).read_text().splitlines()
    for part in ("old", "new"):
        chosen = [line for line in lines if line.endswith(",blue") == (part == "new")]
        (tmp_path / f"{part}.csv").write_text("\n".join([head, *chosen]) + "\n")
    models = {"small": {"name": "small", "image_size": 16, "width": 8}, "tdsrdh": resnet_model()}
    model = models[name] if name in models else clip_model(tmp_path)
    config = picture_config(tmp_path / "c.yaml", tmp_path / "old.csv", model, epochs=1)
    old, new, store = tmp_path / "run", tmp_path / "run-extended", tmp_path / "s.store"
    few = [
        "--set=data.queries=6",
        "--set=data.train=20",
        "--set=data.validation_queries=4",
    ]
    assert run_command("train", config, "--out", old, *few) == 0
    quick = ["--set=train.epochs=1", "--set=data.train=10", "--set=data.queries=4"]
    assert run_command("extend", old, "--data", tmp_path / "new.csv", *quick) == 0
    assert json.loads((new / "extension.json").read_text())["labels"] == {
        "old": ["green", "red"],
        "new": ["blue"],
    }
    run_codes(new)
    assert run_command("index", "create", store, tmp_path / "old.csv", "--encoder", old) == 0
    assert run_command("index", "add", store, tmp_path / "new.csv", "--model", new) == 0
    assert run_command("search", store, "--text", "a dark blue picture", "-k", "3") == 0
    assert len(ch.open_store(store)) == 60
