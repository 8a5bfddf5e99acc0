"""Split questions into words, and look up phrases of several languages in them."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache, cached_property, lru_cache
from typing import Literal, NamedTuple, cast

from channelhash.text.constructions import AMBIGUOUS, LANGUAGES, SIDES, TABLES
from channelhash.text.words import fold

#: A part of a question: a phrase in quotes, an unwanted word or a word with a weight, as
#: `search.question.parse_question` reads them. The group holds any other word.
_PART = re.compile(r'-?["“”][^"“”]*["“”](?:\^[\d.]+)?|-(?=[^-])\S+|\S+\^[\d.]+(?!\S)|(\S+)')
#: A date in Chinese, Japanese or Korean.
_EASTERN = r"\d{4}\s?[年년](?:\s?\d\d?\s?[月월](?:\s?\d\d?\s?[日일])?)?[の的]?"
#: A date in numbers, with its year.
_DATE = (
    r"(?<![\w./-])(?:\d{4}[-/]\d\d(?:[-/]\d\d?)?|\d{4}[-/]\d[-/]\d\d?|\d{4}\.\d\d?\.\d\d?"
    r"|\d\d?/\d\d?/\d{4}|\d\d?-\d\d?-\d{4}|\d\d?\.\d\d?\.\d{4})(?![\w/]|[-.]\w)"
)
#: A letter, with the vowel signs that follow it.
_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0900-\u0963\u0966-\u109f])"
#: A word of a phrase. An apostrophe ends a word: "l'" and "été".
WORD = rf"{_LETTER}+(?:['’](?=\w))?"
#: A number, perhaps with an ending: 90s, 14th.
_NUMBER = r"\d+(?:['’]?[^\W\d_]+)*"
#: Any part of a question. The names of the groups are kinds of words.
_TOKEN = re.compile(
    rf"(?P<gap>\0+)|(?P<eastern>{_EASTERN})|(?P<date>{_DATE})"
    rf"|(?P<number>{_NUMBER})|(?P<word>{WORD})|(?P<mark>[^\w\s]|_)"
)
#: Marks between independent parts of a question.
_STOPS = frozenset(",;:.!?()[]…、。，！？")
#: Marks that may stand for "to".
DASHES = frozenset("-–—")
#: Words whose dot ends no sentence: no. 2016, ca. 2016.
_ABBREVIATED = "approx aprox art c ca cca ch env fig n no nr num p pp st vol"
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())

#: Tables whose words show a language.
_EVIDENCE = ("function words", *SIDES, "photographs", "months", "seasons")

#: Kinds of words, see `QuestionWord`.
WordKind = Literal["gap", "eastern", "date", "number", "word", "mark"]
#: A first day, and the day after the last.
Days = tuple[date, date]

#: Words that `fold_word` remembers, enough for those of many places.
_KEPT = 20_000
#: `fold` with a memory, since the same words come again and again.
fold_word = lru_cache(_KEPT)(fold)


def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name as a question splits them, without apostrophes.

    >>> split_name("L'Aquila (città)")
    ('l', 'aquila', 'citta')
    """
    words = re.findall(f"{_NUMBER}|{WORD}", fold_word(name))
    return tuple(word.rstrip("'") for word in words)


#: Alternatives within a phrase: diese(|n).
_CHOICE = re.compile(r"\(([^()]*)\)")


def spell(phrase: str) -> Iterator[str]:
    """Yield the spellings of a phrase of a table.

    >>> [*spell("hors (de|)")]
    ['hors de', 'hors']
    """
    parts = _CHOICE.split(phrase)
    choices = [part.split("|") for part in parts]
    for chosen in itertools.product(*choices):
        yield " ".join("".join(chosen).split())


