"""Word vectors in the formats of word2vec, converted once to a memory-mapped cache; and hashtags
read as their words.

Of hashtags, known words are kept, others are segmented and corrected, or dropped and counted.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from symspellpy import SymSpell

from channelhash.errors import InputError
from channelhash.text.words import pad_tokens, split_words
from channelhash.utils.files import sync, temporary_folder
from channelhash.utils.hashes import content_hash
from channelhash.utils.progress import Progress
from channelhash.utils.row_file import row_file

#: Letters; the time to split a word grows with its length, and no tag of a person is as long.
_LONGEST_WORD = 300


class _WordReading(NamedTuple):
    """One word of a text.

    Attributes:
        word: lower-case word of the text.
        outcome: ``kept`` is known as it is; ``corrected`` became one other known word; ``split``
            became several parts, of which at least one is known; ``dropped`` is unknown in every
            reading, such as a word of another script.
        tokens: known words that it became.
        unknown: parts that were dropped.

    >>> _WordReading("bluesky", "split", ("blue", "sky")).tokens
    ('blue', 'sky')
    """

    word: str
    outcome: Literal["kept", "corrected", "split", "dropped"]
    tokens: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class _TextReader:
    """Reader of texts by ``protocol.md`` § 2: lower-case, each digit ``#`` before look-up, then
    segmentation.
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
        # as in the vocabulary of Google News
        masked = re.sub(r"\d", "#", unicodedata.normalize("NFC", word))
        if self._known(masked):
            return _WordReading(word, "kept", (masked,))
        if len(word) > _LONGEST_WORD or not any(letter.isalpha() for letter in word):
            return _WordReading(word, "dropped", (), (masked,))  # nothing to spell or split
        # Masked before it is segmented: the vocabulary's own words have their digits masked, so
        # "nikon2007" can become "nikon ####", while no dictionary knows "2007" and it would be
        # corrected to some short word.
        parts = [
            part for spelt, run in _runs(masked, self._letters) for part in self._parts(run, spelt)
        ]
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
        segments = self._speller.word_segmentation(run)
        parts = segments.segmented_string.split()
        corrections = segments.corrected_string.lower().split()
        for part, corrected in zip(parts, corrections, strict=True):
            # Two edits make "of" of any two characters.
            yield corrected if _bases(part) & _bases(corrected) else part


def english_reader() -> _TextReader:
    """Return a reader that knows the words of SymSpell's English dictionary; it loads in
    seconds.
    """
    return _TextReader(_speller(()).words.__contains__)


def _runs(word: str, letters: frozenset[str]) -> Iterator[tuple[bool, str]]:
    """Split a word where its characters change between those that the dictionary can spell and all
    others.

    Latin letters count as spelt, since a correction may drop an accent.

    >>> list(_runs("tokyo東京tower", frozenset("tokywer")))
    [(True, 'tokyo'), (False, '東京'), (True, 'tower')]
    """
    run = ""
    spelt = True
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
        run = run + letter
        spelt = fits
    yield spelt, run


def _bases(text: str) -> set[str]:
    """Return the characters of a text without their accents."""
    return set(unicodedata.normalize("NFKD", text.lower()))


@lru_cache(maxsize=4)
def _speller(more_words: tuple[str, ...]) -> SymSpell:
    """Load SymSpell with its English dictionary and further words; this takes seconds."""
    speller = SymSpell(max_dictionary_edit_distance=2, prefix_length=7)
    with as_file(files("symspellpy") / "frequency_dictionary_en_82_765.txt") as path:
        speller.load_dictionary(path, term_index=0, count_index=1)
    for word in more_words:
        if word not in speller.words:
            speller.create_dictionary_entry(word, 1)
    return speller


#: Number of most frequent words of word vectors that help the segmentation. The protocol names all
#: of them, but SymSpell keeps about 1.2 kB for each: 3.6 GB for 3,000,000.
SEGMENTATION_WORDS = 100_000

_CHUNK = 2048  # texts encoded at once

_FORMAT = "channelhash word vectors 3"
_BLOCK = 1 << 20
_SAMPLES = 16  # blocks of a file that enter its hash, with its size
_FILES = ("hashes.npy", "rows.npy", "offsets.npy", "vectors.bin", "words.bin")
_LONGEST_ENTRY = 10_000  # bytes; a longer run without a space is no word

