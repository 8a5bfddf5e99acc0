"""Per-query histograms of distances: one pass over the data, and every figure of the literature from it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.metrics import ranking
from channelhash.metrics.cutoff import average_precision_at
from channelhash.metrics.kernel import count_distances


@dataclass(frozen=True)
class HammingHistogram:
    """Counts of items by distance, for every query.

    Means are over the queries that have a relevant item; `skipped` says how many have none.

    Attributes:
        total: n_d, ``(nq, k + 1)`` int64: items at distance d.
        relevant: n_d⁺, ``(nq, k + 1)`` int64: relevant items at distance d.
    """

    total: NDArray[np.int64]
    relevant: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.total.shape != self.relevant.shape or self.total.ndim != 2:
            raise ValueError(f"histograms are two (nq, k + 1) arrays, not {self.total.shape}, {self.relevant.shape}")

    def __add__(self, other: "HammingHistogram") -> "HammingHistogram":
        """The histogram of the same queries over both shards of the database."""
        if self.total.shape != other.total.shape:
            raise ValueError(f"histograms of {self.total.shape} and {other.total.shape} are not of the same queries")
        return HammingHistogram(self.total + other.total, self.relevant + other.relevant)

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
        """Tie-aware AP_T of each query, ``(nq,)``; NaN where nothing is relevant. See `ranking.average_precision`."""
        return ranking.average_precision(self.total, self.relevant)

    def mean_average_precision(self) -> float:
        """mAP_T, eq. (tmap:map)."""
        return self._mean(self.average_precision())

    def map_bounds(self) -> tuple[float, float]:
        """(lower, upper): mean over queries of the smallest and the largest AP over all orders of ties."""
        lower, upper = ranking.average_precision_bounds(self.total, self.relevant)
        return self._mean(lower), self._mean(upper)

    def map_at(self, z: int) -> float:
        """mAP@z in expectation over the orders of ties, see `cutoff.average_precision_at`."""
        return self._mean(average_precision_at(self.total, self.relevant, z))

    def precision_at(self, z: int) -> float:
        """Mean P@z in expectation over the orders of ties."""
        return self._mean(ranking.precision_at(self.total, self.relevant, z))

    def ndcg(self) -> float:
        """Mean NDCG with binary gain, in expectation over the orders of ties."""
        return self._mean(ranking.ndcg(self.total, self.relevant))

    def roc_auc(self, average: Literal["micro", "macro"] = "micro") -> float:
        """ROC-AUC: ``"micro"`` sums the confusion counts of all queries per radius (the paper's), ``"macro"`` is the
        mean of the queries' own areas, over those with relevant and irrelevant items."""
        if average == "micro":
            return ranking.roc_auc_micro(self.total, self.relevant)
        if average != "macro":
            raise ValueError(f"average is 'micro' or 'macro', not {average!r}")
        areas = ranking.roc_auc_each(self.total, self.relevant)
        return float(np.nanmean(areas)) if not np.isnan(areas).all() else float("nan")

    def precision_recall_curve(self) -> ranking.PrecisionRecallCurve:
        """Precision and recall of the lookup within each radius, over all queries together."""
        return ranking.precision_recall_curve(self.total, self.relevant)

    def within_radius(self, radius: int) -> ranking.RadiusLookup:
        """Mean precision, recall and share of empty answers of the lookup within ``radius``."""
        return ranking.within_radius(self.total, self.relevant, radius)

    def chance_level(self) -> float:
        """Mean share of relevant items: what a ranking without any information gets."""
        return self._mean(self.relevant.sum(axis=1) / np.maximum(self.total.sum(axis=1), 1))

    def _mean(self, figures: NDArray[Any]) -> float:
        """Mean over the queries that have a relevant item."""
        counted = self.relevant.sum(axis=1) > 0
        if not counted.any():
            raise ValueError(f"none of the {len(figures)} queries has a relevant item: there is nothing to average")
        return float(figures[counted].mean())


def hamming_histogram(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    n_bits: int,
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

    Raises:
        ValueError: lengths or widths do not fit, or the database is empty.
    """
    for name, codes, labels in (("query", query_codes, query_labels), ("database", database_codes, database_labels)):
        check_packed(codes, n_bits)
        if np.ndim(labels) != 2 or len(labels) != len(codes):
            raise ValueError(f"{len(codes)} {name} codes, but {name} labels are {np.shape(labels)}; expected (n, c)")
    if np.shape(query_labels)[1] != np.shape(database_labels)[1]:
        raise ValueError(f"query labels have {np.shape(query_labels)[1]} columns, database labels another number")
    if len(database_codes) == 0:
        raise ValueError("the database is empty")
    total, relevant = count_distances(
        query_codes, database_codes, np.asarray(query_labels) != 0, np.asarray(database_labels) != 0, n_bits
    )
    return HammingHistogram(total, relevant)
