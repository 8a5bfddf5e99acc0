"""Word vectors in word2vec's binary and text formats, converted once into a memory-mapped cache."""

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.files import content_hash

_FORMAT = "channelhash word vectors 1"
_BLOCK = 1 << 20
_SAMPLES = 16  # blocks of the source that its hash reads, beside its size
_FILES = ("vectors.npy", "hashes.npy", "rows.npy", "offsets.npy", "words.bin")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and their vectors, everything memory-mapped: opening costs no time, and workers share pages.

    Attributes:
        vectors: ``(V, d)``, the most frequent word first.
        hash: identifies the words and vectors; part of the key of everything made with them.
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
        """The row of a word, None if it is unknown; a binary search of O(log V)."""
        wanted = np.uint64(_hash_word(word))
        place = int(np.searchsorted(self._hashes, wanted))
        while place < len(self._hashes) and self._hashes[place] == wanted:  # two words may share a hash
            row = int(self._rows[place])
            if self.word(row) == word:
                return row
            place += 1
        return None

    def word(self, row: int) -> str:
        """The word of a row."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        return self._words[start:end].tobytes().decode()


def open_word_vectors(path: Path, cache: Path, dtype: str = "float16", progress: Progress | None = None) -> WordVectors:
    """The word vectors of a word2vec file (binary if it ends in ``.bin``, else text), through a cache.

    The first opening converts the file, streaming, into a folder below ``cache`` that is named after the file and a
    hash of it (size and sampled blocks), so another file or format never meets a cache of this one. Words are
    lower-cased; where two casings of a word exist the earlier one, the more frequent, wins (``protocol.md`` § 2).

    Args:
        path: the word2vec file.
        cache: folder of caches.
        dtype: ``"float16"`` or ``"float32"``.
        progress: called with (words read, words announced) during the conversion.

    Raises:
        InputError: the file is missing, truncated, or not word2vec's; a cache is damaged.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors")
    source = _source_hash(path)
    folder = cache / f"{path.stem}-{dtype}-{source[:16]}"
    if not folder.is_dir():
        _build(path, folder, source, dtype, progress)
    return _open(folder, source)


