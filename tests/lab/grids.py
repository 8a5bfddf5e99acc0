"""Grids of registered experiments, and results in memory with known figures."""

import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.lab.experiments.experiment import base_configuration, load_experiment, make_grid
from channelhash.lab.experiments.results import Result, _Status
from channelhash.lab.experiments.runner import Grid
from channelhash.lab.experiments.text_tables import to_markdown
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools" / "site"))

from raw_scores import read_runs


def named_grid(
    name: str, base: str | Path, folder: Path, overrides: Sequence[str] = (), **more: Any
) -> Grid:
    """The grid of an experiment by its name; ``more`` are arguments of `make_grid`."""
    return make_grid(
        load_experiment(name), base_configuration(base, folder, overrides=overrides), **more
    )


def assert_made_again(name: str, folder: Path) -> None:
    """All tables of a grid are made again from its raw scores, but for tests over single
    queries.
    """
    study, tables = load_experiment(name), []
    for file in ("runs.csv", "trials.csv"):
        for trials, results in read_runs(folder / file).items() if (folder / file).exists() else ():
            tables += study.trials.get(trials, study.tables)(results)
    written = {path.stem: path.read_text() for path in (folder / "tables").glob("*.md")}
    compared = {name: text for name, text in written.items() if not name.startswith("significance")}
    assert {table.name: to_markdown(table) for table in tables} == compared


TASKS = ("image->text", "text->image", "image->image", "text->text")
CROSS_MODAL = TASKS[:2]


def made_result(
    method: str,
    seed: int,
    shares: Mapping[str, float] | float = 0.5,
    n_bits: int = 32,
    status: _Status = "finished",
    loss: Mapping[str, Any] | None = None,
    model: str = "tdsrdh",
    kind: str = "mirflickr25k",
    roc_auc: float | None = 0.7,
    views: Sequence[str] = ("test",),
    checkpoints: Sequence[str] = ("last",),
    query_ap: Mapping[str, np.ndarray] | None = None,
    chance: float = 0.3,
) -> Result:
    """One run; ``shares`` is the tie-aware mAP of each task, or of both cross-modal ones."""
    words = {"word_vectors": "GoogleNews-vectors-negative300.bin"} if model == "tdsrdh" else {}
    settings = {
        "data": {"kind": kind, "seed": 0},
        "model": {"name": model, "n_bits": n_bits, **words},
        "loss": dict(loss or {"name": "dsch", "gamma_w": 8.0, "kappa_q": 0.01}),
        "train": {"seed": seed, "epochs": 30},
    }
    name = f"{method}-k{n_bits}-seed{seed}"
    if status != "finished":
        return Result(
            name,
            Path(name),
            method,
            settings,
            status,
            "out of memory" if status == "failed" else "",
        )
    tasks = dict.fromkeys(CROSS_MODAL, shares) if isinstance(shares, float) else shares
    beside = {"roc_auc_micro": roc_auc, "chance": chance}
    figures = {task: {"map_tie_aware": share, **beside} for task, share in tasks.items()}
    epochs = {checkpoint: dict.fromkeys(views, figures) for checkpoint in checkpoints}
    places = product(checkpoints, views, query_ap or {})
    aps = {place: np.asarray((query_ap or {})[place[2]], dtype=float) for place in places}
    return Result(name, Path(name), method, settings, "finished", "", epochs, aps)
