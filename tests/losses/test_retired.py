"""What left the package: version 0.1's settings that did nothing are read, others say where they went."""

import json

import pytest
import yaml

from channelhash.config import make_config, read_config
from channelhash.errors import InputError
from channelhash.losses import LOSSES, DSCHLoss, make_loss
from pages import ROOT
from small_runs import assert_refused, feature_config, run_command, write_features

SECTIONS = {"data": {"kind": "synthetic", "root": "drawn"}, "model": {"name": "small"}}
#: At which version 0.1 wrote them unless they were asked for.
OFF = {"hardness": 0.0, "balance": 0.0, "memory": 0}


@pytest.mark.parametrize("name", ["dsch", "sch", "rsch", "hyp2"])
def test_what_did_nothing_is_dropped(name):
    assert make_config({**SECTIONS, "loss": {"name": name, **OFF}}) == make_config({**SECTIONS, "loss": {"name": name}})
    assert type(make_loss(name, 8, 3, **OFF)) is LOSSES[name]


@pytest.mark.parametrize(
    "change", [{"hardness": 1.0}, {"hardness": float("nan")}, {"balance": 0.5}, {"memory": 64}, {"memory": None}]
)
def test_what_did_something_says_where_it_went_and_what_to_do(change):
    ((key, value),) = change.items()
    says = (
        f"loss.{key}: left the package, as it gained nothing (docs/reference/results/earlier.md); version 0.1 reads "
        f"such a run; set it to 0, got {value!r}"
    )
    for read in (
        lambda: make_config({**SECTIONS, "loss": {"name": "dsch", **OFF, **change}}),
        lambda: make_loss("dsch", 8, 3, **(OFF | change)),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == says


def test_a_loss_that_left_says_which_to_take(tmp_path, capsys):
    config = feature_config(tmp_path / "c.yaml", tmp_path / "none.npz", "sch-shaped")
    says = "loss.name: 'sch-shaped' left the package, as it gained nothing (docs/reference/results/earlier.md)"
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says=says)
    with pytest.raises(InputError, match=r"version 0\.1 reads such a run; take sch$"):
        make_loss("sch-shaped", 8, 3)
    assert (ROOT / "docs" / "reference" / "results" / "earlier.md").exists()


def test_a_loss_of_ones_own_may_have_such_a_setting(monkeypatch):
    class Own(DSCHLoss):
        def __init__(self, n_bits: int, memory: int = 3) -> None:
            super().__init__(n_bits)
            self.memory = memory

    monkeypatch.setitem(LOSSES, "own", Own)
    assert make_loss("own", 8, 3, memory=5, hardness=0).memory == 5
    assert make_config({**SECTIONS, "loss": {"name": "own", "memory": 7}}).loss.memory == 7


def test_a_run_that_0_1_wrote_is_resumed_and_one_with_such_a_term_is_not_read(tmp_path, capsys):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=1)
    run = tmp_path / "run"
    assert run_command("train", config, "--out", run) == 0
    written = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(json.dumps(written | {"loss": written["loss"] | OFF}))
    assert run_command("train", config, "--out", run, "--resume") == 0
    assert read_config(run / "config.yaml") == read_config(config)
    (run / "config.yaml").write_text(json.dumps(written | {"loss": written["loss"] | {"hardness": 1.0}}))
    says = "config.yaml: loss.hardness: left the package, as it gained nothing"
    assert_refused(capsys, "evaluate", run, says=says)
