"""How pairs are spread over the distances, as curves to draw, from the same histograms."""

from typing import NamedTuple

from channelhash.metrics.graded_relevance import Counts
from channelhash.metrics.ranking import Scores


class PairShares(NamedTuple):
    """Share of pairs at each distance 0 … k, ``(k + 1,)`` each, over all queries; zeros where there are no such pairs.

    Attributes:
        relevant: of the pairs that share a label.
        irrelevant: of those that share none.

    >>> import numpy as np
    >>> pair_shares(np.array([[2, 2]]), np.array([[1, 1]])).irrelevant.tolist()
    [0.5, 0.5]
    """

    relevant: Scores
    irrelevant: Scores


def pair_shares(total: Counts, relevant: Counts) -> PairShares:
    """Compute how query–item pairs are spread over the distances, each kind adding up to 1.

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise.

    >>> import numpy as np
    >>> pair_shares(np.array([[2, 2]]), np.array([[2, 0]])).relevant.tolist()
    [1.0, 0.0]
    """
    counts = relevant.sum(axis=0), (total - relevant).sum(axis=0)
    return PairShares(*(pairs / max(int(pairs.sum()), 1) for pairs in counts))
