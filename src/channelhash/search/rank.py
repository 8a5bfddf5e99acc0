"""Scores that order items beside the distances of their codes: by projections, by the outputs of
the bits that differ, and by fusing rankings.

A projection is an item's vector in a few bits a number, kept beside its code; `codes.stage` says
how it is rounded and compared. Projections order the items that the bits find.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, check_packed, pack
from channelhash.codes.quantizer import QuantizedRows
from channelhash.codes.stage import Stage
from channelhash.errors import InputError
from channelhash.search.checks import check_outputs
from channelhash.search.items import Answers

#: Nearest codes that are scored in a large store, see `Store.search_projections`.
FIRST = 500
#: Nearest codes that a query's outputs order, for each of these that is wanted.
CANDIDATES = 4
#: Answers that outputs alone order at least, however few are wanted: of 25,000 embeddings of
#: sentences, these are the first ten of 2,000 nearest codes in 998 of 1,000 places and more.
ORDERED = 100
#: Largest number of items, in a store or passing a filter, that are all scored.
ALL = 5_000


class KeyedAnswers(NamedTuple):
    """The items that queries found, ordered by keys; ties are broken by distance, then by id.

    Attributes:
        ids: for each query, the items' ids.
        distances: for each query, the number of bits in which each item's code differs from the
            query's.
        keys: for each query, the keys of its items: `asymmetric_distances`, or within a radius
            `sure_distances`, smallest first; or, in a search of projections, their similarities to
            the query, largest first.

    >>> KeyedAnswers([["a"]], [np.array([3])], [np.array([3.1])]).ids
    [['a']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]
    keys: list[NDArray[np.floating[Any]]]

    @classmethod
    def none(cls, n_queries: int) -> Self:
        """Return the answers of a store without items."""
        return cls(*Answers.none(n_queries), [np.zeros(0, np.float32) for _ in range(n_queries)])


def check_projections(
    projections: NDArray[Any] | Mapping[str, NDArray[Any]],
    codes: Mapping[str, PackedCodes],
    stage: Stage,
) -> dict[str, QuantizedRows]:
    """Round the outputs that are given beside codes, if their signs are these. Rows of bytes, as
    items have them, are kept as they are.

    >>> codes = {"image": np.array([[128]], np.uint8)}
    >>> check_projections(np.array([[0.5, -0.25]]), codes, Stage(n_bits=2))["image"].shape
    (1, 6)
    """
    arrays = projections if isinstance(projections, Mapping) else {next(iter(codes)): projections}
    if arrays.keys() != codes.keys():
        raise InputError(
            f"projections: of {' and '.join(arrays) or 'nothing'}, but codes of "
            f"{' and '.join(codes)}"
        )
    checked = {}
    for modality, packed in codes.items():
        name = f"{modality} projections"
        given = np.asarray(arrays[modality])
        if given.dtype == np.uint8:
            checked[modality] = check_outputs(given, stage.n_bytes, name)
            continue
        outputs = check_outputs(given, stage.n_outputs, name)
        signs = pack(binarize(outputs[:, : stage.n_bits]))
        if len(outputs) != len(packed) or (signs != packed).any():
            raise InputError(f"{name}: are not the outputs of which the codes are the signs")
        checked[modality] = stage.encode(modality, outputs)
    return checked


#: ``(256, 8)``: the bits of every byte.
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)


