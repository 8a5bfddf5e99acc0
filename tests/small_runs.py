"""Small real data and configurations that several tests use."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from channelhash.cli.main import main
from channelhash.utils.progress import Progress


def write_features(path: Path, n: int = 240, seed: int = 0) -> Path:
    """Two modalities whose features carry the labels plus noise, so that training has something to
    learn.
    """
    random = np.random.default_rng(seed)
    labels = random.random((n, 6)) < 0.25
    labels[~labels.any(axis=1), 0] = True
    arrays = {
        name: (
            labels @ random.normal(size=(6, width)) + 0.5 * random.normal(size=(n, width))
        ).astype(np.float32)
        for name, width in (("image", 20), ("text", 12))
    }
    np.savez(path, labels=labels, id=np.array([f"item{i:03d}" for i in range(n)]), **arrays)
    return path


def write_pairs(
    path: Path, images: int, widths: tuple[int, int], noise: tuple[float, float]
) -> Path:
    """Features of images and of two texts each, which know the image, and no labels."""
    random = np.random.default_rng(0)
    seen, rows = random.normal(size=(images, 8)), np.arange(2 * images)
    image, text = (
        known @ random.normal(size=(8, width)) + scale * random.normal(size=(len(known), width))
        for known, width, scale in zip((seen, seen[rows // 2]), widths, noise, strict=True)
    )
    arrays = {"image": image[rows // 2].astype(np.float32), "text": text.astype(np.float32)}
    pictures = np.array([f"{row // 2}.jpg" for row in rows])
    np.savez(path, id=np.array([f"text{row:03d}" for row in rows]), pictures=pictures, **arrays)
    return path


def feature_config(path: Path, features: Path, loss: str = "dsch", **train: object) -> Path:
    settings = {
        "epochs": 6,
        "batch_size": 32,
        "learning_rate": 1e-3,
        "validate_every": 2,
        "checkpoint_every": 1,
    }
    sections = {
        "data": {"kind": "features", "path": str(features), "queries": 40, "train": 120},
        "model": {"name": "features", "n_bits": 12, "hidden": [32]},
        "loss": {"name": loss},
        "train": settings | train,
    }
    path.write_text(json.dumps(sections))
    return path


def grid_base(folder: Path) -> Path:
    """A base configuration of a grid's, whose runs take a second."""
    sections = {
        "data": {
            "kind": "features",
            "path": str(write_features(folder / "f.npz")),
            "queries": 40,
            "train": 120,
        },
        "model": {"name": "features", "hidden": [16]},
        "train": {
            "epochs": 1,
            "batch_size": 60,
            "learning_rate": 1e-3,
            "validate_every": 1,
            "checkpoint_every": 1,
        },
    }
    (folder / "base.yaml").write_text(yaml.safe_dump(sections))
    return folder / "base.yaml"


def interrupt_at(step: int, error: type[BaseException] = KeyboardInterrupt) -> Progress:
    """A job's progress that ends the job once so many steps are done."""

    def advance(done: int, total: int) -> None:
        if done == step:
            raise error

    return advance


def run_command(*arguments: object) -> int:
    """The command line in this process; returns its exit status."""
    before, sys.argv = sys.argv, ["channelhash", *[str(argument) for argument in arguments]]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = before
    return 0


def train_run(config: Path, *options: object) -> Path:
    """Train as a configuration says; return the run's folder, ``run`` beside the file."""
    folder = config.parent / "run"
    assert run_command("train", config, "--out", folder, *options) == 0
    return folder


def run_text(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that succeeds; return what it prints."""
    capsys.readouterr()
    assert run_command(*words) == 0
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    """Run a command that succeeds; return the object that ``--json`` prints."""
    return json.loads(run_text(capsys, *words, "--json"))


def assert_refused(
    capsys: pytest.CaptureFixture[str], *arguments: object, says: str, status: int = 2
) -> str:
    """The command ends with ``status`` and one line on stderr that contains ``says``; no traceback.

    Returns all of stderr.
    """
    code = run_command(*arguments)
    error = capsys.readouterr().err
    assert code == status, error
    last = error.strip().splitlines()[-1]
    assert last.startswith("error: "), error
    assert says in last
    assert "Traceback" not in error, error
    return error
