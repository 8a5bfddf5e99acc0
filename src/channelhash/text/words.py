"""Words of texts as token ids, looked up in a vocabulary, and what those that nobody knows may have
meant.

Arrays of tokens are ``(n, m)`` int32 with 0 for padding.
"""

import re
import string
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Characters stripped from both ends of a word.
PUNCTUATION = "#.,;:!?\"'()[]{}…“”„’"


def split_words(text: str) -> list[str]:
    """Split a text at white space into lower-case words without a leading ``#`` and enclosing
    punctuation.

    >>> split_words('#BlueSky, "two  dogs".')
    ['bluesky', 'two', 'dogs']
    """
    words = (word.strip(PUNCTUATION) for word in text.lower().split())
    return [word for word in words if word]


@dataclass(frozen=True)
class Vocabulary:
    """Known words; the token of ``words[i]`` is ``i + 1``.

    >>> Vocabulary.from_texts(["a dog", "dog and cat"], min_count=1).token["dog"]
    1
    """

    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 2) -> "Vocabulary":
        """Collect the words that occur at least ``min_count`` times, most frequent first, ties by
        alphabet.
        """
        counts = Counter(word for text in texts for word in split_words(text))
        frequent = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(frequent, key=lambda word: (-counts[word], word))))

    @cached_property
    def token(self) -> dict[str, int]:
        """Tokens by word."""
        return {word: i + 1 for i, word in enumerate(self.words)}

    def encode(self, texts: Sequence[str], max_tokens: int) -> NDArray[np.int32]:
        """Look up the token ids of the known words of each text.

        >>> Vocabulary(("dog", "cat")).encode(["A dog!", "big cat"], max_tokens=2).tolist()
        [[1, 0], [2, 0]]
        """
        tokens = [
            [self.token[word] for word in split_words(text) if word in self.token] for text in texts
        ]
        return pad_tokens(tokens, max_tokens)


def pad_tokens(tokens: Sequence[Sequence[int]], max_tokens: int) -> NDArray[np.int32]:
    """Return lists of token ids as rows: the first ``max_tokens`` of each, padded with 0."""
    ids = np.zeros((len(tokens), max_tokens), dtype=np.int32)
    for row, several in enumerate(tokens):
        ids[row, : len(several)] = several[:max_tokens]
    return ids


# Blocks of the ideographs that BERT takes for words of their own.
_IDEOGRAPHS = (
    *(range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x2A6E0)),
    *(
        range(0x2A700, 0x2B740),
        range(0x2B740, 0x2B820),
        range(0x2B920, 0x2CEB0),
        range(0x2F800, 0x2FA20),
    ),
)


@dataclass(frozen=True)
class WordPieces:
    """Tokens of BERT for texts in small letters without accents (Devlin et al., 2019, § 3): words,
    or their pieces.

    Attributes:
        words: the word or piece of each token; one that continues a word begins with ``##``.

    >>> WordPieces(("[UNK]", "[CLS]", "[SEP]", "a", "dog", "##s"))("A dogs, é", 256)
    [1, 3, 4, 5, 0, 0, 2]
    """

    words: tuple[str, ...]

    def __call__(self, text: str, max_tokens: int) -> list[int]:
        """Return at most ``max_tokens`` tokens of a text, the first and the last ones of which
        frame it.
        """
        pieces = [piece for word in _split_bert_words(text) for piece in self._pieces(word)]
        return [self._token["[CLS]"], *pieces[: max_tokens - 2], self._token["[SEP]"]]

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def _pieces(self, word: str) -> list[int]:
        """Return the longest known pieces of a word, from left to right; the unknown token where
        there are none.
        """
        pieces, start = list[int](), 0
        while start < len(word):
            ends = range(len(word), start, -1)
            known = (
                end for end in ends if ("##" if start else "") + word[start:end] in self._token
            )
            # as the library of its authors
            if (end := next(known, None)) is None or len(word) > 100:
                return [self._token["[UNK]"]]
            pieces.append(self._token[("##" if start else "") + word[start:end]])
            start = end
        return pieces


def _split_bert_words(text: str) -> list[str]:
    """Split a text at white space and around punctuation and ideographs.

    >>> _split_bert_words("Ça va?")
    ['ca', 'va', '?']
    """

    def cleaned(character: str) -> str:
        if character in "\t\n\r " or unicodedata.category(character) in ("Zs", "Zl", "Zp"):
            return " "
        if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
            return ""
        return (
            f" {character} " if any(ord(character) in block for block in _IDEOGRAPHS) else character
        )

    def parted(character: str) -> str:
        is_mark = character in string.punctuation or unicodedata.category(character).startswith("P")
        return f" {character} " if is_mark else character

    plain = unicodedata.normalize("NFD", "".join(map(cleaned, text)))
    bare = "".join(
        character.lower() for character in plain if unicodedata.category(character) != "Mn"
    )
    return "".join(map(parted, bare)).split()


