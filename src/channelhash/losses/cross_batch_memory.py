"""Cross-batch memory: a channel loss over pairs of the batch with samples of the batches before it."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.functional import Outputs, checked_batch, pair_error
from channelhash.losses.tiled_pairs import WHOLE, Share, sum_against


class ChannelLoss(Protocol):
    """What a loss has to say of its channels so that others can hold pairs against them; symbols as in `DSCHLoss`."""

    n_bits: int
    alpha: float
    beta: float
    gamma_l: float
    hardness: float

    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]: ...


class Memory(nn.Module):
    """Outputs and labels of the last M samples, as in Wang et al., "Cross-Batch Memory for Embedding Learning" (CVPR
    2020). Without a gradient, and as they were: the model has moved on since.

    A sample has no identity here. One that meets itself as of an epoch before is a sample with the same labels (S = 1),
    and one without labels is, like any other without, dissimilar to itself.

    What is kept is part of the state that a checkpoint holds, and is of one size in all processes: each sees the
    outputs of all of them.

    Args:
        size: M ≥ 1.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.directions: dict[str, Tensor] = {}
        self.labels: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.labels is None else len(self.labels)

    def error(self, outputs: Outputs, labels: Tensor, loss: ChannelLoss, share: Share = WHOLE) -> Tensor:
        """Sum of the channel's errors of all pairs of a sample of the batch with one in memory, of any modalities,
        divided by n · (samples in memory) as the loss's own is by n²; 0 while the memory is empty.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes.
            labels: ``(n, c)`` bool or 0/1.
            loss: whose channels and weights; its quantisation error is of no pair, and left out.
            share: which part of the sum, as in `tiled_pairs.sum_against`.

        Raises:
            ValueError: the memory is of other modalities, or the shapes of outputs and labels do not fit together.
        """
        outputs, labels = checked_batch(outputs, labels)
        first = next(iter(outputs.values()))
        if self.labels is None:
            return first.new_zeros(())
        if outputs.keys() != self.directions.keys():
            raise ValueError(f"the memory is of {', '.join(self.directions)}, the outputs of {', '.join(outputs)}")
        with torch.autocast(first.device.type, enabled=False):
            directions = torch.stack([unit_rows(codes) for codes in outputs.values()])
            kept = torch.stack([self.directions[modality].to(first) for modality in outputs])
            values, kept_values = labels.to(first), self.labels.to(first)

            def tile_error(a: Tensor, b: Tensor, rows: slice, columns: slice) -> Tensor:
                similarity = label_similarity(values[rows], kept_values[columns])
                return pair_error(
                    a,
                    b,
                    similarity,
                    loss.bounds(similarity),
                    alpha=loss.alpha,
                    beta=loss.beta,
                    gamma_l=loss.gamma_l,
                    hardness=loss.hardness,
                )

            return sum_against(directions, kept, tile_error, share) / (len(first) * len(self))

    @torch.no_grad()
    def keep(self, outputs: Outputs, labels: Tensor) -> None:
        """Take a batch in; the oldest samples make room."""
        outputs, labels = checked_batch(outputs, labels)
        for modality, codes in outputs.items():
            before = self.directions.get(modality, codes[:0])
            self.directions[modality] = torch.cat([before.to(codes), unit_rows(codes)])[-self.size :]
        before = labels[:0] if self.labels is None else self.labels
        self.labels = torch.cat([before.to(labels), labels])[-self.size :]

    def get_extra_state(self) -> dict[str, Any]:
        """For `state_dict`: buffers have a size before the first batch is seen, this has none."""
        return {"directions": dict(self.directions), "labels": self.labels}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """For `load_state_dict`; tensors come to the outputs' device when they are used."""
        self.directions, self.labels = dict(state["directions"]), state["labels"]
