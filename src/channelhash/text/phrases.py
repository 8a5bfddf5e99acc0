"""Find the dates and places in a question, to which a search is narrowed.

Dates are read in English, German, French, Spanish, Italian, Portuguese and Dutch, and as numbers.
Places are given. Either narrows a search only if the whole construction around it is understood.
Otherwise its words are searched like any others, and so are those of a negation that is not
understood. Phrases in double quotes and words with a weight or a minus are never read.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Literal, NamedTuple

from channelhash.text.constructions import LANGUAGES
from channelhash.text.dates import find_dates
from channelhash.text.places import PlaceNames, find_places
from channelhash.text.questions import Found, QuestionText

#: Words of the longest question: longer texts are none, and take long to read.
_MAX_WORDS = 200
#: The most phrases of a question, as the conditions of a filter are limited.
_MAX_PHRASES = 6
#: The most characters of their filters, for the same reason.
_MAX_LENGTH = 2000


class Phrase(NamedTuple):
    """Words of a sentence that say when or where something was.

    Attributes:
        kind: ``date`` or ``place``.
        start: where they begin in the sentence.
        words: as they stand there, with their preposition.
        means: their meaning, in other words.
        test: a filter for the items that they mean. ``{0}`` stands for the key of a date such as
            2019-07-14, which may be less exact.

    >>> phrase = find_phrases("dogs in summer 2019", date(2026, 11, 27), PlaceNames([]))[0]
    >>> phrase.words, phrase.means, phrase.test
    ('in summer 2019', 'June 2019 to August 2019', "{0} >= '2019-06' AND {0} < '2019-09'")
    """

    kind: Literal["date", "place"]
    start: int
    words: str
    means: str
    test: str


def find_phrases(text: str, today: date, places: PlaceNames) -> list[Phrase]:
    """Return the dates and places in the plain words of a question, in order.

    Args:
        text: the question.
        today: what "last summer" is counted from.
        places: names of places.

    >>> find_phrases("not in Porto", date(2026, 11, 27), PlaceNames([("place", "Porto")]))[0].test
    "NOT (place IN ('Porto'))"
    """
    question = QuestionText(text)
    if len(question.words) > _MAX_WORDS:
        return []
    dates = find_dates(question, today)
    in_dates = _covered(dates)
    found = list(dates)
    for place in find_places(question, places):
        if in_dates.isdisjoint(range(place.start, place.end)):
            found.append(place)
    found = _sure(question, sorted(found))
    if _exclude_each_other(set(found).intersection(dates)):
        found = [one for one in found if one not in dates]
    return [_phrase(question, one, "date" if one in dates else "place") for one in found]


def _sure(question: QuestionText, found: list[Found]) -> list[Found]:
    """Return what is surely meant: nothing that may describe another word or may be denied."""
    if not found:
        return []
    if not _is_whole(question, found):
        found = [one for one in found if one.sure]
    found = _without_denied(question, found)
    length = sum(len(one.test) for one in found)
    return found if len(found) <= _MAX_PHRASES and length <= _MAX_LENGTH else []


def _phrase(question: QuestionText, one: Found, kind: Literal["date", "place"]) -> Phrase:
    start = question.words[one.start].start
    end = question.words[one.end - 1].end
    return Phrase(kind, start, question.text[start:end], one.means, one.test)


def _covered(found: Iterable[Found]) -> set[int]:
    """Return the positions of all words of the phrases that were found."""
    places = set[int]()
    for one in found:
        places.update(range(one.start, one.end))
    return places


def says_nothing(text: str) -> bool:
    """Return whether a text describes no photograph, but only asks for photographs.

    >>> says_nothing("all my photos, "), says_nothing("photos of dogs")
    (True, False)
    """
    question = QuestionText(text)
    return all(
        word.kind != "gap" and (word.kind == "mark" or at in _nouns(question))
        for at, word in enumerate(question.words)
    )


def _nouns(question: QuestionText) -> set[int]:
    """Return the positions of words that describe no photograph, such as "my photos"."""
    found = set[int]()
    for at in range(len(question.words)):
        for language in LANGUAGES:
            match = question.match("photographs", language, at)
            if match:
                found.update(range(at, match.end))
    return found


def _is_whole(question: QuestionText, found: Iterable[Found]) -> bool:
    """Return whether all other words describe no photograph."""
    covered = _covered(found)
    rest = {
        at
        for at, word in enumerate(question.words)
        if at not in covered and word.kind != "gap" and not question.parts_after(at)
    }
    return rest <= _nouns(question)


def _without_denied(question: QuestionText, found: Sequence[Found]) -> list[Found]:
    """Return what was found, except what an unread negation may reach: "no dogs in 2019", "in 2019
    nicht".
    """
    places = set(range(len(question.words))) - _covered(found)
    denials = [at for at in places if question.denies(at)]
    return [one for one in found if not _is_reached(question, denials, one)]


def _is_reached(question: QuestionText, denials: Iterable[int], one: Found) -> bool:
    return any(_reaches(question, at, one) for at in denials)


def _reaches(question: QuestionText, at: int, one: Found) -> bool:
    """Return whether a negation reaches words: right behind, or before them in the same part."""
    if at == one.end:
        return question.is_any("denials behind", at)
    return at < one.start and not _is_parted(question, at, one.start)


def _is_parted(question: QuestionText, start: int, end: int) -> bool:
    return any(question.parts_after(at) for at in range(start + 1, end))


def _exclude_each_other(dates: Iterable[Found]) -> bool:
    """Return whether no day belongs to all of the dates, so that they must mean something else."""
    days = [one.days for one in dates if one.days]
    return bool(days) and max(first for first, _ in days) >= min(stop for _, stop in days)
