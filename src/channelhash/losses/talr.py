"""TALR: the tie-aware average precision itself as the loss (He et al., CVPR 2018)."""

import math

import torch
from torch import Tensor

from channelhash.losses.multimodal import ItemLoss, StackedItems


class TALRLoss(ItemLoss):
    """From "Hashing as Tie-Aware Learning to Rank" (CVPR 2018), the simplified relaxation AP_r of
    tie-aware AP::

        L = 1 − mean_q AP_r(q),   AP_r = 1/N⁺ Σ_{d=0…k} n⁺_d (N⁺_{d−1} + N⁺_d + 1) / (N_{d−1} + N_d
        + 1)

    n_d and n⁺_d are the numbers of all and of relevant items at distance d, N_d and N⁺_d their sums
    up to d. They are made differentiable by linear interpolation between the two nearest whole
    distances, with d = (k − φᵀφ') / 2 of φ = tanh(α z).

    ``published``: the authors' slope, and their histograms of bins 2 bits wide (their scripts for
    CIFAR-10 and NUS-WIDE at 32 and 48 bits). Their φ = 2 / (1 + e^(−γ z)) − 1 is tanh(γ z / 2), so
    their γ = 1 is α = ½.

    As in the evaluation, a ranking is of one modality by a query of one modality; the mean is over
    the rankings of all ordered pairs of modalities that have a relevant item. A query is not ranked
    among its own modality, but its partner in another one is, as a relevant item.

    Several labels: an item is relevant if it shares at least one.

    Args:
        n_bits: code length k.
        alpha: slope α of the tanh; ½ in the published code.
        bin_width: bits between two bins of the histograms, at least 1.

    Raises:
        ValueError: ``bin_width`` is below 1.

    >>> codes = 9 * torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])
    >>> outputs = {"image": codes, "text": codes}
    >>> round(TALRLoss(n_bits=4)(outputs, torch.eye(2)).item(), 4)  # partners come first
    0.0
    """

    def __init__(self, n_bits: int, alpha: float = 1.0, bin_width: int = 1) -> None:
        super().__init__(n_bits)
        if not bin_width >= 1:
            raise ValueError(f"bin_width is {bin_width}; a bin is at least 1 bit wide")
        self.alpha = alpha
        self.bin_width = bin_width

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        codes = torch.tanh(self.alpha * items.codes)
        distances = 0.5 * (self.n_bits - codes @ codes.T)
        ranked = 1 - torch.eye(len(codes), dtype=codes.dtype, device=codes.device)
        relevant = ranked * (items.similarity() > 0)
        n_rankings = len(codes) * items.n_modalities
        n = items.n_samples
        distances, ranked, relevant = (
            values.reshape(n_rankings, n) for values in (distances, ranked, relevant)
        )
        bins = math.ceil(self.n_bits / self.bin_width)
        return 1 - _mean_soft_average_precision(distances / self.bin_width, ranked, relevant, bins)


def _mean_soft_average_precision(
    distances: Tensor, ranked: Tensor, relevant: Tensor, n_bits: int
) -> Tensor:
    """Return the mean AP_r of rankings, over those with a relevant item; 0 if there is none.

    >>> distances = torch.tensor([[0.0, 2.0]])
    >>> relevant = torch.tensor([[1.0, 0.0]])
    >>> _mean_soft_average_precision(distances, torch.ones(1, 2), relevant, n_bits=4).item()
    1.0
    """
    total = _soft_histogram(distances, ranked, n_bits)
    positive = _soft_histogram(distances, relevant, n_bits)
    total_sum = total.cumsum(dim=1)
    positive_sum = positive.cumsum(dim=1)
    # N_{d−1} = N_d − n_d
    precision = (2 * positive_sum - positive + 1) / (2 * total_sum - total + 1)
    positives = relevant.sum(dim=1)
    average = (positive * precision).sum(dim=1) / positives.clamp_min(1)
    return average.sum() / (positives > 0).sum().clamp_min(1)


def _soft_histogram(distances: Tensor, weights: Tensor, n_bits: int) -> Tensor:
    """Return the weights of items at each whole distance, ``(r, k + 1)``; one in between counts in
    both.

    >>> _soft_histogram(torch.tensor([[0.25, 2.0]]), torch.ones(1, 2), n_bits=2).tolist()
    [[0.75, 0.25, 1.0]]
    """
    below = distances.detach().floor().clamp(0, n_bits - 1)
    above = distances - below
    index = below.long()
    empty = distances.new_zeros(len(distances), n_bits + 1)
    return empty.scatter_add(1, index, weights * (1 - above)).scatter_add(
        1, index + 1, weights * above
    )
