"""Correct misspelt words by lists of words, and read those that ship with a library."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain, product, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.text.words import FIRST_UNSPACED, compose, fold
from channelhash.utils.optional_imports import library

#: Counts of letters, by their code points modulo this, preselect similar words.
_LETTERS = 64
#: Letters that are taken for each other.
_ALIKE = ("aeiouy", "szc", "ckq", "bvwfp", "dt", "gj", "mn")
#: Cost of a letter that is doubled, or not; costs of slips are differences of logarithms of
#: probabilities, learned from drawn slips in the captions of five languages.
_DOUBLED = 4.0
#: Cost of neighbours that are swapped.
_SWAPPED = 3.0
#: Cost of a letter that is missing.
_MISSED = 4.0
#: Cost of a letter in place of one that is alike.
_TAKEN = 4.0
#: Cost of a letter that does not belong there.
_ADDED = 7.0
#: Cost of a letter in place of any other.
_OTHER = 8.5
#: Further cost of a slip in the first letter.
_FIRST = 3.5
#: What a letter of an unknown word counts: the longer a word, the less likely its pieces are.
_A_LETTER = 0.45
#: How much less likely than what was typed a correction may be, as answers may still speak for it.
_WORST = 4.0
#: How close to the likeliest word another form of the typed one makes that unlikely.
_CLOSE = 2.0
#: Texts that may be meant in place of one, as each has to be compared with the items.
_MOST_TEXTS = 4
#: Letters of the longest ending that makes another form of a word, and of the shortest stem.
_ENDING = 2
_STEM = 3
_WORD = re.compile(r"[^\W\d_]+")
#: Letters from which a word may have two slips.
_LONG = 7
#: Languages whose list is large enough to tell a word that does not exist.
LISTED = ("de", "en", "es", "fr", "it", "nl", "pt")
#: The logarithm of the probability below which a word says nothing of a text's language.
_RARE = -14.0
#: How much less likely than the likeliest language another one may be.
_UNSURE = 3.0
#: Lists in memory, each some 60 MB.
_KEPT = 2


class Correction(NamedTuple):
    """A text that may be meant in place of another.

    Attributes:
        sureness: the logarithm of how much likelier it is.
        text: the text.

    >>> Correction(2.0, "a dog").text
    'a dog'
    """

    sureness: float
    text: str


@dataclass(frozen=True)
class WordList:
    """Words and how likely each is.

    Attributes:
        words: lower-case word -> the logarithm of its probability.

    >>> words = WordList({"bicycle": -13.0, "beach": -12.0})
    >>> words.knows("beach"), [*words.near("baech", least=-16.0, most=1)]
    (True, [(-15.0, 'beach')])
    """

    words: Mapping[str, float]

    def knows(self, word: str) -> bool:
        """Return whether the list has a lower-case word, perhaps without its accents."""
        return word in self.words or fold(word) in self._likeliest

    def near(self, form: str, least: float, most: int) -> Iterator[tuple[float, str]]:
        """Yield the words that a folded form may stand for, with the logarithms of how likely that
        is.

        Args:
            form: the form.
            least: the least such logarithm.
            most: the most letters that a word may have more or fewer.
        """
        # A slip changes at most two of the counts of letters.
        differences = np.abs(self._letters - _count_letters([form])).sum(axis=1)
        for place in np.flatnonzero((self._scores > least + _SWAPPED) & (differences <= 2 * most)):
            name = self._forms[place]
            if abs(len(name) - len(form)) <= most:
                score = self._scores[place] - _slip_cost(form, name)
                if score > least:
                    yield float(score), self._likeliest[name]

    @cached_property
    def _likeliest(self) -> dict[str, str]:
        """Folded form -> the likeliest word of that form."""
        return {fold(word): word for word in sorted(self.words, key=self.words.__getitem__)}

    @cached_property
    def _forms(self) -> list[str]:
        return list(self._likeliest)

    @cached_property
    def _letters(self) -> NDArray[np.int8]:
        return _count_letters(self._forms)

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        return np.array([self.words[word] for word in self._likeliest.values()])


@dataclass(frozen=True)
class Spelling:
    """Lists of words, and how likely another word is (the noisy channel of Kernighan, Church and
    Gale, 1990).

    Attributes:
        lists: lists of words that may be meant.
        likelihood: returns the logarithm of the probability of another word, such as a compound.
        known: further words that are left as they are.

    >>> words = WordList({"bicycle": -13.0, "beach": -12.0, "peach": -14.0})
    >>> spelling = Spelling([words], likelihood=lambda word: -4.0 * len(word))
    >>> spelling.corrections("A Bicylce at the baech")[0].text, spelling.corrections("a beach")
    ('A Bicycle at the beach', [])
    """

    lists: Sequence[WordList]
    likelihood: Callable[[str], float]
    known: Sequence[WordList] = ()

    def corrections(self, text: str) -> list[Correction]:
        """Replace the unknown words of at least 4 letters by words that may be meant; return the
        likeliest texts, the best first.
        """
        plain = compose(text)
        meant = dict[str, list[Correction]]()
        for word in dict.fromkeys(_long_word().findall(plain)):
            found = self._meant(word)[:_MOST_TEXTS]
            if found:
                meant[word] = [Correction(0.0, word), *found]
        if len(meant) > _MOST_TEXTS:
            meant = {word: found[1:2] for word, found in meant.items()}
        chosen = product(*meant.values())
        likeliest = sorted((_mended(plain, list(meant), each) for each in chosen), reverse=True)
        return [each for each in likeliest if each.text != plain][:_MOST_TEXTS]

    def knows_all(self, text: str) -> bool:
        """Return whether every word of at least 4 letters is known. Takes microseconds."""
        return all(self._knows(word.lower()) for word in _long_word().findall(compose(text)))

    def _knows(self, word: str) -> bool:
        return max(word) >= FIRST_UNSPACED or any(
            words.knows(word) for words in chain(self.lists, self.known)
        )

    def _meant(self, typed: str) -> list[Correction]:
        """Return the words that may be meant in place of one, the likeliest first; none for a known
        word, or one that has another ending than a known one.
        """
        word = typed.lower()
        if self._knows(word):
            return []
        form = fold(word)
        # How likely it is that it is meant as it stands.
        limit = self.likelihood(word) + _A_LETTER * len(form)
        most = 1 if len(form) < _LONG else 2
        near = chain.from_iterable(words.near(form, limit - _WORST, most) for words in self.lists)
        found = dict[str, float]()
        for score, name in sorted(near):
            found[name.capitalize() if typed[0].isupper() else name] = score - limit
        meant = sorted(map(Correction, found.values(), found), reverse=True)
        close = takewhile(lambda each: each.sureness > meant[0].sureness - _CLOSE, meant)
        is_other_form = any(_is_ending(form, fold(each.text)) for each in close)
        return [] if is_other_form else meant


def likely_languages(text: str) -> list[str]:
    """Return the languages with lists of words to which at least half of a text's words belong, the
    likeliest first.

    >>> likely_languages("ein Hund am Strand"), likely_languages("krowy w oborze")
    (['de'], [])
    """
    words = _WORD.findall(compose(text).lower())
    scores = {language: _likelihood(language, words) for language in LISTED}
    best = max(scores.values())
    if best == _RARE * len(words):
        return []
    likely = [language for language in LISTED if scores[language] > best - _UNSURE]
    likely.sort(key=lambda language: -scores[language])
    return [language for language in likely if _knows_half(language, words)]


def _likelihood(language: str, words: Sequence[str]) -> float:
    """Return the logarithm of the probability of words in a language."""
    frequent = _frequent_words(language)
    return sum(frequent.get(word, _RARE) for word in words)


def _knows_half(language: str, words: Sequence[str]) -> bool:
    known = sum(word_list(language).knows(word) for word in words)
    return 2 * known >= len(words)


@cache
def frequent_words() -> WordList:
    """Return the frequent words of all languages that have lists.

    >>> frequent_words().knows("giraffe")
    True
    """
    likeliest = dict[str, float]()
    for words in map(_frequent_words, LISTED):
        for word, score in words.items():
            likeliest[word] = max(score, likeliest.get(word, score))
    return WordList(likeliest)


@cache
def _frequent_words(language: str) -> dict[str, float]:
    counts, total = _counts(language)
    least = total * math.exp(_RARE)
    return {word: math.log(count / total) for word, count in counts.items() if count > least}


@lru_cache(_KEPT)
def word_list(language: str) -> WordList:
    """Return the words of a language, as often as they are in subtitles of films.

    >>> word_list("de").knows("gänseblümchen")
    True
    """
    counts, total = _counts(language)
    return WordList({word: math.log(count / total) for word, count in counts.items()})


def _counts(language: str) -> tuple[Mapping[str, int], int]:
    """Return the words of the list that ``pyspellchecker`` brings, and the sum of their counts."""
    frequency = library("spellchecker", "photos").SpellChecker(language=language).word_frequency
    return frequency.dictionary, frequency.total_words


def _mended(text: str, words: Sequence[str], chosen: Sequence[Correction]) -> Correction:
    """Return a text with the chosen words in place of those that may not be meant."""
    of = {word: each.text for word, each in zip(words, chosen, strict=True)}
    mended = _long_word().sub(lambda match: of.get(match[0], match[0]), text)
    return Correction(sum(each.sureness for each in chosen), mended)


def _is_ending(form: str, other: str) -> bool:
    """Return whether two words differ only in their endings, as forms of one word do.

    >>> _is_ending("giraffen", "giraffe"), _is_ending("vliegtuug", "vliegtuig")
    (True, False)
    """
    pairs = zip(form, other, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    ends = form[start:], other[start:]
    is_doubled = form[start - 1 : start] in ends
    if start < _STEM or max(map(len, ends)) > _ENDING or is_doubled or set(ends[0]) == set(ends[1]):
        return False
    if "" in ends:
        return True
    return ends[0][-1] != ends[1][-1] and all(end[0] in _ALIKE[0] for end in ends)


@lru_cache(1)
def _long_word() -> re.Pattern[str]:
    """Compile a pattern for words of at least four letters, with their marks."""
    signs = map(chr, range(0x300, 0x20000))
    marks = "".join(sign for sign in signs if unicodedata.category(sign)[0] == "M")
    return re.compile(f"(?:[^\\W\\d_][{marks}]*){{4,}}")


def _count_letters(words: list[str]) -> NDArray[np.int8]:
    letters = np.frombuffer("".join(words).encode("utf-32-le"), "<u4") % _LETTERS
    counts = np.zeros((len(words), _LETTERS), np.int8)
    np.add.at(counts, (np.repeat(np.arange(len(words)), [len(word) for word in words]), letters), 1)
    return counts


def _slip_cost(typed: str, meant: str) -> float:
    """Return the least cost of the slips that make one word of another.

    >>> _slip_cost("bycicle", "bicycle"), _slip_cost("beahc", "beach")
    (8.0, 3.0)
    """
    above = list[float]()
    row = [0.0]
    for j in range(len(meant)):
        row.append(row[j] + _one_more(meant, j, _MISSED))
    for i, letter in enumerate(typed):
        before = above
        above = row
        row = [above[0] + _one_more(typed, i, _ADDED)]
        for j, other in enumerate(meant):
            added = above[j + 1] + _one_more(typed, i, _ADDED)
            missed = row[j] + _one_more(meant, j, _MISSED)
            row.append(min(added, missed, above[j] + _taken(letter, other, i + j == 0)))
            if i and j and letter == meant[j - 1] and typed[i - 1] == other:
                row[-1] = min(row[-1], before[j - 1] + _SWAPPED)
    return row[-1]


def _one_more(word: str, place: int, cost: float) -> float:
    """Return the cost of a letter that only one of two words has."""
    if place == 0:
        return cost + _FIRST
    return _DOUBLED if word[place] == word[place - 1] else cost


def _taken(letter: str, other: str, is_first: bool) -> float:
    """Return the cost of a letter that was typed in place of another one."""
    if letter == other:
        return 0.0
    are_alike = any(letter in group and other in group for group in _ALIKE)
    return (_TAKEN if are_alike else _OTHER) + _FIRST * is_first
