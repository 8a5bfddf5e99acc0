"""What words and the fusion of all rankings add to a search for codes, one query at a time."""

import tempfile
from contextlib import closing
from itertools import cycle

import numpy as np

from channelhash.codes import binarize, pack
from channelhash.codes.stage import Stage
from channelhash.search import open_store
from channelhash.search.hits import Query, SearchOptions, answer
from channelhash.search.index import compile_loops
from channelhash.search.store import Store
from channelhash.utils.seeds import generator
from measure import options, print_rows
from timing import Row, compare

BITS, AT_ONCE = 128, 50_000
# Words of all captions, in one and in a question; the n-th is 1 / n as frequent as the first, as in
# texts.
VOCABULARY, CAPTION, QUESTION, QUESTIONS = 10_000, 10, 6, 150


def main() -> None:
    """Print a row for each number of items, with codes alone and with projections."""
    given = options(__doc__, sizes=(10**5, 10**6))
    compile_loops()
    rows = []
    for n in given.sizes:
        for stage in (None, Stage(BITS)):
            with tempfile.TemporaryDirectory() as folder:
                with closing(open_store(folder, n_bits=BITS, stage=stage)) as store:
                    fill(store, n)
                with closing(open_store(folder)) as store:
                    rows.append(all_rankings(store, n))
    print_rows(rows)


def all_rankings(store: Store, n: int) -> Row:
    """Compare answers from image codes, text codes and words together with those from image codes
    alone.
    """
    outputs = (
        generator(0, "benchmark words", "outputs").normal(size=(QUESTIONS, BITS)).astype(np.float32)
    )
    texts = draw_captions("questions", QUESTIONS, QUESTION)
    questions = [
        Query(code, row, "text", words)
        for code, row, words in zip(pack(binarize(outputs)), outputs, texts, strict=True)
    ]
    turns, plain_turns = cycle(questions), cycle(questions)
    return compare(
        "top 10 by image codes, text codes and words",
        f"{n:,} × {BITS}, captions of {CAPTION} words{', projections' * store.projected}",
        lambda: answer(store, next(turns), SearchOptions(by="all")),
        "image codes alone",
        lambda: answer(store, next(plain_turns), SearchOptions(by="image")),
        repeats=20,
    )


def fill(store: Store, n: int) -> None:
    """Add random codes of both modalities with captions, and with projections if it keeps them."""
    random = generator(0, "benchmark words", "codes")
    stage = store.stage
    captions = draw_captions("captions", n, CAPTION)
    for start in range(0, n, AT_ONCE):
        texts = captions[start : start + AT_ONCE]
        outputs = {
            side: random.standard_normal((len(texts), BITS), np.float32)
            for side in ("image", "text")
        }
        codes = {side: pack(binarize(rows)) for side, rows in outputs.items()}
        projections = None
        if stage is not None:
            projections = {side: stage.encode(side, rows) for side, rows in outputs.items()}
        ids = [f"{start + row:08}" for row in range(len(texts))]
        metadata = [{"text": text} for text in texts]
        store.add(ids, codes, metadata=metadata, projections=projections)


def draw_captions(name: str, n: int, n_words: int) -> list[str]:
    """Draw texts whose words are as unequally frequent as in any language (Zipf's law)."""
    shares = 1 / np.arange(1, VOCABULARY + 1)
    words = generator(0, "benchmark words", name).choice(
        VOCABULARY, (n, n_words), p=shares / shares.sum()
    )
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()]


if __name__ == "__main__":
    main()