@cache
def phrases(table: str, language: str) -> Mapping[str, list[tuple[tuple[str, ...], int]]]:
    """Return the phrases of a table by their first words, longest first, with their positions in
    the list.

    >>> phrases("and", "es")["e"]
    [(('e',), 1)]
    """
    found: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for place, phrase in enumerate(TABLES[table].get(language, "").split(", ")):
        spellings = (tuple(re.findall(r"[^\W\d_]+'?", form)) for form in spell(phrase))
        for words in dict.fromkeys(filter(None, spellings)):
            found.setdefault(words[0], []).append((words, place))
    for several in found.values():
        several.sort(key=lambda pair: -len(pair[0]))
    return found


@cache
def openers(*tables: str) -> Mapping[str, Sequence[str]]:
    """Return the languages in which a word begins a phrase of some tables.

    >>> openers("and", "or")["o"]
    ['es', 'it']
    """
    found: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in set[str]().union(*(phrases(table, language) for table in tables)):
            found.setdefault(word, []).append(language)
    return found


class Found(NamedTuple):
    """Words of a question that were understood.

    Attributes:
        start: place of their first word.
        end: place after their last.
        means: their meaning, in other words.
        test: a filter for the items that they mean.
        sure: whether they always mean this, not only if nothing else is asked for.
        days: the days of dates that form one interval.
    """

    start: int
    end: int
    means: str
    test: str
    sure: bool = True
    days: Days | None = None

    def negated(self) -> "Found":
        """Return the opposite of these words."""
        return self._replace(means=f"not {self.means}", test=f"NOT ({self.test})", days=None)


def any_of(tests: Sequence[str]) -> str:
    """Return a filter that passes if any of some filters does.

    >>> any_of(["a"]), any_of(["a", "b"])
    ('a', '(a OR b)')
    """
    return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"


class PhraseMatch(NamedTuple):
    """A phrase of a table in a question.

    Attributes:
        end: where it ends in the question.
        place: its position in the table.
    """

    end: int
    place: int


class QuestionWord(NamedTuple):
    """A word, number or mark of a question.

    Attributes:
        text: lower-case, without accents.
        start: where it begins.
        end: where it ends.
        kind: what it is. A gap is a phrase in quotes, a word with a weight or an unwanted word.
    """

    text: str
    start: int
    end: int
    kind: WordKind


