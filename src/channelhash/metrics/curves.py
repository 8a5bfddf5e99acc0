"""How pairs are spread over the distances, as curves to draw, from the same histograms."""

from typing import NamedTuple

from channelhash.metrics.graded_relevance import Counts
from channelhash.metrics.ranking import Figures


class PairShares(NamedTuple):
    """Share of pairs at each distance 0 … k, ``(k + 1,)`` each, over all queries; zeros where there are no such pairs.

    Attributes:
        relevant: of the pairs that share a label.
        irrelevant: of those that share none.
    """

    relevant: Figures
    irrelevant: Figures


def pair_shares(total: Counts, relevant: Counts) -> PairShares:
    """How query–item pairs are spread over the distances, each kind adding up to 1.

    Args:
        total: n_d, ``(nq, k + 1)``.
        relevant: n_d⁺, likewise.
    """
    counts = relevant.sum(axis=0), (total - relevant).sum(axis=0)
    return PairShares(*(pairs / max(int(pairs.sum()), 1) for pairs in counts))
