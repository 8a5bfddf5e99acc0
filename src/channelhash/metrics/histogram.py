"""Per-query histograms of distances: one pass over the data, and every score of the literature from it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.metrics import ranking
from channelhash.metrics.count_distances import LabelGains, RowPairs, checked_pairs, count_distances, without_pairs


@dataclass(frozen=True)
class HammingHistogram:
    """Counts of items by distance, for every query.

    Means are over the queries that have a relevant item; `skipped` says how many have none. If none has, every mean
    and curve raises ValueError.

    Attributes:
        total: n_d, ``(nq, k + 1)`` int64: items at distance d.
        relevant: n_d⁺, ``(nq, k + 1)`` int64: relevant items at distance d.
        gains: what the items are worth by the similarity of their labels, for `ndcg_graded`; None if not known.

    >>> histogram = HammingHistogram(total=np.array([[1, 3]]), relevant=np.array([[1, 1]]))
    >>> round(histogram.mean_average_precision(), 3)
    0.861
    >>> (histogram + histogram).total.tolist()
    [[2, 6]]
    """

    total: NDArray[np.int64]
    relevant: NDArray[np.int64]
    gains: LabelGains | None = None

    def __post_init__(self) -> None:
        if self.total.shape != self.relevant.shape or self.total.ndim != 2:
            raise ValueError(f"histograms are two (nq, k + 1) arrays, not {self.total.shape}, {self.relevant.shape}")
        if self.gains is not None and self.gains.by_distance.shape != self.total.shape:
            raise ValueError(f"gains of {self.gains.by_distance.shape} do not fit histograms of {self.total.shape}")

    def __add__(self, other: "HammingHistogram") -> "HammingHistogram":
        """Return the histogram of the same queries over both shards of the database."""
        if self.total.shape != other.total.shape:
            raise ValueError(f"histograms of {self.total.shape} and {other.total.shape} are not of the same queries")
        gains = None if self.gains is None or other.gains is None else self.gains + other.gains
        return HammingHistogram(self.total + other.total, self.relevant + other.relevant, gains)

    @property
    def n_bits(self) -> int:
        """Code length k."""
        return int(self.total.shape[1]) - 1

    @property
    def skipped(self) -> int:
        """Queries without a relevant item."""
        return int((self.relevant.sum(axis=1) == 0).sum())

    @property
    def counted(self) -> int:
        """Queries with a relevant item: those that the means are over."""
        return len(self.total) - self.skipped

    def average_precision(self) -> NDArray[np.float64]:
        """Return the tie-aware AP_T of each query, ``(nq,)``; NaN where nothing is relevant."""
        return ranking.average_precision(self.total, self.relevant)

    def mean_average_precision(self) -> float:
        """Return mAP_T, eq. (tmap:map)."""
        return self._mean(self.average_precision())

    def map_bounds(self) -> tuple[float, float]:
        """Return (lower, upper): mean over queries of the smallest and the largest AP over all orders of ties."""
        lower, upper = ranking.average_precision_bounds(self.total, self.relevant)
        return self._mean(lower), self._mean(upper)

    def map_at(self, z: int) -> float:
        """Return mAP@z in expectation over the orders of ties, see `conventions.average_precision_at`."""
        return self._mean(ranking.average_precision_at(self.total, self.relevant, z))

    def precision_at(self, z: int) -> float:
        """Return the mean P@z in expectation over the orders of ties."""
        return self._mean(ranking.precision_at(self.total, self.relevant, z))

    def ndcg(self) -> float:
        """Return the mean NDCG with binary gain, in expectation over the orders of ties."""
        return self._mean(ranking.ndcg(self.total, self.relevant))

    def ndcg_graded(self) -> float:
        """Return the mean NDCG with the label similarity as gain, in expectation over the orders of ties.

        Raises:
            ValueError: the histogram was made without `gains`, or no query has a relevant item.
        """
        if self.gains is None:
            raise ValueError("graded NDCG needs the gains of the items; `hamming_histogram` counts them")
        return self._mean(ranking.ndcg_graded(self.total, self.gains))

    def roc_auc(self, average: Literal["micro", "macro"] = "micro", every_query: bool = False) -> float:
        """Return ROC-AUC over queries.

        ``"micro"`` sums the confusion counts of the queries per radius (the paper's), ``"macro"`` is the mean of the
        queries' own areas, over those with relevant and irrelevant items.

        Args:
            average: see above.
            every_query: sum the pairs of queries without a relevant item too; ``"macro"`` has no area for them.

        Raises:
            ValueError: no query has a relevant item, or none to average over has an irrelevant one.
        """
        if average not in ("micro", "macro"):
            raise ValueError(f"average is 'micro' or 'macro', not {average!r}")
        if average == "micro":
            areas = np.array([ranking.roc_auc_micro(*self._pooled(every_query))])
        else:
            areas = ranking.roc_auc_each(*self._pooled(every_query))
        if np.isnan(areas).all():
            raise ValueError("ROC-AUC needs irrelevant items as well as relevant ones; every item is relevant here")
        return float(np.nanmean(areas))

    def precision_recall_curve(self) -> ranking.PrecisionRecallCurve:
        """Return precision and recall of the lookup within each radius, over the queries together."""
        return ranking.precision_recall_curve(*self._pooled())

    def by_radius(self) -> ranking.RadiusCurves:
        """Return the mean precision, recall and share of empty answers of the lookup within each radius 0 … k."""
        return ranking.by_radius(*self._pooled())

    def within_radius(self, radius: int) -> ranking.RadiusLookup:
        """Return the mean precision, recall and share of empty answers of the lookup within ``radius``."""
        if radius < 0:
            raise ValueError(f"radius is {radius}; it is at least 0")
        curves, r = self.by_radius(), min(radius, self.n_bits)
        return ranking.RadiusLookup(float(curves.precision[r]), float(curves.recall[r]), float(curves.empty[r]))

    def chance_level(self) -> float:
        """Return the mean share of relevant items: what a ranking without any information gets."""
        return self._mean(self.relevant.sum(axis=1) / np.maximum(self.total.sum(axis=1), 1))

    def _mean(self, scores: NDArray[Any]) -> float:
        """Return the mean over the queries that have a relevant item."""
        return float(scores[self._counted_queries()].mean())

    def _pooled(self, every_query: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts of every query, or of those that have a relevant item; ValueError if none has."""
        counted = self._counted_queries()
        return (self.total, self.relevant) if every_query else (self.total[counted], self.relevant[counted])

    def _counted_queries(self) -> NDArray[np.bool_]:
        """Return which queries have a relevant item; ValueError if none has."""
        counted: NDArray[np.bool_] = self.relevant.sum(axis=1) > 0
        if not counted.any():
            raise ValueError(f"none of the {len(counted)} queries has a relevant item: there is nothing to average")
        return counted


def hamming_histogram(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    n_bits: int,
    own: RowPairs | None = None,
) -> HammingHistogram:
    """Count, for every query, the items and the relevant items at each Hamming distance.

    An item is relevant if it shares at least one label with the query (§ 7). Histograms over shards of a database add
    up: ``hist_a + hist_b``.

    Args:
        query_codes: ``(nq, ceil(k / 8))`` uint8, see `channelhash.codes.pack`.
        database_codes: ``(nd, ceil(k / 8))`` uint8.
        query_labels: ``(nq, c)`` bool or 0/1.
        database_labels: ``(nd, c)`` bool or 0/1.
        n_bits: code length k, at least 1.
        own: ``(p, 2)`` pairs (query, item) that are one and the same and are not counted; all pairs count if None.

    Raises:
        ValueError: lengths or widths do not fit, labels are neither bool nor 0 and 1, or the database is empty.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> hamming_histogram(codes, codes, labels, labels, n_bits=8).relevant[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    query_sets, database_sets = checked_pairs(query_codes, database_codes, query_labels, database_labels, n_bits)
    counts = count_distances(query_codes, database_codes, query_sets, database_sets, n_bits)
    if own is not None and len(own):
        counts = without_pairs(counts, query_codes, database_codes, query_sets, database_sets, own)
    return HammingHistogram(*counts)
