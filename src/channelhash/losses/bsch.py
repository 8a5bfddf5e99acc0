"""BSCH: balanced semantic channels, this project's own objective."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from channelhash.channels import balanced_bounds, similarity_ratio
from channelhash.losses.functional import Labels, Outputs, channel_loss
from channelhash.losses.hard_negatives import Hardness, check_hardness
from channelhash.losses.tiled_pairs import WHOLE, Share


class BSCHLoss(nn.Module):
    """L_D / n² + κ_q · L_q / n as in `dsch.DSCHLoss`, with the channels of `channels.balanced_bounds`.

    mAP counts a pair as relevant as soon as S > 0. So there is a gap between the channels of S = 0 and S → 0, as large
    as any codes could attain under these labels, and similar pairs have no lower end. What it is worth beside DSCH and
    SCH: ``docs/results/balanced-channels.md``.

    Args:
        n_bits: code length k.
        similarity_ratio: r of the training labels, `channels.similarity_ratio`; None takes that of each batch.
        rho: share ρ of the largest gap, 0 … 1; 0 leaves none.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        gamma_l: exponent γ_ℓ of a pair's violation.
        kappa_q: weight κ_q of the quantisation error.
        hardness: η of `hard_negatives.hard_weights`.

    Raises:
        ValueError: ``n_bits`` is below 1, ρ is outside 0 … 1, r or η below 0.
    """

    def __init__(
        self,
        n_bits: int,
        similarity_ratio: float | None = None,
        rho: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma_l: float = 1.0,
        kappa_q: float = 0.1,
        hardness: Hardness = 0.0,
    ) -> None:
        super().__init__()
        if n_bits < 1:
            raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
        if not 0 <= rho <= 1:
            raise ValueError(f"rho is {rho}; it is a share, 0 to 1")
        if similarity_ratio is not None and not similarity_ratio >= 0:
            raise ValueError(f"similarity_ratio is {similarity_ratio}; similarities are 0 or more")
        check_hardness(hardness)
        self.n_bits, self.similarity_ratio, self.rho = n_bits, similarity_ratio, rho
        self.alpha, self.beta, self.gamma_l = alpha, beta, gamma_l
        self.kappa_q, self.hardness = kappa_q, hardness

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the channel of each similarity, in bits; without an r of its own the loss takes that
        of the ``similarity`` given."""
        ratio = self.similarity_ratio
        if ratio is None:
            ratio = float(similarity.sum() / (similarity == 0).sum())
        return balanced_bounds(similarity, self.n_bits, ratio, self.rho)

    def forward(self, outputs: Outputs, labels: Labels, share: Share = WHOLE) -> Tensor:
        """The loss of one batch, or a share of it, a scalar; arguments as in `functional.channel_loss`."""
        ratio = self.similarity_ratio
        if ratio is None:  # of the whole batch: bounds are asked for a tile at a time
            rows = torch.cat(list(labels.values())) if isinstance(labels, Mapping) else labels
            ratio = similarity_ratio(rows)
        return channel_loss(
            outputs,
            labels,
            partial(balanced_bounds, n_bits=self.n_bits, similarity_ratio=ratio, rho=self.rho),
            n_bits=self.n_bits,
            alpha=self.alpha,
            beta=self.beta,
            gamma_l=self.gamma_l,
            kappa_q=self.kappa_q,
            hardness=self.hardness,
            share=share,
        )
