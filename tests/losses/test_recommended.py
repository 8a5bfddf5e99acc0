"""``recommended: true``: the weights of one recommendation, wherever a loss is named."""

import json

import pytest
import torch
import yaml

from channelhash.config import make_config, read_config
from channelhash.errors import InputError
from channelhash.lab.experiments.experiment import Design, choose_losses
from channelhash.losses import LOSSES, RECOMMENDED, make_loss

SECTIONS = {"data": {"kind": "synthetic", "root": "d"}, "model": {"name": "small"}}


def configured(n_bits=32, **loss):
    return make_config({**SECTIONS, "model": {"name": "small", "n_bits": n_bits}, "loss": loss})


@pytest.mark.parametrize("name", RECOMMENDED)
@pytest.mark.parametrize(("n_bits", "weight"), [(16, 4.0), (32, 8.0), (64, 16.0), (128, 32.0), (50, 12.5)])
def test_the_weights_are_those_of_the_comparison(name, n_bits, weight, tmp_path):
    config = configured(n_bits, name=name, recommended=True)
    assert (config.loss.kappa_q, config.terms.average_precision) == (0.3, weight)
    assert config == configured(n_bits, name=name, kappa_q=0.3, average_precision=weight)
    assert "recommended" not in yaml.safe_load(config.to_yaml())["loss"]
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    assert read_config(tmp_path / "c.yaml") == config


def test_what_is_given_beside_it_prevails():
    config = configured(name="sch", recommended=True, kappa_q=0.1, contrastive=0.5)
    assert (config.loss.kappa_q, config.terms.average_precision, config.terms.contrastive) == (0.1, 8.0, 0.5)
    assert configured(name="dsch", recommended=False).loss.kappa_q == 0.01


def test_the_same_loss_in_python():
    outputs = {name: torch.randn(6, 16, generator=torch.Generator().manual_seed(3)) for name in ("image", "text")}
    labels = torch.eye(6)[:, :3] + torch.eye(6)[:, 3:]
    ours, literal = (
        make_loss("dsch", 16, 3, **settings)(outputs, labels)
        for settings in ({"recommended": True}, {"kappa_q": 0.3, "average_precision": 4.0})
    )
    assert ours == literal
    assert ours != make_loss("dsch", 16, 3)(outputs, labels)


def test_a_grid_compares_it_at_each_code_length():
    chosen = choose_losses(["dsch", "dsch:recommended"], {})
    assert list(chosen) == ["DSCH", "DSCH, recommended"]
    runs = Design(SECTIONS, [16, 64], [0]).runs("DSCH, recommended", chosen["DSCH, recommended"])
    assert [run.config.terms.average_precision for run in runs] == [4.0, 16.0]


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            {"name": "rsch", "recommended": True},
            "loss.recommended: is not known for 'rsch'; set it to false, or take dsch",
        ),
        ({"name": "dsch", "recommended": "yes"}, "loss.recommended: is true or false, got 'yes'"),
        ({"name": "dsch", "recommended": True, "published": True}, "loss.recommended: the weights are either ours or"),
    ],
    ids=json.dumps,
)
def test_what_cannot_be_is_refused(loss, says):
    with pytest.raises(InputError, match=says):
        make_config(SECTIONS | {"loss": loss})
    assert set(RECOMMENDED) <= set(LOSSES)
