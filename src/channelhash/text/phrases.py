"""What a question says of when and where: the dates and places that a search is narrowed to.

Dates are read in English, German, French, Spanish, Italian, Portuguese and Dutch, and as numbers;
places are those that are given. Either narrows only where the whole construction around it is
understood; otherwise its words stay words. A negation is understood as one, or its words stay
words. Phrases in double quotes and words with a weight or a minus stay what they are.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Literal, NamedTuple

from channelhash.text.constructions import LANGUAGES
from channelhash.text.dates import find_dates
from channelhash.text.places import PlaceNames, find_places
from channelhash.text.questions import Found, Question

#: Longer texts are no questions, and take long to go through.
_MAX_WORDS = 200
#: Most phrases, and characters of their tests, as a filter has at most so many conditions.
_MAX_PHRASES = 6
_MAX_LENGTH = 2000


class Phrase(NamedTuple):
    """Words of a sentence that say when or where something was.

    Attributes:
        kind: what they say.
        start: where they begin in the sentence.
        words: as they stand there, with their preposition.
        means: the same in other words.
        test: a filter of where it is so; ``{0}`` is the key of a date, written as 2019-07-14 or
            less exactly.

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
    """Return what the plain words of a question say of dates and places, in the order of the words.

    Args:
        text: the question.
        today: what "last summer" is counted from.
        places: names of places.

    >>> find_phrases("not in Porto", date(2026, 11, 27), PlaceNames([("place", "Porto")]))[0].test
    "NOT (place IN ('Porto'))"
    """
    question = Question(text)
    if len(question.words) > _MAX_WORDS:
        return []
    dates = find_dates(question, today)
    found = sorted([*dates, *_apart(find_places(question, places), dates)])
    if not found:
        return []
    if not _is_whole(question, found):
        found = [one for one in found if one.sure]
    found = _undenied(question, found)
    if len(found) > _MAX_PHRASES or sum(len(one.test) for one in found) > _MAX_LENGTH:
        return []
    if _exclude_each_other([one for one in found if one in dates]):
        found = [one for one in found if one not in dates]
    return [_phrase(question, one, one in dates) for one in found]


def _phrase(question: Question, one: Found, is_date: bool) -> Phrase:
    start = question.words[one.start].start
    end = question.words[one.end - 1].end
    kind: Literal["date", "place"] = "date" if is_date else "place"
    return Phrase(kind, start, question.text[start:end], one.means, one.test)


def _apart(found: Iterable[Found], others: Sequence[Found]) -> list[Found]:
    """Return what shares no word with others."""
    return [
        one
        for one in found
        if all(one.end <= other.start or other.end <= one.start for other in others)
    ]


def says_nothing(text: str) -> bool:
    """Return whether a text says of photographs nothing but that they are some.

    >>> says_nothing("all my photos, "), says_nothing("photos of dogs")
    (True, False)
    """
    question = Question(text)
    return all(
        word.kind != "gap" and (word.kind == "mark" or at in _nouns(question))
        for at, word in enumerate(question.words)
    )


def _nouns(question: Question) -> set[int]:
    """Return the places of words that say of photographs nothing but that they are some."""
    found = set[int]()
    for at in range(len(question.words)):
        for language in LANGUAGES:
            if match := question.match("photographs", language, at):
                found.update(range(at, match[0]))
    return found


def _is_whole(question: Question, found: Iterable[Found]) -> bool:
    """Return whether nothing else is asked, beside that photographs are looked for."""
    covered = {place for one in found for place in range(one.start, one.end)}
    rest = {
        at
        for at, word in enumerate(question.words)
        if at not in covered and word.kind != "gap" and not question.parts_after(at)
    }
    return rest <= _nouns(question)


def _undenied(question: Question, found: Sequence[Found]) -> list[Found]:
    """Return what no negation reaches that is not understood: "no dogs in 2019", "in 2019
    nicht".
    """
    covered = {place for one in found for place in range(one.start, one.end)}
    denied = [at for at in range(len(question.words)) if at not in covered and question.denies(at)]
    return [
        one
        for one in found
        if not any(
            question.is_any("denials behind", at)
            if at == one.end
            else at < one.start and not _is_parted(question, at, one.start)
            for at in denied
        )
    ]


def _is_parted(question: Question, start: int, end: int) -> bool:
    return any(question.parts_after(at) for at in range(start + 1, end))


def _exclude_each_other(dates: Sequence[Found]) -> bool:
    """Return whether no day is in all of the dates, which therefore mean something else."""
    days = [one.days for one in dates if one.days]
    return bool(days) and max(first for first, _ in days) >= min(stop for _, stop in days)
