"""Instance retrieval of code sets: which items belong together, and where they are searched."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.data.records import pairs_by_image
from channelhash.metrics.recall import counterparts, recall_at_k


class InstanceReport(TypedDict):
    """Scores of one cross-modal task, shares in [0, 1].

    Attributes:
        recall_at: K -> share of queries with a counterpart among the first K items, in expectation over ties.
        median_rank: median over queries of the rank of the first counterpart, from 1.
        recall_items: number of items that are searched; chance is about K / ``recall_items``.
        queries: number of queries with a counterpart.
        skipped: number of queries without.

    >>> codes = CodeSet(["a"], {"image": np.array([[0]], np.uint8), "text": np.array([[1]], np.uint8)}, None, n_bits=8)
    >>> instance_recall(codes, codes)["text->image"]
    {'recall_at': {'1': 1.0, '5': 1.0, '10': 1.0}, 'median_rank': 1.0, 'recall_items': 1, 'queries': 1, 'skipped': 0}
    """

    recall_at: dict[str, float]
    median_rank: float
    recall_items: int
    queries: int
    skipped: int


def instance_recall(query: CodeSet, database: CodeSet) -> dict[str, InstanceReport]:
    """Compute Recall@1, 5 and 10 and the median rank of every cross-modal task whose queries have a counterpart.

    Counterparts are items of one id, or texts and the image that they were written for. Where no query has one in the
    database, as in splits of queries and retrieval set, the queries search the queries themselves: the test of 1,000
    or 5,000 images of Flickr8k and COCO. An image of several texts is asked and found once; it has found if it finds
    any of its texts.

    Returns:
        Task to scores; empty where no image or no text of a query is there to be found.

    Raises:
        ValueError: as `recall.recall_at_k`.

    >>> captions = np.array([[0], [1], [7]], np.uint8)
    >>> images = np.array([[1], [1], [7]], np.uint8)
    >>> codes = CodeSet(["1", "2", "3"], {"image": images, "text": captions}, None, 8, images=["a", "a", "b"])
    >>> report = instance_recall(codes, codes)
    >>> report["image->text"]["queries"], report["text->image"]["queries"], report["text->image"]["recall_items"]
    (2, 3, 2)
    """
    rows = (*query.ids, *database.ids)
    images = (*(query.images or ()), *(database.images or ()))
    names: Sequence[str] = pairs_by_image(rows, images) if len(images) == len(rows) else rows
    asked, searched = names[: len(query)], names[len(query) :]
    if not set(asked) & set(searched):
        database, searched = query, asked
    reports: dict[str, InstanceReport] = {}
    for a in query.codes:
        for b in database.codes:
            if a != b:
                (one, of_query), (other, of_item) = _side(query, a, asked), _side(database, b, searched)
                pairs = counterparts(of_query, of_item)
                if (pairs >= 0).any():
                    found = recall_at_k(one, other, pairs)[f"{a}->{b}"]
                    reports[f"{a}->{b}"] = {
                        "recall_at": found["recall_at"],
                        "median_rank": found["median_rank"],
                        "recall_items": len(other),
                        "queries": found["queries"],
                        "skipped": found["skipped"],
                    }
    return reports


def _side(codes: CodeSet, modality: str, names: Sequence[str]) -> tuple[CodeSet, Sequence[str]]:
    """Return the codes of one modality with their names; of several rows of one image the first."""
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        first.setdefault(name, row)
    kept = list(first.values()) if modality == "image" else range(len(names))
    part = codes.take(np.array(kept, dtype=np.int64))
    one = CodeSet(part.ids, {modality: part.codes[modality]}, None, codes.n_bits, model=codes.model)
    return one, [names[row] for row in kept]
