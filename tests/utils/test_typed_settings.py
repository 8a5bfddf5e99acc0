"""Settings come from signatures; mistakes are one line that names the nearest known key."""

import pytest
import yaml

from channelhash.config import make_config, read_config
from channelhash.losses import LOSSES
from channelhash.runs.create import create_loss
from pages import ROOT
from refusals import refusal

VALUES = {
    "data": {"kind": "synthetic", "root": "somewhere", "queries": 10, "seed": 4},
    "model": {"name": "small", "n_bits": 24},
    "loss": {"name": "dsch", "gamma_w": 2},
    "train": {"epochs": 3},
}


def test_a_configuration_is_complete_and_reads_back_as_itself(tmp_path):
    config = make_config(VALUES)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert read_config(path) == config
    assert read_config(path).to_yaml() == config.to_yaml()
    assert config.source.root.is_absolute()  # a run's folder can be used from anywhere
    assert (config.split.queries, config.split.seed, config.n_bits) == (10, 4, 24)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"kind": "features"}, "data.path: is missing and has no default"),
        (
            {"kind": "features", "path": "x", "zzz": 1},
            "unknown key data.zzz for kind 'features'; known: path, ",
        ),
        (
            {"name": "dsch", "pairs": -1},
            "loss.pairs: input should be greater than or equal to 0, got -1",
        ),
        ({"name": "sch", "pairs": float("nan")}, "loss.pairs: input should be"),
        (
            {"name": "hyp2", "contrastive": float("inf")},
            "loss.contrastive: input should be a finite number, got inf",
        ),
        (
            {"name": "dsch", "temperature": 0},
            "loss.temperature: input should be greater than 0, got 0",
        ),
        (
            {"name": "dsch", "average_precision": "x"},
            "loss.average_precision: input should be a valid number",
        ),
        (
            {"name": "dsch", "piars": 5},
            "unknown key loss.piars for loss 'dsch'; did you mean 'pairs'?",
        ),
        (
            {"name": "tdsrdh", "contrastive": 1},
            "loss.contrastive: this loss trains one modality at a time",
        ),
        ({"name": "tdsrdh", "pairs": 1}, "loss.pairs: this loss trains one modality at a time"),
    ],
    ids=str,
)
def test_mistakes_in_the_data_and_the_terms_of_a_loss_name_the_key(keys, says):
    assert refusal(make_config, VALUES | {"data" if "kind" in keys else "loss": keys}).startswith(
        says
    )


def test_terms_are_keys_of_the_section_loss_and_off_by_default():
    config = make_config(
        VALUES | {"loss": {"name": "sch", "tau": 2, "pairs": 0.5, "average_precision": 8}}
    )
    written = yaml.safe_load(config.to_yaml())
    assert written["loss"] | {"contrastive": 0.0, "temperature": 0.07} == written["loss"]
    assert (
        written["loss"]["tau"],
        written["loss"]["pairs"],
        written["loss"]["average_precision"],
    ) == (2, 0.5, 8)
    assert make_config(written) == config
    loss = create_loss(config, 5)
    assert (loss.terms.pairs, loss.terms.average_precision, loss.loss.tau) == (0.5, 8, 2)
    for name in LOSSES:
        assert type(create_loss(make_config(VALUES | {"loss": {"name": name}}), 5)) is LOSSES[name]


def test_literature_sizes_are_the_default_of_their_data_set(tmp_path):
    config = make_config({**VALUES, "data": {"kind": "mirflickr25k", "root": "x"}})
    assert (config.split.queries, config.split.train, config.split.validation_queries) == (
        2000,
        10000,
        2000,
    )
    config = make_config({**VALUES, "data": {"kind": "mirflickr25k", "root": "x", "train": 500}})
    assert (config.split.queries, config.split.train) == (2000, 500)


def test_ready_configurations_are_valid():
    paths = sorted((ROOT / "configs").glob("*.yaml"))
    assert {"demo.yaml", "features.yaml", "table.yaml"} <= {path.name for path in paths}
    for path in paths:
        read_config(path)
