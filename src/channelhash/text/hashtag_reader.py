"""Read hashtags: keep known words, segment and correct others, drop and count the rest."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Literal

from symspellpy import SymSpell

from channelhash.text.tokens import split_words

_Outcome = Literal["kept", "corrected", "split", "dropped"]

#: Letters; the time to split a word grows with its length, and no tag of a person is as long.
_LONGEST_WORD = 300
_MAX_EDIT_DISTANCE = 2
_PREFIX_LENGTH = 7


@dataclass(frozen=True)
class _WordReading:
    """One word of a text.

    Attributes:
        word: lower-case word of the text.
        outcome: ``kept`` is known as it is; ``corrected`` became one other known word; ``split`` became several parts,
            of which at least one is known; ``dropped`` is unknown in every reading, such as a word of another script.
        tokens: known words that it became.
        unknown: parts that were dropped.

    >>> _WordReading("bluesky", "split", ("blue", "sky")).tokens
    ('blue', 'sky')
    """

    word: str
    outcome: _Outcome
    tokens: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class TextReader:
    """Reader of texts by ``protocol.md`` § 2: lower-case, each digit ``#`` before look-up, then segmentation.

    Args:
        known: whether a word (with ``#`` for digits) is in the vocabulary.
        more_words: the vocabulary's own words, added to the English frequency dictionary of SymSpell at count 1.
            SymSpell keeps the deletes of every word in memory (about 1 kB a word): give the most frequent words of a
            large vocabulary.
    """

    def __init__(self, known: Callable[[str], bool], more_words: Iterable[str] = ()) -> None:
        self._known = known
        self._speller = _speller(tuple(more_words))
        self._letters = frozenset().union(*self._speller.words)
        self._read_word = lru_cache(maxsize=200_000)(self._read_one)

    def read(self, text: str) -> tuple[_WordReading, ...]:
        """Read every word of a text."""
        return tuple(self._read_word(word) for word in split_words(text))

    def tokens(self, text: str, max_tokens: int = 128) -> list[str]:
        """Return the first ``max_tokens`` known words of a text."""
        return [token for reading in self.read(text) for token in reading.tokens][:max_tokens]

    def _read_one(self, word: str) -> _WordReading:
        masked = _mask_digits(unicodedata.normalize("NFC", word))
        if self._known(masked):
            return _WordReading(word, "kept", (masked,))
        if len(word) > _LONGEST_WORD or not any(letter.isalpha() for letter in word):
            return _WordReading(word, "dropped", (), (masked,))  # nothing to spell or split
        # Masked before it is segmented: the vocabulary's own words have their digits masked, so "nikon2007" can
        # become "nikon ####", while no dictionary knows "2007" and it would be corrected to some short word.
        parts = [part for spelt, run in _runs(masked, self._letters) for part in self._parts(run, spelt)]
        tokens = tuple(part for part in parts if self._known(part))
        unknown = tuple(part for part in parts if not self._known(part))
        if not tokens:
            return _WordReading(word, "dropped", (), unknown)
        return _WordReading(word, "corrected" if len(parts) == 1 else "split", tokens, unknown)

    def _parts(self, run: str, spelt: bool) -> Iterator[str]:
        """Segment a run of letters that the dictionary spells; any other run is one part."""
        if not spelt or self._known(run) or not any(letter.isalpha() for letter in run):
            yield run
            return
        found = self._speller.word_segmentation(run, max_edit_distance=_MAX_EDIT_DISTANCE)
        for part, corrected in zip(found.segmented_string.split(), found.corrected_string.lower().split(), strict=True):
            # Two edits make "of" of any two characters.
            yield corrected if _bases(part) & _bases(corrected) else part


def english_reader() -> TextReader:
    """Return a reader that knows the words of SymSpell's English dictionary; it loads in seconds."""
    return TextReader(_speller(()).words.__contains__)


def _runs(word: str, letters: frozenset[str]) -> Iterator[tuple[bool, str]]:
    """Split a word where its characters change between those that the dictionary can spell and all others.

    Latin letters count as spelt, since a correction may drop an accent.

    >>> list(_runs("tokyo東京tower", frozenset("tokywer")))
    [(True, 'tokyo'), (False, '東京'), (True, 'tower')]
    """
    run, spelt = "", True
    for letter in word:
        if letter.isascii() or letter in letters:
            fits = True
        elif unicodedata.category(letter) in ("Mn", "Mc", "Cf"):
            fits = spelt  # a mark belongs to the letter before it
        else:
            fits = "LATIN" in unicodedata.name(letter, "")
        if run and fits != spelt:
            yield spelt, run
            run = ""
        run, spelt = run + letter, fits
    yield spelt, run


def _bases(text: str) -> set[str]:
    """Return the characters of a text without their accents."""
    return set(unicodedata.normalize("NFKD", text.lower()))


def _mask_digits(word: str) -> str:
    """Replace each digit by ``#``, the convention of the Google-News vocabulary.

    >>> _mask_digits("d80")
    'd##'
    """
    return re.sub(r"\d", "#", word)


@lru_cache(maxsize=4)
def _speller(more_words: tuple[str, ...]) -> SymSpell:
    """Load SymSpell with its English dictionary and further words; this takes seconds."""
    speller = SymSpell(max_dictionary_edit_distance=_MAX_EDIT_DISTANCE, prefix_length=_PREFIX_LENGTH)
    with as_file(files("symspellpy") / "frequency_dictionary_en_82_765.txt") as path:
        speller.load_dictionary(path, term_index=0, count_index=1)
    for word in more_words:
        if word not in speller.words:
            speller.create_dictionary_entry(word, 1)
    return speller
