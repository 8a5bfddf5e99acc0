"""Search a store with words, an image or one of its items.

`encode_queries` and `query_like` make queries, `search_hits` finds the items nearest to one.
`search_store` does both for a single query; code that answers many loads the model once with
`load_encoder`.

In the language of questions, ``a beach "two dogs"^2 -people`` says what is wanted, how much, and
what is not. Dates and places in it become filters: "dogs on a beach in summer 2019", "last May in
Porto", "not before 2015". Places are those of the store's items; words stay words where not all of
what they say is understood, and where no item would be found.

Words make one phrase, which is encoded as a whole. Phrases in double quotes, words with a weight
(``^2``) and words with a minus in front are parts of their own. Hyphens and quotes inside words,
and lone dashes, are characters.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import binarize, pack
from channelhash.errors import InputError, argument
from channelhash.models.description import Model, QueryEncoder
from channelhash.models.exported import DESCRIPTION, FOLDER, ExportedModel
from channelhash.models.photo import LANGUAGES, is_unread, spelling
from channelhash.search.browsing import Catalogue
from channelhash.search.hits import Hits, answer, list_hits
from channelhash.search.question import Query, SearchOptions
from channelhash.search.store import Item, Store
from channelhash.text.phrases import Phrase, find_phrases, says_nothing
from channelhash.text.places import PlaceNames
from channelhash.text.words import Spelling
from channelhash.utils.optional_imports import naming_extra

_Picture = Path | Image.Image
#: Most parts of a question.
_MAX_PARTS = 32
#: Largest weight of a part.
_MAX_WEIGHT = 100.0

_TOKEN = re.compile(r'(-?)"([^"]*)"(?:\^(\d+(?:\.\d*)?))?|(\S+)')
_WORD = re.compile(r"(-(?=[^-]))?(.+?)(?:\^(\d+(?:\.\d*)?))?", re.DOTALL)


class Part(NamedTuple):
    """A part of a question.

    Attributes:
        content: words; in a question that is not of words alone, perhaps an image or outputs of a
            stored item.
        weight: how much it counts, below 0 if it is not wanted.

    >>> Part("people", -1.0).weight
    -1.0
    """

    content: Any
    weight: float = 1.0

    @property
    def modality(self) -> str | None:
        """The modality to encode the part as; None for the outputs of a stored item."""
        if isinstance(self.content, np.ndarray):
            return None
        return "text" if isinstance(self.content, str) else "image"


def parse_question(text: str) -> list[Part]:
    """Read words, phrases in quotes, weights and minuses.

    Raises:
        InputError: there are no words, a quote is not closed, a phrase is empty, a weight is out of
            range, or there are too many parts.

    >>> [(part.content, part.weight) for part in parse_question('a beach "two dogs"^2 -people')]
    [('a beach', 1.0), ('two dogs', 2.0), ('people', -1.0)]
    >>> parse_question("a well-lit room - 5\\" high")[0].content
    'a well-lit room - 5" high'
    """
    phrase: list[str] = []
    parts: list[Part] = []
    for minus, quoted, weight, token in (match.groups("") for match in _tokens(text)):
        words = quoted.strip()
        if token:
            if token.startswith(('"', '-"')):
                raise InputError(
                    f"{token}: a quote is opened and not closed; close it, or leave it out"
                )
            match = _WORD.fullmatch(token)
            minus, words, weight = match.groups("") if match else ("", token, "")
            if not minus and not weight:
                phrase.append(words)
                continue
        if not words:
            raise InputError(
                '"": a phrase in quotes is empty; give it some words, or leave the quotes out'
            )
        if not 0 < float(weight or 1) <= _MAX_WEIGHT:
            raise InputError(f"^{weight[:20]}: a weight is above 0 and at most {_MAX_WEIGHT:g}")
        parts.append(Part(words, float(weight or 1) * (-1 if minus else 1)))
    if phrase:
        parts.insert(0, Part(" ".join(phrase)))
    return check_parts(parts)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text.replace("“", '"').replace("”", '"'))


def check_parts(parts: list[Part]) -> list[Part]:
    """Return the parts of a question, if they can be answered.

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


class Narrowed(NamedTuple):
    """A question without its dates and places.

    Attributes:
        text: the rest of the question, empty if nothing is left that says what photographs show.
        where: their filter, and that of what the search was narrowed to before.
        phrases: the dates and places, in their order.

    >>> Narrowed("two dgos", None, []).suggest("two dogs")
    'two dogs'
    """

    text: str
    where: str | None
    phrases: list[Phrase]

    def suggest(self, text: str) -> str:
        """Return another text with the same dates and places."""
        return " ".join([text, *(phrase.words for phrase in self.phrases)])


def narrow(
    store: Store, text: str, where: str | None = None, today: date | None = None
) -> Narrowed:
    """Take dates and places out of a question, those that items have which pass the filter
    ``where``.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8)
    >>> narrow(open_codes(codes), "dogs in 2019").text  # nothing has a date
    'dogs in 2019'
    """
    if where is not None:
        store.check_filter(where)  # alone: what is unbalanced may be balanced among the others
    text = unicodedata.normalize("NFC", text)
    rest = text
    passed = where
    phrases = list[Phrase]()
    for phrase in reversed(_phrases_of(store, text, today or date.today())):
        test = store.date_filter(phrase.test) if phrase.kind == "date" else phrase.test
        both = " AND ".join(f"({part})" for part in (test, passed) if part)
        if test and store.ids(both):
            passed = both
            phrases = [phrase, *phrases]
            rest = (
                rest[: phrase.start].rstrip(" ,;")
                + " "
                + rest[phrase.start + len(phrase.words) :].lstrip(" ,;")
            )
    rest = "" if phrases and says_nothing(rest) else rest.strip()
    if rest and all(token[0].startswith("-") for token in _tokens(rest)):
        return Narrowed(text, where, [])  # what is not wanted is no question
    return Narrowed(rest, passed, phrases)


def leave_plain(store: Store, text: str) -> Narrowed | None:
    """Return a question that names no date and no place, as `narrow` would; None for others, of
    which no item is read.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> leave_plain(store, "a dog "), leave_plain(store, "dogs in 2019")
    (Narrowed(text='a dog', where=None, phrases=[]), None)
    """
    text = unicodedata.normalize("NFC", text)
    return None if _phrases_of(store, text, date.today()) else Narrowed(text.strip(), None, [])


def _phrases_of(store: Store, text: str, today: date) -> list[Phrase]:
    """Return what a question says of dates and of the places of a store's items."""
    return find_phrases(text, today, _places_of(store))


# The names of a store's places, which take a second for 100,000, and its version then.
_PLACES: WeakKeyDictionary[Store, tuple[int, PlaceNames]] = WeakKeyDictionary()


def _places_of(store: Store) -> PlaceNames:
    """Return the names of the places of a store's items, which are kept until the store changes."""
    version = store.version
    kept = _PLACES.get(store)
    if kept is None or kept[0] != version:
        values = [(key, value) for key in ("place", "country") for value in store.value_counts(key)]
        names = kept[1] if kept and kept[1].values == tuple(values) else PlaceNames(values)
        kept = _PLACES[store] = version, names
    return kept[1]


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


def load_encoder(
    store: Store, model: Path | Model | None = None, trust_code: bool = False
) -> Model:
    """Load the model that encodes queries to a store.

    Args:
        store: the store to search.
        model: a run or saved model, or one that is loaded; the store's own if None.
        trust_code: consent to run code of this machine that the model's folder names
            (``python:module:NAME``).

    Raises:
        InputError: the store has no model and none is given, it cannot be loaded, it names code and
            ``trust_code`` is false, or another model made the codes.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is None:
        remedy = f"to encode a question, add {argument('model')} with the run that made these codes"
        problem = f"the store holds no model, and only words ({argument('by')} words) need none"
        raise InputError(f"{store.address}: {remedy}; {problem}")
    with naming_extra():
        from channelhash.models import load_model  # seconds to load, which words alone do not need

        encoder = load_model(folder, trust_code, device="auto")
    check_model(store, encoder, folder)
    return encoder


def load_query_encoder(
    store: Store,
    model: "Path | QueryEncoder | None" = None,
    modalities: Collection[str] | None = None,
) -> QueryEncoder:
    """Load what encodes queries to a store: the model's exported encoders where they are at hand,
    else the model.

    At hand are those in the subfolder ``onnx`` of the run or the store, where `channelhash export`
    writes them, of the model that made the store's codes.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is not None and (Path(folder) / DESCRIPTION).exists():
        encoder = ExportedModel(Path(folder))
        check_model(store, encoder, folder)
        if not encoder.is_complete:
            encoder.check_encodes(modalities or ())
        return encoder
    if folder is not None and (Path(folder) / FOLDER / DESCRIPTION).exists():
        encoder = ExportedModel(Path(folder) / FOLDER)
        read = encoder.modalities if encoder.is_complete else modalities
        enough = read is not None and encoder.reads(read)
        # What a run exported before it was trained further is passed over.
        if enough and store.model and encoder.comparable(store.model):
            return encoder
    return load_encoder(store, model)


def check_model(store: Store, encoder: QueryEncoder, folder: str | Path) -> None:
    """Raise `InputError` unless the codes of a store can be compared with those of an encoder,
    which has a name.
    """
    if store.model and not encoder.comparable(store.model):
        problem = (
            f"these codes were made by another model than {folder}, and codes of two models "
            "cannot be compared"
        )
        raise InputError(
            f"{store.address}: {problem}; name the model that made them, or encode them again"
        )


def encode_items(encoder: QueryEncoder, modality: str, items: Any) -> NDArray[np.float32]:
    """Encode ``n`` raw items of one modality to real-valued outputs ``(n, k)``; errors as in
    `HashModel.outputs`.
    """
    return np.asarray(encoder.outputs(modality, items), np.float32)


def encode_queries(
    encoder: QueryEncoder, modality: str, items: Sequence[str | Path | Image.Image]
) -> list[Query]:
    """Encode texts or images as queries, in one batch.

    Args:
        encoder: the store's model, see `load_encoder`.
        modality: ``"text"`` or ``"image"``: what ``items`` are.
        items: strings; or image files and opened images.

    Raises:
        InputError: an image cannot be read, or the model does not encode this modality.
    """
    rows = encode_items(encoder, modality, items)
    return [
        Query(code, row, modality) for code, row in zip(pack(binarize(rows)), rows, strict=True)
    ]


def query_like(
    store: Store, item_id: str, modality: str | None = None, by: str | None = None
) -> Query:
    """Return an item of the store as a query; only its bits are known, unless the store keeps
    projections.

    Args:
        store: the store that has the item.
        item_id: its id.
        modality: modality to be searched, as in `search_hits`.
        by: modality of the item's code to search with; if None, the one that is searched.

    Raises:
        InputError: the id is unknown, or the item has no such code.

    >>> import channelhash as ch, numpy as np
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> query_like(store, "b").code.tolist()
    [7]
    """
    query_modality = by or store.choose_modality(modality)
    return Query.of_item(coded_item(store, item_id, query_modality), query_modality)


def coded_item(store: Store, item_id: str, modality: str) -> Item:
    """Return an item of the store that has a code of a modality; errors as in `query_like`."""
    item = _item(store, item_id, "like")
    if modality not in item.codes:
        available = " and ".join(sorted(item.codes))
        raise InputError(
            f"{argument('like')} {item_id}: has no {modality} code; name one that it has, "
            f"{argument('by')} {available}"
        )
    return item


def _other_parts(
    store: Store,
    image: _Picture | None,
    like: str | None,
    minus: Sequence[str | _Picture],
    minus_like: Sequence[str],
) -> list[Part]:
    """Return the parts of a question beside its words, as of `search_store`; stored items as
    real-valued outputs.
    """
    parts = [] if image is None else [Part(image)]
    if like is not None:
        parts.append(Part(_stored_outputs(store, like, "like")))
    if any(isinstance(unwanted, str) and not unwanted.strip() for unwanted in minus):
        raise InputError(f"{argument('minus')}: is empty; give some words, or leave it out")
    parts += [Part(unwanted, -1.0) for unwanted in minus]
    parts += [Part(_stored_outputs(store, item_id, "minus_like"), -1.0) for item_id in minus_like]
    return parts


def make_query(parts: Sequence[Part], outputs: Sequence[NDArray[np.floating[Any]] | None]) -> Query:
    """Return one query of a question's parts.

    >>> make_query([Part("a dog")], [None]).words
    'a dog'
    """
    pairs = list(zip(parts, outputs, strict=True))
    coded = [(part, row) for part, row in pairs if row is not None]
    words_coded = all(row is not None or part.modality != "text" for part, row in pairs)
    texts = [part for part in parts if isinstance(part.content, str)]
    words = " ".join(part.content for part in texts if part.weight > 0)
    without = tuple(part.content for part in texts if part.weight < 0)
    if all(part.weight < 0 for part, _ in coded):
        return Query(np.zeros(0, np.uint8), None, "", words, without, words_coded)
    combined = combine(np.stack([row for _, row in coded]), [part.weight for part, _ in coded])
    modalities = {part.modality or "" for part, _ in coded}
    modality = modalities.pop() if len(modalities) == 1 else ""
    return Query(pack(binarize(combined[None]))[0], combined, modality, words, without, words_coded)


def _encode_parts(
    encoder: QueryEncoder | None, parts: Sequence[Part]
) -> list[NDArray[np.float32] | None]:
    """Return the real-valued outputs ``(k,)`` of parts, encoded in one batch a modality; None if
    they have none.
    """
    rows = [part.content if part.modality is None else None for part in parts]
    if encoder is None:
        return rows
    for modality in ("text", "image"):
        places = [place for place, part in enumerate(parts) if part.modality == modality]
        if places and (modality != "text" or modality in encoder.modalities):
            outputs = encode_items(encoder, modality, [parts[place].content for place in places])
            rows = [outputs[places.index(n)] if n in places else row for n, row in enumerate(rows)]
    return rows


def search_store(
    store: Store,
    options: SearchOptions | None = None,
    *,
    text: str | None = None,
    image: _Picture | None = None,
    like: str | None = None,
    by: str | None = None,
    minus: Sequence[str | _Picture] = (),
    minus_like: Sequence[str] = (),
    model: Path | QueryEncoder | None = None,
) -> Hits:
    """Search a store with a question: words, an image and an item's id, or several of them
    together.

    Dates and places narrow the search (`narrow`); alone, they are answered newest first.

    Words alone, ``by="words"``, need no model. Where the model does not encode texts, what is
    written is looked for by its words, and `Hits.note` says so.
    """
    options = options or SearchOptions()
    if text is None and image is None and like is None:
        raise InputError(
            f"search: say what to search for: words, {argument('image')} or {argument('like')}"
        )
    if not len(store):
        raise InputError(
            f"{store.address}: this store has no items yet; add some with `channelhash index add`"
        )
    store.choose_modality(options.modality)  # before a model is loaded in vain
    narrowed = Narrowed("", options.where, [])
    if text is not None:
        if not text.strip():
            raise InputError(f"{argument('text')}: is empty; give some words")
        narrowed = narrow(store, text, options.where)
        text = narrowed.text or None
        options = replace(options, where=narrowed.where)
    if text is None and image is None and not minus and not minus_like:
        if like is None:  # only dates and places are left
            catalogue = Catalogue.of((item.id, item.metadata) for item in store.listed())
            newest = catalogue.places("newest", among=set(store.ids(options.where)))
            page = newest[options.offset : options.offset + options.k]
            ids = [catalogue.ids[place] for place in page]
            hits = list_hits(store, store.get(ids, missing_ok=True), options)
        else:
            is_modality = by in (None, "image", "text")
            query = query_like(store, like, options.modality, by if is_modality else None)
            hits = answer(store, query, options if is_modality else replace(options, by=by))
        hits.phrases = narrowed.phrases
        return hits
    others = _other_parts(store, image, like, minus, minus_like)
    by = by or options.by
    words = [] if text is None else parse_question(text)
    parts = check_parts([*words, *others])
    needed = {modality for part in parts if (modality := part.modality)}
    encoder = load_query_encoder(store, model, needed) if by != "words" and needed else None
    options = replace(options, by=by)
    outputs = [None] * len(parts) if by == "words" else _encode_parts(encoder, parts)
    hits = answer(store, make_query(parts, outputs), options)
    if text is not None:
        hits.note = hits.note or unread(encoder, text)
        if has_unknown_words(encoder, text) and (corrected := correct(store, text)) != text:
            parts = check_parts([*parse_question(corrected), *others])
            if finds_better(store, make_query(parts, _encode_parts(encoder, parts)), options, hits):
                hits.suggestion = narrowed.suggest(corrected)
    hits.phrases = narrowed.phrases
    return hits


def unread(encoder: QueryEncoder | None, text: str) -> str:
    """Return a line if the encoder of a store's texts reads no language in the script of a text;
    else nothing.
    """
    is_problem = _reads_sentences(encoder) and is_unread(text)
    return (
        f"the encoder reads no language in this script; ask in one of {LANGUAGES}"
        if is_problem
        else ""
    )


def has_unknown_words(encoder: QueryEncoder | None, text: str) -> bool:
    """Return whether an encoder knows words and not all of a question's."""
    return _reads_sentences(encoder) and not spelling().knows_all(text)


def correct(store: Store, text: str) -> str:
    """Return a question in which words of the store, or of the encoder ``photo``, take the place of
    unknown ones.
    """
    general = spelling()
    counts = store.word_counts()
    text = (
        Spelling(counts, lambda word: word in general.words or general.known(word)).correct(text)
        or text
    )
    return (
        Spelling(general.words, lambda word: word in counts or general.known(word)).correct(text)
        or text
    )


def finds_better(store: Store, query: Query, options: SearchOptions, hits: Hits) -> bool:
    """Return whether a corrected question halves the doubt that the best answer leaves to the one
    as it was written.
    """
    corrected = answer(store, query, replace(options, k=1, limit=1, offset=0))
    return 1 - corrected.best_fit < (1 - hits.best_fit) / 2


def _reads_sentences(encoder: QueryEncoder | None) -> bool:
    return getattr(encoder, "architecture", {}).get("encoder") in ("photo", "photo-backbones")


def _stored_outputs(store: Store, item_id: str, name: str) -> NDArray[np.float32]:
    """Return an item as outputs, by the code of its image if it has one."""
    item = _item(store, item_id, name)
    return Query.of_item(item, min(item.codes)).as_outputs(store.n_bits or 0)


def _item(store: Store, item_id: str, name: str) -> Item:
    """Return the item that an argument of this name asks with."""
    # a shell may complete the decomposed form
    for written in (item_id, unicodedata.normalize("NFC", item_id)):
        items = store.get([written], missing_ok=True)
        if items:
            return items[0]
    raise InputError(f"{argument(name)} {item_id}: {store.address} has no item with this id")
