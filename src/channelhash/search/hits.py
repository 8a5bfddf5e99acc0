"""What a search found, for people: the answers of a store as hits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.errors import InputError, argument
from channelhash.search.answer import ALONE, AnswerOrder, Ranked, choose_rankings, code_of
from channelhash.search.browsing import date_of
from channelhash.search.items import DEFAULT_MODALITY, Value
from channelhash.search.match import FITS
from channelhash.search.question import WORDS, Query, SearchOptions
from channelhash.search.sqlite.words import quote
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
        distance: number of bits in which its code differs from the query's; None where that has no
            code.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: path of its image, empty if unknown.
        metadata: its other metadata.
        code: ``(ceil(k / 8),)`` the packed code that was found.
        modalities: the modalities that it has codes of.
        match: of random items, the share at least as near as this one; None where the store cannot
            say. See `channelhash.search.match`.
        fit: the probability that it answers a question in words, 1 where its own words do; None
            where the store cannot say.
        duplicates: ids of the answers that were folded into this one, of those that the first 100
            of each ranking are, or of those behind them; None where none were to be.
        by_words: whether its words helped to find it.
        quote: the lines of the text in its picture that hold the question's words, if these helped
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
        """Return an item as what was found, with its code of a modality, or of another one if it
        has none of that.

        >>> Hit.of(Item("a", {"image": np.array([7], np.uint8)}, {"text": "a dog"})).text
        'a dog'
        """
        metadata = dict(item.metadata)
        text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
        shown = str(text or ""), list(labels) if isinstance(labels, list) else [], str(image or "")
        code = code_of(item, modality)
        return cls(item.id, distance, *shown, metadata, code, tuple(sorted(item.codes)), **judged)

    @property
    def fits(self) -> bool:
        """Whether it is likely to answer the question; true where that is not known."""
        return self.fit is None or self.fit >= FITS

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the codes as JSON-able values."""
        names = ["id", "distance", "match", "fit", "text", "labels", "image", "metadata"]
        if self.duplicates is not None:
            names.append("duplicates")
        return {name: getattr(self, name) for name in names}


class Hits(list[Hit]):
    """The items that a search found.

    Attributes:
        close: whether they are as near as answers are to questions of which the store has some;
            None where it cannot say, see `channelhash.search.match`.
        note: what the question could not be compared with, and what to do; a line, empty if there
            is nothing to say.
        suggestion: what the question may have meant, if one of its words is unknown; empty
            otherwise.
        phrases: the dates and places of the question that the hits are narrowed to.
        query: what the store was searched with.
        alike: ids of the near-duplicates of the item that was left out; None where none was, or
            none are folded.
        best_fit: the largest `Hit.fit` of the best answers, whichever are asked for; 0 where it is
            not known.
        unlikely: whether answers that are less likely to fit were left out.

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

    def narrowed(self) -> list[dict[str, str]]:
        """Return what the hits are narrowed to as JSON-able values."""
        return [
            {"kind": phrase.kind, "words": phrase.words, "means": phrase.means}
            for phrase in self.phrases
        ]

    def draw(self, query: str | Path, path: Path) -> None:
        """Draw a query, words or an image file, and the hits as one row of a PNG."""
        cells = [SheetCell(query, "query") if isinstance(query, Path) else SheetCell(None, query)]
        for rank, hit in enumerate(self, start=1):
            cells.append(
                SheetCell(Path(hit.image) if hit.image else None, f"{rank}. {hit.text or hit.id}")
            )
        write_contact_sheet([cells], path)


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items nearest to a query, nearest first, in a store that is not empty.

    Where the query's outputs are known, they order items too, see `channelhash.search.answer`.
    Otherwise equal distances are in the order of ids. An item that others delete meanwhile is left
    out.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking needs the
            real-valued outputs of a query of which only bits are known.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, Query(np.array([7], np.uint8)))]
    [('b', 0), ('a', 3)]
    """
    options = options or SearchOptions()
    return _cut(store, query, options, [store.choose_modality(options.modality)])


