"""Questions as words: what stands around a date or a place, and which language they show."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache, cached_property, lru_cache
from typing import Literal, NamedTuple

from channelhash.text.constructions import AMBIGUOUS, LANGUAGES, SIDES, TABLES
from channelhash.text.words import fold

# Parts of a question that are no plain words, as `search.query.parse_question` reads them; or a
# plain word.
_PART = re.compile(r'-?["“”][^"“”]*["“”](?:\^[\d.]+)?|-(?=[^-])\S+|\S+\^[\d.]+(?!\S)|(\S+)')
# A date in Chinese, Japanese or Korean; one in numbers, of which nothing is left out.
_EASTERN = r"\d{4}\s?[年년](?:\s?\d\d?\s?[月월](?:\s?\d\d?\s?[日일])?)?[の的]?"
_DATE = (
    r"(?<![\w./-])(?:\d{4}[-/]\d\d(?:[-/]\d\d?)?|\d{4}[-/]\d[-/]\d\d?|\d{4}\.\d\d?\.\d\d?"
    r"|\d\d?/\d\d?/\d{4}|\d\d?-\d\d?-\d{4}|\d\d?\.\d\d?\.\d{4})(?![\w/]|[-.]\w)"
)
#: A word as phrases are made of, with its vowel signs; what an apostrophe ends is a word of its
#: own.
_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0900-\u0963\u0966-\u109f])"
WORD = rf"{_LETTER}+(?:['’](?=\w))?"
_NUMBER = r"\d+(?:['’]?[^\W\d_]+)*"
_TOKEN = re.compile(
    rf"(?P<gap>\0+)|(?P<eastern>{_EASTERN})|(?P<date>{_DATE})"
    rf"|(?P<number>{_NUMBER})|(?P<word>{WORD})|(?P<mark>[^\w\s]|_)"
)
#: Marks that part what stands before from what stands after.
_STOPS = frozenset(",;:.!?()[]…、。，！？")
DASHES = frozenset("-–—")
#: Words whose dot ends no sentence: no. 2016, ca. 2016.
_ABBREVIATIONS = frozenset(
    [
        "approx",
        "aprox",
        "art",
        "c",
        "ca",
        "cca",
        "ch",
        "env",
        "fig",
        "n",
        "no",
        "nr",
        "num",
        "p",
        "pp",
        "st",
        "vol",
    ]
)

# Kinds of words that show a language.
_EVIDENCE = ("function words", *SIDES, "photographs", "months", "seasons")


#: Words whose folded forms are kept: those of many places.
_KEPT = 20_000
#: `fold`, which is asked for the same words again and again.
fold_word = lru_cache(_KEPT)(fold)


def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name as a question's words are, without apostrophes.

    >>> split_name("L'Aquila (città)")
    ('l', 'aquila', 'citta')
    """
    words = re.findall(f"{_NUMBER}|{WORD}", fold_word(name))
    return tuple(word.rstrip("'") for word in words)


# A word with letters that may follow, or nothing: diese(|n).
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
    """Return the phrases of a kind by their first words, longest first, with their places in the
    list.

    >>> phrases("and", "es")["e"]
    [(('e',), 1)]
    """
    found: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for place, phrase in enumerate(TABLES[table].get(language, "").split(", ")):
        for words in dict.fromkeys(
            tuple(re.findall(r"[^\W\d_]+'?", form)) for form in spell(phrase)
        ):
            if words:
                found.setdefault(words[0], []).append((words, place))
    for several in found.values():
        several.sort(key=lambda pair: -len(pair[0]))
    return found


@cache
def words_of(table: str, language: str | None = None) -> frozenset[str]:
    """Return the words that begin a phrase of a kind, in one language or in any."""
    languages = LANGUAGES if language is None else (language,)
    return frozenset(word for name in languages for word in phrases(table, name))


@cache
def openers(*tables: str) -> Mapping[str, frozenset[str]]:
    """Return the languages in which a word begins a phrase of some kinds.

    >>> sorted(openers("and", "or")["o"])
    ['es', 'it']
    """
    words = {word for table in tables for word in words_of(table)}
    return {
        word: frozenset(
            name for name in LANGUAGES if any(word in words_of(table, name) for table in tables)
        )
        for word in words
    }


Kind = Literal["gap", "eastern", "date", "number", "word", "mark"]


Days = tuple[date, date]


class Found(NamedTuple):
    """Words of a question that were understood.

    Attributes:
        start: place of their first word.
        end: place after their last.
        means: the same in other words.
        test: a filter of where it is so.
        sure: whether they say so wherever they stand; else only where nothing else is asked.
        days: first day and the day after the last, of dates that are one interval.
    """

    start: int
    end: int
    means: str
    test: str
    sure: bool = True
    days: Days | None = None


class Word(NamedTuple):
    """A word, number or mark of a question.

    Attributes:
        text: in small letters without accents.
        start: where it begins.
        end: where it ends.
        kind: what it is; a gap is a phrase in quotes, a word with a weight or an unwanted word.
    """

    text: str
    start: int
    end: int
    kind: Kind


