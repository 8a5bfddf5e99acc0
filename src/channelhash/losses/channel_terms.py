"""The channel losses as pure functions of outputs and labels; what varies between them, the bounds, is passed in."""

from collections.abc import Callable

import torch
from torch import Tensor

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses.hardness import hard_weights
from channelhash.losses.tiles import WHOLE, Share, sum_over_pairs

Outputs = dict[str, Tensor]


def channel_loss(
    outputs: Outputs,
    labels: Tensor,
    bounds: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    n_bits: int,
    alpha: float,
    beta: float,
    gamma_l: float,
    kappa_q: float,
    hardness: float = 0.0,
    share: Share = WHOLE,
) -> Tensor:
    """L_D / n² + κ_q · L_q / n, eq. (dsch:full), for any channel.

    Args:
        outputs: modality -> ``(n, k)`` real-valued codes; one, two or more modalities.
        labels: ``(n, c)`` bool or 0/1.
        bounds: similarity, any shape -> ``(lower, upper)`` end of the channel, in bits.
        n_bits: code length k that the bounds are for.
        alpha: weight of pairs with S = 1.
        beta: weight of pairs with S = 0.
        gamma_l: exponent of a pair's violation.
        kappa_q: weight of the quantisation error.
        hardness: η of `hardness.hard_weights`, of pairs with S = 0; 0 weighs all violations alike.
        share: which part of the loss; see `tiles.sum_over_pairs`. The quantisation error is in the first.

    Returns:
        A scalar, computed in float32 (float64 for float64 outputs) also under autocast. Time O(m² n² k), memory
        O(m n k + m² · min(n, 512)²) for m modalities.

    Raises:
        ValueError: the shapes of outputs and labels do not fit together, or k is not ``n_bits``.
    """
    outputs, labels = checked_batch(outputs, labels)
    codes = next(iter(outputs.values()))
    check_width(codes, n_bits)
    with torch.autocast(codes.device.type, enabled=False):
        values, stacked = labels.to(codes), torch.stack(list(outputs.values()))
        directions = unit_rows(stacked.flatten(0, 1)).view_as(stacked)

        def tile_error(a: Tensor, b: Tensor, rows: slice, columns: slice) -> Tensor:
            similarity = label_similarity(values[rows], None if rows == columns else values[columns])
            return pair_error(
                a, b, similarity, bounds(similarity), alpha=alpha, beta=beta, gamma_l=gamma_l, hardness=hardness
            )

        loss = sum_over_pairs(directions, tile_error, share) / len(codes) ** 2
        if kappa_q and share[0] == 0:
            loss = torch.add(loss, quantization_error(stacked), alpha=kappa_q / len(codes))
    return loss


def checked_batch(outputs: Outputs, labels: Tensor) -> tuple[Outputs, Tensor]:
    """The outputs in at least float32 (half precision loses whole bits of distance) and the labels as a tensor.

    Raises:
        ValueError: no modality, the modalities' outputs differ in shape, or there are not as many labels.
    """
    shapes = {modality: tuple(codes.shape) for modality, codes in outputs.items()}
    if not shapes or len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 2:
        raise ValueError(f"outputs are one (n, k) tensor per modality, all of one shape, not {shapes}")
    labels = torch.as_tensor(labels, device=next(iter(outputs.values())).device)
    n = next(iter(shapes.values()))[0]
    if labels.ndim != 2 or len(labels) != n:
        raise ValueError(f"labels are (n, c) with n = {n} as the outputs, not {tuple(labels.shape)}")
    return {m: codes if codes.dtype == torch.float64 else codes.float() for m, codes in outputs.items()}, labels


def check_width(codes: Tensor, n_bits: int) -> None:
    """Raise `ValueError` unless ``codes`` are of the ``n_bits`` that a loss was made for."""
    if codes.shape[1] != n_bits:
        raise ValueError(f"this loss is for codes of {n_bits} bits, the outputs have {codes.shape[1]}")


def set_weights(similarity: Tensor, alpha: float, beta: float) -> Tensor:
    """ψ of eq. (sch:loss): β where S = 0, α where S = 1, 1 elsewhere; shaped like ``similarity``."""
    weights = torch.ones_like(similarity)
    weights[similarity == 0] = beta
    weights[similarity == 1] = alpha
    return weights


def pair_error(
    a: Tensor,
    b: Tensor,
    similarity: Tensor,
    bounds: tuple[Tensor, Tensor],
    *,
    alpha: float,
    beta: float,
    gamma_l: float,
    hardness: float,
) -> Tensor:
    """`channel_error` of pairs with ``similarity`` ``(r, c)``, under the weights of `channel_loss`."""
    weights = None if alpha == beta == 1 else set_weights(similarity, alpha, beta)
    hard = similarity == 0 if hardness else None
    return channel_error(a, b, bounds, weights, gamma_l, hard, hardness)


def channel_error(
    a: Tensor,
    b: Tensor,
    bounds: tuple[Tensor, Tensor],
    weights: Tensor | None = None,
    gamma_l: float = 1.0,
    hard: Tensor | None = None,
    hardness: float = 0.0,
) -> Tensor:
    """Sum of ω · (ψ · max(0, lower − d, d − upper))^γ_ℓ over all pairs of a sample of ``a`` with one of ``b``, of any
    modalities.

    Args:
        a: ``(m, r, k)`` directions (codes of length 1, see `channels.unit_rows`) of m modalities.
        b: ``(m, c, k)`` likewise.
        bounds: ``(lower, upper)``, each ``(r, c)``, in bits, lower <= upper.
        weights: ψ, ``(r, c)``; None means 1 everywhere.
        gamma_l: exponent γ_ℓ of the violation.
        hard: pairs that have ω of `hardness.hard_weights`, ``(r, c)`` bool; for the others, and None, ω is 1.
        hardness: its η.

    Returns:
        A scalar. Time O(m² r c k), memory O(m² r c).
    """
    lower, upper = bounds
    m, r, k = a.shape
    half_k = lower.new_tensor(0.5 * k)
    distances = torch.addmm(half_k, a.flatten(0, 1), b.flatten(0, 1).T, alpha=-0.5 * k).view(m, r, m, b.shape[1])
    # The nearest point of the channel is a constant to the gradient: outside it stays where it is as d moves, inside
    # d is that point itself and |0| has slope 0.
    nearest = torch.clamp(distances.detach(), lower[:, None], upper[:, None])
    violation = (distances - nearest).abs()
    harder = None if hard is None else torch.where(hard[:, None], hard_weights(violation, k, hardness), 1)
    if weights is not None:
        violation = weights[:, None] * violation
    if gamma_l != 1:
        # 0 ** γ_ℓ has an infinite slope for γ_ℓ < 1: pairs inside their channel are kept out of the power.
        outside = violation > 0
        violation = torch.where(outside, torch.where(outside, violation, 1) ** gamma_l, 0)
    return violation.sum() if harder is None else (harder * violation).sum()


def quantization_error(codes: Tensor) -> Tensor:
    """Σ_m ‖B̂_m − sign(Σ_m B̂_m)‖₁ of ``(m, n, k)`` with sign(0) = +1, eq. (dsch:quant); no gradient flows through the
    sign."""
    return (codes - sign(codes.sum(dim=0))).abs().sum()


def sign(values: Tensor) -> Tensor:
    """±1 with sign(0) = +1, detached."""
    return torch.where(values.detach() >= 0, 1.0, -1.0).to(values.dtype)
