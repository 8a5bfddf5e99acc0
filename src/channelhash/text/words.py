"""Split texts into words, encode words as token ids, and correct misspelt ones.

Arrays of tokens are ``(n, m)`` int32 with 0 for padding.
"""

import re
import string
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

#: Characters stripped from both ends of a word.
PUNCTUATION = "#.,;:!?\"'()[]{}…“”„’"
#: Letters of scripts without spaces between words: Thai; Lao; Burmese; Khmer; Korean; Kana,
#: Bopomofo and Chinese, beginning with their iteration marks; Yi.
UNSPACED_LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef"
    "\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd\u1100-\u11ff\u3131-\u318e\ua960-\ua97c"
    "\uac00-\ud7fb\u3005-\u3007\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
    "\ua000-\ua48c"
)
_UNSPACED = re.compile(f"[{UNSPACED_LETTERS}]")
#: The first letter of Thai, Chinese, Japanese and Korean, which have no words between spaces, or
#: endings on all.
FIRST_UNSPACED = "\u0e00"


def split_words(text: str) -> list[str]:
    """Split a text at white space into lower-case words, without a leading ``#`` or the punctuation
    around them.

    >>> split_words('#BlueSky, "two  dogs".')
    ['bluesky', 'two', 'dogs']
    """
    words = (word.strip(PUNCTUATION) for word in text.lower().split())
    return [word for word in words if word]


def count_words(text: str) -> float:
    """Return the number of a text's words, at least 1. Two letters of a script without spaces
    between words count as one.

    >>> count_words("a dog, on the beach"), count_words("海滩上的狗"), count_words("…")
    (5.0, 2.5, 1.0)
    """
    letters = _UNSPACED.findall(text)
    others = split_words(_UNSPACED.sub(" ", text))
    return max(1.0, len(others) + len(letters) / 2)


def compose(text: str) -> str:
    """Return a text without invisible characters, its letters composed with their marks.

    >>> compose("Ge\u00adschwindigkeit"), len(compose("e\u0301"))
    ('Geschwindigkeit', 1)
    """
    return unicodedata.normalize("NFC", _UNSEEN.sub("", text))


def fold(text: str) -> str:
    """Return the form of a text in which words are compared, both of stored texts and of questions.

    Spellings that people use for the same word get the same form. Letters that distinguish words
    are kept, and so are marks that act as letters: the vowel signs of Indian, Thai and Khmer
    scripts, and voiced kana.

    * All scripts: case (ß = ss, ς = σ, İ = ı = i), composed and decomposed forms, half and full
      width, ligatures (ﬁ = fi) and digits (٢٠١٩ = 2019) are equal. Invisible characters are
      removed: soft hyphens, joiners, zero-width spaces, directions, variation selectors.
    * Latin: accents (é = e, ü = u, but not ue), strokes and hooks (ł = l, ø = o, đ = d, ɓ = b) are
      removed; æ = ae, œ = oe, þ = th, ð = d.
    * Greek and Cyrillic: accents are removed (ά = α, ϊ = ι, ё = е), except in й, ї, ў, ѓ and ќ,
      which have their own keys.
    * Hebrew and Syriac: points and accents are removed.
    * Arabic and Persian: vowel signs and tatweel are removed; أ إ آ ٱ = ا, ى ی = ي, ة ۀ ہ = ه,
      ک = ك, as in Lucene's Arabic and Persian normalizers. ے and ي stay apart, as they distinguish
      words of Urdu.
    * Hindi: nukta is removed, ँ = ं, as in Lucene's Hindi normalizer.
    * Bengali ৎ and the chillu letters of Malayalam equal their older spellings with a joiner.

    Folding is idempotent. It keeps line breaks and punctuation, and takes under 1 µs a character.

    >>> fold("Straße, ŁÓDŹ"), fold("Άγιος") == fold("αγιοσ"), fold("Ge\u00adschwindig\u00adkeit")
    ('strasse, lodz', True, 'geschwindigkeit')
    """
    if text.isascii():
        return text.lower()
    # An invisible character may separate a letter from its mark; without it they compose.
    composed = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    return unicodedata.normalize("NFC", composed.translate(_FORMS))


