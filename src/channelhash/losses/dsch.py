"""DSCH: Dynamic Semantic Channel Hashing, the paper's loss."""

from torch import Tensor

from channelhash.channels import dsch_bounds
from channelhash.losses.base import ChannelLoss


class DSCHLoss(ChannelLoss):
    """L = L_D / n² + κ_q · L_q / n, eq. (dsch:full), with the dynamic channels of
    `channels.dsch_bounds`.

    Args:
        n_bits: code length k.
        lambda_neg: smallest distance λ_neg of dissimilar pairs, in bits; k/2 if None.
        tau: smallest channel width τ, in bits.
        gamma_w: exponent γ_w of the channel width.
        gamma_l: exponent γ_ℓ of a pair's violation.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1, or a channel would have a negative width: λ_neg above k,
            or τ below 0.

    >>> import torch
    >>> codes = torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])
    >>> DSCHLoss(n_bits=4)({"image": codes, "text": codes}, torch.tensor([[1, 0], [0, 1]])).item()
    0.0
    """

    def __init__(
        self,
        n_bits: int,
        lambda_neg: float | None = None,
        tau: float = 1.0,
        gamma_w: float = 8.0,
        gamma_l: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        kappa_q: float = 0.01,
    ) -> None:
        super().__init__(n_bits, alpha, beta, gamma_l, kappa_q)
        lambda_neg = n_bits / 2 if lambda_neg is None else lambda_neg
        if not (lambda_neg <= n_bits and tau >= 0):
            raise ValueError(
                f"lambda_neg is {lambda_neg} of {n_bits} bits, tau is {tau}; no channel is that "
                "narrow"
            )
        self.lambda_neg = lambda_neg
        self.tau = tau
        self.gamma_w = gamma_w

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits."""
        return dsch_bounds(similarity, self.n_bits, self.lambda_neg, self.tau, self.gamma_w)
