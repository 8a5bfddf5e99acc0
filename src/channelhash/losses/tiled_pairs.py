"""Sums over all pairs of samples, a tile at a time: the memory of one tile, and work that several processes divide."""

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
