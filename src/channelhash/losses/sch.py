"""SCH: Semantic Channel Hashing (Hu et al. 2024), with channels of fixed width; in the paper's form
and in that of the authors' code.
"""

import torch
from torch import Tensor

from channelhash.channels import sch_bounds
from channelhash.losses.base import ChannelLoss, set_weights
from channelhash.losses.multimodal import ItemLoss, StackedItems


class SCHLoss(ChannelLoss):
    """L_SCH / n², eq. (sch:loss), with the channels of `channels.sch_bounds`; no quantisation term,
    as published.

    ``kappa_q=0.01`` gives the second baseline of ``protocol.md`` § 5, which differs from DSCH in
    the channel only.

    Args:
        n_bits: code length k.
        tau: channel width τ of pairs with S > 0, in bits.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1, or τ below 0.

    >>> codes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart, should be 2 … 4
    >>> SCHLoss(n_bits=4)({"text": codes}, torch.tensor([[1, 0], [0, 1]])).item()
    0.5
    """

    def __init__(
        self,
        n_bits: int,
        tau: float = 3.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        kappa_q: float = 0.0,
    ) -> None:
        super().__init__(n_bits, alpha, beta, kappa_q=kappa_q)
        if not tau >= 0:
            raise ValueError(f"tau is {tau}; no channel is that narrow")
        self.tau = tau

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits."""
        return sch_bounds(similarity, self.n_bits, self.tau)


class SCHOriginalLoss(ItemLoss):
    """From "Cross-Modal Hashing Method with Properties of Hamming Space: A New Perspective" (IEEE
    TPAMI 2024), its vectorised form, eq. (10)::

        L = 1/n² Σ_{m_i, m_j} (‖ψ ∘ max(0, λˡ − D)‖_F + ‖ψ ∘ max(0, D − λᵘ)‖_F),   D = (k − B B'ᵀ) /
        2,   B = tanh Z

    Three things differ from `SCHLoss`, which is the paper's and the protocol's reading of it.
    Distances are of inner products, not of cosines, so a code that is not yet binary is nearer to
    k/2 than its direction is. The violations of each pair of modalities are taken together by
    Frobenius norms, one for those below the channel and one for those above. And the codes go
    through tanh. The channels are the same, `channels.sch_bounds`.

    Several labels: S is the cosine of the label vectors.

    Left out: the authors' slope of the tanh, which grows with the epochs; it is 1 here.

    Args:
        n_bits: code length k.
        tau: channel width τ of pairs with S > 0, in bits; 3.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.

    >>> codes = 9 * torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart, not 2 … 4: √2 / 2²
    >>> round(SCHOriginalLoss(n_bits=4)({"text": codes}, torch.eye(2)).item(), 4)
    0.3536
    """

    def __init__(
        self, n_bits: int, tau: float = 3.0, alpha: float = 1.0, beta: float = 1.0
    ) -> None:
        super().__init__(n_bits)
        if not tau >= 0:
            raise ValueError(f"tau is {tau}; no channel is that narrow")
        self.tau = tau
        self.alpha = alpha
        self.beta = beta

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        codes = torch.tanh(items.codes)
        similarity = items.similarity()
        weights = set_weights(similarity, self.alpha, self.beta)
        lower, upper = sch_bounds(similarity, self.n_bits, self.tau)
        distances = 0.5 * (self.n_bits - codes @ codes.T)
        m = items.n_modalities
        n = items.n_samples
        total = distances.new_zeros(())
        for violation in (lower - distances, distances - upper):
            by_pair = (weights * violation.clamp_min(0)).view(m, n, m, n)
            total = total + torch.linalg.vector_norm(by_pair, dim=(1, 3)).sum()
        return total / n**2
