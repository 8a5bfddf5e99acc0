"""Per-query histograms of distances: one pass over the data, and every score of the literature from
it.

Everywhere ``total[q, d]`` is n_d, the number of database items at distance d from query q, and
``relevant[q, d]`` is n_d⁺, how many of them are relevant; both ``(nq, k + 1)`` int64. Items at one
distance are tied: no order of them means more than another, so each score is either its expectation
over all orders of ties or a bound over them, in closed form. All are ``(nq,)``, NaN for a query
without relevant items, and cost O(nq · k), whatever the size of the database.
"""

from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.metrics.count_distances import (
    Counts,
    LabelGains,
    RowPairs,
    checked_pairs,
    count_distances,
)
from channelhash.metrics.tied_orders import (
    cut_bounds,
    cut_expectations,
    divide,
    harmonic_difference,
)

Scores = NDArray[np.float64]
_Shares = TypeVar("_Shares", float, NDArray[np.float64])

# Ranks whose discounts are held at once.
_RANKS = 1 << 20


def _discounts_up_to(ranks: Counts) -> Scores:
    """Sum of the discounts 1/log₂(1 + rank) of the first r ranks, for each r in ``ranks``, in
    blocks of ranks.
    """
    sums = np.zeros(ranks.shape)
    before = 0.0
    size = int(ranks.max(initial=0))
    for first in range(0, size, _RANKS):
        last = min(first + _RANKS, size)
        discounts = 1 / np.log2(np.arange(first + 2, last + 2))
        discounts[0] += before
        up_to = np.cumsum(discounts)
        inside = (ranks > first) & (ranks <= last)
        sums[inside] = up_to[ranks[inside] - first - 1]
        before = up_to[-1]
    return sums


def _discounted(total: Counts, gains: Counts) -> Scores:
    """Return the expected DCG ``(nq,)`` of gains by distance ``(nq, k + 1)``."""
    end = np.cumsum(total, axis=1)
    last, first = _discounts_up_to(np.stack([end, end - total]))
    return cast(Scores, (divide(gains, total, 0.0) * (last - first)).sum(axis=1))


class _PrecisionRecallCurve(NamedTuple):
    """Precision and recall of the lookup within each radius 0 … k, ``(k + 1,)`` each."""

    precision: Scores
    recall: Scores
    radius: NDArray[np.int64]


class _RadiusLookup(NamedTuple, Generic[_Shares]):
    """Precision, recall, and share of lookups that find nothing, whose precision counts as 0 as in
    the literature; of one radius, or of each radius 0 … k, ``(k + 1,)`` each."""

    precision: _Shares
    recall: _Shares
    empty: _Shares


