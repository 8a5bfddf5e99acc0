"""The contract of every loss, losses with channels, and the functions that several losses are built
from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from channelhash.channels import check_labels, label_cosines, unit_rows

#: Modality -> ``(n, k)`` real-valued codes.
OutputsByModality = dict[str, Tensor]
#: Similarities of any shape -> lower and upper end of their channels, in bits, of the same shape.
Bounds = Callable[[Tensor], tuple[Tensor, Tensor]]


class LossShard(NamedTuple):
    """Part ``number`` (from 0) of the ``parts`` that add up to a loss.

    >>> LossShard(0, 3).parts
    3
    """

    number: int
    parts: int


_WHOLE = LossShard(0, 1)


@dataclass(frozen=True)
class Batch:
    """A batch of n samples as `HashLoss.compute` gets it, checked.

    Attributes:
        outputs: modality -> ``(n, k)`` real-valued codes, at least float32.
        labels: ``(n, c)`` bool or numbers from 0 to 1 on the device of the outputs; a teacher's
            outputs for a loss that needs a teacher.
        anchor: the modality that is trained; None trains all of them.
        rows: ``(n,)`` the numbers of the samples among the training rows, where the caller knows
            them.
        shard: the part of the loss that is computed.
        similarity: ``(n, n)`` S of the samples, from 0 to 1, where it does not come from labels.

    >>> Batch({"image": torch.zeros(3, 8), "text": torch.ones(3, 8)}, torch.eye(3)).codes.shape
    torch.Size([2, 3, 8])
    """

    outputs: OutputsByModality
    labels: Tensor
    anchor: str | None = None
    rows: Tensor | None = None
    shard: LossShard = _WHOLE
    similarity: Tensor | None = None

    def similarity_of(self, rows: slice, columns: slice) -> Tensor:
        """Return S of the samples ``rows`` with the samples ``columns``."""
        if self.similarity is not None:
            return self.similarity[rows, columns]
        labels = self.labels.to(next(iter(self.outputs.values())))
        return label_cosines(labels[rows], None if rows == columns else labels[columns])

    @property
    def codes(self) -> Tensor:
        """The outputs of all modalities, ``(m, n, k)``."""
        return torch.stack(list(self.outputs.values()))

    def codes_of_width(self, n_bits: int) -> Tensor:
        """Return `codes`; raise `ValueError` if they do not have the ``n_bits`` of the loss."""
        codes = self.codes
        if codes.shape[2] != n_bits:
            raise ValueError(
                f"this loss is for codes of {n_bits} bits, the outputs have {codes.shape[2]}"
            )
        return codes


class HashLoss(nn.Module, ABC):
    """A loss over the real-valued codes of a batch.

    A subclass implements `compute`. The attributes of its class tell callers what the loss needs;
    the arguments of its constructor, apart from ``n_bits``, ``n_labels`` and ``modalities``, are
    keys of a configuration's section ``loss``.

    Attributes:
        trains_anchor: the loss trains one modality at a time, its ``anchor``.
        sharded: `compute` computes the asked shard alone; shards add up in value and in gradient.
            If false, the whole loss is computed for each shard and divided by their number.
        needs_rows: `compute` reads the numbers of the training rows.
        needs_teacher: the loss compares outputs with a teacher's outputs, which take the place of
            labels.
        takes_similarity: the loss can be given similarities in place of labels.

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
    takes_similarity: ClassVar[bool] = False
    _saw_labels = False

    @abstractmethod
    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``, a scalar; autocast is off."""

    def forward(
        self,
        outputs: OutputsByModality,
        labels: Tensor | None = None,
        *,
        anchor: str | None = None,
        rows: Tensor | None = None,
        shard: LossShard = _WHOLE,
        similarity: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of one batch, or a shard of it.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes; one, two or more modalities.
            labels: ``(n, c)`` bool or numbers from 0 to 1; ``(n, m, k)`` outputs of the teacher for
                a loss that needs one. Numbers on a GPU are checked on the first call only, as each
                check waits for the GPU.
            anchor: the modality to train, for a loss that trains one at a time; None sums over all
                anchors.
            rows: ``(n,)`` which training rows these are; losses that do not need them ignore them.
            shard: the part of the loss to compute; the parts add up in value and in gradient.
            similarity: ``(n, n)`` numbers from 0 to 1, in place of labels: S of a question (row)
                and an item (column). Channel losses need it symmetric.

        Returns:
            A scalar, computed in float32 (float64 for float64 outputs) also under autocast.

        Raises:
            ValueError: the shapes of outputs and labels do not fit together, labels have other
                values, or the loss does not take what it is given or misses what it needs.
        """
        outputs = _checked_outputs(outputs)
        codes = next(iter(outputs.values()))
        if anchor is not None:
            self._check_anchor(anchor, outputs)
        if rows is None and self.needs_rows:
            raise ValueError(
                f"{type(self).__name__} needs the numbers of the batch's training rows; give rows"
            )
        if similarity is not None:
            if labels is not None:
                raise ValueError("similarity takes the place of labels; give one of them")
            self._check_similarity(similarity, codes)
            similarity = similarity.to(codes)
            labels = codes.new_zeros(len(codes), 0)
        if labels is None:
            raise ValueError(f"{type(self).__name__} learns from labels or similarities; give them")
        labels = torch.as_tensor(labels)
        if not self.needs_teacher:
            self._check_labels(labels, codes)
        with torch.autocast(codes.device.type, enabled=False):
            return self.compute_shard(
                Batch(outputs, labels.to(codes.device), anchor, rows, shard, similarity)
            )

    def _check_similarity(self, similarity: Tensor, codes: Tensor) -> None:
        """Raise `ValueError` unless the loss takes similarities and they are those of the codes."""
        if not self.takes_similarity:
            raise ValueError(f"{type(self).__name__} takes no similarities; give labels")
        n = len(codes)
        if similarity.shape != (n, n):
            raise ValueError(f"similarity is ({n}, {n}) as the outputs, not {(*similarity.shape,)}")
        fits = (similarity >= 0) & (similarity <= 1)  # which NaN is not
        if not fits.all():
            row, column = (~fits).nonzero()[0].tolist()
            value = similarity[row, column].item()
            raise ValueError(
                f"similarity is from 0 to 1, not {value} (row {row}, column {column}); clamp it"
            )

    def _check_anchor(self, anchor: str, outputs: OutputsByModality) -> None:
        """Raise `ValueError` if the loss trains no anchor, or has no outputs of this one."""
        if not self.trains_anchor:
            raise ValueError(
                f"{type(self).__name__} trains all modalities at once; leave anchor out"
            )
        if anchor not in outputs:
            raise ValueError(f"anchor {anchor!r} is not one of the modalities {', '.join(outputs)}")

    def _check_labels(self, labels: Tensor, codes: Tensor) -> None:
        """Raise `ValueError` unless labels are ``(n, c)`` numbers from 0 to 1."""
        if not (self._saw_labels and codes.is_cuda):
            check_labels(labels, 1.0)
            self._saw_labels = True
        if labels.ndim != 2 or len(labels) != len(codes):
            raise ValueError(
                f"labels are (n, c) with n = {len(codes)} as the outputs, not {tuple(labels.shape)}"
            )

    def compute_shard(self, batch: Batch) -> Tensor:
        """Return the shard of the loss that ``batch`` asks for, an even fraction if the loss is not
        `sharded`.
        """
        value = self.compute(batch)
        problem = _value_problem(value, batch.outputs)
        if problem:
            raise ValueError(
                f"{type(self).__name__}.compute has to return a scalar tensor, not {problem}"
            )
        return value if self.sharded else value / batch.shard.parts

    @property
    def channels(self) -> "ChannelLoss | None":
        """The loss whose channels apply to pairs outside a batch; None for other losses."""
        return None


