"""Pure functions of outputs and labels that the losses are built from."""

import math
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from channelhash.channels import check_labels
from channelhash.utils.seeds import generator

#: Modality -> ``(n, k)`` real-valued codes.
Outputs = dict[str, Tensor]


def checked_outputs(outputs: Outputs) -> Outputs:
    """Return the outputs in at least float32, as half precision loses whole bits of distance.

    >>> checked_outputs({"text": torch.zeros(2, 8, dtype=torch.float16)})["text"].dtype
    torch.float32

    Raises:
        ValueError: there is no modality, or the modalities' outputs differ in shape.
    """
    shapes = {modality: tuple(codes.shape) for modality, codes in outputs.items()}
    if not shapes or len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 2:
        raise ValueError(f"outputs are one (n, k) tensor per modality, all of one shape, not {shapes}")
    return {m: codes if codes.dtype == torch.float64 else codes.float() for m, codes in outputs.items()}


def checked_labels(labels: Tensor, codes: Tensor, largest: float | None = math.inf) -> Tensor:
    """Return ``(n, c)`` labels on the device of the ``(n, k)`` codes.

    Args:
        labels: as in `channels.check_labels`.
        codes: the outputs of one modality.
        largest: likewise; None checks no values.

    >>> checked_labels(torch.eye(2), torch.zeros(2, 8)).shape
    torch.Size([2, 2])

    Raises:
        ValueError: there is not one row of labels for each code, or as `channels.check_labels`.
    """
    labels = torch.as_tensor(labels)
    if largest is not None:
        check_labels(labels, largest)
    if labels.ndim != 2 or len(labels) != len(codes):
        raise ValueError(f"labels are (n, c) with n = {len(codes)} as the outputs, not {tuple(labels.shape)}")
    return labels.to(codes.device)


def check_width(codes: Tensor, n_bits: int) -> None:
    """Check that ``codes`` have the ``n_bits`` that a loss was made for.

    >>> check_width(torch.zeros(2, 8), 8)

    Raises:
        ValueError: they have another number.
    """
    if codes.shape[1] != n_bits:
        raise ValueError(f"this loss is for codes of {n_bits} bits, the outputs have {codes.shape[1]}")


def set_weights(similarity: Tensor, alpha: float, beta: float) -> Tensor:
    """Return ψ of eq. (sch:loss): β where S = 0, α where S = 1, 1 elsewhere; shaped like ``similarity``.

    >>> set_weights(torch.tensor([0.0, 0.5, 1.0]), alpha=2.0, beta=0.25).tolist()
    [0.25, 1.0, 2.0]
    """
    weights = torch.ones_like(similarity)
    weights[similarity == 0] = beta
    weights[similarity == 1] = alpha
    return weights


def channel_error(
    a: Tensor,
    b: Tensor,
    bounds: tuple[Tensor, Tensor],
    weights: Tensor | None = None,
    gamma_l: float = 1.0,
) -> Tensor:
    """Sum (ψ · max(0, lower − d, d − upper))^γ_ℓ over all pairs of a sample of ``a`` with one of ``b``, of any
    modalities.

    Args:
        a: ``(m, r, k)`` directions (codes of length 1, see `channels.unit_rows`) of m modalities.
        b: ``(m, c, k)`` likewise.
        bounds: ``(lower, upper)``, in bits, lower <= upper: each ``(r, c)``.
        weights: ψ, shaped like the bounds; None means 1 everywhere.
        gamma_l: exponent γ_ℓ of the violation.

    Returns:
        A scalar. Time O(m² r c k), memory O(m² r c).

    >>> code = torch.full((1, 1, 4), 0.5)  # of length 1, at distance 0 from itself
    >>> channel_error(code, code, (torch.tensor([[2.0]]), torch.tensor([[3.0]]))).item()
    2.0
    """
    lower, upper = (ends[:, None] for ends in bounds)  # the same for all pairs of modalities
    m, r, k = a.shape
    half_k = lower.new_tensor(0.5 * k)
    distances = torch.addmm(half_k, a.flatten(0, 1), b.flatten(0, 1).T, alpha=-0.5 * k).view(m, r, m, b.shape[1])
    # The nearest point of the channel is a constant to the gradient: outside it stays where it is as d moves, inside
    # d is that point itself and |0| has slope 0.
    violation = (distances - torch.clamp(distances.detach(), lower, upper)).abs()
    if weights is not None:
        violation = weights[:, None] * violation
    if gamma_l != 1:
        # 0 ** γ_ℓ has an infinite slope for γ_ℓ < 1: pairs inside their channel are kept out of the power.
        outside = violation > 0
        violation = torch.where(outside, torch.where(outside, violation, 1) ** gamma_l, 0)
    return violation.sum()


