"""A model's exported encoders as queries need them, against the description transcribed and against the model."""

import json

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.data.images import Resize, Square, resize_of
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.models.exported import ExportedModel, export_onnx
from channelhash.search.query import load_query_encoder, search_store
from literal_recipe import exported_outputs
from models.test_onnx_export import create
from picture_runs import clip_model, picture_records
from refusals import check_refusal
from small_stores import small_model

TEXTS = ["a red picture", "", "#Dark, (blue) 'bright' …", "green " * 40]


@pytest.mark.parametrize("settings", [{"name": "small", "width": 8, "image_size": 16, "min_count": 1}, "clip"], ids=str)
def test_outputs_are_those_of_the_description_and_of_the_model(settings, tmp_path):
    records = picture_records(tmp_path / "data", 40)
    model = create(clip_model(tmp_path, prompt="a photo of {}") if settings == "clip" else settings, records)
    model.code_spaces, model.extends = ("teacher",), ("older",)
    export_onnx(model, tmp_path / "exported")
    exported = ExportedModel(tmp_path / "exported")
    assert (exported.modalities, exported.n_bits, exported.name) == (("image", "text"), 12, model.name)
    assert (exported.code_spaces, exported.extends, exported.is_whole) == (("teacher",), ("older",), True)
    assert exported.fingerprint() == model.fingerprint()
    assert all(exported.comparable(other) for other in (model.fingerprint(), "teacher", "older"))
    assert not exported.comparable("stranger")
    opened = Image.open(records.items["image"][0])
    opened.load()
    for modality, items in {"image": [*records.items["image"], opened], "text": TEXTS}.items():  # two batches
        outputs = exported.outputs(modality, items)
        assert outputs.dtype == np.float32
        np.testing.assert_allclose(outputs, np.asarray(model.outputs(modality, items)), atol=1e-4)
        files = items[:40]
        described = exported_outputs(tmp_path / "exported", modality, files, 32)
        np.testing.assert_allclose(outputs[: len(files)], described, atol=1e-5)
        assert exported.outputs(modality, []).shape == (0, 12)


def test_rows_of_features_are_taken_as_they_are(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    records = Records(tuple(map(str, range(30))), {"image": rows}, np.ones((30, 1), bool), ("x",))
    model = create({"name": "features", "hidden": [8]}, records)
    export_onnx(model, tmp_path / "exported")
    exported = ExportedModel(tmp_path / "exported")
    np.testing.assert_allclose(exported.outputs("image", rows), model.outputs("image", rows).numpy(), atol=1e-4)
    for wrong in (rows[:, :4], ["a.jpg"]):
        check_refusal("takes rows of 5 features", exported.outputs, "image", wrong)
    with pytest.raises(JobError, match="image in row 1: the exported model's output is not finite"):
        exported.outputs("image", np.where(np.arange(30)[:, None] == 1, np.nan, rows))


@pytest.mark.parametrize("resize", [
    Square(8), Resize(8), Resize(8, 9, "bicubic"), Resize(8, mode="longest", fill=7),
    Resize(8, None, "bicubic", "squash", 0, True),
], ids=str)  # fmt: skip
def test_a_recipe_gives_the_resize_back(resize):
    pictures = [Image.new("RGB", (40, 30), "red"), Image.new("L", (20, 33))]
    found = resize_of(json.loads(json.dumps(resize.recipe())))
    np.testing.assert_array_equal(found.arrays(pictures), resize(pictures).numpy())
    check_refusal("resize is 'stretch', not one of", resize_of, {"resize": "stretch"}, error=ValueError)


@pytest.fixture
def exported(tmp_path):
    export_onnx(small_model(tmp_path), tmp_path / "exported")
    return tmp_path / "exported"


def test_files_that_were_changed_are_refused(exported):
    for name, change, message in (
        ("text.onnx", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "has changed since it was exported"),
        ("export.json", lambda content: content[:-9], "not what `channelhash export` wrote"),
        ("export.json", lambda content: content.replace(b'"vocabulary"', b'"spells"'), "it lacks 'spells'"),
        ("export.json", lambda content: b"[]", "export the model again"),
    ):
        content = (exported / name).read_bytes()
        (exported / name).write_bytes(change(content))
        check_refusal(message, lambda: ExportedModel(exported).outputs("text", ["red"]))
        (exported / name).write_bytes(content)
    (exported / "text.onnx").unlink()
    with pytest.raises(FileNotFoundError):
        ExportedModel(exported).outputs("text", ["red"])
    check_refusal(r"export.json: no such file; write it with `channelhash export", ExportedModel, exported.parent)


@pytest.mark.parametrize("key", ["sha256", "model_modalities"])
def test_an_export_without_all_facts_is_refused(exported, key):
    description = json.loads((exported / "export.json").read_text())
    del description[key]
    (exported / "export.json").write_text(json.dumps(description))
    check_refusal(rf"export\.json: .*lacks '{key}'.*export the model again", ExportedModel, exported)


def test_exported_encoders_at_hand_answer_for_the_model(tmp_path):
    model = small_model(tmp_path)
    store = ch.open_store(tmp_path / "store", model.n_bits, model.fingerprint())
    store.add(["a", "b", "c"], model.encode_texts(["red", "blue", "dark red"]), "text")
    saved = tmp_path / "model"

    def loaded(modalities=None) -> str:
        return type(load_query_encoder(store, saved, modalities)).__name__

    assert loaded() == "HashModel"
    with_model = [(hit.id, hit.distance) for hit in search_store(store, text="red", model=saved)]
    export_onnx(model, saved / "onnx", ["text"])
    assert loaded({"text"}) == "ExportedModel"
    assert {loaded(what) for what in (None, {"image"}, {"image", "text"})} == {"HashModel"}
    assert [(hit.id, hit.distance) for hit in search_store(store, text="red", model=saved)] == with_model
    with pytest.raises(InputError, match="encodes text, not image; export the model with it, too"):
        load_query_encoder(store, saved / "onnx", {"image"})
    whole = tmp_path / "whole"
    export_onnx(model, whole)
    (saved / "onnx").rename(tmp_path / "aside")
    whole.rename(saved / "onnx")
    assert [loaded(what) for what in (None, {"image"})] == ["ExportedModel"] * 2
    stranger = ch.open_store(tmp_path / "other", model.n_bits, "another")
    check_refusal("these codes were made by another model than", load_query_encoder, stranger, saved / "onnx")
    with pytest.raises(
        InputError, match="these codes were made by another model than"
    ):  # what was exported is passed over
        load_query_encoder(stranger, saved)
