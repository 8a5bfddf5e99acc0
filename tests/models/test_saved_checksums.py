"""Saved models: damaged ones are refused, and each carries a card."""

import contextlib
import json
import re
import sys

import numpy as np
import pytest
import torch
import yaml

import channelhash as ch
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.models import MODELS
from channelhash.models.description import damaged_files, model_card, read_checked, read_description
from refusals import check_refusal
from small_runs import feature_config, train_run, write_features

TEXTS = ("a dog on the beach", "a cat on the sea", "a dog and a cat")


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    records = Records(("a", "b", "c"), {"text": TEXTS}, np.ones((3, 1), dtype=bool), ("any",))
    MODELS["small"].create(records, 24, text_width=4, hidden=[4], min_count=1).save_pretrained(tmp_path / "saved")
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
        check_refusal(r"model\.safetensors: not now", read_checked, saved / "model.safetensors", error=JobError)
    finally:
        for handle in handles:
            handle.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert damaged_files(saved) == []


def test_no_flipped_bit_gives_other_codes(saved):
    codes = ch.load_model(saved).encode_texts(TEXTS)
    random = np.random.default_rng(0)
    refused = 0
    for name in ("config.json", "model.safetensors"):
        content = (saved / name).read_bytes()
        for offset in random.choice(len(content), 60, replace=False).tolist():
            damaged = bytearray(content)
            damaged[offset] ^= 1 << int(random.integers(8))
            (saved / name).write_bytes(damaged)
            try:
                np.testing.assert_array_equal(ch.load_model(saved).encode_texts(TEXTS), codes)
            except InputError:
                refused += 1
        (saved / name).write_bytes(content)
    assert refused > 60


def test_a_person_who_edits_a_description_removes_its_checksum(saved):
    description = json.loads((saved / "config.json").read_text())
    description["architecture"]["vocabulary"].reverse()
    (saved / "config.json").write_text(json.dumps(description))
    check_refusal(r"config\.json: has changed since it was saved; .*remove its 'checksum'", ch.load_model, saved)
    del description["checksum"]
    (saved / "config.json").write_text(json.dumps(description))
    ch.load_model(saved)


def test_a_card_says_what_the_model_is_and_how_it_was_trained():
    settings = {"loss": {"name": "dsch", "kappa_q": 0.01}}
    card = model_card("small", 33, ("image", "text"), 1_234_567, "abc", settings)
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {"library_name": "channelhash", "tags": ["cross-modal-hashing", "image", "text"]}
    assert "codes of 33 bits (5 bytes an item)" in card
    assert "1,234,567 trained parameters, fingerprint\n`abc`" in card
    assert yaml.safe_load(re.search(r"```yaml\n(.*?)```", card, re.DOTALL)[1]) == settings
    unknown = model_card("small", 16, ("text",), 5, "abc")
    assert "## Training" not in unknown
    assert 'encode_texts(["a dog on a beach"])' in unknown


def test_a_trained_run_has_a_card_without_paths(tmp_path):
    train_run(feature_config(tmp_path / "run.json", write_features(tmp_path / "features.npz"), epochs=2))
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert ch.load_model(tmp_path / "run").fingerprint() in card
    assert "kappa_q" in card
    assert str(tmp_path) not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, "README.md", "exec")


@pytest.mark.parametrize("text", ["[]", '{"a\x01": 1}', "{", "\x00"])
def test_a_description_that_is_no_json_object_is_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    check_refusal(r"config\.json: is damaged", read_description, tmp_path / "config.json")
