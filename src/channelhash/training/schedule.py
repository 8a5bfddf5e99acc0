"""The learning rate over a training."""

import math
from typing import Literal

#: Share of a training over which the cosine schedule rises from 0.
_WARM_UP = 0.05


def learning_rate(
    epoch: float, epochs: int, initial: float, schedule: Literal["paper", "cosine"] = "paper"
) -> float:
    """Return the learning rate after ``epoch`` epochs.

    ``paper`` (``protocol.md`` § 6) changes it once an epoch: it is constant, then falls as a cosine
    to a tenth, and stays there. Of the paper's 200 epochs it falls from 75 to 150; other lengths
    turn at the same fractions, 3/8 and 3/4.

    ``cosine`` changes it at every step: it rises from 0 over the first 5 % of the training, then
    falls as half a cosine to 0.

    >>> [round(learning_rate(e, 200, 1e-5) * 1e6, 2) for e in (0, 74, 75, 112, 149, 150, 199)]
    [10.0, 10.0, 10.0, 5.59, 1.0, 1.0, 1.0]
    >>> [round(learning_rate(e, 20, 1.0, "cosine"), 2) for e in (0, 0.5, 1, 10.5, 20)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if schedule == "cosine":
        progress = epoch / epochs
        if progress < _WARM_UP:
            return initial * progress / _WARM_UP
        return initial * (1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP))) / 2
    start = 75 / 200
    end = 150 / 200
    progress = min(max(math.floor(epoch) / epochs, start), end)
    return initial * (0.1 + 0.9 * (1 + math.cos(math.pi * (progress - start) / (end - start))) / 2)
