"""``features``: a hash head on each modality's precomputed features."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.hash_head import hash_head
from channelhash.models.hash_model import Branch, HashModel


class Standardize(nn.Module):
    """Subtracts the training mean and divides by the training spread, column by column; saved with the weights."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.mean: Tensor
        self.scale: Tensor
        self.n_features = n_features

    def fit(self, features: Any) -> None:
        """Take mean and standard deviation of ``features`` ``(n, d)``; constant columns keep their scale."""
        values = np.asarray(features, dtype=np.float64)
        spread = values.std(axis=0)
        self.mean.copy_(torch.from_numpy(values.mean(axis=0)))
        self.scale.copy_(torch.from_numpy(np.where(spread > 1e-12, spread, 1.0)))

    def forward(self, features: Tensor) -> Tensor:
        """``(n, d)`` to ``(n, d)``."""
        return (features.to(self.mean.dtype) - self.mean) / self.scale


def create_features_model(
    train: Records,
    n_bits: int,
    hidden: list[int] | None = None,
    dropout: float = 0.1,
    standardize: bool = True,
) -> HashModel:
    """An untrained hash head for each modality of ``train``.

    Args:
        train: training records whose items are feature arrays ``(n, d)``.
        n_bits: code length k.
        hidden: widths of the hidden layers; ``[1024, 1024]`` if None.
        dropout: dropout after each hidden layer.
        standardize: bring every feature to mean 0 and spread 1 over the training rows.

    Raises:
        InputError: the records are pictures and texts, not features.
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
    model = HashModel("features", n_bits, architecture, build_features_branches(**architecture))
    if standardize:
        for modality, branch in model.branches.items():
            branch.encoder.fit(train.items[modality])  # type: ignore[union-attr, operator]
    return model


def build_features_branches(
    n_bits: int, widths: dict[str, int], hidden: list[int], dropout: float
) -> dict[str, Branch]:
    """The branches of a feature model from its complete architecture; ``widths`` maps a modality to its d."""
    return {
        modality: Branch(
            partial(_feature_rows, modality=modality, width=width),
            Standardize(width),
            hash_head([width, *hidden, n_bits], dropout),
        )
        for modality, width in widths.items()
    }


def _feature_rows(items: Any, modality: str, width: int) -> Tensor:
    if not isinstance(items, np.ndarray):
        raise InputError(
            f"this model was trained on precomputed {modality} features and names no extractor: "
            f"it cannot encode a raw {modality}; give features of width {width}"
        )
    if items.ndim != 2 or items.shape[1] != width:
        raise InputError(f"{modality} features are (n, {width}) for this model, not {items.shape}")
    return torch.from_numpy(np.ascontiguousarray(items, dtype=np.float32))
