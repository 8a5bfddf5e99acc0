"""RSCH: root-mean-square semantic channels, this project's own objective."""

import torch
from torch import Tensor

from channelhash.channels import balanced_bounds
from channelhash.losses.base import Batch, ChannelLoss, quantization_error
from channelhash.losses.multimodal import items_of


class RSCHLoss(ChannelLoss):
    """Root mean squares of the channels' violations, one of the similar pairs and one of the
    dissimilar ones::

        L = 1/m² Σ_{a, b} (√mean_{S > 0} v² + √mean_{S = 0} v²) + κ_q · L_q(B) / n
        v = D − k/2 · (1 − S) where S > 0,  k/2 − D where S = 0,  if positive, else 0
        D = (k − B_a B_bᵀ) / 2,   B = tanh Z

    over the m² ordered pairs of modalities, in bits; L_q as in `dsch.DSCHLoss`.

    What it bounds: a similar pair is as far as a dissimilar one only if their violations together
    reach the gap between their ends, which is at least Δ = k/2 · min_{S > 0} S. By Markov's and
    Minkowski's inequalities the fraction of such misplaced pairs of pairs, 1 − AUC, is at most
    (√mean v² + √mean v²)² / Δ². A mean of all violations, as in SCH and DSCH, weighs the two kinds
    of pairs by how frequent they are; the metric does not.

    Two things are as in the code of SCH's authors (`sch.SCHOriginalLoss`): inner products of tanh,
    by which a code reaches its channel's ends only if it is binary; and norms, whose gradient does
    not fade while violations do. What it is worth: ``docs/explanation/which-loss.md``.

    Pairs with stored codes are held to the channels as in `base.ChannelLoss`: by the mean of their
    violations, in cosines.

    Several labels: S is the cosine of the label vectors.

    Args:
        n_bits: code length k.
        kappa_q: weight κ_q of the quantisation error.

    >>> codes = 9 * torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart, should be 2 … 4
    >>> RSCHLoss(n_bits=4)({"text": codes}, torch.eye(2)).item()
    1.0
    """

    sharded = False
    takes_similarity = False

    def __init__(self, n_bits: int, kappa_q: float = 0.0) -> None:
        super().__init__(n_bits, kappa_q=kappa_q)

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits: those of BSCH
        without a gap.
        """
        return balanced_bounds(similarity, self.n_bits, similarity_ratio=0.0)

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        items = items_of(batch, self.n_bits)
        codes = torch.tanh(items.codes)
        distances = 0.5 * (self.n_bits - codes @ codes.T)
        similarity = items.similarity()
        lower, upper = self.bounds(similarity)
        violation = (lower - distances).clamp_min(0) + (distances - upper).clamp_min(0)
        dissimilar = similarity == 0
        m = items.n_modalities
        n = items.n_samples
        total = distances.new_zeros(())
        for group in (dissimilar, ~dissimilar):
            norms = torch.linalg.vector_norm((violation * group).view(m, n, m, n), dim=(1, 3))
            n_pairs = group[:n, :n].sum().clamp_min(1)
            total = total + norms.mean() / n_pairs.sqrt()
        if self.kappa_q:
            total = total + self.kappa_q / n * quantization_error(items.by_modality(codes))
        return total
