"""What a question may have meant: words that nobody knows, and known ones that differ from them by a letter or two."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W\d_]{4,}")
# Words from this length on may differ by two letters.
_LONG = 7
# Letters are told apart modulo this.
_LETTERS = 64


@dataclass(frozen=True)
class Spelling:
    """Words and how likely each is.

    Attributes:
        words: word in small letters -> the logarithm of its probability, or any other measure of how common it is.
        known: whether a word that is not among them is one all the same, such as a compound.

    >>> spelling = Spelling({"bicycle": -13.0, "beach": -12.0, "peach": -14.0}, known=lambda word: word == "along")
    >>> spelling.correct("a bycicle along the Deach"), spelling.correct("a beach")
    ('a bicycle along the beach', None)
    """

    words: Mapping[str, float]
    known: Callable[[str], bool]

    def correct(self, text: str) -> str | None:
        """Return a text with the nearest word, of equally near ones the likeliest, for each unknown one of at least 4
        letters; None where no word is unknown, or none is near.
        """
        corrected = _WORD.sub(lambda word: self._nearest(word[0].lower()) or word[0], text)
        return corrected if corrected != text else None

    def knows_all(self, text: str) -> bool:
        """Return whether no word of at least 4 letters is unknown, which takes microseconds."""
        return all(self._knows(word.lower()) for word in _WORD.findall(text))

    def _knows(self, word: str) -> bool:
        return word in self.words or self.known(word)

    def _nearest(self, word: str) -> str | None:
        if self._knows(word):
            return None
        most = 1 if len(word) < _LONG else 2
        names, counts = self._letters
        # Each change of a letter changes two of these counts at most, and so does each letter too many or too few.
        similar = np.flatnonzero(np.abs(counts - _count_letters([word])).sum(axis=1) <= 2 * most)
        near = [(edits, name) for name in (names[place] for place in similar) if (edits := _edits(word, name)) <= most]
        return min(near, key=lambda pair: (pair[0], -self.words[pair[1]], pair[1]))[1] if near else None

    @cached_property
    def _letters(self) -> tuple[list[str], NDArray[np.int8]]:
        names = list(self.words)
        return names, _count_letters(names)


def _count_letters(words: list[str]) -> NDArray[np.int8]:
    letters = np.frombuffer("".join(words).encode("utf-32-le"), "<u4") % _LETTERS
    counts = np.zeros((len(words), _LETTERS), np.int8)
    np.add.at(counts, (np.repeat(np.arange(len(words)), [len(word) for word in words]), letters), 1)
    return counts


def _edits(first: str, second: str) -> int:
    """Count the letters to insert, delete, replace or swap with the next one (optimal string alignment).

    >>> _edits("bycicle", "bicycle"), _edits("beahc", "beach")
    (2, 1)
    """
    above, row = list[int](), list(range(len(second) + 1))
    for i, letter in enumerate(first, start=1):
        before, above, row = above, row, [i]
        for j, other in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (letter != other)))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                row[-1] = min(row[-1], before[j - 2] + 1)
    return row[-1]
