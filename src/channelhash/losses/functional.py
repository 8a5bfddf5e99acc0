"""The channel losses as pure functions of outputs and labels; what varies between them, the bounds, is passed in."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from channelhash.channels import label_similarity, label_similarity_across, same_labels, unit_rows
from channelhash.losses.hard_negatives import hard_weights
from channelhash.losses.tiled_pairs import WHOLE, Share, sum_over_pairs

Outputs = dict[str, Tensor]
#: ``(n, c)`` for all modalities, or modality -> ``(n, c)`` where they differ (pictures that were blended, texts not).
Labels = Tensor | Mapping[str, Tensor]


def channel_loss(
    outputs: Outputs,
    labels: Labels,
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
        labels: ``(n, c)`` bool or non-negative numbers, or a mapping modality -> ``(n, c)``. Then S of a pair is the
            cosine of the labels that each of the two has in its modality, and the quantisation error draws only those
            modalities of a sample together that have the same labels.
        bounds: similarity, any shape -> ``(lower, upper)`` end of the channel, in bits.
        n_bits: code length k that the bounds are for.
        alpha: weight of pairs with S = 1.
        beta: weight of pairs with S = 0.
        gamma_l: exponent of a pair's violation.
        kappa_q: weight of the quantisation error.
        hardness: η of `hard_negatives.hard_weights`, of pairs with S = 0; 0 weighs all violations alike.
        share: which part of the loss; see `tiled_pairs.sum_over_pairs`. The quantisation error is in the first.

    Returns:
        A scalar, computed in float32 (float64 for float64 outputs) also under autocast. Time O(m² n² k), memory
        O(m n k + m² · min(n, 512)²) for m modalities.

    Raises:
        ValueError: the shapes of outputs and labels do not fit together, or k is not ``n_bits``.
    """
    outputs = checked_outputs(outputs)
    codes = next(iter(outputs.values()))
    values = stacked_labels(labels, outputs)
    check_width(codes, n_bits)
    similarity_of = label_similarity if values.ndim == 2 else label_similarity_across
    with torch.autocast(codes.device.type, enabled=False):
        stacked = torch.stack(list(outputs.values()))
        directions = unit_rows(stacked.flatten(0, 1)).view_as(stacked)

        def tile_error(a: Tensor, b: Tensor, rows: slice, columns: slice) -> Tensor:
            # Samples are the last but one axis, whether labels are per modality or not.
            similarity = similarity_of(values[..., rows, :], None if rows == columns else values[..., columns, :])
            return pair_error(
                a, b, similarity, bounds(similarity), alpha=alpha, beta=beta, gamma_l=gamma_l, hardness=hardness
            )

        loss = sum_over_pairs(directions, tile_error, share) / len(codes) ** 2
        if kappa_q and share[0] == 0:
            same = None if values.ndim == 2 else same_labels(values)
            loss = torch.add(loss, quantization_error(stacked, same), alpha=kappa_q / len(codes))
    return loss


def checked_batch(outputs: Outputs, labels: Tensor) -> tuple[Outputs, Tensor]:
    """`checked_outputs`, and the labels as a tensor on their device, for a loss with one set of labels a sample.

    Raises:
        ValueError: as there; or there are not as many labels, or they are per modality.
    """
    outputs = checked_outputs(outputs)
    if isinstance(labels, Mapping):
        raise ValueError("this loss takes one (n, c) tensor of labels for all modalities, not one for each")
    return outputs, _checked_labels(labels, next(iter(outputs.values())))


def checked_outputs(outputs: Outputs) -> Outputs:
    """The outputs in at least float32 (half precision loses whole bits of distance).

    Raises:
        ValueError: no modality, or the modalities' outputs differ in shape.
    """
    shapes = {modality: tuple(codes.shape) for modality, codes in outputs.items()}
    if not shapes or len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 2:
        raise ValueError(f"outputs are one (n, k) tensor per modality, all of one shape, not {shapes}")
    return {m: codes if codes.dtype == torch.float64 else codes.float() for m, codes in outputs.items()}


def stacked_labels(labels: Labels, outputs: Outputs) -> Tensor:
    """Labels in the type and on the device of the outputs: ``(n, c)``, or ``(m, n, c)`` where they are per modality.

    Raises:
        ValueError: there are not as many labels as outputs, or a modality has none.
    """
    codes = next(iter(outputs.values()))
    if not isinstance(labels, Mapping):
        return _checked_labels(labels, codes).to(codes)
    if missing := sorted(outputs.keys() - labels.keys()):
        raise ValueError(f"labels are per modality, but there are none for {', '.join(missing)}")
    each = [_checked_labels(labels[modality], codes).to(codes) for modality in outputs]
    if len({values.shape[1] for values in each}) > 1:
        raise ValueError(f"labels are (n, c) with one c, not {[tuple(values.shape) for values in each]}")
    return torch.stack(each)


def _checked_labels(labels: Tensor, codes: Tensor) -> Tensor:
    labels = torch.as_tensor(labels, device=codes.device)
    if labels.ndim != 2 or len(labels) != len(codes):
        raise ValueError(f"labels are (n, c) with n = {len(codes)} as the outputs, not {tuple(labels.shape)}")
    return labels


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
    """`channel_error` of pairs with ``similarity``, shaped like the bounds, under the weights of `channel_loss`."""
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
        bounds: ``(lower, upper)``, in bits, lower <= upper: each ``(r, c)``, or ``(m, r, m, c)`` where they differ by
            pair of modalities.
        weights: ψ, shaped like the bounds; None means 1 everywhere.
        gamma_l: exponent γ_ℓ of the violation.
        hard: pairs that have ω of `hard_negatives.hard_weights`, bool, shaped like the bounds; for the others, and
            None, ω is
            1.
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
    nearest = torch.clamp(distances.detach(), _for_modalities(lower), _for_modalities(upper))
    violation = (distances - nearest).abs()
    harder = None if hard is None else torch.where(_for_modalities(hard), hard_weights(violation, k, hardness), 1)
    if weights is not None:
        violation = _for_modalities(weights) * violation
    if gamma_l != 1:
        # 0 ** γ_ℓ has an infinite slope for γ_ℓ < 1: pairs inside their channel are kept out of the power.
        outside = violation > 0
        violation = torch.where(outside, torch.where(outside, violation, 1) ** gamma_l, 0)
    return violation.sum() if harder is None else (harder * violation).sum()


def _for_modalities(values: Tensor) -> Tensor:
    """``(r, c)`` for all pairs of modalities, ``(m, r, m, c)`` as they are."""
    return values[:, None] if values.ndim == 2 else values


def quantization_error(codes: Tensor, same: Tensor | None = None) -> Tensor:
    """Σ_m ‖B̂_m − sign(Σ_m B̂_m)‖₁ with sign(0) = +1, eq. (dsch:quant); no gradient flows through the sign.

    Args:
        codes: ``(m, n, k)``.
        same: ``(m, m, n)`` bool, which modalities of a sample mean the same and are summed for its sign; None is all.
    """
    together = codes.sum(dim=0) if same is None else (same.unsqueeze(-1) * codes).sum(dim=1)
    return (codes - sign(together)).abs().sum()


def sign(values: Tensor) -> Tensor:
    """±1 with sign(0) = +1, detached."""
    return torch.where(values.detach() >= 0, 1.0, -1.0).to(values.dtype)
