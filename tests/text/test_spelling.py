"""Misspelt words: what a slip costs, which words may be meant, and in which language."""

import random
from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from channelhash.search import plan
from channelhash.text import spelling as slips
from channelhash.text.spelling import (
    Spelling,
    WordList,
    frequent_words,
    likely_languages,
    word_list,
)
from channelhash.text.words import fold


def slip_cost(typed, meant):
    """The least cost of slips, by its definition."""

    @cache
    def least(i, j):  # of the first letters
        ways = [0.0] if i == j == 0 else []
        for word, place, cost in (
            (typed, i, slips._ADDED),
            (meant, j, slips._MISSED),
        ):
            if place:
                rest = least(i - 1, j) if cost == slips._ADDED else least(i, j - 1)
                is_doubled = place > 1 and word[place - 1] == word[place - 2]
                first = slips._FIRST * (place == 1)
                ways.append(rest + (slips._DOUBLED if is_doubled else cost + first))
        if i and j:
            pair = {typed[i - 1], meant[j - 1]}
            cost = (
                slips._TAKEN if any(pair <= set(group) for group in slips._ALIKE) else slips._OTHER
            )
            cost += slips._FIRST * (i == j == 1)
            ways.append(least(i - 1, j - 1) + cost * (len(pair) > 1))
        if i > 1 and j > 1 and typed[i - 2 : i] == meant[j - 2 : j][::-1]:
            ways.append(least(i - 2, j - 2) + slips._SWAPPED)
        return min(ways)

    return least(len(typed), len(meant))


@given(st.text("abez", max_size=6), st.text("abez", max_size=6))
def test_slips_are_the_cheapest(typed, meant):
    assert slips._slip_cost(typed, meant) == pytest.approx(slip_cost(typed, meant))


@given(
    st.lists(st.text("abcdé", min_size=5, max_size=9), min_size=1),
    st.text("abcdé", min_size=5, max_size=9),
)
def test_the_likeliest_word_is_found_among_all(known, asked):
    scores = {word: -float(len(word)) for word in known}
    likeliest = {}
    for word in known:
        form = fold(word)
        likeliest[form] = max(likeliest.get(form, -99), scores[word])
    form = fold(asked)
    limit = -9.0 + slips._A_LETTER * len(form)
    most = 1 if len(form) < 7 else 2
    gains = [
        score - slip_cost(form, other) - limit
        for other, score in likeliest.items()
        if sum((Counter(form) - Counter(other)).values()) <= most
        and sum((Counter(other) - Counter(form)).values()) <= most
    ]
    best = max((gain for gain in gains if gain > -slips._WORST), default=None)
    found = Spelling([WordList(scores)], lambda word: -9.0).corrections(asked)
    if form in likeliest or best is None:
        assert found == []
    elif found:  # none for another ending
        assert found[0].sureness == pytest.approx(best)


def meant_by(typed, words=()):
    """Return what a store of some words and the lists make of a text."""
    store = SimpleNamespace(word_counts=lambda: Counter(words))
    return plan._spelling(store, typed).corrections(typed)


#: A question with a slip -> what was meant; its language has a list, but for the words alone.
SLIPS = {
    "a bycicle leening agianst a wall": "a bicycle leaning against a wall",
    "ein Farrad vor dem Haus": "ein Fahrrad vor dem Haus",
    "un parapluit bleu": "un parapluie bleu",
    "una guitara electrica": "una guitarra electrica",
    "una biccicletta": "una bicicletta",
    "een vliegtuug in de lucht": "een vliegtuig in de lucht",
    "um elefnate na praia": "um elefante na praia",
    "two motorcylces -car": "two motorcycles -car",
    "skatebord": "skateboard",
    "Schmeterling": "Schmetterling",
}


@pytest.mark.parametrize("typed", SLIPS)
def test_what_is_meant_is_the_likeliest(typed):
    best = meant_by(typed)[0]
    assert fold(best.text) == fold(SLIPS[typed])
    assert best.sureness > 0


@pytest.mark.parametrize(
    "typed",
    [
        "un perro en la playa",
        "Giraffen im Zoo",
        "Gänseblümchen",
        "tulpenvelden",
        "des montgolfières dans le ciel",
        "snowboarder",
        "IMG_2031",
        "собака на пляже",
        "海滩上的狗",
        "krowy w oborze wyciągające szyje",  # Polish and Turkish have no list
        "kayalıklarda oturan uzun saçlı bir kadın",
        "",
    ],
)
def test_what_is_no_slip_or_of_no_list_has_no_likely_correction(typed):
    assert [text for sureness, text in meant_by(typed) if sureness > 1] == []


def test_words_of_the_store_may_be_meant_in_any_language():
    assert meant_by("krowy w oborez", ["oborze"])[0].text == "krowy w oborze"


#: Questions of frequent words, one of which is misspelt.
QUESTIONS = {
    "en": "a woman with a yellow umbrella",
    "de": "eine Frau mit einem gelben Regenschirm",
    "fr": "une femme avec un chapeau jaune",
    "es": "una mujer con un paraguas amarillo",
    "it": "una donna con un ombrello giallo",
    "nl": "een vrouw met een gele paraplu",
    "pt": "uma mulher com um chapéu amarelo",
}


@pytest.mark.parametrize("language", QUESTIONS)
def test_letters_that_change_places_are_put_back(language):
    question = QUESTIONS[language]
    draw = random.Random(language)
    words = question.split()
    longest = max(words, key=len)
    place = draw.randrange(1, len(longest) - 2)
    swapped = longest[:place] + longest[place + 1] + longest[place] + longest[place + 2 :]
    assert likely_languages(question)[0] == language
    assert meant_by(question.replace(longest, swapped))[0].text == question


def test_lists_agree_with_what_they_are_made_of():
    for language in slips.LISTED:
        words = word_list(language).words
        frequent = [word for word, score in words.items() if score > slips._RARE]
        assert all(frequent_words().words[word] >= words[word] for word in frequent)
        assert sum(map(slips.math.exp, words.values())) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    "asked", ["Ge\u00adschwindig\u00adkeit", "GESCHWÍNDIGKEIT", "بِلاد", "बिल्ली"]
)
def test_a_word_that_is_spelt_otherwise_is_not_mended(asked):
    words = {fold(word): 1.0 for word in ("Geschwindigkeit", "بلاد", "बिल्ली")}
    spelling = Spelling([WordList(words)], lambda _: -20.0)
    assert (spelling.corrections(asked), spelling.knows_all(asked)) == ([], True)


def test_a_word_of_marks_is_mended_as_a_whole():
    spelling = Spelling([WordList({fold("बिल्लियाँ"): 1.0, fold("चिड़ियाघर"): 1.0})], lambda _: -20.0)
    assert spelling.corrections("बिल्लीयाँ")[0].text == fold("बिल्लियाँ")
