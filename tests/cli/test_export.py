"""``channelhash export``, as a person runs it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from channelhash.data.table import load_table
from channelhash.models import load_model
from literal_recipe import exported_codes
from pages import DOCS, run_page
from picture_runs import picture_config, write_pictures
from small_runs import assert_refused, run_command, run_json, train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of the small model."""
    root = tmp_path_factory.mktemp("run")
    model = {"name": "small", "width": 8, "image_size": 24, "min_count": 1, "hidden": [32]}
    return train_run(picture_config(root / "c.yaml", write_pictures(root), model, epochs=5))


def test_exported_files_give_the_runs_codes(run, capsys):
    result = run_json(capsys, "export", run, "--onnx")
    model = load_model(run)
    assert result["out"] == str(run / "onnx")
    assert result["files"] == {name: str(run / "onnx" / f"{name}.onnx") for name in ("image", "text")}
    assert (result["model"], result["n_bits"], result["fingerprint"]) == ("small", 12, model.fingerprint())
    assert max(result["largest_difference"].values()) < 1e-4
    records = load_table(run.parent / "items.csv")
    for modality in ("image", "text"):
        codes = model.encode(modality, records.items[modality])
        assert len(np.unique(codes, axis=0)) > 2
        for batch in (1, 7):
            again = exported_codes(run / "onnx", modality, records.items[modality], batch)
            np.testing.assert_array_equal(again, codes)


def test_the_documented_program_works(run, tmp_path, capsys):
    shutil.copytree(run / "model", tmp_path / "runs" / "mine" / "model")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)).save(tmp_path / "photo.jpg")
    run_page(DOCS / "how-to" / "export.md", tmp_path)


def test_a_saved_model_is_exported_as_its_run_is(run, tmp_path, capsys):
    load_model(run).save_pretrained(tmp_path / "saved")
    (tmp_path / "out").mkdir()  # an empty one will do
    assert run_command("export", tmp_path / "saved", "--onnx", "--out", tmp_path / "out", "--modalities", "text") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'out' / 'text.onnx'}: text, outputs equal the model's within ")
    assert lines[1] == f"How to use them: {tmp_path / 'out' / 'export.json'}"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"text.onnx", "export.json"}


def test_what_cannot_be_meant_is_one_line(run, tmp_path, capsys):
    assert_refused(capsys, "export", run, says=f"name the format: channelhash export {run} --onnx")
    assert_refused(capsys, "export", tmp_path / "none", "--onnx", says=f"{tmp_path / 'none'}: no such folder")
    assert_refused(capsys, "export", tmp_path, "--onnx", says="no config.json, this is not a saved model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    for used in (tmp_path / "used", tmp_path / "used" / "notes.txt"):
        says = f"{used}: is there already; remove it, or name another folder with --out"
        assert_refused(capsys, "export", run, "--onnx", "--out", used, says=says)
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"
    assert_refused(capsys, "export", run, "--onnx", "--out", tmp_path / "o", "--modalities", "txt", says="not txt")
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
