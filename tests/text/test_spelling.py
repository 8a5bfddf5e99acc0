"""What a question may have meant: the nearest words, and none where all are known."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.models.photo import is_unread, spelling
from channelhash.text.spelling import Spelling, _edits

WORDS = st.text("abcd", max_size=6)


@given(WORDS, WORDS)
def test_edits_are_the_fewest(first, second):
    @cache
    def least(i, j):  # of the first letters, by the definition of optimal string alignment
        if not i or not j:
            return i + j
        ways = [least(i - 1, j) + 1, least(i, j - 1) + 1, least(i - 1, j - 1) + (first[i - 1] != second[j - 1])]
        if i > 1 and j > 1 and first[i - 2 : i] == second[j - 2 : j][::-1]:
            ways.append(least(i - 2, j - 2) + 1)
        return min(ways)

    assert _edits(first, second) == least(len(first), len(second))


@given(st.lists(st.text("abcdé", min_size=4, max_size=9), min_size=1), st.text("abcdé", min_size=4, max_size=9))
def test_the_nearest_word_is_found_among_all(words, asked):
    scores = {word: -float(len(word)) for word in words}
    near = sorted((_edits(asked, word), -scores[word], word) for word in words)
    expected = near[0][2] if 0 < near[0][0] <= (1 if len(asked) < 7 else 2) else None
    assert Spelling(scores, lambda word: False).correct(asked) == expected


@pytest.mark.parametrize(("typed", "meant"), [
    ("a bycicle", "a bicycle"), ("zum Geburstag", "zum geburtstag"), ("peple dancing", "people dancing"),
    ("motorcylce -car", "motorcycle -car"), ("un perro en la playa", None), ("snowboarder", None), ("IMG_2031", None),
    ("собака на пляже", None), ("海滩上的狗", None), ("", None),
])  # fmt: skip
def test_words_of_the_encoders_languages(typed, meant):
    assert spelling().correct(typed) == meant
    assert spelling().knows_all(typed) == (meant is None)


@pytest.mark.parametrize(("text", "expected"), [
    ("σκύλος στην παραλία", True), ("कुत्ता", True), ("כלב", True), ("a σκύλος with a cat", False),
    ("собака", False), ("สุนัข", False), ("犬", False), ("ビーチ", False), ("개", False), ("كلب", False), ("2019", False),
])  # fmt: skip
def test_scripts_that_nobody_reads(text, expected):
    assert is_unread(text) is expected
