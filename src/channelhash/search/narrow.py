"""Dates and places in the words of a question become filters: "dogs on a beach in summer 2019", "last May in Porto".

Places are those of the store's items, after a preposition or as the whole question. Phrases in double quotes and words
with a weight or a minus stay what they are, and so do all words by which no item would be found.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from channelhash.search.filters import quoted
from channelhash.search.store import Store
from channelhash.text.dates import Phrase, find_dates, fold

# What may stand before a place, and between two; "à" is written as @, since "a" is English. Dates are written as \1.
_LEAD = re.compile(
    r"(?<!\w)(in|at|from|near|around|bei|nach|aus|um|im|@|aux?|e[nm]|de|d[aio]|n[ao]|del|nella|te|uit)\s+(?:the\s+)?"
    r"|^[\s\1,]*"
)
_JOINT = re.compile(r"\s*,\s*|\s+(?:or|and|oder|und|ou|et|o|e|y|of|en)\s+")
_RUN = re.compile(r"\w+(?:[^\w,\0\1]{1,2}\w+){0,5}")
# What says of photographs nothing but that they are some.
_PHOTOGRAPHS = re.compile(r"(?:(?:all|my|our|the|photos?|pictures?|images?|photographs|shots|fotos?|bilder)\b\s*)*")
# Parts of a question that are no plain words, as `query.parse_question` reads them; or a plain word.
_PART = re.compile(r'-?["“”][^"“”]*["“”](?:\^[\d.]+)?|-(?=[^-])\S+|\S+\^[\d.]+(?!\S)|(\S+)')


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


def narrow(store: Store, text: str, where: str | None = None, today: date | None = None) -> Narrowed:
    """Take dates and places out of a question, those that items have which pass the filter ``where``.

    >>> import numpy as np, channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8)
    >>> narrow(open_codes(codes), "dogs in 2019").text  # nothing has a date
    'dogs in 2019'
    """
    if where is not None:
        store.check_filter(where)  # alone: what is unbalanced may be balanced among the others
    text = unicodedata.normalize("NFC", text)
    rest, passed, phrases = text, where, list[Phrase]()
    for found in reversed(_phrases_of(store, text, today or date.today())):
        test = store.date_filter(found.test) if found.kind == "date" else found.test
        both = " AND ".join(f"({part})" for part in (test, passed) if part)
        if test and store.ids(both):
            passed, phrases = both, [found, *phrases]
            rest = rest[: found.start].rstrip(" ,;") + " " + rest[found.start + len(found.words) :].lstrip(" ,;")
    rest = "" if phrases and _PHOTOGRAPHS.fullmatch(rest.lower().strip()) else rest.strip()
    if rest and all(part[0].startswith("-") for part in _PART.finditer(rest)):
        return Narrowed(text, where, [])  # what is not wanted is no question
    return Narrowed(rest, passed, phrases)


def leave_plain(store: Store, text: str) -> Narrowed | None:
    """Return a question that names no date and no place, as `narrow` would; None for others, of which no item is read.

    >>> import numpy as np, channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8))
    >>> leave_plain(store, "a dog "), leave_plain(store, "dogs in 2019")
    (Narrowed(text='a dog', where=None, phrases=[]), None)
    """
    text = unicodedata.normalize("NFC", text)
    return None if _phrases_of(store, text, date.today()) else Narrowed(text.strip(), None, [])


def _phrases_of(store: Store, text: str, today: date) -> list[Phrase]:
    """Return what a question says of dates and of the places of a store's items."""
    places = {_fold_name(value): (key, value) for key in ("place", "country") for value in store.value_counts(key)}
    return find_phrases(text, today, places)


def find_phrases(text: str, today: date, places: Mapping[str, tuple[str, str]]) -> list[Phrase]:
    """Return what the plain words of a question say of dates and places, in the order of the words.

    Args:
        text: the question.
        today: what "last summer" is counted from.
        places: name in small letters without accents -> its metadata key and value.

    >>> find_phrases("in Porto", date(2026, 11, 27), {"porto": ("place", "Porto")})[0].test
    "place IN ('Porto')"
    """
    plain = _PART.sub(lambda part: part[0] if part[1] else "\0" * len(part[0]), text)
    found = [*find_dates(plain, today)]
    for phrase in found:
        end = phrase.start + len(phrase.words)
        plain = plain[: phrase.start] + "\1" * len(phrase.words) + plain[end:]
    for start, end, chosen in _find_places(fold(re.sub(r"\bà\b", "@", plain)), places):
        values = {key: [value for other, value in chosen if other == key] for key, _ in chosen}
        means = ", ".join(" or ".join(several) for several in values.values())
        test = " AND ".join(f"{key} IN ({', '.join(map(quoted, several))})" for key, several in values.items())
        found.append(Phrase("place", start, text[start:end], means, test))
    return sorted(found, key=lambda phrase: phrase.start)


def _find_places(plain: str, places: Mapping[str, tuple[str, str]]) -> Iterator[tuple[int, int, list[tuple[str, str]]]]:
    """Yield where places after a preposition, or alone beside dates, begin and end, and their keys and values."""
    for lead in _LEAD.finditer(plain):
        start, end, chosen = lead.end(), lead.end(), list[tuple[str, str]]()
        while run := _RUN.match(plain, start):
            ends = [start + word.end() for word in re.finditer(r"\w+", run[0])]
            longest = next((end for end in reversed(ends) if _fold_name(plain[start:end]) in places), None)
            if longest is None:
                break
            chosen.append(places[_fold_name(plain[start:longest])])
            end = longest
            start = joint.end() if (joint := _JOINT.match(plain, end)) else len(plain)
        if chosen and (lead[1] or not plain[end:].strip(" \1,")):
            yield lead.start() if lead[1] else lead.end(), end, chosen


@lru_cache(10_000)
def _fold_name(name: str) -> str:
    return " ".join(re.findall(r"\w+", fold(unicodedata.normalize("NFC", name))))
