"""Answers page by page, all of them cut out of one ranking."""

from dataclasses import replace
from typing import NamedTuple

from channelhash.search.fused import DEPTH, answer
from channelhash.search.hits import Hits, Query, SearchOptions
from channelhash.search.store import Store

#: Answers that can be turned over to, at most, if nobody says otherwise.
MOST = 1000


class Page(NamedTuple):
    """Some of a query's answers.

    Attributes:
        hits: the answers of the page.
        alike: ids of the near-duplicates of the item that was left out; None where none was, or none are folded.
    """

    hits: Hits
    alike: list[str] | None


def answer_page(
    store: Store, query: Query, options: SearchOptions, offset: int = 0, most: int = MOST, leave_out: str | None = None
) -> Page:
    """Return ``options.k`` answers to a query from ``offset`` on; over all offsets, each comes once.

    The ranking is that of `channelhash.search.fused.answer` for its `DEPTH` best, behind which come those that the same
    finds among its ``most`` best: what fused rankings say of the first hundred depends on how deep they go.

    Args:
        store: searched.
        query: the query.
        options: which items to return; ``k`` of them, also within a radius.
        offset: answers before the first of the page.
        most: answers of all pages.
        leave_out: id of an item that is no answer; with ``options.collapse``, nor are its near-duplicates.

    Raises:
        InputError: as `answer`.

    >>> import numpy as np, channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b", "c"], {"image": np.array([[0], [1], [7]], np.uint8)}, None, n_bits=8))
    >>> page = answer_page(store, Query(np.array([0], np.uint8)), SearchOptions(k=1), offset=1, leave_out="a")
    >>> [hit.id for hit in page.hits]
    ['c']
    """
    end = offset + options.k + (leave_out is not None)
    # With a radius, the depth of fused rankings is the number of answers.
    first = DEPTH if options.radius is not None else min(end, DEPTH)
    hits = answer(store, query, replace(options, k=first, limit=first))
    if len(hits) < end and (len(hits) == DEPTH or options.collapse is not None):
        seen = {name for hit in hits for name in (hit.id, *(hit.duplicates or ()))}
        rest = most + (leave_out is not None)
        further = answer(store, query, replace(options, k=rest, limit=rest))
        hits += [hit for hit in further if seen.isdisjoint((hit.id, *(hit.duplicates or ())))]
    own = [(hit.id, *(hit.duplicates or ())) for hit in hits if leave_out in (hit.id, *(hit.duplicates or ()))]
    left_out = {name for group in own for name in group}
    kept = [hit for hit in hits if hit.id not in left_out]
    folds = leave_out is not None and options.collapse is not None
    alike = [name for group in own for name in group if name != leave_out] if folds else None
    return Page(Hits(kept[offset : offset + options.k], hits.close, hits.note), alike)
