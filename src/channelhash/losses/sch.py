"""SCH: Semantic Channel Hashing (Hu et al. 2024), the baseline with channels of fixed width."""

from torch import Tensor

from channelhash.channels import sch_bounds
from channelhash.losses.base import ChannelLoss


class SCHLoss(ChannelLoss):
    """L_SCH / n², eq. (sch:loss), with the channels of `channels.sch_bounds`; no quantisation term, as published.

    ``kappa_q=0.01`` gives the second baseline of ``protocol.md`` § 5, which differs from DSCH in the channel only.

    Args:
        n_bits: code length k.
        tau: channel width τ of pairs with S > 0, in bits.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1, or τ below 0.

    >>> import torch
    >>> codes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart, should be 2 … 4
    >>> SCHLoss(n_bits=4)({"text": codes}, torch.tensor([[1, 0], [0, 1]])).item()
    0.5
    """

    def __init__(
        self, n_bits: int, tau: float = 3.0, alpha: float = 1.0, beta: float = 1.0, kappa_q: float = 0.0
    ) -> None:
        super().__init__(n_bits, alpha, beta, kappa_q=kappa_q)
        if not tau >= 0:
            raise ValueError(f"tau is {tau}; no channel is that narrow")
        self.tau = tau

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits."""
        return sch_bounds(similarity, self.n_bits, self.tau)
