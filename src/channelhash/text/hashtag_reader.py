"""How a hashtag list is read: known words kept, others segmented and corrected, the rest dropped and counted."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Literal

from symspellpy import SymSpell

from channelhash.text.tokens import split_words

Outcome = Literal["kept", "corrected", "split", "dropped"]
OUTCOMES: tuple[Outcome, ...] = ("kept", "corrected", "split", "dropped")

_MAX_EDIT_DISTANCE = 2
_PREFIX_LENGTH = 7


@dataclass(frozen=True)
class WordReading:
    """One word of a text.

    Attributes:
        word: as it stands in the text, lower-case.
        outcome: ``kept`` is known as it is; ``corrected`` became one other known word; ``split`` became several, of
            which at least one is known; ``dropped`` is unknown in every reading.
        tokens: the known words it became.
        unknown: parts that were dropped.
    """

    word: str
    outcome: Outcome
    tokens: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class TextReader:
    """Reads texts by ``protocol.md`` § 2: lower-case, each digit ``#`` before look-up, then segmentation.

    Args:
        known: whether a word (with ``#`` for digits) is in the vocabulary.
        more_words: the vocabulary's own words, added to the English frequency dictionary of SymSpell at count 1.
            SymSpell keeps deletes of every word in memory (about 1 kB a word): give the most frequent ones of a large
            vocabulary.
    """

    def __init__(self, known: Callable[[str], bool], more_words: Iterable[str] = ()) -> None:
        self._known = known
        self._speller = _speller(tuple(more_words))
        self._read_word = lru_cache(maxsize=200_000)(self._read_one)

    def read(self, text: str) -> tuple[WordReading, ...]:
        """The reading of every word of a text."""
        return tuple(self._read_word(word) for word in split_words(text))

    def tokens(self, text: str, max_tokens: int = 128) -> list[str]:
        """The known words of a text, cut after ``max_tokens``."""
        return [token for reading in self.read(text) for token in reading.tokens][:max_tokens]

    def _read_one(self, word: str) -> WordReading:
        masked = mask_digits(word)
        if self._known(masked):
            return WordReading(word, "kept", (masked,))
        if not any(letter.isalpha() for letter in word):
            return WordReading(word, "dropped", (), (masked,))  # nothing there to spell or split
        # Masked before it is segmented: the vocabulary's own words have their digits masked, so "nikon2007" can
        # become "nikon ####", while no dictionary knows "2007" and it would be corrected to some short word.
        segmented = self._speller.word_segmentation(masked, max_edit_distance=_MAX_EDIT_DISTANCE)
        parts = segmented.corrected_string.lower().split()
        found = tuple(part for part in parts if self._known(part))
        missed = tuple(part for part in parts if not self._known(part))
        if not found:
            return WordReading(word, "dropped", (), missed)
        return WordReading(word, "corrected" if len(parts) == 1 else "split", found, missed)


def mask_digits(word: str) -> str:
    """Each digit as ``#``, the convention of the Google-News vocabulary.

    >>> mask_digits("d80")
    'd##'
    """
    return re.sub(r"\d", "#", word)


def count_outcomes(readings: Iterable[WordReading]) -> dict[str, int]:
    """How many words were kept, corrected, split and dropped, and how many there were."""
    counts = Counter(reading.outcome for reading in readings)
    return {**{outcome: counts[outcome] for outcome in OUTCOMES}, "words": counts.total()}


@lru_cache(maxsize=4)
def _speller(more_words: tuple[str, ...]) -> SymSpell:
    """SymSpell with its English dictionary and further words; loading takes seconds."""
    speller = SymSpell(max_dictionary_edit_distance=_MAX_EDIT_DISTANCE, prefix_length=_PREFIX_LENGTH)
    with as_file(files("symspellpy") / "frequency_dictionary_en_82_765.txt") as path:
        speller.load_dictionary(path, term_index=0, count_index=1)
    for word in more_words:
        if word not in speller.words:
            speller.create_dictionary_entry(word, 1)
    return speller


def english_words() -> frozenset[str]:
    """The words of SymSpell's English frequency dictionary: a vocabulary where there are no word vectors."""
    return frozenset(_speller(()).words)
