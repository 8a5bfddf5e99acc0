"""Exported files against their models: by what ``export.json`` says alone, and as queries use
them.
"""

import json
from functools import partial

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch import nn

import channelhash as ch
from channelhash.data.images import Resize, resize_of, square
from channelhash.data.records import Records
from channelhash.errors import JobError
from channelhash.models import MODELS, HashModel
from channelhash.models.exported import ExportedModel, export_onnx
from channelhash.models.extractors import FeatureRows
from channelhash.models.hash_model import Branch, feature_rows
from channelhash.models.small import _SmallConvNet
from channelhash.search.query import load_query_encoder, search_store
from literal_recipe import exported_codes, exported_outputs, pixels
from picture_runs import clip_model, resnet_model
from refusals import check_refusal, refusal
from small_stores import small_model

TEXTS = (
    "a red picture",
    "#Dark, (blue) 'bright' …",
    "",
    "unheard-of words",
    "green " * 200,
    "a picture",
    "BLUE  red",
)
SMALL = {"name": "small", "width": 8}


@pytest.fixture(scope="module")
def pictures(records, tmp_path_factory):
    """Small pictures, and a JPEG that is large enough to be decoded to a smaller size."""
    folder = tmp_path_factory.mktemp("more")
    noise = np.random.default_rng(3).integers(0, 256, (40, 61, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((611, 400)).save(folder / "large.jpg")
    Image.fromarray(noise[..., 0]).resize((33, 90)).save(folder / "grey.png")
    return [*records.items["image"][:5], folder / "large.jpg", folder / "grey.png"]


def feature_records(image, **more) -> Records:
    items = {"image": image, **more}
    return Records(
        tuple(map(str, range(len(image)))), items, np.ones((len(image), 1), bool), ("x",)
    )


def create(settings, records, n_bits=12) -> HashModel:
    torch.manual_seed(0)
    settings = dict(settings)
    return MODELS[settings.pop("name")].create(records, n_bits, **settings).eval()


@pytest.mark.parametrize("settings", [
    SMALL | {"image_size": 32, "min_count": 1},
    SMALL | {"image_size": 17, "min_count": 1, "text_encoder": "transformer", "max_tokens": 9},
    resnet_model(mask_padding=False, image_size=64), "clip", "clip as in the paper, unit length",
], ids=str)  # fmt: skip
def test_codes_by_the_description_alone_are_the_models(settings, records, pictures, tmp_path):
    if isinstance(settings, str):
        more = (
            {"normalize": True, "preprocess": "paper", "freeze_backbone": False}
            if "unit" in settings
            else {}
        )
        settings = clip_model(tmp_path, prompt="a photo of {}", **more)
    model = create(settings, records)
    model.code_spaces, model.extends = ("teacher",), ("older",)
    description = export_onnx(model, tmp_path / "exported")
    assert json.loads((tmp_path / "exported" / "export.json").read_text()) == description
    assert {path.name for path in (tmp_path / "exported").iterdir()} == {
        "image.onnx",
        "text.onnx",
        "export.json",
    }
    exported = ExportedModel(tmp_path / "exported")
    assert exported.fingerprint() == description["fingerprint"] == model.fingerprint()
    assert (exported.modalities, exported.n_bits, exported.name) == (
        ("image", "text"),
        12,
        model.name,
    )
    assert (exported.code_spaces, exported.extends, exported.is_complete) == (
        ("teacher",),
        ("older",),
        True,
    )
    assert all(exported.comparable(other) for other in (model.fingerprint(), "teacher", "older"))
    assert not exported.comparable("stranger")
    with Image.open(pictures[0]) as opened:
        np.testing.assert_array_equal(
            exported.outputs("image", [opened]), exported.outputs("image", pictures[:1])
        )
    for modality, items in {"image": pictures, "text": TEXTS}.items():
        outputs = model.outputs(modality, items).numpy()
        # untrained: bits alone would tell little
        assert len(np.unique(outputs.round(2), axis=0)) > 4
        for batch in (1, 7):
            again = exported_outputs(tmp_path / "exported", modality, items, batch)
            np.testing.assert_allclose(again, outputs, atol=1e-4)
        codes = exported_codes(tmp_path / "exported", modality, items, 7)
        np.testing.assert_array_equal(codes, model.encode(modality, items))
        many = exported.outputs(modality, 5 * [*items])  # two batches
        assert many.dtype == np.float32
        np.testing.assert_allclose(many, np.tile(again, (5, 1)), atol=1e-5)
        assert exported.outputs(modality, []).shape == (0, 12)


def test_features_are_standardised_in_the_file_and_taken_as_they_are(tmp_path):
    rows = np.random.default_rng(0).normal(50, 20, (30, 5)).astype(np.float32)
    model = create(
        {"name": "features", "hidden": [8]}, feature_records(rows[:, :4], text=rows), n_bits=19
    )
    assert list(export_onnx(model, tmp_path / "exported", ["text"])["modalities"]) == ["text"]
    assert not (tmp_path / "exported" / "image.onnx").exists()
    for batch in (1, 7):
        codes = exported_codes(tmp_path / "exported", "text", rows, batch)
        np.testing.assert_array_equal(codes, model.encode("text", rows))
    exported = ExportedModel(tmp_path / "exported")
    np.testing.assert_allclose(
        exported.outputs("text", rows), model.outputs("text", rows).numpy(), atol=1e-4
    )
    for wrong in (rows[:, :4], ["a.jpg"]):
        check_refusal("takes rows of 5 features", exported.outputs, "text", wrong)
    rows[1] = np.nan
    says = "text in row 1: the exported model's output is not finite"
    check_refusal(says, exported.outputs, "text", rows, error=JobError)


def test_weights_beside_a_large_file_are_one_file_a_modality(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(30, 400)).astype(np.float32)
    model = create({"name": "features", "hidden": [8]}, feature_records(rows, text=-rows))
    with torch.no_grad():
        model.branch("text").head[0].weight.neg_()
    export = torch.onnx.export

    def as_over_2_gb(branch, inputs, path, **settings) -> None:
        export(branch, inputs, path, **settings)
        onnx.save_model(
            onnx.load(path), path, save_as_external_data=True, all_tensors_to_one_file=False
        )

    monkeypatch.setattr(torch.onnx, "export", as_over_2_gb)
    export_onnx(model, tmp_path / "exported")
    names = {path.name for path in (tmp_path / "exported").iterdir()}
    assert names == {"export.json", "image.onnx", "image.onnx.data", "text.onnx", "text.onnx.data"}
    for modality in ("image", "text"):
        codes = exported_codes(tmp_path / "exported", modality, rows, 7)
        np.testing.assert_array_equal(codes, model.encode(modality, rows))


@pytest.mark.parametrize("prepare", [
    square(16), Resize(16), Resize(16, short_side=21, filter="bicubic"), Resize(16, mode="squash"),
    Resize(16, mode="longest", fill=77), Resize(8, None, "bicubic", "squash", 0, True),
], ids=str)  # fmt: skip
def test_what_is_said_of_pixels_is_what_is_done(prepare, pictures):
    recipe = json.loads(json.dumps(prepare.recipe()))
    literal = np.stack([pixels(recipe, path) for path in pictures])
    np.testing.assert_array_equal(literal, prepare(pictures).numpy())
    np.testing.assert_array_equal(resize_of(recipe).arrays(pictures), literal)
    check_refusal(
        "resize is 'stretch', not one of", resize_of, {"resize": "stretch"}, error=ValueError
    )


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 8])
def test_pooling_of_exported_networks_is_that_of_the_model(side, monkeypatch):
    encoder = _SmallConvNet(8).eval()
    encoder.blocks = nn.Identity()
    maps = torch.rand(2, 3, side, side)
    pooled = encoder(maps)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    torch.testing.assert_close(encoder(maps), pooled)


