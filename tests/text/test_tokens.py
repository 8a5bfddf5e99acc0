"""Words as token ids."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from channelhash.text.tokens import Vocabulary, encode_hashed, encode_vocabulary, hash_word, split_words


def test_words_are_lower_case_and_stripped():
    assert split_words('  #BlueSky, "Two  dogs".\tCafé\'s (late) … #') == ["bluesky", "two", "dogs", "café's", "late"]


def test_a_vocabulary_keeps_frequent_words_in_a_stated_order():
    texts = ["sea sky sea", "sky dog", "sea cat dog"]
    assert Vocabulary.from_texts(texts, min_count=2).words == ("sea", "dog", "sky")
    ids = encode_vocabulary(["dog unknown sea", ""], Vocabulary(("sea", "dog", "sky")), 4)
    assert ids.tolist() == [[2, 1, 0, 0], [0, 0, 0, 0]]


@given(st.lists(st.text(), max_size=5), st.integers(1, 50), st.integers(1, 6))
def test_ids_are_in_range_and_padded_at_the_end(texts, n_buckets, max_tokens):
    ids = encode_hashed(texts, n_buckets, max_tokens)
    assert ids.shape == (len(texts), max_tokens)
    assert ids.dtype == np.int32
    for row, text in zip(ids, texts, strict=True):
        words = split_words(text)[:max_tokens]
        assert row[: len(words)].tolist() == [hash_word(word, n_buckets) for word in words]
        assert (row[: len(words)] >= 1).all()
        assert (row <= n_buckets).all()
        assert not row[len(words) :].any()


def test_a_words_bucket_is_the_same_in_every_process():
    code = "from channelhash.text.tokens import hash_word; print(hash_word('sunset', 16384))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) == hash_word("sunset", 16384)
