"""Models: initialisation, independence of codes, encoding, saving and loading; damaged ones are
refused.
"""

import contextlib
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

import channelhash as ch
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.models import MODELS, load_model
from channelhash.models.description import damaged_files, model_card, read_checked, read_description
from channelhash.models.heads import hash_head
from channelhash.models.small import TransformerText, _sinusoidal_positions
from refusals import check_refusal
from small_runs import feature_config, train_run, write_features

TEXTS = ("a red car", "sunset over the sea", "dog", "two dogs by the sea", "red sunset", "car")


def small(records: Records, n_bits: int = 12, **settings: object) -> ch.HashModel:
    torch.manual_seed(0)
    return MODELS["small"].create(records, n_bits, width=8, image_size=32, **settings)


def test_the_hash_head_is_the_protocols():
    torch.manual_seed(0)
    head = hash_head([400, 600, 500, 32], dropout=0.1)
    assert [type(layer) for layer in head] == [nn.Linear, nn.Tanh, nn.Dropout] * 2 + [nn.Linear]
    assert all(layer.p == 0.1 for layer in head if isinstance(layer, nn.Dropout))
    linears = [layer for layer in head if isinstance(layer, nn.Linear)]
    for layer in linears:
        assert not layer.bias.any()
    for layer in linears[:-1]:  # Xavier-normal with gain 5/3
        expected = 5 / 3 * (2 / (layer.in_features + layer.out_features)) ** 0.5
        assert layer.weight.std().item() == pytest.approx(expected, rel=0.02)
    assert linears[-1].weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.03)  # He-normal


@pytest.mark.parametrize("text_encoder", ["bag", "transformer"])
def test_codes_of_texts_need_no_images_and_are_finite_without_known_words(records, text_encoder):
    model, texts = small(records, text_encoder=text_encoder), records.items["text"]
    alone = MODELS["small"].create(
        replace(records, items={"text": texts}), 12, text_encoder=text_encoder
    )
    alone.load_state_dict(
        {k: v for k, v in model.state_dict().items() if k.startswith("branches.text")}
    )
    torch.testing.assert_close(alone.outputs("text", texts), model.outputs("text", texts))
    outputs = model.outputs("text", ["", "   ", "!!!"])
    assert outputs.isfinite().all()
    assert torch.equal(outputs[0], outputs[2])


def test_codes_are_packed_and_pictures_may_be_opened_ones(records):
    model = small(records, n_bits=12)
    paths = list(records.items["image"])
    codes = model.encode_images(paths)
    assert (codes.shape, codes.dtype) == ((12, 2), np.uint8)
    np.testing.assert_array_equal(model.encode_images([Image.open(path) for path in paths]), codes)
    np.testing.assert_array_equal(model.encode_images([str(path) for path in paths]), codes)
    assert model.encode_texts([]).shape == (0, 2)


def test_padding_takes_no_part_in_a_texts_features():
    torch.manual_seed(0)
    table = torch.nn.Embedding(51, 16, padding_idx=0)
    encoder = TransformerText(table, n_features=16, feed_forward=32, max_tokens=20).eval()
    tokens = torch.tensor([[3, 7, 9]])
    padded = torch.nn.functional.pad(tokens, (0, 9))
    torch.testing.assert_close(encoder(padded), encoder(tokens), atol=1e-6, rtol=1e-5)
    encoder.mask_padding = False  # as the published code does: padding does matter then
    assert (encoder(padded) - encoder(tokens)).abs().max() > 1e-4


def test_positions_are_those_of_the_transformer():
    angles = np.arange(30)[:, None] / 10000 ** (2 * np.arange(4) / 8)
    expected = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(30, 8)
    np.testing.assert_allclose(_sinusoidal_positions(30, 8), expected, atol=1e-5)


def test_items_that_are_no_pictures_are_named(tmp_path, records):
    model, broken = small(records), tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 not a picture")
    check_refusal(r"broken\.jpg: not a readable picture", model.encode_images, [broken])
    check_refusal(
        r"encodes pictures; these are features \(2, 3\)", model.encode, "image", np.zeros((2, 3))
    )


