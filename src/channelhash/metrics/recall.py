"""Instance retrieval: does a query find its own counterpart, such as a caption its photograph?

Recall@K is the share of queries with at least one counterpart among the first K items; the median
rank is the median over queries of the rank of the counterpart that comes first. Both need only the
group of tied items in which a query's first counterpart lies, and are expectations over the orders
of that group, as all scores here.

Real values are ranked by cosine. Items are tied where their cosines round to the same multiple of
2⁻²²: duplicates in a collection do, which rounding errors would part.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet, PackedCodes, check_packed, hamming_distances, unit_rows
from channelhash.data.records import pairs_by_image
from channelhash.metrics.histogram import Scores

#: K of Recall@K that the literature prints.
_DEFAULT_K = (1, 5, 10)

# Pairs whose similarities are held at once.
_PAIRS = 1 << 21
# Cosines that are told apart, between 0 and 1.
_STEPS = 1 << 22

# Database rows of each query's counterparts, (nq,) or (nq, m), -1 where a query has fewer.
_RowNumbers = NDArray[np.integer[Any]]
_Matrix = NDArray[np.floating[Any]]
_Vectors = Mapping[str, _Matrix]


class _RecallReport(TypedDict):
    """Scores of one direction; shares in [0, 1], ranks from 1.

    Attributes:
        recall_at: K -> expected share of queries with a counterpart among the first K.
        median_rank: median over queries of the expected rank of the first counterpart.
        queries: number of queries that the means are over.
        skipped: number of queries without a counterpart, which are left out.
        recall_items: number of items that are searched, of `instance_recall`; chance is about K /
            ``recall_items``.

    >>> query, items = np.array([[0]], np.uint8), np.array([[7], [0]], np.uint8)
    >>> FirstGroup.of_codes(query, items, np.array([1]), 8).report([1])
    {'recall_at': {'1': 1.0}, 'median_rank': 1.0, 'queries': 1, 'skipped': 0}
    """

    recall_at: dict[str, float]
    median_rank: float
    queries: int
    skipped: int
    recall_items: NotRequired[int]


class FirstGroup(NamedTuple):
    """The group of tied items in which each query's first counterpart lies.

    Attributes:
        ahead: ``(nq,)`` number of items before the group, none of them a counterpart.
        tied: ``(nq,)`` number of items in the group.
        counterparts: ``(nq,)`` how many of those are counterparts; 0 for a query that has none at
            all.

    >>> group = FirstGroup(np.array([1]), np.array([4]), np.array([1]))
    >>> group.found_within(3).tolist(), group.rank().tolist()
    ([0.5], [3.5])
    """

    ahead: NDArray[np.int64]
    tied: NDArray[np.int64]
    counterparts: NDArray[np.int64]

    @classmethod
    def of_codes(
        cls, query: PackedCodes, database: PackedCodes, pairs: _RowNumbers, n_bits: int
    ) -> "FirstGroup":
        """Find the group of each query's first counterpart by Hamming distance.

        O(nq · nd · k / 64) time; the memory beside the inputs and the result is some 100 MB, or one
        query's distances.

        >>> query, items = np.array([[0]], np.uint8), np.array([[1], [2]], np.uint8)
        >>> FirstGroup.of_codes(query, items, np.array([0]), 8).tied.tolist()
        [2]
        """
        for codes in (query, database):
            check_packed(codes, n_bits)
        return _first_groups(
            lambda rows: -hamming_distances(query[rows], database),
            (len(query), len(database)),
            pairs,
        )

    @classmethod
    def of_vectors(cls, query: _Matrix, database: _Matrix, pairs: _RowNumbers) -> "FirstGroup":
        """Find the group of each query's first counterpart by cosine; equal to 2⁻²² is tied.

        >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> FirstGroup.of_vectors(vectors, vectors, np.array([0, 1])).ahead.tolist()
        [0, 0]
        """
        queries = unit_rows(query)
        items = unit_rows(database).T
        return _first_groups(
            lambda rows: np.rint((queries[rows] @ items) * _STEPS).astype(np.int32),
            (len(queries), items.shape[1]),
            pairs,
        )

    def found_within(self, k: int) -> Scores:
        """Compute the probability that a counterpart is among the first ``k`` items, ``(nq,)``.

        With n = K − a places left in the group of t items, r of them counterparts, that is
        1 − C(t − r, n) / C(t, n); for r = 1, n / t. NaN for a query without counterparts.
        """
        if k < 1:
            raise ValueError(f"K is {k}; a number of first items is at least 1")
        left = np.clip(k - self.ahead, 0, self.tied)
        missed = np.ones(len(left))
        for i in range(int(self.counterparts.max(initial=0))):
            share = np.maximum(self.tied - left - i, 0) / np.maximum(self.tied - i, 1)
            missed *= np.where(i < self.counterparts, share, 1.0)
        return np.where(self.counterparts > 0, 1 - missed, np.nan)

    def rank(self) -> Scores:
        """Compute the expected rank of the first counterpart, a + (t + 1) / (r + 1), ``(nq,)``; NaN
        without any.
        """
        return np.where(
            self.counterparts > 0, self.ahead + (self.tied + 1) / (self.counterparts + 1), np.nan
        )

    def report(self, k: Iterable[int] = _DEFAULT_K) -> _RecallReport:
        """Return the scores over all queries."""
        counted = self.counterparts > 0
        if not counted.any():
            raise ValueError(
                f"none of the {len(counted)} queries has a counterpart: there is nothing to find"
            )
        return {
            "recall_at": {str(each): float(self.found_within(each)[counted].mean()) for each in k},
            "median_rank": float(np.median(self.rank()[counted])),
            "queries": int(counted.sum()),
            "skipped": int((~counted).sum()),
        }


def recall_at_k(
    query: CodeSet | _Vectors,
    database: CodeSet | _Vectors,
    pairs: _RowNumbers | None = None,
    k: Iterable[int] = _DEFAULT_K,
) -> dict[str, _RecallReport]:
    """Compute Recall@K and the median rank of every cross-modal task, in expectation over the
    orders of ties.

    Sets with one modality each make one direction: the photographs as ``query`` and their captions
    as ``database``, or the other way round.

    Args:
        query: codes, or modality -> ``(nq, d)`` real values, which are ranked by cosine.
        database: likewise, of ``nd`` items.
        pairs: database rows of each query's counterparts, ``(nq,)``, or ``(nq, m)`` for up to m,
            filled up with -1; `counterparts` makes them from names. Without them, items of codes
            with the same id.
        k: the K.

    Returns:
        Task, as ``image->text``, to its scores.

    Raises:
        ValueError: a row is not in the database, no query has a counterpart, there is no
            cross-modal task, or the two sets do not fit together.

    >>> images = np.array([[0], [7]], np.uint8)
    >>> texts = np.array([[1], [1]], np.uint8)
    >>> codes = CodeSet(["a", "b"], {"image": images, "text": texts}, None, n_bits=8)
    >>> recall_at_k(codes, codes, k=[1])["image->text"]["recall_at"]
    {'1': 0.5}
    """
    groups = _groups_by_task(query, database, pairs)
    if not groups:
        raise ValueError(
            "recall is of cross-modal tasks, and query and database have only one modality"
        )
    cutoffs = list(k)
    return {task: group.report(cutoffs) for task, group in groups.items()}


def _groups_by_task(
    query: CodeSet | _Vectors, database: CodeSet | _Vectors, pairs: _RowNumbers | None
) -> dict[str, FirstGroup]:
    """Find the groups of the first counterparts, of each cross-modal task."""
    if isinstance(query, CodeSet) and isinstance(database, CodeSet):
        check_comparable(query, database)
        rows = counterparts(query.ids, database.ids) if pairs is None else pairs
        return {
            f"{a}->{b}": FirstGroup.of_codes(query.codes[a], database.codes[b], rows, query.n_bits)
            for a, b in _cross_modal(query.codes, database.codes)
        }
    if isinstance(query, CodeSet) or isinstance(database, CodeSet):
        raise ValueError("query and database are both codes or both real values")
    if pairs is None:
        raise ValueError(
            "real values have no ids: give the database rows of each query's counterparts as pairs"
        )
    return {
        f"{a}->{b}": FirstGroup.of_vectors(query[a], database[b], pairs)
        for a, b in _cross_modal(query, database)
    }


def _cross_modal(query: Iterable[str], database: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of different modalities, one of the queries and one of the database."""
    return [(a, b) for a, b in product(query, database) if a != b]


