"""What words and the fusion of all rankings add to a search for codes."""

import tempfile
from collections.abc import Sequence
from itertools import cycle

import numpy as np

from channelhash.codes import binarize, pack
from channelhash.search import open_store
from channelhash.search.fused import answer
from channelhash.search.hits import Query, SearchOptions
from channelhash.search.store import Store
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare

_BITS, _MOST, _AT_ONCE = 128, 10**6, 50_000
# Words of all captions, in one and in a question; the n-th is 1 / n as frequent as the first, as in texts.
_VOCABULARY, _CAPTION, _QUESTION, _QUESTIONS = 10_000, 10, 6, 150


def benchmark_words(sizes: Sequence[int]) -> list[Row]:
    """Compare answers from image codes, text codes and words together with those from image codes alone.

    Items have drawn captions and random codes of both modalities, and lie in a store on the disk.

    Args:
        sizes: numbers of items; those over a million are left out.
    """
    rows = []
    for n in sizes:
        if n <= _MOST:
            with tempfile.TemporaryDirectory() as folder:
                store = open_store(folder, n_bits=_BITS)
                _fill(store, n)
                store.close()
                store = open_store(folder)
                rows.append(_compared(store, n))
                store.close()
    return rows


def draw_captions(name: str, n: int, n_words: int) -> list[str]:
    """Draw texts whose words are as unequally frequent as in any language (Zipf's law).

    >>> len(draw_captions("questions", 2, n_words=3)[0].split())
    3
    """
    random = generator(0, "benchmark words", name)
    shares = 1 / np.arange(1, _VOCABULARY + 1)
    words = random.choice(_VOCABULARY, (n, n_words), p=shares / shares.sum())
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()]


def _fill(store: Store, n: int) -> None:
    random = generator(0, "benchmark words", "codes")
    captions = draw_captions("captions", n, _CAPTION)
    for start in range(0, n, _AT_ONCE):
        texts = captions[start : start + _AT_ONCE]
        codes = {side: random.integers(0, 256, (len(texts), _BITS // 8), np.uint8) for side in ("image", "text")}
        store.add(
            [f"{start + row:08}" for row in range(len(texts))], codes, metadata=[{"text": text} for text in texts]
        )


def _compared(store: Store, n: int) -> Row:
    random = generator(0, "benchmark words", "questions' outputs")
    outputs = random.normal(size=(_QUESTIONS, _BITS)).astype(np.float32)
    questions = [
        Query(code, row, "text", words)
        for code, row, words in zip(
            pack(binarize(outputs)), outputs, draw_captions("questions", _QUESTIONS, _QUESTION), strict=True
        )
    ]
    turns, plain_turns = cycle(questions), cycle(questions)
    return compare(
        "top 10 by image codes, text codes and words, 1 question",
        f"{n} items × {_BITS} bits, captions of {_CAPTION} words",
        lambda: answer(store, next(turns), SearchOptions(by="all")),
        "image codes alone",
        lambda: answer(store, next(plain_turns), SearchOptions(by="image")),
        repeats=20,
    )
