"""IDHN: hard pairs by likelihood, softly similar ones by squared error (Zhang et al., IEEE TMM
2020).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.losses.multimodal import ItemLoss, StackedItems


class IDHNLoss(ItemLoss):
    """From "Improved Deep Hashing with Soft Pairwise Similarity for Multi-label Image Retrieval"
    (IEEE TMM 2020), as published with its code::

        L = mean_ij [log(1 + e^Ω_ij) − s_ij Ω_ij           where s_ij is 0 or 1 (hard)
                     γ k · ((b_iᵀ b_j + k) / 2k − s_ij)²    elsewhere (soft)]
            + λ · mean | |b| − 1 |,        Ω_ij = α/k · b_iᵀ b_j,   b = z / (1 + |z|)

    Several labels: s_ij is the cosine of the label vectors; that is what the paper is about.

    Args:
        n_bits: code length k.
        alpha: α, the largest |Ω|; 5 in the published code.
        gamma: weight γ of the soft pairs; 0.1.
        lambda_q: weight λ of the quantisation error; 0.1.

    >>> loss = IDHNLoss(n_bits=4, lambda_q=0.0)
    >>> round(loss({"text": torch.zeros(1, 4)}, torch.ones(1, 1)).item(), 4)
    0.6931
    """

    def __init__(
        self, n_bits: int, alpha: float = 5.0, gamma: float = 0.1, lambda_q: float = 0.1
    ) -> None:
        super().__init__(n_bits)
        self.alpha = alpha
        self.gamma = gamma
        self.lambda_q = lambda_q

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        codes = F.softsign(items.codes)
        agreement = codes @ codes.T / self.n_bits  # in [−1, 1]
        similarity = items.similarity()
        logits = self.alpha * agreement
        hard = F.softplus(logits) - similarity * logits
        soft = self.gamma * self.n_bits * ((agreement + 1) / 2 - similarity).square()
        is_hard = (similarity == 0) | (similarity == 1)
        quantization = (codes.abs() - 1).abs().mean()
        return torch.where(is_hard, hard, soft).mean() + self.lambda_q * quantization
