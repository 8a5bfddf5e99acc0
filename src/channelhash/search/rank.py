"""What orders items besides the distance of their codes: projections, the outputs of the bits that
differ, fusion.

Projections are a model's real-valued outputs, kept as int8 beside the bits, which order what the
bits have found. A row of outputs is scaled so that its largest magnitude is 127, and rounded. Only
its direction counts: the score of an item is the cosine of the angle between the question's outputs
and the row, so no scale is kept, nothing is fitted and nothing is cut off.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, check_packed, pack
from channelhash.errors import InputError
from channelhash.search.checks import check_outputs

#: Of a large store, so many of the nearest codes are scored; see `Store.search_projections`.
FIRST = 500

#: Of a store, or of the items that pass a filter, all are scored where there are no more than
#: these.
ALL = 5_000

_LARGEST = 127


class KeyedAnswers(NamedTuple):
    """The items that questions found, in the order of what their outputs say; what is equal by
    distance, then by id.

    Attributes:
        ids: of each question, the items' ids.
        distances: of each question, the number of bits in which each item's code differs from the
            question's.
        keys: of each question, what its items are ordered by: their `sure_distances`, the least
            first; or, in a search of projections, the cosine of each one's with the question's
            outputs, the largest first.

    >>> KeyedAnswers([["a"]], [np.array([3])], [np.array([3.1])]).ids
    [['a']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]
    keys: list[NDArray[np.floating[Any]]]