class Question:
    """The words of a question.

    >>> [word.text for word in Question("L'été, 14.07.2019").words]
    ["l'", 'ete', ',', '14.07.2019']
    """

    def __init__(self, text: str) -> None:
        self.text = text
        plain = _PART.sub(lambda part: part[0] if part[1] else "\0" * len(part[0]), text)
        self.words = [
            Word(fold_word(match[0]), match.start(), match.end(), match.lastgroup)  # type: ignore[arg-type]
            for match in _TOKEN.finditer(plain)
        ]

    def raw(self, at: int) -> str:
        """Return a word as it is written; nothing beyond the last."""
        word = self.words[at] if 0 <= at < len(self.words) else None
        return self.text[word.start : word.end] if word else ""

    def word(self, at: int) -> str:
        """Return a word in small letters without accents; nothing where there is none, or a gap."""
        if not 0 <= at < len(self.words) or self.words[at].kind == "gap":
            return ""
        return self.words[at].text

    def kind(self, at: int) -> Kind | None:
        """Return what a word is; None beyond the first and the last."""
        return self.words[at].kind if 0 <= at < len(self.words) else None

    def touches(self, at: int) -> bool:
        """Return whether no space parts a word from the one before it."""
        return 0 < at < len(self.words) and self.words[at - 1].end == self.words[at].start

    def match(self, table: str, language: str, at: int) -> tuple[int, int] | None:
        """Return where the longest phrase of a kind ends that begins here, and its place in the
        table.
        """
        for words, place in phrases(table, language).get(self.word(at), ()):
            end = at + len(words)
            if all(self.word(at + n) == word for n, word in enumerate(words)):
                return end, place
        return None

    def is_any(self, table: str, at: int) -> bool:
        """Return whether a phrase of a kind begins here with this word in any language."""
        return self.word(at) in words_of(table)

    def parts_before(self, at: int) -> bool:
        """Return whether nothing, or a mark that parts, stands before a word."""
        return at == 0 or self._parts(at - 1)

    def parts_after(self, at: int) -> bool:
        """Return whether nothing, or a mark that parts, stands where the last word has ended."""
        return at == len(self.words) or self._parts(at)

    def _parts(self, at: int) -> bool:
        word = self.words[at]
        if word.kind == "gap":
            return True
        if word.text in DASHES:  # within a compound it joins
            return not self.touches(at) and not self.touches(at + 1)
        if word.text == "." and self.touches(at) and self.word(at - 1) in _ABBREVIATIONS:
            return False
        return (
            word.kind == "mark"
            and word.text in _STOPS
            and not (word.text != "," and self.touches(at + 1) and self.kind(at + 1) != "mark")
        )

    def ends(self, at: int) -> bool:
        """Return whether what ends before this word is no attribute of it: a mark, a preposition,
        an article or the like follows.
        """
        return self.parts_after(at) or self.is_any("function words", at)

    @cached_property
    def is_title(self) -> bool:
        """Whether every word has a capital: "New York 2019"."""
        words = [at for at, word in enumerate(self.words) if word.kind == "word"]
        return bool(words) and all(self.raw(at)[0].isupper() for at in words)

    @cached_property
    def _evidence(self) -> Counter[str]:
        """How many words of each language the question has that show it."""
        shown = openers(*_EVIDENCE)
        return Counter(name for word in self.words for name in shown.get(word.text, ()))

    def shows(self, language: str, at: int) -> bool:
        """Return whether a word is sure to be one of a language: it has no other meaning elsewhere,
        or others of the question are of this language rather than of those.
        """
        others = AMBIGUOUS.get(language, {}).get(self.word(at))
        if others is None or not self.raw(at).isascii():
            return True
        rivals = max((self._beside(other, at) for other in others.split()), default=0)
        return self._beside(language, at) > rivals

    def _beside(self, language: str, at: int) -> int:
        """Return how many other words show a language."""
        is_own = language in openers(*_EVIDENCE).get(self.word(at), ())
        return self._evidence[language] - is_own

    def joins(self, end: int, start: int) -> bool:
        """Return whether nothing but "and" or "but" stands between two phrases."""
        return start == end + 1 and (self.is_any("and", end) or self.is_any("but", end))

    def after_denial(self, language: str, start: int) -> int:
        """Return where a negation of photographs ends, "no photos" or "not"; the same place where
        none begins.
        """
        match = self.match("not", language, start) if self.denies(start, surely=True) else None
        at = match[0] if match else start
        while at > start and (noun := self.match("photographs", language, at)):
            at = noun[0]
        return at

    def _languages_of(self, table: str, at: int) -> list[str]:
        """Return the languages in which a phrase of a kind begins here."""
        return [name for name in LANGUAGES if self.match(table, name, at)]

    def denies(self, at: int, surely: bool = False) -> bool:
        """Return whether a negation may stand here, or surely does: "no" is none in Portuguese."""
        if not surely and self._languages_of("unclear", at):
            return True
        speakers = self._languages_of("not", at)
        if not speakers:
            return False
        silent = [
            self._beside(name, at)
            for name, words in AMBIGUOUS.items()
            if self.word(at) in words and name not in speakers
        ]
        spoken = max(self._beside(name, at) for name in speakers)
        unspoken = max(silent, default=-1)
        return spoken > unspoken or (spoken == unspoken and not surely)
