"""Split texts into words, encode words as token ids, and correct misspelt ones.

Arrays of tokens are ``(n, m)`` int32 with 0 for padding.
"""

import re
import string
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, product, takewhile
from typing import NamedTuple

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


#: Invisible characters within words.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180e"  # soft hyphen, grapheme joiner, Arabic and Mongolian marks
    "\u200b-\u200f\u202a-\u202e"  # zero-width spaces and joiners, directions
    "\u2060-\u2064\u2066-\u206f"  # word joiner, invisible operators, further directions
    "\ufe00-\ufe0f\ufeff]"  # variation selectors, byte order mark
)
#: Counts of letters, by their code points modulo this, preselect similar words.
_LETTERS = 64
#: The first letter of Thai, Chinese, Japanese and Korean, which have no words between spaces, or
#: endings on all.
FIRST_UNSPACED = "\u0e00"
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
class Spelling:
    """Words and how likely each is (the noisy channel of Kernighan, Church and Gale, 1990).

    Attributes:
        words: lower-case word -> the logarithm of its probability.
        likelihood: returns the logarithm of the probability of another word, such as a compound.

    >>> words = {"bicycle": -13.0, "beach": -12.0, "peach": -14.0}
    >>> spelling = Spelling(words, likelihood=lambda word: -4.0 * len(word))
    >>> spelling.corrections("A Bicylce at the baech")[0].text, spelling.corrections("a beach")
    ('A Bicycle at the beach', [])
    """

    words: Mapping[str, float]
    likelihood: Callable[[str], float]

    def corrections(self, text: str, also: Mapping[str, float] | None = None) -> list[Correction]:
        """Replace the unknown words of at least 4 letters by words that may be meant; return the
        likeliest texts, the best first.

        Args:
            text: the text.
            also: further words, as ``words``.
        """
        others = Spelling(also or {}, self.likelihood)
        plain = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
        meant = dict[str, list[Correction]]()
        for word in dict.fromkeys(_long_word().findall(plain)):
            found = self._meant(word, others)[:_MOST_TEXTS]
            if found:
                meant[word] = [Correction(0.0, word), *found]
        if len(meant) > _MOST_TEXTS:
            meant = {word: found[1:2] for word, found in meant.items()}
        chosen = product(*meant.values())
        likeliest = sorted((_mended(plain, list(meant), each) for each in chosen), reverse=True)
        return [each for each in likeliest if each.text != plain][:_MOST_TEXTS]

    def knows_all(self, text: str) -> bool:
        """Return whether every word of at least 4 letters is known. Takes microseconds."""
        plain = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
        return all(self._knows(word.lower()) for word in _long_word().findall(plain))

    def _knows(self, word: str) -> bool:
        return max(word) >= FIRST_UNSPACED or word in self.words or fold(word) in self.words

    def _meant(self, typed: str, others: "Spelling") -> list[Correction]:
        """Return the words that may be meant in place of one, the likeliest first; none for a known
        word, or one that has another ending than a known one.
        """
        word = typed.lower()
        form = fold(word)
        if any(form in each._forms or each._knows(word) for each in (self, others)):
            return []
        limit = self.likelihood(word) + _A_LETTER * len(form)
        found = dict[str, float]()
        for score, name in sorted(chain(self._near(form, limit), others._near(form, limit))):
            found[name.capitalize() if typed[0].isupper() else name] = score - limit
        meant = sorted(map(Correction, found.values(), found), reverse=True)
        close = takewhile(lambda each: each.sureness > meant[0].sureness - _CLOSE, meant)
        is_other_form = any(_is_ending(form, fold(each.text)) for each in close)
        return [] if is_other_form else meant

    def _near(self, form: str, limit: float) -> Iterator[tuple[float, str]]:
        """Yield the words that a form may stand for, with the logarithms of how likely that is;
        ``limit`` is that of a form which is meant as it stands.
        """
        least = limit - _WORST
        most = 1 if len(form) < 7 else 2
        # A slip changes at most two of the counts of letters.
        differences = np.abs(self._letters - _count_letters([form])).sum(axis=1)
        likely = (self._scores > least + _DOUBLED) & (differences <= 2 * most)
        forms = list(self._forms.items())
        for place in np.flatnonzero(likely):
            name, word = forms[place]
            if abs(len(name) - len(form)) <= most:
                score = self.words[word] - _slip_cost(form, name)
                if score > least:
                    yield score, word

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Folded form -> the likeliest word of that form."""
        return {fold(word): word for word in sorted(self.words, key=self.words.__getitem__)}

    @cached_property
    def _letters(self) -> NDArray[np.int8]:
        return _count_letters(list(self._forms))

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        return np.array([self.words[word] for word in self._forms.values()])


def _mended(text: str, words: Sequence[str], chosen: Sequence[Correction]) -> Correction:
    """Return a text with the chosen words in place of those that may not be meant."""
    of = {word: each.text for word, each in zip(words, chosen, strict=True)}
    mended = _long_word().sub(lambda match: of.get(match[0], match[0]), text)
    return Correction(sum(each.sureness for each in chosen), mended)


def _is_ending(form: str, other: str) -> bool:
    """Return whether two words differ only in their endings, as forms of one word do.

    >>> _is_ending("giraffen", "giraffe"), _is_ending("castel", "castle")
    (True, False)
    """
    pairs = zip(form, other, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    ends = form[start:], other[start:]
    is_doubled = form[start - 1 : start] in ends
    if start < _STEM or max(map(len, ends)) > _ENDING or is_doubled or set(ends[0]) == set(ends[1]):
        return False
    return "" in ends or all(end[0] in _ALIKE[0] for end in ends)


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
