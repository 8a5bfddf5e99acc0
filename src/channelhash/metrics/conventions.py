"""mAP as the released evaluation code of other methods computes it, from the same codes.

Three things differ from eq. (tmap:map). The sum over queries is divided by the number of all
queries, those without a relevant item included. A cut-off counts the first z items, or the first z
relevant items. Ties come as a sort leaves them: a stable one in the order of the database, any
other one in an order that depends on library and processor, so that only the range is known.
Sources are listed in ``docs/how-to/evaluate.md``.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.metrics.count_distances import (
    CodesAndLabels,
    RowPairs,
    are_compiled,
    checked_pairs,
    precisions_in_order,
)
from channelhash.metrics.histogram import HammingHistogram, Scores
from channelhash.metrics.tied_orders import divide
from channelhash.utils.typed_settings import pick


class _Convention(NamedTuple):
    """What a toolbox prints.

    Attributes:
        cutoffs: values of z; None ranks the whole database.
        of_relevant: whether z counts relevant items, not items.

    >>> _CONVENTIONS["sch"].cutoffs
    (None, 50)
    """

    cutoffs: tuple[int | None, ...]
    of_relevant: bool = False


_CONVENTIONS = {
    "qinlab": _Convention((None, 50, 5000), of_relevant=True),
    "sch": _Convention((None, 50)),
    "hyp2": _Convention((1000, 5000, None)),
}


def convention_scores(
    name: str,
    histogram: HammingHistogram,
    pairs: CodesAndLabels | None = None,
    self_pairs: RowPairs | None = None,
) -> dict[str, dict[str, float | None]]:
    """Compute what the toolboxes of a convention print: ``"map"``, ``"map@50"`` and so on, up to
    the database's size.

    Of each figure, a share in [0, 1]: ``in_order`` is what a stable sort gives, None if only the
    histogram is known; ``lower`` and ``upper`` are what the worst and the best order of ties give.

    >>> from channelhash.metrics import hamming_histogram
    >>> codes = np.array([[0], [0], [255]], np.uint8)
    >>> labels = np.array([[0, 1], [1, 0], [1, 0]]) > 0
    >>> histogram = hamming_histogram(codes[1:], codes, labels[1:], labels, n_bits=8)
    >>> convention_scores("sch", histogram, (codes[1:], codes, labels[1:], labels))["map"]["upper"]
    0.9166666666666667
    """
    size = histogram.total.sum(axis=1).max(initial=0)
    convention = pick(_CONVENTIONS, name, "convention")
    convention = convention._replace(
        cutoffs=tuple(z for z in convention.cutoffs if z is None or z <= size)
    )
    in_order = None if pairs is None else _average_precisions_cut(pairs, convention, self_pairs)
    scores: dict[str, dict[str, float | None]] = {}
    for place, z in enumerate(convention.cutoffs):
        lower, upper = map(
            _over_all_queries, histogram.average_precision_bounds(z, convention.of_relevant)
        )
        stable = None if in_order is None else _over_all_queries(in_order[:, place])
        scores["map" if z is None else f"map@{z}"] = {
            "in_order": stable,
            "lower": lower,
            "upper": upper,
        }
    return scores


def _average_precisions_cut(
    pairs: CodesAndLabels, convention: _Convention, self_pairs: RowPairs | None = None
) -> Scores:
    """Compute AP at each cut-off of a convention, ties in the order of the database.

    >>> codes = np.array([[0], [0], [255]], np.uint8)
    >>> labels = np.array([[0, 1], [1, 0], [1, 0]]) > 0
    >>> pairs = (codes[1:2], codes, labels[1:2], labels)
    >>> _average_precisions_cut(pairs, _Convention((1, 2))).tolist()
    [[0.0, 0.5]]
    """
    query_codes, database_codes, query_labels, database_labels = pairs
    columns = np.ascontiguousarray(np.asarray(database_labels, dtype=bool).T)
    scores = []
    for row, (code, labels) in enumerate(
        zip(query_codes, np.asarray(query_labels, dtype=bool), strict=True)
    ):
        # which NumPy sorts by radix
        distances = hamming_distances(code[None], database_codes)[0].astype(np.uint16)
        relevant = np.logical_or.reduce(columns[labels], axis=0)
        order = np.argsort(distances, kind="stable")
        if self_pairs is not None:
            order = order[~np.isin(order, self_pairs[self_pairs[:, 0] == row, 1])]
        ranks = np.flatnonzero(relevant[order]) + 1  # rising
        scores.append(
            [_average_precision(ranks, z, convention.of_relevant) for z in convention.cutoffs]
        )
    return np.array(scores)


def _average_precision(ranks: NDArray[np.int64], z: int | None, of_relevant: bool) -> float:
    """Return the mean precision at the relevant items of rank <= z, or at the first z of them; 0 if
    there are none.
    """
    n_items = z if z is None or of_relevant else np.searchsorted(ranks, z, side="right")
    top = ranks[:n_items]
    return float((np.arange(1, len(top) + 1) / top).mean()) if len(top) else 0.0


def _over_all_queries(scores: Scores) -> float:
    return float(np.nan_to_num(scores).mean())


def average_precision_in_order(
    distances: NDArray[np.integer], relevant: NDArray[np.bool_]
) -> float:
    """Compute the tie-oblivious AP of one query, eq. (lit:ap) without a cut-off: tied items keep
    their order.

    The one score that histograms cannot give: it depends on that order, and moves between the
    bounds of `HammingHistogram.average_precision_bounds` with it. Costs a sort of the database,
    which `average_precisions_in_order` does without.

    Args:
        distances: ``(nd,)`` distance of each item.
        relevant: ``(nd,)`` bool, whether the item is relevant.

    Returns:
        A score in [0, 1]; NaN if nothing is relevant.

    >>> round(average_precision_in_order(np.array([0, 0, 1]), np.array([False, True, True])), 3)
    0.583
    """
    ranks = np.flatnonzero(np.asarray(relevant)[np.argsort(distances, kind="stable")]) + 1
    return _average_precision(ranks, z=None, of_relevant=False) if len(ranks) else float("nan")


def average_precisions_in_order(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    histogram: HammingHistogram,
    self_pairs: RowPairs | None = None,
) -> Scores:
    """Compute `average_precision_in_order` of every query, in a second pass over the pairs.

    The rank of an item is the number of nearer items, which the histogram knows, plus that of
    earlier ones at its own distance, which the pass counts as it goes: nothing is sorted and no
    distances are kept. Without the extra `fast`, each query costs a sort of the database.

    Args:
        query_codes: as in `hamming_histogram`.
        database_codes: likewise; their order is the order of tied items.
        query_labels: likewise.
        database_labels: likewise.
        histogram: `hamming_histogram` of exactly these.
        self_pairs: likewise, where the histogram was made with it; a query that has any costs a
            sort of the database.

    Returns:
        ``(nq,)`` in [0, 1]; NaN for a query without relevant items.

    Raises:
        ValueError: as `hamming_histogram`; or the histogram is of other numbers of queries or
            items.

    >>> from channelhash.metrics import hamming_histogram
    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> histogram = hamming_histogram(codes, codes, labels, labels, n_bits=8)
    >>> average_precisions_in_order(codes, codes, labels, labels, histogram).tolist()
    [1.0, 1.0]
    """
    pairs = checked_pairs(
        (query_codes, database_codes, query_labels, database_labels), histogram.n_bits
    )
    self_pairs = np.empty((0, 2), dtype=np.int64) if self_pairs is None else self_pairs
    items = len(database_codes) - np.bincount(self_pairs[:, 0], minlength=len(query_codes))
    if len(histogram.total) != len(query_codes) or (histogram.total.sum(axis=1) != items).any():
        raise ValueError(
            f"the histogram is not of these {len(query_codes)} queries over {len(database_codes)} "
            "items"
        )
    positives = histogram.relevant.sum(axis=1)
    if len(self_pairs) or not are_compiled(pairs):
        return np.where(
            positives > 0,
            _average_precisions_cut(pairs, _Convention((None,)), self_pairs)[:, 0],
            np.nan,
        )
    return divide(
        precisions_in_order(pairs, histogram.total, histogram.relevant), positives, np.nan
    )
