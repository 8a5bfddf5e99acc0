"""Curves of a training in trackers of others, as these are called by their documentation."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from channelhash.training.trackers import TRACKERS
from small_runs import assert_refused, feature_config, run_command, write_features


class _Recorded:
    """Stands for both libraries: keeps what is logged, by run."""

    def __init__(self):
        self.runs, self.asked = {}, []

    @contextmanager
    def start_run(self, run_name=None, run_id=None):
        self.asked.append(run_id or run_name)
        self.run = self.runs.setdefault(run_id or "id-of-mlflow", [])
        yield SimpleNamespace(info=SimpleNamespace(run_id="id-of-mlflow"))

    def log_metrics(self, metrics, step):
        assert all(character not in name for name in metrics for character in "<>")  # which MLflow refuses
        self.run.append((step, metrics))

    @contextmanager
    def init(self, project, name, dir, resume, id="id-of-wandb"):
        self.asked.append((project, name, resume, id))
        run = self.runs.setdefault(id, [])
        yield SimpleNamespace(id=id, log=lambda metrics, step: run.append((step, metrics)))

    def Settings(self):  # noqa: N802
        return SimpleNamespace(project=None)


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_each_epoch_is_logged_once_also_by_a_run_that_goes_on(tracker, tmp_path, monkeypatch):
    recorded = _Recorded()
    monkeypatch.setitem(sys.modules, tracker, recorded)
    config, run = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=2), tmp_path / "run"
    chosen = ["--set", f"train.tracker={tracker}", "--set", "train.checkpoint_every=1"]
    assert run_command("train", config, *chosen, "--out", run) == 0
    with TRACKERS[tracker](run, 2) as track:
        track({"loss": 0.5}, 2)
    (logged,) = recorded.runs.values()
    assert [epoch for epoch, _ in logged] == [0, 1, 2]
    assert {"loss", "learning_rate"} <= set(logged[0][1])
    assert len(recorded.asked) == 2
    assert f"id-of-{tracker}" in recorded.asked[1]
    assert not (run / "tensorboard").exists()


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=1)
    says = "train.tracker: mlflow cannot be imported (import of mlflow halted; None in sys.modules); pip install mlflow"
    assert_refused(capsys, "train", config, "--set", "train.tracker=mlflow", "--out", tmp_path / "run", says=says)


def test_a_server_that_does_not_answer_is_named(tmp_path, monkeypatch, capsys):
    def init(**settings):
        raise ConnectionError("no route to host\nand a trace")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=lambda: SimpleNamespace(project="p")))
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=1)
    says = "train.tracker: wandb does not start a run: no route to host"
    assert_refused(capsys, "train", config, "--set", "train.tracker=wandb", "--out", tmp_path / "run", says=says)