def quantization_error(codes: Tensor) -> Tensor:
    """Return Σ_m ‖B̂_m − sign(Σ_m B̂_m)‖₁ with sign(0) = +1, eq. (dsch:quant); no gradient flows through the sign.

    Args:
        codes: ``(m, n, k)``.

    >>> quantization_error(torch.tensor([[[0.5, 1.0]], [[1.0, -0.5]]])).item()  # both have the signs + +
    2.0
    """
    return (codes - sign(codes.sum(dim=0))).abs().sum()


def sign(values: Tensor) -> Tensor:
    """Return ±1 with sign(0) = +1, detached.

    >>> sign(torch.tensor([-0.5, 0.0, 2.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return torch.where(values.detach() >= 0, 1.0, -1.0).to(values.dtype)


#: ``(a, b, rows, columns)`` -> scalar: the error summed over a tile's pairs; ``a`` are the codes ``(m, r, k)`` of the
#: samples ``rows``, ``b`` those of ``columns``. The same for the tile across the diagonal.
TileError = Callable[[Tensor, Tensor, slice, slice], Tensor]


class Shard(NamedTuple):
    """The ``number``-th, from 0, of so many ``parts`` that add up to the whole.

    >>> Shard(0, 3).parts
    3
    """

    number: int
    parts: int


WHOLE = Shard(0, 1)
# Samples on a tile's side. On a CPU tiles of 1,024 take nearly twice as long: they leave the cache.
_SIDE = 512


def sum_over_pairs(codes: Tensor, tile_error: TileError, shard: Shard = WHOLE) -> Tensor:
    """Sum an error that is symmetric in two samples over all ordered pairs of samples.

    Up to 512 samples are one tile. More are cut into tiles of 512 × 512 pairs; those on and above the diagonal are
    computed, one after the other, each with its gradient, so that nothing with n² entries ever exists. Then the sum
    can be differentiated once, not twice.

    Args:
        codes: ``(m, n, k)``, of m modalities.
        tile_error: see `TileError`; differentiable in the codes.
        shard: which part of the sum; parts add up in value and in gradient. Tiles are dealt out in turn: among p
            processes the work is even from n ≈ 1000 p on, and up to 512 samples it is all in the first part.

    Returns:
        A scalar. Time O(m² n² k) over the number of parts, memory O(m n k) and that of one tile.

    >>> codes = torch.tensor([[[1.0], [2.0]]])  # one modality of two samples
    >>> sum_over_pairs(codes, lambda a, b, rows, columns: (a @ b.mT).sum()).item()  # 1·1 + 2 · 1·2 + 2·2
    9.0
    """
    n = codes.shape[1]
    if n <= _SIDE and shard == WHOLE:
        everything = slice(0, n)
        return tile_error(codes, codes, everything, everything)
    number, parts = shard
    total: Tensor = _SumOfTiles.apply(codes, _tiles(n)[number::parts], tile_error)  # type: ignore[no-untyped-call]
    return total


def _tiles(n: int) -> list[tuple[slice, slice]]:
    """Return rows and columns of the tiles on and above the diagonal."""
    ranges = [slice(start, min(start + _SIDE, n)) for start in range(0, n, _SIDE)]
    return list(combinations_with_replacement(ranges, 2))


class _SumOfTiles(torch.autograd.Function):
    """The sum with its gradient, ``(m, n, k)``: computed with the value, it costs less than each tile a second time."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, tiles: list[tuple[slice, slice]], tile_error: TileError) -> Tensor:
        total, gradient = codes.new_zeros(()), torch.zeros_like(codes)
        for rows, columns in tiles:
            with torch.enable_grad():
                a = codes[:, rows].detach().requires_grad_()
                b, parts = a, [(a, rows)]
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


def hash_centres(n_labels: int, n_bits: int, seed: int) -> Tensor:
    """Return a code for each label, ``(c, k)`` of ±1 (CSQ, algorithm 1).

    The first c rows of Hadamard's matrix H and of −H: k/2 bits apart from one another, or k from its opposite. Where k
    is no power of two (Sylvester's construction has no other), or c > 2k: bits drawn with probability ½.

    >>> hash_centres(3, 4, seed=0)
    tensor([[ 1.,  1.,  1.,  1.],
            [ 1., -1.,  1., -1.],
            [ 1.,  1., -1., -1.]])
    """
    if n_bits & (n_bits - 1) or n_labels > 2 * n_bits:
        return random_signs((n_labels, n_bits), seed, "hash centres")
    hadamard = np.ones((1, 1), dtype=np.float32)
    while len(hadamard) < n_bits:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return torch.from_numpy(np.concatenate([hadamard, -hadamard])[:n_labels])


def random_signs(shape: tuple[int, ...], seed: int, *names: str) -> Tensor:
    """Draw ±1 with probability ½ each, from a named seed.

    >>> random_signs((2, 3), 0, "example").abs().tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return torch.from_numpy(generator(seed, *names).choice(np.array([-1, 1], dtype=np.float32), size=shape))
