"""Trace what becomes of the words of a text or of a file of texts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.text.hashtag_reader import TextReader, count_outcomes, english_words
from channelhash.text.vector_tokens import vector_reader
from channelhash.text.word_vectors import open_word_vectors
from channelhash.utils.progress import Progress
from channelhash.utils.reading import read_text


def explain(
    text: str, file: Path | None, word_vectors: Path | None, cache: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Return readings and counts of a text, or counts alone of a file with a text a line.

    Args:
        text: words to read.
        file: file of texts, instead of ``text``.
        word_vectors: word2vec file whose words are known; SymSpell's English words if None.
        cache: folder for the cache of the word vectors.
        progress: called while that cache is built.

    Raises:
        InputError: there are no words, or a file cannot be read.

    Returns:
        ``{"words": [{"word", "outcome", "tokens", "unknown"}], "counts": {outcome: n, "words": n}}``.

    >>> explain("blue seagul", None, None, Path("cache"))["words"][1]["outcome"]
    'corrected'
    """
    reader = vector_reader(open_word_vectors(word_vectors, cache, progress=progress)) if word_vectors else None
    reader = reader or TextReader(english_words().__contains__)
    if file is None:
        if not text.strip():
            raise InputError("explain-text: give some words, or --file with a text a line")
        readings = reader.read(text)
        return {"words": [asdict(reading) for reading in readings], "counts": count_outcomes(readings)}
    lines = read_text(file).splitlines()
    return {"words": [], "counts": count_outcomes(reading for line in lines for reading in reader.read(line))}
