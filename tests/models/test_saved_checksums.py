"""Damaged models are refused."""

import contextlib
import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import channelhash as ch
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.models import MODELS
from channelhash.models.backbones import read_saved_weights
from channelhash.models.hash_model import damaged_files

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
        with pytest.raises(JobError, match="Too many open files"):
            damaged_files(saved)
        with pytest.raises(JobError, match=r"model\.safetensors: not now"):
            read_saved_weights(saved / "model.safetensors")
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
    with pytest.raises(InputError, match=r"config\.json: has changed since it was saved; .*remove its 'checksum'"):
        ch.load_model(saved)
    del description["checksum"]
    (saved / "config.json").write_text(json.dumps(description))
    ch.load_model(saved)


def test_models_without_checksums_are_loaded(saved):
    codes = ch.load_model(saved).encode_texts(TEXTS)
    description = json.loads((saved / "config.json").read_text())
    del description["checksum"]
    (saved / "config.json").write_text(json.dumps(description, indent=2))
    weights = load_file(saved / "model.safetensors")
    save_file({name: values.clone() for name, values in weights.items()}, saved / "model.safetensors")
    np.testing.assert_array_equal(ch.load_model(saved).encode_texts(TEXTS), codes)
