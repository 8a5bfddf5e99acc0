"""Dates and places in questions: what they are understood as, what of the question is left, what is found."""

import re
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import channelhash as ch
from channelhash.search.filters import parse_filter, passes
from channelhash.search.hits import SearchOptions
from channelhash.search.items import date_filter
from channelhash.search.query import _TOKEN, _WORD, leave_plain, narrow, search_store
from channelhash.text.dates import find_phrases
from refusals import check_refusal

TODAY = date(2026, 11, 27)
PLACES = [("country", "Portugal"), *(("place", name) for name in ("Porto", "Nice", "Reading", "São Paulo"))]
# Words in [] are a date; then the first day that passes and the last.
DATES = """
dogs [in summer 2019] 2019-06-01 2019-08-31; [winter 2019] 2019-12-01 2020-02-29; [2019] 2019-01-01 2019-12-31
[2019-07] 2019-07-01 2019-07-31; [July 14th, 2019] 2019-07-14 2019-07-14; [am 1. März 2019] 2019-03-01 2019-03-01
犬 [2019年7月の]海 2019-07-01 2019-07-31; [14.07.2019] 2019-07-14 2019-07-14; [last December] 2025-12-01 2025-12-31
[last winter] 2025-12-01 2026-02-28; [this summer] 2026-06-01 2026-08-31; [last week] 2026-11-16 2026-11-22
[this month] 2026-11-01 2026-11-30; [last year] 2025-01-01 2025-12-31; [yesterday] 2026-11-26 2026-11-26
cats [in december of last year] 2025-12-01 2025-12-31; [two weeks ago] 2026-11-09 2026-11-15
[3 days ago] 2026-11-24 2026-11-24; [a month ago] 2026-10-01 2026-10-31; [the nineties] 1990-01-01 1999-12-31
[before 2015] 1985-01-01 2014-12-31; [in the 2010s] 2010-01-01 2019-12-31; [after March 2020] 2020-04-01 2026-12-31
[between 2015 and 2018] 2015-01-01 2018-12-31; [from May 2019 to June 2019] 2019-05-01 2019-06-30
[since 2020] 2020-01-01 2026-12-31; Hunde [letzten Sommer] 2026-06-01 2026-08-31; [2015-2018] 2015-01-01 2018-12-31
[this winter] 2019-12-01 2020-02-29
[dicembre scorso] 2025-12-01 2025-12-31; [en verano de 2019] 2019-06-01 2019-08-31; [na 2015] 2016-01-01 2026-12-31
[na primavera de 2019] 2019-03-01 2019-05-31; [vorige maand] 2026-10-01 2026-10-31; [l’an dernier] 2025-01-01 2025-12-31
"""
OTHERS = {
    "a dog [in NICE] at night": "place IN ('Nice')", "praia [em sao paulo]": "place IN ('São Paulo')",
    "[reading]": "place IN ('Reading')", "[à Nice]": "place IN ('Nice')", "[in May]": "{0} LIKE '____-05%'",
    "cats [in Porto or Nice]": "place IN ('Porto', 'Nice')",
    "[in Porto, Portugal]": "place IN ('Porto') AND country IN ('Portugal')",
}  # fmt: skip
OTHERS |= dict.fromkeys([
    "this may be a dog", "soldiers march by", "in autumn", "1600", "July 2030", "2019-13", "2019-02-30", "mid-2019",
    '"summer 2019"', "dogs -2019", "2019^2 dogs", "a nice dog", "a girl reading", "Porto dogs", "between 2015 and dogs",
])  # fmt: skip


