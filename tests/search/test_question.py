"""The language of questions, and parts of a question added up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.errors import InputError
from channelhash.search.query import MAX_PARTS, Part, check_parts, combine, make_query, parse_question

PLAIN = st.lists(
    st.text("abcäж-'’5.,", min_size=1, max_size=8).filter(lambda word: word[0] != "-"), min_size=1, max_size=9
)


@given(PLAIN)
def test_a_sentence_without_marks_is_one_part_as_it_stands(words):
    assert parse_question("  ".join(words)) == [Part(" ".join(words), 1.0)]


def test_quotes_weights_and_minuses_make_parts():
    for text, parts in {
        "a dog on a beach": [("a dog on a beach", 1)],
        "beach -people": [("beach", 1), ("people", -1)],
        'a "beach ball" at night': [("a at night", 1), ("beach ball", 1)],
        '"beach"^2.5 -"two dogs"^3': [("beach", 2.5), ("two dogs", -3)],
        "dog^2 beach": [("beach", 1), ("dog", 2)],
        "well-lit t-shirt": [("well-lit t-shirt", 1)],
        "sun - sea -- sand": [("sun - sea -- sand", 1)],
        "a 5\" pipe, rock'n'roll ^_^": [("a 5\" pipe, rock'n'roll ^_^", 1)],
        "“two dogs” cat": [("cat", 1), ("two dogs", 1)],
        "beach -5": [("beach", 1), ("5", -1)],
        "-": [("-", 1)],
    }.items():
        assert [tuple(part) for part in parse_question(text)] == parts, text


def test_questions_that_make_no_sense_are_refused_in_one_line():
    for text, says in {
        "": "is empty",
        "  ": "is empty",
        'a "dog': "a quote is opened and not closed",
        'beach -"two dogs': "a quote is opened and not closed",
        'beach ""': "a phrase in quotes is empty",
        'beach -" "': "a phrase in quotes is empty",
        "-people": "-people: says only what is not wanted",
        "dog^0": "a weight is above 0",
        "dog^100.5": "a weight is above 0",
        f"dog^{'9' * 400}": "a weight is above 0",
        "a " + "-b " * MAX_PARTS: "parts; at most 32",
    }.items():
        with pytest.raises(InputError, match=says) as error:
            parse_question(text)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="only what is not wanted"):
        check_parts([Part(object(), -1)])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parts = parse_question(text)
    except InputError:
        return
    assert all(part.content.strip() and part.weight for part in parts)


@given(st.integers(1, 5), st.data())
def test_parts_are_added_with_unit_length(n, data):
    rows = np.array(data.draw(st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=n, max_size=n)))
    rows += np.where(np.abs(rows).sum(1, keepdims=True) < 1e-3, 1.0, 0.0)
    weights = [data.draw(st.floats(0.25, 4)) for _ in range(n)]
    literal = sum(weight * row / np.sqrt((row**2).sum()) for weight, row in zip(weights, rows, strict=True))
    if n == 1:
        literal = rows[0]
    if np.linalg.norm(literal) > 1e-3:
        np.testing.assert_allclose(combine(rows, weights), literal, atol=1e-4)


def test_parts_that_cancel_out_are_refused():
    with pytest.raises(InputError, match="cancel out"):
        combine(np.array([[1.0, 2.0], [2.0, 4.0]]), [1.0, -1.0])


def test_words_for_full_text_search():
    parts = [*parse_question('beach "two dogs" -people -"beach ball"'), Part(object(), -1.0), Part(object())]
    query = make_query(parts, [None] * len(parts))
    assert (query.words, query.without) == ("beach two dogs", ("people", "beach ball"))
