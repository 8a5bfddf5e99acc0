"""DNPH: proxies by a softmax of distances, and codes spread evenly over the cube (Huo et al., ACM
TOMM 2024).
"""

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.losses.csq import random_signs
from channelhash.losses.multimodal import ItemLoss, StackedItems
from channelhash.utils.hashes import content_hash


class DNPHLoss(ItemLoss):
    """From "Deep Neighborhood-aware Proxy Hashing with Uniform Distribution Constraint for
    Cross-modal Retrieval" (ACM TOMM 2024), its proxy loss and its uniform distribution constraint::

        L = −mean_i Σ_j y_ij log softmax_j(−(‖h_i/‖h_i‖ − p_j/‖p_j‖‖² + δ y_ij)) − λ Σ_m mean_i h_iᵀ
        u_π(i) h = tanh z

    p_j are trained proxies of the labels, shared by the modalities. u are n random codes, the same
    for each modality, and π the assignment of them to a modality's codes with the smallest sum of
    distances ‖h_i − u_π(i)‖: random codes are spread evenly, so the codes are drawn apart without
    being drawn far. They are a function of the seed and of the batch's labels, so that processes
    agree and a resumed training draws the same.

    Several labels: the terms of all of an item's labels are added up. Items without labels are in
    the second term alone.

    Left out: the discriminant term, a second head on the backbone's features with its own
    cross-entropy; a loss sees the codes alone.

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        delta: margin δ on the squared distance to an item's own proxies; 1 in the published code.
        lambda_u: weight λ of the uniform distribution constraint; 0.1 in the published code.
        seed: of the random codes.

    >>> _ = torch.manual_seed(0)
    >>> loss = DNPHLoss(n_bits=4, n_labels=2)
    >>> loss({"image": torch.randn(3, 4), "text": torch.randn(3, 4)}, torch.eye(3)[:, :2]).shape
    torch.Size([])
    """

    def __init__(
        self, n_bits: int, n_labels: int, delta: float = 1.0, lambda_u: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__(n_bits, n_labels)
        self.delta = delta
        self.lambda_u = lambda_u
        self.seed = seed
        self.proxies = nn.Parameter(torch.randn(n_labels, n_bits) / 8)

    def random_codes(self, labels: Tensor) -> Tensor:
        """Return u of a batch with ``(n, c)`` labels, ``(n, k)`` of ±1."""
        batch = content_hash(np.packbits(labels.cpu().numpy() > 0).tobytes())
        return random_signs((len(labels), self.n_bits), self.seed, "dnph codes", batch)

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        codes = torch.tanh(items.codes)
        squared = 2 - 2 * unit_rows(codes) @ unit_rows(self.proxies.to(codes)).T
        log_probabilities = torch.log_softmax(-(squared + self.delta * items.labels), dim=1)
        to_proxies = -(items.labels * log_probabilities).sum(dim=1).mean()
        parts = items.by_modality(codes)
        drawn = self.random_codes(items.by_modality(items.labels)[0]).to(codes)
        agreement = torch.stack(
            [(part * drawn[_assigned(part, drawn)]).sum(dim=1).mean() for part in parts]
        ).sum()
        return to_proxies - self.lambda_u * agreement


def _assigned(codes: Tensor, drawn: Tensor) -> Tensor:
    """Return π: which of ``drawn`` ``(n, k)`` goes to each of ``codes`` ``(n, k)``, by the
    Hungarian method, O(n³).

    >>> _assigned(torch.tensor([[1.0], [-1.0]]), torch.tensor([[-1.0], [1.0]])).tolist()
    [1, 0]
    """
    # half a second, which other losses do not wait for
    from scipy.optimize import linear_sum_assignment

    distances = torch.cdist(codes.detach(), drawn).cpu().numpy()
    return torch.from_numpy(linear_sum_assignment(distances)[1]).to(codes.device)
