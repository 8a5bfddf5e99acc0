"""Losses that were published for one modality, on batches of several.

Every code of every modality is an item of its own and carries the labels of its sample. A loss over
pairs is then over all ordered pairs of modalities, within and across, as the channel losses are
(``protocol.md`` § 5); a loss over single items counts each modality once; and centres, proxies and
classifiers are shared by the modalities, which is what brings their codes together. A sample is as
similar to itself across modalities as within one: S = 1, also without labels.

Terms are means over items or pairs, so that their weights do not depend on the batch size or the
number of modalities, unless a loss says otherwise.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_cosines
from channelhash.losses.base import Batch, HashLoss


@dataclass(frozen=True)
class StackedItems:
    """The N = m · n codes of a batch of n samples in m modalities, modality by modality.

    Attributes:
        codes: ``(N, k)`` real-valued codes, at least float32.
        labels: ``(N, c)`` 0/1 in the type of the codes.
        n_modalities: m.

    >>> items = StackedItems(torch.zeros(4, 8), torch.eye(2).repeat(2, 1), n_modalities=2)
    >>> items.similarity()[0].tolist()  # the first sample's image with all four items
    [1.0, 0.0, 1.0, 0.0]
    """

    codes: Tensor
    labels: Tensor
    n_modalities: int

    @property
    def n_samples(self) -> int:
        """Number n of samples."""
        return len(self.codes) // self.n_modalities

    def similarity(self) -> Tensor:
        """Return S of all pairs, ``(N, N)`` in [0, 1]."""
        samples = self.labels[: self.n_samples]
        return label_cosines(samples).to(self.codes).repeat(self.n_modalities, self.n_modalities)

    def likelihood_of_halves(self, codes: Tensor, alpha: float) -> Tensor:
        """Return the mean of log(1 + e^Ω) − s Ω, Ω = α · h_iᵀ h_j, i in the first half of the
        items, j in the second: image and text of two modalities.

        Authors of losses over pairs for one modality draw their pairs so, from two halves of a
        batch.

        >>> items = StackedItems(torch.zeros(2, 4), torch.ones(2, 1), n_modalities=2)
        >>> round(items.likelihood_of_halves(items.codes, alpha=2.5).item(), 4)  # log(1 + e^0)
        0.6931
        """
        half = len(codes) // 2
        logits = alpha * (codes[:half] @ codes[half:].T)
        similar = self.similarity()[:half, half:] > 0
        return (F.softplus(logits) - similar * logits).sum() / max(1, logits.numel())

    def mean_of_labelled(self, values: Tensor) -> Tensor:
        """Return the mean of ``values`` ``(N,)`` over the items that have a label; 0 if none has.

        >>> items = StackedItems(torch.zeros(2, 8), torch.tensor([[1], [0]]), n_modalities=1)
        >>> items.mean_of_labelled(torch.tensor([1.0, 5.0])).item()
        1.0
        """
        return mean_where(values, self.labels.any(dim=1))

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Return the mean cross-entropy of ``(N, c)`` logits against a distribution that is even
        over an item's labels; items without labels are left out.

        >>> items = StackedItems(torch.zeros(2, 8), torch.tensor([[1, 1], [0, 0]]), 1)
        >>> round(items.cross_entropy(torch.zeros(2, 2)).item(), 4)  # log 2
        0.6931
        """
        target = self.labels / self.labels.sum(dim=1, keepdim=True).clamp_min(1)
        return self.mean_of_labelled(-(target * torch.log_softmax(logits, dim=1)).sum(dim=1))

    def irrelevant(self) -> Tensor:
        """Return which pairs both have two labels or more and share none, ``(N, N)`` bool."""
        several = self.labels.sum(dim=1) > 1
        return several[:, None] & several & (self.labels @ self.labels.T == 0)

    def sum_of_pairs(self, values: Tensor, chosen: Tensor) -> Tensor:
        """Return the mean of the ``chosen`` pairs, added up over unordered pairs of modalities; a
        mean of none is 0.

        Args:
            values: ``(N, N)``.
            chosen: ``(N, N)`` bool, the same pairs of samples for each two modalities.

        >>> items = StackedItems(torch.zeros(2, 8), torch.ones(2, 1), n_modalities=2)
        >>> image_image, image_text, text_text = 1.0, 10.0, 100.0
        >>> values = torch.tensor([[image_image, image_text], [image_text, text_text]])
        >>> items.sum_of_pairs(values, torch.ones(2, 2) > 0).item()
        111.0
        """
        m = self.n_modalities
        n = self.n_samples
        by_modalities = (values * chosen).view(m, n, m, n).sum(dim=(1, 3)).triu()
        return by_modalities.sum() / chosen[:n, :n].sum().clamp_min(1)

    def by_modality(self, values: Tensor) -> Tensor:
        """Return ``(N, …)`` values as ``(m, n, …)``."""
        return values.view(self.n_modalities, -1, *values.shape[1:])


def items_of(batch: Batch, n_bits: int, n_labels: int | None = None) -> StackedItems:
    """Return the items of a batch for a loss that was made for ``n_bits`` and, unless None, for
    ``n_labels``.

    >>> batch = Batch({"image": torch.zeros(3, 8), "text": torch.ones(3, 8)}, torch.eye(3))
    >>> items_of(batch, n_bits=8).codes.shape
    torch.Size([6, 8])

    Raises:
        ValueError: the outputs have another number of bits, or the labels are others.
    """
    codes = batch.codes_of_width(n_bits).flatten(0, 1)
    if n_labels is not None and batch.labels.shape[1] != n_labels:
        raise ValueError(
            f"this loss is for {n_labels} labels, the batch has {batch.labels.shape[1]}"
        )
    return StackedItems(
        codes, batch.labels.to(codes).repeat(len(batch.outputs), 1), len(batch.outputs)
    )


class ItemLoss(HashLoss):
    """A loss that sees a batch as its `StackedItems`. A subclass implements `compute_items`.

    Args:
        n_bits: code length k.
        n_labels: number of labels c, for a loss that has something of its own for each.
    """

    def __init__(self, n_bits: int, n_labels: int | None = None) -> None:
        super().__init__()
        self.n_bits = n_bits
        self.n_labels = n_labels

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        return self.compute_items(items_of(batch, self.n_bits, self.n_labels))

    @abstractmethod
    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of the items of a batch."""


def mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the ``chosen`` values; 0 if there are none.

    >>> mean_where(torch.tensor([1.0, 5.0]), torch.tensor([True, False])).item()
    1.0
    """
    return (values * chosen).sum() / chosen.sum().clamp_min(1)
