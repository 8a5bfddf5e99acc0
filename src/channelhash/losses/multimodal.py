"""How a loss that was published for one modality sees a batch of several; decided here once for all of them.

Every code of every modality is an item of its own and carries the labels of its sample. A loss over pairs is then over
all ordered pairs of modalities, within and across, as the channel losses are (``protocol.md`` § 5); a loss over single
items counts each modality once; and centres, proxies and classifiers are shared by the modalities, which is what brings
their codes together. A sample is as similar to itself across modalities as within one: S = 1, also without labels.

Terms are means over items or pairs, so that their weights do not depend on the batch size or the number of modalities,
unless a loss says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from channelhash.channels import label_similarity
from channelhash.losses.functional import Outputs, check_width, checked_batch


@dataclass(frozen=True)
class Items:
    """The N = m · n codes of a batch of n samples in m modalities, modality by modality.

    Attributes:
        codes: ``(N, k)`` real-valued codes, at least float32.
        labels: ``(N, c)`` 0/1 in the type of the codes.
        n_modalities: m.
    """

    codes: Tensor
    labels: Tensor
    n_modalities: int

    def similarity(self) -> Tensor:
        """S of all pairs, ``(N, N)`` in [0, 1]."""
        samples = self.labels[: len(self.labels) // self.n_modalities]
        return label_similarity(samples).to(self.codes).repeat(self.n_modalities, self.n_modalities)

    def by_modality(self, values: Tensor) -> Tensor:
        """``(N, …)`` as ``(m, n, …)``."""
        return values.view(self.n_modalities, -1, *values.shape[1:])


def loss_of_items(outputs: Outputs, labels: Tensor, n_bits: int, loss: Callable[[Items], Tensor]) -> Tensor:
    """``loss`` of a batch's items, in float32 (float64 for float64 outputs) also under autocast.

    Args:
        outputs: modality -> ``(n, k)`` real-valued codes.
        labels: ``(n, c)`` bool or 0/1.
        n_bits: code length k that the loss was made for.
        loss: `Items` -> scalar.

    Raises:
        ValueError: the shapes of outputs and labels do not fit together, or k is not ``n_bits``.
    """
    outputs, labels = checked_batch(outputs, labels)
    stacked = torch.cat(list(outputs.values()))
    check_width(stacked, n_bits)
    with torch.autocast(stacked.device.type, enabled=False):
        return loss(Items(stacked, labels.to(stacked).repeat(len(outputs), 1), len(outputs)))


def check_labels(labels: Tensor, n_labels: int) -> None:
    """Raise `ValueError` unless ``labels`` are of the ``n_labels`` that a loss was made for."""
    if labels.shape[1] != n_labels:
        raise ValueError(f"this loss is for {n_labels} labels, the batch has {labels.shape[1]}")


def mean_of_labelled(values: Tensor, labels: Tensor) -> Tensor:
    """Mean of ``values`` ``(N,)`` over the items that have a label; 0 if none has."""
    labelled = labels.any(dim=1)
    return (values * labelled).sum() / labelled.sum().clamp_min(1)
