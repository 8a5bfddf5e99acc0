"""Answers of searches that look at few codes, or give a query up and leave it to the scan."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.brute_force import Matches
from channelhash.search.index.request import Search
from channelhash.search.index.top_k import LOWER, SIZE, Candidates, answers, capacity, no_candidates

#: Adds the candidates of each query, and notes the queries of which they are complete.
Way = Callable[[Search, Candidates, NDArray[np.bool_]], None]

#: Queries below which waking the other cores takes longer than they save.
FEW_QUERIES = 8


def _search(search: Search, way: Way) -> tuple[Candidates, list[int]]:
    """Return the candidates of each query, and the queries of which they are complete."""
    candidates = no_candidates(search, 1, capacity(search.k))
    complete = np.zeros(len(search.queries), dtype=np.bool_)
    way(search, candidates, complete)
    return candidates, [q for q, done in enumerate(complete.tolist()) if done]


def nearest(search: Search, way: Way) -> dict[int, Matches]:
    """Find the first ``k`` rows within the radius, by query; queries that are given up are left out."""
    candidates, done = _search(search, way)
    complete = candidates
    if len(done) < len(search.queries):
        complete = Candidates(candidates.entries[:, done], candidates.counts[:, done], candidates.states[:, done])
    return dict(zip(done, answers(complete, search), strict=True))


def within(search: Search, way: Way) -> dict[int, Matches]:
    """Find all rows within the radius, by query, whatever ``k``; otherwise as `nearest`."""
    results = {}
    for q in range(len(search.queries)):
        query = search._replace(queries=search.queries[q : q + 1], k=len(search.rows))
        candidates, done = _search(query, way)
        if done:
            codes = candidates.entries[0, 0, : candidates.states[0, 0, SIZE]] & LOWER
            k = int((search.starts[codes + np.uint64(1)] - search.starts[codes]).sum(dtype=np.int64))
            results[q] = answers(candidates, query._replace(k=k))[0]
    return results


def share_found(search: Search, way: Way) -> float:
    """Return the share of queries that are not given up."""
    return len(_search(search, way)[1]) / len(search.queries)
