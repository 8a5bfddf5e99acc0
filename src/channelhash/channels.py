"""Label similarity, relaxed Hamming distance, and the band of distances ("channel") a pair of
samples should lie in.

Pure functions on tensors; the losses are built from them. The paper's notation: S similarity in [0,
1], k = ``n_bits``, d distance in [0, k].
"""

import math

import torch
from torch import Tensor

__all__ = [
    "balanced_bounds",
    "dsch_bounds",
    "label_similarity",
    "relaxed_hamming",
    "sch_bounds",
    "similarity_ratio",
]

# Rows of pairs at a time.
_BLOCK = 1024
# Blended labels are above 1 by rounding.
_ROUNDING = 1 + 1e-3
# Below this norm a row has no direction: its cosine to anything is 0 and its gradient stays finite.
_SMALLEST_NORM = 1e-12


def __dir__() -> list[str]:
    return sorted(__all__)


def label_similarity(labels: Tensor, others: Tensor | None = None) -> Tensor:
    """Return the cosine similarity of label vectors, eq. (1) of the paper.

    Args:
        labels: ``(n, c)`` bool or non-negative numbers (one-hot or multi-hot).
        others: ``(m, c)``, labels of other samples; None compares the samples with each other.

    Raises:
        ValueError: as `check_labels`.

    Returns:
        ``(n, n)``, or ``(n, m)`` with ``others``, in [0, 1], float32 (float64 for float64 labels).
        A sample without labels has similarity 0 to all others, and 1 to itself (``protocol.md`` §
        5). Samples with the same label set have exactly 1, so that they form the set "S = 1" of the
        losses whatever the rounding.

    >>> label_similarity(torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]])).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    for side in (labels, others):
        if side is not None:
            check_labels(torch.as_tensor(side))
    return label_cosines(labels, others)


def check_labels(labels: Tensor, largest: float = math.inf) -> None:
    """Check that labels ``(n, c)`` are bool, which costs nothing, or numbers from 0 to ``largest``.

    A single column holds at most 1, since it may be one of class numbers.

    >>> check_labels(torch.tensor([[1, -1]]))
    Traceback (most recent call last):
    ValueError: labels are 0 or more, not -1 (row 0, column 1); \
of labels of -1 and 1 pass labels > 0
    """
    if labels.ndim != 2:
        hint = (
            "; of class numbers pass torch.nn.functional.one_hot(labels.long())"
            if labels.ndim == 1
            else ""
        )
        raise ValueError(f"labels are (n, c), not {tuple(labels.shape)}{hint}")
    if labels.dtype == torch.bool:
        return
    largest = 1.0 if labels.shape[1] == 1 else largest
    fits = (labels >= 0) & (labels <= largest * _ROUNDING) & (labels < math.inf)  # which NaN is not
    if fits.all():
        return
    row, column = (~fits).nonzero()[0].tolist()
    value = labels[row, column].item()
    if value < 0:
        problem = "labels are 0 or more"
        hint = "of labels of -1 and 1 pass labels > 0"
    elif not math.isfinite(value):
        problem = "labels are finite numbers"
        hint = "pass 0 for a label that an item lacks"
    elif labels.shape[1] == 1:
        problem = "a single column of labels holds 0 or 1"
        hint = "of class numbers pass torch.nn.functional.one_hot(labels[:, 0].long())"
    else:
        problem = "this loss takes labels from 0 to 1"
        hint = "of counts pass labels > 0"
    raise ValueError(f"{problem}, not {value} (row {row}, column {column}); {hint}")


def label_cosines(labels: Tensor, others: Tensor | None = None) -> Tensor:
    """Return `label_similarity` of labels that have been checked: without waiting for a GPU.

    >>> label_cosines(torch.tensor([[1, 0]]), torch.tensor([[1, 0], [0, 1]])).tolist()
    [[1.0, 0.0]]
    """
    rows = _floats(labels)
    columns = rows if others is None else _floats(others)
    shared = rows @ columns.T
    # One root of an exact product (not a product of two rounded roots) makes 3 / sqrt(3 · 3)
    # exactly 1.
    lengths = (rows.square().sum(dim=1)[:, None] * columns.square().sum(dim=1)[None, :]).sqrt()
    # Where a length is 0, so is what is shared.
    similarity = (shared / lengths.clamp_min(_SMALLEST_NORM)).clamp(0, 1)
    return similarity.fill_diagonal_(1) if others is None else similarity


def _floats(labels: Tensor) -> Tensor:
    values = torch.as_tensor(labels)
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def relaxed_hamming(a: Tensor, b: Tensor) -> Tensor:
    """Return the Hamming distance of real-valued codes, eq. (2): d = k/2 · (1 − cos(a_i, b_j)).

    Equal to the number of differing bits where all entries are ±1.

    Args:
        a: ``(n, k)`` floats.
        b: ``(m, k)`` floats.

    Returns:
        ``(n, m)`` in [0, k]. A zero row is k/2 away from everything, with a finite gradient.

    >>> codes = torch.tensor([[1.0, 1, 1, -1], [0, 0, 0, 0]])
    >>> relaxed_hamming(torch.ones(1, 4), codes).tolist()
    [[1.0, 2.0]]
    """
    return 0.5 * a.shape[1] * (1 - unit_rows(a) @ unit_rows(b).T)


def unit_rows(codes: Tensor) -> Tensor:
    """Scale rows to length 1; rows of (nearly) zero length are left as they are.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    norms = torch.linalg.vector_norm(codes, dim=-1, keepdim=True)
    return codes / torch.where(norms > _SMALLEST_NORM, norms, 1.0)


