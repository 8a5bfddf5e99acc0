"""The hash MLP: from a backbone's features to k real-valued outputs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

Activation = Literal["tanh", "gelu"]


def hash_head(widths: Sequence[int], dropout: float = 0.1, activation: Activation = "tanh") -> nn.Sequential:
    """Make linear layers with tanh and dropout after all but the last, which is followed by nothing (§ 4).

    Xavier-normal weights with gain 5/3 inside, He-normal in the last layer, zero biases.

    Args:
        widths: input width, hidden widths, number of bits; e.g. ``[2048, 4096, 4096, 32]``.
        dropout: probability of dropping a hidden unit.
        activation: after the hidden layers; the paper's is tanh.

    >>> [type(layer).__name__ for layer in hash_head([8, 16, 4])]
    ['Linear', 'Tanh', 'Dropout', 'Linear']
    """
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        linear = nn.Linear(n_in, n_out)
        last = i == len(widths) - 2
        if last:
            nn.init.kaiming_normal_(linear.weight)
        else:
            nn.init.xavier_normal_(linear.weight, gain=5 / 3)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.GELU() if activation == "gelu" else nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)
