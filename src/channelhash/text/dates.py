"""Find dates in questions: "summer 2019", "last December", "until 2016", "not in July", "2019年7月".

A date narrows a search only if the whole construction around it is understood, in one of the
languages of `constructions`. Otherwise its words are searched like any others. Seasons are those of
the northern hemisphere; a winter belongs to the year it begins in.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta

from channelhash.text.constructions import LANGUAGES, SIDES
from channelhash.text.date_reader import (
    NO_PERIOD,
    OPEN,
    SEASON,
    YEAR,
    Construction,
    DateReader,
    WrittenDate,
    span,
)
from channelhash.text.questions import DASHES, Days, Found, QuestionText, any_of, openers

#: Year of the first photograph.
_OLDEST = 1826
#: Start of intervals without one. It excludes "0000-00-00", which some programs write for no date.
_FIRST = "0001"
#: End of intervals without one.
_LAST = "9999"
#: Formats of dates, by the length of an equally exact date in ISO 8601.
_FORMATS = {4: "%Y", 7: "%B %Y", 10: "%d %B %Y"}
#: Sides of constructions, the least specific first. It decides between two languages that read the
#: same words.
_PREFERENCE = ("", "article", "of", "in", *OPEN)
#: Tables of the words that name a date without the digits of a year.
_NAMES = ("months", "seasons", "units", "relative today", "relative yesterday", "relative tens")
#: Tables of words that a construction may begin with.
_OPENERS = (
    *_NAMES,
    *SIDES,
    "from",
    "not",
    "counts",
    "relative last",
    "relative this",
    "relative ago before",
    "relative decade",
)
#: Numbers that may be a year or a decade.
_YEARS = re.compile(r"\d{4,}|\d+['’]?s|\d+er")
#: East Asian words behind a date that change its meaning: before, after, from, until.
_EASTERN_AFTER = re.compile(
    r"\s?(?:[以之前後后到至か和或또이가–—~〜-]|まで|から|頃|ごろ|より|や|と|부터|까지|전|후)"
)
#: Such words in front of a date: not, until, and, or.
_EASTERN_BEFORE = re.compile(r"(?:[不非除未没到至和或か와과~〜–—-]|から|부터|除了)\s?$")


def find_dates(question: QuestionText, today: date) -> list[Found]:
    """Return the dates of a question whose constructions are understood, in order.

    >>> question = QuestionText("dogs, not before 2015")
    >>> [found.means for found in find_dates(question, date(2026, 11, 27))]
    ['not before 2015']
    """
    found = list[Found]()
    refused = set[int]()
    for construction in _read_all(question, today):
        start = construction.start
        understood = _understand(question, construction, today)
        if found and question.joins(found[-1].end, start) and not _add_up(found[-1], understood):
            refused.update(range(found.pop().start, start))
        if understood and _fits(question, construction, refused):
            found.append(understood._replace(sure=_is_sure(question, construction)))
        else:
            refused.update(range(start, construction.end))
    return found


def _read_all(question: QuestionText, today: date) -> Iterator[Construction]:
    """Yield the constructions of a question, each the longest that begins behind the last one."""
    readers = {name: DateReader(question, name, today) for name in _languages(question)}
    at = 0
    while readers and at < len(question.words):
        longest = _read(question, readers, at)
        if longest:
            yield longest
        at = longest.end if longest else at + 1


def _read(
    question: QuestionText, readers: Mapping[str, DateReader], at: int
) -> Construction | None:
    """Return the longest construction of any language that begins at a word."""
    languages: Collection[str] = openers(*_OPENERS).get(question.word(at), ())
    if question.kind(at) != "word":
        languages = readers
    read = (reader.read(at) for name, reader in readers.items() if name in languages)
    return max(
        filter(None, read),
        key=lambda one: (one.end, _PREFERENCE.index(one.side)),
        default=None,
    )


def _add_up(first: Found, second: Found | None) -> bool:
    """Return whether "and" demands both: after 2015 and before 2018, in 2019 and not in July."""
    if second is None:
        return True
    if second.days is None:
        return second.test.startswith("NOT")
    return first.days is not None and date.min in first.days + second.days


def _languages(question: QuestionText) -> list[str]:
    """Return the languages in which a question may name a date."""
    named = openers(*_NAMES)
    found = set[str]()
    for word in question.words:
        is_year = word.kind == "number" and _YEARS.fullmatch(word.text)
        if is_year or word.kind in ("date", "eastern"):
            return [*LANGUAGES]
        found.update(named.get(word.text, ()))
    return [name for name in LANGUAGES if name in found]


def _days_of(one: WrittenDate, today: date) -> Days | None:
    """Return the days of a date; None if it does not exist, or no photograph can be of it."""
    try:
        days = one.days or span(one.period, one.year)
        if one.day:
            first = days[0].replace(day=one.day)
            days = first, first + timedelta(1)
    except (ValueError, OverflowError):
        return None
    is_said = one.days or (one.year and 0 <= one.period < NO_PERIOD)
    return days if is_said and _OLDEST <= days[0].year <= today.year else None


def _completed(dates: Sequence[WrittenDate], is_range: bool) -> list[WrittenDate]:
    """Return dates with the month, season or year that another of them adds: June and July 2019,
    14 to 16 July 2019, summer 2015 and 2016.
    """
    first = dates[0]
    # "summer 2015 and 2016" are two summers; "summer 2015 to 2016" ends with the year.
    is_name_of_all = bool(first.period < YEAR and first.year and not first.day and not is_range)
    return [_complete(one, first, dates[-1], is_name_of_all) for one in dates]


def _complete(
    one: WrittenDate, first: WrittenDate, last: WrittenDate, is_name_of_all: bool
) -> WrittenDate:
    """Return a date with the year of the last one, and the month or season of the first or last."""
    if one.days is not None:
        return one
    if one.period == NO_PERIOD:
        period = first.period if one is last else last.period
        return one._replace(period=period, year=one.year or last.year)
    if not one.year:
        return one._replace(year=last.year)
    return one._replace(period=first.period) if one.bare and is_name_of_all else one


def _understand(question: QuestionText, one: Construction, today: date) -> Found | None:
    """Return what a construction means; None if that is unclear."""
    if one.denied and one.side == "until":
        return None  # "not until 2016" may mean from then on
    dates = _completed(one.dates, one.is_range)
    days = None
    if _is_any_year(dates):
        said = _any_year(question, one, dates)
    else:
        intervals = _intervals(dates, one.is_range, today)
        side = one.side if one.side in OPEN else ""
        said = _say(side, intervals) if intervals else None
        if len(intervals) == 1:
            days = _reach(side, intervals[0])
    if not said:
        return None
    found = Found(one.start, one.end, *said, days=days)
    return found.negated() if one.denied else found


def _is_any_year(dates: Sequence[WrittenDate]) -> bool:
    return all(part.days is None and not part.year for part in dates)


def _intervals(dates: Sequence[WrittenDate], is_range: bool, today: date) -> list[Days]:
    """Return the days of each date, or of their range; an empty list if one of them has none."""
    intervals = [_days_of(part, today) for part in dates]
    known = [days for days in intervals if days]
    if len(known) < len(dates):
        return []
    if not is_range:
        return known
    (first, _), (last, stop) = known
    return [(first, stop)] if first < last else []


def _reach(side: str, days: Days) -> Days:
    """Return the days on a side of an interval: those before it, from its first on, and so on."""
    first, stop = days
    return {
        "before": (date.min, first),
        "until": (date.min, stop),
        "since": (first, date.max),
        "after": (stop, date.max),
    }.get(side, days)


def _edge(day: date) -> str:
    """Return a day, or the month or year of which it is the first."""
    return day.isoformat().removesuffix("-01").removesuffix("-01")


def _say(side: str, intervals: Sequence[Days]) -> tuple[str, str]:
    """Return in words, and as a test, the days on a side of any of the intervals."""
    said = [_say_one(side, first, stop) for first, stop in intervals]
    means = " or ".join(dict.fromkeys(words for words, _ in said))
    tests = [test for _, test in said]
    return means, any_of(tests if len(tests) == 1 else [f"({test})" for test in tests])


def _say_one(side: str, first: date, stop: date) -> tuple[str, str]:
    is_exact = not side and (stop - first).days < 28
    low = first.isoformat() if is_exact else _edge(first)
    high = _edge(stop)
    form = _FORMATS[max(len(low), len(high))]
    begin, end = (f"{day:{form}}".lstrip("0") for day in (first, stop - timedelta(1)))
    means = " to ".join(dict.fromkeys((begin, end)))
    if side:
        means = f"{side} {begin if side in ('before', 'since') else end}"
    low, high = {
        "before": (_FIRST, low),
        "until": (_FIRST, high),
        "since": (low, _LAST),
        "after": (high, _LAST),
    }.get(side, (low, high))
    tests = [f"{{0}} >= '{low}'", f"{{0}} < '{high}'"]
    # A stored date that is less exact than the end may lie behind it.
    for length in _FORMATS:
        if length < len(high) and high[:length] >= low:
            tests.append(f"{{0}} != '{high[:length]}'")
    return means, " AND ".join(tests)


def _any_year(
    question: QuestionText, one: Construction, dates: Sequence[WrittenDate]
) -> tuple[str, str] | None:
    """Return in words, and as a test, "in July", "June to August" or "on 14 July" of any year."""
    periods = [part.period for part in dates]
    if max(periods) >= SEASON or one.side not in ("in", "article", ""):
        return None
    if any(part.day for part in dates):
        is_alone = len(dates) == 1
        return _any_years_day(dates[0]) if is_alone and one.side else None
    return _any_years_months(question, one, periods)


def _any_years_months(
    question: QuestionText, one: Construction, periods: Sequence[int]
) -> tuple[str, str] | None:
    """Return in words, and as a test, some months behind "in", or those from the first to the
    last.
    """
    if not one.is_range and question.word(one.lead - 1) not in ("in", "im", "en", "em"):
        return None
    names = [f"{date(2000, period + 1, 1):%B}" for period in periods]
    means = f"{(' to ' if one.is_range else ' or ').join(names)} of any year"
    if one.is_range:
        first, last = periods
        periods = [(first + n) % 12 for n in range((last - first) % 12 + 1)]
    return means, any_of([f"{{0}} LIKE '____-{period + 1:02}%'" for period in periods])


def _any_years_day(one: WrittenDate) -> tuple[str, str] | None:
    try:
        day = date(2000, one.period + 1, one.day)
    except ValueError:
        return None
    return f"{one.day} {day:%B} of any year", f"{{0}} LIKE '____-{day:%m-%d}%'"


def _fits(question: QuestionText, one: Construction, refused: set[int]) -> bool:
    """Return whether the words around dates leave their meaning unchanged."""
    if question.kind(one.lead) == "eastern":
        before = question.text[: question.words[one.start].start]
        after = question.text[question.words[one.end - 1].end :]
        return not _EASTERN_BEFORE.search(before) and not _EASTERN_AFTER.match(after)
    return _may_follow(question, one, refused) and _may_precede(question, one.end)


def _may_follow(question: QuestionText, one: Construction, refused: set[int]) -> bool:
    """Return whether the word before dates leaves their meaning unchanged."""
    before = one.start - 1
    is_led = one.side not in ("", "article")
    if question.parts_before(one.start):
        in_list = question.word(before) == "," and not is_led
        return not in_list or not (before - 1 in refused or question.kind(before - 1) == "number")
    if question.kind(before) != "word":
        return False
    if one.denied:
        return not question.is_any("or", before)
    is_part = question.is_any("spans", before) and one.side in ("before", "after", "of")
    return not is_part and _may_lead(question, before, is_led, before - 1 in refused)


def _may_lead(question: QuestionText, before: int, is_led: bool, is_refused: bool) -> bool:
    """Return whether a word may stand before dates; ``is_led`` if they have a preposition."""
    if question.is_any("and", before) or question.is_any("but", before):
        return is_led and not is_refused
    if question.is_any("articles", before):
        return is_led
    return not question.is_any("function words", before)


def _may_precede(question: QuestionText, at: int) -> bool:
    """Return whether no word behind dates continues them, as in "2014 or dogs", "2019 to Rome"."""
    if question.parts_after(at):
        return question.word(at) not in DASHES or question.kind(at + 1) not in ("number", "date")
    return question.kind(at) == "word" and not question.hanging(at)


def _is_sure(question: QuestionText, one: Construction) -> bool:
    """Return whether dates describe no neighbouring word, as in "a 2019 calendar"."""
    if question.kind(one.lead) == "eastern":
        return True
    is_led = one.side not in ("", "article")
    if all(part.bare for part in one.dates):
        return _is_sure_year(question, one, is_led)
    return (is_led and not _is_any_year(one.dates)) or question.ends(one.end)


def _is_sure_year(question: QuestionText, one: Construction, is_led: bool) -> bool:
    """Return whether four digits are a year: in 2019, photos of 2019, or alone between commas."""
    if one.side == "of" and not one.denied:
        return one.start == 0 or question.is_any("photographs", one.start - 1)
    if is_led or one.denied:
        return question.ends(one.end)
    return question.parts_before(one.start) and question.parts_after(one.end)
