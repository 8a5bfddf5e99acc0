"""A run knows what it was made from: data that is replaced in place is noticed wherever a run goes
on, is evaluated or stands beside others.
"""

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from channelhash.config import read_config
from channelhash.data.collection import Collection
from channelhash.data.features import load_features
from channelhash.data.splits import Splits
from channelhash.errors import InputError
from channelhash.lab.experiments.runner import Grid, GridRun, run_grid
from channelhash.runs.evaluate import evaluate, run_codes
from channelhash.runs.extend import extension_config
from channelhash.runs.folder import check_contents, keep_contents
from channelhash.runs.plan import plan_run
from channelhash.runs.train import start_run
from picture_runs import picture_config, resnet_model, write_pictures
from small_runs import feature_config, write_features

Arrays = dict[str, np.ndarray]
Random = np.random.Generator


def change_arrays(change: Callable[[Arrays, Random], None]) -> Callable[[Path, Random], None]:
    """A change of a features file in place."""

    def apply(path: Path, random: Random) -> None:
        with np.load(path) as file:
            arrays = dict(file)
        change(arrays, random)
        np.savez(path, **arrays)

    return apply


def change_a_value(arrays: Arrays, random: Random) -> None:
    values = arrays[str(random.choice(["image", "text"]))]
    values[tuple(random.integers(0, values.shape))] += 0.5


def flip_a_label(arrays: Arrays, random: Random) -> None:
    labels = arrays["labels"]
    labels[tuple(random.integers(0, labels.shape))] ^= True


def reorder_rows(arrays: Arrays, random: Random) -> None:
    order = random.permutation(len(arrays["id"]))
    arrays.update({name: values[order] for name, values in arrays.items()})


def leave_a_row_out(arrays: Arrays, random: Random) -> None:
    row = random.integers(len(arrays["id"]))
    arrays.update({name: np.delete(values, row, axis=0) for name, values in arrays.items()})


def name_the_labels(arrays: Arrays, random: Random) -> None:
    names = [f"label {number}" for number in range(arrays["labels"].shape[1])]
    names[random.integers(len(names))] = "another"
    arrays["label_names"] = np.array(names)


FEATURE_CHANGES = {
    change.__name__: change_arrays(change)
    for change in (
        change_a_value,
        flip_a_label,
        reorder_rows,
        leave_a_row_out,
        name_the_labels,
    )
}


def store_as_doubles(arrays: Arrays, random: Random) -> None:
    arrays.update({name: arrays[name].astype(np.float64) for name in ("image", "text")})


def store_by_columns(arrays: Arrays, random: Random) -> None:
    arrays["image"] = arrays["image"].T


def compress(path: Path, random: Random) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    np.savez_compressed(path, **arrays)


def touch(path: Path, random: Random) -> None:
    os.utime(path, ns=(1, 1))


def copy(path: Path, random: Random) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


SAME_FEATURES = {
    "touch": touch,
    "copy": copy,
    "compress": compress,
    "store_as_doubles": change_arrays(store_as_doubles),
    "store_by_columns": change_arrays(store_by_columns),
}


def change_cells(column: str, value: Callable[[list[str], int], str]) -> Callable[..., None]:
    """A change of one cell of a table."""

    def apply(path: Path, random: Random) -> None:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        row = int(random.integers(len(rows)))
        rows[row][column] = value([each[column] for each in rows], row)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    return apply


def replace_a_picture(path: Path, random: Random) -> None:
    """By another of its size and date, as a copy of another folder may be."""
    pictures = sorted((path.parent / "images").iterdir())
    picture = pictures[random.integers(len(pictures))]
    before, content = picture.stat(), bytearray(picture.read_bytes())
    content += b"\0"  # behind the end of the picture
    picture.write_bytes(content)
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))


TABLE_CHANGES = {
    "caption": change_cells("text", lambda cells, row: f"{cells[row]}!"),
    "label": change_cells("labels", lambda cells, row: "another"),
    "id": change_cells("id", lambda cells, row: "another"),
    "picture of another row": change_cells("image", lambda cells, row: cells[row - 1]),
    "picture": replace_a_picture,
}
SAME_TABLES = {
    "touch": touch,
    "copy": copy,
    "touched pictures": lambda path, random: [
        os.utime(picture, ns=(1, 1)) for picture in (path.parent / "images").iterdir()
    ],
    "quoted cells": change_cells("id", lambda cells, row: cells[row]),
}


def made_from(folder: Path, config: Path) -> None:
    """Write what a run of a configuration is made from."""
    folder.mkdir()
    resolved = read_config(config)
    keep_contents(folder, resolved, Collection.load(resolved.sources))


def is_refused(folder: Path, config: Path) -> bool:
    """Whether the run is made from other data now."""
    try:
        check_contents(folder, read_config(config))
    except InputError as error:
        return "its data has changed since it was trained" in str(error)
    return False


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*FEATURE_CHANGES, *SAME_FEATURES])
def test_any_change_of_features_is_noticed_and_no_other_way_to_store_them(tmp_path, name, seed):
    features = write_features(tmp_path / "f.npz", 60)
    config = feature_config(tmp_path / "c.yaml", features)
    made_from(tmp_path / "run", config)
    (FEATURE_CHANGES | SAME_FEATURES)[name](features, np.random.default_rng(seed))
    assert is_refused(tmp_path / "run", config) == (name in FEATURE_CHANGES)


