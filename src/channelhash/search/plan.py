"""The plan of a search: the one recipe that the command line, the library and the server follow.

A plan is made of a question to a store (`Search.of`): dates and places become a filter, words
become parts, stored items are looked up. It says what has to be encoded (`Search.to_encode`). Who
follows it encodes that, on whatever thread and in whatever batches, and hands the outputs back
(`Search.answer`). A plan loads no model and runs none.

Where words are unknown to the encoder, `Search.correct` is a second plan, which is followed
likewise. It is suggested where it finds better (`Search.suggest_to`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import binarize, pack
from channelhash.errors import InputError, argument
from channelhash.models.description import QueryEncoder
from channelhash.models.photo import LANGUAGES, is_unread, spelling
from channelhash.search.browsing import Catalogue
from channelhash.search.hits import Hits, answer, list_hits
from channelhash.search.question import (
    WORDS,
    Part,
    Picture,
    Query,
    Question,
    SearchOptions,
    check_parts,
    find_item,
    leave_plain,
    narrow,
    parse_question,
)
from channelhash.search.store import Item, Store
from channelhash.text.words import Spelling

#: Modality -> real-valued outputs ``(k,)`` of each item of `Search.to_encode`; without a modality
#: that the encoder does not have.
Outputs = Mapping[str, Sequence[NDArray[Any]] | NDArray[Any]]
#: Reads a part of the items that pass a filter, newest first.
Browse = Callable[[str | None, slice], list[Item]]
#: Encoders whose texts are sentences in languages that are known.
_OF_SENTENCES = ("photo", "photo-backbones")


@dataclass(frozen=True)
class Search:
    """A search of one store.

    Attributes:
        store: the store.
        question: without its dates and places, which are its phrases.
        options: with the filter of these.
        words: the parts of the text.
        others: the other parts.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8)
    >>> Search.of(open_codes(codes), Question("a dog -cat")).to_encode
    {'text': ['a dog', 'cat']}
    >>> [hit.id for hit in Search.of(open_codes(codes), Question(like="b")).answer()]
    ['b', 'a']
    """

    store: Store
    question: Question
    options: SearchOptions
    words: list[Part]
    others: list[Part]

    @classmethod
    def of(cls, store: Store, question: Question, options: SearchOptions | None = None) -> Self:
        """Plan the search for a question.

        Raises:
            InputError: the question is empty or makes no sense, an item is unknown or lacks the
                code that is named, or the filter is wrong.
        """
        options = options or SearchOptions()
        question.check()
        narrowed, where = narrow(store, question, options.where)
        return cls._of_narrowed(store, narrowed, replace(options, where=where))

    @classmethod
    def of_plain(cls, store: Store, question: Question, options: SearchOptions) -> Self | None:
        """Plan the search for a question that names no date and no place, as `of` does; None for
        others, whose items take long to find.
        """
        question.check()
        plain = leave_plain(store, question)
        return None if plain is None else cls._of_narrowed(store, plain, options)

    @classmethod
    def _of_narrowed(cls, store: Store, question: Question, options: SearchOptions) -> Self:
        words = parse_question(question.text) if question.text else []
        others = _other_parts(store, question, options.modality)
        if words or others:
            check_parts([*words, *others])
        return cls(store, question, options, words, others)

    @property
    def parts(self) -> list[Part]:
        """All parts; none where only dates and places are asked for."""
        return [*self.words, *self.others]

    @property
    def to_encode(self) -> dict[str, list[str | Picture]]:
        """What has to be encoded, by modality; nothing where words alone are searched."""
        items: dict[str, list[str | Picture]] = {}
        if self.options.by == WORDS:
            return items
        for part in self.parts:
            if not isinstance(part.content, Query):
                items.setdefault(part.modality, []).append(part.content)
        return items

    def answer(
        self,
        outputs: Outputs | None = None,
        encoder: QueryEncoder | None = None,
        browse: Browse | None = None,
    ) -> Hits:
        """Search with what has been encoded.

        Args:
            outputs: of `to_encode`. Texts without outputs are looked for by their words.
            encoder: what has made them, which knows scripts; it does not run here.
            browse: reads items where only dates and places are asked for; by default all items are
                listed.

        Raises:
            InputError: as `channelhash.search.hits.answer`.
        """
        query = self._query(outputs or {})
        if not self.store.has_codes:
            hits = Hits()
        elif self.parts:
            hits = answer(self.store, query, self.options)
        else:
            hits = self._list_newest(browse)
        hits.query = query
        hits.phrases = self.question.phrases
        if not hits.note and self.question.text and is_unread_by(encoder, self.question.text):
            hits.note = f"the encoder reads no language in this script; ask in one of {LANGUAGES}"
        return hits

    def correct(self, encoder: QueryEncoder | None) -> Self | None:
        """Return the plan of the question with words of the store, or of the encoder, in place of
        those that the encoder does not know; None where there are none.
        """
        text = self.question.text
        if not text or not has_unknown_words(encoder, text):
            return None
        corrected = _correct(self.store, text)
        if corrected == text:
            return None
        words = parse_question(corrected)
        check_parts([*words, *self.others])
        return replace(self, question=replace(self.question, text=corrected), words=words)

    def suggest_to(self, hits: Hits, outputs: Outputs) -> None:
        """Suggest the question of this plan, a corrected one, to whoever has got hits for what was
        written, if it halves the doubt that their best answer leaves.
        """
        options = replace(self.options, k=1, limit=1, offset=0)
        best_fit = answer(self.store, self._query(outputs), options).best_fit
        if 1 - best_fit < (1 - hits.best_fit) / 2:
            hits.suggestion = self.question.said(self.question.text or "")

    def _query(self, outputs: Outputs) -> Query:
        n_bits = self.store.n_bits or 0
        remaining = {modality: iter(rows) for modality, rows in outputs.items()}
        rows: list[NDArray[Any] | None] = []
        for part in self.parts:
            if isinstance(part.content, Query):
                rows.append(part.content.as_outputs(n_bits))
            else:
                rows.append(next(remaining[part.modality]) if part.modality in outputs else None)
        return make_query(self.parts, rows)

    def _list_newest(self, browse: Browse | None) -> Hits:
        """Return the items of dates and places, of which nothing else is asked."""
        page = slice(self.options.offset, self.options.offset + self.options.k)
        items = (browse or self._browse)(self.options.where, page)
        return list_hits(self.store, items, self.options)

    def _browse(self, where: str | None, page: slice) -> list[Item]:
        catalogue = Catalogue.of((item.id, item.metadata) for item in self.store.listed())
        newest = catalogue.places("newest", among=set(self.store.ids(where)))
        ids = [catalogue.ids[place] for place in newest[page]]
        return self.store.get(ids, missing_ok=True)


def _other_parts(store: Store, question: Question, searched: str | None) -> list[Part]:
    """Return the parts of a question beside its words."""
    parts: list[Part] = []
    if question.image is not None:
        parts.append(Part(question.image))
    if question.like is not None:
        parts.append(Part(_query_of_item(store, question.like, question.like_modality, searched)))
    if question.code is not None:
        parts.append(Part(Query(question.code)))
    parts += [Part(unwanted, -1.0) for unwanted in question.minus]
    for item_id in question.minus_like:
        item = find_item(store, item_id, "minus_like")
        parts.append(Part(Query.of_item(item, min(item.codes)), -1.0))
    return parts


def _query_of_item(store: Store, item_id: str, named: str | None, searched: str | None) -> Query:
    """Return an item as a query by the code that is named, else by the one that is searched, or
    another one if it has none of that.
    """
    item = find_item(store, item_id, "like")
    if named is not None and named not in item.codes:
        available = " and ".join(sorted(item.codes))
        raise InputError(f"{argument('like')} {item_id}: has no {named} code, only {available}")
    modality = named or store.choose_modality(searched)
    return Query.of_item(item, modality if modality in item.codes else min(item.codes))


def make_query(parts: Sequence[Part], outputs: Sequence[NDArray[Any] | None]) -> Query:
    """Return one query of a question's parts.

    Args:
        parts: ``n`` of them; a single stored item or code is the query itself.
        outputs: of each, ``(k,)``; None where it could not be encoded.

    >>> make_query([Part("a dog")], [None]).words
    'a dog'
    """
    if len(parts) == 1 and isinstance(parts[0].content, Query):
        return parts[0].content
    wanted = [part.content for part in parts if part.modality == "text" and part.weight > 0]
    unwanted = [part.content for part in parts if part.modality == "text" and part.weight < 0]
    words = " ".join(map(str, wanted))
    without = tuple(map(str, unwanted))
    coded = []
    rows = []
    words_coded = True
    for part, row in zip(parts, outputs, strict=True):
        if row is not None:
            coded.append(part)
            rows.append(row)
        elif part.modality == "text":
            words_coded = False
    if all(part.weight < 0 for part in coded):
        return Query(np.zeros(0, np.uint8), None, "", words, without, words_coded)
    combined = combine(np.stack(rows), [part.weight for part in coded])
    modalities = {part.modality for part in coded}
    modality = modalities.pop() if len(modalities) == 1 else ""
    return Query(pack(binarize(combined[None]))[0], combined, modality, words, without, words_coded)


def combine(outputs: NDArray[np.floating[Any]], weights: Sequence[float]) -> NDArray[np.float32]:
    """Add up the real-valued outputs of a question's parts: Σ_i w_i u_i / ‖u_i‖, whose signs are
    the code, brought to the mean length of the parts, as long ones mean more than short ones.

    Args:
        outputs: ``(n, k)``, a row a part.
        weights: ``n`` of them.

    Returns:
        ``(k,)``.

    Raises:
        InputError: nothing is left, since the parts cancel out.

    >>> combine(np.array([[3.0, 4.0], [0.0, 2.0]]), [1.0, -0.3]).tolist()
    [3.3092610836029053, 2.7577173709869385]
    """
    rows = np.asarray(outputs, np.float32)
    if len(rows) == 1:
        return np.asarray(rows[0])
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    added = np.asarray(weights, np.float32) @ (rows / norms)
    length = np.linalg.norm(added)
    if length < 1e-6 * max(map(abs, weights)):
        raise InputError(
            "the question: its parts cancel out; leave one of them out, or weigh them apart (^2)"
        )
    shares = np.abs(np.asarray(weights, np.float32))
    return np.asarray(added * (shares @ norms[:, 0] / shares.sum() / length), np.float32)


def is_unread_by(encoder: QueryEncoder | None, text: str) -> bool:
    """Return whether the encoder of a store's texts reads no language in the script of a text."""
    return _reads_sentences(encoder) and is_unread(text)


def has_unknown_words(encoder: QueryEncoder | None, text: str) -> bool:
    """Return whether an encoder knows words and not all of a question's."""
    return _reads_sentences(encoder) and not spelling().knows_all(text)


def _reads_sentences(encoder: QueryEncoder | None) -> bool:
    return getattr(encoder, "architecture", {}).get("encoder") in _OF_SENTENCES


def _correct(store: Store, text: str) -> str:
    """Return a question in which words of the store, or of the encoder ``photo``, take the place of
    unknown ones.
    """
    general = spelling()
    counts = store.word_counts()
    of_store = Spelling(counts, lambda word: word in general.words or general.known(word))
    text = of_store.correct(text) or text
    of_encoder = Spelling(general.words, lambda word: word in counts or general.known(word))
    return of_encoder.correct(text) or text
