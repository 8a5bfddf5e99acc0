"""Hits: the answers of a store with all that people want to know of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.errors import InputError, argument
from channelhash.search.answer import AnswerOrder, Ranked, code_of
from channelhash.search.browsing import date_of
from channelhash.search.items import DEFAULT_MODALITY, Value
from channelhash.search.match import FITS
from channelhash.search.question import WORDS, Query, SearchOptions
from channelhash.search.rankings import choose_rankings, why_no_text
from channelhash.search.store import Item, Store
from channelhash.text.phrases import Phrase
from channelhash.utils.contact_sheet import SheetCell, write_contact_sheet

__all__ = [
    "Hit",
    "Hits",
    "Query",
    "SearchOptions",
    "answer",
    "list_hits",
    "search_hits",
    "sort_by_date",
]


@dataclass(frozen=True)
class Hit:
    """One item that a search found.

    Attributes:
        id: the item's id.
        distance: number of bits in which its code differs from the query's; None if that has no
            code.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: path of its image, empty if unknown.
        metadata: its other metadata.
        code: ``(ceil(n_bits / 8),)`` packed code, which was compared with the query's.
        modalities: the modalities of its codes.
        match: the share of random items that are at least as near; None if the store cannot say.
            See `channelhash.search.match`.
        fit: the probability that it answers a question in words, 1 if its own words do; None if the
            store cannot say.
        similarity: of its vector and the query's, by the store's projections: their cosine, inner
            product or negative squared distance, as the encoder means it, less an image's excess
            where a text asks (`channelhash.codes.hubs`); None if the store keeps none, or the item
            was found otherwise.
        duplicates: ids of the near-duplicates that were folded into this answer; None if none are
            folded. Answers of one depth are folded together, the first being the first 100 items of
            each ranking.
        by_words: whether its words helped to find it.
        quote: the lines of the text in its image that hold the question's words, if these helped
            to find it.

    >>> Hit("a", 2, "a dog", ["dog"], "").as_dict()["distance"]
    2
    """

    id: str
    distance: int | None
    text: str
    labels: list[str]
    image: str
    metadata: dict[str, Value] = field(default_factory=dict)
    code: PackedCodes = field(default_factory=lambda: np.zeros(0, np.uint8), compare=False)
    modalities: tuple[str, ...] = ()
    match: float | None = None
    fit: float | None = None
    similarity: float | None = None
    duplicates: list[str] | None = None
    by_words: bool = False
    quote: str = ""

    @classmethod
    def of(
        cls,
        item: Item,
        modality: str = DEFAULT_MODALITY,
        distance: int | None = None,
        **judged: Any,
    ) -> "Hit":
        """Return an item as a hit.

        Args:
            item: the item.
            modality: modality of the code to show, see `code_of`.
            distance: see above.
            judged: other attributes.

        >>> Hit.of(Item("a", {"image": np.array([7], np.uint8)}, {"text": "a dog"})).text
        'a dog'
        """
        metadata = dict(item.metadata)
        labels = metadata.pop("labels", None)
        return cls(
            item.id,
            distance,
            text=str(metadata.pop("text", None) or ""),
            labels=list(labels) if isinstance(labels, list) else [],
            image=str(metadata.pop("image", None) or ""),
            metadata=metadata,
            code=code_of(item, modality),
            modalities=tuple(sorted(item.codes)),
            **judged,
        )

    @property
    def fits(self) -> bool:
        """Whether it is likely to answer the question; true if that is not known."""
        return self.fit is None or self.fit >= FITS

    def as_dict(self) -> dict[str, Any]:
        """Return the main attributes as JSON-able values."""
        names = ["id", "distance", "similarity", "match", "fit", "text", "labels", "image"]
        names.append("metadata")
        if self.duplicates is not None:
            names.append("duplicates")
        return {name: getattr(self, name) for name in names}


class Hits(list[Hit]):
    """The items that a search found.

    Attributes:
        close: whether the best answers are as near as those to questions that the store can answer;
            None if it cannot say, see `channelhash.search.match`.
        note: what the question could not be compared with, and what to do, or what a filter that
            nothing passes could ask for, in one line; empty if there is nothing to say.
        suggestion: what the question may have meant, if one of its words is unknown; else empty.
        phrases: the dates and places of the question, which the hits are narrowed to.
        query: the query that the store was searched with.
        alike: ids of the near-duplicates of the item that was left out; None if none was left out
            or none are folded.
        best_fit: the largest `Hit.fit` of the best answers, whichever page is asked for; 0 if it
            is not known.
        unlikely: whether answers that are unlikely to fit were left out.
        found: number of answers that fit, on all pages; None if it is not known, as of a hundred
            and more.
        likely: number of answers that are likely to fit, which come first, see
            `channelhash.search.match`; None as for ``found``, or if no fit is known.

    >>> Hits([Hit("a", 2, "a dog", ["dog"], "")], close=False).close
    False
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        close: bool | None = None,
        note: str = "",
        suggestion: str = "",
    ) -> None:
        super().__init__(hits)
        self.close = close
        self.note = note
        self.suggestion = suggestion
        self.phrases: tuple[Phrase, ...] = ()
        self.query = Query(np.zeros(0, np.uint8))
        self.alike: list[str] | None = None
        self.best_fit = 0.0
        self.unlikely = False
        self.found: int | None = None
        self.likely: int | None = None

    def narrowed(self) -> list[dict[str, str]]:
        """Return the dates and places that narrow the hits as JSON-able values."""
        return [
            {"kind": phrase.kind, "words": phrase.words, "means": phrase.means}
            for phrase in self.phrases
        ]

    def draw(self, query: str | Path, path: Path) -> None:
        """Draw a query (words or an image file) and the hits as one row of a PNG."""
        cells = [SheetCell(query, "query") if isinstance(query, Path) else SheetCell(None, query)]
        for rank, hit in enumerate(self, start=1):
            cells.append(
                SheetCell(Path(hit.image) if hit.image else None, f"{rank}. {hit.text or hit.id}")
            )
        write_contact_sheet([cells], path)


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items whose codes answer a query best, in a store that is not empty.

    `channelhash.search.rankings` says how codes are ranked. Items that others delete meanwhile are
    left out.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking is asked for and
            only the bits of the query are known.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a", "b"], codes, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, Query(np.array([7], np.uint8)))]
    [('b', 0), ('a', 3)]
    """
    options = options or SearchOptions()
    return _cut(store, query, options, [store.choose_modality(options.modality)])


def answer(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items that answer a query best, in a store that is not empty.

    A query with words is answered by the codes of images, the codes of texts and the words of the
    store, as far as it has them. These rankings are fused, see `channelhash.search.answer`;
    `SearchOptions.by` names one of them instead. Without a code, words answer alone. A query
    without words, or with a modality, radius or re-ranking, is answered as by `search_hits`.

    The order of answers is decided before a page is cut out of it, and answers that fit come first.
    It is the same for every ``k``: pages put together are the whole.

    Raises:
        InputError: the store or the query lacks what ``by`` names, or other options contradict it;
            or as `search_hits`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a", "b"], codes, None, n_bits=8, texts=("a dog", "")))
    >>> query = Query(np.array([3], np.uint8), words="dog")
    >>> [(hit.id, hit.distance) for hit in answer(store, query)]
    [('a', 2), ('b', 1)]
    """
    options = options or SearchOptions()
    hits = _cut(store, query, options, choose_rankings(store, query, options))
    if not query.words_coded and options.by != WORDS:
        hits.note = f"what you wrote is looked for by its words: {why_no_text(store)}"
    return hits


