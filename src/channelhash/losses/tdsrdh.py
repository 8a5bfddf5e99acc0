"""The TDSRDH loss (Zhou et al. 2023) in the normalised form of the paper: pairwise, quantisation
and triplet term.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_cosines
from channelhash.losses.base import Batch, HashLoss, OutputsByModality, sign


class TDSRDHLoss(HashLoss):
    """Loss of one anchor modality against the others, which are detached (``protocol.md`` § 5).

    pairwise:      Σ_ij (log(1 + e^γ_ij) − S̃_ij γ_ij) / n², γ = ½ · anchor · otherᵀ, S̃_ij = 1 if i
    and j share a label quantisation:  α · ‖anchor − sign(anchor + other)‖²_F / n triplet:       β ·
    Σ_{j ≠ i} max(0, ε + ‖a_i − o_i‖² − ‖a_i − o_j‖²) / n²

    Streams are trained in turn: one epoch pass with ``anchor="image"``, one with ``anchor="text"``.
    Without an anchor the losses of all anchors are summed. With more than two modalities the
    pairwise and triplet terms are summed over the others; a single one stands against a detached
    copy of itself.

    Args:
        alpha: weight of the quantisation term.
        beta: weight of the triplet term.
        epsilon: margin ε of the triplets, in squared distance.

    >>> outputs = {"image": torch.tensor([[1.0, 1]]), "text": torch.tensor([[0.5, -1]])}
    >>> labels = torch.ones(1, 1)
    >>> image = TDSRDHLoss()(outputs, labels, anchor="image")
    >>> text = TDSRDHLoss()(outputs, labels, anchor="text")
    >>> TDSRDHLoss()(outputs, labels).item() == (image + text).item()
    True
    """

    trains_anchor = True

    def __init__(self, alpha: float = 0.05, beta: float = 1.0, epsilon: float = 0.3) -> None:
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.epsilon = epsilon

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of the batch's anchor, or the sum over all of them."""
        related = (label_cosines(batch.labels) > 0).to(batch.codes)
        anchors = batch.outputs if batch.anchor is None else [batch.anchor]
        return torch.stack(
            [self._one_anchor(batch.outputs, related, name) for name in anchors]
        ).sum()

    def _one_anchor(self, outputs: OutputsByModality, related: Tensor, name: str) -> Tensor:
        anchor = outputs[name]
        n = len(anchor)
        others = [codes.detach() for modality, codes in outputs.items() if modality != name] or [
            anchor.detach()
        ]
        target = sign(anchor + torch.stack(others).sum(dim=0))
        loss = self.alpha * (anchor - target).square().sum() / n
        for other in others:
            inner = anchor @ other.T
            gamma = 0.5 * inner
            # log(1 + e^γ) as softplus: e^γ overflows from γ = 89 on.
            loss = loss + (F.softplus(gamma) - related * gamma).sum() / n**2
            squared = anchor.square().sum(1, keepdim=True) + other.square().sum(1) - 2 * inner
            triplets = (self.epsilon + squared.diagonal()[:, None] - squared).clamp_min(0)
            loss = loss + self.beta * (triplets.sum() - triplets.diagonal().sum()) / n**2
        return loss
