"""Word vectors in the binary and text formats of word2vec, converted once to a memory-mapped cache."""

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.text.hashtag_reader import TextReader
from channelhash.text.tokens import TokenIds, pad_tokens
from channelhash.utils.array_files import row_file
from channelhash.utils.files import content_hash, sync_file, temporary_folder
from channelhash.utils.progress import Progress

_FORMAT = "channelhash word vectors 3"
_BLOCK = 1 << 20
_SAMPLES = 16  # blocks of a file that enter its hash, with its size
_FILES = ("hashes.npy", "rows.npy", "offsets.npy", "vectors.bin", "words.bin")
_LONGEST_WORD = 10_000  # bytes; a longer run without a space is no word

_DType = Literal["float16", "float32"]
_Entries = Generator[tuple[str, NDArray[np.float32]], None, None]


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and their vectors, memory-mapped: opening takes no time, and workers share pages.

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

    def __len__(self) -> int:
        return len(self.vectors)

    def row(self, word: str) -> int | None:
        """Return the row of a word, None if it is unknown; binary search, O(log V)."""
        word_hash = np.uint64(_hash_word(word))
        place = int(np.searchsorted(self._hashes, word_hash))
        if place == len(self._hashes) or self._hashes[place] != word_hash:
            return None
        row = int(self._rows[place])
        return row if self.word(row) == word else None  # an unknown word may have the hash of a known one

    def word(self, row: int) -> str:
        """Return the word of a row."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        return self._words[start:end].tobytes().decode()


def open_word_vectors(
    path: Path, cache: Path, dtype: _DType = "float16", progress: Progress | None = None
) -> WordVectors:
    """Open a word2vec file (binary if it ends in ``.bin``, else text) through a cache.

    The first call converts the file, streaming, to a folder below ``cache`` named after the file and a hash (format
    version, size and 16 blocks of 1 MiB spread over the file), so that another file or format has another cache. An
    interrupted conversion starts over. Words are lower-cased; of two casings of a word the earlier, more frequent one
    is used (``protocol.md`` § 2).

    Args:
        path: the word2vec file.
        cache: folder of caches.
        dtype: ``"float16"`` or ``"float32"``.
        progress: called with (words read, words announced) during the conversion.

    Raises:
        InputError: the file is missing, truncated, not word2vec's, does not fit its first line, or has a number that
            is not finite in ``dtype``; a cache is damaged (its sizes or sampled blocks differ from what was built).
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors")
    source = content_hash(_FORMAT.encode(), _sampled_hash(path).encode())
    folder = cache / f"{path.stem}-{dtype}-{source[:16]}"
    if not folder.is_dir():
        _build(path, folder, source, dtype, progress)
    return _open(folder, source)


def _open(folder: Path, source: str) -> WordVectors:
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["source"] != source or meta["files"] != {name: _sampled_hash(folder / name) for name in _FILES}:
            raise ValueError("content or source differs from what was built")
        hashes, rows, offsets = (np.load(folder / name, mmap_mode="r") for name in _FILES[:3])
        vectors = np.memmap(folder / "vectors.bin", dtype=meta["dtype"], mode="r").reshape(len(rows), -1)
        words = np.memmap(folder / "words.bin", dtype=np.uint8, mode="r")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: damaged cache of word vectors ({error}); remove it to build it again") from None
    key = content_hash(source.encode(), str(meta["dtype"]).encode())[:16]
    return WordVectors(vectors, key, hashes, rows, offsets, words)


def _build(path: Path, folder: Path, source: str, dtype: _DType, progress: Progress | None) -> None:
    """Convert into a temporary folder, then rename it, so that an interrupted build is never read.

    Processes that open the file at the same time each build a folder; the first one stays.
    """
    with temporary_folder(folder) as temporary:
        _convert(path, temporary, dtype, progress)
        files = {name: _sampled_hash(temporary / name) for name in _FILES}
        (temporary / "meta.json").write_text(
            json.dumps({"source": source, "dtype": dtype, "files": files}), encoding="utf-8"
        )
        for name in (*_FILES, "meta.json"):  # synced before the rename, so that a power cut leaves no zeros
            sync_file(temporary / name)
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _convert(path: Path, folder: Path, dtype: _DType, progress: Progress | None) -> None:
    """Write the ``_FILES`` of a word2vec file; memory grows with the words, not with their vectors."""
    count, entries = (_read_binary if path.suffix == ".bin" else _read_text_format)(path)
    rows, ends = dict[int, int](), [0]  # hash -> row
    with (
        open(folder / "vectors.bin", "wb") as vectors,
        open(folder / "words.bin", "wb") as words,
        closing(entries),
        np.errstate(over="ignore"),
    ):
        for number, (word, vector) in enumerate(entries, start=1):
            stored = vector.astype(dtype)
            if not np.isfinite(stored).all():
                raise InputError(f"{path}: word {number} ({word!r}) has a number that is not finite as {dtype}")
            lowered = word.lower()
            # An earlier casing wins. The chance that two of 3 million words share one of 2^64 hashes, and the later one
            # is lost, is 1 in 4 million.
            if (key := _hash_word(lowered)) not in rows:
                rows[key] = len(rows)
                vectors.write(stored.tobytes())
                ends.append(ends[-1] + words.write(lowered.encode()))
            if progress and (number % 10_000 == 0 or number == count):
                progress(number, count)
    hashes = np.fromiter(rows, np.uint64, len(rows))
    order = np.argsort(hashes)
    np.save(folder / "hashes.npy", hashes[order])
    np.save(folder / "rows.npy", order.astype(np.int32))
    np.save(folder / "offsets.npy", np.array(ends, dtype=np.int64))