class ChannelLoss(HashLoss):
    """L_D / n² + κ_q · L_q / n, eq. (dsch:full), for the channels that a subclass gives in
    `bounds`.

    S of a pair is the cosine of the labels. Time O(m² n² k), memory O(m n k + m² · min(n, 512)²)
    for m modalities.

    Args:
        n_bits: code length k.
        alpha: weight α of pairs with S = 1.
        beta: weight β of pairs with S = 0.
        gamma_l: exponent γ_ℓ of a pair's violation.
        kappa_q: weight κ_q of the quantisation error.

    Raises:
        ValueError: ``n_bits`` is below 1.

    Similar samples differ in at most a quarter of the bits here, others in at least a half:

    >>> class HalfChannels(ChannelLoss):
    ...     def bounds(self, similarity):
    ...         dissimilar = similarity == 0
    ...         return dissimilar * self.n_bits / 2, torch.where(dissimilar, 1, 0.25) * self.n_bits
    >>> codes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1]])  # 1 bit apart
    >>> HalfChannels(n_bits=4)({"text": codes}, torch.ones(2, 1)).item()
    0.0
    >>> HalfChannels(n_bits=4)({"text": codes}, torch.eye(2)).item()
    0.5
    """

    sharded = True
    takes_similarity = True

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
        """Return the bounds for pairs of samples with ``labels`` ``(n, c)``, on which only BSCH's
        depend.
        """
        return self.bounds

    @property
    def channels(self) -> "ChannelLoss":
        """This loss."""
        return self

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``; the quantisation error is in its first shard."""
        stacked = batch.codes_of_width(self.n_bits)
        n = stacked.shape[1]
        bounds = self.bounds_for(batch.labels)
        directions = unit_rows(stacked)

        def tile_error(a: Tensor, b: Tensor, rows: slice, columns: slice) -> Tensor:
            return self.pair_error(a, b, batch.similarity_of(rows, columns), bounds)

        loss = _sum_over_pairs(directions, tile_error, batch.shard) / n**2
        if self.kappa_q and batch.shard.number == 0:
            loss = torch.add(loss, quantization_error(stacked), alpha=self.kappa_q / n)
        return loss

    def pair_error(
        self, a: Tensor, b: Tensor, similarity: Tensor, bounds: Bounds | None = None
    ) -> Tensor:
        """Sum (ψ · max(0, lower − d, d − upper))^γ_ℓ over all pairs of a sample of ``a`` with one
        of ``b``, of any modalities. Time O(m² r c k), memory O(m² r c).

        Args:
            a: ``(m, r, k)`` directions (codes of length 1, see `channels.unit_rows`) of m
                modalities.
            b: ``(m, c, k)`` likewise.
            similarity: S of the pairs, ``(r, c)``.
            bounds: of the pairs; None takes `bounds`.
        """
        lower, upper = (bounds or self.bounds)(similarity)
        # One axis more, for all pairs of modalities.
        lower = lower[:, None]
        upper = upper[:, None]
        m, r, k = a.shape
        half_k = lower.new_tensor(0.5 * k)
        flat = torch.addmm(half_k, a.flatten(0, 1), b.flatten(0, 1).T, alpha=-0.5 * k)
        distances = flat.view(m, r, m, b.shape[1])
        # The nearest point of the channel is a constant to the gradient: outside it stays where it
        # is as d moves, inside d is that point itself and |0| has slope 0.
        violation = (distances - torch.clamp(distances.detach(), lower, upper)).abs()
        if not self.alpha == self.beta == 1:
            violation = set_weights(similarity, self.alpha, self.beta)[:, None] * violation
        if self.gamma_l != 1:
            # 0 ** γ_ℓ has an infinite slope for γ_ℓ < 1: pairs inside their channel are kept out of
            # the power.
            outside = violation > 0
            violation = torch.where(outside, torch.where(outside, violation, 1) ** self.gamma_l, 0)
        return violation.sum()


def _value_problem(value: object, outputs: OutputsByModality) -> str:
    """Describe what is wrong with the value of a loss; return "" if nothing is.

    >>> codes = torch.ones(2, 8, requires_grad=True)
    >>> [_value_problem(value, {"text": codes}) for value in (codes.mean(), (codes, 1), None)]
    ['', 'a tuple', 'None']
    """
    if value is None or isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if value.ndim:
        return f"a tensor of shape {tuple(value.shape)}"
    is_trained = any(codes.requires_grad for codes in outputs.values())
    if torch.is_grad_enabled() and is_trained and not value.requires_grad:
        return "one without a gradient: it does not depend on the codes, or was detached from them"
    return ""


def _checked_outputs(outputs: OutputsByModality) -> OutputsByModality:
    """Return the outputs in at least float32, as half precision loses whole bits of distance.

    >>> _checked_outputs({"text": torch.zeros(2, 8, dtype=torch.float16)})["text"].dtype
    torch.float32

    Raises:
        ValueError: there is no modality, or the modalities' outputs differ in shape.
    """
    shapes = {modality: tuple(codes.shape) for modality, codes in outputs.items()}
    if [len(shape) for shape in set(shapes.values())] != [2]:
        raise ValueError(
            f"outputs are one (n, k) tensor per modality, all of one shape, not {shapes}"
        )
    return {
        m: codes if codes.dtype == torch.float64 else codes.float() for m, codes in outputs.items()
    }


def set_weights(similarity: Tensor, alpha: float, beta: float) -> Tensor:
    """Return ψ of eq. (sch:loss): β where S = 0, α where S = 1, 1 elsewhere; shaped like
    ``similarity``.

    >>> set_weights(torch.tensor([0.0, 0.5, 1.0]), alpha=2.0, beta=0.25).tolist()
    [0.25, 1.0, 2.0]
    """
    weights = torch.ones_like(similarity)
    weights[similarity == 0] = beta
    weights[similarity == 1] = alpha
    return weights


def quantization_error(codes: Tensor) -> Tensor:
    """Return Σ_m ‖B̂_m − sign(Σ_m B̂_m)‖₁ with sign(0) = +1, eq. (dsch:quant); no gradient flows
    through the sign.

    Args:
        codes: ``(m, n, k)``.

    >>> codes = torch.tensor([[[0.5, 1.0]], [[1.0, -0.5]]])  # their sum has the signs + +
    >>> quantization_error(codes).item()
    2.0
    """
    return (codes - sign(codes.sum(dim=0))).abs().sum()


def sign(values: Tensor) -> Tensor:
    """Return ±1 with sign(0) = +1, detached.

    >>> sign(torch.tensor([-0.5, 0.0, 2.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return torch.where(values.detach() >= 0, 1.0, -1.0).to(values.dtype)


#: ``(a, b, rows, columns)`` -> scalar: the error summed over a tile's pairs; ``a`` are the codes
#: ``(m, r, k)`` of the samples ``rows``, ``b`` those of ``columns``. The same for the tile across
#: the diagonal.
_TileError = Callable[[Tensor, Tensor, slice, slice], Tensor]


#: Samples on a tile's side. On a CPU, tiles of 1,024 take nearly twice as long: they leave the
#: cache.
_SIDE = 512


def _sum_over_pairs(codes: Tensor, tile_error: _TileError, shard: LossShard = _WHOLE) -> Tensor:
    """Sum an error that is symmetric in two samples over all ordered pairs of samples.

    Up to 512 samples are one tile. More are cut into tiles of 512 × 512 pairs; those on and above
    the diagonal are computed, one after the other, each with its gradient, so that nothing with n²
    entries ever exists. Then the sum can be differentiated once, not twice.

    Args:
        codes: ``(m, n, k)``, of m modalities.
        tile_error: see `_TileError`; differentiable in the codes.
        shard: which part of the sum; parts add up in value and in gradient. Tiles are dealt out in
            turn: among p processes the work is even from n ≈ 1000 p on, and up to 512 samples it is
            all in the first part.

    Returns:
        A scalar. Time O(m² n² k) over the number of parts, memory O(m n k) and that of one tile.

    >>> codes = torch.tensor([[[1.0], [2.0]]])  # one modality of two samples
    >>> products = lambda a, b, rows, columns: (a @ b.mT).sum()
    >>> _sum_over_pairs(codes, products).item()  # 1·1 + 2 · 1·2 + 2·2
    9.0
    """
    n = codes.shape[1]
    if n <= _SIDE and shard == _WHOLE:
        return tile_error(codes, codes, slice(0, n), slice(0, n))
    tiles = _tiles(n)[shard.number :: shard.parts]
    total: Tensor = _SumOfTiles.apply(codes, tiles, tile_error)  # type: ignore[no-untyped-call]
    return total


def _tiles(n: int) -> list[tuple[slice, slice]]:
    """Return rows and columns of the tiles on and above the diagonal."""
    ranges = [slice(start, min(start + _SIDE, n)) for start in range(0, n, _SIDE)]
    return list(combinations_with_replacement(ranges, 2))


class _SumOfTiles(torch.autograd.Function):
    """The sum and its gradient ``(m, n, k)``, computed together: to compute each tile again for the
    gradient would cost more.
    """

    @staticmethod
    def forward(
        ctx: Any, codes: Tensor, tiles: list[tuple[slice, slice]], tile_error: _TileError
    ) -> Tensor:
        total = codes.new_zeros(())
        gradient = torch.zeros_like(codes)
        for rows, columns in tiles:
            with torch.enable_grad():
                a = codes[:, rows].detach().requires_grad_()
                b = a
                parts = [(a, rows)]
                if rows != columns:
                    b = codes[:, columns].detach().requires_grad_()
                    parts.append((b, columns))
                # A tile above the diagonal stands for the one below it as well.
                error = tile_error(a, b, rows, columns) * len(parts)
            total += error.detach()
            slopes = torch.autograd.grad(error, [part for part, _ in parts])
            for slope, (_, samples) in zip(slopes, parts, strict=True):
                gradient[:, samples] += slope
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return slope * gradient, None, None
