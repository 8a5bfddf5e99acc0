"""``channelhash distill``: a run like any other, its figures, resuming, and what is refused."""

import json
import shutil

import numpy as np
import pytest

import channelhash as ch
from channelhash.codes import CodeSet, unpack
from channelhash.config import read_config
from channelhash.training.steps import Steps
from small_runs import (
    assert_refused,
    feature_config,
    run_command,
    run_json,
    run_text,
    train_run,
    write_features,
)
from training.test_training import assert_same_run

STUDENT = ("--student=features", "--set=model.hidden=[32]", "--set=train.epochs=30")
STUDENT += ("--set=train.learning_rate=0.01",)


def distilled(folder):
    return json.loads((folder / "distillation.json").read_text())


@pytest.fixture(scope="module")
def student(teacher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("student") / "run"
    assert run_command("distill", teacher, *STUDENT, "--out", folder) == 0
    return folder


def test_the_student_is_a_run_like_any_other(teacher, student, tmp_path, capsys):
    evaluated = run_json(capsys, "evaluate", student)["tasks"]
    found = distilled(student)["map"]["student->student"]
    assert found == {
        task: pytest.approx(figures["map_tie_aware"], abs=1e-12)
        for task, figures in evaluated.items()
    }
    features = teacher.parent / "f.npz"
    assert run_command("encode", student, "--data", features, "--out", tmp_path / "c.parquet") == 0
    assert run_command("report", student) == 0
    again = (student / "config.yaml", "--out", tmp_path / "again")
    assert_refused(capsys, "train", *again, says="`channelhash distill`")


def test_figures_are_those_of_the_codes(teacher, student):
    found = distilled(student)
    codes = {
        (side, role): CodeSet.load(folder / "codes" / f"test-{role}.parquet")
        for side, folder in (("teacher", teacher), ("student", student))
        for role in ("query", "retrieval")
    }
    for asks in ("teacher", "student"):
        for holds in ("teacher", "student"):
            query, database = codes[asks, "query"], codes[holds, "retrieval"]
            for task, value in found["map"][f"{asks}->{holds}"].items():
                a, b = task.split("->")
                pairs = query.codes[a], database.codes[b], query.labels, database.labels
                counts = ch.metrics.hamming_histogram(*pairs, n_bits=12)
                assert value == pytest.approx(counts.mean_average_precision(), abs=1e-12)
    for modality in ("image", "text"):
        bits = [unpack(codes[side, "query"].codes[modality], 12) for side in ("teacher", "student")]
        assert found["agreement"][modality] == pytest.approx(np.mean(bits[0] == bits[1]))
    size = found["size"]["student"]
    assert size["parameters"] == 20 * 32 + 32 + 12 * 32 + 32 + 2 * (32 * 12 + 12)
    assert size["bytes"] == sum(path.stat().st_size for path in (student / "model").iterdir())
    assert found["teacher_weights"] == ch.load_model(teacher).fingerprint()


def test_an_interrupted_student_resumes_to_the_same_weights(
    teacher, student, tmp_path, monkeypatch, capsys
):
    save, place = Steps.save, tmp_path / "run"

    def stops(steps, path, done):
        save(steps, path, done)
        if done == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "save", stops)
        assert run_command("distill", teacher, *STUDENT, "--out", place) != 0
    assert_refused(capsys, "distill", teacher, *STUDENT, "--out", place, says="add --resume")
    assert run_command("distill", teacher, *STUDENT, "--out", place, "--resume") == 0
    assert_same_run(student, place)
    assert distilled(place)["map"] == distilled(student)["map"]
    before = distilled(place)
    # nothing is left to do
    again = run_json(capsys, "distill", teacher, *STUDENT, "--out", place, "--resume")
    assert distilled(place) == before
    assert again["map"] == before["map"]


def test_figures_that_an_interruption_kept_from_being_made_are_made(teacher, student, tmp_path):
    shutil.copytree(student, tmp_path / "run")
    whole = distilled(student)
    begun = {key: whole[key] for key in ("teacher", "teacher_weights", "modalities")}
    (tmp_path / "run" / "distillation.json").write_text(json.dumps(begun))
    assert run_command("distill", teacher, *STUDENT, "--out", tmp_path / "run", "--resume") == 0
    assert distilled(tmp_path / "run")["map"] == whole["map"]


