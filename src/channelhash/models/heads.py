"""Heads: from features to k outputs; those of the models ``features`` and ``aligned``."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.extractors import Extractor, Extractors, FeatureRows, absolute_names, check_files
from channelhash.models.hash_model import Branch, HashModel


def hash_head(widths: Sequence[int], dropout: float = 0.1) -> nn.Sequential:
    """Make linear layers with tanh and dropout after all but the last, which is followed by nothing (§ 4).

    Xavier-normal weights with gain 5/3 inside, He-normal in the last layer, zero biases.

    Args:
        widths: input width, hidden widths, number of bits; e.g. ``[2048, 4096, 4096, 32]``.
        dropout: probability of dropping a hidden unit.

    >>> [type(layer).__name__ for layer in hash_head([8, 16, 4])]
    ['Linear', 'Tanh', 'Dropout', 'Linear']
    """
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        linear = nn.Linear(n_in, n_out)
        nn.init.zeros_(linear.bias)
        if i < len(widths) - 2:
            nn.init.xavier_normal_(linear.weight, gain=5 / 3)
            layers += [linear, nn.Tanh(), nn.Dropout(dropout)]
        else:
            nn.init.kaiming_normal_(linear.weight)
            layers += [linear]
    return nn.Sequential(*layers)


class Standardize(nn.Module):
    """Subtract the training mean and divide by the training spread, column by column; saved with the weights.

    >>> standardize = Standardize(1)
    >>> standardize.fit([[0.0], [4.0]])
    >>> standardize(torch.tensor([[4.0]])).tolist()
    [[1.0]]
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.mean: Tensor
        self.scale: Tensor
        self.n_features = n_features

    def fit(self, features: Any) -> None:
        """Set mean and standard deviation to those of ``features`` ``(n, d)``; constant columns keep their scale.

        Constant is also what varies by less than a millionth of the widest column: the rounding of the network before.
        """
        values = np.asarray(features, dtype=np.float64)
        spread = values.std(axis=0)
        self.mean.copy_(torch.from_numpy(values.mean(axis=0)))
        self.scale.copy_(torch.from_numpy(np.where(spread > max(1e-12, 1e-6 * spread.max(initial=0)), spread, 1.0)))

    def forward(self, features: Tensor) -> Tensor:
        """Standardize ``(n, d)`` features."""
        return (features.to(self.mean.dtype) - self.mean) / self.scale


class NoisyFeatures(nn.Module):
    """Change standardized features at random while training: Gaussian noise is added, then some columns are dropped.

    >>> NoisyFeatures(noise=0.5, dropout=0.0).eval()(torch.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, noise: float, dropout: float) -> None:
        super().__init__()
        self.noise, self.dropout = noise, dropout

    def forward(self, features: Tensor) -> Tensor:
        """Change ``(n, d)`` features in training mode; the draws are those of PyTorch's generator."""
        if not self.training:
            return features
        noisy = features + self.noise * torch.randn_like(features) if self.noise else features
        return nn.functional.dropout(noisy, self.dropout)


class UnitLength(nn.Module):
    """Divide rows by their Euclidean norm.

    >>> [round(value, 1) for value in UnitLength()(torch.tensor([[3.0, 4.0]]))[0].tolist()]
    [0.6, 0.8]
    """

    def forward(self, features: Tensor) -> Tensor:
        """Scale ``(n, d)`` features."""
        return nn.functional.normalize(features, dim=1)


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

    >>> head = aligned_head(8, 4, one_space=False, hidden=[16], dropout=0.3, noise=0.1, drop_features=0.2)
    >>> [type(layer).__name__ for layer in head]
    ['Identity', 'Standardize', 'NoisyFeatures', 'Both']
    """
    unit = UnitLength() if one_space else nn.Identity()
    noisy = NoisyFeatures(noise, drop_features)
    return nn.Sequential(unit, Standardize(width), noisy, Both(width, n_bits, hidden, dropout))


def create_features_model(
    train: Records,
    n_bits: int,
    hidden: list[int] | None = None,
    dropout: float = 0.1,
    standardize: bool = True,
    extractors: Extractors | None = None,
) -> HashModel:
    """Create an untrained hash head for each modality of ``train``.

    Args:
        train: training records whose items are feature arrays ``(n, d)``.
        n_bits: code length k.
        hidden: widths of the hidden layers; ``[1024, 1024]`` if None.
        dropout: dropout after each hidden layer.
        standardize: scale every feature to mean 0 and spread 1 over the training rows.
        extractors: modality -> ``KIND:WHAT``, the extractor of its features, so that new raw items can be encoded
            (`channelhash.models.extractors`).

    Raises:
        InputError: the records are images and texts, not features; or an extractor's name is wrong.

    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> train = Records(tuple("abcdefghij"), {"image": features}, np.ones((10, 1), dtype=bool), ("any",))
    >>> create_features_model(train, n_bits=16, hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    if n_bits < 1:
        raise InputError(f"model.n_bits is {n_bits}: a code has at least 1 bit")
    widths = {}
    for modality, values in train.items.items():
        if not isinstance(values, np.ndarray):
            raise InputError(f"model.name: 'features' needs precomputed {modality} features; use data.kind 'features'")
        widths[modality] = int(values.shape[1])
    architecture: dict[str, Any] = dict(
        n_bits=n_bits, widths=widths, hidden=[1024, 1024] if hidden is None else hidden, dropout=dropout
    )

    if extractors:
        architecture["extractors"] = absolute_names(extractors)
        check_files(architecture["extractors"])
    model = HashModel("features", n_bits, architecture, build_features_branches(**architecture))
    if standardize:
        for modality, branch in model.branches.items():
            branch.encoder.fit(train.items[modality])  # type: ignore[union-attr, operator]
    return model


def build_features_branches(
    n_bits: int,
    widths: dict[str, int],
    hidden: list[int],
    dropout: float,
    extractors: dict[str, str] | None = None,
) -> dict[str, Branch]:
    """Build the branches of a feature model from its complete architecture; ``widths`` maps a modality to its d."""
    named = {}
    for modality, name in (extractors or {}).items():
        if modality not in widths:
            raise InputError(f"model.extractors.{modality}: this model has no {modality} features")
        named[modality] = Extractor(name, modality, widths[modality])
    branches = {}
    for modality, width in widths.items():
        head = hash_head([width, *hidden, n_bits], dropout)
        branches[modality] = Branch(FeatureRows(modality, width, named.get(modality)), Standardize(width), head)
    return branches