_SPACE = "\u2581"


@dataclass(frozen=True)
class SentencePieces:
    """Tokens of a unigram language model (Kudo, 2018): of all ways to cut a text into known pieces,
    the likeliest.

    Attributes:
        words: the piece of each token; ``▁`` stands for a space, and is put in front of a text.
        scores: the logarithm of the probability of each.

    >>> SentencePieces(("[UNK]", "<s>", "</s>", "▁dog", "s", "▁do", "gs"), (0, 0, 0, -3, -4, -3, -5))("dogsé")
    [1, 3, 4, 0, 2]
    """

    words: tuple[str, ...]
    scores: tuple[float, ...]

    @classmethod
    def parse(cls, content: bytes) -> "SentencePieces":
        """Read the pieces of a model of SentencePiece, of which each is two short fields: a text
        and a float.
        """
        words, scores, place = list[str](), list[float](), 0
        while content[place] == 0x0A:
            end = place + 4 + content[place + 3]
            words.append(content[place + 4 : end].decode())
            is_written = content[end] == 0x15  # 0 is not
            scores.append(struct.unpack_from("<f", content, end + 1)[0] if is_written else 0.0)
            place += 2 + content[place + 1]
        return cls(tuple(words), tuple(scores))

    @cached_property
    def token(self) -> dict[str, int]:
        """Tokens by piece."""
        return dict(zip(self.words, range(len(self.words)), strict=True))

    @cached_property
    def _limits(self) -> tuple[int, float]:
        """Length of the longest piece, and what an unknown character counts."""
        return max(map(len, self.words)), min(self.scores) - 10

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text; the first and the last ones frame it."""
        plain = unicodedata.normalize("NFKC", " ".join(text.replace("\u200b", " ").split())).strip()
        text = _SPACE + plain.replace(" ", _SPACE) if plain else ""
        longest, unknown = self._limits
        # Of the best cut before each place: its score, where its last piece begins, and that piece.
        best = [(0.0, 0, 0)] + [(-np.inf, 0, 0)] * len(text)
        for start in range(len(text)):
            so_far = best[start][0]
            if text[start] not in self.token:
                best[start + 1] = max(
                    best[start + 1], (so_far + unknown, start, 0), key=lambda cut: cut[0]
                )
            for end in range(start + 1, min(start + longest, len(text)) + 1):
                piece = self.token.get(text[start:end])
                if piece is not None and so_far + self.scores[piece] > best[end][0]:
                    best[end] = so_far + self.scores[piece], start, piece
        tokens, end = list[int]() if text else [0], len(text)
        while end:
            _, end, piece = best[end]
            tokens.append(piece)
        return [1, *reversed(tokens), 2]


_WORD = re.compile(r"[^\W\d_]{4,}")
# Letters are told apart modulo this.
_LETTERS = 64


@dataclass(frozen=True)
class Spelling:
    """Words and how likely each is.

    Attributes:
        words: word in small letters -> the logarithm of its probability, or any other measure of
            how common it is.
        known: whether a word that is not among them is one all the same, such as a compound.

    >>> spelling = Spelling({"bicycle": -13.0, "beach": -12.0, "peach": -14.0}, known=lambda word: word == "along")
    >>> spelling.correct("a bycicle along the Deach"), spelling.correct("a beach")
    ('a bicycle along the beach', None)
    """

    words: Mapping[str, float]
    known: Callable[[str], bool]

    def correct(self, text: str) -> str | None:
        """Return a text with the nearest word, of equally near ones the likeliest, for each unknown
        one of at least 4 letters; None where no word is unknown, or none is near.
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
        most = 1 if len(word) < 7 else 2  # letters by which they may differ
        names, counts = self._letters
        # Each change of a letter changes two of these counts at most, and so does each letter too
        # many or too few.
        similar = np.flatnonzero(np.abs(counts - _count_letters([word])).sum(axis=1) <= 2 * most)
        near = [
            (edits, name)
            for name in (names[place] for place in similar)
            if (edits := _edits(word, name)) <= most
        ]
        return (
            min(near, key=lambda pair: (pair[0], -self.words[pair[1]], pair[1]))[1]
            if near
            else None
        )

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
    """Count the letters to insert, delete, replace or swap with the next one (optimal string
    alignment).

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