def check_comparable(query: CodeSet, database: CodeSet) -> None:
    """Refuse codes of different lengths or models."""
    if query.n_bits != database.n_bits:
        raise ValueError(f"query codes have {query.n_bits} bits, database codes {database.n_bits}")
    if query.model != database.model and query.model and database.model:
        raise ValueError(
            "query and database codes were made by different models; their distances mean nothing"
        )


def counterparts(query_names: Sequence[str], database_names: Sequence[str]) -> NDArray[np.int64]:
    """Return the database rows with each query's name, ``(nq, m)``, filled up with -1.

    The names say what belongs together, such as the photograph's name beside each of its five
    captions.

    >>> counterparts(["b", "a", "c"], ["a", "b", "a"]).tolist()
    [[1, -1], [0, 2], [-1, -1]]
    """
    of_name: dict[str, list[int]] = {}
    for row, name in enumerate(database_names):
        of_name.setdefault(name, []).append(row)
    row_lists = [of_name.get(name, []) for name in query_names]
    rows = np.full((len(row_lists), max(map(len, row_lists), default=0)), -1, dtype=np.int64)
    for query, of_query in enumerate(row_lists):
        rows[query, : len(of_query)] = of_query
    return rows


def _rows_of_one_id(
    query_ids: Sequence[str], database_ids: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of queries and of items with the same id, ``(p,)`` each."""
    ids = set(query_ids)
    shared = np.array([row for row, name in enumerate(database_ids) if name in ids], np.int64)
    rows = counterparts(query_ids, [database_ids[row] for row in shared])
    queries, places = np.nonzero(rows >= 0)
    return queries, shared[rows[queries, places]]


def find_self_pairs(query: CodeSet, database: CodeSet) -> NDArray[np.int64] | None:
    """Return the rows ``(p, 2)`` of queries and of items with the same id; None if there are none.

    Numbers as ids may be those of rows on each side: they mean the same items where all of these
    have the same labels.
    """
    queries, items = _rows_of_one_id(query.ids, database.ids)
    if not len(queries):
        return None
    of_query = query.labels
    of_item = database.labels
    if of_query is None or of_item is None or of_query.shape[1] != of_item.shape[1]:
        return np.stack([queries, items], axis=1)
    same = (of_query[queries] == of_item[items]).all(axis=1)
    differing = [query.ids[row] for row in np.setdiff1d(queries, queries[same])]
    if not differing:
        return np.stack([queries, items], axis=1)
    if all(name.isdecimal() for name in differing):
        return None
    raise ValueError(
        f"the id {differing[0]!r} is of a query and of a database item with other labels; an item "
        "has one id on both sides and different items have different ids"
    )


def _first_groups(
    similarities: Callable[[slice], NDArray[Any]], shape: tuple[int, int], pairs: _RowNumbers
) -> FirstGroup:
    """Find the group of each query's first counterpart by any similarity.

    >>> similarities = np.array([[3, 5, 5]])
    >>> _first_groups(lambda rows: similarities[rows], (1, 3), np.array([0])).ahead.tolist()
    [2]
    """
    nq, nd = shape
    rows = _checked(pairs, nq, nd)
    ahead, tied, n_found = (np.zeros(nq, dtype=np.int64) for _ in range(3))
    step = max(1, _PAIRS // max(1, nd))
    for start in range(0, nq if rows.shape[1] else 0, step):
        block = slice(start, start + step)
        known = rows[block] >= 0
        values = similarities(block)
        pair_values = np.take_along_axis(values, np.maximum(rows[block], 0), axis=1)
        best = pair_values.max(
            axis=1, where=known, initial=pair_values.min(initial=0), keepdims=True
        )
        ahead[block] = (values > best).sum(axis=1)
        tied[block] = (values == best).sum(axis=1)
        n_found[block] = (known & (pair_values == best)).sum(axis=1)
    return FirstGroup(ahead, tied, n_found)


def _checked(pairs: _RowNumbers, nq: int, nd: int) -> NDArray[np.int64]:
    """Return pairs as ``(nq, m)`` int64."""
    array = np.asarray(pairs)
    rows = array.reshape(-1, 1) if array.ndim == 1 else array
    if rows.ndim != 2 or len(rows) != nq or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"pairs are (nq,) or (nq, m) database rows with nq = {nq}, not {array.shape} "
            f"{array.dtype}"
        )
    if rows.size and not -1 <= rows.min() <= rows.max() < nd:
        raise ValueError(
            f"pairs name rows {rows.min()} to {rows.max()}; the database has rows 0 to {nd - 1}"
        )
    ranked = np.sort(rows, axis=1)
    if ((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)).any():
        raise ValueError("pairs name a row twice for one query")
    return rows.astype(np.int64)


def instance_recall(query: CodeSet, database: CodeSet) -> dict[str, _RecallReport]:
    """Compute Recall@1, 5 and 10 and the median rank of every cross-modal task whose queries have a
    counterpart.

    Counterparts are items of one id, or texts and the image that they were written for. Where no
    query has one in the database, as in splits of queries and retrieval set, the queries search the
    queries themselves: the test of 1,000 or 5,000 images of Flickr8k and COCO. An image of several
    texts is asked and found once; it has found if it finds any of its texts.

    >>> captions = np.array([[0], [1], [7]], np.uint8)
    >>> images = np.array([[1], [1], [7]], np.uint8)
    >>> both = {"image": images, "text": captions}
    >>> codes = CodeSet(["1", "2", "3"], both, None, 8, images=["a", "a", "b"])
    >>> report = instance_recall(codes, codes)
    >>> report["image->text"]["queries"], report["text->image"]["queries"]
    (2, 3)
    """
    rows = (*query.ids, *database.ids)
    images = (*(query.images or ()), *(database.images or ()))
    names: Sequence[str] = pairs_by_image(rows, images) if len(images) == len(rows) else rows
    query_names = names[: len(query)]
    database_names = names[len(query) :]
    if names is rows:
        apart = find_self_pairs(query, database) is None
    else:
        apart = set(query_names).isdisjoint(database_names)
    if apart:
        database = query
        database_names = query_names
    reports: dict[str, _RecallReport] = {}
    for a, b in _cross_modal(query.codes, database.codes):
        queries, of_query = _side(query, a, query_names)
        items, of_item = _side(database, b, database_names)
        pairs = counterparts(of_query, of_item)
        if (pairs >= 0).any():
            check_comparable(query, database)
            result = FirstGroup.of_codes(queries, items, pairs, query.n_bits).report()
            reports[f"{a}->{b}"] = {**result, "recall_items": len(items)}
    return reports


def _side(codes: CodeSet, modality: str, names: Sequence[str]) -> tuple[PackedCodes, Sequence[str]]:
    """Return the codes of one modality with their names; of several rows of one image the first."""
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        first.setdefault(name, row)
    rows = list(first.values()) if modality == "image" else list(range(len(names)))
    return codes.codes[modality][rows], [names[row] for row in rows]
