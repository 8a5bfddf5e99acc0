"""Questions to a store, the queries that are made of them, and the options of a search.

The text of a question says what is wanted, how much, and what is not: ``a beach "two dogs"^2
-people``. Plain words make one phrase, which is encoded as a whole. Phrases in double quotes, words
with a weight (``^2``) and words with a minus in front are parts of their own. Hyphens and quotes
inside words, and lone dashes, are ordinary characters.

Dates and places in the text become filters: "dogs on a beach in summer 2019", "last May in Porto",
"not before 2015". The places are those of the store's items. A phrase stays part of the text if it
is not understood completely or would leave no item.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, unpack
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, argument
from channelhash.search.items import Item
from channelhash.search.store import Store
from channelhash.text.phrases import Phrase, find_phrases, says_nothing
from channelhash.text.places import PlaceNames

ImageSource = Path | Image.Image
#: The ranking by words, among those by modalities; also a value of `SearchOptions.by`.
WORDS = "words"
#: Most parts of a question.
_MAX_PARTS = 32
#: Largest weight of a part.
_MAX_WEIGHT = 100.0
#: A phrase in quotes with its minus and weight, else a token up to the next space.
_TOKEN = re.compile(r'(-?)"([^"]*)"(?:\^(\d+(?:\.\d*)?))?|(\S+)')
#: A token with its minus and weight.
_WORD = re.compile(r"(-(?=[^-]))?(.+?)(?:\^(\d+(?:\.\d*)?))?", re.DOTALL)
#: Option that is a number -> the least value that it takes, and what it counts.
_LEAST = {
    "k": (1, "answer"),
    "radius": (0, "bits"),
    "limit": (1, "answer"),
    "offset": (0, "answers"),
    "collapse": (0, "bits"),
}


class UnknownItemError(InputError):
    """A question names an item that the store does not have.

    Attributes:
        item_id: the id.

    >>> UnknownItemError("like a: photos.store has no item with this id", "a").item_id
    'a'
    """

    def __init__(self, line: str, item_id: str) -> None:
        super().__init__(line)
        self.item_id = item_id


@dataclass(frozen=True)
class Question:
    """What is asked: words, an image, a vector, a stored item or a code, or several of them.

    Attributes:
        text: words that are wanted.
        image: an image or its file.
        like: id of a stored item.
        like_modality: modality of the item's code to search with. By default, the one that is
            searched if the item has it, else another.
        code: ``(ceil(n_bits / 8),)`` packed code.
        vector: ``(d,)``, of the encoder whose vectors the store was made of.
        minus: words and images that are not wanted.
        minus_like: ids of stored items that are not wanted.
        phrases: the dates and places that `narrow` took out of the text.

    >>> Question("two dgos", phrases=(Phrase("date", 9, "in 2019", "2019", ""),)).said("two dogs")
    'two dogs in 2019'
    """

    text: str | None = None
    image: ImageSource | None = None
    like: str | None = None
    like_modality: str | None = None
    code: PackedCodes | None = None
    vector: NDArray[Any] | None = None
    minus: Sequence[str | ImageSource] = ()
    minus_like: Sequence[str] = ()
    phrases: tuple[Phrase, ...] = ()

    def check(self) -> None:
        """Raise `InputError` if nothing is asked for, or some words are empty."""
        asked = (self.text, self.image, self.like, self.code, self.vector)
        if all(part is None for part in asked):
            raise InputError(
                f"search: say what to search for: words, {argument('image')}, "
                f"{argument('like')} or {argument('vector')}"
            )
        if self.text is not None and not self.text.strip():
            raise InputError(f"{argument('text')}: is empty; give some words")
        if any(isinstance(unwanted, str) and not unwanted.strip() for unwanted in self.minus):
            raise InputError(f"{argument('minus')}: is empty; give some words, or leave it out")

    @property
    def is_item_alone(self) -> bool:
        """Whether the question is a stored item and nothing else."""
        if self.like is None or self.minus or self.minus_like:
            return False
        others = (self.text, self.image, self.code, self.vector)
        return all(part is None for part in others)

    def said(self, text: str) -> str:
        """Return a text together with the dates and places of this question."""
        return " ".join([text, *(phrase.words for phrase in self.phrases)])


@dataclass(frozen=True)
class Query:
    """A query to a store.

    Attributes:
        code: ``(ceil(n_bits / 8),)`` packed code; of length 0 if there are only words.
        outputs: real-valued outputs of the model: the ``n_bits`` whose signs are the code, and the
            numbers of the vector that projections keep if that follows
            (`channelhash.codes.stage`); None if only the bits are known.
        modality: modality of the code, empty if unknown.
        words: words to search for, see `Store.search_words`.
        without: phrases whose items `Store.search_words` leaves out.
        words_coded: whether all texts of the question were encoded, so that the code stands for
            them.

    >>> Query(np.array([7], np.uint8)).outputs is None
    True
    """

    code: PackedCodes
    outputs: NDArray[np.float32] | None = None
    modality: str = ""
    words: str = ""
    without: tuple[str, ...] = ()
    words_coded: bool = True

    @classmethod
    def of_item(cls, item: Item, modality: str, stage: Stage | None = None) -> "Query":
        """Return an item as a query by its code of a modality, and by the vector of its projection,
        which a stage reads.

        >>> Query.of_item(Item("b", {"image": np.array([7], np.uint8)}), "image").modality
        'image'
        """
        code = item.codes[modality]
        projection = item.projections.get(modality)
        if projection is None or stage is None:
            return cls(code, None, modality)
        return cls(code, stage.outputs(modality, code[None], projection[None])[0], modality)

    def as_outputs(self, n_bits: int, n_outputs: int) -> NDArray[np.float32]:
        """Return outputs ``(n_outputs,)``; 1, -1 and an empty vector if only the bits are known.

        >>> Query(np.array([0b10100000], np.uint8)).as_outputs(n_bits=3, n_outputs=4).tolist()
        [1.0, -1.0, 1.0, 0.0]
        """
        if self.outputs is not None:
            return self.outputs
        outputs = np.zeros(n_outputs, np.float32)
        outputs[:n_bits] = np.where(unpack(self.code[None], n_bits)[0], 1, -1)
        return outputs


@dataclass(frozen=True)
class SearchOptions:
    """Which answers a search returns.

    Attributes:
        k: number of answers.
        radius: return all items within this many bits, inclusive, instead of ``k``.
        limit: with ``radius``, the largest number of answers.
        modality: modality to search; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        collapse: fold an answer into an earlier one within this many bits if their images are
            alike, too, see `Hit.duplicates`. True chooses the number of bits; False folds nothing.
            None means True for a search of images whose files the store knows, unless ``radius`` is
            given.
        by: what `answer` searches: the codes of a modality, such as ``"image"`` or ``"text"``,
            ``"words"``, or ``"all"`` that the store has.
        offset: number of answers to skip. A page is a slice of one order, which is the same for
            every ``k``.
        leave_out: id of an item to leave out, such as the one that is searched with. If answers are
            folded, its near-duplicates are left out, too, see `Hits.alike`.
        fitting: leave out answers that are unlikely to fit, where that is known, see `Hit.fits`.
        regroup: what folds images once more, given the store, the answers, their codes and place ->
            places that are folded into it: `channelhash.duplicates.regroup` puts what would be kept
            in front.

    Raises:
        InputError: a number is out of range.

    >>> SearchOptions(k=5, where="label = 'dog'").radius is None
    True
    """

    k: int = 10
    radius: int | None = None
    limit: int | None = None
    modality: str | None = None
    where: str | None = None
    collapse: int | bool | None = None
    by: str | None = None
    offset: int = 0
    leave_out: str | None = None
    fitting: bool = False
    regroup: Callable[..., dict[int, list[int]]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for option, (least, unit) in _LEAST.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise InputError(f"{argument(option)} {value}: takes at least {least} {unit}")

    @property
    def count(self) -> int | None:
        """The largest number of answers; None for all within a radius.

        >>> SearchOptions(k=5, radius=3).count is None
        True
        """
        return self.k if self.radius is None else self.limit


class VectorOf(NamedTuple):
    """A vector that asks, ``(d,)``, and the modality that it is encoded as."""

    modality: str
    values: NDArray[np.float32]


class Part(NamedTuple):
    """A part of a question.

    Attributes:
        content: words, an image or its file, a vector; a stored item or a code as a query.
        weight: how much the part counts; below 0 if it is not wanted.

    >>> Part("people", -1.0).weight
    -1.0
    """

    content: "str | ImageSource | VectorOf | Query"
    weight: float = 1.0

    @property
    def modality(self) -> str:
        """The modality that encodes the part; empty for a query, which has a code."""
        if isinstance(self.content, Query):
            return ""
        if isinstance(self.content, VectorOf):
            return self.content.modality
        return "text" if isinstance(self.content, str) else "image"


def parse_question(text: str) -> list[Part]:
    """Split the text of a question into its parts: plain words first, then the others in order.

    Raises:
        InputError: there are no words, a quote is not closed, a phrase is empty, a weight is out of
            range, or there are too many parts.

    >>> [(part.content, part.weight) for part in parse_question('a beach "two dogs"^2 -people')]
    [('a beach', 1.0), ('two dogs', 2.0), ('people', -1.0)]
    >>> parse_question("a well-lit room - 5\\" high")[0].content
    'a well-lit room - 5" high'
    """
    plain: list[str] = []
    parts: list[Part] = []
    for match in _tokens(text):
        minus, words, weight, token = match.groups("")
        if token:
            minus, words, weight = _split_token(token)
        if token and not minus and not weight:
            plain.append(words)
        else:
            parts.append(_make_part(minus, words.strip(), weight))
    if plain:
        parts.insert(0, Part(" ".join(plain)))
    return check_parts(parts)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text.replace("“", '"').replace("”", '"'))


def _split_token(token: str) -> tuple[str | Any, ...]:
    """Split a token without quotes into its minus, word and weight."""
    if token.startswith(('"', '-"')):
        raise InputError(f"{token}: a quote is opened and not closed; close it, or leave it out")
    match = _WORD.fullmatch(token)
    return match.groups("") if match else ("", token, "")


def _make_part(minus: str, words: str, weight: str) -> Part:
    if not words:
        raise InputError(
            '"": a phrase in quotes is empty; give it some words, or leave the quotes out'
        )
    counts = float(weight or 1)
    if not 0 < counts <= _MAX_WEIGHT:
        raise InputError(f"^{weight[:20]}: a weight is above 0 and at most {_MAX_WEIGHT:g}")
    return Part(words, -counts if minus else counts)


def check_parts(parts: list[Part]) -> list[Part]:
    """Return the parts of a question; raise `InputError` if they cannot be answered.

    >>> check_parts([Part("people", -1)])
    Traceback (most recent call last):
    channelhash.errors.InputError: -people: says only what is not wanted; add what is
    """
    if not parts:
        raise InputError("the question is empty; give some words")
    if len(parts) > _MAX_PARTS:
        raise InputError(
            f"the question has {len(parts)} parts; at most {_MAX_PARTS} are taken together"
        )
    if all(part.weight < 0 for part in parts):
        unwanted = parts[0].content if isinstance(parts[0].content, str) else "the question"
        raise InputError(f"-{unwanted}: says only what is not wanted; add what is")
    return parts


def narrow(
    store: Store, question: Question, where: str | None = None, today: date | None = None
) -> tuple[Question, str | None]:
    """Take the dates and places out of a question's text and make a filter of them.

    The last phrase is taken first. A phrase that leaves no item, of those that pass ``where`` and
    the phrases taken before, stays in the text.

    Returns:
        The question with the rest of its text, and the filter of the phrases and ``where``.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8)
    >>> narrow(open_codes(codes), Question("dogs in 2019"))[0].text  # nothing has a date
    'dogs in 2019'
    """
    if where is not None:
        # Checked alone: joined with the filters of phrases, unbalanced parentheses may balance.
        store.check_filter(where)
    if question.text is None:
        return question, where
    question = replace(question, text=unicodedata.normalize("NFC", question.text))
    narrowed, narrower = _take_phrases(store, question, where, today or date.today())
    rest = narrowed.text or ""
    if rest and all(token[0].startswith("-") for token in _tokens(rest)):
        return question, where  # the rest must say what is wanted
    return narrowed, narrower


def _take_phrases(
    store: Store, question: Question, where: str | None, today: date
) -> tuple[Question, str | None]:
    """Take out the phrases that leave some item; return the question and the filter as `narrow`."""
    rest = question.text or ""
    phrases: list[Phrase] = []
    for phrase in reversed(find_phrases(rest, today, _places_of(store))):
        narrower = _narrower_filter(store, phrase, where)
        if narrower and store.ids(narrower):
            where = narrower
            phrases.insert(0, phrase)
            rest = _cut_out(phrase, rest)
    rest = "" if phrases and says_nothing(rest) else rest.strip()
    return replace(question, text=rest, phrases=tuple(phrases)), where


def leave_plain(store: Store, question: Question) -> Question | None:
    """Return a question without dates and places as `narrow` does; None for others.

    No item is read.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> leave_plain(store, Question("a dog ")).text, leave_plain(store, Question("dogs in 2019"))
    ('a dog', None)
    """
    text = unicodedata.normalize("NFC", question.text or "")
    if find_phrases(text, date.today(), _places_of(store)):
        return None
    return replace(question, text=text.strip())


def _narrower_filter(store: Store, phrase: Phrase, where: str | None) -> str:
    """Return the filter of a phrase and ``where`` together; empty for a date if no item has one."""
    test = store.date_filter(phrase.test) if phrase.kind == "date" else phrase.test
    if not test:
        return ""
    return f"({test}) AND ({where})" if where else f"({test})"


def _cut_out(phrase: Phrase, text: str) -> str:
    """Cut a phrase and the punctuation around it out of a text."""
    before = text[: phrase.start].rstrip(" ,;")
    after = text[phrase.start + len(phrase.words) :].lstrip(" ,;")
    return f"{before} {after}"


#: Store -> its version and its place names, of which 100,000 take a second to prepare.
_PLACES: WeakKeyDictionary[Store, tuple[int, PlaceNames]] = WeakKeyDictionary()


def _places_of(store: Store) -> PlaceNames:
    """Return the names of the places of a store's items; they are read again after a change."""
    version = store.version
    kept = _PLACES.get(store)
    if kept is not None and kept[0] == version:
        return kept[1]
    values = []
    for key in ("place", "country"):
        values += [(key, value) for value in store.value_counts(key)]
    same = kept is not None and kept[1].values == tuple(values)
    names = kept[1] if kept is not None and same else PlaceNames(values)
    _PLACES[store] = version, names
    return names


