"""InfoNCE: a sample's outputs in two modalities find each other in the batch."""

from dataclasses import replace
from itertools import combinations
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_cosines, unit_rows
from channelhash.losses.base import Batch, HashLoss


class ContrastiveLoss(HashLoss):
    """InfoNCE (van den Oord et al. 2018) with cosines between modalities, both ways, as CLIP does
    (2021)::

        L = mean over ordered pairs of modalities a ≠ b and samples i of
            −log ( e^(cos(a_i, b_i) / T) / Σ_j e^(cos(a_i, b_j) / T) )

    The loss learns from pairs alone, such as images with their captions: labels are not read. A
    sample's codes find each other among those of the batch, so large batches teach more.

    Args:
        temperature: T > 0, of cosines.

    Raises:
        ValueError: T is not above 0.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> round(ContrastiveLoss()({"image": codes, "text": codes}, torch.ones(2, 1)).item(), 4)
    0.0
    """

    def __init__(
        self, temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.07
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it is above 0")
        self.temperature = temperature

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        return self.compute_by_labels(replace(batch, labels=batch.labels[:, :0]))

    def compute_by_labels(self, batch: Batch) -> Tensor:
        """Return the loss in which j is i or has S_ij < 1.

        Samples with the same set of labels (S = 1) are not negatives of each other: the losses of
        this package put them at distance 0. Samples that share some labels, or that have none, are.
        """
        outputs = batch.outputs
        if len(outputs) < 2:
            raise ValueError(
                "a contrastive term is between modalities, the outputs are of "
                f"{', '.join(outputs)} alone"
            )
        first = next(iter(outputs.values()))
        left_out = (label_cosines(batch.labels.to(first)) == 1).fill_diagonal_(False)
        partner = torch.arange(len(first), device=first.device)
        terms = []
        for a, b in combinations(map(unit_rows, outputs.values()), 2):
            logits = (a @ b.T / self.temperature).masked_fill(left_out, -torch.inf)
            terms += [F.cross_entropy(logits, partner), F.cross_entropy(logits.T, partner)]
        return torch.stack(terms).mean()
