"""Learning rate of an epoch."""

import math


def learning_rate(epoch: int, epochs: int, initial: float) -> float:
    """Return the learning rate: constant, then a cosine to a tenth, then constant (``protocol.md`` § 6).

    The paper's 200 epochs turn at 75 and 150; other lengths turn at the same fractions, 3/8 and 3/4.

    Args:
        epoch: 0 … ``epochs`` − 1.
        epochs: length of the training.
        initial: learning rate of the first epoch.

    >>> [round(learning_rate(e, 200, 1e-5) * 1e6, 2) for e in (0, 74, 75, 112, 149, 150, 199)]
    [10.0, 10.0, 10.0, 5.59, 1.0, 1.0, 1.0]
    """
    progress = epoch / epochs
    start, end = 75 / 200, 150 / 200
    if progress < start:
        return initial
    if progress < end:
        return initial * (0.1 + 0.9 * (1 + math.cos(math.pi * (progress - start) / (end - start))) / 2)
    return initial * 0.1
