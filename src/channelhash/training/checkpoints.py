"""Checkpoints to resume from: everything the next epoch needs, in one file that is whole or not there."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from channelhash.errors import InputError
from channelhash.files import atomic_path


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, epochs_done: int, best: float | None) -> None:
    """Write weights, optimiser state, the number of finished epochs and the best validation figure so far.

    No generator state: every draw is a function of (seed, epoch), see `channelhash.seeds`.
    """
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epochs_done": epochs_done,
        "best": best,
    }
    with atomic_path(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> tuple[int, float | None]:
    """Put a checkpoint back into ``model`` and ``optimizer``.

    Returns:
        (finished epochs, best validation figure so far).

    Raises:
        InputError: the file is truncated, or belongs to another model.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["epochs_done"]), state["best"]
    except Exception as error:  # torch, pickle and zip each have their own types for a damaged file
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: damaged or of another model ({first}); remove it to train from the start") from None
