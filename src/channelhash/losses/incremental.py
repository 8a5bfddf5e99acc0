"""Train on new items while the codes of old ones stay unchanged.

That stored codes are constants and new items learn theirs against them is the idea of Wu, Dai, Liu,
Li and Wang, "Deep Incremental Hashing Network for Efficient Image Retrieval" (CVPR 2019); that a
new model is trained to stay comparable with what an old one made, that of Shen, Xiong, Xia and
Soatto, "Towards Backward-Compatible Representation Learning" (CVPR 2020). Here both are stated in
channels: the channels of the loss that made the old codes place the new ones.
"""

import math

import torch
from torch import Tensor

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.base import Batch, ChannelLoss, HashLoss, OutputsByModality
from channelhash.utils.seeds import generator


def _stored_loss(
    outputs: OutputsByModality,
    labels: Tensor,
    stored: OutputsByModality,
    stored_labels: Tensor,
    channels: ChannelLoss,
) -> Tensor:
    """Return how far the outputs of r samples are outside their channels with c stored codes, which
    are constants::

        1/(r c) · Σ_{m, m'} Σ_{i, j} (ψ_ij · max(0, lower_ij − d, d − upper_ij))^γ_ℓ,   d = d(û_i^m,
        b_j^m')

    >>> from channelhash.losses import SCHLoss
    >>> codes = {"text": torch.tensor([[1.0, 1, 1, 1]])}
    >>> labels, stored_labels = torch.tensor([[[1, 0]], [[0, 1]]])
    >>> _stored_loss(codes, labels, codes, stored_labels, SCHLoss(n_bits=4)).item()
    2.0
    """
    directions, constants = _directions(outputs, stored)
    similarity = label_similarity(labels.to(directions), stored_labels.to(directions))
    return channels.pair_error(directions, constants, similarity) / similarity.numel()


def _keep_loss(outputs: OutputsByModality, codes: OutputsByModality) -> Tensor:
    """Return 1/r · Σ_m Σ_i d(û_i^m, b_i^m): how many bits r samples have moved away from their own
    codes.

    >>> outputs = {"text": torch.tensor([[2.0, 2, 2, -2]])}
    >>> round(_keep_loss(outputs, {"text": torch.ones(1, 4)}).item(), 4)
    1.0
    """
    directions, constants = _directions(outputs, codes)
    _, r, k = directions.shape
    return 0.5 * k * (1 - (directions * constants).sum(dim=2)).sum() / r


def _directions(outputs: OutputsByModality, codes: OutputsByModality) -> tuple[Tensor, Tensor]:
    """Return outputs and codes of ±1 of the same modalities as rows of length 1, ``(m, n, k)``
    each.
    """
    values = torch.stack(list(outputs.values()))
    constants = torch.stack([codes[modality] for modality in outputs]).to(values)
    return unit_rows(values), constants / math.sqrt(values.shape[2])


class ExtensionLoss(HashLoss):
    """A loss with channels of a batch's new items, and two terms by which stored codes stay valid:
    L = L_own + w_s · `_stored_loss` of the new items + w_k · `_keep_loss` of the old ones.

    A term is 0 for a batch without its items.

    Args:
        base_loss: L_own; it has channels.
        codes: stored codes of ±1 of c old items.
        labels: ``(c, …)`` their labels.
        rows: which of these each training row is; below 0 for a new item.
        stored: weight w_s.
        keep: weight w_k.
        partners: stored codes that a batch sees, at most.
        seed: of their draw.

    >>> from channelhash.losses import DSCHLoss
    >>> codes, labels = {"text": torch.ones(2, 4)}, torch.ones(2, 1)
    >>> loss = ExtensionLoss(DSCHLoss(n_bits=4), codes, labels, rows=torch.tensor([0, -1]))
    >>> loss(codes, labels, rows=torch.tensor([0, 1])).item()  # all are where stored codes are
    0.0
    """

    needs_rows = True

    def __init__(
        self,
        base_loss: HashLoss,
        codes: OutputsByModality,
        labels: Tensor,
        rows: Tensor,
        stored: float = 1.0,
        keep: float = 1.0,
        partners: int = 2048,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.base_loss = base_loss
        self.stored = stored
        self.keep = keep
        self.partners = partners
        self.seed = seed
        constants = {f"codes_{modality}": values for modality, values in codes.items()}
        constants |= {"labels": labels, "rows": rows}
        # on the model's device, but in no checkpoint: they never change
        for name, values in constants.items():
            self.register_buffer(name, values, persistent=False)

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        outputs = batch.outputs
        labels = batch.labels
        channels = self.base_loss.channels
        assert batch.rows is not None  # `forward` has checked it
        assert channels is not None  # `base_loss` has them
        rows = batch.rows.to(labels.device)
        stored_rows = self.get_buffer("rows")[rows]
        old = stored_rows >= 0
        new = stored_rows < 0
        total = batch.codes.sum() * 0
        if new.any():
            total = total + self.base_loss(_rows(outputs, new), labels[new])
            if self.stored:
                drawn = self._partners(rows)
                stored = self._codes(outputs, drawn)
                stored_labels = self.get_buffer("labels")[drawn]
                error = _stored_loss(
                    _rows(outputs, new), labels[new], stored, stored_labels, channels
                )
                total = total + self.stored * error
        if self.keep and old.any():
            codes = self._codes(outputs, stored_rows[old])
            total = total + self.keep * _keep_loss(_rows(outputs, old), codes)
        return total

    def _codes(self, outputs: OutputsByModality, rows: Tensor) -> OutputsByModality:
        return {modality: self.get_buffer(f"codes_{modality}")[rows] for modality in outputs}

    def _partners(self, rows: Tensor) -> Tensor:
        """Return the stored codes that a batch is compared with: all of them, or a draw with
        replacement.
        """
        n_stored = len(self.get_buffer("labels"))
        if n_stored <= self.partners:
            return torch.arange(n_stored, device=rows.device)
        random = generator(self.seed, "partners", *rows.tolist())
        return torch.from_numpy(random.integers(0, n_stored, self.partners)).to(rows.device)


def _rows(outputs: OutputsByModality, part: Tensor) -> OutputsByModality:
    return {modality: values[part] for modality, values in outputs.items()}
