"""Average the weights of a model over the steps of its training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class Average(nn.Module):
    """The exponential moving average of trained weights, without the bias of its start (as in
    Adam)::

        a_t = Σ_{s ≤ t} d^(t − s) w_s / Σ_{s ≤ t} d^(t − s)

    Buffers, such as running statistics, are not averaged. Memory: one more copy of the trained
    weights.

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
        super().__init__()
        self.decay = decay
        self.steps = nn.Buffer(torch.tensor(0))
        self.trained = [
            parameter.data for parameter in model.parameters() if parameter.requires_grad
        ]
        self.values = nn.ParameterList(
            nn.Parameter(values.clone(), False) for values in self.trained
        )

    def update(self) -> None:
        """Take in the weights as they are after a step."""
        self.steps.add_(1)
        share = (1 - self.decay) / (1 - self.decay ** self.steps.item())
        torch._foreach_lerp_(list(self.values), self.trained, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model its average for a while."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """Give the model its average, and keep the model's weights in its place."""
        for values, trained in zip(self.values, self.trained, strict=True):
            copy = trained.clone()
            trained.copy_(values)
            values.copy_(copy)
