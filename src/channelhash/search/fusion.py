"""Several rankings of items as one."""

from collections.abc import Collection, Mapping, Sequence
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
        while place < len(ids):
            end = place + 1
            while end < len(ids) and keys[end] == keys[place]:
                end += 1
            share = sum([1 / (smoothing + rank) for rank in range(place + 1, end + 1)]) / (end - place)
            for name in ids[place:end]:
                scores[name] = scores.get(name, 0.0) + share
            place = end
    return scores


def fuse_partial(rankings: Mapping[str, Ranking], lacks: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Score items by reciprocal rank fusion, where what some of them lack counts neither for nor against them.

    The score of an item that cannot be in all rankings is that of those it can be in, times f. Over the items that lack
    nothing and have a place in those, f is the sum of what all rankings give them, divided by that of what those give
    them: an item without a caption gets for it what its like with one get on average. Where there are no such items, f
    is the number of all rankings divided by that of those.

    Args:
        rankings: by name.
        lacks: id -> the rankings that an item cannot be in; not all of them. Items that are not named lack nothing.

    Returns:
        Id -> score, of every item in any ranking.

    >>> rankings = {"image": Ranking(["a", "b", "c"], [0, 1, 2]), "text": Ranking(["c", "b"], [3, 4])}
    >>> scores = fuse_partial(rankings, {"a": ["text"]})
    >>> sorted(scores, key=scores.get, reverse=True)
    ['a', 'c', 'b']
    """
    scores = fuse(list(rankings.values()))
    if not lacks:
        return scores
    apart = {name: fuse([ranking]) for name, ranking in rankings.items()}
    kinds: dict[frozenset[str], list[str]] = {}
    for item in scores:
        kinds.setdefault(frozenset(rankings) - frozenset(lacks.get(item, ())), []).append(item)
    whole = kinds.get(frozenset(rankings), [])
    for names, items in kinds.items():
        parts = {item: sum(apart[name].get(item, 0.0) for name in sorted(names)) for item in whole}
        shared = [item for item, part in parts.items() if part > 0]
        factor = len(rankings) / len(names)
        if shared:
            factor = sum(scores[item] for item in shared) / sum(parts[item] for item in shared)
        for item in items:
            scores[item] *= factor
    return scores
