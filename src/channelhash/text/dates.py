"""Dates and places in sentences: "summer 2019", "last December", "between 2015 and 2018",
"2019年7月", "in Porto".

They are read in English, German, French, Italian, Spanish, Portuguese and Dutch, and as numbers.
Seasons are those of the northern hemisphere; a winter bears the year in which it begins. "May" and
"march" are months only beside a year, "last" or "in". Places are those that are given, after a
preposition or as the whole sentence. Phrases in double quotes and words with a weight or a minus
stay what they are.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Literal, NamedTuple

# Months, seasons, day, week, month and year: patterns of their names, in small letters without
# accents.
_PERIODS = [
    "jan|januar[yi]?|janvier|gennaio|enero|janeiro",
    "feb|februar[yi]?|fevrier|febbraio|febrero|fevereiro",
    "march|marz|mars|marzo|marco|maart",
    "apr|april|avril|aprile|abril",
    "may|mai|maggio|mayo|maio|mei",
    "june?|juni|juin|giugno|junio|junho",
    "july?|juli|juillet|luglio|julio|julho",
    "aug|august|augustus|aout|agosto",
    "sept?|septemb(?:er|re)|settembre|septiembre|setembro",
    "oct|o[ck]tob(?:er|re)|ottobre|octubre|outubro",
    "nov|novemb(?:er|re)|noviembre|novembro",
    "dec|de[cz]ember|decembre|dezembro|dicembre|diciembre",
    "spring|fruhling|printemps|(?:na )?primavera|lente",
    "summer|sommer|ete|estate|verano|verao|zomer",
    "autumn|fall|herbst|automne|autunno|otono|outono|herfst",
    "winter|hiver|invi?erno",
    "day",
    "week|woche|semaine|settimana|semana",
    "month|monats?|mois|mese?|maand",
    "year|jahr(?:es)?|annee|an(?:n?o)?|jaar",
]
_DAY, _WEEK, _MONTH, _YEAR = range(16, 20)
_LAST = "last|(?:letzte|vergangene|vorige)[nrsm]?|derniere?|ultim[oa]|vorig|afgelopen"
_LAST_AFTER = "derniere?|passee?|scors[oa]|passat[oa]|pass?ad[oa]|ultim[oa]"
_THIS = "this|diese[nrsm]?|cet?|cette|quest[oa]|n?est[ea]|deze|dit"
_TODAY, _YESTERDAY = (
    "today|heute|aujourd'hui|oggi|hoy|hoje|vandaag",
    "yesterday|gestern|hier|ieri|ayer|ontem|gisteren",
)
_COUNTS = ["an?", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_TENS = [
    "thirties|30s",
    "forties|40s",
    "fifties|50s",
    "sixties|60s",
    "seventies|70s",
    "eighties|80s",
    "nineties|90s",
]
# What may stand before a date and belongs to it; what stands between the first and the last.
_SIDES = (
    "(?P<before>before|vor|avant|prima del|antes "
    "de|voor)|(?P<after>after|nach|apres|dopo|(?:despues|depois) de|na)|"
    "(?P<since>since|seit|depuis|dal|desde|sinds)|(?P<between>between|zwischen|entre|tra|tussen)"
)
_LEADS = "taken|i[mn]|on|of|from|during|the|am|vo[mn]|aus|de[lmnr]?|d[uo]|e[nm]|l[ae]|au|n?el|il|no|op|het|van"
_OF = r"(?:\s+(?:of|de|del|van|di|do))?"
_TO, _AND = (
    rf"\s*(?:{words})\s*(?:the\s)?" for words in ("to|until|bis|al?|tot|[-–]", "and|und|et?|y|en")
)
# year of the first photograph; characters before a date that are looked at
_OLDEST, _LONGEST = (1826, 60)
# What may stand before a place, and between two; "à" is written as @, since "a" is English. Dates
# are written as \1.
_LEAD = re.compile(
    r"(?<!\w)(in|at|from|near|around|bei|nach|aus|um|im|@|aux?|e[nm]|de|d[aio]|n[ao]|del|nella|te|uit)\s+(?:the\s+)?"
    r"|^[\s\1,]*"
)
_JOINT = re.compile(r"\s*,\s*|\s+(?:or|and|oder|und|ou|et|o|e|y|of|en)\s+")
_RUN = re.compile(r"\w+(?:[^\w,\0\1]{1,2}\w+){0,5}")
# Parts of a question that are no plain words, as `search.query.parse_question` reads them; or a
# plain word.
_PART = re.compile(r'-?["“”][^"“”]*["“”](?:\^[\d.]+)?|-(?=[^-])\S+|\S+\^[\d.]+(?!\S)|(\S+)')


class Phrase(NamedTuple):
    """Words of a sentence that say when or where something was.

    Attributes:
        kind: what they say.
        start: where they begin in the sentence.
        words: as they stand there, with their preposition.
        means: the same in other words.
        test: a filter of where it is so; ``{0}`` is the key of a date, written as 2019-07-14 or
            less exactly.

    >>> phrase = next(_find_dates("dogs in summer 2019", date(2026, 11, 27)))
    >>> phrase.words, phrase.means, phrase.test
    ('in summer 2019', 'June 2019 to August 2019', "{0} >= '2019-06' AND {0} < '2019-09'")
    """

    kind: Literal["date", "place"]
    start: int
    words: str
    means: str
    test: str


def _fold(text: str) -> str:
    """Return small letters without accents, a character for each.

    >>> _fold("L’été")
    "l'ete"
    """
    letters = (
        unicodedata.normalize("NFD", sign)[0] if sign < "\u0250" else sign
        for sign in text.replace("’", "'")
    )
    return "".join(letter.lower()[0] for letter in letters)


def _find_dates(text: str, today: date) -> Iterator[Phrase]:
    """Yield the dates in a sentence.

    >>> [phrase.means for phrase in _find_dates("last December, or before 2015", date(2026, 11, 27))]
    ['December 2025', 'before 2015']
    """
    plain, dates, pattern = _fold(text), list[tuple[int, int, str, date, date]](), _patterns()
    for match in pattern["date"].finditer(plain):
        lead = pattern["lead"].search(plain, match.start() - _LONGEST, match.start())
        if not lead or not (days := _days(match[0], today)):
            continue
        start, side = lead.start(), lead.lastgroup or ""
        joint = _AND if dates and dates[-1][2] == "between" else _TO
        if dates and re.fullmatch(joint, plain[dates[-1][1] : match.start()]):
            start, _, _, first, _ = dates.pop()
            side, days = "", (first, days[1])
        dates.append((start, match.end(), side, *days))
    for start, end, side, first, stop in dates:
        low, high = (
            _edge(first) if side or (stop - first).days > 27 else first.isoformat(),
            _edge(stop),
        )
        signs = {4: "%Y", 7: "%B %Y"}.get(max(len(low), len(high)), "%d %B %Y")
        names = [f"{day:{signs}}".lstrip("0") for day in (first, stop - timedelta(1))]
        means = f"{side} {names[side == 'after']}" if side else " to ".join(dict.fromkeys(names))
        low, high = {"before": ("0000", low), "after": (high, "9999"), "since": (low, "9999")}.get(
            side, (low, high)
        )
        if side != "between":
            yield Phrase(
                "date", start, text[start:end], means, f"{{0}} >= '{low}' AND {{0}} < '{high}'"
            )
    for match in pattern["month"].finditer(plain):
        number, words = _place(match[1], _PERIODS) + 1, text[match.start() : match.end()]
        means = f"{date(2000, number, 1):%B} of any year"
        yield Phrase("date", match.start(), words, means, f"{{0}} LIKE '____-{number:02}%'")


def _edge(day: date) -> str:
    """Return a day, or the month or year of which it is the first."""
    return day.isoformat().removesuffix("-01").removesuffix("-01")


def _days(words: str, today: date) -> tuple[date, date] | None:
    """Return the first day of a date and the day after its last; None where there is no such day."""
    match = next(filter(None, (form.fullmatch(words) for form in _forms())))
    part = {name: value for name, value in match.groupdict().items() if value}
    try:
        days = (
            _calendar(part) if part.keys() & {"decade", "tens", "year"} else _relative(part, today)
        )
    except (ValueError, OverflowError):
        return None
    return days if _OLDEST <= days[0].year <= today.year else None


def _calendar(part: Mapping[str, str]) -> tuple[date, date]:
    if "year" not in part:
        return _months(12 * int(part.get("decade") or 1930 + 10 * _place(part["tens"], _TENS)), 120)
    period = (
        int(part["month"]) - 1 if "month" in part else _place(part.get("name", "year"), _PERIODS)
    )
    first, stop = _span(period, int(part["year"]))
    if "day" in part:
        first = first.replace(day=int(part["day"]))
        stop = first + timedelta(1)
    return first, stop


def _relative(part: Mapping[str, str], today: date) -> tuple[date, date]:
    """Return days that are counted back from today; the last month or season is the last that is
    over, and this winter may have begun last year.
    """
    period, word = _place(part.get("name", "day"), _PERIODS), part.get("count", "")
    count = (
        int(word)
        if word.isdecimal()
        else _place(word, _COUNTS) + 1
        if word
        else int("last" in part)
    )
    if period == _YEAR or "of" in part:
        return _span(period, today.year - count)
    if period == _MONTH:
        return _months(12 * today.year + today.month - 1 - count, 1)
    if period >= _DAY:
        length, behind = (7, today.weekday()) if period == _WEEK else (1, 0)
        first = today - timedelta(length * count + behind)
        return first, first + timedelta(length)
    years = [_span(period, today.year - back) for back in range(3)]
    over = (days for days in years if (days[1] <= today if count else days[0] <= today < days[1]))
    return next(over, years[0])


def _span(period: int, year: int) -> tuple[date, date]:
    """Return the first day of a month, season or year and the day after its last."""
    month, length = (
        (0, 12) if period == _YEAR else (period, 1) if period < 12 else (3 * (period - 11) - 1, 3)
    )
    return _months(12 * year + month, length)


def _months(first: int, length: int) -> tuple[date, date]:
    """Return the first day of some months and the day after their last; the months since year 0 are
    counted.
    """
    begin, end = (date(month // 12, month % 12 + 1, 1) for month in (first, first + length))
    return begin, end


def _place(word: str, patterns: Sequence[str]) -> int:
    return next(place for place, pattern in enumerate(patterns) if re.fullmatch(pattern, word))


@cache
def _forms() -> list[re.Pattern[str]]:
    """Return the ways to write a date, those that begin with others first."""
    month, season, unit = (
        "|".join(_PERIODS[part]) for part in (slice(12), slice(12, _DAY), slice(_WEEK, None))
    )
    year, day, number = r"(?P<year>\d{4})", r"(?P<day>\d\d?)", "0?[1-9]|1[0-2]"
    forms = (
        rf"{year} ?[年년](?: ?(?P<month>{number}) ?[月월](?: ?{day} ?[日일])?)?[の的]?",
        rf"(?P<decade>\d{{3}}0)'?s|the (?P<tens>{'|'.join(_TENS)})",
        rf"{day}\. ?(?P<month>{number})\. ?{year}",
        rf"{year}(?:[-/.](?P<month>{number})(?:[-/.]{day})?)?(?![-/.]\d\d?(?!\d))",
        rf"(?:{day}(?:st|nd|rd|th|er|\.|o)?{_OF} )?(?P<name>{month})\.?,?{_OF} {year}",
        rf"(?P<name>{month}) {day}(?:st|nd|rd|th)?,? {year}",
        rf"(?P<name>{season}),?{_OF} {year}",
        rf"(?P<name>{month}|{season}){_OF} (?:(?P<last>{_LAST})|{_THIS}) (?P<of>{_PERIODS[_YEAR]})",
        rf"(?P<last>{_LAST}) (?P<name>{month}|{season}|{unit})",
        rf"(?P<name>{month}|{season}|{unit}) (?P<last>{_LAST_AFTER})",
        rf"(?:{_THIS}) (?P<name>{season}|{unit})",
        rf"(?P<count>\d{{1,3}}|{'|'.join(_COUNTS)}) (?P<name>day|{unit})s? ago",
        rf"(?:{_TODAY})|(?P<last>{_YESTERDAY})",
    )
    return [re.compile(form.replace(" ?", r"\s?").replace(" ", r"\s+")) for form in forms]


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Return patterns of a date, of "in" and a month of which nothing more is said, and of what may
    stand before a date, where the name of the last group is that of a side.
    """
    forms = "|".join(re.sub(r"\?P<\w+>", "?:", form.pattern) for form in _forms())
    begin, end, months = "(?<![0-9a-z_'])", "(?![0-9a-z_]|-[a-z])", "|".join(_PERIODS[:12])
    more = rf"\.?,?{_OF}\s+(?:\d|{_LAST}|{_LAST_AFTER}|{_THIS})"
    patterns = {
        "date": rf"(?<![0-9a-z_])(?<![a-z]-)(?:{forms}){end}",
        "month": rf"{begin}(?:i[nm]|e[nm])\s+({months})(?!{more}){end}",
        "lead": rf"(?:{begin}(?:{_SIDES})\s+)?(?:{begin}(?:(?:{_LEADS})\s+|(?:l|d|n?ell)'))*$",
    }
    return {name: re.compile(pattern) for name, pattern in patterns.items()}


