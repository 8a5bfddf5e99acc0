"""Dates in sentences: "summer 2019", "last December", "between 2015 and 2018", "2019年7月".

They are read in English, German, French, Italian, Spanish, Portuguese and Dutch, and as numbers. Seasons are those of
the northern hemisphere; a winter bears the year in which it begins. "May" and "march" are months only beside a year,
"last" or "in".
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Literal, NamedTuple

# Months, seasons, day, week, month and year: patterns of their names, in small letters without accents.
_PERIODS = [
    "jan|januar[yi]?|janvier|gennaio|enero|janeiro", "feb|februar[yi]?|fevrier|febbraio|febrero|fevereiro",
    "march|marz|mars|marzo|marco|maart", "apr|april|avril|aprile|abril", "may|mai|maggio|mayo|maio|mei",
    "june?|juni|juin|giugno|junio|junho", "july?|juli|juillet|luglio|julio|julho", "aug|august|augustus|aout|agosto",
    "sept?|septemb(?:er|re)|settembre|septiembre|setembro", "oct|o[ck]tob(?:er|re)|ottobre|octubre|outubro",
    "nov|novemb(?:er|re)|noviembre|novembro", "dec|de[cz]ember|decembre|dezembro|dicembre|diciembre",
    "spring|fruhling|printemps|(?:na )?primavera|lente", "summer|sommer|ete|estate|verano|verao|zomer",
    "autumn|fall|herbst|automne|autunno|otono|outono|herfst", "winter|hiver|inverno|invierno",
    "day", "week|woche|semaine|settimana|semana", "month|monats?|mois|mese|mes|maand",
    "year|jahr(?:es)?|annee|an|anno|ano|jaar",
]  # fmt: skip
_DAY, _WEEK, _MONTH, _YEAR = range(16, 20)
_LAST = "last|(?:letzte|vergangene|vorige)[nrsm]?|derniere?|ultim[oa]|vorig|afgelopen"
_LAST_AFTER = "derniere?|passee?|scors[oa]|passat[oa]|pass?ad[oa]|ultim[oa]"
_THIS = "this|diese[nrsm]?|cet?|cette|quest[oa]|n?est[ea]|deze|dit"
_TODAY, _YESTERDAY = "today|heute|aujourd'hui|oggi|hoy|hoje|vandaag", "yesterday|gestern|hier|ieri|ayer|ontem|gisteren"
_COUNTS = ["an?", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_TENS = ["thirties|30s", "forties|40s", "fifties|50s", "sixties|60s", "seventies|70s", "eighties|80s", "nineties|90s"]
# What may stand before a date and belongs to it; what stands between the first and the last.
_SIDES = {
    "before": "before|vor|avant|prima del|antes de|voor",
    "after": "after|nach|apres|dopo|despues de|depois de|na",
    "since": "since|seit|depuis|dal|desde|sinds",
    "between": "between|zwischen|entre|tra|tussen",
}
_LEADS = "taken|i[mn]|on|of|from|during|the|am|vo[mn]|aus|de[lmnr]?|d[uo]|e[nm]|l[ae]|au|n?el|il|no|op|het|van"
_OF = r"(?:\s+(?:of|de|del|van|di|do))?"
_TO, _AND = (rf"\s*(?:{words})\s*(?:the\s)?" for words in ("to|until|bis|al?|tot|[-–]", "and|und|et?|y|en"))
_OLDEST, _LONGEST = 1826, 60  # year of the first photograph; characters before a date that are looked at


class Phrase(NamedTuple):
    """Words of a sentence that say when or where something was.

    Attributes:
        kind: what they say.
        start: where they begin in the sentence.
        words: as they stand there, with their preposition.
        means: the same in other words.
        test: a filter of where it is so; ``{0}`` is the key of a date, written as 2019-07-14 or less exactly.

    >>> phrase = next(find_dates("dogs in summer 2019", date(2026, 11, 27)))
    >>> phrase.words, phrase.means, phrase.test
    ('in summer 2019', 'June 2019 to August 2019', "{0} >= '2019-06' AND {0} < '2019-09'")
    """

    kind: Literal["date", "place"]
    start: int
    words: str
    means: str
    test: str


def fold(text: str) -> str:
    """Return small letters without accents, a character for each.

    >>> fold("L’été")
    "l'ete"
    """
    letters = (unicodedata.normalize("NFD", sign)[0] if sign < "\u0250" else sign for sign in text.replace("’", "'"))
    return "".join(letter.lower()[0] for letter in letters)


def find_dates(text: str, today: date) -> Iterator[Phrase]:
    """Yield the dates in a sentence.

    >>> [phrase.means for phrase in find_dates("last December, or before 2015", date(2026, 11, 27))]
    ['December 2025', 'before 2015']
    """
    plain, found = fold(text), list[tuple[int, int, str, date, date]]()
    for match in _pattern().finditer(plain):
        lead, days = _lead().search(plain, match.start() - _LONGEST, match.start()), _days(match[0], today)
        if not lead or not days:
            continue
        start, side = lead.start(), lead.lastgroup or ""
        joint = _AND if found and found[-1][2] == "between" else _TO
        if found and re.fullmatch(joint, plain[found[-1][1] : match.start()]):
            start, _, _, first, _ = found.pop()
            side, days = "", (first, days[1])
        found.append((start, match.end(), side, *days))
    for start, end, side, first, stop in found:
        low, high = _edge(first) if side or (stop - first).days > 27 else first.isoformat(), _edge(stop)
        signs = {4: "%Y", 7: "%B %Y"}.get(max(len(low), len(high)), "%d %B %Y")
        names = [f"{day:{signs}}".lstrip("0") for day in (first, stop - timedelta(1))]
        means = f"{side} {names[side == 'after']}" if side else " to ".join(dict.fromkeys(names))
        low = {"before": "0000", "after": high}.get(side, low)
        high = {"before": _edge(first), "after": "9999", "since": "9999"}.get(side, high)
        if side != "between":
            yield Phrase("date", start, text[start:end], means, f"{{0}} >= '{low}' AND {{0}} < '{high}'")
    for match in _any_year().finditer(plain):
        month = _place(match[1], _PERIODS) + 1
        means = f"{date(2000, month, 1):%B} of any year"
        yield Phrase("date", match.start(), text[slice(*match.span())], means, f"{{0}} LIKE '____-{month:02}%'")


def _edge(day: date) -> str:
    """Return a day, or the month or year of which it is the first."""
    return day.isoformat().removesuffix("-01").removesuffix("-01")


def _days(words: str, today: date) -> tuple[date, date] | None:
    """Return the first day of a date and the day after its last; None where there is no such day."""
    match = next(filter(None, (form.fullmatch(words) for form in _forms())))
    part = {name: value for name, value in match.groupdict().items() if value}
    try:
        days = _calendar(part) if part.keys() & {"decade", "tens", "year"} else _relative(part, today)
    except (ValueError, OverflowError):
        return None
    return days if _OLDEST <= days[0].year <= today.year else None


def _calendar(part: Mapping[str, str]) -> tuple[date, date]:
    if "year" not in part:
        first = date(int(part.get("decade") or 1930 + 10 * _place(part["tens"], _TENS)), 1, 1)
        return first, _later(first, 120)
    period = int(part["month"]) - 1 if "month" in part else _place(part.get("name", "year"), _PERIODS)
    first, stop = _span(period, int(part["year"]))
    if "day" in part:
        first = first.replace(day=int(part["day"]))
        stop = first + timedelta(1)
    return first, stop


def _relative(part: Mapping[str, str], today: date) -> tuple[date, date]:
    """Return days that are counted back from today; the last month or season is the last that is over."""
    period, word = _place(part.get("name", "day"), _PERIODS), part.get("count", "")
    count = int(word) if word.isdecimal() else _place(word, _COUNTS) + 1 if word else 1 if "last" in part else 0
    if "of" in part:
        return _span(period, today.year - count)
    if period < _DAY:
        past = (_span(period, today.year - years) for years in range(3 * count))
        return next((days for days in past if days[1] <= today), _span(period, today.year))
    if period <= _WEEK:
        length = 1 if period == _DAY else 7
        first = today - timedelta(length * count + (today.weekday() if period == _WEEK else 0))
        return first, first + timedelta(length)
    months = 1 if period == _MONTH else 12
    first = _later(today.replace(day=1, month=today.month if period == _MONTH else 1), -months * count)
    return first, _later(first, months)


def _span(period: int, year: int) -> tuple[date, date]:
    """Return the first day of a month, season or year and the day after its last."""
    month, length = (1, 12) if period == _YEAR else (period + 1, 1) if period < 12 else (3 * (period - 11), 3)
    return date(year, month, 1), _later(date(year, month, 1), length)


def _later(first: date, months: int) -> date:
    years, month = divmod(first.month - 1 + months, 12)
    return date(first.year + years, month + 1, 1)


def _place(word: str, patterns: Sequence[str]) -> int:
    return next(place for place, pattern in enumerate(patterns) if re.fullmatch(pattern, word))


@cache
def _forms() -> list[re.Pattern[str]]:
    """Return the ways to write a date, those that begin with others first."""
    month, season, unit = ("|".join(_PERIODS[part]) for part in (slice(12), slice(12, _DAY), slice(_WEEK, None)))
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
def _pattern() -> re.Pattern[str]:
    forms = "|".join(re.sub(r"\?P<\w+>", "?:", form.pattern) for form in _forms())
    return re.compile(rf"(?<![0-9a-z_])(?<![a-z]-)(?:{forms})(?![0-9a-z_]|-[a-z])")


@cache
def _any_year() -> re.Pattern[str]:
    """Return "in" and a month that nothing more is said of."""
    further = rf"\.?,?{_OF}\s+(?:\d|{_LAST}|{_LAST_AFTER}|{_THIS})"
    return re.compile(rf"(?<![0-9a-z_])(?:i[nm]|e[nm])\s+({'|'.join(_PERIODS[:12])})(?![0-9a-z_]|-[a-z]|{further})")


@cache
def _lead() -> re.Pattern[str]:
    """Return what may stand before a date; the name of its last group is that of a side."""
    sides = "|".join(f"(?P<{side}>{words})" for side, words in _SIDES.items())
    return re.compile(rf"(?:(?<![0-9a-z'])(?:{sides})\s+)?(?:(?<![0-9a-z'])(?:(?:{_LEADS})\s+|(?:l|d|n?ell)'))*$")
