"""What a training keeps beside its model: the average of the weights, and checkpoints that are never half written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from channelhash.errors import InputError
from channelhash.models.backbones import load_weights
from channelhash.models.hash_model import HashModel
from channelhash.utils.files import atomic_path


class Average:
    """The exponential moving average of trained weights, without the bias of its start (as in Adam)::

        a_t = Σ_{s ≤ t} d^(t − s) w_s / Σ_{s ≤ t} d^(t − s)

    Buffers, such as running statistics, are not averaged. Memory: one more copy of the trained weights.

    Args:
        model: whose trained parameters are averaged, on their device.
        decay: 0 < d < 1; about the last 1 / (1 − d) steps count.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = Average(layer, decay=0.5)
    >>> for weight in (1.0, 4.0):
    ...     _ = nn.init.constant_(layer.weight, weight)
    ...     average.update()
    >>> with average.in_place():
    ...     layer.weight.item()
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.trained = [parameter.data for parameter in model.parameters() if parameter.requires_grad]
        self.values = [values.clone() for values in self.trained]

    def update(self) -> None:
        """Take in the weights as they are after a step."""
        self.steps += 1
        share = (1 - self.decay) / (1 - self.decay**self.steps)
        torch._foreach_lerp_(self.values, self.trained, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model its average for a while."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def give(self) -> None:
        """Give the model its average for good."""
        for values, trained in zip(self.values, self.trained, strict=True):
            trained.copy_(values)

    def _swap(self) -> None:
        for values, trained in zip(self.values, self.trained, strict=True):
            kept = trained.clone()
            trained.copy_(values)
            values.copy_(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps and the averages, without copying them."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what `state_dict` returned; ValueError for weights of another model."""
        saved: list[Tensor] = state["values"]
        if [values.shape for values in saved] != [values.shape for values in self.values]:
            raise ValueError("its average is of other weights")
        self.steps = int(state["steps"])
        for values, kept in zip(self.values, saved, strict=True):
            values.copy_(kept)


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
