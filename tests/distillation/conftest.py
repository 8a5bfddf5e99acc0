import json

import numpy as np
import pytest

from picture_runs import picture_config, write_pictures
from small_runs import feature_config, run_command, write_features


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """A finished run on features, which no test changes."""
    folder = tmp_path_factory.mktemp("teacher")
    config = feature_config(folder / "c.yaml", write_features(folder / "f.npz"), validate_every=0)
    assert run_command("train", config, "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """(a finished run on features of pictures and their texts, the table with the pictures themselves)."""
    folder = tmp_path_factory.mktemp("pictures")
    items, random = write_pictures(folder), np.random.default_rng(0)
    labels = np.eye(3, dtype=bool)[np.arange(60) % 3]
    arrays = {name: labels + 0.1 * random.normal(size=labels.shape) for name in ("image", "text")}
    ids = np.array([f"item{i:03d}" for i in range(60)])
    np.savez(folder / "f.npz", labels=labels, id=ids, label_names=np.array(["red", "green", "blue"]), **arrays)
    config = picture_config(folder / "c.yaml", items, {"name": "features", "hidden": [16]}, epochs=20)
    sections = json.loads(config.read_text())
    sections["data"] |= {"kind": "features", "path": str(folder / "f.npz")}
    config.write_text(json.dumps(sections))
    assert run_command("train", config, "--out", folder / "run") == 0
    return folder / "run", items
