"""Words as token ids, and their random changes."""

import numpy as np
import pytest

from channelhash.text import tokens as change
from channelhash.text.tokens import Vocabulary, encode_vocabulary, split_words


def test_words_are_lower_case_and_stripped():
    assert split_words('  #BlueSky, "Two  dogs".\tCafé\'s (late) … #') == ["bluesky", "two", "dogs", "café's", "late"]


def test_a_vocabulary_keeps_frequent_words_in_a_stated_order():
    texts = ["sea sky sea", "sky dog", "sea cat dog"]
    assert Vocabulary.from_texts(texts, min_count=2).words == ("sea", "dog", "sky")
    ids = encode_vocabulary(["dog unknown sea", ""], Vocabulary(("sea", "dog", "sky")), 4)
    assert ids.tolist() == [[2, 1, 0, 0], [0, 0, 0, 0]]


TOKENS = np.zeros((300, 10), np.int32)
TOKENS[:, :6] = np.arange(1, 7)
ALL = list(range(300))


def test_replacing_hits_its_share_of_real_tokens():
    known = np.array([7, 500, 900], np.int32)
    replaced = change.replace_tokens(TOKENS, ALL, 0, 3, 0.5, known)
    assert not replaced[:, 6:].any()
    assert (replaced[:, :6] != TOKENS[:, :6]).mean() == pytest.approx(0.5, abs=0.05)
    drawn = replaced[replaced != TOKENS]
    assert {value: (drawn == value).mean() for value in known} == pytest.approx(dict.fromkeys(known, 1 / 3), abs=0.07)


def test_dropping_keeps_order_and_at_least_one_token():
    dropped = change.drop_tokens(TOKENS, ALL, 0, 3, 0.4)
    for row in dropped:
        real = row[row != 0]
        assert len(real) >= 1
        assert list(real) == sorted(real)
        assert not row[len(real) :].any()
    assert (dropped != 0).sum() / 1800 == pytest.approx(0.6, abs=0.05)
    assert (change.drop_tokens(TOKENS, ALL, 0, 3, 1.0) != 0).sum(axis=1).tolist() == [1] * 300


@pytest.mark.parametrize(
    "draw",
    [
        lambda rows, epoch: change.replace_tokens(TOKENS[rows], rows, 0, epoch, 0.5, np.arange(1, 1001)),
        lambda rows, epoch: change.drop_tokens(TOKENS[rows], rows, 0, epoch, 0.5),
    ],
)
def test_a_draw_depends_on_epoch_and_sample_alone(draw):
    whole = draw(ALL, 1)
    np.testing.assert_array_equal(draw([7, 3], 1), whole[[7, 3]])
    assert (draw(ALL, 2) != whole).any()
