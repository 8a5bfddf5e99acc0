"""Dates and places in questions, against days and values that are gone through one by one."""

import re
from datetime import date, timedelta
from itertools import product
from random import Random

import pytest

from channelhash.search.browsing import date_filter
from channelhash.search.filters import parse_filter, passes
from channelhash.text import places as places_module
from channelhash.text.constructions import LANGUAGES, TABLES
from channelhash.text.phrases import find_phrases
from channelhash.text.places import PlaceNames
from channelhash.text.questions import spell

TODAY = date(2026, 11, 27)
PLACES = PlaceNames(
    [
        ("country", "Portugal"),
        ("country", "Netherlands"),
        ("country", "China"),
        *(
            ("place", name)
            for name in ("Porto", "Nice", "Reading", "São Paulo", "Bath", "Bar", "Orange", "Lima")
        ),
        *(("place", name) for name in ("München", "Łódź", "Porto-Novo", "Paris", "Split", "Cork")),
    ]
)
DAYS = [date(1985, 1, 1) + timedelta(n) for n in range(365 * 42 + 10)]
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
# Kind of interval -> language -> constructions of it.
CONSTRUCTIONS = {
    "in": {
        "en": "in {}; from {}; during {}; taken in {}",
        "de": "in {}; aus {}",
        "fr": "en {}; photos de {}",
        "es": "en {}; durante {}",
        "it": "in {}; durante {}",
        "pt": "em {}",
        "nl": "in {}; uit {}",
    },
    "before": {
        "en": "before {}; prior to {}; earlier than {}; photos older than {}",
        "de": "vor {}; älter als {}; früher als {}",
        "fr": "avant {}; plus anciennes que {}",
        "es": "antes de {}; anteriores a {}; más antiguas que {}",
        "it": "prima di {}; anteriori a {}",
        "pt": "antes de {}; mais antigas que {}",
        "nl": "voor {}; ouder dan {}",
    },
    "until": {
        "en": "until {}; till {}; up to {}; through {}; {} and earlier; no later than {}",
        "de": "bis {}; bis einschließlich {}",
        "fr": "jusqu'en {}; jusqu’à {}",
        "es": "hasta {}",
        "it": "fino a {}",
        "pt": "até {}",
        "nl": "tot en met {}",
    },
    "since": {
        "en": "since {}; from {} on; from {} onwards; {} and later; not before {}",
        "de": "seit {}; ab {}; nicht vor {}",
        "fr": "depuis {}; à partir de {}; dès {}",
        "es": "desde {}; a partir de {}",
        "it": "a partire da {}; dal {}",
        "pt": "desde {}; a partir de {}",
        "nl": "sinds {}; vanaf {}",
    },
    "after": {
        "en": "after {}; later than {}; newer than {}",
        "de": "nach {}; neuer als {}",
        "fr": "après {}; plus récentes que {}",
        "es": "después de {}; más recientes que {}",
        "it": "dopo {}; più recenti di {}",
        "pt": "depois de {}; mais recentes que {}",
        "nl": "na {}; nieuwer dan {}",
    },
    "not": {
        "en": "not in {}; except in {}; no photos from {}; anything but {}",
        "de": "nicht in {}; keine Fotos aus {}; außer {}",
        "fr": "pas en {}; sauf en {}; pas de photos de {}",
        "es": "no en {}; excepto en {}; sin fotos de {}",
        "it": "non in {}; tranne {}",
        "pt": "não em {}; exceto em {}",
        "nl": "niet in {}; geen foto's uit {}",
    },
    "range": {
        "en": "from {} to {}; between {} and {}; {} to {}; {} – {}; since {} until {}",
        "de": "von {} bis {}; zwischen {} und {}; {} bis {}",
        "fr": "de {} à {}; entre {} et {}",
        "es": "de {} a {}; entre {} y {}; desde {} hasta {}",
        "it": "da {} a {}; tra {} e {}",
        "pt": "de {} a {}; entre {} e {}; desde {} até {}",
        "nl": "van {} tot {}; tussen {} en {}",
    },
    "or": {
        "en": "in {} or {}; {} or {}; in {} and {}",
        "de": "in {} oder {}; in {} und {}",
        "fr": "en {} ou {}; en {} et en {}",
        "es": "en {} o {}; en {} y {}",
        "it": "in {} o {}; in {} e {}",
        "pt": "em {} ou {}; em {} e {}",
        "nl": "in {} of {}; in {} en {}",
    },
}
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre "
    "dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
}
SEASONS = {
    "en": "spring summer autumn winter",
    "de": "Frühling Sommer Herbst Winter",
    "fr": "printemps été automne hiver",
    "es": "primavera verano otoño invierno",
    "it": "primavera estate autunno inverno",
    "pt": "primavera verão outono inverno",
    "nl": "lente zomer herfst winter",
}


