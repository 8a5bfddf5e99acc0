"""Save and load checkpoints: everything that the next epoch needs, in one file that is never half written."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from channelhash.errors import InputError
from channelhash.models.backbones import load_weights
from channelhash.models.hash_model import HashModel
from channelhash.training.average import Average
from channelhash.utils.files import atomic_path


def save_checkpoint(
    path: Path,
    model: HashModel,
    loss: nn.Module,
    optimizer: Optimizer,
    epochs_done: int,
    average: Average | None = None,
) -> None:
    """Write what is trained (in the model and in the loss), optimiser state, the number of finished epochs, and the
    average of the weights, if any.

    A frozen backbone is named with the hash of its weights, not stored. There is no generator state: every draw is a
    function of (seed, epoch), see `channelhash.utils.seeds`.
    """
    state = {
        "model": model.trained_state(),
        "backbones": model.backbones(),
        "loss": loss.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epochs_done": epochs_done,
    }
    if average:
        state["average"] = average.state_dict()
    with atomic_path(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(
    path: Path, model: HashModel, loss: nn.Module, optimizer: Optimizer, average: Average | None = None
) -> int:
    """Load a checkpoint into ``model``, ``loss``, ``optimizer`` and ``average``; return the number of finished epochs.

    Raises:
        InputError: the file is truncated, or belongs to another model or backbone.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if state["backbones"] != model.backbones():
            raise ValueError(f"made on {state['backbones']}")
        load_weights(model.trained_state(), state["model"], "it")
        loss.load_state_dict(state["loss"])
        optimizer.load_state_dict(state["optimizer"])
        if average:
            average.load_state_dict(state["average"])
        return int(state["epochs_done"])
    except Exception as error:  # torch, pickle and zip each have their own types for a damaged file
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: damaged or of another model ({first}); remove it to train from the start") from None
