"""``features``: a hash head on each modality's precomputed features."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.extractors import Extractor, Extractors, absolute_names, check_files
from channelhash.models.hash_model import Branch, HashModel, feature_rows
from channelhash.models.heads import Standardize, hash_head


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


@dataclass(frozen=True)
class FeatureRows:
    """Rows of features ``(n, width)``; raw items go through ``extractor``, if there is one.

    >>> FeatureRows("image", width=2, extractor=None)(np.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """

    modality: str
    width: int
    extractor: Extractor | None

    def __call__(self, items: Any) -> Tensor:
        """Convert items; errors as in `feature_rows`, and `InputError` for raw items without an extractor."""
        if not isinstance(items, np.ndarray):
            if self.extractor is None:
                raise InputError(
                    f"this model was trained on precomputed {self.modality} features and names no extractor: it cannot "
                    f"encode a raw {self.modality}; give features of width {self.width}, or name what makes them, "
                    f"extractors: {{{self.modality}: KIND:WHAT}}, under architecture in its config.json"
                )
            items = self.extractor(items)
        return feature_rows(items, self.modality, self.width)

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, the input of the network."""
        steps = ["rows of the features that the model was trained on, as they are; the network standardises them"]
        name = self.extractor.name if self.extractor else None
        return dict(kind="features", steps=steps, width=self.width, extractor=name)
