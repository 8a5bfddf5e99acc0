"""Convert word vectors in word2vec's formats to a memory-mapped cache, and read hashtags as words.

Known words of hashtags are kept. Others are segmented and corrected, or dropped and counted.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import as_file, files
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from symspellpy import SymSpell

from channelhash.errors import InputError
from channelhash.text.words import pad_tokens, split_words
from channelhash.utils.files import sync, temporary_folder
from channelhash.utils.hashes import content_hash
from channelhash.utils.progress import Progress
from channelhash.utils.row_file import row_file

#: Letters of the longest word that is split: the time grows with the length, and people write no
#: longer tags.
_LONGEST_WORD = 300


class _WordReading(NamedTuple):
    """One word of a text.

    Attributes:
        word: lower-case word of the text.
        outcome: ``kept`` if the word is known; ``corrected`` if it became another known word;
            ``split`` if it became several parts, at least one of them known; ``dropped`` if it is
            unknown in every reading, such as a word of another script.
        tokens: the known words that it became.
        unknown: the parts that were dropped.

    >>> _WordReading("bluesky", "split", ("blue", "sky")).tokens
    ('blue', 'sky')
    """

    word: str
    outcome: Literal["kept", "corrected", "split", "dropped"]
    tokens: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class _TextReader:
    """Reads texts as ``protocol.md`` § 2 says: lower-cases them, replaces each digit by ``#``,
    looks words up, and segments the unknown ones.
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
        tokens = chain.from_iterable(reading.tokens for reading in self.read(text))
        return list(islice(tokens, max_tokens))

    def _read_one(self, word: str) -> _WordReading:
        # Digits are masked as in the vocabulary of Google News, and before the word is segmented:
        # "nikon2007" becomes "nikon ####". No dictionary knows "2007", which would be corrected to
        # some short word.
        masked = re.sub(r"\d", "#", unicodedata.normalize("NFC", word))
        if self._known(masked):
            return _WordReading(word, "kept", (masked,))
        if len(word) > _LONGEST_WORD or not _has_letter(word):
            return _WordReading(word, "dropped", (), (masked,))
        known, unknown = self._segment(masked)
        if not known:
            return _WordReading(word, "dropped", (), unknown)
        is_whole = len(known) + len(unknown) == 1
        return _WordReading(word, "corrected" if is_whole else "split", known, unknown)

    def _segment(self, word: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split a word into parts, and return the known and the unknown ones."""
        known = list[str]()
        unknown = list[str]()
        for is_spelt, run in _runs(word, self._letters):
            for part in self._parts(run, is_spelt):
                (known if self._known(part) else unknown).append(part)
        return tuple(known), tuple(unknown)

    def _parts(self, run: str, is_spelt: bool) -> Iterator[str]:
        """Segment a run of characters that the dictionary can spell; any other run is one part."""
        if not is_spelt or self._known(run) or not _has_letter(run):
            yield run
            return
        segments = self._speller.word_segmentation(run)
        parts = segments.segmented_string.split()
        corrections = segments.corrected_string.lower().split()
        for part, corrected in zip(parts, corrections, strict=True):
            # Two edits turn any two characters into "of".
            yield corrected if _bases(part) & _bases(corrected) else part


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def english_reader() -> _TextReader:
    """Return a reader that knows the words of SymSpell's English dictionary. Takes seconds to
    load.
    """
    return _TextReader(_speller(()).words.__contains__)


def _runs(word: str, letters: frozenset[str]) -> Iterator[tuple[bool, str]]:
    """Split a word into runs of characters that the dictionary can spell, or cannot; yield whether
    it can, and the run.

    All Latin letters count as spelt, since a correction may drop an accent.

    >>> list(_runs("tokyo東京tower", frozenset("tokywer")))
    [(True, 'tokyo'), (False, '東京'), (True, 'tower')]
    """
    run = ""
    was_spelt = True
    for letter in word:
        if letter.isascii() or letter in letters:
            is_spelt = True
        elif unicodedata.category(letter) in ("Mn", "Mc", "Cf"):
            is_spelt = was_spelt  # a mark belongs to the letter before it
        else:
            is_spelt = "LATIN" in unicodedata.name(letter, "")
        if run and is_spelt != was_spelt:
            yield was_spelt, run
            run = ""
        run += letter
        was_spelt = is_spelt
    yield was_spelt, run


def _bases(text: str) -> set[str]:
    """Return the characters of a text without their accents."""
    return set(unicodedata.normalize("NFKD", text.lower()))


@lru_cache(maxsize=4)
def _speller(more_words: tuple[str, ...]) -> SymSpell:
    """Load SymSpell with its English dictionary and further words. Takes seconds."""
    speller = SymSpell(max_dictionary_edit_distance=2, prefix_length=7)
    with as_file(files("symspellpy") / "frequency_dictionary_en_82_765.txt") as path:
        speller.load_dictionary(path, term_index=0, count_index=1)
    for word in more_words:
        if word not in speller.words:
            speller.create_dictionary_entry(word, 1)
    return speller


#: How many words of word vectors, the most frequent first, help the segmentation. The protocol
#: takes all, but SymSpell needs about 1.2 kB for each: 3.6 GB for 3,000,000.
SEGMENTATION_WORDS = 100_000
#: Texts encoded at once.
_CHUNK = 2048
#: Version of the cache of word vectors. Raise it when the files change.
_FORMAT = "channelhash word vectors 3"
#: Version of the reading of texts. Raise it when texts are read differently.
_READING = "reading 2"
#: Bytes of a block of a file that enters its hash.
_BLOCK = 1 << 20
#: Blocks that enter the hash of a file.
_SAMPLES = 16
#: Files of the cache; those of arrays come first.
_FILES = ("hashes.npy", "rows.npy", "offsets.npy", "vectors.bin", "words.bin")
#: Bytes of the longest word of a binary file; a longer run without a space is no word.
_LONGEST_ENTRY = 10_000
#: Type of the stored vectors, of half the size of float32.
_DTYPE = "float16"
#: Words with their vectors.
_WordEntries = Iterator[tuple[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and their vectors, memory-mapped: they open at once, and workers share them.

    Attributes:
        vectors: ``(V, d)``, that of the most frequent word first.
        hash: identifies the words and vectors, and enters the key of every cache built with them.
    """

    vectors: NDArray[np.floating]
    hash: str
    _hashes: NDArray[np.uint64]
    _rows: NDArray[np.int32]
    _offsets: NDArray[np.int64]
    _words: NDArray[np.uint8]

    @classmethod
    def open(cls, path: Path, cache: Path) -> "WordVectors":
        """Open a word2vec file (binary if it ends in ``.bin``, else text) through a cache.

        The first call converts the file to a folder below ``cache``, named after the file and a
        hash of the format version, the file's size and 16 blocks of 1 MiB spread over it. Another
        file or format thus gets another cache. An interrupted conversion starts over. Words are
        lower-cased; of several casings of a word, the first and most frequent one is used
        (``protocol.md`` § 2).
        """
        if not path.is_file():
            raise InputError(f"{path}: no such file of word vectors")
        source = content_hash(_FORMAT.encode(), _sampled_hash(path).encode())
        folder = cache / f"{path.stem}-{_DTYPE}-{source[:16]}"
        if not folder.is_dir():
            _build(path, folder, source)
        key = content_hash(source.encode(), _DTYPE.encode())[:16]
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta != _meta(folder, source):
                raise ValueError("content or source differs from what was built")
            hashes, rows, offsets = (np.load(folder / name, mmap_mode="r") for name in _FILES[:3])
            vectors = np.memmap(folder / "vectors.bin", dtype=_DTYPE, mode="r")
            words = np.memmap(folder / "words.bin", dtype=np.uint8, mode="r")
            return cls(vectors.reshape(len(rows), -1), key, hashes, rows, offsets, words)
        except (OSError, ValueError, TypeError) as error:
            line = f"{folder}: damaged cache of word vectors ({error}); remove it to build it again"
            raise InputError(line) from None

    def __len__(self) -> int:
        return len(self.vectors)

    def row(self, word: str) -> int | None:
        """Return the row of a word, None if it is unknown. Takes O(log V)."""
        word_hash = np.uint64(_hash_word(word))
        place = int(np.searchsorted(self._hashes, word_hash))
        if place == len(self._hashes) or self._hashes[place] != word_hash:
            return None
        row = int(self._rows[place])
        # an unknown word may have the hash of a known one
        return row if self.word(row) == word else None

    def word(self, row: int) -> str:
        """Return the word of a row."""
        start = int(self._offsets[row])
        end = int(self._offsets[row + 1])
        return self._words[start:end].tobytes().decode()

    def reader(self, segmentation_words: int = SEGMENTATION_WORDS) -> _TextReader:
        """Make a reader that knows these words. The ``segmentation_words`` most frequent ones help
        it to segment.
        """
        frequent = map(self.word, range(min(segmentation_words, len(self))))
        return _TextReader(lambda word: self.row(word) is not None, frequent)

    def encode(
        self, texts: Sequence[str], reader: _TextReader, max_tokens: int = 128
    ) -> NDArray[np.int32]:
        """Encode the known words of each text. Token ``t`` stands for row ``t − 1`` of
        ``vectors``.
        """
        tokens = [self._tokens_of(reader.tokens(text, max_tokens)) for text in texts]
        return pad_tokens(tokens, max_tokens)

    def _tokens_of(self, words: Iterable[str]) -> list[int]:
        rows = map(self.row, words)
        return [row + 1 for row in rows if row is not None]

    def encode_cached(
        self,
        texts: Sequence[str],
        folder: Path,
        segmentation_words: int = SEGMENTATION_WORDS,
        max_tokens: int = 128,
        progress: Progress | None = None,
    ) -> NDArray[np.int32]:
        """Encode a collection through a cache of token ids (``protocol.md`` § 2).

        An interrupted build goes on with the first missing chunk. SymSpell is loaded only if a
        chunk is missing.
        """
        if not texts:
            return np.zeros((0, max_tokens), np.int32)
        reader = cache(lambda: self.reader(segmentation_words))
        chunks = [texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK)]
        key = {
            "reading": f"{_READING} {segmentation_words}",
            "vocabulary": self.hash,
            "texts": content_hash(*(text.encode() for text in texts)),
        }

        def compute(first: int) -> Iterator[NDArray[np.int32]]:
            for chunk in chunks[first:]:
                yield self.encode(chunk, reader(), max_tokens)

        sizes = [len(chunk) for chunk in chunks]
        tokens = row_file(folder / "tokens", key, sizes, max_tokens, "int32", compute, progress)
        return tokens.check().rows