def test_a_student_of_pictures_learns_from_a_teacher_of_features(pictures, tmp_path, capsys):
    teacher, items = pictures
    lines = items.read_text().splitlines()
    table = items.with_name("other.csv")
    # Another order, three items fewer, one more; and no labels, which are the teacher's.
    rows = [
        ",".join(line.split(",")[:3])
        for line in [*reversed(lines[4:]), "new,images/0.png,a picture,"]
    ]
    table.write_text("\n".join(["id,image,text", *rows]) + "\n")
    model = ("image_size=16", "width=8", "text_width=16", "hidden=[16]")
    keys = [*(f"model.{key}" for key in model), "train.learning_rate=0.01", "data.label_columns=[]"]
    small = ["--student=small", f"--data={table}", *(f"--set={key}" for key in keys)]
    said = run_text(
        capsys, "distill", teacher, *small, "--modality", "image", "--out", tmp_path / "run"
    )
    assert "4 problems of the data, listed in " in said
    assert (
        "item item000: only in the teacher's data"
        in (tmp_path / "run" / "problems.txt").read_text()
    )
    found = distilled(tmp_path / "run")
    assert found["without_partner"] == {"student": 1, "teacher": 3}
    assert set(found["map"]["student->teacher"]) == {"image->text", "image->image"}
    assert set(found["map"]["teacher->student"]) == {"text->image", "image->image"}
    assert ch.load_model(tmp_path / "run").modalities == ("image",)
    assert found["map"]["student->teacher"]["image->image"] > 0.9  # colours are easy to see
    # The student's questions search the teacher's items, though the teacher itself takes no raw
    # pictures.
    picture = items.parent / "images" / "7.png"
    assert run_json(
        capsys, "search", teacher, "--image", picture, "--model", tmp_path / "run", "-k", 5
    )["results"]


def test_a_yaml_file_says_the_student(teacher, tmp_path):
    path = tmp_path / "student.yaml"
    path.write_text("model: {name: features, hidden: [4]}\ntrain: {epochs: 2}\n")
    options = ("--student", path, "--set=train.seed=3", "--out", tmp_path / "run")
    assert run_command("distill", teacher, *options) == 0
    config = read_config(tmp_path / "run" / "config.yaml")
    assert config.train.seed == 3
    assert config.loss_name == "distillation"
    assert config.model.hidden == [4]
    assert config.train.batch_size == 32  # the teacher's
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2


def test_what_is_wrong_is_said_in_one_line(teacher, student, tmp_path, capsys):
    def refused(*arguments, says, run=teacher):
        assert_refused(capsys, "distill", run, *arguments, "--out", tmp_path / "no", says=says)
        assert not (tmp_path / "no" / "config.yaml").exists()

    refused(*STUDENT, run=tmp_path, says="not a run's folder")
    refused("--student", "smal", says="did you mean 'small'?")
    refused(*STUDENT, "--set=model.n_bits=16", says="the teacher's codes have 12")
    refused(*STUDENT, "--set=loss.name=dsch", says="takes no teacher")
    refused(*STUDENT, "--set=loss.lambda=2", says="unknown key loss.lambda")
    refused(*STUDENT, "--set=data.queries=3", says="the partitions are the teacher's")
    refused(*STUDENT, "--modality", "audio", says="the teacher has image, text")
    refused(*STUDENT, "--data", tmp_path / "none.npz", says="no such file")
    refused(*STUDENT, "--data", tmp_path / "x.txt", says="x.txt: a file ends in .csv, ")
    others = write_features(tmp_path / "others.npz", n=80)
    with np.load(others) as arrays:
        np.savez(others, **{**arrays, "id": np.array([f"x{i}" for i in range(80)])})
    refused(*STUDENT, "--data", others, says="rows are joined by id")
    (tmp_path / "unnamed.yaml").write_text("train: {epochs: 2}\n")
    refused("--student", tmp_path / "unnamed.yaml", says="says no model.name")
    other = (*STUDENT, "--modality", "text", "--out", student, "--resume")
    assert_refused(capsys, "distill", teacher, *other, says="was begun with modalities")


def test_a_student_shares_a_modality_with_its_teacher(teacher, tmp_path, capsys):
    arrays = np.load(teacher.parent / "f.npz")
    for name in ("image", "text"):
        np.savez(tmp_path / f"{name}.npz", **{key: arrays[key] for key in ("labels", "id", name)})
    run = train_run(
        feature_config(tmp_path / "c.yaml", tmp_path / "image.npz", epochs=1, validate_every=0)
    )
    says = "the teacher has image, the student's data text"
    out = ("--out", tmp_path / "no")
    assert_refused(
        capsys, "distill", run, *STUDENT, "--data", tmp_path / "text.npz", *out, says=says
    )
