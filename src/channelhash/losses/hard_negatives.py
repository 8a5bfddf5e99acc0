"""Hard negatives of the channel losses: dissimilar pairs weigh the more, the further they are from their channel."""

import math
from functools import cache
from typing import Annotated

import torch
from pydantic import Field
from scipy.special import log_ndtr
from torch import Tensor

#: η as a setting.
Hardness = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# In σ: of random codes one pair in 740 is nearer than that, and codes that have all fallen together, as they may before
# the first steps, shall not outweigh everything else.
_CAP = 3.0


def hard_weights(violation: Tensor, n_bits: int, hardness: float) -> Tensor:
    """Return the weight of a dissimilar pair by its violation v, e^(η · min(v/σ, 3)) / c(η) with σ = √k/2 bits.

    σ is the spread of the distances of random codes, so the same η means the same for any k. c(η) is the mean of the
    numerator over the violating pairs of random codes (v/σ is half-normal there, with λ_neg = k/2): with random codes
    the mean weight is 1 (0.92 for k = 16 and η = 2: short codes have lighter tails), and the term keeps its size. A
    mean over the batch would do so for other codes as well, but it is of all pairs at once, and a tile or a process
    sees its own: this weight is of the pair alone.

    The idea is that of Robinson et al., "Contrastive Learning with Hard Negative Samples" (ICLR 2021), where negatives
    weigh e^(β · similarity), divided by the mean.

    Args:
        violation: v ≥ 0 in bits, any shape.
        n_bits: code length k.
        hardness: η ≥ 0; 0 gives 1 everywhere.

    Returns:
        Weights, shaped like ``violation``, from 1/c(η) to less than 371 for any η (7.3 for η = 1); no gradient flows
        through them.

    >>> easy, hard = hard_weights(torch.tensor([0.0, 6.0]), n_bits=16, hardness=1.0)
    >>> hard.item() > 1 > easy.item()
    True
    """
    scaled = (violation.detach() / (0.5 * math.sqrt(n_bits))).clamp_max(_CAP)
    return torch.exp(hardness * scaled - _log_mean(hardness))


def check_hardness(hardness: float) -> None:
    """Check that η is 0 or more.

    >>> check_hardness(0.5)

    Raises:
        ValueError: it is not.
    """
    if not hardness >= 0:
        raise ValueError(f"hardness is {hardness}; it is 0 or more, easy pairs never weigh more than hard ones")


@cache
def _log_mean(hardness: float) -> float:
    """Return log c(η), of ∫₀^∞ e^(η · min(x, 3)) 2φ(x) dx in closed form; in logarithms it overflows for no η."""
    upper, lower = log_ndtr(_CAP - hardness), log_ndtr(-hardness)
    below = hardness**2 / 2 + upper + math.log1p(-math.exp(lower - upper))
    above = _CAP * hardness + log_ndtr(-_CAP)
    high, low = max(below, above), min(below, above)
    return float(math.log(2) + high + math.log1p(math.exp(low - high)))