def answer(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items that answer a query best, in a store that is not empty.

    A query with words is answered by what the store has of codes of images, codes of texts and
    words, fused by reciprocal ranks (`channelhash.search.rank`); ties by distance, then by id.
    `SearchOptions.by` names one of them. Without a code, words alone answer. Another query is
    answered by codes alone, see `search_hits`, and so is one with a modality, radius or re-ranking.

    The order of answers is decided before it is cut: what fits first, then the rest. The first ones
    are the same for every ``k``, and pages put together are the whole.

    Raises:
        InputError: the store or the query lacks what ``by`` names, or other options contradict it;
            or as `search_hits`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8, texts=("a dog", ""))
    >>> query = Query(np.array([3], np.uint8), words="dog")
    >>> [(hit.id, hit.distance) for hit in answer(open_codes(codes), query)]
    [('a', 2), ('b', 1)]
    """
    options = options or SearchOptions()
    hits = _cut(store, query, options, choose_rankings(store, query, options))
    if not query.words_coded and options.by != WORDS:
        hits.note = f"what you wrote is looked for by its words: {ALONE}"
    return hits


def list_hits(store: Store, items: Iterable[Item], options: SearchOptions) -> Hits:
    """Return items that no query found as hits, in their order.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [hit.id for hit in list_hits(store, store.get(["b"]), SearchOptions())]
    ['b']
    """
    if options.radius is not None or options.rerank is not None:
        raise InputError(
            f"{argument('radius')}, {argument('rerank')}: only dates and places are asked for, "
            "which have no code; leave them out"
        )
    searched = store.choose_modality(options.modality)
    return Hits(Hit.of(item, searched) for item in items)


def sort_by_date(hits: Sequence[Hit], newest_first: bool) -> list[Hit]:
    """Return hits by date, equal dates in their order; those without a date last, either way.

    >>> hits = [Hit(name, None, "", [], "", {"date": date}) for name, date in zip("abc", ["", "2020-01", "2019-07"])]
    >>> [hit.id for hit in sort_by_date(hits, newest_first=False)]
    ['c', 'b', 'a']
    """
    dates = {hit.id: date_of(hit.metadata) for hit in hits}
    dated = [hit for hit in hits if dates[hit.id]]
    undated = [hit for hit in hits if not dates[hit.id]]
    return sorted(dated, key=lambda hit: dates[hit.id], reverse=newest_first) + undated


def _cut(store: Store, query: Query, options: SearchOptions, rankings: Sequence[str]) -> Hits:
    """Return the part of the order of answers that is asked for."""
    order = AnswerOrder(store, query, options, rankings)
    places = islice(order.answers(), options.offset, None)
    hits: list[Hit] = []
    lacking = options.count
    while lacking is None or lacking > 0:  # again in place of what was deleted meanwhile
        some = list(islice(places, lacking))
        if not some:
            break
        hits += _make_hits(order, query, some)
        lacking = None if options.count is None else options.count - len(hits)
    cut = Hits(hits, order.close)
    cut.alike = order.alike
    cut.best_fit = order.best_fit
    cut.unlikely = order.unlikely
    return cut


def _make_hits(order: AnswerOrder, query: Query, answers: Sequence[Ranked]) -> list[Hit]:
    """Return answers as hits: with their distances if the query has a code, and what these mean."""
    ranked = {answer.id: answer for answer in answers}
    items = order.read(list(ranked))
    distances: Sequence[int | None] = [None] * len(items)
    matches: Sequence[float | None] = [None] * len(items)
    if len(query.code) and items:
        codes = np.stack([code_of(item, order.modality) for item in items])
        bits: list[int] = hamming_distances(query.code[None], codes)[0].tolist()
        distances = bits
        matches = order.judge.matches(bits)
    hits = []
    for item, distance, match in zip(items, distances, matches, strict=True):
        place = ranked[item.id]
        hit = Hit.of(
            item,
            order.modality,
            distance,
            match=match,
            fit=place.fit,
            duplicates=None if place.copies is None else list(place.copies),
            by_words=place.by_words,
        )
        if hit.by_words:
            hit = replace(hit, quote=quote(str(item.metadata.get("ocr") or ""), query.words))
        hits.append(hit)
    return hits