def dsch_bounds(
    similarity: Tensor,
    n_bits: int,
    lambda_neg: float | None = None,
    tau: float = 1.0,
    gamma_w: float = 8.0,
) -> tuple[Tensor, Tensor]:
    """Return the lower and upper end of the dynamic channel of DSCH.

    Width w = (1 − S)^γ_w · (k − λ_neg − τ) + τ and leftmost point p = λ_neg (1 − S) − τ S, eq.
    (dsch:it:w) and (dsch:it:p). Both are continuous in S.

    Args:
        similarity: any shape, values in [0, 1].
        n_bits: code length k.
        lambda_neg: smallest distance of dissimilar pairs λ_neg; k/2 if None.
        tau: smallest width τ, in bits.
        gamma_w: how fast the width falls with S.

    Returns:
        ``(p, p + w)``, each shaped like ``similarity``. p is −τ at S = 1: the part below 0 is never
        reached.

    >>> lower, upper = dsch_bounds(torch.tensor([0.0, 1.0]), n_bits=16)
    >>> lower.tolist(), upper.tolist()
    ([8.0, -1.0], [16.0, 0.0])
    """
    lambda_neg = n_bits / 2 if lambda_neg is None else lambda_neg
    dissimilarity = 1 - similarity
    width = dissimilarity**gamma_w * (n_bits - lambda_neg - tau) + tau
    lower = lambda_neg * dissimilarity - tau * similarity
    return lower, lower + width


def sch_bounds(similarity: Tensor, n_bits: int, tau: float = 3.0) -> tuple[Tensor, Tensor]:
    """Return the lower and upper end of SCH's fixed-width channel (Hu et al. 2024), eq.
    (sch:lambdal), (sch:lambdau).

    S = 0: [k/2, k]. Otherwise [k/2 (1 − S) − τ, k/2 (1 − S)], the lower end clamped at 0, which
    changes no loss value because no distance is negative. Arguments and shapes as in `dsch_bounds`.

    >>> lower, upper = sch_bounds(torch.tensor([0.0, 0.5, 1.0]), n_bits=16)
    >>> lower.tolist(), upper.tolist()
    ([8.0, 1.0, 0.0], [16.0, 4.0, 0.0])
    """
    dissimilar = similarity == 0
    target = 0.5 * n_bits * (1 - similarity)
    lower = torch.where(dissimilar, 0.5 * n_bits, (target - tau).clamp_min(0))
    upper = torch.where(dissimilar, float(n_bits), target)
    return lower, upper


def balanced_bounds(
    similarity: Tensor, n_bits: int, similarity_ratio: float, rho: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the lower and upper end of the balanced channels of BSCH
    (``docs/explanation/own-losses.md``).

    S > 0: [0, k/2 · (1 − S)], no lower end that counts. S = 0: [k/2 + g, k] with the gap g = ρ ·
    k/2 · r, at most k/2.

    Where it comes from: over all ordered pairs of n codes, Σ cos(b_i, b_j) = ‖Σ b_i/‖b_i‖‖² ≥ 0, so
    their mean distance is at most k/2, and it is k/2 if and only if the directions' mean is 0:
    balanced bits. The channels of SCH and DSCH put dissimilar pairs at k/2 and similar ones below,
    which unbalanced codes attain too, and which leaves no room between S = 0 and S → 0. With ρ = 1
    the ends, k/2 · (1 − S) and k/2 + g, have the mean k/2: the largest gap that any codes could
    attain.

    >>> similarity = torch.tensor([0.0, 0.5, 1.0])
    >>> lower, upper = balanced_bounds(similarity, n_bits=16, similarity_ratio=0.25)
    >>> lower.tolist(), upper.tolist()
    ([10.0, 0.0, 0.0], [16.0, 4.0, 0.0])
    """
    # r is infinite where no pair is dissimilar
    fraction = min(rho * similarity_ratio, 1.0) if rho else 0.0
    gap = fraction * 0.5 * n_bits
    dissimilar = similarity == 0
    lower = dissimilar * similarity.new_tensor(0.5 * n_bits + gap)
    upper = torch.where(dissimilar, float(n_bits), 0.5 * n_bits * (1 - similarity))
    return lower, upper


def similarity_ratio(labels: Tensor) -> float:
    """Return r = Σ S / #{S = 0} over all ordered pairs of samples, each with itself included (S =
    1).

    >>> similarity_ratio(torch.eye(3))  # 3 pairs of a sample with itself, 6 others
    0.5
    """
    labels = torch.as_tensor(labels)
    check_labels(labels)
    columns = labels.double()
    if not columns.shape[1]:  # torch.unique takes no rows of length 0
        columns = columns.new_zeros(len(columns), 1)
    rows, counts = torch.unique(columns, dim=0, return_counts=True)
    total = 0.0
    dissimilar = 0
    for block, numbers in zip(rows.split(_BLOCK), counts.split(_BLOCK), strict=True):
        similarity = label_cosines(block, rows)
        pairs = numbers[:, None] * counts
        total += float((similarity * pairs).sum())
        dissimilar += int(((similarity == 0) * pairs).sum())
    # each 1 to itself, which a comparison of rows cannot see
    unlabelled = int(counts[rows.sum(dim=1) == 0].sum())
    total = total + unlabelled
    dissimilar = dissimilar - unlabelled
    return total / dissimilar if dissimilar else math.inf
