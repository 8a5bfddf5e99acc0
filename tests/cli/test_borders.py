"""Single inputs that once ended a command in a traceback."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from bulk.made_inputs import write_tar
from channelhash.config import read_config
from channelhash.models import load_model
from channelhash.utils.typed_settings import apply_overrides
from data.test_bulk import read
from refusals import check_refusal, refusal
from small_runs import assert_refused
from small_stores import small_model


@pytest.mark.parametrize("column", ["id", "text", "labels"])
def test_rows_of_parquet_that_are_not_utf8_are_named(tmp_path, capsys, column):
    path = tmp_path / "items.parquet"
    table = pa.table({"id": ["a", "b"], "text": ["x", "y"], "labels": ["u", "v"]})
    ends = pa.py_buffer(np.array([0, 2, 4], np.int32).tobytes())
    not_utf8 = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xff\xfe" * 2)])
    pq.write_table(table.set_column(table.column_names.index(column), column, not_utf8), path)
    says = f"the column '{column}' is not UTF-8 text; mend the row"
    assert_refused(capsys, "data", "describe", "table", "--data", path, says=says)
    ((records, bad),) = read(path, tmp_path, modalities=("text",))
    assert (records.ids, len(bad)) == ((), 2)
    assert all("is not UTF-8 text" in reason for _, reason in bad)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"text": ',
        b"\xff",
        b'{"text": "\\ud800"}',
        b'{"text": "a", "labels": ["\\ud800"]}',
        b"[1]",
    ],
)
def test_a_tar_member_with_odd_json_is_a_bad_item(tmp_path, content):
    good = b'{"text": "a dog", "labels": ["dog"]}'
    path = write_tar(tmp_path / "0.tar", {"a": {"json": content}, "b": {"json": good}})
    ((records, bad),) = read(path, tmp_path, modalities=("text",))
    assert (records.ids, [item for item, _ in bad]) == (("b",), ["a"])


@pytest.mark.parametrize(
    "text", ["a: [1, 2", "2020-13-45: {}", "data: {when: 2020-99-99}", "[" * 9000, "- " * 90_000]
)
def test_odd_yaml_is_refused_with_the_file(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    check_refusal(r"c\.yaml", read_config, path)


@pytest.mark.parametrize("value", ["2020-13-45", "[" * 9000, "[1"])
def test_an_odd_override_is_refused(tmp_path, value):
    path = tmp_path / "c.yaml"
    path.write_text("data: {kind: table, path: t.csv}\nmodel: {name: small}\nloss: {name: sch}")
    check_refusal(
        r"train\.epochs: input should be a valid integer",
        read_config,
        path,
        [f"train.epochs={value}"],
    )
    check_refusal(
        r"overrides \"data\.text_column='…'\" gives a text",
        read_config,
        path,
        ["data.text_column=no"],
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((sign, sign) for sign in [*",| #\t;->&*:?!@%{", ", "]),
        ("'no'", "no"),
        ("'1e3'", "1e3"),
        ("1e-4", 1e-4),
        ("-1", -1),
        ("~", None),
        ("", None),
        ("[]", []),
    ],
)
def test_an_override_of_signs_alone_is_a_text(text, value):
    values = {}
    apply_overrides(values, f"data.label_separator={text}")
    assert values == {"data": {"label_separator": value}}


@pytest.mark.parametrize(("key", "value", "says"), [
    ("n_bits", "12", "n_bits is '12'"),
    ("n_bits", 8, "n_bits is 8, in its architecture 12"),
    ("architecture", [], "not a model"),
    ("extends", 3, "not a model"),
    ("backbones", [], "not a model"),
    ("architecture.max_tokens", -1, "architecture.max_tokens"),
    ("architecture.image_size", "x", "architecture.image_size"),
    ("architecture.modalities", [], "no modality"),
])  # fmt: skip
def test_a_model_of_wrong_types_is_refused(tmp_path, key, value, says):
    small_model(tmp_path)
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config.pop("checksum", None)  # as in a file that someone edited
    section, _, name = key.rpartition(".")
    (config[section] if section else config)[name] = value
    path.write_text(json.dumps(config))
    message = refusal(load_model, tmp_path / "model")
    assert "config.json: not a model this version can build" in message
    assert says in message


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    small_model(tmp_path)
    path = tmp_path / "model" / "model.safetensors"
    weights = load_file(path)
    name = sorted(weights)[0]
    weights[name] = torch.full_like(weights[name], float("nan"))
    save_file(weights, path)
    check_refusal(r"model\.safetensors: .* \(NaN\)", load_model, tmp_path / "model")
