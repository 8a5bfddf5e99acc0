"""The plan of a search, which the command line, the library and the server all follow.

`Search.of` plans the search for a question: dates and places become a filter, words become parts,
and stored items are looked up. `Search.to_encode` lists what has to be encoded. The caller encodes
it, on any thread and in any batches, and passes the outputs to `Search.answer`. A plan itself loads
and runs no model.

If the encoder does not know some of the words, `Search.corrections` plans what may be meant, which
is encoded in the same way. `Search.suggest_to` suggests it if that is sure.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import binarize, pack
from channelhash.data.records import VECTOR
from channelhash.errors import InputError, argument
from channelhash.models.description import QueryEncoder
from channelhash.models.photo import LANGUAGES, is_unread, known_words, word_likelihood
from channelhash.search.browsing import Catalogue
from channelhash.search.checks import check_vectors
from channelhash.search.filters import Condition, conditions_of, passes
from channelhash.search.hits import Hits, answer, list_hits
from channelhash.search.question import (
    WORDS,
    ImageSource,
    Part,
    Query,
    Question,
    SearchOptions,
    VectorOf,
    check_parts,
    find_item,
    leave_plain,
    narrow,
    parse_question,
)
from channelhash.search.store import Item, Store
from channelhash.text.questions import QuestionText
from channelhash.text.spelling import (
    Spelling,
    WordList,
    frequent_words,
    likely_languages,
    word_list,
)

#: Modality -> real-valued outputs ``(k,)`` of each item of `Search.to_encode`. A modality that the
#: encoder does not encode is absent.
Outputs = Mapping[str, Sequence[NDArray[Any]] | NDArray[Any]]
#: Returns a page of the items that pass a filter, newest first.
Browse = Callable[[str | None, slice], list[Item]]
#: Encoders of sentences in the languages that `channelhash.models.photo` knows.
_SENTENCE_ENCODERS = ("photo", "photo-backbones")
#: How much surer than the question itself, and than any other, a suggestion is.
_SURE = 2.0
#: What the logarithm of how the doubt in the best answer falls adds to the sureness of words.
_EVIDENCE = 3.0
#: Doubt that no answer is without.
_LEAST_DOUBT = 0.003
#: Keys whose values each belong to one item, so that nobody wants a list of them.
_ITS_OWN = ("id", "image", "text", "ocr", "taken", "date")
#: Values that a remark on a filter without answers names.
_SHOWN_VALUES = 8


@dataclass(frozen=True)
class Search:
    """A search of one store.

    Attributes:
        store: the store.
        question: the question; the dates and places found in its text are its ``phrases`` instead.
        options: the options, whose filter includes these dates and places.
        words: the parts of the text.
        others: the other parts.
        sureness: of a corrected question, the logarithm of how much likelier its words are.

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
    sureness: float = 0.0

    @classmethod
    def of(cls, store: Store, question: Question, options: SearchOptions | None = None) -> Self:
        """Plan the search for a question.

        Raises:
            InputError: the question cannot be answered, an item is unknown or lacks the code that
                is named, or the filter is wrong.
        """
        options = options or SearchOptions()
        question.check()
        narrowed, where = narrow(store, question, options.where)
        return cls._of_narrowed(store, narrowed, replace(options, where=where))

    @classmethod
    def of_plain(cls, store: Store, question: Question, options: SearchOptions) -> Self | None:
        """Plan the search for a question without dates and places, as `of` does; return None for
        others, as it takes long to look up the items that they are narrowed to.
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
        """All parts; empty if the question has only dates and places."""
        return [*self.words, *self.others]

    @property
    def to_encode(self) -> dict[str, list[str | ImageSource | NDArray[Any]]]:
        """Modality -> what has to be encoded; empty for a search by words alone."""
        items: dict[str, list[str | ImageSource | NDArray[Any]]] = {}
        if self.options.by == WORDS:
            return items
        for part in self.parts:
            content = part.content
            if isinstance(content, VectorOf):
                items.setdefault(part.modality, []).append(content.values)
            elif not isinstance(content, Query):
                items.setdefault(part.modality, []).append(content)
        return items

    def answer(
        self,
        outputs: Outputs | None = None,
        encoder: QueryEncoder | None = None,
        browse: Browse | None = None,
    ) -> Hits:
        """Search with the outputs of what was encoded.

        Args:
            outputs: the outputs of `to_encode`. Texts without outputs are searched by their words.
            encoder: the encoder that made them. It is asked which scripts it reads and does not
                run.
            browse: reads the items if the question has only dates and places. By default, all
                items of the store are listed to find them.

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
        hits.note = hits.note or self._remark(hits, encoder)
        return hits

    def _remark(self, hits: Hits, encoder: QueryEncoder | None) -> str:
        """Return what else there is to say of the question, or of a filter without answers."""
        if self.question.text and is_unread_by(encoder, self.question.text):
            return f"the encoder reads no language in this script; ask in one of {LANGUAGES}"
        return (
            "" if hits or not self.options.where else _name_values(self.store, self.options.where)
        )

    def corrections(self, encoder: QueryEncoder | None) -> list[Self]:
        """Plan the likeliest questions with other words of the store or the encoder in place of
        unknown ones; none if all words are known.
        """
        text = self.question.text
        if not text or not has_unknown_words(encoder, text):
            return []
        plans = []
        for sureness, corrected in _spelling(self.store, text).corrections(text):
            words = parse_question(corrected)
            check_parts([*words, *self.others])
            question = replace(self.question, text=corrected)
            plans.append(replace(self, question=question, words=words, sureness=sureness))
        return plans

    def suggest_to(self, hits: Hits, corrected: Sequence[tuple[Self, Outputs]]) -> None:
        """Suggest one of some corrected questions in the hits of this one, if their words, and the
        doubt in their best answers beside that in the hits', make sure that it was meant.
        """
        found = [
            (plan._sureness_beside(hits, outputs), plan.question) for plan, outputs in corrected
        ]
        found.sort(key=lambda pair: -pair[0])
        others = [0.0, *(sureness for sureness, _ in found[1:])]
        if found and found[0][0] - max(others) > _SURE:
            meant = found[0][1]
            hits.suggestion = meant.said(meant.text or "")

    def _sureness_beside(self, hits: Hits, outputs: Outputs) -> float:
        """Return how much likelier than a question with some hits it is that this one was meant."""
        options = replace(self.options, k=1, limit=1, offset=0)
        best_fit = answer(self.store, self._query(outputs), options).best_fit
        gain = math.log((1 - hits.best_fit + _LEAST_DOUBT) / (1 - best_fit + _LEAST_DOUBT))
        return self.sureness + _EVIDENCE * gain

    def _query(self, outputs: Outputs) -> Query:
        n_bits = self.store.n_bits or 0
        stage = self.store.stage
        n_outputs = n_bits if stage is None else stage.n_outputs
        remaining = {modality: iter(rows) for modality, rows in outputs.items()}
        rows: list[NDArray[Any] | None] = []
        for part in self.parts:
            if isinstance(part.content, Query):
                rows.append(part.content.as_outputs(n_bits, n_outputs))
            else:
                rows.append(next(remaining[part.modality]) if part.modality in outputs else None)
        return make_query(self.parts, rows, n_bits)

    def _list_newest(self, browse: Browse | None) -> Hits:
        """Return the items of a question that has only dates and places, newest first."""
        page = slice(self.options.offset, self.options.offset + self.options.k)
        items = (browse or self._browse)(self.options.where, page)
        return list_hits(self.store, items, self.options)

    def _browse(self, where: str | None, page: slice) -> list[Item]:
        catalogue = Catalogue.of((item.id, item.metadata) for item in self.store.listed())
        newest = catalogue.places("newest", among=set(self.store.ids(where)))
        ids = [catalogue.ids[place] for place in newest[page]]
        return self.store.get(ids, missing_ok=True)


