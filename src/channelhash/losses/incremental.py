"""Training on new items while the codes of old ones stay as they are.

That stored codes are constants and new items learn theirs against them is the idea of Wu, Dai, Liu, Li and Wang, "Deep
Incremental Hashing Network for Efficient Image Retrieval" (CVPR 2019); that a new model is trained to stay comparable
with what an old one made, that of Shen, Xiong, Xia and Soatto, "Towards Backward-Compatible Representation Learning"
(CVPR 2020). Here both are said in channels: whatever loss with channels made the old codes, its channels place the new.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.auxiliary import channels_of
from channelhash.losses.functional import Outputs, pair_error
from channelhash.utils.seeds import generator

Bounds = Callable[[Tensor], tuple[Tensor, Tensor]]


def stored_loss(
    outputs: Outputs,
    labels: Tensor,
    stored: Outputs,
    stored_labels: Tensor,
    bounds: Bounds,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma_l: float = 1.0,
    hardness: float = 0.0,
) -> Tensor:
    """1/(r c) · Σ_{m, m'} Σ_{i, j} ω · (ψ_ij · max(0, lower_ij − d, d − upper_ij))^γ_ℓ with d = d(û_i^m, b_j^m'):
    how far the outputs of r samples are outside their channels with c stored codes, which are constants.

    Args:
        outputs: modality -> ``(r, k)`` real-valued, r ≥ 1.
        labels: ``(r, l)`` bool or 0/1.
        stored: the same modalities -> ``(c, k)`` of ±1, c ≥ 1.
        stored_labels: ``(c, l)``.
        bounds: similarity, any shape -> ``(lower, upper)`` end of the channel, in bits.
        alpha: weight of pairs with S = 1.
        beta: weight of pairs with S = 0.
        gamma_l: exponent of a pair's violation.
        hardness: η of ω, see `functional.channel_loss`; with 0, ω is 1.

    Returns:
        A scalar. Time O(m² r c k), memory O(m² r c).
    """
    values = torch.stack(list(outputs.values()))
    codes = torch.stack([stored[modality] for modality in outputs]).to(values) / math.sqrt(values.shape[2])
    directions = unit_rows(values.flatten(0, 1)).view_as(values)
    similarity = label_similarity(labels.to(values), stored_labels.to(values))
    error = pair_error(
        directions,
        codes,
        similarity,
        bounds(similarity),
        alpha=alpha,
        beta=beta,
        gamma_l=gamma_l,
        hardness=hardness,
    )
    return error / similarity.numel()


def keep_loss(outputs: Outputs, codes: Outputs) -> Tensor:
    """1/r · Σ_m Σ_i d(û_i^m, b_i^m): how many bits r samples have moved away from their own codes.

    Args:
        outputs: modality -> ``(r, k)`` real-valued, r ≥ 1.
        codes: the same modalities -> ``(r, k)`` of ±1.

    Returns:
        A scalar, in bits of relaxed Hamming distance (eq. (2) of the paper), summed over modalities.
    """
    values = torch.stack(list(outputs.values()))
    own = torch.stack([codes[modality] for modality in outputs]).to(values) / math.sqrt(values.shape[2])
    cosines = (unit_rows(values.flatten(0, 1)).view_as(values) * own).sum(dim=2)
    return 0.5 * values.shape[2] * (1 - cosines).sum() / values.shape[1]


class ExtensionLoss(nn.Module):
    """A loss with channels, and two terms by which stored codes stay valid: L = L_own + w_s · `stored_loss` of the
    batch's new items + w_k · `keep_loss` of its old items.

    A term whose items a batch has none of is 0 there.

    Args:
        own: the loss; has channels, see `auxiliary.channels_of`.
        codes: modality -> ``(n, k)`` of ±1, the stored codes of the training rows; rows of new items are not read.
        is_new: ``(n,)`` bool, which training rows are new.
        stored: modality -> ``(c, k)`` of ±1, the codes that new items are placed against.
        stored_labels: ``(c, l)`` bool.
        weight_stored: w_s.
        weight_keep: w_k.
        pairs: L_own is over the pairs of new items with new, or over all pairs of the batch.
        partners: at most so many stored codes are drawn for a batch.
        seed: of that draw, which is a function of it and of the batch's rows: a resumed training draws the same.
    """

    def __init__(
        self,
        own: nn.Module,
        codes: Outputs,
        is_new: Tensor,
        stored: Outputs,
        stored_labels: Tensor,
        weight_stored: float = 1.0,
        weight_keep: float = 1.0,
        pairs: Literal["new", "all"] = "new",
        partners: int = 2048,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if channels_of(own) is None:
            raise ValueError("this loss has no channels to place new items in; take dsch, sch, bsch or rsch")
        self.own, self.weight_stored, self.weight_keep, self.pairs = own, weight_stored, weight_keep, pairs
        self.partners, self.seed = partners, seed
        self.modalities = tuple(codes)
        constants = {"is_new": is_new, "stored_labels": stored_labels}
        constants |= {f"codes_{modality}": values for modality, values in codes.items()}
        constants |= {f"stored_{modality}": stored[modality] for modality in codes}
        for name, values in constants.items():  # on the model's device, but in no checkpoint: they never change
            self.register_buffer(name, values, persistent=False)

    def forward(self, outputs: Outputs, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss of one batch, a scalar.

        Args:
            outputs: modality -> ``(b, k)``.
            labels: ``(b, l)``.
            rows: ``(b,)`` which training rows these are.
        """
        rows = rows.to(labels.device)
        new = self._of("is_new")[rows]
        old = ~new
        total = sum((values.sum() for values in outputs.values()), labels.new_zeros((), dtype=torch.float32)) * 0
        if self.pairs == "all" or new.any():
            part = slice(None) if self.pairs == "all" else new
            total = total + self.own(_rows(outputs, part), labels[part])
        if self.weight_stored and new.any():
            chosen, channels = self._partners(rows), channels_of(self.own)
            assert channels is not None
            stored = {modality: self._of(f"stored_{modality}")[chosen] for modality in outputs}
            error = stored_loss(
                _rows(outputs, new),
                labels[new],
                stored,
                self._of("stored_labels")[chosen],
                channels.bounds,
                alpha=channels.alpha,
                beta=channels.beta,
                gamma_l=channels.gamma_l,
                hardness=channels.hardness,
            )
            total = total + self.weight_stored * error
        if self.weight_keep and old.any():
            codes = {modality: self._of(f"codes_{modality}")[rows[old]] for modality in outputs}
            total = total + self.weight_keep * keep_loss(_rows(outputs, old), codes)
        return total

    def _partners(self, rows: Tensor) -> Tensor:
        """Which stored codes a batch sees: all, or as many drawn with replacement."""
        there = len(self._of("stored_labels"))
        if there <= self.partners:
            return torch.arange(there, device=rows.device)
        random = generator(self.seed, "partners", *rows.tolist())
        return torch.from_numpy(random.integers(0, there, self.partners)).to(rows.device)

    def _of(self, name: str) -> Tensor:
        values: Tensor = getattr(self, name)
        return values


def _rows(outputs: Outputs, part: Any) -> Outputs:
    return {modality: values[part] for modality, values in outputs.items()}
