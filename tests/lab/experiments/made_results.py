"""Results in memory with known figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.lab.experiments.results import Result, Status

TASKS = ("image->text", "text->image", "image->image", "text->text")
CROSS_MODAL = TASKS[:2]


def made_result(
    method: str,
    seed: int,
    shares: Mapping[str, float] | float = 0.5,
    n_bits: int = 32,
    status: Status = "finished",
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
        return Result(name, Path(name), method, settings, status, "out of memory" if status == "failed" else "")
    tasks = dict.fromkeys(CROSS_MODAL, shares) if isinstance(shares, float) else shares
    figures = {
        task: {"map_tie_aware": share, "roc_auc_micro": roc_auc, "chance": chance} for task, share in tasks.items()
    }
    epochs = {checkpoint: dict.fromkeys(views, figures) for checkpoint in checkpoints}
    aps = {
        (checkpoint, view, task): np.asarray(values, dtype=float)
        for checkpoint in checkpoints
        for view in views
        for task, values in (query_ap or {}).items()
    }
    return Result(name, Path(name), method, settings, "finished", "", epochs, aps)
