"""Exact search by comparing all pairs of codes: the reference for what is faster, and enough for
few codes.
"""

from collections.abc import Sequence

import numpy as np

from channelhash.codes import CodeSet, PackedCodes, hamming_distances
from channelhash.search.index.layout import Matches

#: Distances held at a time, over a block of queries: 128 MB.
_BLOCK_ENTRIES = 1 << 24


def nearest(
    queries: PackedCodes, database: PackedCodes, ids: Sequence[str], k: int
) -> list[Matches]:
    """Find the ``k`` nearest database codes of every query, or all where there are fewer.

    Args:
        queries: ``(nq, b)`` packed codes.
        database: ``(nd, b)`` packed codes.
        ids: ``nd`` names; they decide the order of equal distances.
        k: at least 1.

    Raises:
        ValueError: ``k`` is less than 1, or the codes differ in length.

    O(nq · nd · (b / 8 + log nd)) time; memory for a block of distances beside the inputs.

    >>> database = np.array([[7], [1]], np.uint8)
    >>> matches = nearest(np.array([[0]], np.uint8), database, ["a", "b"], k=2)
    >>> matches[0].rows.tolist(), matches[0].distances.tolist()
    ([1, 0], [1, 3])
    """
    if k < 1:
        raise ValueError(f"k is {k}; at least 1 item can be asked for")
    by_id = np.argsort(np.asarray(ids, dtype=str), kind="stable")
    block = max(1, _BLOCK_ENTRIES // max(1, len(database)))
    matches = []
    for start in range(0, len(queries), block):
        for distances in hamming_distances(queries[start : start + block], database[by_id]):
            order = np.argsort(distances, kind="stable")[:k]
            matches.append(Matches(by_id[order], distances[order]))
    return matches


def answer_some(
    query: CodeSet, database: CodeSet, task: str, n_queries: int, k: int
) -> dict[int, list[tuple[int, int, bool | None]]]:
    """Map rows of queries, spaced evenly over the set, to their ``k`` nearest items: row, distance,
    and whether a label is shared; None if labels are unknown.

    >>> codes = CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, 8)
    >>> answer_some(codes, codes, "image->image", n_queries=1, k=2)
    {0: [(0, 0, None), (1, 3, None)]}
    """
    modality, searched = task.split("->")
    rows = np.unique(np.linspace(0, len(query) - 1, n_queries).astype(int))
    found = nearest(query.codes[modality][rows], database.codes[searched], database.ids, k)
    answers = {}
    for row, match in zip(rows.tolist(), found, strict=True):
        right: list[bool | None] = [None] * len(match.rows)
        if query.labels is not None and database.labels is not None:
            right = (query.labels[row] & database.labels[match.rows]).any(axis=1).tolist()
        columns = (match.rows.tolist(), match.distances.tolist(), right)
        answers[row] = list(zip(*columns, strict=True))
    return answers
