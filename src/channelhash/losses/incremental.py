"""Training on new items while the codes of old ones stay as they are.

That stored codes are constants and new items learn theirs against them is the idea of Wu, Dai, Liu, Li and Wang, "Deep
Incremental Hashing Network for Efficient Image Retrieval" (CVPR 2019); that a new model is trained to stay comparable
with what an old one made, that of Shen, Xiong, Xia and Soatto, "Towards Backward-Compatible Representation Learning"
(CVPR 2020). Here both are stated in channels: the channels of the loss that made the old codes place the new ones.
"""

import math
from typing import Any

import torch
from torch import Tensor

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.base import Batch, ChannelLoss, HashLoss, Outputs
from channelhash.utils.seeds import generator


def _stored_loss(
    outputs: Outputs, labels: Tensor, stored: Outputs, stored_labels: Tensor, channels: ChannelLoss
) -> Tensor:
    """Return how far the outputs of r samples are outside their channels with c stored codes, which are constants::

        1/(r c) · Σ_{m, m'} Σ_{i, j} (ψ_ij · max(0, lower_ij − d, d − upper_ij))^γ_ℓ,   d = d(û_i^m, b_j^m')

    >>> from channelhash.losses import SCHLoss
    >>> codes = {"text": torch.tensor([[1.0, 1, 1, 1]])}
    >>> _stored_loss(codes, torch.tensor([[1, 0]]), codes, torch.tensor([[0, 1]]), SCHLoss(n_bits=4)).item()
    2.0
    """
    values = torch.stack(list(outputs.values()))
    codes = torch.stack([stored[modality] for modality in outputs]).to(values) / math.sqrt(values.shape[2])
    directions = unit_rows(values.flatten(0, 1)).view_as(values)
    similarity = label_similarity(labels.to(values), stored_labels.to(values))
    error = channels.pair_error(directions, codes, similarity)
    return error / similarity.numel()


def _keep_loss(outputs: Outputs, codes: Outputs) -> Tensor:
    """Return 1/r · Σ_m Σ_i d(û_i^m, b_i^m): how many bits r samples have moved away from their own codes.

    >>> round(_keep_loss({"text": torch.tensor([[2.0, 2, 2, -2]])}, {"text": torch.ones(1, 4)}).item(), 4)
    1.0
    """
    values = torch.stack(list(outputs.values()))
    stored = torch.stack([codes[modality] for modality in outputs]).to(values) / math.sqrt(values.shape[2])
    cosines = (unit_rows(values.flatten(0, 1)).view_as(values) * stored).sum(dim=2)
    return 0.5 * values.shape[2] * (1 - cosines).sum() / values.shape[1]


class ExtensionLoss(HashLoss):
    """A loss with channels of a batch's new items, and two terms by which stored codes stay valid: L = L_own +
    w_s · `_stored_loss` of the new items + w_k · `_keep_loss` of the old ones.

    A term is 0 for a batch without its items.

    >>> from channelhash.losses import DSCHLoss
    >>> codes, labels, is_new = {"text": torch.ones(2, 4)}, torch.ones(2, 1), torch.tensor([False, True])
    >>> loss = ExtensionLoss(DSCHLoss(n_bits=4), codes, is_new, codes, labels)
    >>> loss(codes, labels, rows=torch.tensor([0, 1])).item()  # old and new items are where the stored codes are
    0.0
    """

    needs_rows = True

    def __init__(
        self,
        own: HashLoss,
        codes: Outputs,
        is_new: Tensor,
        stored: Outputs,
        stored_labels: Tensor,
        weight_stored: float = 1.0,
        weight_keep: float = 1.0,
        partners: int = 2048,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if own.channels is None:
            raise ValueError("this loss has no channels to place new items in; take dsch, sch, bsch or rsch")
        self.own, self.weight_stored, self.weight_keep = own, weight_stored, weight_keep
        self.partners, self.seed = partners, seed
        self.modalities = tuple(codes)
        constants = {"is_new": is_new, "stored_labels": stored_labels}
        constants |= {f"codes_{modality}": values for modality, values in codes.items()}
        constants |= {f"stored_{modality}": stored[modality] for modality in codes}
        for name, values in constants.items():  # on the model's device, but in no checkpoint: they never change
            self.register_buffer(name, values, persistent=False)

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        outputs, labels, channels = batch.outputs, batch.labels, self.own.channels
        assert batch.rows is not None  # `forward` has checked it
        assert channels is not None  # so has the constructor
        rows = batch.rows.to(labels.device)
        new = self.get_buffer("is_new")[rows]
        old = ~new
        total = sum((values.sum() for values in outputs.values()), labels.new_zeros((), dtype=torch.float32)) * 0
        if new.any():
            total = total + self.own(_rows(outputs, new), labels[new])
        if self.weight_stored and new.any():
            drawn = self._partners(rows)
            stored = {modality: self.get_buffer(f"stored_{modality}")[drawn] for modality in outputs}
            stored_labels = self.get_buffer("stored_labels")[drawn]
            error = _stored_loss(_rows(outputs, new), labels[new], stored, stored_labels, channels)
            total = total + self.weight_stored * error
        if self.weight_keep and old.any():
            codes = {modality: self.get_buffer(f"codes_{modality}")[rows[old]] for modality in outputs}
            total = total + self.weight_keep * _keep_loss(_rows(outputs, old), codes)
        return total

    def _partners(self, rows: Tensor) -> Tensor:
        """Return which stored codes a batch sees: all, or as many drawn with replacement."""
        n_stored = len(self.get_buffer("stored_labels"))
        if n_stored <= self.partners:
            return torch.arange(n_stored, device=rows.device)
        random = generator(self.seed, "partners", *rows.tolist())
        return torch.from_numpy(random.integers(0, n_stored, self.partners)).to(rows.device)


def _rows(outputs: Outputs, part: Any) -> Outputs:
    return {modality: values[part] for modality, values in outputs.items()}