#: Invisible characters within words.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180e"  # soft hyphen, grapheme joiner, Arabic and Mongolian marks
    "\u200b-\u200f\u202a-\u202e"  # zero-width spaces and joiners, directions
    "\u2060-\u2064\u2066-\u206f"  # word joiner, invisible operators, further directions
    "\ufe00-\ufe0f\ufeff]"  # variation selectors, byte order mark
)
#: Letters that Unicode decomposes, although they are not variants of another letter.
_KEPT = frozenset("йїўѓќؤئ")
#: Forms of letters that Unicode does not decompose.
_VARIANTS = {
    "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i", "ŋ": "n", "ĸ": "k", "ɛ": "e", "ɔ": "o",
    **dict.fromkeys("ʹʻʼʽʾʿ’‘", "'"),  # all apostrophes, as in п’ять
    "ٱ": "ا", "ى": "ي", "ی": "ي", "ة": "ه", "ۀ": "ه", "ہ": "ه", "ک": "ك", "ـ": "",
    "ँ": "ं", "ৎ": "ত্", "ൺ": "ണ്", "ൻ": "ന്", "ർ": "ര്", "ൽ": "ല്", "ൾ": "ള്", "ൿ": "ക്",
    **dict.fromkeys("\u115f\u1160\u17b4\u17b5", ""),  # invisible fillers
}  # fmt: skip
#: Names of marks that people leave out. All other marks act as letters, as those of kana do.
_LEFT_OUT = re.compile(
    "(COMBINING(?! KATAKANA)|ARABIC|HEBREW|SYRIAC|VARIATION|MONGOLIAN FREE|DEVANAGARI SIGN NUKTA)"
)
#: Name of a Latin letter with a stroke, a hook or the like.
_WITH_MARK = re.compile("LATIN SMALL LETTER ([A-Z]) WITH ")