def _read_binary(path: Path) -> tuple[int, _Entries]:
    """Read (number of words, entries) of word2vec's binary format.

    The file holds ``"V d\\n"``, then for each word the word, a space, d little-endian float32, and often a newline.
    """
    with open(path, "rb") as file:
        count, width = _header(path, file.readline(200))
        start = file.tell()

    def entries() -> _Entries:
        with open(path, "rb") as file:
            file.seek(start)
            for number in range(1, count + 1):
                word = bytearray()
                while (byte := file.read(1)) not in (b" ", b""):
                    if byte != b"\n":
                        word += byte
                    if len(word) > _LONGEST_WORD:
                        raise InputError(f"{path}: word {number} has no end; {width} numbers a word cannot be right")
                data = file.read(4 * width)
                if len(data) < 4 * width:
                    raise InputError(f"{path}: ends in word {number} of {count}; the file is truncated")
                yield word.decode("utf-8", errors="replace"), np.frombuffer(data, dtype="<f4")
            if file.read(2).strip():
                raise InputError(f"{path}: goes on after {count} words of {width} numbers; its first line is wrong")

    return count, entries()


def _read_text_format(path: Path) -> tuple[int, _Entries]:
    """Read (number of words, entries) of word2vec's text format: ``"V d"``, then a word and d numbers a line."""
    with open(path, "rb") as file:
        count, width = _header(path, file.readline(200))

    def entries() -> _Entries:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            next(file)
            number = 0
            for number, line in enumerate(file, start=1):
                if number > count:
                    raise InputError(f"{path}, line {number + 1}: the header says {count} words, here is another")
                parts = line.rstrip().split(" ")
                if len(parts) != width + 1:
                    raise InputError(f"{path}, line {number + 1}: {len(parts) - 1} numbers, the header says {width}")
                try:
                    yield parts[0], np.array(parts[1:], dtype=np.float32)
                except ValueError:
                    raise InputError(f"{path}, line {number + 1}: not {width} numbers after the word") from None
            if number != count:
                raise InputError(f"{path}: has {number} words, the header says {count}; the file is truncated")

    return count, entries()


def _header(path: Path, line: bytes) -> tuple[int, int]:
    if line.startswith(b"\x1f\x8b"):
        raise InputError(f"{path}: is compressed; unpack it first, e.g. with gunzip")
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or b"0" in parts:
        raise InputError(f"{path}: does not begin with the number of words and of dimensions; not a word2vec file")
    return int(parts[0]), int(parts[1])


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


#: Number of most frequent words of word vectors that help the segmentation. The protocol names all of them, but
#: SymSpell keeps about 1.2 kB for each: 3.6 GB for 3,000,000.
SEGMENTATION_WORDS = 100_000

_CHUNK = 2048  # texts encoded at once
_READING = "reading 2"  # part of a cache's key: raise the number when texts are read differently


def vector_reader(vectors: WordVectors, segmentation_words: int = SEGMENTATION_WORDS) -> TextReader:
    """Make a reader that knows the words of ``vectors``; the ``segmentation_words`` most frequent help to segment."""
    return TextReader(
        lambda word: vectors.row(word) is not None,
        islice((vectors.word(row) for row in range(len(vectors))), segmentation_words),
    )


def encode_vectors(texts: Sequence[str], reader: TextReader, vectors: WordVectors, max_tokens: int = 128) -> TokenIds:
    """Encode the known words of each text; token ``t`` is row ``t − 1`` of ``vectors``.

    Returns:
        ``(n, max_tokens)`` int32; longer texts are cut, shorter ones padded with 0, unknown words left out.
    """
    rows = ([vectors.row(word) for word in reader.tokens(text, max_tokens)] for text in texts)
    return pad_tokens([[row + 1 for row in found if row is not None] for found in rows], max_tokens)


def cached_vector_tokens(
    texts: Sequence[str],
    vectors: WordVectors,
    folder: Path,
    segmentation_words: int = SEGMENTATION_WORDS,
    max_tokens: int = 128,
    progress: Progress | None = None,
) -> TokenIds:
    """Apply `encode_vectors` to a collection through a cache of token ids, not of vectors (``protocol.md`` § 2).

    An interrupted build goes on with the first missing chunk. SymSpell is loaded only if one is missing.

    Args:
        texts: ``n`` texts.
        vectors: known words.
        folder: folder of caches.
        segmentation_words: see `vector_reader`.
        max_tokens: length of the longest text.
        progress: called with (texts done, n).

    Returns:
        ``(n, max_tokens)`` int32, memory-mapped.

    Raises:
        InputError: the cache is damaged.
    """
    if not texts:
        return np.zeros((0, max_tokens), np.int32)
    reader = cache(lambda: vector_reader(vectors, segmentation_words))
    starts = range(0, len(texts), _CHUNK)
    key = {
        "reading": f"{_READING} {segmentation_words}",
        "vocabulary": vectors.hash,
        "texts": content_hash(*(text.encode() for text in texts)),
    }

    def compute(first: int) -> Iterator[TokenIds]:
        for start in starts[first:]:
            yield encode_vectors(texts[start : start + _CHUNK], reader(), vectors, max_tokens)

    sizes = [len(texts[start : start + _CHUNK]) for start in starts]
    return row_file(folder / "tokens", key, sizes, max_tokens, "int32", compute, progress).check().rows
