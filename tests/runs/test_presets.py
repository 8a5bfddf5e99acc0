"""The presets ``recommended`` and ``fast`` are one recommendation, and what ``channelhash train``
takes by itself.
"""

from pathlib import Path

import pytest
import yaml

from channelhash.config import make_config, read_config, read_sections
from channelhash.errors import InputError
from channelhash.presets import preset_path
from small_runs import assert_refused, run_command, write_features

#: What is in no section of the two files is its default.
DATA = {"kind": "table", "path": "items.csv"}
MODEL = {"name": "aligned", "n_bits": 32, "encoder": "photo-backbones"}
LOSS = {"name": "dsch", "kappa_q": 0.3, "average_precision": 32.0}
TRAIN = {
    "recommended": {
        "epochs": 30,
        "batch_size": 128,
        "learning_rate": 1e-3,
        "validate_every": 10,
        "checkpoint_every": 10,
    },
    "fast": {
        "epochs": 8,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "validate_every": 4,
        "checkpoint_every": 4,
    },
}


@pytest.mark.parametrize("name", list(TRAIN))
def test_a_preset_is_the_recommendation(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = make_config({"data": DATA, "model": MODEL, "loss": LOSS, "train": TRAIN[name]})
    assert read_config(preset_path(name)) == expected
    longer = read_config(preset_path(name), ["model.n_bits=64"])
    assert (longer.loss.kappa_q, longer.terms.average_precision) == (0.3, 64.0)


def test_train_takes_the_recommendation_unless_another_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "train", says=f"{tmp_path / 'items.csv'}: no such table")
    features = [
        "data.kind=features",
        f"data.path={write_features(tmp_path / 'f.npz')}",
        "model.encoder=features",
    ]
    settings = [*features, "train.epochs=1", "data.queries=40", "train.batch_size=50"]
    assert run_command("train", *(f"--set={setting}" for setting in settings)) == 0
    written = yaml.safe_load((tmp_path / "runs" / "recommended" / "config.yaml").read_text())
    assert written["loss"].items() >= LOSS.items()
    assert written["model"]["name"] == "aligned"
    assert "recommended" not in written["loss"]


def test_a_ready_configuration_takes_the_recommended_weights_by_one_setting(tmp_path):
    for name in ("features", "table", "simulated", "tdsrdh", "cliphash"):
        plain, ours = (
            read_config(preset_path(name)),
            read_config(preset_path(name), ["loss.recommended=true"]),
        )
        # as they were in 0.1
        assert (plain.loss.kappa_q, plain.terms.average_precision) == (0.01, 0.0)
        assert (ours.loss.kappa_q, ours.terms.average_precision) == (0.3, float(ours.n_bits))


def test_a_configuration_that_ships_is_found_without_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_sections(Path("configs/features.yaml")) == read_sections(preset_path("features"))
    with pytest.raises(
        InputError, match=r"feature\.yaml: no such configuration file; `channelhash config list`"
    ):
        read_sections(Path("configs/feature.yaml"))