@dataclass(frozen=True)
class HammingHistogram:
    """Counts of items by distance, for every query.

    Means are over the queries that have a relevant item; `skipped` says how many have none. If none
    has, every mean and curve raises ValueError.

    Attributes:
        total: n_d, ``(nq, k + 1)`` int64: items at distance d.
        relevant: n_d⁺, ``(nq, k + 1)`` int64: relevant items at distance d.
        gains: what the items are worth by the similarity of their labels, for `ndcg_graded`; None
            if not known.

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
            raise ValueError(
                f"histograms are two (nq, k + 1) arrays, not {self.total.shape}, "
                f"{self.relevant.shape}"
            )
        if self.gains is not None and self.gains.by_distance.shape != self.total.shape:
            raise ValueError(
                f"gains of {self.gains.by_distance.shape} do not fit histograms of "
                f"{self.total.shape}"
            )

    def __add__(self, other: "HammingHistogram") -> "HammingHistogram":
        """Return the histogram of the same queries over both shards of the database."""
        if self.total.shape != other.total.shape:
            raise ValueError(
                f"histograms of {self.total.shape} and {other.total.shape} are not of the same "
                "queries"
            )
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
        """Return the tie-aware AP_T of each query, ``(nq,)``; NaN where nothing is relevant.

        It is the expectation of AP over all orders of ties, eq. (tmap:ap). A group of n items, r of
        them relevant, behind N items of which R are relevant, adds r/n · Σ_{t<n} (1 + R + t
        (r−1)/(n−1)) / (1 + t + N) = r/n · [(1 + R) · H + (r−1)/(n−1) · (n − (N + 1) H)] with H =
        H_{N+n} − H_N.
        """
        before, relevant_before = self._before()
        harmonic = harmonic_difference(before, self.total)
        slope = divide(self.relevant - 1, self.total - 1, 0.0)
        spread = self.total - (before + 1) * harmonic
        groups = divide(self.relevant, self.total, 0.0) * (
            (1 + relevant_before) * harmonic + slope * spread
        )
        return divide(groups.sum(axis=1), self.relevant.sum(axis=1), np.nan)

    def mean_average_precision(self) -> float:
        """Return mAP_T, eq. (tmap:map)."""
        return self._mean(self.average_precision())

    def average_precision_bounds(
        self, z: int | None = None, of_relevant: bool = False
    ) -> tuple[Scores, Scores]:
        """Return the smallest and the largest AP of each query over all orders of ties; NaN where
        nothing is relevant.

        ``z`` counts the first items alone, or with ``of_relevant`` the first relevant ones.

        >>> histogram = HammingHistogram(np.array([[2, 2]]), np.array([[1, 1]]))
        >>> [bound.tolist() for bound in histogram.average_precision_bounds(1, of_relevant=True)]
        [[0.5], [1.0]]
        """
        if not (z is None or of_relevant):
            return self._bounds_within(z)
        before, relevant_before = self._before()
        counted = self.relevant if z is None else np.clip(z - relevant_before, 0, self.relevant)
        bounds = []
        # relevant items last, or first, at each distance
        for start in (before + self.total - self.relevant, before):
            # r of them in a row behind N items of which R are relevant add Σ_{t=1…r} (R + t) / (N +
            # t) = r + (R − N) · (H_{N+r} − H_N).
            row = counted + (relevant_before - start) * harmonic_difference(start, counted)
            bounds.append(divide(row.sum(axis=1), counted.sum(axis=1), np.nan))
        return bounds[0], bounds[1]

    def _bounds_within(self, z: int) -> tuple[Scores, Scores]:
        """Return the smallest and the largest AP@z of each query over all orders of ties.

        In the group that the cut-off parts every number h of relevant items is tried, because more
        of them also divide by more.
        """
        group, ahead = self._cut(z)
        before = [np.nan_to_num(bound) * group[-1] for bound in ahead.average_precision_bounds()]
        bounds = cut_bounds(group, np.stack(before))
        lower, upper = np.where(self.relevant.any(axis=1), bounds, np.nan)
        return lower, upper

    def map_bounds(self) -> tuple[float, float]:
        """Return (lower, upper): mean over queries of the smallest and the largest AP over all
        orders of ties.
        """
        lower, upper = self.average_precision_bounds()
        return self._mean(lower), self._mean(upper)

    def map_at(self, z: int) -> float:
        """Return mAP@z in expectation over the orders of ties, the mean of AP@z of eq. (lit:ap).

        AP@z divides by the number of relevant items among the first z. Of the group that the
        cut-off parts, with n items, r of them relevant, behind N items of which R are relevant, m =
        z − N are taken; the number h of relevant ones among them is hypergeometric, and given h
        their places are uniform. With H = H_{N+m} − H_N and A the sum of precisions of the groups
        before,

            E = Σ_h P(h; n, r, m) · (A + h/m · [(R + 1) H + (h−1)/(m−1) · (m − (N + 1) H)]) / (R +
            h),

        where a term with R + h = 0 is 0.
        """
        group, ahead = self._cut(z)
        _, _, taken, total_before, relevant_before = group
        # Sum of precisions of the whole groups before the cut: AP_T of just those, times its
        # divisor.
        before = np.nan_to_num(ahead.average_precision()) * relevant_before
        harmonic = harmonic_difference(total_before, taken)
        return self._mean(cut_expectations(group, before, harmonic))

    def precision_at(self, z: int) -> float:
        """Return the mean P@z in expectation over the orders of ties: the cut group gives its
        share.
        """
        if z < 1:
            raise ValueError(f"z is {z}; a cut-off is at least 1")
        taken = np.clip(z - self._before()[0], 0, self.total)
        expected = (divide(self.relevant, self.total, 0.0) * taken).sum(axis=1)
        return self._mean(divide(expected, taken.sum(axis=1), np.nan))

    def ndcg(self) -> float:
        """Return the mean NDCG with binary gain and discount 1/log₂(1 + rank), in expectation over
        the orders of ties.

        Costs O(nd) time for the discounts of all ranks, and memory for 2²⁰ of them.
        """
        # of the ranking that has all relevant items first
        ideal = _discounts_up_to(self.relevant.sum(axis=1))
        return self._mean(divide(_discounted(self.total, self.relevant), ideal, np.nan))

    def ndcg_graded(self) -> float:
        """Return the mean NDCG with the label similarity as gain, in expectation over the orders of
        ties.

        A group's ranks share the sum of its gains evenly. The ideal ranking goes by falling gain; r
        items of one gain in a row take the sum of r discounts. Costs as `ndcg`.

        Raises:
            ValueError: the histogram was made without `gains`, or no query has a relevant item.
        """
        gains = self.gains
        if gains is None:
            raise ValueError(
                "graded NDCG needs the gains of the items; `hamming_histogram` counts them"
            )
        end = np.cumsum(gains.count)
        start = end - gains.count
        # Ranks start again with each query.
        first = np.searchsorted(gains.query, np.arange(len(self.total)))
        before = np.append(start, 0)[np.minimum(first, len(start))][gains.query]
        last, first = _discounts_up_to(np.stack([end, start]) - before)
        ideal = np.bincount(
            gains.query, weights=gains.gain * (last - first), minlength=len(self.total)
        )
        return self._mean(divide(_discounted(self.total, gains.by_distance), ideal, np.nan))

    def roc_auc(
        self, average: Literal["micro", "macro"] = "micro", every_query: bool = False
    ) -> float:
        """Return ROC-AUC over queries.

        ``"micro"`` sums the confusion counts of the queries per radius (the paper's), ``"macro"``
        is the mean of the queries' own areas, over those with relevant and irrelevant items.

        Args:
            average: see above.
            every_query: sum the pairs of queries without a relevant item too; ``"macro"`` has no
                area for them.

        Raises:
            ValueError: no query has a relevant item, or none to average over has an irrelevant one.
        """
        if average not in ("micro", "macro"):
            raise ValueError(f"average is 'micro' or 'macro', not {average!r}")
        total, relevant = self._pooled(every_query)
        if average == "micro":
            total = total.sum(axis=0, keepdims=True)
            relevant = relevant.sum(axis=0, keepdims=True)
        irrelevant = (total - relevant).astype(np.float64)
        closer = np.cumsum(relevant, axis=1) - relevant / 2  # ties count half
        pairs = irrelevant.sum(axis=1) * relevant.sum(axis=1)
        # by the trapezoid over radii
        areas = divide((irrelevant * closer).sum(axis=1), pairs, np.nan)
        if np.isnan(areas).all():
            raise ValueError(
                "ROC-AUC needs irrelevant items as well as relevant ones; every item is relevant "
                "here"
            )
        return float(np.nanmean(areas))

    def precision_recall_curve(self) -> _PrecisionRecallCurve:
        """Return precision and recall of the lookup within each radius, over the queries together.

        Precision is NaN at radii that find nothing.
        """
        total, relevant = self._pooled()
        retrieved = np.cumsum(total.sum(axis=0))
        correct = np.cumsum(relevant.sum(axis=0))
        recall = divide(correct, np.asarray(relevant.sum()), np.nan)
        return _PrecisionRecallCurve(
            divide(correct, retrieved, np.nan), recall, np.arange(total.shape[1])
        )

    def by_radius(self) -> _RadiusLookup[Scores]:
        """Return the mean precision, recall and share of empty answers of the lookup within each
        radius 0 … k.
        """
        total, relevant = self._pooled()
        retrieved = np.cumsum(total, axis=1)
        correct = np.cumsum(relevant, axis=1)
        return _RadiusLookup(
            divide(correct, retrieved, 0.0).mean(axis=0),
            (correct / correct[:, -1:]).mean(axis=0),
            (retrieved == 0).mean(axis=0),
        )

    def within_radius(self, radius: int) -> _RadiusLookup[float]:
        """Return the mean precision, recall and share of empty answers of the lookup within
        ``radius``.
        """
        if radius < 0:
            raise ValueError(f"radius is {radius}; it is at least 0")
        return _RadiusLookup(
            *(float(shares[min(radius, self.n_bits)]) for shares in self.by_radius())
        )

    def chance_level(self) -> float:
        """Return the mean share of relevant items: what a ranking without any information gets."""
        return self._mean(self.relevant.sum(axis=1) / np.maximum(self.total.sum(axis=1), 1))

    def _before(self) -> tuple[Counts, Counts]:
        """Return the cumulated counts before each distance: N_{d−1} and N⁺_{d−1}."""
        return np.cumsum(self.total, axis=1) - self.total, np.cumsum(
            self.relevant, axis=1
        ) - self.relevant

    def _cut(self, z: int) -> tuple[Counts, "HammingHistogram"]:
        """Return the group that holds rank z, and the histogram of the groups ahead of it.

        Of the group, ``(5, nq)``: items, relevant ones, items taken, and all items and relevant
        ones before it.
        """
        if z < 1:
            raise ValueError(f"z is {z}; a cut-off is at least 1")
        rows = np.arange(len(self.total))
        end = np.cumsum(self.total, axis=1)
        sizes = np.minimum(z, end[:, -1])
        cut = (end < sizes[:, None]).sum(axis=1)
        n = self.total[rows, cut]
        r = self.relevant[rows, cut]
        inside = np.arange(cut.max(initial=0)) < cut[:, None]
        width = inside.shape[1]
        ahead = HammingHistogram(self.total[:, :width] * inside, self.relevant[:, :width] * inside)
        total_before = end[rows, cut] - n
        return np.stack(
            [n, r, sizes - total_before, total_before, ahead.relevant.sum(axis=1)]
        ), ahead

    def _mean(self, scores: NDArray[Any]) -> float:
        """Return the mean over the queries that have a relevant item."""
        return float(scores[self._counted_queries()].mean())

    def _pooled(self, every_query: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts of every query, or of those that have a relevant item; ValueError if
        none has.
        """
        counted = self._counted_queries()
        return (
            (self.total, self.relevant)
            if every_query
            else (self.total[counted], self.relevant[counted])
        )

    def _counted_queries(self) -> NDArray[np.bool_]:
        """Return which queries have a relevant item; ValueError if none has."""
        counted: NDArray[np.bool_] = self.relevant.sum(axis=1) > 0
        if not counted.any():
            raise ValueError(
                f"none of the {len(counted)} queries has a relevant item: there is nothing to "
                "average"
            )
        return counted


def hamming_histogram(
    query_codes: PackedCodes,
    database_codes: PackedCodes,
    query_labels: NDArray[Any],
    database_labels: NDArray[Any],
    n_bits: int,
    self_pairs: RowPairs | None = None,
) -> HammingHistogram:
    """Count, for every query, the items and the relevant items at each Hamming distance.

    An item is relevant if it shares at least one label with the query (§ 7). Histograms over shards
    of a database add up: ``hist_a + hist_b``.

    Args:
        query_codes: ``(nq, ceil(k / 8))`` uint8, see `channelhash.codes.pack`.
        database_codes: ``(nd, ceil(k / 8))`` uint8.
        query_labels: ``(nq, c)`` bool or 0/1.
        database_labels: ``(nd, c)`` bool or 0/1.
        n_bits: code length k, at least 1.
        self_pairs: ``(p, 2)`` pairs (query, item) that are the same and are not counted; all pairs
            count if None.

    Raises:
        ValueError: lengths or widths do not fit, labels are neither bool nor 0 and 1, or the
            database is empty.

    >>> codes, labels = np.array([[0], [255]], np.uint8), np.eye(2) > 0
    >>> hamming_histogram(codes, codes, labels, labels, n_bits=8).relevant[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    pairs = checked_pairs((query_codes, database_codes, query_labels, database_labels), n_bits)
    return HammingHistogram(*count_distances(pairs, n_bits, self_pairs))
