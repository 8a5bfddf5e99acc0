"""The landscape of a channel loss: what one pair of samples adds to it, over similarity and
distance.
"""

import json
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from numpy.typing import ArrayLike, NDArray

from channelhash._version import __version__
from channelhash.losses import DSCHLoss, SCHLoss
from channelhash.losses.base import set_weights
from channelhash.utils.files import write_text
from channelhash.utils.seeds import generator

_ChannelLoss = DSCHLoss | SCHLoss
_Values = NDArray[np.float64]

#: Smallest similarity that is drawn as "not zero": SCH jumps at 0, so the surface begins right
#: beside it.
_JUST_ABOVE_ZERO = 1e-6


def channel(loss: _ChannelLoss, similarity: ArrayLike) -> tuple[_Values, _Values]:
    """Return the lower and upper end of a loss's channel in bits, each shaped like ``similarity``,
    in float64.

    >>> [float(end) for end in channel(SCHLoss(32), 1.0)]
    [0.0, 0.0]
    """
    lower, upper = loss.bounds(torch.as_tensor(np.asarray(similarity, dtype=np.float64)))
    return lower.numpy(), upper.numpy()


def pair_loss(loss: _ChannelLoss, similarity: ArrayLike, distance: ArrayLike) -> _Values:
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
        np.asarray(similarity, np.float64), np.asarray(distance, np.float64)
    )
    lower, upper = channel(loss, similarity)
    weights = set_weights(torch.from_numpy(similarity.copy()), loss.alpha, loss.beta).numpy()
    violation = np.maximum(0, np.maximum(lower - distance, distance - upper))
    return np.asarray((weights * violation) ** loss.gamma_l)


#: Code length that the page starts with.
_START_BITS = 32
#: Colours between which the page interpolates.
_COLORS = 17
#: Settings and pairs drawn for the page's own check, beside those at the edges.
_DRAWN = 120


def write_page(path: Path) -> None:
    """Write the page: heat map, surface, cut and channels of both losses, with sliders for their
    settings.

    It loads nothing from anywhere. The page holds `_check_values` and compares them with its own
    formulas when it is opened.
    """
    template = (
        resources.files("channelhash.lab.experiments")
        .joinpath("landscape.html")
        .read_text(encoding="utf-8")
    )
    write_text(path, template.replace("__FACTS__", json.dumps(_page_facts())))


def _page_facts() -> dict[str, Any]:
    """Return what the page takes from Python: defaults of the losses, colours 0 … 255, values to
    check itself with.

    >>> _page_facts()["defaults"]["sch"]
    {'k': 32, 'tau': 3.0}
    """
    dsch = DSCHLoss(_START_BITS)
    names = ("tau", "lambda_neg", "gamma_w", "gamma_l")
    return {
        "version": __version__,
        "defaults": {
            "dsch": {"k": _START_BITS} | {name: getattr(dsch, name) for name in names},
            "sch": {"k": _START_BITS, "tau": SCHLoss(_START_BITS).tau},
        },
        "just_above_zero": _JUST_ABOVE_ZERO,
        "colors": colormaps["cividis"](np.linspace(0, 1, _COLORS), bytes=True)[:, :3].tolist(),
        "checks": _check_values(),
    }


def _check_values() -> list[list[Any]]:
    """Draw rows of (loss, k, λ_neg, τ, γ_w, γ_ℓ, S, d, value of `pair_loss`), at the edges and at
    random.

    >>> len(_check_values())
    272
    """
    random = generator(0, "landscape page")
    rows: list[list[Any]] = []
    edges = product((0.0, _JUST_ABOVE_ZERO, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0))
    for S, share in [*edges, *random.random((_DRAWN, 2)).tolist()]:
        k = int(random.integers(1, 17)) * 8
        lambda_neg = float(random.uniform(0, k))
        tau = float(random.uniform(0, 16))
        gamma_w = float(random.uniform(0.5, 16))
        gamma_l = float(random.uniform(0.5, 3))
        losses: dict[str, _ChannelLoss] = {
            "dsch": DSCHLoss(k, lambda_neg, tau, gamma_w, gamma_l),
            "sch": SCHLoss(k, tau),
        }
        for name, loss in losses.items():
            value = float(pair_loss(loss, S, share * k))
            rows.append([name, k, lambda_neg, tau, gamma_w, gamma_l, S, share * k, value])
    return rows
