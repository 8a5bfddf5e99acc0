"""The experiment with students of several sizes: which runs there are, and that its tables hold their figures."""

import csv
import json
import statistics
from dataclasses import replace

import numpy as np
import pytest

from channelhash.config import read_config
from channelhash.data.collection import load_collection
from channelhash.lab.experiments import runner as grid
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies import distillation
from channelhash.lab.experiments.tables.distillation import distillation_tables
from lab.experiments.made_grids import assert_made_again
from picture_runs import features_config, write_picture_features, write_pictures
from small_runs import assert_refused, run_command

SIZES = {
    "width 16": {"image_size": 24, "width": 16, "text_width": 16, "hidden": [16]},
    "width 8": {"image_size": 16, "width": 8, "text_width": 8, "hidden": [8]},
}


def write_student(path, items, **model):
    data, train = {"kind": "table", "path": str(items)}, {"epochs": 2, "learning_rate": 0.01, "workers": 0}
    path.write_text(json.dumps({"model": {"name": "small", "min_count": 1, **model}, "data": data, "train": train}))
    return path


pytestmark = pytest.mark.slow  # a grid of teachers and students


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the command, its grid's folder, what it printed): a teacher on features, students on pictures and texts."""
    folder = tmp_path_factory.mktemp("distillation")
    items = write_pictures(folder)
    lines = items.read_text().splitlines()
    items.write_text("\n".join([lines[0], *reversed(lines[3:])]) + "\n")  # another order, two items fewer
    config = features_config(folder / "c.yaml", write_picture_features(folder / "f.npz"), epochs=5, validate_every=0)
    student = write_student(folder / "student.yaml", items)
    command = ["experiment", "distillation", "--config", config, "--student", student, "--bits", "12", "--seeds", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "SIZES", SIZES)
        assert run_command(*command, "--out", folder / "g") == 0
    return command, folder / "g"


def compared(folder, name, size, seed):
    return json.loads((folder / "runs" / f"{name}-{size}-k12-seed{seed}" / "distillation.json").read_text())


