"""Heads that bring the sides of a frozen encoder into one space, and those that ship with the package for ``photo``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from channelhash.errors import InputError
from channelhash.models.backbones import load_weights, read_weights
from channelhash.models.cliphash import UnitLength
from channelhash.models.description import read_description
from channelhash.models.feature_heads import NoisyFeatures, Standardize
from channelhash.models.saved_checksums import check_weights

#: A saved model ``aligned`` on ``photo-backbones``; its README.md says how it was learned.
PHOTO_HEADS = Path(__file__).with_name("photo_heads")


class Both(nn.Module):
    """The sum of a linear map and an MLP with GELU and dropout: ``(n, width)`` to ``(n, n_bits)``.

    >>> Both(8, 4, hidden=[16], dropout=0.3)(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, width: int, n_bits: int, hidden: list[int], dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in zip([width, *hidden], hidden, strict=False):
            layers += [nn.Linear(n_in, n_out), nn.GELU(), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else width, n_bits))
        self.linear = nn.Linear(width, n_bits)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the sum."""
        outputs: Tensor = self.linear(features) + self.mlp(features)
        return outputs

    @torch.no_grad()
    def rotate(self, rotation: Tensor) -> None:
        """Multiply all outputs from now on by ``rotation`` ``(n_bits, n_bits)``."""
        last: Any = self.mlp[-1]
        for layer in (self.linear, last):
            layer.weight.copy_(rotation.T @ layer.weight)
            layer.bias.copy_(layer.bias @ rotation)


def aligned_head(
    width: int, n_bits: int, one_space: bool, hidden: list[int], dropout: float, noise: float, drop_features: float
) -> nn.Sequential:
    """Make an untrained head from a side's features to k outputs.

    Args:
        width: number of features.
        n_bits: code length k.
        one_space: only the features' directions count, as of encoders whose sides share a space.
        hidden: widths of the hidden layers.
        dropout: dropout after each hidden layer.
        noise: spread of Gaussian noise on the standardized features while training.
        drop_features: probability of dropping a feature while training.

    >>> head = aligned_head(8, 4, one_space=False, hidden=[16], dropout=0.3, noise=0.1, drop_features=0.2)
    >>> [type(layer).__name__ for layer in head]
    ['Identity', 'Standardize', 'NoisyFeatures', 'Both']
    """
    unit = UnitLength() if one_space else nn.Identity()
    noisy = NoisyFeatures(noise, drop_features)
    return nn.Sequential(unit, Standardize(width), noisy, Both(width, n_bits, hidden, dropout))


def read_heads(folder: Path, backbones: Mapping[str, nn.Module]) -> dict[str, nn.Sequential]:
    """Read the heads of a saved model ``aligned``, which need not be of this machine: modality -> head.

    Args:
        folder: the saved model.
        backbones: modality -> the `Frozen` network that gives the features of its head.

    Raises:
        InputError: the heads were learned on other weights, or a file is missing or damaged.
    """
    description = read_description(folder / "config.json")
    form: dict[str, Any] = dict(description["architecture"])
    widths, n_bits = form.pop("widths"), form.pop("n_bits")
    del form["encoder"], form["nested"]
    for modality, identity in description["backbones"].items():
        given: Any = backbones[modality]
        if given.weights_hash != identity["weights"]:
            raise InputError(f"{folder}: heads of {identity['name']}, not of {given.name}; reinstall")
    heads = {name: aligned_head(width, n_bits, False, **form).eval() for name, width in widths.items()}
    file = folder / "model.safetensors"
    weights = read_weights(file)
    check_weights(file, weights)
    parts = {f"branches.{name}.head.{key}": value for name in heads for key, value in heads[name].state_dict().items()}
    load_weights(parts, weights, str(file))
    return heads
