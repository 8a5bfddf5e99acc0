"""QSMI of DNpH: quadratic mutual information of codes on a sphere and labels (Qin et al., IEEE TMM
2024).
"""

import torch
from torch import Tensor

from channelhash.channels import unit_rows
from channelhash.losses.multimodal import ItemLoss, StackedItems


class QSMILoss(ItemLoss):
    """From "Deep Neighborhood-preserving Hashing with Quadratic Spherical Mutual Information for
    Cross-modal Retrieval" (DNpH, IEEE TMM 2024), as its released code clamps it by squares::

        L = mean over a ≤ b of modalities and over pairs ij of (s_ij y_ij − 1)² + y_ij² / M
        y_ij = (1 + cos(tanh z_ai, tanh z_bj)) / 2,   1/M the share of similar pairs in the batch

    The first summand draws similar pairs together, the second all pairs apart. There are no
    proxies, no margin and no weight. The authors add up pairs and modalities, where this is a mean.

    Several labels: s_ij = 1 where two samples share at least one, else 0.

    Args:
        n_bits: code length k.

    >>> codes = 9 * torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])
    >>> round(QSMILoss(n_bits=4)({"text": codes}, torch.eye(2)).item(), 4)  # (½ + ½ + 1 + 1) / 4
    0.75
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        directions = unit_rows(items.codes.tanh())
        near = (1 + directions @ directions.T) / 2
        similar = (items.similarity() > 0).to(near)
        errors = (similar * near - 1).square() + similar.mean() * near.square()
        m = items.n_modalities
        return items.sum_of_pairs(errors, torch.ones_like(errors, dtype=torch.bool)) / (
            m * (m + 1) / 2
        )
