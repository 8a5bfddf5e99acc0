"""Contrastive term: a sample's outputs in two modalities find each other in the batch."""

from itertools import combinations
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_cosines, unit_rows
from channelhash.losses.base import Batch, HashLoss
from channelhash.losses.functional import Outputs, checked_labels, checked_outputs

#: T of cosines.
Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def contrastive_term(outputs: Outputs, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Return InfoNCE (van den Oord et al. 2018) with cosines between modalities, both ways, as CLIP does (2021)::

        L = mean over ordered pairs of modalities a ≠ b and samples i of
            −log ( e^(cos(a_i, b_i) / T) / Σ_{j = i or S_ij < 1} e^(cos(a_i, b_j) / T) )

    Samples with the same set of labels (S = 1) are not negatives of each other: the losses of this package put them at
    distance 0. Samples that share some labels, or that have none, are.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> round(contrastive_term({"image": codes, "text": codes}, torch.eye(2)).item(), 4)
    0.0
    """
    outputs = checked_outputs(outputs)
    if len(outputs) < 2:
        raise ValueError(f"a contrastive term is between modalities, the outputs are of {', '.join(outputs)} alone")
    first = next(iter(outputs.values()))
    with torch.autocast(first.device.type, enabled=False):
        same = label_cosines(checked_labels(labels, first).to(first)) == 1
        left_out = same.fill_diagonal_(False)
        partner = torch.arange(len(first), device=first.device)
        directions = {modality: unit_rows(codes) for modality, codes in outputs.items()}
        terms = []
        for a, b in combinations(directions.values(), 2):
            logits = (a @ b.T / temperature).masked_fill(left_out, -torch.inf)
            terms += [F.cross_entropy(logits, partner), F.cross_entropy(logits.T, partner)]
        return torch.stack(terms).mean()


class ContrastiveLoss(HashLoss):
    """InfoNCE over pairs: `contrastive_term` with each sample as a class of its own.

    The loss learns from pairs alone, such as images with their captions: labels are not read. A sample's codes find
    each other among those of the batch, so large batches teach more.

    Args:
        temperature: T > 0, of cosines.

    Raises:
        ValueError: T is not above 0.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> round(ContrastiveLoss()({"image": codes, "text": codes}, torch.ones(2, 1)).item(), 4)
    0.0
    """

    def __init__(self, temperature: Temperature = 0.07) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it is above 0")
        self.temperature = temperature

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        return contrastive_term(batch.outputs, batch.labels[:, :0], self.temperature)