@pytest.mark.parametrize("name", [*TABLE_CHANGES, *SAME_TABLES])
def test_any_change_of_a_table_and_its_pictures_is_noticed(tmp_path, name):
    items = write_pictures(tmp_path, 12)
    config = picture_config(tmp_path / "c.yaml", items, {"name": "small"})
    made_from(tmp_path / "run", config)
    (TABLE_CHANGES | SAME_TABLES)[name](items, np.random.default_rng(0))
    assert is_refused(tmp_path / "run", config) == (name in TABLE_CHANGES)


def test_word_vectors_that_were_replaced_are_noticed(tmp_path):
    items, vectors = write_pictures(tmp_path, 12), tmp_path / "v.txt"
    vectors.write_text("1 2\nred 1 2\n")
    section = resnet_model(word_vectors=str(vectors))
    config = picture_config(tmp_path / "c.yaml", items, section)
    made_from(tmp_path / "run", config)
    assert not is_refused(tmp_path / "run", config)
    vectors.write_text("1 2\nred 1 3\n")
    assert is_refused(tmp_path / "run", config)


def test_what_changed_is_said_and_nothing_is_made_from_it(tmp_path):
    """Evaluation, resuming and extending refuse; with the right file back the codes are right."""
    features = write_features(tmp_path / "f.npz", 100)
    config = feature_config(tmp_path / "c.yaml", features, epochs=2)
    resolved = read_config(config, ["data.queries=20", "data.train=60", "train.batch_size=20"])
    run = tmp_path / "run"
    start_run(resolved, run)
    right = features.read_bytes()
    FEATURE_CHANGES["change_a_value"](features, np.random.default_rng(0))
    said = rf"run: its data has changed .*{features.name}: (image|text) features\); put the old"
    with pytest.raises(InputError, match=said):
        evaluate(run)
    with pytest.raises(InputError, match=said):
        start_run(resolved, run, resume=True)
    new = write_features(tmp_path / "new.npz", 60)
    change_arrays(lambda arrays, random: arrays.update(id=np.char.add("new", arrays["id"])))(
        new, np.random.default_rng(0)
    )
    sizes = ["data.queries=10", "data.train=40"]
    with pytest.raises(InputError, match=said):
        start_run(extension_config(run, new, overrides=sizes), tmp_path / "extended")
    assert not (run / "codes").exists()
    assert not (run / "metrics.json").exists()
    features.write_bytes(right)
    twin = start_run(resolved, tmp_path / "twin").folder
    codes, same = (run_codes(each).retrieval.codes["text"] for each in (run, twin))
    assert np.array_equal(codes, same)
    start_run(extension_config(run, new, overrides=sizes), tmp_path / "again")


def test_a_run_of_a_version_that_kept_no_hashes_stays_usable(tmp_path):
    """What it was made from is not claimed afterwards."""
    features = write_features(tmp_path / "f.npz", 60)
    config = feature_config(tmp_path / "c.yaml", features)
    run = tmp_path / "run"
    made_from(run, config)
    (run / "data.json").unlink()
    (run / "log.jsonl").touch()
    resolved = read_config(config)
    keep_contents(run, resolved, Collection.load(resolved.sources))
    assert not (run / "data.json").exists()
    assert not is_refused(run, config)


@pytest.mark.parametrize("name", ["change_a_value", "flip_a_label", "compress"])
def test_a_grid_puts_no_run_beside_one_of_other_data(tmp_path, name):
    features = write_features(tmp_path / "f.npz", 100)
    sizes = ["data.queries=20", "data.train=60", "train.batch_size=20", "train.epochs=1"]
    runs = [
        GridRun(loss, loss, read_config(feature_config(tmp_path / "c.yaml", features, loss), sizes))
        for loss in ("dsch", "sch")
    ]
    run_grid(Grid("losses", "losses", "", tuple(runs[:1])), tmp_path / "grid")
    (FEATURE_CHANGES | SAME_FEATURES)[name](features, np.random.default_rng(0))
    grid = Grid("losses", "losses", "", tuple(runs))
    if name in SAME_FEATURES:
        assert [run.status for run in run_grid(grid, tmp_path / "grid")] == ["finished"] * 2
        return
    with pytest.raises(InputError, match="runs/dsch: its data has changed"):
        run_grid(grid, tmp_path / "grid")
    index = json.loads((tmp_path / "grid" / "grid.json").read_text())
    assert [run["name"] for run in index["runs"]] == ["dsch"]


@pytest.mark.parametrize("cutoffs", ["[0]", "[50, -1]", "[100, 0, 5]"])
def test_cutoffs_that_evaluation_refuses_are_no_configuration(tmp_path, cutoffs):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz", 60))
    with pytest.raises(InputError, match=r"evaluate\.cutoffs\.\d: input should be greater"):
        read_config(config, [f"evaluate.cutoffs={cutoffs}"])


@pytest.mark.parametrize("fault", ["no query", "nothing to search"])
def test_what_cannot_be_evaluated_is_not_trained(tmp_path, fault):
    features = write_features(tmp_path / "f.npz", 60)
    rows = np.arange(60)
    query, others = rows[:20], rows[20:]
    if fault == "no query":
        query = query[:0]
    else:
        others = others[:0]
    splits = Splits(query, others, others, others[:0], others[:0])
    splits.save(load_features(features), tmp_path / "splits.json", {})
    config = read_config(
        feature_config(tmp_path / "c.yaml", features), [f"data.splits={tmp_path}/splits.json"]
    )
    for refuse in (plan_run, lambda config: start_run(config, tmp_path / "run")):
        with pytest.raises(InputError, match="partition is empty"):
            refuse(config)
    assert not (tmp_path / "run" / "log.jsonl").exists()
