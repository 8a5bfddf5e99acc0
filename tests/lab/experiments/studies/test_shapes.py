"""``experiment shapes``: channels with the same weights beside them."""

import csv

import torch

from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies.shapes import SHAPES
from lab.experiments.made_grids import named_grid
from small_runs import grid_base, run_command


def test_the_shapes_differ_in_the_channel_alone(tmp_path):
    runs = named_grid("shapes", grid_base(tmp_path), tmp_path, seeds=5).runs
    assert len(runs) == len(SHAPES) * 4 * 5
    for run in runs:
        assert (run.config.loss.kappa_q, run.config.terms.average_precision) == (0.3, run.config.n_bits / 4)
    own = {run.method: run.config.loss.model_dump() | {"name": run.config.loss_name} for run in runs}
    assert {settings["name"] for settings in own.values()} == {"sch", "dsch", "sch-shaped"}
    shaped = [settings for settings in own.values() if settings["name"] == "sch-shaped"]
    assert {settings["shape"] for settings in shaped} == {"quantile", "rarity", "learned"}
    assert {settings["tau"] for settings in shaped} == {own["SCH"]["tau"]}


def test_the_command_holds_every_shape_against_that_of_sch(tmp_path, capsys):
    out = tmp_path / "grid"
    base = grid_base(tmp_path)
    assert run_command("experiment", "shapes", "--config", base, "--bits", "8", "--seeds", "2", "--out", out) == 0
    assert "Shapes minus SCH on mAP_T in points, 8 bits" in capsys.readouterr().out
    _, results = read_grid(out)
    assert {result.status for result in results} == {"finished"}
    for name in ("effects-k8", "ndcg-graded-effects-k8"):
        with open(out / "tables" / f"{name}.csv", newline="") as file:
            assert {row[0] for row in csv.reader(file)} >= set(SHAPES) - {"SCH"}
    for seed in (0, 1):
        checkpoint = out / "runs" / f"sch-learned-k8-seed{seed}" / "checkpoints" / "last.pt"
        steps = torch.load(checkpoint, weights_only=True)["loss"]["loss.steps"]
        assert steps.all()  # trained with the model, from 0 on
    assert (out / "plots" / "effects.png").stat().st_size > 5_000