class _Forms(dict[int, str]):
    """Forms of letters by code point, for `str.translate`; each is computed when first needed."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        small = letter.lower()
        if small in _KEPT:
            form = small
        elif letter in _VARIANTS:
            form = _VARIANTS[letter]
        else:
            form = "".join(map(_fold_part, unicodedata.normalize("NFKD", letter)))
        self[code] = form
        return form


_FORMS = _Forms()


def _fold_part(letter: str) -> str:
    """Return the form of a letter or mark that cannot be decomposed."""
    category = unicodedata.category(letter)
    name = unicodedata.name(letter, "")
    if category == "Cf" or (category in ("Mn", "Me") and _LEFT_OUT.match(name)):
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    small = letter.casefold()
    if len(small) > 1:
        return small
    with_mark = _WITH_MARK.match(unicodedata.name(small, ""))
    return with_mark[1].lower() if with_mark else _VARIANTS.get(small, small)


@dataclass(frozen=True)
class Vocabulary:
    """Known words; the token of ``words[i]`` is ``i + 1``.

    >>> Vocabulary.from_texts(["a dog", "dog and cat"], min_count=1).token["dog"]
    1
    """

    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 2) -> "Vocabulary":
        """Collect the words that occur at least ``min_count`` times, most frequent first and then
        in alphabetical order.
        """
        counts = Counter(chain.from_iterable(map(split_words, texts)))
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
        return pad_tokens([self._known_tokens(text) for text in texts], max_tokens)

    def _known_tokens(self, text: str) -> list[int]:
        return [self.token[word] for word in split_words(text) if word in self.token]


def pad_tokens(tokens: Sequence[Sequence[int]], max_tokens: int) -> NDArray[np.int32]:
    """Return lists of token ids as rows: the first ``max_tokens`` of each, padded with 0."""
    ids = np.zeros((len(tokens), max_tokens), dtype=np.int32)
    for row, several in enumerate(tokens):
        ids[row, : len(several)] = several[:max_tokens]
    return ids


#: Blocks of ideographs, each of which BERT treats as a word.
_IDEOGRAPHS = (
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B920, 0x2CEB0),
    range(0x2F800, 0x2FA20),
)
#: Letters of the longest word that has pieces, as in the authors' library.
_LONGEST_WORD = 100


@dataclass(frozen=True)
class WordPieces:
    """Tokens of BERT for lower-case texts without accents (Devlin et al., 2019, § 3): words or
    pieces of words.

    Attributes:
        words: the word or piece of each token; a piece that continues a word begins with ``##``.

    >>> WordPieces(("[UNK]", "[CLS]", "[SEP]", "a", "dog", "##s"))("A dogs, é", 256)
    [1, 3, 4, 5, 0, 0, 2]
    """

    words: tuple[str, ...]

    def __call__(self, text: str, max_tokens: int) -> list[int]:
        """Return at most ``max_tokens`` tokens of a text, including those that frame it."""
        pieces = [*chain.from_iterable(map(self._pieces, _split_bert_words(text)))]
        return [self._token["[CLS]"], *pieces[: max_tokens - 2], self._token["[SEP]"]]

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def _pieces(self, word: str) -> list[int]:
        """Cut a word into the longest known pieces, from left to right; return the unknown token
        if that fails.
        """
        unknown = [self._token["[UNK]"]]
        if len(word) > _LONGEST_WORD:
            return unknown
        pieces = list[int]()
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._token), None)
            if end is None:
                return unknown
            pieces.append(self._token[prefix + word[start:end]])
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


#: What SentencePiece writes for a space.
_SPACE = "\u2581"


@dataclass(frozen=True)
class SentencePieces:
    """Tokens of a unigram language model (Kudo, 2018): the likeliest way to cut a text into known
    pieces.

    Attributes:
        words: the piece of each token; ``▁`` stands for a space, and begins each text.
        scores: the logarithm of the probability of each piece.

    >>> words = ("[UNK]", "<s>", "</s>", "▁dog", "s", "▁do", "gs")
    >>> SentencePieces(words, (0, 0, 0, -3, -4, -3, -5))("dogsé")
    [1, 3, 4, 0, 2]
    """

    words: tuple[str, ...]
    scores: tuple[float, ...]

    @classmethod
    def parse(cls, content: bytes) -> "SentencePieces":
        """Read the pieces of a SentencePiece model. Each consists of two short fields: a text and
        a float.
        """
        words = list[str]()
        scores = list[float]()
        place = 0
        while content[place] == 0x0A:
            end = place + 4 + content[place + 3]
            words.append(content[place + 4 : end].decode())
            is_written = content[end] == 0x15  # a score of 0 is left out
            scores.append(struct.unpack_from("<f", content, end + 1)[0] if is_written else 0.0)
            place += 2 + content[place + 1]
        return cls(tuple(words), tuple(scores))

    @cached_property
    def token(self) -> dict[str, int]:
        """Tokens by piece."""
        return dict(zip(self.words, range(len(self.words)), strict=True))

    @cached_property
    def _limits(self) -> tuple[int, float]:
        """Length of the longest piece, and the score of an unknown character."""
        return max(map(len, self.words)), min(self.scores) - 10

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that frame it."""
        plain = unicodedata.normalize("NFKC", " ".join(text.replace("\u200b", " ").split())).strip()
        text = _SPACE + plain.replace(" ", _SPACE) if plain else ""
        longest, unknown = self._limits
        # The best cut of the text before each place: its score, and the start and token of its last
        # piece.
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
        tokens = list[int]() if text else [0]
        end = len(text)
        while end:
            _, end, piece = best[end]
            tokens.append(piece)
        return [1, *reversed(tokens), 2]
