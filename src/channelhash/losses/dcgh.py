"""DCGH: trained proxies, and pairs held to the cosine of their labels (Chen et al., arXiv
2410.15387, 2024).
"""

import torch
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.losses.multimodal import ItemLoss, StackedItems, mean_where


class DCGHLoss(ItemLoss):
    """From "Deep Class-guided Hashing for Multi-label Cross-modal Retrieval" (arXiv 2410.15387),
    its code::

        L = Σ_m (mean_{y_ij = 1} (1 − c_ij) + mean_{y_ij = 0} max(0, c_ij) + γ · mean_i Var_j y_ij
        (1 − c_ij))
            + Σ_{a ≤ b} (β · mean_{(i, j) ∈ I} max(0, d_ij) + α · mean_{S_ij > 0} max(0, S_ij −
            d_ij))
        c_ij = cos(h_mi, p_j),   d_ij = cos(h_ai, h_bj),   h = tanh z

    over modalities m, a, b and trained proxies p_j of the labels, shared by the modalities. I are
    the pairs of samples that both have two labels or more and share none, as in DSPH
    (`hyp2.HyP2Loss`). To DSPH's terms it adds a graded one, in which similar pairs have at least
    the cosine S of their labels, and one which is to make a sample equally far from the proxies of
    its labels: a variance over all labels, divided by c − 1.

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        alpha: weight α of similar pairs; 0.05 in the published code.
        beta: weight β of irrelevant pairs; 0.8 in the published code.
        gamma: weight γ of the variance; 1 in the published code.

    >>> _ = torch.manual_seed(0)
    >>> loss = DCGHLoss(n_bits=4, n_labels=2)
    >>> at_proxies, opposite = loss.proxies.detach(), -loss.proxies.detach()
    >>> (loss({"text": at_proxies}, torch.eye(2)) < loss({"text": opposite}, torch.eye(2))).item()
    True
    """

    def __init__(
        self, n_bits: int, n_labels: int, alpha: float = 0.05, beta: float = 0.8, gamma: float = 1.0
    ) -> None:
        super().__init__(n_bits, n_labels)
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.proxies = nn.Parameter(torch.empty(n_labels, n_bits))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")
        self.proxies.data.tanh_()

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        directions = unit_rows(items.codes.tanh())
        to_proxies = directions @ unit_rows(self.proxies.to(directions)).T
        has = items.labels > 0
        far = (1 - to_proxies) * has
        variance = far.var(dim=1, correction=min(1, items.labels.shape[1] - 1)).mean()
        single = (
            mean_where(1 - to_proxies, has)
            + mean_where(to_proxies.clamp_min(0), ~has)
            + self.gamma * variance
        )
        similarity = items.similarity()
        near = directions @ directions.T
        apart = items.sum_of_pairs(near.clamp_min(0), items.irrelevant())
        graded = items.sum_of_pairs((similarity - near).clamp_min(0), similarity > 0)
        return items.n_modalities * single + self.beta * apart + self.alpha * graded
