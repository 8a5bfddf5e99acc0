"""SCH's channel with targets that follow the labels at hand instead of their cosine alone."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from channelhash.channels import label_similarity, sch_bounds, unit_rows
from channelhash.losses.base import Batch, HashLoss
from channelhash.losses.functional import channel_error, quantization_error
from channelhash.losses.multimodal import items_of

#: How a channel's place follows from labels; see `ShapedSCHLoss`.
Shape = Literal["quantile", "rarity", "learned"]
#: Pieces of the learned line, each 1 / `_PIECES` of similarity wide.
_PIECES = 8


class ShapedSCHLoss(HashLoss):
    """The loss of `sch.SCHLoss` with a similarity T in the place of the cosine S of label vectors, in its channels::

        S = 0: [k/2, k]     S > 0: [k/2 (1 − T) − τ, k/2 (1 − T)]

    * ``quantile``: T = F(S) / F(1), where F(S) is the fraction of the batch's similar pairs that are less similar, and
      half of those that are as similar. The targets of similar pairs are then spread evenly over [0, k/2], whatever
      the labels are. It is linear between the values of S that occur.
    * ``rarity``: T is the cosine of label vectors whose entries are weighted by (−log p_c)^½, with p_c = (n_c + 1) /
      (n + 2) for n_c of the batch's n samples with label c: to share a rare label says more. Dissimilar pairs stay
      so.
    * ``learned``: T = g(S), a rising line of 8 pieces from g(0) = 0 to g(1) = 1. The heights of its steps are trained
      with the model, from those of SCH on: the channel goes to where the codes of such pairs come to lie.

    The channels are those of a batch. No pair outside of it, with a memory or with stored codes, can be held against
    them. What they are worth: ``docs/results/channel-shapes.md``.

    Args:
        n_bits: code length k.
        shape: ``quantile``, ``rarity`` or ``learned``.
        tau: channel width τ of pairs with S > 0, in bits.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1, τ below 0, or there is no such shape.

    >>> codes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart, should be 2 … 4
    >>> ShapedSCHLoss(n_bits=4)({"text": codes}, torch.eye(2)).item()
    0.5
    """

    def __init__(self, n_bits: int, shape: Shape = "quantile", tau: float = 3.0, kappa_q: float = 0.0) -> None:
        super().__init__()
        if n_bits < 1:
            raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
        if not tau >= 0:
            raise ValueError(f"tau is {tau}; no channel is that narrow")
        if shape not in get_args(Shape):
            raise ValueError(f"shape is {shape}; there are {', '.join(get_args(Shape))}")
        self.n_bits, self.shape, self.tau, self.kappa_q = n_bits, shape, tau, kappa_q
        if shape == "learned":
            self.steps = nn.Parameter(torch.zeros(_PIECES))

    def _bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity of the batch, in bits; with ``rarity`` the
        similarities are weighted already."""
        if self.shape == "rarity":
            return sch_bounds(similarity, self.n_bits, self.tau)
        places, heights = similarity_quantiles(similarity) if self.shape == "quantile" else self._line()
        return sch_bounds(_interpolated(similarity, places, heights), self.n_bits, self.tau)

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        items = items_of(batch, self.n_bits)
        codes = items.by_modality(items.codes)
        labels = items.labels[: codes.shape[1]]
        weights = rarity_weights(labels) if self.shape == "rarity" else 1
        bounds = self._bounds(label_similarity(labels * weights).to(codes))
        directions = unit_rows(items.codes).view_as(codes)
        loss = channel_error(directions, directions, bounds) / codes.shape[1] ** 2
        if self.kappa_q:
            loss = loss + self.kappa_q / codes.shape[1] * quantization_error(codes)
        return loss

    def _line(self) -> tuple[Tensor, Tensor]:
        heights = self.steps.softmax(dim=0).cumsum(dim=0)
        places = torch.linspace(0, 1, _PIECES + 1).to(heights)
        return places, torch.cat([heights.new_zeros(1), heights[:-1], heights.new_ones(1)])


def rarity_weights(labels: Tensor) -> Tensor:
    """Return (−log p_c)^½ as in `ShapedSCHLoss`: ``(n, c)`` labels to ``(c,)``, all above 0.

    >>> rare, common = rarity_weights(torch.tensor([[0, 1], [0, 1], [1, 1]]))
    >>> (rare > common).item()
    True
    """
    having = labels.bool().sum(dim=0)
    return torch.log((len(labels) + 2) / (having + 1)).sqrt()


def similarity_quantiles(similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Return points (S, F(S) / F(1)) of the quantile function of `ShapedSCHLoss`, ascending, from (0, 0) to (1, 1).

    Args:
        similarity: any shape, in [0, 1]; zeros count for nothing.

    Returns:
        Places and heights, one point for each value that occurs besides 0 and 1.

    >>> places, heights = similarity_quantiles(torch.tensor([0.0, 0.5, 1.0]))
    >>> places.tolist(), [round(height, 3) for height in heights.tolist()]
    ([0.0, 0.5, 1.0], [0.0, 0.333, 1.0])
    """
    values, counts = torch.unique(similarity[similarity > 0], return_counts=True)
    if not len(values) or values[-1] < 1:  # a pair of a sample with itself is among those of any batch
        values, counts = torch.cat([values, values.new_ones(1)]), torch.cat([counts, counts.new_ones(1)])
    heights = (counts.cumsum(dim=0) - 0.5 * counts).to(values)
    zero = values.new_zeros(1)
    return torch.cat([zero, values]), torch.cat([zero, heights / heights[-1]])


def _interpolated(x: Tensor, places: Tensor, heights: Tensor) -> Tensor:
    """Interpolate between points in ascending order; the first is at or below all ``x``, the last at or above."""
    right = torch.searchsorted(places, x.contiguous()).clamp(1, len(places) - 1)
    left = right - 1
    fraction = (x - places[left]) / (places[right] - places[left])
    return heights[left] + fraction * (heights[right] - heights[left])