def find_phrases(text: str, today: date, places: Iterable[tuple[str, str]]) -> list[Phrase]:
    """Return what the plain words of a question say of dates and places, in the order of the words.

    Args:
        text: the question.
        today: what "last summer" is counted from.
        places: metadata keys and values; small letters and accents do not matter.

    >>> find_phrases("in Porto", date(2026, 11, 27), [("place", "Porto")])[0].test
    "place IN ('Porto')"
    """
    plain = _PART.sub(lambda part: part[0] if part[1] else "\0" * len(part[0]), text)
    phrases = [*_find_dates(plain, today)]
    for phrase in phrases:
        end = phrase.start + len(phrase.words)
        plain = plain[: phrase.start] + "\1" * len(phrase.words) + plain[end:]
    named = {_fold_name(value): (key, value) for key, value in places}
    for start, end, chosen in _find_places(_fold(re.sub(r"\bà\b", "@", plain)), named):
        values = {key: [value for other, value in chosen if other == key] for key, _ in chosen}
        means = ", ".join(" or ".join(several) for several in values.values())
        literals = {
            key: "', '".join(value.replace("'", "''") for value in values[key]) for key in values
        }
        test = " AND ".join(f"{key} IN ('{literal}')" for key, literal in literals.items())
        phrases.append(Phrase("place", start, text[start:end], means, test))
    return sorted(phrases, key=lambda phrase: phrase.start)


def _find_places(
    plain: str, places: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[int, int, list[tuple[str, str]]]]:
    """Yield where places after a preposition, or alone beside dates, begin and end, and their keys
    and values.
    """
    for lead in _LEAD.finditer(plain):
        start, end, chosen = lead.end(), lead.end(), list[tuple[str, str]]()
        while run := _RUN.match(plain, start):
            ends = [start + word.end() for word in re.finditer(r"\w+", run[0])]
            longest = next(
                (end for end in reversed(ends) if _fold_name(plain[start:end]) in places), None
            )
            if longest is None:
                break
            chosen.append(places[_fold_name(plain[start:longest])])
            end = longest
            start = joint.end() if (joint := _JOINT.match(plain, end)) else len(plain)
        if chosen and (lead[1] or not plain[end:].strip(" \1,")):
            yield lead.start() if lead[1] else lead.end(), end, chosen


@lru_cache(10_000)
def _fold_name(name: str) -> str:
    return " ".join(re.findall(r"\w+", _fold(unicodedata.normalize("NFC", name))))