def _other_parts(store: Store, question: Question, searched: str | None) -> list[Part]:
    """Return the parts of a question that are not in its text."""
    parts: list[Part] = []
    if question.image is not None:
        parts.append(Part(question.image))
    if question.like is not None:
        parts.append(Part(_query_of_item(store, question.like, question.like_modality, searched)))
    if question.code is not None:
        parts.append(Part(Query(question.code)))
    if question.vector is not None:
        [vector] = check_vectors(np.asarray(question.vector)[None], argument("vector"))
        parts.append(Part(VectorOf(choose_rows(store, searched), vector)))
    parts += [Part(unwanted, -1.0) for unwanted in question.minus]
    for item_id in question.minus_like:
        item = find_item(store, item_id, "minus_like")
        parts.append(Part(Query.of_item(item, min(item.codes), store.stage), -1.0))
    return parts


def choose_rows(store: Store, searched: str | None) -> str:
    """Return the modality that a vector which asks is encoded as: that of vectors if the store has
    them, else the one that is searched.
    """
    return VECTOR if VECTOR in store.modalities else store.choose_modality(searched)


def _query_of_item(store: Store, item_id: str, named: str | None, searched: str | None) -> Query:
    """Return an item as a query by its code of the named modality.

    If none is named, use its code of the searched modality if it has one, else another code.
    """
    item = find_item(store, item_id, "like")
    if named is not None and named not in item.codes:
        available = " and ".join(sorted(item.codes))
        raise InputError(f"{argument('like')} {item_id}: has no {named} code, only {available}")
    modality = named or store.choose_modality(searched)
    coded = modality if modality in item.codes else min(item.codes)
    return Query.of_item(item, coded, store.stage)


