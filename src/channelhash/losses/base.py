"""The contract of every loss: what it computes from, and what it declares to its callers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from channelhash.channels import label_cosines, unit_rows
from channelhash.losses.functional import (
    WHOLE,
    Outputs,
    Shard,
    channel_error,
    check_width,
    checked_labels,
    checked_outputs,
    quantization_error,
    set_weights,
    sum_over_pairs,
)

#: Similarities of any shape -> lower and upper end of their channels, in bits, of the same shape.
Bounds = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Batch:
    """What `HashLoss.compute` sees of a batch of n samples, checked.

    Attributes:
        outputs: modality -> ``(n, k)`` real-valued codes, at least float32.
        labels: ``(n, c)`` bool or numbers from 0 to 1 on the device of the outputs; a teacher's outputs for a loss that
            needs a teacher.
        anchor: the modality that is trained; None trains all of them.
        rows: ``(n,)`` the numbers of the samples among the training rows, where the caller knows them.
        shard: the part of the loss that is computed.

    >>> Batch({"image": torch.zeros(3, 8), "text": torch.ones(3, 8)}, torch.eye(3)).codes.shape
    torch.Size([2, 3, 8])
    """

    outputs: Outputs
    labels: Tensor
    anchor: str | None = None
    rows: Tensor | None = None
    shard: Shard = WHOLE

    @property
    def codes(self) -> Tensor:
        """The outputs of all modalities, ``(m, n, k)``."""
        return torch.stack(list(self.outputs.values()))


class HashLoss(nn.Module, ABC):
    """A loss over the real-valued codes of a batch.

    A subclass implements `compute`. The attributes of its class tell callers what the loss needs; the arguments of its
    constructor, apart from ``n_bits``, ``n_labels`` and ``modalities``, are keys of a configuration's section ``loss``.

    Attributes:
        trains_anchor: the loss trains one modality at a time, its ``anchor``.

        sharded: `compute` computes the asked shard alone; shards add up in value and in gradient. Without it the whole
            loss is computed for each shard and divided by their number.
        needs_rows: `compute` reads the numbers of the training rows.
        needs_teacher: the loss compares outputs with a teacher's outputs, which take the place of labels.

    >>> class Length(HashLoss):
    ...     def compute(self, batch):
    ...         return batch.codes.square().mean()
    >>> Length()({"image": torch.ones(2, 4), "text": 2 * torch.ones(2, 4)}, torch.eye(2)).item()
    2.5
    """

    trains_anchor: ClassVar[bool] = False
    sharded: bool = False
    needs_rows: ClassVar[bool] = False
    needs_teacher: ClassVar[bool] = False
    _saw_labels = False

    @abstractmethod
    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``, a scalar; autocast is off."""

    def forward(
        self,
        outputs: Outputs,
        labels: Tensor,
        *,
        anchor: str | None = None,
        rows: Tensor | None = None,
        shard: Shard = WHOLE,
    ) -> Tensor:
        """Return the loss of one batch, or a shard of it.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes; one, two or more modalities.
            labels: ``(n, c)`` bool or numbers from 0 to 1; ``(n, m, k)`` outputs of the teacher for a loss that needs
                one. Numbers on a GPU are checked on the first call only, as each check waits for the GPU.
            anchor: the modality to train, for a loss that trains one at a time; None sums over all anchors.
            rows: ``(n,)`` which training rows these are; losses that do not need them ignore them.
            shard: the part of the loss to compute; the parts add up in value and in gradient.

        Returns:
            A scalar, computed in float32 (float64 for float64 outputs) also under autocast.

        Raises:
            ValueError: the shapes of outputs and labels do not fit together, labels have other values, or the loss
                does not take what it is given or misses what it needs.
        """
        outputs = checked_outputs(outputs)
        codes = next(iter(outputs.values()))
        if anchor is not None and not self.trains_anchor:
            raise ValueError(f"{type(self).__name__} trains all modalities at once; leave anchor out")
        if anchor is not None and anchor not in outputs:
            raise ValueError(f"anchor {anchor!r} is not one of the modalities {', '.join(outputs)}")
        if rows is None and self.needs_rows:
            raise ValueError(f"{type(self).__name__} needs the numbers of the batch's training rows; give rows")
        if self.needs_teacher:
            values = torch.as_tensor(labels, device=codes.device)
        else:
            values = checked_labels(labels, codes, None if self._saw_labels and codes.is_cuda else 1.0)
        self._saw_labels = True
        with torch.autocast(codes.device.type, enabled=False):
            value = self.compute_shard(Batch(outputs, values, anchor, rows, shard))
        if not isinstance(value, Tensor) or value.ndim:
            result = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise ValueError(f"{type(self).__name__}.compute has to return a scalar tensor, not {result}")
        return value

    def compute_shard(self, batch: Batch) -> Tensor:
        """Return the shard of the loss that ``batch`` asks for, of losses that cannot be sharded an even fraction."""
        value = self.compute(batch)
        return value if self.sharded else value / batch.shard.parts

    @property
    def channels(self) -> "ChannelLoss | None":
        """The loss that says which channel a similarity has, for pairs that are not of a batch; None without one."""
        return None