def rows_of(folder, table):
    with open(folder / "tables" / f"{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


def printed(shares):
    percent = [100 * share for share in shares]
    return f"{statistics.mean(percent):.2f} ± {statistics.stdev(percent):.2f}"


def ids_of(run):
    """Partition -> ids, of a run's own data."""
    ids, found = (
        load_collection(read_config(run / "config.yaml").sources).records.ids,
        json.loads((run / "splits.json").read_text())["rows"],
    )
    return {name: {ids[row] for row in rows} for name, rows in found.items()}


def test_all_students_of_a_size_have_one_budget_and_the_teachers_partitions(made):
    _, folder = made
    _, results = read_grid(folder)
    assert [result.status for result in results] == ["finished"] * 14
    teacher = ids_of(folder / "runs" / "teacher-k12-seed1")
    for size in ("width-16", "width-8"):
        runs = [folder / "runs" / f"{kind}-{size}-k12-seed1" for kind in distillation.KINDS.values()]
        related, unrelated, labelled = (read_config(run / "config.yaml") for run in runs)
        assert related.train == unrelated.train == labelled.train
        assert (related.train.epochs, related.train.seed, related.train.batch_size) == (2, 1, 10)
        assert related.model == unrelated.model == labelled.model
        assert related.model.image_size == SIZES[size.replace("-", " ")]["image_size"]
        assert related.model.min_count == 1  # of the file
        assert (related.loss.lambda_r, unrelated.loss.lambda_r) == (1.0, 0.0)
        assert labelled.loss == read_config(folder / "runs" / "teacher-k12-seed1" / "config.yaml").loss
        own = [ids_of(run) for run in runs]
        assert own[0] == own[1] == own[2]
        lost = {"item000", "item001"}
        assert own[0] == {name: ids - lost for name, ids in teacher.items()}
    seeds = [json.loads((folder / "runs" / f"teacher-k12-seed{s}" / "splits.json").read_text()) for s in (0, 1)]
    assert seeds[0]["rows"] == seeds[1]["rows"]


def test_tables_hold_what_the_comparisons_say(made):
    _, folder = made
    row = next(
        row
        for row in rows_of(folder, "distillation")
        if (row["Task"], row["Student"]) == ("image → text, k = 12", "width 8")
    )
    names = {"distilled": "distilled", "unrelated": "distilled-lambda-0"}
    both = {key: [compared(folder, name, "width-8", seed) for seed in (0, 1)] for key, name in names.items()}
    labelled = [folder / "runs" / f"labels-width-8-k12-seed{seed}" / "result.json" for seed in (0, 1)]
    results = [json.loads(path.read_text())["epochs"]["last"]["test"] for path in labelled]
    task, asks, alone = "image->text", "student->teacher", "student->student"
    found = {
        "teacher alone": [one["map"]["teacher->teacher"][task] for one in both["distilled"]],
        "student asks teacher": [one["map"][asks][task] for one in both["distilled"]],
        "student asks teacher, λ_r = 0": [one["map"][asks][task] for one in both["unrelated"]],
        "student alone": [one["map"][alone][task] for one in both["distilled"]],
        "student alone, λ_r = 0": [one["map"][alone][task] for one in both["unrelated"]],
        "from labels": [tasks[task]["map_tie_aware"] for tasks in results],
    }
    assert {column: row[column] for column in found} == {column: printed(values) for column, values in found.items()}
    assert len(set(map(tuple, found.values()))) == len(found)  # no column could stand for another

    cost = next(row for row in rows_of(folder, "distillation-cost") if row["Model"] == "width 8")
    student = both["distilled"][0]["size"]["student"]
    assert cost["parameters"] == f"{student['parameters']:,}"
    assert cost["MB"] == f"{student['bytes'] / 1e6:.2f}"
    for modality in ("image", "text"):
        speeds = [one["speed"][modality] for one in both["distilled"]]
        for column, side in ((f"{modality}s/s", "student"), (f"teacher's {modality}s/s", "teacher")):
            assert cost[column] == f"{statistics.median(speed[f'{side}_per_second'] for speed in speeds):,.0f}"
        shares = [one["agreement"][modality] for one in both["unrelated"]]
        assert cost[f"equal bits of {modality}s, λ_r = 0, %"] == printed(shares)
    caption = (folder / "tables" / "distillation-cost.md").read_text()
    assert "measured in turn in one process" in caption
    assert "images: teacher features, student picture files" in caption

    effects = {row["effect"]: row["image → text"] for row in rows_of(folder, "effects-k12")}
    expected = 100 * float(np.mean(found["student alone"]) - np.mean(found["from labels"]))
    assert effects["width 8: student alone − from labels"].startswith(f"{expected:+.2f} [".replace("-", "−"))
    bits = {row["effect"]: row["texts"] for row in rows_of(folder, "agreement-effects-k12")}
    one, other = ([one["agreement"]["text"] for one in both[name]] for name in ("distilled", "unrelated"))
    expected = 100 * float(np.mean(one) - np.mean(other))
    assert bits["width 8: λ_r 1 − 0"].startswith(f"{expected:+.2f} [".replace("-", "−"))
    assert (folder / "plots" / "distillation-k12.png").stat().st_size > 10_000
    assert_made_again("distillation", folder)
    assert str(folder) not in (folder / "runs.csv").read_text()  # that of the teacher


def test_a_seed_whose_runs_are_not_all_there_is_left_out_and_said(made):
    _, folder = made
    _, results = read_grid(folder)
    lacking = [
        replace(run, status="failed", error="out of memory") if run.name == "labels-width-8-k12-seed0" else run
        for run in results
    ]
    tables = distillation_tables(lacking)
    assert [table.name for table in tables] == ["distillation", "distillation-cost"]  # one seed has no interval
    assert "labels-width-8-k12-seed0 (out of memory)" in tables[0].caption
    share = compared(folder, "distilled", "width-16", 1)["map"]["student->teacher"]["image->text"]
    assert tables[0].rows[0][3].text == f"{100 * share:.2f}"
    assert not distillation_tables([run for run in results if run.method == "teacher"])[0].rows


def test_a_second_call_trains_nothing(made, monkeypatch, capsys):
    command, folder = made
    monkeypatch.setattr(distillation, "SIZES", SIZES)
    before = (folder / "tables" / "distillation.md").read_text()
    monkeypatch.setattr(grid, "run_and_evaluate", None)  # cannot be called
    assert run_command(*command, "--out", folder) == 0
    assert "14 runs, 14 of them finished before" in capsys.readouterr().err
    assert (folder / "tables" / "distillation.md").read_text() == before


def test_a_teacher_that_fails_has_no_students(made, tmp_path, monkeypatch, capsys):
    def fails(*arguments, **keywords):
        raise ValueError("no luck")

    monkeypatch.setattr(grid, "start_run", fails)
    says = "teacher-k12-seed0 failed, it has no students: ValueError: no luck"
    assert_refused(capsys, *made[0], "--out", tmp_path / "g", says=says, status=1)
    assert not (tmp_path / "g" / "runs" / "labels-width-16-k12-seed0").exists()


def test_what_is_wrong_is_said_before_anything_is_trained(made, tmp_path, capsys):
    command, folder = made[0][:4], made[1].parent

    def refused(says, *arguments):
        assert_refused(capsys, *command, *arguments, "--out", tmp_path / "g", says=says)
        assert not (tmp_path / "g" / "runs").exists()

    items, path = folder / "items.csv", tmp_path / "student.yaml"
    refused("the sizes are those of the model small, not of 'features'", "--student", "features")
    refused("model.width is what the experiment varies", "--student", write_student(path, items, width=8))
    path.write_text("model: {name: small}\ntrain: {seed: 3}\n")
    refused("train.seed is what the experiment varies", "--student", path)
    lines = items.read_text().splitlines()
    other = items.with_name("other.csv")
    other.write_text("\n".join([*lines[:-1], lines[-1].rsplit(",", 1)[0] + ",green;blue"]) + "\n")
    refused("or on other items", "--student", write_student(path, other))
    other.write_text("\n".join([*lines[:-1], lines[-1] + ";black"]) + "\n")
    refused("other labels (black, blue, green, red)", "--student", write_student(path, other))
    with np.load(folder / "f.npz") as arrays:
        np.savez(tmp_path / "image.npz", **{name: arrays[name] for name in arrays.files if name != "text"})
    image = ("--data", tmp_path / "image.npz", "--student", write_student(path, items))
    refused("a model from labels would learn more", *image)
    command[1] = "losses"
    refused("--student: experiment losses does not take it", "--student", "small")
