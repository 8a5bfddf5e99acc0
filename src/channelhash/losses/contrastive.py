"""Contrastive term: a sample's outputs in two modalities find each other in the batch."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.base import Batch, HashLoss
from channelhash.losses.functional import Outputs, checked_batch, checked_outputs

#: T of cosines.
Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]
#: Numbers of leading outputs that are codes themselves.
Prefixes = tuple[Annotated[int, Field(ge=1)], ...]
#: A weight of a term.
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def contrastive_term(outputs: Outputs, labels: Tensor, temperature: float = 0.07, hard: float = 0.0) -> Tensor:
    """Return InfoNCE (van den Oord et al. 2018) with cosines between modalities, both ways, as CLIP does (2021)::

        L = mean over ordered pairs of modalities a ≠ b and samples i of
            −log ( e^(cos(a_i, b_i) / T) / Σ_{j = i or S_ij < 1} e^(cos(a_i, b_j) / T) )

    Samples with the same set of labels (S = 1) are not negatives of each other: the losses of this package put them at
    distance 0. Samples that share some labels, or that have none, are.

    With ``hard`` a negative j of i weighs ω_ij = e^(β cos(a_i, b_j) / T), divided by the mean over the negatives of i,
    in the sum (Robinson et al. 2021, "Contrastive Learning with Hard Negative Samples"); no gradient flows through ω.

    Args:
        outputs: modality -> ``(n, k)`` real-valued codes, two modalities or more.
        labels: ``(n, c)`` bool or 0/1.
        temperature: T > 0, of cosines: a bit is 2 / (k T) of a logit.
        hard: β ≥ 0; 0 weighs all negatives alike.

    Returns:
        A scalar ≥ 0, in float32 (float64 for float64 outputs) also under autocast. Time O(m² n² k), memory O(m² n²)
        for m modalities.

    Raises:
        ValueError: there is one modality, or the shapes of outputs and labels do not fit together.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> round(contrastive_term({"image": codes, "text": codes}, torch.eye(2)).item(), 4)
    0.0
    """
    outputs, labels = checked_batch(outputs, labels)
    if len(outputs) < 2:
        raise ValueError(f"a contrastive term is between modalities, the outputs are of {', '.join(outputs)} alone")
    first = next(iter(outputs.values()))
    with torch.autocast(first.device.type, enabled=False):
        same = label_similarity(labels.to(first)) == 1
        left_out = same.fill_diagonal_(False)
        partner = torch.arange(len(first), device=first.device)
        directions = {modality: unit_rows(codes) for modality, codes in outputs.items()}
        terms = []
        for a, b in combinations(directions.values(), 2):
            logits = (a @ b.T / temperature).masked_fill(left_out, -torch.inf)
            terms += [F.cross_entropy(_weighted(part, hard), partner) for part in (logits, logits.T)]
        return torch.stack(terms).mean()


def _weighted(logits: Tensor, hard: float) -> Tensor:
    """Return logits whose exponentials, of negatives, have the weights ω of `contrastive_term`."""
    if not hard:
        return logits
    weights = (hard * logits.detach()).fill_diagonal_(-torch.inf)
    n_negatives = weights.isfinite().to(weights).sum(dim=1, keepdim=True).clamp_min(1)
    log_mean = (weights.logsumexp(dim=1, keepdim=True) - n_negatives.log()).nan_to_num(neginf=0.0)  # none: all are −∞
    return logits + (weights - log_mean).fill_diagonal_(0.0)


def pairs_term(
    outputs: Outputs,
    temperature: float = 0.07,
    prefixes: Sequence[int] = (),
    binary: float = 0.0,
    hard: float = 0.0,
) -> Tensor:
    """Return InfoNCE over pairs, each sample as a class of its own; also of nested codes, and of the bits themselves::

        L = mean over p in prefixes of ( N(z[:p]) + w_b · N(signs(z[:p])) ),   N = `contrastive_term`

    Args:
        outputs: modality -> ``(n, k)`` real-valued codes, two modalities or more.
        temperature: T > 0, of cosines.
        prefixes: numbers p ≤ k of leading outputs that are to be codes themselves; all k if empty.
        binary: weight w_b ≥ 0 of the same term of `signs`.
        hard: as in `contrastive_term`.

    Returns:
        A scalar ≥ 0. Time and memory are those of `contrastive_term` for each prefix.

    Raises:
        ValueError: there is one modality, or a prefix exceeds k.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> terms = [pairs_term({"image": codes, "text": codes}, prefixes=p).item() for p in ([1], [2], [1, 2])]
    >>> round(terms[0] + terms[1] - 2 * terms[2], 4)
    0.0
    """
    outputs = checked_outputs(outputs)
    first = next(iter(outputs.values()))
    k, no_labels = first.shape[1], first[:, :0]
    if any(not 1 <= width <= k for width in prefixes):
        raise ValueError(f"prefixes are {list(prefixes)}, the outputs have {k} columns")
    terms = []
    for width in prefixes or [k]:
        part = {modality: codes[:, :width] for modality, codes in outputs.items()}
        terms.append(contrastive_term(part, no_labels, temperature, hard))
        if binary:
            bits = {modality: signs(codes) for modality, codes in part.items()}
            terms[-1] = terms[-1] + binary * contrastive_term(bits, no_labels, temperature, hard)
    return torch.stack(terms).mean()


def signs(codes: Tensor) -> Tensor:
    """Return the signs of ``(n, k)`` codes, −1 or 1, with the gradient of tanh (a straight-through estimate).

    Codes are scaled to a mean square of 1 in each row before the tanh, so their length does not matter.

    >>> signs(torch.tensor([[0.5, -2.0]])).tolist()
    [[1.0, -1.0]]
    """
    soft = torch.tanh(unit_rows(codes) * codes.shape[1] ** 0.5)
    hard = torch.where(codes >= 0, 1.0, -1.0).to(codes.dtype)
    return soft + (hard - soft).detach()


class ContrastiveLoss(HashLoss):
    """InfoNCE over pairs: `pairs_term`.

    The loss learns from pairs alone, such as images with their captions: labels are not read. A sample's codes find
    each other among those of the batch, so large batches teach more.

    Args:
        temperature: T > 0, of cosines.
        prefixes: lengths of the codes that the leading outputs are, such as ``[64, 128, 256]``; all outputs if empty.
        binary: weight w_b ≥ 0 of the same loss of the signs of the outputs.
        hard: β ≥ 0; negatives weigh e^(β · logit), divided by the mean.

    Raises:
        ValueError: T is not above 0, or a weight is below 0.

    >>> codes = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> round(ContrastiveLoss()({"image": codes, "text": codes}, torch.ones(2, 1)).item(), 4)
    0.0
    """

    def __init__(
        self,
        temperature: Temperature = 0.07,
        prefixes: Prefixes = (),
        binary: Weight = 0.0,
        hard: Weight = 0.0,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it is above 0")
        if not (binary >= 0 and hard >= 0):
            raise ValueError(f"binary is {binary} and hard is {hard}; they are 0 or more")
        self.temperature, self.prefixes, self.binary, self.hard = temperature, prefixes, binary, hard

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        return pairs_term(batch.outputs, self.temperature, self.prefixes, self.binary, self.hard)