class QuestionText:
    """The words of a question.

    >>> [word.text for word in QuestionText("L'été, 14.07.2019").words]
    ["l'", 'ete', ',', '14.07.2019']
    """

    def __init__(self, text: str) -> None:
        self.text = text
        plain = _PART.sub(lambda part: part[0] if part[1] else "\0" * len(part[0]), text)
        self.words = list[QuestionWord]()
        for match in _TOKEN.finditer(plain):
            kind = cast(WordKind, match.lastgroup)
            self.words.append(QuestionWord(fold_word(match[0]), *match.span(), kind))

    def raw(self, at: int) -> str:
        """Return a word as it is written; nothing beyond the last."""
        if not 0 <= at < len(self.words):
            return ""
        return self.text[self.words[at].start : self.words[at].end]

    def word(self, at: int) -> str:
        """Return a word, lower-case and without accents; empty for a gap, or if there is none."""
        return "" if self.kind(at) in (None, "gap") else self.words[at].text

    def kind(self, at: int) -> WordKind | None:
        """Return the kind of a word; None before the first and beyond the last."""
        return self.words[at].kind if 0 <= at < len(self.words) else None

    def touches(self, at: int) -> bool:
        """Return whether there is no space between a word and the one before it."""
        return 0 < at < len(self.words) and self.words[at - 1].end == self.words[at].start

    def match(self, table: str, language: str, at: int) -> PhraseMatch | None:
        """Return the longest phrase of a table that begins here."""
        for words, place in phrases(table, language).get(self.word(at), ()):
            if all(self.word(at + n) == word for n, word in enumerate(words)):
                return PhraseMatch(at + len(words), place)
        return None

    def is_any(self, table: str, at: int) -> bool:
        """Return whether this word begins a phrase of a table in any language."""
        return self.word(at) in openers(table)

    def parts_before(self, at: int) -> bool:
        """Return whether the question, or a part of it, begins with this word."""
        return at == 0 or self._parts(at - 1)

    def parts_after(self, at: int) -> bool:
        """Return whether the question, or a part of it, ends before this word."""
        return at == len(self.words) or self._parts(at)

    def _parts(self, at: int) -> bool:
        """Return whether a word separates two parts: a gap, or a mark that joins nothing."""
        word = self.words[at]
        if word.kind == "gap":
            return True
        if word.text in DASHES:  # inside a compound, a dash joins
            return not self.touches(at) and not self.touches(at + 1)
        if word.text not in _STOPS or self._is_abbreviated(at):
            return False
        return word.text == "," or not self.touches(at + 1) or self.kind(at + 1) == "mark"

    def _is_abbreviated(self, at: int) -> bool:
        is_dot = self.word(at) == "." and self.touches(at)
        return is_dot and self.word(at - 1) in _ABBREVIATIONS

    def ends(self, at: int) -> bool:
        """Return whether the words before this one cannot describe it: it is a mark, a preposition,
        an article or the like.
        """
        return self.parts_after(at) or self.is_any("function words", at)

    @cached_property
    def is_title(self) -> bool:
        """Whether every word has a capital: "New York 2019"."""
        words = [at for at, word in enumerate(self.words) if word.kind == "word"]
        return bool(words) and all(self.raw(at)[0].isupper() for at in words)

    @cached_property
    def _evidence(self) -> Counter[str]:
        """The number of words that show a language."""
        shown = openers(*_EVIDENCE)
        counts = Counter[str]()
        for word in self.words:
            counts.update(shown.get(word.text, ()))
        return counts

    @property
    def is_english(self) -> bool:
        """Whether the words that show a language show none more than English."""
        return 0 < self._evidence["en"] == max(self._evidence.values())

    def shows(self, language: str, at: int) -> bool:
        """Return whether a word surely belongs to a language: no other language has it, or the
        other words show this language rather than those that have it.
        """
        rivals = AMBIGUOUS.get(language, {}).get(self.word(at))
        if rivals is None or not self.raw(at).isascii():
            return True
        return self._evidence_beside(at, [language]) > self._evidence_beside(at, rivals.split())

    def _evidence_beside(self, at: int, languages: Iterable[str]) -> int:
        """Return how many words besides this one show the most likely of several languages; -1
        without languages.
        """
        own = openers(*_EVIDENCE).get(self.word(at), ())
        return max((self._evidence[name] - (name in own) for name in languages), default=-1)

    def joins(self, end: int, start: int) -> bool:
        """Return whether two phrases are joined by "and" or "but" alone."""
        return start == end + 1 and (self.is_any("and", end) or self.is_any("but", end))

    def after_denial(self, language: str, start: int) -> int:
        """Return where a negation of photographs ends, such as "no photos" or "not"; the same place
        if none begins.
        """
        match = self.match("not", language, start) if self.denies(start, surely=True) else None
        at = start
        while match:
            at = match.end
            match = self.match("photographs", language, at)
        return at

    def languages_of(self, table: str, at: int) -> list[str]:
        """Return the languages in which a phrase of a table begins here."""
        return [name for name in LANGUAGES if self.match(table, name, at)]

    def hanging(self, at: int) -> list[str]:
        """Return the languages in which this word continues the phrase before it: "or", "to"."""
        return [name for name in self.languages_of("hanging", at) if self.shows(name, at)]

    def denies(self, at: int, surely: bool = False) -> bool:
        """Return whether a negation may stand here; if ``surely``, whether one does. In Portuguese,
        "no" is none.
        """
        if not surely and self.languages_of("unclear", at):
            return True
        speakers = self.languages_of("not", at)
        if not speakers:
            return False
        ambiguous = {name for name, words in AMBIGUOUS.items() if self.word(at) in words}
        spoken = self._evidence_beside(at, speakers)
        unspoken = self._evidence_beside(at, ambiguous.difference(speakers))
        return spoken > unspoken if surely else spoken >= unspoken