def days_that_pass(phrases, days, key="taken"):
    """Return the days whose photographs pass all phrases, each read as the stores do."""
    tests = [f"({date_filter([key], phrase.test)})" for phrase in phrases]
    tree = parse_filter(" AND ".join(tests), [key])
    return [day for day in days if passes(tree, "", {key: f"{day} 10:20:30"})]


def month_days(year, month, length=1):
    """Return the days of some months; a month beyond December is of the next year."""
    months = {(year + (month + n - 1) // 12, (month + n - 1) % 12 + 1) for n in range(length)}
    return [day for day in DAYS if (day.year, day.month) in months]


def draw_date(random, language, is_named):
    """Draw a year or day in numbers, or a month or season with its name, and its days."""
    year, month, season = random.randint(1990, 2024), random.randint(1, 12), random.randint(0, 3)
    of, day = " de " if language in ("es", "pt") else " ", random.randint(1, 28)
    name = MONTHS[language].split()[month - 1]
    ways = [
        (f"{name}{of}{year}", month_days(year, month)),
        (f"{SEASONS[language].split()[season]}{of}{year}", month_days(year, 3 * season + 3, 3)),
    ]
    if not is_named:
        ways = [
            (f"{year}", month_days(year, 1, 12)),
            (f"{year}-{month:02}-{day:02}", [date(year, month, day)]),
            (f"{day}.{month}.{year}", [date(year, month, day)]),
        ]
    return random.choice(ways)


def expected_days(kind, first, second, days):
    """Return the days of a construction, by its definition."""
    holds = {
        "in": lambda day: first[0] <= day <= first[-1],
        "before": lambda day: day < first[0],
        "until": lambda day: day <= first[-1],
        "since": lambda day: day >= first[0],
        "after": lambda day: day > first[-1],
        "not": lambda day: not first[0] <= day <= first[-1],
        "range": lambda day: first[0] <= day <= second[-1],
        "or": lambda day: day in {*first, *second},
    }[kind]
    return [day for day in days if holds(day)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", CONSTRUCTIONS)
def test_a_construction_of_any_language_means_its_interval(kind, language):
    random = Random(f"{kind} {language}")
    for form in CONSTRUCTIONS[kind][language].split("; "):
        for is_named in (False, False, True, True):
            drawn = [draw_date(random, language, is_named) for _ in range(2)]
            if kind == "range":
                drawn.sort(key=lambda pair: pair[1])
            (one, first), (other, second) = drawn
            edges = {first[0], first[-1], second[0], second[-1]}
            near = {day + timedelta(n) for day in edges for n in (-1, 0, 1)}
            days = sorted({*DAYS[::13], *near})
            question = form.format(one, other)
            phrases = find_phrases(question, TODAY, PLACES)
            assert phrases, question
            found = days_that_pass(phrases, days)
            assert found == expected_days(kind, first, second, days), (question, phrases)


OTHERS = {
    "a dog [in NICE] at night": "place IN ('Nice')",
    "praia [em sao paulo]": "place IN ('São Paulo')",
    "[Reading]": "place IN ('Reading')",
    "[in Reading] at night": "place IN ('Reading')",
    "[in münchen]": "place IN ('München')",
    "[in Munchen]": "place IN ('München')",
    "[in Muenchen]": "place IN ('München')",
    "[in Lodz]": "place IN ('Łódź')",
    "[in Porto novo]": "place IN ('Porto-Novo')",
    "[outside Porto]": "NOT (place IN ('Porto'))",
    "[nicht in Porto oder Nice]": "NOT (place IN ('Porto', 'Nice'))",
    "[fora de Porto]": "NOT (place IN ('Porto'))",
    "a dog that was [not in Porto]": "NOT (place IN ('Porto'))",
    "[in the Netherlands]": "country IN ('Netherlands')",
    "[au Portugal]": "country IN ('Portugal')",
    "[in Porto, Portugal or Nice]": (
        "((place IN ('Porto') AND country IN ('Portugal')) OR (place IN ('Nice')))"
    ),
    "[à Nice]": "place IN ('Nice')",
    "[in May]": "{0} LIKE '____-05%'",
    "[am 14. Juli]": "{0} LIKE '____-07-14%'",
    "[December to January]": "({0} LIKE '____-12%' OR {0} LIKE '____-01%')",
    "[in June or July]": "({0} LIKE '____-06%' OR {0} LIKE '____-07%')",
    "cats [in Porto or Nice]": "place IN ('Porto', 'Nice')",
    "[in Porto, Portugal]": "place IN ('Porto') AND country IN ('Portugal')",
}
OTHERS |= dict.fromkeys(
    [
        "this may be a dog",
        "soldiers march by",
        "in autumn",
        "1600",
        "July 2030",
        "2019-13",
        "2019-02-30",
        "mid-2019",
        '"summer 2019"',
        "dogs -2019",
        "2019^2 dogs",
        "a nice dog",
        "a girl reading",
        "Porto dogs",
        "between 2015 and dogs",
    ]
)


@pytest.mark.parametrize("row", re.split(r"[;\n]\s*", DATES.strip()))
def test_dates_are_understood_to_the_day(row):
    sentence, first, last = row.rsplit(" ", 2)
    today = date(2020, 1, 15) if "this winter" in row else TODAY
    (phrase,) = find_phrases(re.sub(r"[\[\]]", "", sentence), today, PLACES)
    assert f"[{phrase.words}]" in sentence
    assert days_that_pass([phrase], DAYS) == [day for day in DAYS if first <= str(day) <= last]


@pytest.mark.parametrize("sentence", OTHERS)
def test_places_and_months_of_any_year_are_understood_and_other_words_stay_words(sentence):
    found = find_phrases(re.sub(r"[\[\]]", "", sentence), TODAY, PLACES)
    assert all(f"[{phrase.words}]" in sentence for phrase in found)
    assert [phrase.test for phrase in found] == ([OTHERS[sentence]] if OTHERS[sentence] else [])


@pytest.mark.parametrize(
    "form", ["{}-{:02}-{:02}", "{}/{:02}/{:02}", "before {}-{}-{}", "{2}.{1}.{0}", "{}年{}月{}日"]
)
def test_a_day_that_is_impossible_is_no_date(form):
    for month, day in product(range(14), range(33)):
        found = find_phrases(form.format(2019, month, day), TODAY, PLACES)
        try:
            assert date(2019, month, day)
        except ValueError:
            assert not found, (month, day)
        else:
            assert f"{day} " in found[0].means


NOUNS = "dog cat calendar jacket room people beans Hund Haus chien mesa libro casa gatto cão huis"
NOUNS = NOUNS.split()
#: What a number or a name of a place stands in without saying when or where.
ATTRIBUTES = """
a {year} {noun}; {year} {noun}s; {noun} {year}; {noun} number {year}; the {noun} of {year}; {noun} version {year}
{noun} around {year}; {noun} {year} €; {noun} about {year}; in {year} {noun}s
since {year} {noun}s; {n} or {year} {noun}s
{n} or {m} {noun}s; between {n} and {m} {noun}s; {n}x{m} {noun}; a {noun} by {year}; {year}s; early {year} {noun}
a {noun} in the {place}; a {noun} at the {place}; {noun} in {place} {noun}; a {lower} {noun}; {lower} {noun}
the {noun} in {lower}; {Noun} IN THE {PLACE}; A {Noun} In The {place}; {noun} beim {place}; {noun} and {place} {noun}
may {noun} march in the {noun}; {noun} in the spring of the {noun}; the {noun} may fall
May {noun}; sun and sat by the {noun}
the second {noun}; a {noun} until noon; before the {noun}; {noun} after dark; the {noun} or in {year}; {noun} hier
{noun} before {year} or {noun}; from {year} to the {noun}; {year} or {noun}; {n}/{m}/{year}
mid-{year}; {year}+; ~{year}
{noun} no. {year}; {noun} Nr. {year}; {noun} ca. {year}; {noun}s, approx. {year}; {noun} vol. {year}
"""
#: Places whose names are words as well.
WORDS_TOO = ["Bath", "Bar", "Orange", "Nice", "Reading", "Split", "Cork", "Lima", "China"]


@pytest.mark.parametrize("form", re.split(r"[;\n]\s*", ATTRIBUTES.strip()))
def test_a_number_or_name_beside_other_words_narrows_nothing(form):
    random = Random(form)
    for _ in range(8):
        noun, place = random.choice(NOUNS), random.choice(WORDS_TOO)
        n, m = random.sample(range(1, 13), 2)
        question = form.format(
            noun=noun,
            Noun=noun.capitalize(),
            place=place,
            lower=place.lower(),
            PLACE=place.upper(),
            year=random.randint(1900, 2025),
            n=n,
            m=m,
        )
        assert find_phrases(question, TODAY, PLACES) == [], question


@pytest.mark.parametrize(
    "when", ["until {}", "bis {}", "jusqu'en {}", "hasta {}", "fino al {}", "tot {}", "before {}"]
)
def test_a_place_and_the_date_that_ends_its_time_are_both_understood(when):
    year = Random(when).randint(1990, 2024)
    found = find_phrases(f"in Porto {when.format(year)}", TODAY, PLACES)
    assert [phrase.kind for phrase in found] == ["place", "date"]
    assert [phrase.words for phrase in found] == ["in Porto", when.format(year)]


@pytest.mark.parametrize(
    "form",
    [
        "after {} and before {}",
        "after {} but before {}",
        "nach {} aber vor {}",
        "après {} mais avant {}",
        "después de {} pero antes de {}",
        "dopo il {} ma prima del {}",
    ],
)
def test_an_open_begin_and_an_open_end_hold_together(form):
    first = Random(form).randint(1990, 2010)
    found = find_phrases(form.format(first, first + 3), TODAY, PLACES)
    expected = [day for day in DAYS if first < day.year < first + 3]
    assert days_that_pass(found, DAYS) == expected


DENIALS = [
    (language, word) for language, words in TABLES["not"].items() for word in words.split(", ")
]


@pytest.mark.parametrize(("language", "denial"), DENIALS)
def test_what_is_denied_is_never_asked_for(language, denial):
    random = Random(f"{language} {denial}")
    lead = {"de": "aus", "fr": "en", "es": "en", "it": "in", "pt": "em"}.get(language, "in")
    for between in ("", "", random.choice(NOUNS), "only", "the very"):
        when = random.choice(["2019", f"{random.choice(MONTHS[language].split()[3:])} 2019"])
        asked = random.choice([f"{lead} {when}", f"{lead} Porto", f"{lead} Porto {lead} {when}"])
        for form in (form for form in spell(denial) if not form.endswith("'")):
            question = " ".join([random.choice(NOUNS), form, between, asked]).replace("  ", " ")
            found = find_phrases(question, TODAY, PLACES)
            first = found[0].test if found else "NOT"
            assert first.startswith("NOT"), (question, found)


@pytest.mark.parametrize(
    "question",
    [
        "in 2014, " * 90,
        "2014, " * 90,
        " ".join(map(str, range(1900, 1990))),
        "not the " * 90,
        "in Porto, Portugal or " * 40 + "in Nice",
        "in 2014 and not " * 40,
        "dog in 2014 " * 9,
    ],
)
def test_a_question_that_goes_on_and_on_makes_no_filter_that_is_too_long(question):
    phrases = find_phrases(question, TODAY, PLACES)
    tests = [date_filter(["date", "taken"], phrase.test) for phrase in phrases]
    if tests:
        parse_filter(" AND ".join(tests), ["date", "taken", "place", "country"])


@pytest.mark.parametrize(
    "name", ["दिल्ली", "กรุงเทพ", "القاهرة", "東京", "L'Aquila", "St. John's", "7 Ödön utca"]
)
def test_names_in_any_script_are_found(name):
    names = PlaceNames([("place", name)])
    literal = name.replace("'", "''")
    for question in (name, f"in {name}", f"a dog in {name}, 2019"):
        tests = [phrase.test for phrase in find_phrases(question, TODAY, names)]
        assert tests[:1] == [f"place IN ('{literal}')"], question


def test_names_are_looked_up_and_not_gone_through(monkeypatch):
    names = PlaceNames(("place", f"{row} Long Street") for row in range(200))
    find_phrases("a dog in Porto", TODAY, names)  # what is kept is made
    monkeypatch.setattr(places_module, "_spellings", None)
    monkeypatch.setattr(places_module, "_read_cities", None)
    for question in ("a dog", "in Lyon", "dogs in 7 Long Street", "7 Long Street, July 2019"):
        found = find_phrases(question, TODAY, names)
        tests = [phrase.test for phrase in found if phrase.kind == "place"]
        assert tests == ["place IN ('7 Long Street')"] * ("7 Long" in question)


@pytest.mark.skipif(not places_module._read_cities(), reason="needs the extra places")
@pytest.mark.parametrize(
    ("asked", "places", "found"),
    [
        ("in New York", ["New York City"], ["New York City"]),
        ("in NEW YORK", ["New York City"], ["New York City"]),
        ("fotos aus münchen", ["Munich"], ["Munich"]),
        ("in Munich", ["München", "Munich"], ["Munich", "München"]),
        ("in Köln", ["Cologne"], ["Cologne"]),
        ("in Cologne", ["Köln"], ["Köln"]),
        ("à Londres", ["London"], ["London"]),
        ("en Florencia", ["Florence"], ["Florence"]),
        ("a dog in rim", ["Rome"], []),
        ("in MUC", ["Munich"], []),
        ("in York", ["New York City"], []),
        ("New York", ["New York City"], ["New York City"]),
        ("München, Lodz", ["Munich", "Łódź"], ["Munich", "Łódź"]),
        ("New York Pizza", ["New York City"], []),
    ],
)
def test_a_city_is_found_by_the_other_names_it_has(asked, places, found):
    phrases = find_phrases(asked, TODAY, PlaceNames(("place", name) for name in places))
    literals = "', '".join(found)
    assert [phrase.test for phrase in phrases] == [f"place IN ('{literals}')"] * bool(found)
