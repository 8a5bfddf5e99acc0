"""Pure functions of outputs and labels that the losses are built from."""

import math

import torch
from torch import Tensor

from channelhash.channels import check_labels

#: Modality -> ``(n, k)`` real-valued codes.
Outputs = dict[str, Tensor]


def checked_batch(outputs: Outputs, labels: Tensor) -> tuple[Outputs, Tensor]:
    """Return `checked_outputs` and `checked_labels`.

    >>> outputs, labels = checked_batch({"text": torch.zeros(2, 8, dtype=torch.bfloat16)}, torch.eye(2))
    >>> outputs["text"].dtype, labels.shape
    (torch.float32, torch.Size([2, 2]))
    """
    outputs = checked_outputs(outputs)
    return outputs, checked_labels(labels, next(iter(outputs.values())))


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
        bounds: ``(lower, upper)``, in bits, lower <= upper: each ``(r, c)``, or ``(m, r, m, c)`` where they differ by
            pair of modalities.
        weights: ψ, shaped like the bounds; None means 1 everywhere.
        gamma_l: exponent γ_ℓ of the violation.

    Returns:
        A scalar. Time O(m² r c k), memory O(m² r c).

    >>> code = torch.full((1, 1, 4), 0.5)  # of length 1, at distance 0 from itself
    >>> channel_error(code, code, (torch.tensor([[2.0]]), torch.tensor([[3.0]]))).item()
    2.0
    """
    lower, upper = bounds
    m, r, k = a.shape
    half_k = lower.new_tensor(0.5 * k)
    distances = torch.addmm(half_k, a.flatten(0, 1), b.flatten(0, 1).T, alpha=-0.5 * k).view(m, r, m, b.shape[1])
    # The nearest point of the channel is a constant to the gradient: outside it stays where it is as d moves, inside
    # d is that point itself and |0| has slope 0.
    nearest = torch.clamp(distances.detach(), _for_modalities(lower), _for_modalities(upper))
    violation = (distances - nearest).abs()
    if weights is not None:
        violation = _for_modalities(weights) * violation
    if gamma_l != 1:
        # 0 ** γ_ℓ has an infinite slope for γ_ℓ < 1: pairs inside their channel are kept out of the power.
        outside = violation > 0
        violation = torch.where(outside, torch.where(outside, violation, 1) ** gamma_l, 0)
    return violation.sum()


def _for_modalities(values: Tensor) -> Tensor:
    """Return ``(r, c)`` values so that they broadcast over all pairs of modalities, ``(m, r, m, c)`` as they are."""
    return values[:, None] if values.ndim == 2 else values


def quantization_error(codes: Tensor, same: Tensor | None = None) -> Tensor:
    """Return Σ_m ‖B̂_m − sign(Σ_m B̂_m)‖₁ with sign(0) = +1, eq. (dsch:quant); no gradient flows through the sign.

    Args:
        codes: ``(m, n, k)``.
        same: ``(m, m, n)`` bool, which modalities of a sample mean the same and are summed for its sign; None is all.

    >>> quantization_error(torch.tensor([[[0.5, 1.0]], [[1.0, -0.5]]])).item()  # both have the signs + +
    2.0
    """
    together = codes.sum(dim=0) if same is None else (same.unsqueeze(-1) * codes).sum(dim=1)
    return (codes - sign(together)).abs().sum()


def sign(values: Tensor) -> Tensor:
    """Return ±1 with sign(0) = +1, detached.

    >>> sign(torch.tensor([-0.5, 0.0, 2.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return torch.where(values.detach() >= 0, 1.0, -1.0).to(values.dtype)