def nothing_left(folder) -> bool:
    return not [path for path in folder.parent.iterdir() if folder.name in path.name]


def test_words_of_word_vectors_cannot_be_exported_but_pictures_can(records, tmp_path):
    (tmp_path / "w.txt").write_text("2 3\nred 0.5 1 0\nblue 0 1 2\n")
    model = create(resnet_model(word_vectors=tmp_path / "w.txt", freeze_backbone=False), records)
    assert refusal(export_onnx, model, tmp_path / "out") == (
        "text: cannot be exported to ONNX (its words are rows of word vectors, which stay outside "
        "the model); export the rest with modalities image"
    )
    assert nothing_left(tmp_path / "out")
    assert list(export_onnx(model, tmp_path / "out", ["image"])["modalities"]) == ["image"]


ROWS = FeatureRows("image", 3)


class Computed(nn.Module):
    """A layer of one function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def test_a_network_that_computes_in_bfloat16_is_refused(records, tmp_path):
    model = create(clip_model(tmp_path), records)
    model.set_precision("bfloat16")
    says = r"image: cannot be exported to ONNX \(its frozen encoder computes in bfloat16"
    check_refusal(says, export_onnx, model, tmp_path / "o")


def test_a_model_of_ones_own_that_cannot_be_exported_says_why(tmp_path):
    def own(prepare, encoder) -> HashModel:
        return HashModel("own", 4, {}, {"image": Branch(prepare, encoder, nn.Linear(3, 4))}).eval()

    unsaid = own(partial(feature_rows, modality="image", width=3), nn.Identity())
    says = r"\(what prepares its items has no method recipe\(\) that says how\)"
    check_refusal(says, export_onnx, unsaid, tmp_path / "out")
    unknown = refusal(export_onnx, own(ROWS, Computed(torch.special.i0)), tmp_path / "out")
    assert unknown.startswith(
        "image: cannot be exported to ONNX (Exporting the operator 'aten::i0'"
    )
    says = "image: the ONNX file computes something else than the model"
    other = own(ROWS, Computed(lambda rows: rows + int(torch.onnx.is_in_onnx_export())))
    check_refusal(says, export_onnx, other, tmp_path / "out", error=JobError)
    broken = own(ROWS, nn.Identity())
    with torch.no_grad():
        broken.branch("image").head.bias[1] = np.nan
    check_refusal(
        "image: the model's output is not finite",
        export_onnx,
        broken,
        tmp_path / "out",
        error=JobError,
    )
    assert nothing_left(tmp_path / "out")
    says = "^modalities: this model encodes image, not txt$"
    check_refusal(says, export_onnx, own(ROWS, nn.Identity()), tmp_path / "out", ["txt"])


@pytest.fixture
def exported(tmp_path):
    export_onnx(small_model(tmp_path), tmp_path / "exported")
    return tmp_path / "exported"


def test_files_that_were_changed_are_refused(exported):
    for name, change, message in (
        (
            "text.onnx",
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            "has changed since it was exported",
        ),
        ("export.json", lambda content: content[:-9], "not what `channelhash export` wrote"),
        (
            "export.json",
            lambda content: content.replace(b'"vocabulary"', b'"spells"'),
            "it lacks 'spells'",
        ),
        (
            "export.json",
            lambda content: content.replace(b'"sha256"', b'"x"'),
            "lacks 'sha256'.*export the model again",
        ),
        (
            "export.json",
            lambda content: content.replace(b'"model_modalities"', b'"x"'),
            "lacks 'model_modalities'",
        ),
        ("export.json", lambda content: b"[]", "export the model again"),
    ):
        content = (exported / name).read_bytes()
        (exported / name).write_bytes(change(content))
        check_refusal(message, lambda: ExportedModel(exported).outputs("text", ["red"]))
        (exported / name).write_bytes(content)
    (exported / "text.onnx").unlink()
    with pytest.raises(FileNotFoundError):
        ExportedModel(exported).outputs("text", ["red"])
    check_refusal(
        r"export.json: no such file; write it with `channelhash export",
        ExportedModel,
        exported.parent,
    )


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
    assert [
        (hit.id, hit.distance) for hit in search_store(store, text="red", model=saved)
    ] == with_model
    says = "encodes text, not image; export the model with it, too"
    check_refusal(says, load_query_encoder, store, saved / "onnx", {"image"})
    whole = tmp_path / "whole"
    export_onnx(model, whole)
    (saved / "onnx").rename(tmp_path / "aside")
    whole.rename(saved / "onnx")
    assert [loaded(what) for what in (None, {"image"})] == ["ExportedModel"] * 2
    stranger = ch.open_store(tmp_path / "other", model.n_bits, "another")
    check_refusal(
        "these codes were made by another model than", load_query_encoder, stranger, saved / "onnx"
    )
    # passed over
    check_refusal(
        "these codes were made by another model than", load_query_encoder, stranger, saved
    )