def _open(folder: Path, source: str) -> WordVectors:
    try:
        meta = json.loads((folder / "meta.json").read_text())
        sizes = {name: (folder / name).stat().st_size for name in _FILES}
        if meta["format"] != _FORMAT or meta["source"] != source or meta["sizes"] != sizes:
            raise ValueError("sizes or source differ from what was built")
        arrays = {name: np.load(folder / name, mmap_mode="r") for name in _FILES[:4]}
        words = np.memmap(folder / "words.bin", dtype=np.uint8, mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: damaged cache of word vectors ({error}); remove it to build it again") from None
    return WordVectors(
        arrays["vectors.npy"],
        content_hash(source.encode(), str(meta["dtype"]).encode())[:16],
        arrays["hashes.npy"],
        arrays["rows.npy"],
        arrays["offsets.npy"],
        words,
    )


def _build(path: Path, folder: Path, source: str, dtype: str, progress: Progress | None) -> None:
    """Convert into a temporary folder, then rename: an interrupted build is never read, and starts over."""
    cache = folder.parent
    cache.mkdir(parents=True, exist_ok=True)
    for stale in cache.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = cache / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    temporary.mkdir()
    try:
        reader = read_binary if path.suffix == ".bin" else read_text_format
        count, width, entries = reader(path)
        with closing(entries):
            vectors = np.lib.format.open_memmap(temporary / "vectors.npy", mode="w+", dtype=dtype, shape=(count, width))
            seen: set[int] = set()
            hashes: list[int] = []
            lengths, blob = [0], bytearray()
            for number, (word, vector) in enumerate(entries, start=1):
                lowered = word.lower()
                key = _hash_word(lowered)
                if key not in seen:  # an earlier casing wins
                    seen.add(key)
                    vectors[len(hashes)] = vector
                    hashes.append(key)
                    blob += lowered.encode()
                    lengths.append(len(blob))
                if progress and number % 10000 == 0:
                    progress(number, count)
        kept = len(hashes)
        vectors.flush()
        del vectors
        _truncate_rows(temporary / "vectors.npy", kept, width, dtype)
        order = np.argsort(np.array(hashes, dtype=np.uint64), kind="stable")
        np.save(temporary / "hashes.npy", np.array(hashes, dtype=np.uint64)[order])
        np.save(temporary / "rows.npy", order.astype(np.int32))
        np.save(temporary / "offsets.npy", np.array(lengths, dtype=np.int64))
        (temporary / "words.bin").write_bytes(bytes(blob))
        sizes = {name: (temporary / name).stat().st_size for name in _FILES}
        meta = {"format": _FORMAT, "source": source, "dtype": dtype, "words": kept, "sizes": sizes}
        (temporary / "meta.json").write_text(json.dumps(meta))
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_binary(path: Path) -> tuple[int, int, Generator[tuple[str, NDArray[np.float32]], None, None]]:
    """(words, width, entries) of word2vec's binary format: ``"V d\\n"``, then ``word``, a space, d little-endian
    float32, and often a newline."""
    with open(path, "rb") as file:
        count, width = _header(path, file.readline(200))
        start = file.tell()

    def entries() -> Generator[tuple[str, NDArray[np.float32]], None, None]:
        with open(path, "rb") as file:
            file.seek(start)
            for number in range(1, count + 1):
                word = bytearray()
                while (byte := file.read(1)) not in (b" ", b""):
                    if byte != b"\n":
                        word += byte
                data = file.read(4 * width)
                if len(data) < 4 * width:
                    raise InputError(f"{path}: ends in word {number} of {count}; the file is truncated")
                yield word.decode("utf-8", errors="replace"), np.frombuffer(data, dtype="<f4")

    return count, width, entries()


def read_text_format(path: Path) -> tuple[int, int, Generator[tuple[str, NDArray[np.float32]], None, None]]:
    """(words, width, entries) of word2vec's text format: ``"V d"``, then a word and d numbers a line."""
    with open(path, "rb") as file:
        count, width = _header(path, file.readline(200))

    def entries() -> Generator[tuple[str, NDArray[np.float32]], None, None]:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            next(file)
            number = 0
            for number, line in enumerate(file, start=1):
                parts = line.rstrip().split(" ")
                if len(parts) != width + 1:
                    raise InputError(f"{path}, line {number + 1}: {len(parts) - 1} numbers, the header says {width}")
                try:
                    yield parts[0], np.array(parts[1:], dtype=np.float32)
                except ValueError:
                    raise InputError(f"{path}, line {number + 1}: not {width} numbers after the word") from None
            if number != count:
                raise InputError(f"{path}: has {number} words, the header says {count}; the file is truncated")

    return count, width, entries()


def _header(path: Path, line: bytes) -> tuple[int, int]:
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or b"0" in parts:
        raise InputError(f"{path}: does not begin with the number of words and of dimensions; not a word2vec file")
    return int(parts[0]), int(parts[1])


def _truncate_rows(path: Path, rows: int, width: int, dtype: str) -> None:
    """Shorten a ``.npy`` file to its first rows, in place: casings that lost leave a tail."""
    source = np.load(path, mmap_mode="r")
    if len(source) == rows:
        return
    shorter = path.with_suffix(".short.npy")
    target = np.lib.format.open_memmap(shorter, mode="w+", dtype=dtype, shape=(rows, width))
    for start in range(0, rows, 100_000):
        target[start : start + 100_000] = source[start : min(start + 100_000, rows)]
    target.flush()
    del source, target
    shorter.replace(path)


def _source_hash(path: Path) -> str:
    """Hash of a file's size and of blocks spread over it: 3 GB need not be read to know the file again."""
    size = path.stat().st_size
    parts = [str(size).encode()]
    with open(path, "rb") as file:
        for sample in range(_SAMPLES):
            file.seek(max(0, (size - _BLOCK) * sample // (_SAMPLES - 1)))
            parts.append(file.read(_BLOCK))
    return content_hash(*parts)


def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
