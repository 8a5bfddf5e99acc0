"""What is read from the layers in which a store's codes lie: answers, all codes, a sample of them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.search.index.brute_force import Matches
from channelhash.search.local.snapshots import Part
from channelhash.search.store import Answers
from channelhash.utils.seeds import generator


def count_codes(parts: Sequence[Part]) -> int:
    """Count the rows that count."""
    return sum(len(part.codes) if part.allowed is None else int(np.count_nonzero(part.allowed)) for part in parts)


def read_codes(
    parts: Sequence[Part], n_bits: int, chosen: Sequence[NDArray[np.int64]] | None = None
) -> tuple[list[str], PackedCodes]:
    """Return ids, sorted, and codes of the rows that count, or of those of them at the ``chosen`` places."""
    ids: list[str] = []
    codes = [np.zeros((0, -(-n_bits // 8)), np.uint8)]
    for number, part in enumerate(parts):
        rows = np.arange(len(part.codes)) if part.allowed is None else np.flatnonzero(part.allowed)
        if chosen is not None:
            rows = rows[chosen[number]]
        ids += part.codes.ids(rows)
        codes.append(part.codes.index.packed()[rows])
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return [ids[place] for place in order], np.concatenate(codes)[order]


def sample_codes(parts: Sequence[Part], n_bits: int, n: int) -> tuple[list[str], PackedCodes]:
    """Return ids and codes of ``n`` random rows that count, or of all."""
    sizes = [count_codes([part]) for part in parts]
    total = sum(sizes)
    rows = np.sort(generator(0, "sample", total).choice(total, min(n, total), replace=False))
    ends = np.cumsum([0, *sizes])
    return read_codes(parts, n_bits, [rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(ends.tolist())])


def merged(parts: list[Part], matches: list[list[Matches]], n_queries: int, limit: int | None) -> Answers:
    """Return the matches of several parts as one answer, by distance, then by id."""
    named = [
        [(part.codes.ids(match.rows), match.distances) for match in part_matches]
        for part, part_matches in zip(parts, matches, strict=True)
    ]
    if len(named) == 1:
        return Answers([ids for ids, _ in named[0]], [distances for _, distances in named[0]])
    answers = Answers([], [])
    for query in range(n_queries):
        pairs = sorted(pair for part in named for pair in zip(part[query][1].tolist(), part[query][0], strict=True))
        answers.ids.append([name for _, name in pairs[:limit]])
        answers.distances.append(np.array([distance for distance, _ in pairs[:limit]], dtype=np.int64))
    return answers