def list_hits(store: Store, items: Iterable[Item], options: SearchOptions) -> Hits:
    """Return items as hits in the same order; no query found them.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a", "b"], codes, None, n_bits=8))
    >>> [hit.id for hit in list_hits(store, store.get(["b"]), SearchOptions())]
    ['b']
    """
    if options.radius is not None:
        raise InputError(
            f"{argument('radius')}: only dates and places are asked for, which have no code; leave "
            "it out"
        )
    searched = store.choose_modality(options.modality)
    return Hits(Hit.of(item, searched) for item in items)


def sort_by_date(hits: Sequence[Hit], newest_first: bool) -> list[Hit]:
    """Sort hits by date; those without a date come last in either order.

    Hits of the same date keep their order.

    >>> dates = {"a": "", "b": "2020-01", "c": "2019-07"}
    >>> hits = [Hit(name, None, "", [], "", {"date": date}) for name, date in dates.items()]
    >>> [hit.id for hit in sort_by_date(hits, newest_first=False)]
    ['c', 'b', 'a']
    """
    dates = {hit.id: date_of(hit.metadata) for hit in hits}
    dated = [hit for hit in hits if dates[hit.id]]
    undated = [hit for hit in hits if not dates[hit.id]]
    return sorted(dated, key=lambda hit: dates[hit.id], reverse=newest_first) + undated


def _cut(store: Store, query: Query, options: SearchOptions, rankings: Sequence[str]) -> Hits:
    """Cut the page that is asked for out of the order of answers."""
    order = AnswerOrder(store, query, options, rankings)
    remaining = islice(order.answers(), options.offset, None)
    page = Hits(close=order.close)
    n_missing = options.count
    while n_missing is None or n_missing > 0:  # again if some of them were deleted meanwhile
        answers = list(islice(remaining, n_missing))
        if not answers:
            break
        page += _make_hits(store, order, query, answers)
        n_missing = None if options.count is None else options.count - len(page)
    page.alike = order.alike
    page.best_fit = order.best_fit
    page.unlikely = order.unlikely
    page.found = order.found
    page.likely = order.likely
    return page


def _make_hits(
    store: Store, order: AnswerOrder, query: Query, answers: Sequence[Ranked]
) -> list[Hit]:
    """Read answers as hits. If the query has a code, they get distances, and what these mean."""
    ranked = {answer.id: answer for answer in answers}
    items = order.read(list(ranked))
    distances: Sequence[int | None] = [None] * len(items)
    matches: Sequence[float | None] = [None] * len(items)
    if len(query.code) and items:
        codes = np.stack([code_of(item, order.modality) for item in items])
        bits = hamming_distances(query.code[None], codes)[0].tolist()
        distances = bits
        matches = order.judge.matches(bits)
    hits = []
    for item, distance, match in zip(items, distances, matches, strict=True):
        answer = ranked[item.id]
        hit = Hit.of(
            item,
            order.modality,
            distance,
            match=match,
            fit=answer.fit,
            similarity=answer.similarity,
            duplicates=None if answer.copies is None else list(answer.copies),
            by_words=answer.by_words,
            quote=store.quote(item, query.words) if answer.by_words else "",
        )
        hits.append(hit)
    return hits
