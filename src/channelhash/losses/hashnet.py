"""HashNet: weighted maximum likelihood (Cao et al., ICCV 2017)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.losses.multimodal import ItemLoss, StackedItems


class HashNetLoss(ItemLoss):
    """From "HashNet: Deep Learning to Hash by Continuation" (ICCV 2017), its weighted maximum
    likelihood::

        L = 1/|S| Σ_ij w_ij (log(1 + e^(α h_iᵀ h_j)) − α s_ij h_iᵀ h_j),   h = tanh(β z)
        w_ij = c_ij · |S|/|S₁| for similar pairs, |S|/|S₀| for dissimilar ones

    |S₁| and |S₀| are counted in the batch.

    Several labels: s_ij = 1 where two samples share at least one; c_ij is then their Jaccard index
    |y_i ∩ y_j| / |y_i ∪ y_j|. For dissimilar pairs c_ij is 1: by the letter of the paper it would
    be 0, and they would be in no term.

    Left out: the continuation itself, in which β grows from stage to stage of a training until tanh
    is the sign. A loss does not know how long the training is; β stays where it is set. This is the
    paper's first stage.

    ``published``: the authors' PyTorch code weighs all pairs alike (``--class_num 1.0`` in its
    README), without Jaccard index and without |S|/|S₁|, and its pairs are those of one half of a
    batch with the other.

    Args:
        n_bits: code length k.
        alpha: slope α of the adaptive sigmoid; 10/k if None, as in the published code.
        beta: slope β of the tanh; the paper starts at 1.
        weighted: pairs weigh w_ij, and all pairs of items are in the loss; else as in the authors'
            PyTorch code.

    >>> loss = HashNetLoss(n_bits=4)
    >>> round(loss({"text": torch.zeros(1, 4)}, torch.ones(1, 1)).item(), 4)  # log(1 + e⁰)
    0.6931
    """

    def __init__(
        self, n_bits: int, alpha: float | None = None, beta: float = 1.0, weighted: bool = True
    ) -> None:
        super().__init__(n_bits)
        self.alpha = 10 / n_bits if alpha is None else alpha
        self.beta = beta
        self.weighted = weighted

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        codes = torch.tanh(self.beta * items.codes)
        if not self.weighted:
            return items.likelihood_of_halves(codes, self.alpha)
        logits = self.alpha * (codes @ codes.T)
        similar = items.similarity() > 0
        shared = items.labels @ items.labels.T
        sizes = items.labels.sum(dim=1)
        union = sizes[:, None] + sizes - shared
        # a sample without labels is like itself
        jaccard = torch.where(union > 0, shared / union.clamp_min(1), 1)
        of_similar = similar.sum().clamp_min(1)
        of_dissimilar = (~similar).sum().clamp_min(1)
        weights = torch.where(similar, jaccard / of_similar, 1 / of_dissimilar)  # w_ij / |S|
        return (weights * (F.softplus(logits) - similar * logits)).sum()
