"""Blend training images and their labels in pairs (mixup, Zhang et al., ICLR 2018).

Each draw is a function of (seed, epoch, sample), as with all augmentation.
"""

from typing import NamedTuple

from torch import Tensor

from channelhash.utils.seeds import generator


class Mix(NamedTuple):
    """The partner of a sample, and the share λ of the sample itself."""

    partner: int
    share: float


def draw_mix(seed: int, epoch: int, sample: int, n_samples: int, probability: float, alpha: float) -> Mix | None:
    """Draw the partner and share that a sample is blended with in an epoch, or None.

    Args:
        seed: of the augmentation.
        epoch: from 0.
        sample: 0 … ``n_samples`` − 1.
        n_samples: training rows; the partner is any of the others, equally likely.
        probability: of blending the sample at all.
        alpha: λ is drawn from Beta(α, α).

    >>> mix = draw_mix(seed=0, epoch=0, sample=0, n_samples=2, probability=1, alpha=1)
    >>> mix.partner, 0 <= mix.share <= 1
    (1, True)
    """
    random = generator(seed, "mix images", epoch, sample)
    if n_samples < 2 or random.random() >= probability:
        return None
    partner = int(random.integers(n_samples - 1))
    return Mix(partner + (partner >= sample), float(random.beta(alpha, alpha)))


def mix_inputs(values: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """Compute λ x_i + (1 − λ) x_j of ``(n, …)`` floats each; ``shares`` are λ, ``(n,)``.

    >>> import torch
    >>> mix_inputs(torch.tensor([[8.0, 0.0]]), torch.tensor([[0.0, 4.0]]), torch.tensor([0.75])).tolist()
    [[6.0, 1.0]]
    """
    share = shares.to(values).view(-1, *[1] * (values.ndim - 1))
    return share * values + (1 - share) * partners


def mix_labels(labels: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """Blend labels: λ y_i + (1 − λ) y_j of label vectors scaled to one length.

    Similarity is the cosine of label vectors, which depends on their direction only. Without scaling, an image with six
    labels would outweigh one with a single label: at λ = ½ and nothing in common, the similarity to the first would be
    0.93 and to the second 0.38, although both contribute half. With one length it is 0.71 to both; in general the
    similarity to any third sample is λ S_ik + (1 − λ) S_jk over the length of the blend. y_j is scaled to the length of
    y_i, so that blending with equal labels changes nothing.

    Args:
        labels: ``(n, c)`` bool or 0/1, every row with a label.
        partners: ``(n, c)``, likewise.
        shares: λ, ``(n,)``.

    Returns:
        ``(n, c)`` float32.

    >>> import torch
    >>> mix_labels(torch.tensor([[True, False]]), torch.tensor([[False, True]]), torch.tensor([0.75])).tolist()
    [[0.75, 0.25]]
    """
    y_i, y_j = labels.float(), partners.float()
    ratio = (y_i.sum(dim=1, keepdim=True) / y_j.sum(dim=1, keepdim=True)).sqrt()
    return y_i + (1 - shares.to(y_i)[:, None]) * (ratio * y_j - y_i)