def _quantize(outputs: NDArray[Any]) -> NDArray[np.int8]:
    """Return outputs ``(n, k)`` as projections ``(n, k)``, each row with ±127 in it, or all zero.

    Signs stay: what is below zero stays so. Projections come back as they are.

    >>> _quantize(np.array([[0.5, -0.25, -0.0001]])).tolist()
    [[127, -64, -1]]
    """
    rows = np.asarray(outputs, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    scaled = np.rint(rows / np.where(largest > 0, largest, 1) * _LARGEST)
    return np.where(rows < 0, np.minimum(scaled, -1), scaled).astype(np.int8)


def cosines(outputs: NDArray[Any], projections: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the cosine of one question's outputs ``(k,)`` and each of ``(n, k)`` projections; 0
    for a row of zeros.

    Equal projections get equal cosines to the last bit, in whichever row they stand.

    >>> cosines(np.array([2.0, 0.0]), np.array([[127, 0], [-127, 127]], np.int8)).round(1)
    array([ 1. , -0.7], dtype=float32)
    """
    rows = projections.astype(np.float32)
    question = np.asarray(outputs, dtype=np.float64)
    question = (question / (np.linalg.norm(question) or 1)).astype(np.float32)
    # Not by a matrix product, in which the order of additions depends on the row.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scores: NDArray[np.float32] = np.einsum("ij,j->i", rows, question) / np.where(
        norms > 0, norms, np.float32(1)
    )
    return scores


def check_projections(
    projections: NDArray[Any] | Mapping[str, NDArray[Any]],
    codes: Mapping[str, PackedCodes],
    n_bits: int,
) -> dict[str, NDArray[np.int8]]:
    """Return modality -> `_quantize` of what was given beside the codes.

    >>> check_projections(np.array([[0.5, -0.25]]), {"image": np.array([[128]], np.uint8)}, n_bits=2)
    {'image': array([[127, -64]], dtype=int8)}
    """
    arrays = projections if isinstance(projections, Mapping) else {next(iter(codes)): projections}
    if arrays.keys() != codes.keys():
        raise InputError(
            f"projections: of {' and '.join(arrays) or 'nothing'}, but codes of "
            f"{' and '.join(codes)}"
        )
    checked = {}
    for modality, packed in codes.items():
        rows = check_outputs(arrays[modality], n_bits, f"{modality} projections")
        checked[modality] = _quantize(rows)
        if len(rows) != len(packed) or (pack(binarize(rows)) != packed).any():
            raise InputError(
                f"{modality} projections: are not the outputs of which the codes are the signs"
            )
    return checked


# (256, 8): the bits of every byte
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)


def sure_distances(
    outputs: NDArray[np.floating[Any]], codes: PackedCodes, distances: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return distances ``(n,)`` with up to half a bit more for how sure the model was of the bits
    that differ.

    It is d + A(u, b) / (2 ‖u‖₁), A as in `_asymmetric_distances`: smaller distances stay smaller.

    >>> sure_distances(np.array([0.9, 0.1]), pack(np.array([[1, 0], [0, 1]])), np.array([1, 1])).round(2).tolist()
    [1.05, 1.45]
    """
    return distances + _asymmetric_distances(outputs, codes) / (
        2 * float(np.abs(outputs).sum()) or 1.0
    )


def _asymmetric_distances(
    outputs: NDArray[np.floating[Any]], codes: PackedCodes
) -> NDArray[np.float64]:
    """Compute the distance of one query's real-valued outputs u to stored codes b ∈ {−1, +1}^k.

    A(u, b) = Σ_{j: b_j ≠ sgn u_j} |u_j| = (‖u‖₁ − ⟨u, b⟩) / 2: a differing bit costs as much as the
    model was sure of it. With |u_j| = 1 it is the Hamming distance. It orders items as ‖u − b‖²
    does, which is the expectation-based asymmetric distance of Gordo, Perronnin, Gong and Lazebnik,
    "Asymmetric Distances for Binary Embeddings" (IEEE TPAMI 36(1), 2014) with −1 and +1 as the
    expected values of the stored side's outputs: what the quantisation terms of the losses here
    pull them to.

    >>> _asymmetric_distances(np.array([0.9, -0.1, 0.5, 0.5]), pack(np.array([[1, 0, 1, 1], [1, 1, 1, 1]]))).tolist()
    [0.0, 0.1]
    """
    k = len(outputs)
    check_packed(codes, k)
    query_code = pack(binarize(outputs[None]))[0]
    # A table of sums a byte, as product quantisation has them: eight bits are one look-up, and no
    # sum depends on the row in which a code stands.
    weights = np.zeros(8 * len(query_code))
    weights[:k] = np.abs(outputs)
    tables = weights.reshape(-1, 8) @ _BYTES.T
    differing = codes ^ query_code
    distances = np.zeros(len(codes))
    for byte, table in enumerate(tables):
        distances += table[differing[:, byte]]
    return distances


def rerank(outputs: NDArray[np.floating[Any]], codes: PackedCodes, first: int) -> NDArray[np.int64]:
    """Order one query's answers by asymmetric distance; ties by Hamming distance, then by id.

    >>> rerank(np.array([0.9, -0.1]), pack(np.array([[0, 0], [1, 1]])), first=2).tolist()
    [1, 0]
    """
    # Stable: answers at equal distance stay in the order they have, by Hamming distance and id.
    head = np.argsort(_asymmetric_distances(outputs, codes[:first]), kind="stable")
    return np.concatenate([head, np.arange(len(head), len(codes))])


class Ranking(NamedTuple):
    """Items, best first.

    Attributes:
        ids: their ids, each once.
        keys: what each is ranked by, a distance or a score; neighbours with equal keys are tied.
        distances: of a ranking by codes, the number of bits in which each differs from the query.
        cosines: of the query's outputs and each one's projection, where these have ordered them.

    >>> Ranking(["a", "b"], [3, 3]).keys
    [3, 3]
    """

    ids: Sequence[str]
    keys: Sequence[float]
    distances: Sequence[int] = ()
    cosines: Sequence[float] | None = None


def fuse(rankings: Sequence[Ranking], smoothing: float = 60) -> dict[str, float]:
    """Score items by reciprocal rank fusion, in expectation over the order of ties.

    score(d) = Σ over rankings of 1 / (smoothing + rank of d), nothing from those that lack d:
    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods" (SIGIR 2009). Tied items share the mean of what their places give. So a word
    that half of all items have says little of each, and whether codes tie matters to nobody's id.

    Args:
        rankings: of any lengths.
        smoothing: the larger, the less the first places count. By default what Cormack, Clarke and
            Büttcher found best on their collections, and everybody uses.

    Returns:
        Id -> score, of every item in any ranking.

    >>> scores = fuse([Ranking(["a", "b"], [0, 1]), Ranking(["b", "c"], [9.5, 9.5])])
    >>> sorted(scores, key=scores.get, reverse=True)
    ['b', 'a', 'c']
    """
    scores: dict[str, float] = {}
    for ids, keys, *_ in rankings:
        places = zip(
            keys, ids, [1 / (smoothing + rank) for rank in range(1, len(ids) + 1)], strict=True
        )
        for _, group in groupby(places, key=lambda place: place[0]):
            tied = list(group)
            share = sum(value for *_, value in tied) / len(tied)
            for _, name, _ in tied:
                scores[name] = scores.get(name, 0.0) + share
    return scores


def fuse_partial(
    rankings: Mapping[str, Ranking], lacks: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Score items by reciprocal rank fusion, where what some of them lack counts neither for nor
    against them.

    The score of an item that cannot be in all rankings is that of those it can be in, times f. Over
    the items that lack nothing and have a place in those, f is the sum of what all rankings give
    them, divided by that of what those give them: an item without a caption gets for it what its
    like with one get on average. Where there are no such items, f is the number of all rankings
    divided by that of those.

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
    complete = kinds.get(frozenset(rankings), [])
    for names, items in kinds.items():
        parts = {
            item: sum(apart[name].get(item, 0.0) for name in sorted(names)) for item in complete
        }
        shared = [item for item, part in parts.items() if part > 0]
        factor = len(rankings) / len(names)
        if shared:
            factor = sum(scores[item] for item in shared) / sum(parts[item] for item in shared)
        for item in items:
            scores[item] *= factor
    return scores