def test_a_feature_model_standardises_and_says_what_it_cannot_do(tmp_path):
    random = np.random.default_rng(0)
    features = {
        "image": random.normal(5, 3, (50, 4)).astype(np.float32),
        "text": np.ones((50, 3), np.float32),
    }
    records = Records(tuple(map(str, range(50))), features, np.ones((50, 1), bool), ("x",))
    model = MODELS["features"].create(records, 8, hidden=[16])
    inputs = model.branches["image"].encoder(torch.from_numpy(features["image"]))
    torch.testing.assert_close(inputs.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(inputs.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)
    # a constant column does not divide by 0
    assert model.outputs("text", features["text"]).isfinite().all()
    model.save_pretrained(tmp_path / "m")
    codes = load_model(tmp_path / "m").encode("image", features["image"])
    np.testing.assert_array_equal(codes, model.encode("image", features["image"]))
    says = r"image features are \(n, 4\) for this model, not \(2, 5\)"
    check_refusal(says, model.encode, "image", np.zeros((2, 5), np.float32))


def test_damaged_and_missing_models_are_named(records, tmp_path):
    small(records).save_pretrained(tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    check_refusal(r"model\.safetensors: weights cannot be read", load_model, tmp_path / "m")
    says = r"no such folder; name a run or a saved model \(`channelhash train` makes a run\)"
    check_refusal(says, load_model, tmp_path / "photo")
    check_refusal(r"no config\.json", load_model, tmp_path)


def test_widths_that_cannot_be_are_refused_and_narrow_ones_are_built(records):
    check_refusal(
        r"model\.width is 12; choose a multiple of 8", MODELS["small"].create, records, 12, width=12
    )
    check_refusal(
        r"model\.text_width is 6", small, records, text_encoder="transformer", text_width=6
    )
    for encoder in ("bag", "transformer"):
        model = small(records, text_encoder=encoder, text_width=8, min_count=1)
        assert model.branch("text").head[0].in_features == 8
        assert model.encode_texts(TEXTS).shape == (6, 2)


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    records = Records(tuple("abcdef"), {"text": TEXTS}, np.ones((6, 1), dtype=bool), ("any",))
    MODELS["small"].create(records, 24, text_width=4, hidden=[4], min_count=1).save_pretrained(
        tmp_path / "saved"
    )
    return tmp_path / "saved"


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of handles")
def test_too_few_file_handles_are_not_called_damage(saved):
    import resource

    limits, handles = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                handles.append(open(saved / "config.json", "rb"))  # noqa: SIM115
        check_refusal("Too many open files", damaged_files, saved, error=JobError)
        check_refusal(
            r"model\.safetensors: not now",
            read_checked,
            saved / "model.safetensors",
            error=JobError,
        )
    finally:
        for handle in handles:
            handle.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert damaged_files(saved) == []


def test_no_flipped_bit_gives_other_codes(saved):
    codes = load_model(saved).encode_texts(TEXTS)
    random = np.random.default_rng(0)
    refused = 0
    for name in ("config.json", "model.safetensors"):
        content = (saved / name).read_bytes()
        for offset in random.choice(len(content), 60, replace=False).tolist():
            damaged = bytearray(content)
            damaged[offset] ^= 1 << int(random.integers(8))
            (saved / name).write_bytes(damaged)
            try:
                np.testing.assert_array_equal(load_model(saved).encode_texts(TEXTS), codes)
            except InputError:
                refused += 1
        (saved / name).write_bytes(content)
    assert refused > 60


def test_a_person_who_edits_a_description_removes_its_checksum(saved):
    description = json.loads((saved / "config.json").read_text())
    description["architecture"]["vocabulary"].reverse()
    (saved / "config.json").write_text(json.dumps(description))
    check_refusal(
        r"config\.json: has changed since it was saved; .*remove its 'checksum'", load_model, saved
    )
    del description["checksum"]
    (saved / "config.json").write_text(json.dumps(description))
    load_model(saved)


def test_a_card_says_what_the_model_is_and_how_it_was_trained():
    settings = {"loss": {"name": "dsch", "kappa_q": 0.01}}
    card = model_card("small", 33, ("image", "text"), 1_234_567, "abc", settings)
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {
        "library_name": "channelhash",
        "tags": ["cross-modal-hashing", "image", "text"],
    }
    assert "codes of 33 bits (5 bytes an item)" in card
    assert "1,234,567 trained parameters, fingerprint\n`abc`" in card
    assert yaml.safe_load(re.search(r"```yaml\n(.*?)```", card, re.DOTALL)[1]) == settings
    unknown = model_card("small", 16, ("text",), 5, "abc")
    assert "## Training" not in unknown
    assert 'encode_texts(["a dog on a beach"])' in unknown


def test_a_trained_run_has_a_card_without_paths(tmp_path):
    train_run(
        feature_config(tmp_path / "run.json", write_features(tmp_path / "features.npz"), epochs=2)
    )
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert load_model(tmp_path / "run").fingerprint() in card
    assert "kappa_q" in card
    assert str(tmp_path) not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, "README.md", "exec")


@pytest.mark.parametrize("text", ["[]", '{"a\x01": 1}', "{", "\x00"])
def test_a_description_that_is_no_json_object_is_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    check_refusal(r"config\.json: is damaged", read_description, tmp_path / "config.json")
