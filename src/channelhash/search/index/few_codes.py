"""Answers of searches that look at few codes, or give a query up and leave it to the scan."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from channelhash.search.index.brute_force import Matches
from channelhash.search.index.request import Search

Numbers = NDArray[np.int64]
#: Writes rows and distances ``(nq, k)``, and how many there are of each query ``(nq,)``: below 0 where it is given up.
Way = Callable[[Search, Numbers, Numbers, Numbers], None]
#: Queries below which waking the other cores takes longer than they save.
FEW_QUERIES = 8


def nearest(search: Search, way: Way) -> dict[int, Matches]:
    """Find the first ``k`` rows within the radius, by query; queries that are given up are left out."""
    n_queries = len(search.queries)
    rows, distances = np.empty((2, n_queries, search.k), dtype=np.int64)
    sizes = np.empty(n_queries, dtype=np.int64)
    way(search, rows, distances, sizes)
    return {q: Matches(rows[q, :n], distances[q, :n]) for q, n in enumerate(sizes.tolist()) if n >= 0}


def within(search: Search, way: Way) -> dict[int, Matches]:
    """Find all rows within the radius, by query, whatever ``k``; otherwise as `nearest`."""
    results = {}
    for q in range(len(search.queries)):
        # Memory that nothing is written to is not taken: room for all rows costs nothing.
        query = search._replace(queries=search.queries[q : q + 1], k=len(search.rows))
        for found in nearest(query, way).values():
            results[q] = Matches(found.rows.copy(), found.distances.copy())
    return results