_DTYPE = "float16"
_Entries = Iterator[tuple[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and their vectors, memory-mapped: opening takes no time, and workers share
    pages.

    Attributes:
        vectors: ``(V, d)``, the most frequent word first.
        hash: identifies the words and vectors; part of the key of all that is computed with them.
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

        The first call converts the file, streaming, to a folder below ``cache`` named after the
        file and a hash (format version, size and 16 blocks of 1 MiB spread over the file), so that
        another file or format has another cache. An interrupted conversion starts over. Words are
        lower-cased; of two casings of a word the earlier, more frequent one is used
        (``protocol.md`` § 2).
        """
        if not path.is_file():
            raise InputError(f"{path}: no such file of word vectors")
        source = content_hash(_FORMAT.encode(), _sampled_hash(path).encode())
        folder = cache / f"{path.stem}-{_DTYPE}-{source[:16]}"
        if not folder.is_dir():
            _build(path, folder, source)
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["source"] != source or meta["files"] != {
                name: _sampled_hash(folder / name) for name in _FILES
            }:
                raise ValueError("content or source differs from what was built")
            hashes, rows, offsets = (np.load(folder / name, mmap_mode="r") for name in _FILES[:3])
            vectors = np.memmap(folder / "vectors.bin", dtype=_DTYPE, mode="r").reshape(
                len(rows), -1
            )
            words = np.memmap(folder / "words.bin", dtype=np.uint8, mode="r")
        except (OSError, ValueError, KeyError, TypeError) as error:
            line = f"{folder}: damaged cache of word vectors ({error}); remove it to build it again"
            raise InputError(line) from None
        key = content_hash(source.encode(), _DTYPE.encode())[:16]
        return cls(vectors, key, hashes, rows, offsets, words)

    def __len__(self) -> int:
        return len(self.vectors)

    def row(self, word: str) -> int | None:
        """Return the row of a word, None if it is unknown; binary search, O(log V)."""
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
        """Make a reader that knows these words; the ``segmentation_words`` most frequent help to
        segment.
        """
        frequent = map(self.word, range(min(segmentation_words, len(self))))
        return _TextReader(lambda word: self.row(word) is not None, frequent)

    def encode(
        self, texts: Sequence[str], reader: _TextReader, max_tokens: int = 128
    ) -> NDArray[np.int32]:
        """Encode the known words of each text; token ``t`` is row ``t − 1`` of ``vectors``."""
        rows = ([self.row(word) for word in reader.tokens(text, max_tokens)] for text in texts)
        return pad_tokens([[row + 1 for row in tag if row is not None] for tag in rows], max_tokens)

    def encode_cached(
        self,
        texts: Sequence[str],
        folder: Path,
        segmentation_words: int = SEGMENTATION_WORDS,
        max_tokens: int = 128,
        progress: Progress | None = None,
    ) -> NDArray[np.int32]:
        """Encode a collection through a cache of token ids, not of vectors (``protocol.md`` § 2).

        An interrupted build goes on with the first missing chunk. SymSpell is loaded only if one is
        missing.
        """
        if not texts:
            return np.zeros((0, max_tokens), np.int32)
        reader = cache(lambda: self.reader(segmentation_words))
        chunks = [texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK)]
        key = {
            "reading": f"reading 2 {segmentation_words}",  # raise the number when texts are read differently
            "vocabulary": self.hash,
            "texts": content_hash(*(text.encode() for text in texts)),
        }

        def compute(first: int) -> Iterator[NDArray[np.int32]]:
            for chunk in chunks[first:]:
                yield self.encode(chunk, reader(), max_tokens)

        sizes = [len(chunk) for chunk in chunks]
        return (
            row_file(folder / "tokens", key, sizes, max_tokens, "int32", compute, progress)
            .check()
            .rows
        )


def _build(path: Path, folder: Path, source: str) -> None:
    """Convert into a temporary folder, then rename it, so that an interrupted build is never read.

    Processes that open the file at the same time each build a folder; the first one stays.
    """
    with temporary_folder(folder) as temporary:
        _convert(path, temporary)
        meta = {
            "source": source,
            "files": {name: _sampled_hash(temporary / name) for name in _FILES},
        }
        (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        # synced before the rename, so that a power cut leaves no zeros
        for name in (*_FILES, "meta.json"):
            sync(temporary / name)
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _convert(path: Path, folder: Path) -> None:
    """Write the ``_FILES`` of a word2vec file; memory grows with the words, not with their
    vectors.
    """
    # hash -> row
    rows = dict[int, int]()
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
            # An earlier casing wins. The chance that two of 3 million words share one of 2^64
            # hashes, and the later one is lost, is 1 in 4 million.
            if (key := _hash_word(lowered)) not in rows:
                rows[key] = len(rows)
                vectors.write(stored.tobytes())
                ends.append(ends[-1] + words.write(lowered.encode()))
    hashes = np.fromiter(rows, np.uint64, len(rows))
    order = np.argsort(hashes)
    np.save(folder / "hashes.npy", hashes[order])
    np.save(folder / "rows.npy", order.astype(np.int32))
    np.save(folder / "offsets.npy", np.array(ends, dtype=np.int64))


def _read(path: Path, file: IO[bytes]) -> _Entries:
    """Return the entries of a file of either format, which begins with the numbers V of words and d
    of dimensions.
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


def _read_binary(path: Path, file: IO[bytes], count: int, width: int) -> _Entries:
    """Yield the entries of word2vec's binary format: a word, a space, d little-endian float32, and
    often a newline.
    """
    for number in range(1, count + 1):
        word = bytearray()
        while (byte := file.read(1)) not in (b" ", b""):
            if byte != b"\n":
                word += byte
            if len(word) > _LONGEST_ENTRY:
                raise InputError(
                    f"{path}: word {number} has no end; {width} numbers a word cannot be right"
                )
        if len(data := file.read(4 * width)) < 4 * width:
            raise InputError(f"{path}: ends in word {number} of {count}; the file is truncated")
        yield word.decode("utf-8", errors="replace"), np.frombuffer(data, dtype="<f4")
    if file.read(2).strip():
        raise InputError(
            f"{path}: goes on after {count} words of {width} numbers; its first line is wrong"
        )


def _read_text(path: Path, file: IO[bytes], count: int, width: int) -> _Entries:
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
    """Hash a file's size and blocks spread over it: 3 GB need not be read to recognise the file."""
    size = path.stat().st_size
    parts = [str(size).encode()]
    with open(path, "rb") as file:
        for sample in range(_SAMPLES):
            file.seek(max(0, (size - _BLOCK) * sample // (_SAMPLES - 1)))
            parts.append(file.read(_BLOCK))
    return content_hash(*parts)


def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