def _build(path: Path, folder: Path, source: str) -> None:
    """Convert into a temporary folder, then rename it, so that an interrupted build is never read.

    If several processes open the file at the same time, each builds a folder, and the first one
    stays.
    """
    with temporary_folder(folder) as temporary:
        _convert(path, temporary)
        meta = json.dumps(_meta(temporary, source))
        (temporary / "meta.json").write_text(meta, encoding="utf-8")
        # synced before the rename, so that a power cut leaves no zeros
        for name in (*_FILES, "meta.json"):
            sync(temporary / name)
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _meta(folder: Path, source: str) -> dict[str, Any]:
    """Return what identifies the files of a cache, and the file that they were built from."""
    return {"source": source, "files": {name: _sampled_hash(folder / name) for name in _FILES}}


def _convert(path: Path, folder: Path) -> None:
    """Write the ``_FILES`` of a word2vec file. Memory grows with the number of words, not with the
    length of their vectors.
    """
    rows = dict[int, int]()  # by the hash of the word
    ends = [0]
    with (
        open(path, "rb") as file,
        open(folder / "vectors.bin", "wb") as vectors,
        open(folder / "words.bin", "wb") as words,
        np.errstate(over="ignore"),
    ):
        for number, (word, vector) in enumerate(_read(path, file), start=1):
            stored = vector.astype(_DTYPE)
            if not np.isfinite(stored).all():
                raise InputError(
                    f"{path}: word {number} ({word!r}) has a number that is not finite as {_DTYPE}"
                )
            lowered = word.lower()
            word_hash = _hash_word(lowered)
            # The first casing is kept. A word whose hash is that of another is lost: among 3
            # million words and 2^64 hashes, the chance is 1 in 4 million.
            if word_hash not in rows:
                rows[word_hash] = len(rows)
                vectors.write(stored.tobytes())
                ends.append(ends[-1] + words.write(lowered.encode()))
    hashes = np.fromiter(rows, np.uint64, len(rows))
    order = np.argsort(hashes)
    np.save(folder / "hashes.npy", hashes[order])
    np.save(folder / "rows.npy", order.astype(np.int32))
    np.save(folder / "offsets.npy", np.array(ends, dtype=np.int64))