@pytest.mark.parametrize("row", re.split(r"[;\n]\s*", DATES.strip()))
def test_dates_are_understood_to_the_day(row):
    sentence, first, last = row.rsplit(" ", 2)
    today = date(2020, 1, 15) if "this winter" in row else TODAY
    (phrase,) = find_phrases(re.sub(r"[\[\]]", "", sentence), today, [])
    tree = parse_filter(date_filter(["taken"], phrase.test), ["taken"])
    days = [str(date(1985, 1, 1) + timedelta(n)) for n in range(365 * 42 + 10)]
    found = [day for day in days if passes(tree, "", {"taken": f"{day} 10:20:30"})]
    assert f"[{phrase.words}]" in sentence
    assert found == days[days.index(first) : days.index(last) + 1]


@pytest.mark.parametrize("sentence", OTHERS)
def test_places_and_months_of_any_year_are_understood_and_other_words_stay_words(sentence):
    found = find_phrases(re.sub(r"[\[\]]", "", sentence), TODAY, PLACES)
    assert all(f"[{phrase.words}]" in sentence for phrase in found)
    assert [phrase.test for phrase in found] == ([OTHERS[sentence]] if OTHERS[sentence] else [])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with ch.open_store(tmp_path_factory.mktemp("narrow") / "store", n_bits=8) as opened:
        taken = ["2019-07-14 10:20:30", "2019-08", "2018-07-01", "2020-01-01"]
        metadata = [{"taken": when, "place": "Porto" if n < 3 else "Nice"} for n, when in enumerate(taken)]
        metadata.append({"taken": "2019-07-02", "date": "2001-01-01", "text": "summer 2019", "country": "Portugal"})
        opened.add([*"abcde"], np.arange(5, dtype=np.uint8)[:, None], metadata=metadata)
        yield opened


@pytest.mark.parametrize(("question", "rest", "where", "ids"), [
    ("two dogs in Porto, summer 2019 -cats", "two dogs -cats", None, "ab"), ("photos from July 2019", "", None, "a"),
    ("in July", "", None, "ac"), ("Porto 1984", "1984", None, "abc"), ("dogs in 2019", "dogs in 2019", "id = 'c'", "c"),
    ("dogs in 2001", "dogs", "id > 'a'", "e"), ("summer 2019 -cats", "summer 2019 -cats", None, "abcde"),
])  # fmt: skip
def test_what_narrows_leaves_the_question(store, question, rest, where, ids):
    narrowed = narrow(store, question, where, TODAY)
    assert (narrowed.text, store.ids(narrowed.where)) == (rest, [*ids])


WORDS = ["dogs", "in", "summer", "2019", "last", "Porto", ",", "-2018", '"', "2018^2", "may", "to", "ago", "à", "\0"]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=9).map(" ".join))
def test_any_question_is_covered_and_what_stands_apart_is_left_alone(store, question):
    phrases = find_phrases(question, TODAY, PLACES)
    plain, narrowed = leave_plain(store, question), narrow(store, question)
    assert plain in (None, narrowed._replace(text=narrowed.text.strip()))
    rest = question
    for phrase in reversed(phrases):
        assert question[phrase.start :].startswith(phrase.words)
        rest = rest[: phrase.start] + rest[phrase.start + len(phrase.words) :]
    assert sorted(rest + "".join(phrase.words for phrase in phrases)) == sorted(question)
    for token in _TOKEN.finditer(question.replace("“", '"').replace("”", '"')):
        if not token[4] or (token[4][0] != '"' and any(_WORD.fullmatch(token[4]).group(1, 3))):
            assert all(p.start + len(p.words) <= token.start() or p.start >= token.end() for p in phrases), token
    assert narrowed.text.split() or not question.strip() or phrases


def test_searches_are_narrowed_and_what_is_left_is_compared(store):
    found = search_store(store, text="in July 2019 or so", by="words")
    assert ([*found], [phrase.words for phrase in found.phrases]) == ([], ["in July 2019"])
    assert [hit.id for hit in search_store(store, SearchOptions(k=2), text="Porto")] == ["b", "a"]
    assert [hit.id for hit in search_store(store, text="in Porto", like="c")] == ["c", "a", "b"]
    check_refusal("leave them out", search_store, store, SearchOptions(radius=3), text="in Porto")
