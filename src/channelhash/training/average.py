"""The average of a model's weights over the steps of its training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


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
