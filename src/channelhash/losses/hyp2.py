"""HyP² and DSPH: trained proxies of labels, irrelevant pairs apart (Xu et al., ACM MM 2022; Huo et
al., TCSVT 2024).
"""

import math

import torch
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.losses.multimodal import ItemLoss, StackedItems, mean_where


class HyP2Loss(ItemLoss):
    """From "HyP² Loss: Beyond Hypersphere Metric Space for Multi-label Image Retrieval" (ACM MM
    2022)::

        L = Σ_{y_ij = 1} (1 − cos(z_i, p_j)) / |P⁺| + Σ_{y_ij = 0} max(0, cos(z_i, p_j) − ζ) / |P⁻|
            + β · Σ_{(i, j) ∈ I} max(0, cos(z_i, z_j) − ζ) / |I|

    over items i and trained proxies p_j of the labels, shared by the modalities; I are the pairs of
    items that both have two labels or more and share none. In one modality it is the authors' loss.

    ``published``: the loss of "Deep Semantic-aware Proxy Hashing for Multi-label Cross-modal
    Retrieval" (DSPH, IEEE TCSVT 2024), which is of tanh z in two modalities. The first two terms
    are added up over the modalities, and the third with β = 0.8 over image–image, text–text and
    image–text. No β makes that of means over all items and pairs, as in the default: β = 1.6 would
    weigh pairs within a modality as DSPH does, 0.8 those across; 1.2 has the same sum.

    Several labels: each of an item's labels pulls it to its proxy, each other one pushes. Items
    without labels are pushed by all.

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        beta: weight β of the irrelevant pairs; 0.5 in HyP²'s code.
        zeta: largest cosine ζ of irrelevant ones; `_largest_cosine` if None.
        dsph: z goes through tanh, and terms are added up over modalities and unordered pairs of
            them.

    >>> _ = torch.manual_seed(0)
    >>> loss = HyP2Loss(n_bits=4, n_labels=2)
    >>> at_proxies, opposite = loss.proxies.detach(), -loss.proxies.detach()
    >>> (loss({"text": at_proxies}, torch.eye(2)) < loss({"text": opposite}, torch.eye(2))).item()
    True
    """

    def __init__(
        self,
        n_bits: int,
        n_labels: int,
        beta: float = 0.5,
        zeta: float | None = None,
        dsph: bool = False,
    ) -> None:
        super().__init__(n_bits, n_labels)
        self.beta = beta
        self.dsph = dsph
        self.zeta = _largest_cosine(n_bits, n_labels) if zeta is None else zeta
        self.proxies = nn.Parameter(torch.empty(n_labels, n_bits))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        directions = unit_rows(items.codes.tanh() if self.dsph else items.codes)
        to_proxies = directions @ unit_rows(self.proxies.to(directions)).T
        has = items.labels > 0
        loss = mean_where(1 - to_proxies, has) + mean_where(
            (to_proxies - self.zeta).clamp_min(0), ~has
        )
        pairs = (directions @ directions.T - self.zeta).clamp_min(0)
        if not self.dsph:
            return loss + self.beta * mean_where(pairs, items.irrelevant())
        return items.n_modalities * loss + self.beta * items.sum_of_pairs(pairs, items.irrelevant())


def _largest_cosine(n_bits: int, n_labels: int) -> float:
    """Return ζ = 1 − 2d/k, with d bits between any two of 2^⌈log₂ c⌉ codes of k bits.

    The authors read d from a table of the best known linear codes; this is the largest d that
    Griesmer's bound Σ_{i < ⌈log₂ c⌉} ⌈d / 2^i⌉ ≤ k leaves them, which short codes of few dimensions
    mostly reach.

    >>> _largest_cosine(16, 24)  # the [16, 5, 8] Reed–Muller code
    0.0
    """
    dimensions = max(1, math.ceil(math.log2(n_labels)))
    distance = 0
    while sum(-(-(distance + 1) // 2**i) for i in range(dimensions)) <= n_bits:
        distance += 1
    return 1 - 2 * distance / n_bits
