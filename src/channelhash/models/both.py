"""``both``: a part that learns labels beside a part that learns pairs, on each modality's precomputed features.

A code is bits of the labels, then bits of the pairs: its Hamming distance is the sum of the two parts' distances.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.extractors import Extractors
from channelhash.models.feature_heads import Share, build_features_branches, create_features_model
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.linear_hashing import Array, itq_rotation

#: Labels are learned from nearly clean features, which remembers the training rows; pairs from very noisy ones.
_OF_LABELS: dict[str, Any] = {"dropout": 0.5, "activation": "gelu", "noise": 0.1}
_OF_PAIRS: dict[str, Any] = {"dropout": 0.5, "activation": "gelu", "noise": 0.3, "drop_features": 0.2}
#: Fewest outputs of a part; its bits are rotated leading directions of them.
_OUTPUTS = 128


def part_outputs(n_bits: int) -> int:
    """Return w, the outputs of each part of a model for codes of ``n_bits`` bits.

    >>> part_outputs(64), part_outputs(256)
    (128, 256)
    """
    return max(n_bits, _OUTPUTS)


class TwoParts(nn.Module):
    """Heads of labels and of pairs; in training their outputs side by side, else the k outputs whose signs are bits.

    Args:
        labels: features to ``(n, w)``, w as in `part_outputs`.
        pairs: likewise.
        n_bits: code length k.
        label_bits: bits of the k that are the labels'.

    >>> head = TwoParts(nn.Linear(3, 128), nn.Linear(3, 128), n_bits=8, label_bits=5)
    >>> head(torch.ones(2, 3)).shape, head.eval()(torch.ones(2, 3)).shape
    (torch.Size([2, 256]), torch.Size([2, 8]))
    """

    def __init__(self, labels: nn.Module, pairs: nn.Module, n_bits: int, label_bits: int) -> None:
        super().__init__()
        self.labels, self.pairs, self.n_bits = labels, pairs, n_bits
        self.share_bits(label_bits)

    def share_bits(self, label_bits: int) -> None:
        """Give ``label_bits`` bits to the labels and the rest to the pairs; how they are computed is to be fitted."""
        sizes = (label_bits, self.n_bits - label_bits)
        self.sizes = {part: n_bits for part, n_bits in enumerate(sizes) if n_bits}
        layers = (nn.Linear(part_outputs(self.n_bits), n_bits, bias=False) for n_bits in self.sizes.values())
        self.bits = nn.ModuleList(layers).requires_grad_(False)

    def parts(self, features: Tensor) -> list[Tensor]:
        """Return what bits are computed from: directions ``(n, w)`` of the labels and of the pairs."""
        return [unit_rows(self.labels(features).tanh()), unit_rows(self.pairs(features))]

    def forward(self, features: Tensor) -> Tensor:
        """Compute ``(n, 2 w)`` of ``(n, d)`` features in training mode, else ``(n, k)``."""
        if self.training:
            return torch.cat([self.labels(features), self.pairs(features)], dim=1)
        parts = self.parts(features)
        return torch.cat([layer(parts[part]) for part, layer in zip(self.sizes, self.bits, strict=True)], dim=1)


def create_both_model(
    train: Records,
    n_bits: int,
    hidden: list[int] | None = None,
    label_share: Share = 0.6,
    extractors: Extractors | None = None,
) -> HashModel:
    """Create an untrained model; train it with a loss of labels and the term ``pairs`` beside it.

    Args:
        train: training records whose items are feature arrays ``(n, d)`` of two modalities.
        n_bits: code length k.
        hidden: widths of the hidden layers of both parts; ``[1024]`` if None.
        label_share: share of the bits that are the labels'.
        extractors: as in `feature_heads.create_features_model`.

    Raises:
        InputError: there is one modality, or as `feature_heads.create_features_model`.

    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> items = {"image": features, "text": features}
    >>> train = Records(tuple("abcdefghij"), items, np.ones((10, 1), dtype=bool), ("any",))
    >>> create_both_model(train, n_bits=16, hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    if len(train.items) < 2:
        raise InputError(f"model.name: 'both' learns from pairs, and there are only {next(iter(train.items))}s")
    hidden = [1024] if hidden is None else hidden
    plain = create_features_model(train, n_bits, hidden, extractors=extractors)
    architecture: dict[str, Any] = {"n_bits": n_bits, "hidden": hidden, "label_share": label_share}
    architecture |= {key: plain.architecture[key] for key in ("widths", "extractors") if key in plain.architecture}
    model = HashModel("both", n_bits, architecture, build_both_branches(**architecture))
    for modality, branch in model.branches.items():
        branch.encoder.load_state_dict(plain.branch(modality).encoder.state_dict())  # type: ignore[union-attr]
    return model


def build_both_branches(
    n_bits: int,
    widths: dict[str, int],
    hidden: list[int],
    label_share: float,
    extractors: dict[str, str] | None = None,
) -> dict[str, Branch]:
    """Build the branches from the complete architecture; see `create_both_model`."""
    outputs = part_outputs(n_bits)
    of_labels = build_features_branches(outputs, widths, hidden, extractors=extractors, **_OF_LABELS)
    of_pairs = build_features_branches(outputs, widths, hidden, **_OF_PAIRS)
    branches = {}
    for modality, branch in of_labels.items():
        head = TwoParts(branch.head, of_pairs[modality].head, n_bits, round(label_share * n_bits))
        branches[modality] = Branch(branch.prepare, branch.encoder, head)
    return branches


@torch.no_grad()
def fit_bits(model: HashModel, inputs: dict[str, Tensor], label_bits: int | None = None) -> None:
    """Fit how the parts of a ``both`` model become bits.

    Outputs of the training rows, both modalities together, are projected to as many leading directions as there are
    bits, and rotated by ITQ; the labels' outputs pass a tanh first, and rows have length 1. They are not centred: what
    is learned are angles about 0, and centring costs the labels' bits 1.7 points of mAP.

    Args:
        model: trained so far; as it was in training mode or not, so it stays.
        inputs: modality -> prepared inputs of the training rows.
        label_bits: bits of the labels from now on; as many as they have if None.

    Time O(n w² + n k²) for n rows.
    """
    was_training, device = model.training, model.device
    model.eval()
    heads = {modality: _head(model, modality) for modality in inputs}
    encoded = {modality: model.branch(modality).encoder(rows.to(device)) for modality, rows in inputs.items()}
    outputs = [heads[modality].parts(features) for modality, features in encoded.items()]
    for head in heads.values():
        if label_bits is not None:
            head.share_bits(label_bits)
    for number, (part, n_bits) in enumerate(next(iter(heads.values())).sizes.items()):
        values = torch.cat([parts[part] for parts in outputs]).double().cpu().numpy()
        weights = torch.from_numpy(rotated_directions(values, n_bits).T)
        for head in heads.values():
            head.bits[number].load_state_dict({"weight": weights})
    model.to(device).train(was_training)


def _head(model: HashModel, modality: str) -> TwoParts:
    head: TwoParts = model.branch(modality).head  # type: ignore[assignment]  # only `both` models come here
    return head


def rotated_directions(values: Array, n_bits: int) -> Array:
    """Return the ``(w, n_bits)`` leading directions of rows ``(n, w)`` about 0, rotated by `itq_rotation`.

    >>> abs(rotated_directions(np.array([[3.0, 0.0], [-3.0, 0.0]]), 1)).round(3).tolist()
    [[1.0], [0.0]]
    """
    _, vectors = np.linalg.eigh(values.T @ values)  # eigenvalues rise
    leading = vectors[:, ::-1][:, :n_bits]
    rotated: Array = leading @ itq_rotation(values @ leading, 0, "both")
    return rotated
