"""The landscape of a channel loss: what one pair of samples adds to it, over similarity and distance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from channelhash.losses import DSCHLoss, SCHLoss
from channelhash.losses.functional import set_weights

ChannelLoss = DSCHLoss | SCHLoss
Values = NDArray[np.float64]

#: How the losses are written in titles.
NAMES: Mapping[type[ChannelLoss], str] = {DSCHLoss: "DSCH", SCHLoss: "SCH"}
#: Smallest similarity that is drawn as "not zero": SCH jumps at 0, so the surface begins right beside it.
JUST_ABOVE_ZERO = 1e-6


@dataclass(frozen=True)
class Landscape:
    """A loss on a grid.

    Attributes:
        similarity: S, ``(s,)``, rising; the first is 0, the second `JUST_ABOVE_ZERO`.
        distance: d in bits, ``(d,)``, from 0 to k.
        loss: value of a pair, ``(d, s)``.
        lower: lower end of the channel, ``(s,)``, in bits.
        upper: upper end, likewise.
    """

    similarity: Values
    distance: Values
    loss: Values
    lower: Values
    upper: Values


def channel(loss: ChannelLoss, similarity: ArrayLike) -> tuple[Values, Values]:
    """Return the lower and upper end of a loss's channel in bits, each shaped like ``similarity``, in float64.

    >>> [float(end) for end in channel(SCHLoss(32), 1.0)]
    [0.0, 0.0]
    """
    lower, upper = loss.bounds(torch.as_tensor(np.asarray(similarity, dtype=np.float64)))
    return lower.numpy(), upper.numpy()


def pair_loss(loss: ChannelLoss, similarity: ArrayLike, distance: ArrayLike) -> Values:
    """Compute what an ordered pair adds to L_D, eq. (dsch:it:l) and (sch:loss).

    It is (ψ · max(0, lower − d, d − upper))^γ_ℓ.

    Args:
        loss: DSCH or SCH with its settings; SCH has γ_ℓ = 1.
        similarity: S in [0, 1], any shape.
        distance: d in [0, k], of a shape that broadcasts with it.

    >>> pair_loss(SCHLoss(32), 0.0, [0.0, 16.0]).tolist()
    [16.0, 0.0]
    """
    similarity, distance = np.broadcast_arrays(
        np.asarray(similarity, dtype=np.float64), np.asarray(distance, dtype=np.float64)
    )
    lower, upper = channel(loss, similarity)
    weights = set_weights(torch.from_numpy(similarity.copy()), loss.alpha, loss.beta).numpy()
    violation = np.maximum(0, np.maximum(lower - distance, distance - upper))
    result: Values = (weights * violation) ** loss.gamma_l
    return result


def landscape(loss: ChannelLoss, points: int = 201) -> Landscape:
    """Compute the loss on a grid of ``points`` distances by ``points`` similarities above 0, and S = 0 itself.

    >>> landscape(SCHLoss(32), points=5).loss.shape
    (5, 6)
    """
    similarity = np.concatenate([[0.0], np.linspace(JUST_ABOVE_ZERO, 1, points)])
    distance = np.linspace(0, loss.n_bits, points)
    return Landscape(
        similarity, distance, pair_loss(loss, similarity[None, :], distance[:, None]), *channel(loss, similarity)
    )


def title(loss: ChannelLoss) -> str:
    """Name a loss with the settings that shape its landscape.

    >>> title(SCHLoss(32))
    'SCH with k = 32, τ = 3'
    """
    settings: dict[str, Any] = {"k": loss.n_bits, "τ": loss.tau}
    if isinstance(loss, DSCHLoss):
        settings |= {"λ$_{neg}$": loss.lambda_neg, "γ$_w$": loss.gamma_w, "γ$_ℓ$": loss.gamma_l}
    return f"{NAMES[type(loss)]} with " + ", ".join(f"{name} = {value:g}" for name, value in settings.items())
