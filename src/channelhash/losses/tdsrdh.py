"""The TDSRDH loss (Zhou et al. 2023) in the normalised form of the paper: pairwise, quantisation and triplet term."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from channelhash.channels import label_similarity
from channelhash.losses.functional import Outputs, checked_batch, sign


class TDSRDHLoss(nn.Module):
    """Loss of one anchor modality against the others, which are detached (``protocol.md`` § 5).

    pairwise:      Σ_ij (log(1 + e^γ_ij) − S̃_ij γ_ij) / n², γ = ½ · anchor · otherᵀ, S̃_ij = 1 if i and j share a label
    quantisation:  α · ‖anchor − sign(anchor + other)‖²_F / n
    triplet:       β · Σ_{j ≠ i} max(0, ε + ‖a_i − o_i‖² − ‖a_i − o_j‖²) / n²

    Streams are trained in turn: one epoch pass with ``anchor="image"``, one with ``anchor="text"``.

    Args:
        alpha: weight of the quantisation term.
        beta: weight of the triplet term.
        epsilon: margin ε of the triplets, in squared distance.
    """

    def __init__(self, alpha: float = 0.05, beta: float = 1.0, epsilon: float = 0.3) -> None:
        super().__init__()
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon

    def forward(self, outputs: Outputs, labels: Tensor, anchor: str | None = None) -> Tensor:
        """The loss of one batch.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes. With more than two modalities the pairwise and triplet
                terms are summed over the others; with a single one it stands against a detached copy of itself.
            labels: ``(n, c)`` bool or 0/1.
            anchor: the modality that is trained; None sums the losses of all anchors.

        Returns:
            A scalar, computed in float32 (float64 for float64 outputs) also under autocast.

        Raises:
            ValueError: ``anchor`` is not a modality of ``outputs``.
        """
        outputs, labels = checked_batch(outputs, labels)
        if anchor is not None and anchor not in outputs:
            raise ValueError(f"anchor {anchor!r} is not one of the modalities {', '.join(outputs)}")
        codes = next(iter(outputs.values()))
        with torch.autocast(codes.device.type, enabled=False):
            related = (label_similarity(labels) > 0).to(codes)
            anchors = outputs if anchor is None else [anchor]
            return torch.stack([self._one_anchor(outputs, related, name) for name in anchors]).sum()

    def _one_anchor(self, outputs: Outputs, related: Tensor, name: str) -> Tensor:
        anchor = outputs[name]
        n = len(anchor)
        others = [codes.detach() for modality, codes in outputs.items() if modality != name] or [anchor.detach()]
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