def make_query(parts: Sequence[Part], outputs: Sequence[NDArray[Any] | None], n_bits: int) -> Query:
    """Combine the parts of a question into one query.

    Args:
        parts: ``n`` parts; a single stored item or code is the query itself.
        outputs: the outputs of each part; None for a text that was not encoded.
        n_bits: code length: the outputs of the code come first.

    >>> make_query([Part("a dog")], [None], n_bits=8).words
    'a dog'
    """
    if len(parts) == 1 and isinstance(parts[0].content, Query):
        return parts[0].content
    words = _query_by_words(parts, outputs)
    rows = [row for row in outputs if row is not None]
    coded = [part for part, row in zip(parts, outputs, strict=True) if row is not None]
    weights = [part.weight for part in coded]
    if max(weights, default=0.0) <= 0:
        return words
    combined = _combine_outputs(np.stack(rows), weights, n_bits)
    modalities = {part.modality for part in coded}
    modality = modalities.pop() if len(modalities) == 1 else ""
    code = pack(binarize(combined[None, :n_bits]))[0]
    return replace(words, code=code, outputs=combined, modality=modality)


def _combine_outputs(
    outputs: NDArray[Any], weights: Sequence[float], n_bits: int
) -> NDArray[np.float32]:
    """Combine the outputs of codes, and the vectors that follow them where there are any."""
    combined = combine(outputs[:, :n_bits], weights)
    vectors = outputs[:, n_bits:]
    return np.concatenate([combined, combine(vectors, weights)]) if vectors.any() else combined


def _query_by_words(parts: Sequence[Part], outputs: Sequence[NDArray[Any] | None]) -> Query:
    """Return the query by the words of a question, still without a code."""
    wanted: list[str] = []
    unwanted: list[str] = []
    all_coded = True
    for part, row in zip(parts, outputs, strict=True):
        if isinstance(part.content, str):
            (wanted if part.weight > 0 else unwanted).append(part.content)
            all_coded = all_coded and row is not None
    no_code = np.zeros(0, np.uint8)
    return Query(no_code, words=" ".join(wanted), without=tuple(unwanted), words_coded=all_coded)


def combine(outputs: NDArray[np.floating[Any]], weights: Sequence[float]) -> NDArray[np.float32]:
    """Combine the real-valued outputs u_i of a question's parts: Σ_i w_i u_i / ‖u_i‖.

    The sum is scaled to the weighted mean length of the parts, since the length says how much a
    part means. Its signs are the code.

    Args:
        outputs: ``(n, k)``, one row per part.
        weights: ``n`` weights.

    Returns:
        ``(k,)``.

    Raises:
        InputError: the parts cancel out.

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


def _name_values(store: Store, where: str) -> str:
    """Return a line about the first condition that no item passes, with the values that there are:
    the nearest first, then the most frequent. It is empty if there is none.
    """
    conditions = conditions_of(store.check_filter(where))
    return next(filter(None, (_values_beside(store, each) for each in conditions)), "")


def _values_beside(store: Store, condition: Condition) -> str:
    """Return the line of `_name_values` about one condition; empty if some item passes it."""
    key, test, wanted, negated = condition
    if negated or key in _ITS_OWN or test not in ("=", "IN", "LIKE"):
        return ""
    counts = store.label_counts() if key == "label" else store.value_counts(key)
    passing = (name for name in counts if passes(condition, "", {key: name, "labels": [name]}))
    if not counts or next(passing, None) is not None:
        return ""
    named = " or ".join(map(repr, wanted))
    near = chain.from_iterable(get_close_matches(str(value), counts) for value in wanted)
    there = _counted(dict.fromkeys([*near, *counts]), counts)
    return f"no item has {key} {named}; there are {there}"


def _counted(values: Iterable[str], counts: Mapping[str, int]) -> str:
    """Return the first values with their counts."""
    shown = [f"{value} ({counts[value]:,})" for value in values]
    rest = ", …" if len(shown) > _SHOWN_VALUES else ""
    return ", ".join(shown[:_SHOWN_VALUES]) + rest


def is_unread_by(encoder: QueryEncoder | None, text: str) -> bool:
    """Return whether an encoder of sentences reads no language in the script of a text."""
    return _reads_sentences(encoder) and is_unread(text)


def has_unknown_words(encoder: QueryEncoder | None, text: str) -> bool:
    """Return whether a text has words that an encoder of sentences does not know."""
    if not _reads_sentences(encoder):
        return False
    return not Spelling([_encoder_words(text)], word_likelihood).knows_all(text)


def _encoder_words(text: str) -> WordList:
    return known_words(QuestionText(text).is_english)


def _reads_sentences(encoder: QueryEncoder | None) -> bool:
    return getattr(encoder, "architecture", {}).get("encoder") in _SENTENCE_ENCODERS


def _spelling(store: Store, text: str) -> Spelling:
    """Return the words that may be meant in a text: the store's, and those of its languages, or if
    a single word does not show its language, the frequent ones of all languages.
    """
    counts = store.word_counts()
    total = sum(counts.values())
    own = WordList({word: math.log(count / total) for word, count in counts.items()})
    known = _encoder_words(text)
    lists = [own, *map(word_list, likely_languages(text))]
    if len(lists) == 1 and len(text.split()) == 1:
        lists += [known, frequent_words()]
    return Spelling(lists, word_likelihood, known=[known])
