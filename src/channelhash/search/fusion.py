"""Several rankings of items as one."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

#: What Cormack, Clarke and Büttcher found best on their collections, and everybody uses.
SMOOTHING = 60


class Ranking(NamedTuple):
    """Items, best first.

    Attributes:
        ids: their ids, each once.
        keys: what each is ranked by, a distance or a score; neighbours with equal keys are tied.

    >>> Ranking(["a", "b"], [3, 3]).keys
    [3, 3]
    """

    ids: Sequence[str]
    keys: Sequence[float]


def fuse(rankings: Sequence[Ranking], smoothing: float = SMOOTHING) -> dict[str, float]:
    """Score items by reciprocal rank fusion, in expectation over the order of ties.

    score(d) = Σ over rankings of 1 / (smoothing + rank of d), nothing from those that lack d: Cormack, Clarke and
    Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods" (SIGIR 2009). Tied
    items share the mean of what their places give. So a word that half of all items have says little of each, and
    whether codes tie matters to nobody's id.

    Args:
        rankings: of any lengths.
        smoothing: the larger, the less the first places count.

    Returns:
        Id -> score, of every item in any ranking.

    >>> scores = fuse([Ranking(["a", "b"], [0, 1]), Ranking(["b", "c"], [9.5, 9.5])])
    >>> sorted(scores, key=scores.get, reverse=True)
    ['b', 'a', 'c']
    """
    scores: dict[str, float] = {}
    for ids, keys in rankings:
        place = 0
        for _, tied in groupby(range(len(ids)), keys.__getitem__):
            members = list(tied)
            share = sum(1 / (smoothing + place + 1 + n) for n in range(len(members))) / len(members)
            place += len(members)
            for member in members:
                scores[ids[member]] = scores.get(ids[member], 0.0) + share
    return scores