def query_like(
    store: Store, item_id: str, modality: str | None = None, by: str | None = None
) -> Query:
    """Return an item of a store as a query, see `Query.of_item`.

    Args:
        store: the store that has the item.
        item_id: its id.
        modality: modality to be searched, as in `search_hits`.
        by: modality of the item's code to search with; by default, the one that is searched.

    Raises:
        InputError: the id is unknown, or the item has no such code.

    >>> import channelhash as ch, numpy as np
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8)
    >>> query_like(open_codes(codes), "b").code.tolist()
    [7]
    """
    query_modality = by or store.choose_modality(modality)
    item = coded_item(store, item_id, query_modality)
    return Query.of_item(item, query_modality, store.stage)


def coded_item(store: Store, item_id: str, modality: str) -> Item:
    """Return an item that must have a code of a modality; errors as in `query_like`."""
    item = find_item(store, item_id, "like")
    if modality not in item.codes:
        available = " and ".join(sorted(item.codes))
        raise InputError(
            f"{argument('like')} {item_id}: has no {modality} code; name one that it has, "
            f"{argument('by')} {available}"
        )
    return item


def find_item(store: Store, item_id: str, name: str) -> Item:
    """Return a stored item; `UnknownItemError` names the argument that gave its id."""
    # A shell may complete a name in the decomposed form.
    for written in (item_id, unicodedata.normalize("NFC", item_id)):
        items = store.get([written], missing_ok=True)
        if items:
            return items[0]
    line = f"{argument(name)} {item_id}: {store.address} has no item with this id"
    raise UnknownItemError(line, item_id)
