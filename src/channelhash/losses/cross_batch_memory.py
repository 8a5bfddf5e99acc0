"""Cross-batch memory: a channel loss over pairs of the batch with samples of the batches before it."""

from typing import Any

import torch
from torch import Tensor, nn

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.base import ChannelLoss
from channelhash.losses.functional import Outputs, checked_batch
from channelhash.losses.tiled_pairs import WHOLE, Shard, sum_against


class Memory(nn.Module):
    """Outputs and labels of the last M samples, as in Wang et al., "Cross-Batch Memory for Embedding Learning" (CVPR
    2020). Without a gradient, and as they were: the model has moved on since.

    A sample has no identity here. One that meets itself as of an epoch before is a sample with the same labels (S = 1),
    and one without labels is, like any other without, dissimilar to itself.

    What is kept is part of the state that a checkpoint holds, and is of one size in all processes: each sees the
    outputs of all of them.

    Args:
        size: M ≥ 1.

    >>> memory = Memory(size=3)
    >>> memory.keep({"text": torch.ones(2, 4)}, torch.eye(2))
    >>> memory.keep({"text": torch.ones(2, 4)}, torch.eye(2))
    >>> len(memory)
    3
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.directions: dict[str, Tensor] = {}
        self.labels: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.labels is None else len(self.labels)

    def error(self, outputs: Outputs, labels: Tensor, loss: ChannelLoss, shard: Shard = WHOLE) -> Tensor:
        """Return the sum of the channel errors of all pairs of a sample of the batch with one in memory, of any
        modalities, divided by n · (samples in memory) as the loss itself is by n²; 0 while the memory is empty.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes.
            labels: ``(n, c)`` bool or 0/1.
            loss: the loss with the channels and their weights; its quantisation error concerns no pair.
            shard: which part of the sum, as in `tiled_pairs.sum_against`.

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
                return loss.pair_error(a, b, similarity)

            return sum_against(directions, kept, tile_error, shard) / (len(first) * len(self))

    @torch.no_grad()
    def keep(self, outputs: Outputs, labels: Tensor) -> None:
        """Add a batch; the oldest samples make room."""
        outputs, labels = checked_batch(outputs, labels)
        for modality, codes in outputs.items():
            before = self.directions.get(modality, codes[:0])
            self.directions[modality] = torch.cat([before.to(codes), unit_rows(codes)])[-self.size :]
        before = labels[:0] if self.labels is None else self.labels
        self.labels = torch.cat([before.to(labels), labels])[-self.size :]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state for `state_dict`; a buffer would need a size before the first batch is seen."""
        return {"directions": dict(self.directions), "labels": self.labels}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Set the state for `load_state_dict`; tensors move to the outputs' device when they are used."""
        self.directions, self.labels = dict(state["directions"]), state["labels"]
