"""The first answers ranked again by what the query's bits left out: bits tie, real-valued outputs hardly ever do."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, check_packed, pack

_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)  # (256, 8): the bits of every byte


class Surest(NamedTuple):
    """The items that questions found, by distance, equal distances by how sure the model was of the bits that differ.

    Attributes:
        ids: of each question, the items' ids.
        distances: of each question, the number of bits in which each item's code differs from the question's.
        keys: of each question, what its items are ordered by, ascending: their `sure_distances`.

    >>> Surest([["a"]], [np.array([3])], [np.array([3.1])]).ids
    [['a']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]
    keys: list[NDArray[np.float64]]


def sure_distances(
    outputs: NDArray[np.floating[Any]], codes: PackedCodes, distances: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return distances ``(n,)`` with up to half a bit more for how sure the model was of the bits that differ.

    It is d + A(u, b) / (2 ‖u‖₁), A as in `asymmetric_distances`: smaller distances stay smaller.

    Args:
        outputs: ``(k,)`` of the query.
        codes: ``(n, ceil(k / 8))`` packed codes.
        distances: of these codes.

    >>> sure_distances(np.array([0.9, 0.1]), pack(np.array([[1, 0], [0, 1]])), np.array([1, 1])).round(2).tolist()
    [1.05, 1.45]
    """
    return distances + asymmetric_distances(outputs, codes) / (2 * float(np.abs(outputs).sum()) or 1.0)


def asymmetric_distances(outputs: NDArray[np.floating[Any]], codes: PackedCodes) -> NDArray[np.float64]:
    """Compute the distance of one query's real-valued outputs u to stored codes b ∈ {−1, +1}^k.

    A(u, b) = Σ_{j: b_j ≠ sgn u_j} |u_j| = (‖u‖₁ − ⟨u, b⟩) / 2: a differing bit costs as much as the model was sure of
    it. With |u_j| = 1 it is the Hamming distance. It orders items as ‖u − b‖² does, which is the expectation-based
    asymmetric distance of Gordo, Perronnin, Gong and Lazebnik, "Asymmetric Distances for Binary Embeddings" (IEEE TPAMI
    36(1), 2014) with −1 and +1 as the expected values of the stored side's outputs: what the quantisation terms of the
    losses here pull them to.

    Args:
        outputs: ``(k,)``, as `HashModel.outputs` gives them.
        codes: ``(n, ceil(k / 8))`` packed codes.

    Returns:
        ``(n,)``, at least 0; equal codes get equal distances to the last bit.

    >>> asymmetric_distances(np.array([0.9, -0.1, 0.5, 0.5]), pack(np.array([[1, 0, 1, 1], [1, 1, 1, 1]]))).tolist()
    [0.0, 0.1]
    """
    k = len(outputs)
    check_packed(codes, k)
    query_code = pack(binarize(outputs[None]))[0]
    # A table of sums a byte, as product quantisation has them: eight bits are one look-up, and no sum depends on the
    # row in which a code stands.
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

    Args:
        outputs: ``(k,)`` of the query.
        codes: ``(n, ceil(k / 8))`` packed codes of its answers, in their order by Hamming distance and id.
        first: how many answers are re-ranked, at least 1; those behind stay where they are.

    Returns:
        Positions ``(n,)`` in ``codes``, best first.

    >>> rerank(np.array([0.9, -0.1]), pack(np.array([[0, 0], [1, 1]])), first=2).tolist()
    [1, 0]
    """
    if first < 1:
        raise ValueError(f"first is {first}; at least 1 answer can be re-ranked")
    # Stable: answers at equal distance stay in the order they have, by Hamming distance and id.
    head = np.argsort(asymmetric_distances(outputs, codes[:first]), kind="stable")
    return np.concatenate([head, np.arange(len(head), len(codes))])
