"""BSCH: balanced semantic channels, this project's own objective."""

from functools import partial

from torch import Tensor

from channelhash.channels import balanced_bounds, similarity_ratio
from channelhash.losses.base import Bounds, ChannelLoss


class BSCHLoss(ChannelLoss):
    """L_D / n² + κ_q · L_q / n as in `dsch.DSCHLoss`, with the channels of
    `channels.balanced_bounds`.

    mAP counts a pair as relevant as soon as S > 0. So there is a gap between the channels of S = 0
    and S → 0, as large as any codes could attain under these labels, and similar pairs have no
    lower end. What it is worth beside DSCH and SCH: ``docs/explanation/which-loss.md``.

    Args:
        n_bits: code length k.
        similarity_ratio: r of the training labels, `channels.similarity_ratio`; None takes that of
            each batch.
        rho: fraction ρ of the largest gap, 0 … 1; 0 leaves none.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        gamma_l: exponent γ_ℓ of a pair's violation.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1, ρ is outside 0 … 1, or r below 0.

    >>> import torch
    >>> loss = BSCHLoss(n_bits=8, similarity_ratio=0.5)
    >>> lower, upper = loss.bounds(torch.tensor([0.0, 0.5, 1.0]))
    >>> lower.tolist(), upper.tolist()
    ([6.0, 0.0, 0.0], [8.0, 2.0, 0.0])
    """

    takes_similarity = False

    def __init__(
        self,
        n_bits: int,
        similarity_ratio: float | None = None,
        rho: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma_l: float = 1.0,
        kappa_q: float = 0.1,
    ) -> None:
        super().__init__(n_bits, alpha, beta, gamma_l, kappa_q)
        if not 0 <= rho <= 1:
            raise ValueError(f"rho is {rho}; it is a fraction, 0 to 1")
        if similarity_ratio is not None and not similarity_ratio >= 0:
            raise ValueError(f"similarity_ratio is {similarity_ratio}; similarities are 0 or more")
        self.similarity_ratio = similarity_ratio
        self.rho = rho

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits. If the loss
        has no r, it is that of these similarities.
        """
        ratio = self.similarity_ratio
        if ratio is None:
            ratio = float(similarity.sum() / (similarity == 0).sum())
        return balanced_bounds(similarity, self.n_bits, ratio, self.rho)

    def bounds_for(self, labels: Tensor) -> Bounds:
        """Return the bounds for the loss's r; if it has none, for the r of samples with ``labels``
        ``(n, c)``.
        """
        ratio = similarity_ratio(labels) if self.similarity_ratio is None else self.similarity_ratio
        return partial(balanced_bounds, n_bits=self.n_bits, similarity_ratio=ratio, rho=self.rho)