def _read(path: Path, file: IO[bytes]) -> _WordEntries:
    """Return the entries of a file of either format, whose first line holds the numbers V of words
    and d of dimensions.
    """
    line = file.readline(200)
    if line.startswith(b"\x1f\x8b"):
        raise InputError(f"{path}: is compressed; unpack it first, e.g. with gunzip")
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or b"0" in parts:
        raise InputError(
            f"{path}: does not begin with the number of words and of dimensions; not a word2vec "
            "file"
        )
    return (_read_binary if path.suffix == ".bin" else _read_text)(path, file, *map(int, parts))


def _read_binary(path: Path, file: IO[bytes], count: int, width: int) -> _WordEntries:
    """Yield the entries of word2vec's binary format: a word, a space, d little-endian float32, and
    often a newline.
    """
    for number in range(1, count + 1):
        word = _read_word(file)
        if len(word) > _LONGEST_ENTRY:
            raise InputError(
                f"{path}: word {number} has no end; {width} numbers a word cannot be right"
            )
        data = file.read(4 * width)
        if len(data) < 4 * width:
            raise InputError(f"{path}: ends in word {number} of {count}; the file is truncated")
        yield word.decode("utf-8", errors="replace"), np.frombuffer(data, dtype="<f4")
    if file.read(2).strip():
        raise InputError(
            f"{path}: goes on after {count} words of {width} numbers; its first line is wrong"
        )


