"""Tie-oblivious AP under a stated order: tied items keep the order in which the database holds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.metrics.conventions import Convention, average_precisions_cut
from channelhash.metrics.count_distances import RowPairs, checked_pairs, precisions_in_order
from channelhash.metrics.histogram import HammingHistogram
from channelhash.metrics.ranking import Scores, divide


def average_precisions_in_order(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    histogram: HammingHistogram,
    own: RowPairs | None = None,
) -> Scores:
    """Compute `ranking.average_precision_in_order` of every query, in a second pass over the pairs.

    The rank of an item is the number of nearer items, which the histogram knows, plus that of earlier ones at its own
    distance, which the pass counts as it goes: nothing is sorted and no distances are kept.

    Args:
        query_codes: as in `hamming_histogram`.
        database_codes: likewise; their order is the order of tied items.
        query_labels: likewise.
        database_labels: likewise.
        histogram: `hamming_histogram` of exactly these.
        own: likewise, where the histogram was made with it; a query that has any costs a sort of the database.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items.

    Raises:
        ValueError: as `hamming_histogram`; or the histogram is of other numbers of queries or items.

    >>> from channelhash.metrics import hamming_histogram
    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> histogram = hamming_histogram(codes, codes, labels, labels, n_bits=8)
    >>> average_precisions_in_order(codes, codes, labels, labels, histogram).tolist()
    [1.0, 1.0]
    """
    query_sets, database_sets = checked_pairs(
        query_codes, database_codes, query_labels, database_labels, histogram.n_bits
    )
    own = np.empty((0, 2), dtype=np.int64) if own is None else own
    items = len(database_codes) - np.bincount(own[:, 0], minlength=len(query_codes))
    if len(histogram.total) != len(query_codes) or (histogram.total.sum(axis=1) != items).any():
        raise ValueError(
            f"the histogram is not of these {len(query_codes)} queries over these {len(database_codes)} items"
        )
    positives = histogram.relevant.sum(axis=1)
    if len(own):
        pairs = query_codes, database_codes, query_sets, database_sets
        return np.where(positives > 0, average_precisions_cut(*pairs, Convention((None,)), own)[:, 0], np.nan)
    sums = precisions_in_order(
        query_codes, database_codes, query_sets, database_sets, histogram.total, histogram.relevant
    )
    return divide(sums, positives, np.nan)