def sure_distances(
    outputs: NDArray[np.floating[Any]],
    asymmetric: NDArray[np.float64],
    distances: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Add up to half a bit to distances ``(n,)``: the larger the asymmetric distance, the more.

    The result is d + A(u, b) / (2 ‖u‖₁), A as in `asymmetric_distances`. The order of different
    distances stays.

    >>> outputs = np.array([0.9, 0.1])
    >>> sure_distances(outputs, np.array([0.1, 0.9]), np.array([1, 1])).round(2).tolist()
    [1.05, 1.45]
    """
    return distances + asymmetric / (2 * float(np.abs(outputs).sum()) or 1.0)


def asymmetric_distances(
    outputs: NDArray[np.floating[Any]], codes: PackedCodes
) -> NDArray[np.float64]:
    """Compute the distance of one query's real-valued outputs u to stored codes b ∈ {−1, +1}^k.

    A(u, b) = Σ_{j: b_j ≠ sgn u_j} |u_j| = (‖u‖₁ − ⟨u, b⟩) / 2: the surer the model was of a bit,
    the more it costs if it differs. With |u_j| = 1 this is the Hamming distance. It orders items as
    ‖u − b‖² does: the expectation-based asymmetric distance of Gordo, Perronnin, Gong and Lazebnik,
    "Asymmetric Distances for Binary Embeddings" (IEEE TPAMI 36(1), 2014), with −1 and +1 as the
    expected outputs of the stored items. The quantisation terms of the losses pull outputs there.

    >>> codes = pack(np.array([[1, 0, 1, 1], [1, 1, 1, 1]]))
    >>> asymmetric_distances(np.array([0.9, -0.1, 0.5, 0.5]), codes).tolist()
    [0.0, 0.1]
    """
    n_bits = len(outputs)
    check_packed(codes, n_bits)
    query_code = pack(binarize(outputs[None]))[0]
    # One table of sums per byte, as in product quantisation: a look-up adds eight bits, and no sum
    # depends on the row of a code.
    weights = np.zeros(8 * len(query_code))
    weights[:n_bits] = np.abs(outputs)
    tables = weights.reshape(-1, 8) @ _BYTES.T
    differing = codes ^ query_code
    distances = np.zeros(len(codes))
    for byte, table in enumerate(tables):
        distances += table[differing[:, byte]]
    return distances


class Ranking(NamedTuple):
    """Items, best first.

    Attributes:
        ids: their ids, each once.
        keys: the distance or score that ranks each; neighbours with equal keys are tied.
        distances: in a ranking by codes, the number of bits in which each differs from the query.
        similarities: in a ranking by projections, those to the query.

    >>> Ranking(["a", "b"], [3, 3]).keys
    [3, 3]
    """

    ids: Sequence[str]
    keys: Sequence[float]
    distances: Sequence[int] = ()
    similarities: Sequence[float] | None = None


def fuse(rankings: Sequence[Ranking], smoothing: float = 60) -> dict[str, float]:
    """Score items by reciprocal rank fusion, in expectation over the order of ties.

    score(d) = Σ 1 / (smoothing + rank of d) over the rankings that have d: Cormack, Clarke and
    Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods"
    (SIGIR 2009). Tied items share the mean of what their ranks give. So a word of half of all items
    says little about each, and ids do not decide among tied codes.

    Args:
        rankings: rankings of any lengths.
        smoothing: the larger, the less the first ranks count. The default was best on the
            collections of Cormack, Clarke and Büttcher, and is in common use.

    Returns:
        Id -> score, for every item of any ranking.

    >>> scores = fuse([Ranking(["a", "b"], [0, 1]), Ranking(["b", "c"], [9.5, 9.5])])
    >>> sorted(scores, key=scores.get, reverse=True)
    ['b', 'a', 'c']
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        rank = 1
        for _, tied in groupby(zip(ranking.keys, ranking.ids, strict=True), key=itemgetter(0)):
            names = [name for _, name in tied]
            ranks = range(rank, rank + len(names))
            share = sum(1 / (smoothing + tied_rank) for tied_rank in ranks) / len(names)
            for name in names:
                scores[name] = scores.get(name, 0.0) + share
            rank += len(names)
    return scores


def fuse_partial(
    rankings: Mapping[str, Ranking], lacks: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Score items by reciprocal rank fusion, without a loss for those that cannot be in a ranking.

    The score of such an item is the sum over the rankings that it can be in, times a factor: an
    item without a caption gets for it what similar items with one get on average, see
    `_fusion_factor`.

    Args:
        rankings: name -> ranking.
        lacks: id -> names of the rankings that an item cannot be in.

    >>> images = Ranking(["a", "b", "c"], [0, 1, 2])
    >>> rankings = {"image": images, "text": Ranking(["c", "b"], [3, 4])}
    >>> scores = fuse_partial(rankings, {"a": ["text"]})
    >>> sorted(scores, key=scores.get, reverse=True)
    ['a', 'c', 'b']
    """
    scores = fuse(list(rankings.values()))
    if not lacks:
        return scores
    apart = {name: fuse([ranking]) for name, ranking in rankings.items()}
    groups: dict[frozenset[str], list[str]] = {}  # names of rankings -> ids that can be in these
    for item in scores:
        possible = frozenset(rankings) - frozenset(lacks.get(item, ()))
        groups.setdefault(possible, []).append(item)
    complete = {item: scores[item] for item in groups.get(frozenset(rankings), [])}
    for names, items in groups.items():
        factor = _fusion_factor(complete, [apart[name] for name in sorted(names)], len(apart))
        for item in items:
            scores[item] *= factor
    return scores


def _fusion_factor(
    complete: Mapping[str, float], some: Sequence[Mapping[str, float]], n_rankings: int
) -> float:
    """Return the factor from the scores of some rankings to those of all.

    It is the sum of the scores of all rankings over the sum of those of some, for items that can be
    in all and are in any of these. Without such items, it is the number of all rankings over the
    number of these.

    Args:
        complete: id -> score over all rankings, of items that can be in all.
        some: for some rankings, id -> score.
        n_rankings: the number of all rankings.

    >>> _fusion_factor({"a": 0.3, "b": 0.5}, [{"a": 0.1, "c": 0.4}], n_rankings=2)
    3.0
    """
    sum_of_all = 0.0
    sum_of_some = 0.0
    for item, score in complete.items():
        part = sum(scores.get(item, 0.0) for scores in some)
        if part > 0:
            sum_of_all += score
            sum_of_some += part
    return sum_of_all / sum_of_some if sum_of_some else n_rankings / len(some)
