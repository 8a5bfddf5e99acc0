"""SCH: Semantic Channel Hashing (Hu et al. 2024), the baseline with channels of fixed width."""

from torch import Tensor, nn

from channelhash.channels import sch_bounds
from channelhash.losses.functional import Labels, Outputs, channel_loss
from channelhash.losses.hard_negatives import Hardness, check_hardness
from channelhash.losses.tiled_pairs import WHOLE, Share


class SCHLoss(nn.Module):
    """L_SCH / n², eq. (sch:loss), with the channels of `channels.sch_bounds`; no quantisation term, as published.

    ``kappa_q=0.01`` gives the second baseline of ``protocol.md`` § 5, which differs from DSCH in the channel only.

    Args:
        n_bits: code length k.
        tau: channel width τ of pairs with S > 0, in bits.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        kappa_q: weight κ_q of the quantisation error.
        hardness: η ≥ 0 of `hard_negatives.hard_weights`: dissimilar pairs weigh the more, the nearer they are; 0, as
            published, weighs them alike.

    Raises:
        ValueError: ``n_bits`` is below 1, or τ or η below 0.
    """

    def __init__(
        self,
        n_bits: int,
        tau: float = 3.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        kappa_q: float = 0.0,
        hardness: Hardness = 0.0,
    ) -> None:
        super().__init__()
        if n_bits < 1:
            raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
        if tau < 0:
            raise ValueError(f"tau is {tau}; no channel is that narrow")
        check_hardness(hardness)
        self.n_bits = n_bits
        self.tau, self.alpha, self.beta, self.kappa_q, self.hardness = tau, alpha, beta, kappa_q, hardness
        self.gamma_l = 1.0

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the channel of each similarity, in bits."""
        return sch_bounds(similarity, self.n_bits, self.tau)

    def forward(self, outputs: Outputs, labels: Labels, share: Share = WHOLE) -> Tensor:
        """The loss of one batch, or a share of it, a scalar; arguments as in `functional.channel_loss`."""
        return channel_loss(
            outputs,
            labels,
            self.bounds,
            n_bits=self.n_bits,
            alpha=self.alpha,
            beta=self.beta,
            gamma_l=self.gamma_l,
            kappa_q=self.kappa_q,
            hardness=self.hardness,
            share=share,
        )
