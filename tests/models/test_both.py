"""The model of labels and pairs, against its literal transcription."""

import json

import numpy as np
import pytest
import torch

import channelhash as ch
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models import MODELS, load_model
from channelhash.models.both import fit_bits, rotated_directions
from channelhash.runs.folder import open_run
from small_runs import feature_config, run_command, write_features

N_BITS, LABEL_BITS = 16, 10


@pytest.fixture
def records():
    random = np.random.default_rng(0)
    items = {name: random.normal(size=(40, width)).astype(np.float32) for name, width in (("image", 6), ("text", 4))}
    return Records(tuple(f"{i}" for i in range(40)), items, np.ones((40, 1), dtype=bool), ("any",))


def fitted(records: Records, **settings: object) -> ch.HashModel:
    torch.manual_seed(0)
    model = MODELS["both"].create(records, N_BITS, hidden=[8], **settings)
    fit_bits(model, {name: torch.from_numpy(values) for name, values in records.items.items()})
    return model.eval()


def test_bits_are_of_the_labels_then_of_the_pairs(records):
    model, rows = fitted(records), {}
    with torch.no_grad():
        for name, values in records.items.items():
            standardized = (values - values.mean(axis=0)) / values.std(axis=0)
            head = model.branch(name).head
            labels, pairs = (part(torch.from_numpy(standardized)).numpy() for part in (head.labels, head.pairs))
            rows[name] = [
                [[x / np.sqrt(sum(y * y for y in row)) for x in row] for row in values]
                for values in (np.tanh(labels), pairs)
            ]
    for part, bits in ((0, slice(0, LABEL_BITS)), (1, slice(LABEL_BITS, N_BITS))):
        both = np.array(rows["image"][part] + rows["text"][part], dtype=np.float64)
        weights = rotated_directions(both, bits.stop - bits.start)
        for name in rows:
            outputs = model.outputs(name, records.items[name]).numpy()[:, bits]
            np.testing.assert_allclose(outputs, np.array(rows[name][part]) @ weights, atol=1e-5)


def test_rotated_directions_span_what_keeps_most_of_the_rows():
    values = np.random.default_rng(1).normal(size=(50, 6)) * [3, 1, 2, 0.1, 0.5, 0.2] + 1  # not centred
    weights = rotated_directions(values, 3)
    np.testing.assert_allclose(weights.T @ weights, np.eye(3), atol=1e-9)
    leading = np.linalg.svd(values)[2][:3].T
    np.testing.assert_allclose(weights @ weights.T, leading @ leading.T, atol=1e-9)


@pytest.mark.parametrize(("share", "sizes"), [(0.0, {1: 16}), (0.6, {0: 10, 1: 6}), (1.0, {0: 16})])
def test_the_share_of_the_labels_says_which_parts_have_bits(records, share, sizes, tmp_path):
    model = fitted(records, label_share=share)
    assert model.branch("image").head.sizes == sizes
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(
        again.encode("text", records.items["text"]), model.encode("text", records.items["text"])
    )


def test_bits_can_be_shared_out_anew(records):
    model, inputs = fitted(records), {name: torch.from_numpy(values) for name, values in records.items.items()}
    fit_bits(model.train(), inputs, label_bits=4)
    assert model.training
    expected = fitted(records, label_share=0.25).encode("image", records.items["image"])
    np.testing.assert_array_equal(model.eval().encode("image", records.items["image"]), expected)


def test_the_parts_learn_apart_and_a_run_ends_with_fitted_bits(tmp_path):
    config = json.loads(feature_config(tmp_path / "c.json", write_features(tmp_path / "f.npz")).read_text())
    config["model"] = {"name": "both", "n_bits": 12, "hidden": [8]}
    config["loss"] |= {"kappa_q": 0.0, "pairs": 1.0}
    config["train"] |= {"epochs": 3, "validate_every": 2}
    run = ch.train(config, out=tmp_path / "run")
    weaker = ch.train(config, ["loss.pairs=1e-3"], out=tmp_path / "weaker")
    heads = [load_model(tmp_path / name).branch("text").head for name in ("run", "weaker")]
    torch.testing.assert_close(heads[0].labels.state_dict(), heads[1].labels.state_dict())
    assert not torch.equal(heads[0].pairs[1].weight, heads[1].pairs[1].weight)
    assert run.validation["text->image"] > 0 < weaker.validation["text->image"]
    opened = open_run(tmp_path / "run")
    before, train = opened.model.fingerprint(), opened.collection.records.take(opened.splits.train)
    fit_bits(opened.model, {name: opened.model.prepare(name, values) for name, values in train.items.items()})
    assert opened.model.fingerprint() == before


@pytest.mark.parametrize(
    ("override", "named"), [("loss.pairs=0", "set loss.pairs=1"), ("model.label_share=2", "model.label_share")]
)
def test_what_both_cannot_learn_from_is_refused(override, named, tmp_path, capsys):
    path = feature_config(tmp_path / "c.json", write_features(tmp_path / "f.npz"))
    config = json.loads(path.read_text()) | {"model": {"name": "both", "n_bits": 12}}
    config["loss"] |= {"pairs": 1.0}
    path.write_text(json.dumps(config))
    assert run_command("train", path, "--set", override, "--out", tmp_path / "run") == 2
    assert named in capsys.readouterr().err


def test_one_modality_has_no_pairs(records):
    one = Records(records.ids, {"text": records.items["text"]}, records.labels, records.label_names)
    with pytest.raises(InputError, match="only texts"):
        MODELS["both"].create(one, N_BITS)
