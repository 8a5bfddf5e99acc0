"""RSCH: root-mean-square semantic channels, this project's own objective."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from channelhash.channels import balanced_bounds
from channelhash.losses.channel_terms import Outputs
from channelhash.losses.items import Items, loss_of_items


class RSCHLoss(nn.Module):
    """Root mean squares of the channels' violations, one of the similar pairs and one of the dissimilar ones::

        L = 1/m² Σ_{a, b} (√mean_{S > 0} v² + √mean_{S = 0} v²)
        v = max(0, λˡ − D, D − λᵘ),   D = (k − B_a B_bᵀ) / 2,   B = tanh Z

    over the m² ordered pairs of modalities, in bits. The ends λˡ, λᵘ are those of `channels.balanced_bounds`.

    What it bounds: a similar pair is as far as a dissimilar one only if their violations together reach the gap between
    their ends, which is at least Δ = g + k/2 · min S. By Markov's and Minkowski's inequalities the share of such
    misplaced pairs of pairs, 1 − AUC, is at most (√mean v² + √mean v²)² / Δ². A mean of all violations, as in SCH and
    DSCH, bounds nothing alike: it weighs the two kinds of pairs by how frequent they are, which the metric does not.

    Two things are as in the code of SCH's authors (`sch_original`): inner products of tanh, by which a code reaches its
    channel's ends only if it is binary, so that no quantisation error is needed; and norms, whose gradient does not
    fade while violations do. What it is worth: ``docs/results/balanced-channels.md``.

    Several labels: S is the cosine of the label vectors.

    Args:
        n_bits: code length k.
        rho: share ρ of the largest gap, 0 … 1; 0 leaves none.

    Raises:
        ValueError: ρ is outside 0 … 1.
    """

    #: Pairs with stored codes, or those of a memory, are held against the channels as `memory.ChannelLoss` says: by the
    #: mean of their violations, in cosines.
    alpha = beta = gamma_l = 1.0
    hardness = 0.0

    def __init__(self, n_bits: int, rho: Annotated[float, Field(ge=0, le=1)] = 0.0) -> None:
        super().__init__()
        if not 0 <= rho <= 1:
            raise ValueError(f"rho is {rho}; it is a share, 0 to 1")
        self.n_bits, self.rho = n_bits, rho

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the channel of each similarity, in bits; the ratio r of the gap is that of the
        ``similarity`` given."""
        ratio = float(similarity.sum() / (similarity == 0).sum())
        return balanced_bounds(similarity, self.n_bits, ratio, self.rho)

    def forward(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """The loss of one batch, a scalar; arguments as in `items.loss_of_items`."""
        return loss_of_items(outputs, labels, self.n_bits, self._loss)

    def _loss(self, items: Items) -> Tensor:
        codes = torch.tanh(items.codes)
        distances = 0.5 * (self.n_bits - codes @ codes.T)
        similarity = items.similarity()
        lower, upper = self.bounds(similarity)
        violation = (lower - distances).clamp_min(0) + (distances - upper).clamp_min(0)
        dissimilar = similarity == 0
        m, n = items.n_modalities, len(codes) // items.n_modalities
        total = distances.new_zeros(())
        for group in (dissimilar, ~dissimilar):
            norms = torch.linalg.vector_norm((violation * group).view(m, n, m, n), dim=(1, 3))
            n_pairs = group[:n, :n].sum().clamp_min(1)
            total = total + norms.mean() / n_pairs.sqrt()
        return total
