"""Wrong labels, for experiments on how much of them a loss bears."""

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.seeds import generator


def noisy_labels(labels: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """Give a share of the rows, drawn by ``seed``, the labels of another row each.

    How frequent labels are, and which occur together, stays the same up to chance. Some rows get labels equal to their
    own.

    Args:
        labels: ``(n, c)``.
        share: of the rows, 0 … 1.
        seed: of the draw.

    >>> labels = np.eye(4, dtype=bool)
    >>> int((noisy_labels(labels, 0.5, seed=0) != labels).any(axis=1).sum())
    2
    """
    n = len(labels)
    random = generator(seed, "label noise")
    chosen = random.permutation(n)[: round(share * n)]
    others = (chosen + random.integers(1, max(n, 2), size=len(chosen))) % n
    result = labels.copy()
    result[chosen] = labels[others]
    return result
