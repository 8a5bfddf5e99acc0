"""Texts as rows of word vectors."""

import struct

import numpy as np
import pytest

from channelhash.errors import InputError
from channelhash.text import hashtag_reader as reading
from channelhash.text import word_vectors
from channelhash.text.word_vectors import cached_vector_tokens, encode_vectors, open_word_vectors, vector_reader

WORDS = ["Sunset", "####", "golden", "gate", "zyxwv"]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    root = tmp_path_factory.mktemp("vectors")
    entries = b"".join(word.encode() + b" " + struct.pack("<2f", i, i) for i, word in enumerate(WORDS))
    (root / "v.bin").write_bytes(f"{len(WORDS)} 2\n".encode() + entries)
    return open_word_vectors(root / "v.bin", root / "cache")


@pytest.mark.usefixtures("few_english_words")
def test_a_token_is_the_row_of_its_vector_plus_one(vectors):
    ids = encode_vectors(["#SUNSET qqqq 2007 goldengate", "", "sunset " * 9], vector_reader(vectors), vectors, 6)
    assert ids.tolist() == [[1, 2, 3, 4, 0, 0], [0] * 6, [1] * 6]
    assert ids.dtype == np.int32
    assert vectors.vectors[ids[0, :4] - 1, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("few_english_words")
def test_only_the_most_frequent_words_help_the_segmentation(vectors):
    assert vector_reader(vectors).tokens("goldenzyxwv") == ["golden", "zyxwv"]
    assert vector_reader(vectors, segmentation_words=4).tokens("goldenzyxwv") != ["golden", "zyxwv"]


@pytest.mark.usefixtures("few_english_words")
def test_ids_are_cached_by_vocabulary_and_reading(vectors, tmp_path, monkeypatch):
    texts = ["sunset 2007", "goldengate", "nothing"] * 5
    monkeypatch.setattr(word_vectors, "_CHUNK", 4)
    first = cached_vector_tokens(texts, vectors, tmp_path, max_tokens=4)
    np.testing.assert_array_equal(first, encode_vectors(texts, vector_reader(vectors), vectors, 4))
    assert cached_vector_tokens(texts, vectors, tmp_path, max_tokens=3).shape == (15, 3)
    cached_vector_tokens(texts, vectors, tmp_path, segmentation_words=0, max_tokens=4)
    assert len(list(tmp_path.glob("*.npy"))) == 3
    reverse = cached_vector_tokens(texts[::-1], vectors, tmp_path, max_tokens=4)
    np.testing.assert_array_equal(reverse, first[::-1])
    monkeypatch.setattr(reading, "_speller", None)  # a cache that is there needs no speller
    assert isinstance(cached_vector_tokens(texts, vectors, tmp_path, max_tokens=4), np.memmap)
    assert cached_vector_tokens([], vectors, tmp_path, max_tokens=4).shape == (0, 4)


@pytest.mark.usefixtures("few_english_words")
def test_rows_in_another_order_are_damage(vectors, tmp_path):
    tokens = np.array(cached_vector_tokens(["sunset", "2007"], vectors, tmp_path, max_tokens=4))
    np.save(next(tmp_path.glob("*.npy")), tokens[::-1].copy())
    with pytest.raises(InputError, match=r"tokens-.*\.npy: block 0 is damaged; remove the file"):
        cached_vector_tokens(["sunset", "2007"], vectors, tmp_path, max_tokens=4)
