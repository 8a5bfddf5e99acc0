"""Blending a training picture with another one, and its labels with the other's (mixup, Zhang et al., ICLR 2018).

Each draw is a function of (seed, epoch, sample), as with all augmentation.
"""

from typing import NamedTuple

from torch import Tensor

from channelhash.utils.seeds import generator


class Mix(NamedTuple):
    """The other sample, and the share λ that stays of the sample itself."""

    partner: int
    share: float


def draw_mix(seed: int, epoch: int, sample: int, n_samples: int, probability: float, alpha: float) -> Mix | None:
    """What a sample is blended with in an epoch, or None.

    Args:
        seed: of the augmentation.
        epoch: from 0.
        sample: 0 … ``n_samples`` − 1.
        n_samples: training rows; the partner is any of the others, each as likely.
        probability: that the sample is blended at all.
        alpha: λ is drawn from Beta(α, α).
    """
    random = generator(seed, "mix images", epoch, sample)
    if n_samples < 2 or random.random() >= probability:
        return None
    partner = int(random.integers(n_samples - 1))
    return Mix(partner + (partner >= sample), float(random.beta(alpha, alpha)))


def mix_inputs(values: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """λ x_i + (1 − λ) x_j of ``(n, …)`` floats each; ``shares`` are λ, ``(n,)``."""
    share = shares.to(values).view(-1, *[1] * (values.ndim - 1))
    return share * values + (1 - share) * partners


def mix_labels(labels: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """Labels of blended samples: λ y_i + (1 − λ) y_j of label vectors brought to one length.

    Similarity is the cosine of label vectors, which sees their direction only. Blended as they are, a picture with six
    labels would outweigh one with a single label: at λ = ½ and nothing in common the similarity to the first would be
    0.93 and to the second 0.38, although half of each is to be seen. Of one length it is 0.71 to both; and in general
    the similarity to any third sample is λ S_ik + (1 − λ) S_jk over the length of the blend. y_j is brought to the
    length of y_i, so that blending with equal labels changes nothing.

    Args:
        labels: ``(n, c)`` bool or 0/1, every row with a label.
        partners: ``(n, c)``, likewise.
        shares: λ, ``(n,)``.

    Returns:
        ``(n, c)`` float32.
    """
    own, other = labels.float(), partners.float()
    ratio = (own.sum(dim=1, keepdim=True) / other.sum(dim=1, keepdim=True)).sqrt()
    return own + (1 - shares.to(own)[:, None]) * (ratio * other - own)