class ChannelLoss(HashLoss):
    """L_D / n² + κ_q · L_q / n, eq. (dsch:full), for the channels that a subclass gives in `bounds`.

    S of a pair is the cosine of the labels. Time O(m² n² k), memory O(m n k + m² · min(n, 512)²) for m modalities.

    Args:
        n_bits: code length k.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        gamma_l: exponent γ_ℓ of a pair's violation.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1.

    >>> class HalfChannels(ChannelLoss):  # similar pairs up to a quarter of the bits, others from a half on
    ...     def bounds(self, similarity):
    ...         return (similarity == 0) * self.n_bits / 2, torch.where(similarity == 0, 1, 0.25) * self.n_bits
    >>> codes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart
    >>> HalfChannels(n_bits=4)({"text": codes}, torch.ones(2, 1)).item()
    0.0
    >>> HalfChannels(n_bits=4)({"text": codes}, torch.eye(2)).item()
    0.5
    """

    sharded = True

    def __init__(
        self,
        n_bits: int,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma_l: float = 1.0,
        kappa_q: float = 0.0,
    ) -> None:
        super().__init__()
        if n_bits < 1:
            raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
        self.n_bits = n_bits
        self.alpha = alpha
        self.beta = beta
        self.gamma_l = gamma_l
        self.kappa_q = kappa_q

    @abstractmethod
    def bounds(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of the channel of each similarity, in bits."""

    def bounds_for(self, labels: Tensor) -> Bounds:
        """Return the bounds for pairs of samples with ``labels`` ``(n, c)``; only BSCH's depend on them."""
        return self.bounds

    @property
    def channels(self) -> "ChannelLoss":
        """This loss."""
        return self

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``; the quantisation error is in its first shard."""
        stacked = batch.codes
        check_width(stacked[0], self.n_bits)
        labels, n = batch.labels.to(stacked), stacked.shape[1]
        bounds = self.bounds_for(batch.labels)
        directions = unit_rows(stacked.flatten(0, 1)).view_as(stacked)

        def tile_error(a: Tensor, b: Tensor, rows: slice, columns: slice) -> Tensor:
            similarity = label_cosines(labels[rows], None if rows == columns else labels[columns])
            return self.pair_error(a, b, similarity, bounds)

        loss = sum_over_pairs(directions, tile_error, batch.shard) / n**2
        if self.kappa_q and batch.shard.number == 0:
            loss = torch.add(loss, quantization_error(stacked), alpha=self.kappa_q / n)
        return loss

    def pair_error(self, a: Tensor, b: Tensor, similarity: Tensor, bounds: Bounds | None = None) -> Tensor:
        """Return `functional.channel_error` of pairs with ``similarity``, under the weights of this loss.

        Args:
            a: ``(m, r, k)`` directions of codes.
            b: ``(m, c, k)`` likewise.
            similarity: ``(r, c)``.
            bounds: of the pairs; None takes `bounds`.
        """
        weights = None if self.alpha == self.beta == 1 else set_weights(similarity, self.alpha, self.beta)
        return channel_error(a, b, (bounds or self.bounds)(similarity), weights, self.gamma_l)