def _read_word(file: IO[bytes]) -> bytes:
    """Read up to the next space, the end of the file, or the first byte too many for a word."""
    word = bytearray()
    while len(word) <= _LONGEST_ENTRY:
        byte = file.read(1)
        if byte in (b" ", b""):
            break
        if byte != b"\n":
            word += byte
    return bytes(word)


def _read_text(path: Path, file: IO[bytes], count: int, width: int) -> _WordEntries:
    """Yield the entries of word2vec's text format: a word and d numbers a line."""
    number = 0
    for number, line in enumerate(file, start=1):
        if number > count:
            raise InputError(
                f"{path}, line {number + 1}: the header says {count} words, here is another"
            )
        parts = line.decode("utf-8", errors="replace").rstrip().split(" ")
        if len(parts) != width + 1:
            raise InputError(
                f"{path}, line {number + 1}: {len(parts) - 1} numbers, the header says {width}"
            )
        try:
            yield parts[0], np.array(parts[1:], dtype=np.float32)
        except ValueError:
            raise InputError(
                f"{path}, line {number + 1}: not {width} numbers after the word"
            ) from None
    if number != count:
        raise InputError(
            f"{path}: has {number} words, the header says {count}; the file is truncated"
        )


def _sampled_hash(path: Path) -> str:
    """Hash a file's size and blocks spread over it, so that 3 GB are recognised without reading all
    of them.
    """
    size = path.stat().st_size
    parts = [str(size).encode()]
    with open(path, "rb") as file:
        for sample in range(_SAMPLES):
            file.seek(max(0, (size - _BLOCK) * sample // (_SAMPLES - 1)))
            parts.append(file.read(_BLOCK))
    return content_hash(*parts)


def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
