"""The same on a GPU: bfloat16, the cache, a bank, and a compiled model."""

import json

import numpy as np
import pytest

from picture_runs import clip_model, picture_config, resnet_model, write_pictures
from small_runs import run_command

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["auto", "float32"])
@pytest.mark.parametrize("more", [{}, {"augment": "progressive"}, {"features": "online"}, {"compile": True}])
def test_both_architectures_train_on_a_gpu(tmp_path, precision, more):
    items = write_pictures(tmp_path)
    for section in (clip_model(tmp_path), resnet_model()):
        run = tmp_path / str(section["name"])
        config = picture_config(tmp_path / "c.yaml", items, section, device="cuda", precision=precision, **more)
        assert run_command("train", config, "--out", run) == 0
        assert run_command("evaluate", run) == 0
        tasks = json.loads((run / "metrics.json").read_text())["tasks"]
        assert all(np.isfinite(task["map_tie_aware"]) for task in tasks.values())


def test_a_gpu_and_a_cpu_train_nearly_the_same(tmp_path):
    items = write_pictures(tmp_path)
    section = clip_model(tmp_path, dropout=0.0)
    losses = {}
    for device in ("cpu", "cuda"):
        config = picture_config(tmp_path / "c.yaml", items, section, device=device, precision="float32")
        assert run_command("train", config, "--out", tmp_path / device) == 0
        log = (tmp_path / device / "log.jsonl").read_text().splitlines()
        losses[device] = [json.loads(line)["loss"] for line in log]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)
