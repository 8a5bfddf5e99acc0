"""Dates in questions: "summer 2019", "last December", "until 2016", "not in July", "2019年7月".

A date narrows only where the whole construction around it is understood, in one of the languages of
`constructions`; otherwise its words stay words. Seasons are those of the northern hemisphere; a
winter bears the year in which it begins.
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from channelhash.text.constructions import LANGUAGES, SIDES
from channelhash.text.questions import DASHES, Days, Found, Question, openers

# Periods: months from 0 on, seasons from 12 on, a year, nothing that is said.
_SEASON, _YEAR, _NO_PERIOD = 12, 16, 17
# Units that are counted back.
_N_MONTHS, _MAX_DAY = 12, 31
_DAY_UNIT, _WEEK_UNIT, _MONTH_UNIT, _YEAR_UNIT = range(4)
#: Year of the first photograph; first decade that two digits name.
_OLDEST, _TENS = 1826, 1930
#: Bounds of open intervals: "0000-00-00", which programs write for none, lies before the first.
_FIRST, _LAST = "0001", "9999"
_OPEN = ("before", "until", "since", "after")
#: Of constructions of the same words in two languages, the one that says more comes last.
_PREFERENCE = ("", "article", "of", "in", *_OPEN)
# What every date has that has no year; what a construction may begin with.
_NAMES = ("months", "seasons", "units", "relative today", "relative yesterday", "relative tens")
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
_NUMBERED = re.compile(r"\d{4,}|\d+['’]?s|\d+er")
_EASTERN = re.compile(r"(\d{4})\D+(?:(\d\d?)\D+(?:(\d\d?)\D*)?)?")
# What turns a date in Chinese, Japanese or Korean into another: before, after, from, until, not.
_EASTERN_AFTER = re.compile(
    r"\s?(?:[以之前後后到至か和或또이가–—~〜-]|まで|から|頃|ごろ|より|や|と|부터|까지|전|후)"
)
_EASTERN_BEFORE = re.compile(r"(?:[不非除未没到至和或か와과~〜–—-]|から|부터|除了)\s?$")


class _Date(NamedTuple):
    """A date as it is written, and where it ends.

    A year of 0 and a day of 0 are not said. A bare year is nothing but four digits. Days that are
    counted back from today are known.
    """

    end: int
    period: int
    year: int = 0
    day: int = 0
    bare: bool = False
    days: Days | None = None


class _Construction(NamedTuple):
    """Dates with the words around them; ``lead`` is where those before them end."""

    end: int
    side: str
    dates: tuple[_Date, ...]
    is_range: bool = False
    start: int = 0
    denied: bool = False
    lead: int = 0


def find_dates(question: Question, today: date) -> list[Found]:
    """Return the dates of a question whose constructions are understood, in their order.

    >>> [found.means for found in find_dates(Question("dogs, not before 2015"), date(2026, 11, 27))]
    ['not before 2015']
    """
    languages = _languages(question)
    readers = {name: _Reader(question, name, today) for name in LANGUAGES if name in languages}
    found, refused, at = list[Found](), set[int](), 0
    while readers and at < len(question.words):
        opened = openers(*_OPENERS).get(question.word(at), ())
        is_word = question.kind(at) == "word"
        read = [
            one
            for name, reader in readers.items()
            if (name in opened or not is_word) and (one := reader.read(at))
        ]
        if not read:
            at += 1
            continue
        longest = max(read, key=lambda one: (one.end, _PREFERENCE.index(one.side)))
        understood = _understand(question, longest, today)
        if (
            understood
            and found
            and question.joins(found[-1].end, at)
            and not _add_up(found[-1], understood)
        ):
            refused.update(range(found.pop().start, at))
        if understood and _fits(question, longest, refused):
            found.append(understood._replace(sure=_is_sure(question, longest)))
        else:
            refused.update(range(at, longest.end))
        at = longest.end
    return found


def _add_up(first: Found, second: Found) -> bool:
    """Return whether "and" asks for both: after 2015 and before 2018, in 2019 and not in July."""
    if second.days is None:
        return second.test.startswith("NOT")
    return bool(first.days) and date.min in (first.days or ()) + second.days


def _languages(question: Question) -> frozenset[str]:
    """Return the languages in which a question may name a date."""
    named = openers(*_NAMES)
    found: frozenset[str] = frozenset()
    for word in question.words:
        if word.kind in ("date", "eastern") or (
            word.kind == "number" and _NUMBERED.fullmatch(word.text)
        ):
            return frozenset(LANGUAGES)
        found |= named.get(word.text, found)
    return found


class _Reader:
    """Reads dates in one language."""

    def __init__(self, question: Question, language: str, today: date) -> None:
        self._question = question
        self._language = language
        self._today = today

    def _match(self, table: str, at: int) -> tuple[int, int] | None:
        return self._question.match(table, self._language, at)

    def _skip(self, table: str, at: int) -> int:
        """Return where a phrase of a kind ends, or the same place where none begins."""
        match = self._match(table, at)
        return match[0] if match else at

    def read(self, start: int) -> _Construction | None:
        """Return the longest construction that begins here."""
        at = self._question.after_denial(self._language, start)
        sides = [(at, "")]
        for side in (*SIDES, "from"):
            match = self._match(side, at)
            is_plain = side in ("in", "of", "article") and match and match[0] == at + 1
            if match and (not is_plain or self._question.shows(self._language, at)):
                sides.append((match[0], side))
        read = [
            one._replace(start=start, denied=at > start, lead=after)
            for after, side in sides
            if (one := self._after_side(side, after))
        ]
        return max(read, key=lambda one: (one.end, one.lead), default=None)

    def _after_side(self, side: str, at: int) -> _Construction | None:
        """Read dates after a preposition: one, a range, a list, or one that is opened behind."""
        first = self._date(at) or (self._date(self._skip("article", at)) if side else None)
        if not first:
            return None
        second = self._second(first.end, "and" if side == "between" else "to")
        if second and side not in ("before", "until", "after"):
            return _Construction(second.end, "in" if side else "", (first, second), is_range=True)
        if second or side in ("between", "from"):
            return None
        if closed := self._closed(side, first):
            return closed
        dates = [first] if side in _OPEN else self._listed(first)
        return _Construction(dates[-1].end, side, tuple(dates))

    def _second(self, at: int, joint: str) -> _Date | None:
        """Return the date that follows "to" or a dash, or "and"."""
        if match := self._match(joint, at):
            return self._date(self._skip("article", match[0]))
        is_dash = joint == "to" and self._question.word(at) in DASHES
        return self._date(at + 1) if is_dash else None

    def _closed(self, side: str, first: _Date) -> _Construction | None:
        """Return a date that is opened by what follows: "2016 and later", "from 2016 on"."""
        if side in ("before", "until", "after"):
            return None
        for table, opened in (("onwards", "since"), ("backwards", "until")):
            match = self._match(table, first.end)
            if match and self._closes(side, first.end, match[0]):
                return _Construction(match[0], opened, (first,))
        return None

    def _closes(self, side: str, start: int, end: int) -> bool:
        """Return whether words belong to the date before them: "on" may begin what follows."""
        if end - start > 1 or self._question.word(start) not in ("on", "an"):
            return True
        return bool(side) and self._question.parts_after(end)

    def _listed(self, first: _Date) -> list[_Date]:
        """Return a date and those that are joined to it by commas, "and" or "or"."""
        dates, n_kept = [first], 1
        while True:
            at = dates[-1].end
            after = at + 1 if self._question.word(at) == "," else at
            joint = self._match("or", after) or self._match("and", after)
            after = joint[0] if joint else after
            following = self._date(self._after_lead(after)) if after > at else None
            if not following:
                return dates[:n_kept]
            dates.append(following)
            if joint or all(one.bare for one in dates):
                n_kept = len(dates)

    def _after_lead(self, at: int) -> int:
        return max(self._skip(side, at) for side in ("in", "of", "article"))

    def _date(self, at: int) -> _Date | None:
        """Return the longest date that begins here, with as much as is said."""
        kind = self._question.kind(at)
        if kind in ("date", "eastern"):
            return _read_numbers(self._question.word(at), at + 1)
        forms = (self._of_month(at), self._relative(at), self._decade(at), self._of_year(at))
        return max((form for form in forms if form), key=lambda form: form.end, default=None)

    def _number(self, at: int, pattern: str) -> int:
        """Return a number of a form, or 0."""
        if self._question.kind(at) != "number":
            return 0
        match = re.fullmatch(pattern, self._question.word(at))
        return int(match[1]) if match else 0

    def _day(self, at: int) -> tuple[int, int]:
        """Return the day of a month that stands here, or 0, and where it ends."""
        day = self._number(at, r"(\d\d?)(?:st|nd|rd|th|er|re|e|o|a)?")
        if not day:
            return 0, at
        has_point = self._question.word(at + 1) == "." and self._question.touches(at + 1)
        return day, at + 2 if has_point else at + 1

    def _of_year(self, at: int) -> _Date | None:
        """Read "2019" or "the year 2019"."""
        unit = self._match("units", at)
        after = at
        if unit and unit[1] == _YEAR_UNIT:
            after = self._skip("relative of", unit[0])
        year = self._number(after, r"(\d{4})")
        return _Date(after + 1, _YEAR, year, bare=after == at) if year else None

    def _of_month(self, at: int) -> _Date | None:
        """Read "July 2019", "14 July 2019", "July 14, 2019" or "summer of last year", also without
        the year; or a day alone, perhaps with a year, as ranges end: "July 14 to 16, 2019".
        """
        day, end = self._day(at)
        name = self._name(self._skip("relative of", end) if day else end)
        if not name:
            year, after = self._year(end) if self._question.word(end) == "," else (0, end)
            return _Date(after, _NO_PERIOD, year, day) if day else None
        end, period = name
        if period >= _SEASON and day:
            return None
        if self._question.word(end) == "." and self._question.touches(end) and period < _SEASON:
            end += 1
        if not day and period < _SEASON:
            day, end = self._day(end)
        year, end = self._year(end)
        return _Date(end, period, year, day)

    def _name(self, at: int) -> tuple[int, int] | None:
        """Return where the name of a month or season ends, and its period."""
        for table, first in (("months", 0), ("seasons", _SEASON)):
            match = self._match(table, at)
            if match and self._question.shows(self._language, at):
                return match[0], first + match[1]
        return None

    def _year(self, at: int) -> tuple[int, int]:
        """Return the year that follows a month or season, or 0, and where it ends."""
        after = at + 1 if self._question.word(at) == "," else self._skip("relative of", at)
        if year := self._of_year(after):
            return year.year, year.end
        relative = self._relative(self._skip("article", after))
        if relative and relative.period == _YEAR and relative.days:
            return relative.days[0].year, relative.end
        return 0, at

    def _relative(self, at: int) -> _Date | None:
        """Read "yesterday", "last summer", "l'anno scorso", "this week" or "two years ago"."""
        for table, count in (("relative today", 0), ("relative yesterday", 1)):
            match = self._match(table, at)
            if match and self._question.shows(self._language, at):
                return self._back(match[0], _DAY_UNIT, count)
        if match := self._match("relative last", at):
            return self._named(match[0], match[0], 1)
        if match := self._match("relative this", at):
            return self._named(match[0], match[0], 0)
        return self._named(at, None, 1) or self._ago(at)

    def _named(self, at: int, end: int | None, count: int) -> _Date | None:
        """Read a month, season or unit after "last" or "this"; before "last" where no end is given."""
        name, unit = self._name(at), self._match("units", at)
        if not name and (not unit or unit[1] == _DAY_UNIT):
            return None
        after = name[0] if name else unit[0] if unit else at
        if end is None:
            last = self._match("relative last after", after)
            if not last:
                return None
            after = last[0]
        if name and name[1] < _SEASON and not count:
            return None  # "this may" is no month
        if name:
            return _Date(after, name[1], days=_last_period(name[1], count, self._today))
        return self._back(after, unit[1], count) if unit else None

    def _ago(self, at: int) -> _Date | None:
        """Read "two years ago", "vor zwei Jahren" or "il y a deux ans"."""
        before = self._match("relative ago before", at)
        if before and not self._question.shows(self._language, at):
            return None
        after = before[0] if before else at
        counted = self._match("counts", after)
        count = counted[1] + 1 if counted else self._number(after, r"(\d{1,3})")
        unit = self._match("units", counted[0] if counted else after + 1)
        if not count or not unit:
            return None
        behind = self._match("relative ago after", unit[0])
        if not before and not behind:
            return None
        return self._back(behind[0] if behind else unit[0], unit[1], count)

    def _back(self, end: int, unit: int, count: int) -> _Date | None:
        """Return the day, week, month or year so many before today's."""
        period = _YEAR if unit == _YEAR_UNIT else _NO_PERIOD
        try:
            return _Date(end, period, days=_counted_back(unit, count, self._today))
        except (ValueError, OverflowError):
            return None

    def _decade(self, at: int) -> _Date | None:
        """Read "1990s", "the 90s", "the nineties", "neunziger Jahre" or "années 90"."""
        named = self._match("relative tens", at)
        noun = self._match("relative decade", at)
        is_german = self._language == "de"
        form = r"(\d{3}0|[3-9]0)er" if is_german else r"(\d{3}0|[3-9]0)['’]?s"
        start, end = at, at + 1
        if noun:
            start = noun[0] + (self._question.word(noun[0]) == "'")
            form, end = r"(\d{3}0|[3-9]0)", start + 1
        digits = self._number(start, form)
        if named:
            digits, end = 10 * named[1] + 30, named[0]
        if not digits:
            return None
        if digits < 100 and not noun and not is_german and self._question.word(at - 1) != "the":
            return None  # 80s of a clip
        unit = self._match("units", end) if is_german else None
        if is_german and digits < 100 and not unit:
            return None
        first = digits if digits >= 100 else _TENS - 30 + digits
        return _Date(unit[0] if unit else end, _NO_PERIOD, days=_months(12 * first, 120))


def _read_numbers(text: str, end: int) -> _Date:
    """Read a date in numbers; one that may be two different days has no year.

    >>> _read_numbers("14/07/2019", 1)[1:4], _read_numbers("07/08/2019", 1)[1:4]
    ((6, 2019, 14), (17, 0, 0))
    """
    if match := _EASTERN.fullmatch(text):
        year, month, day = (int(part or 0) for part in match.groups())
        return _numbered(end, year, month, day) if month else _Date(end, _YEAR, year)
    parts = [int(part) for part in re.split(r"\D", text)]
    if parts[0] > _MAX_DAY:
        return _numbered(end, *parts)
    day, month, year = parts
    if "." not in text and month > _N_MONTHS >= day:
        day, month = month, day
    is_clear = "." in text or day > _N_MONTHS or day == month
    return _numbered(end, year, month, day) if is_clear else _Date(end, _NO_PERIOD)


def _numbered(end: int, year: int, month: int, day: int = 0) -> _Date:
    """Return a month or a day; without a year where there is no such month."""
    is_month = 1 <= month <= _N_MONTHS
    return _Date(end, month - 1, year, day) if is_month else _Date(end, _NO_PERIOD)


def _months(first: int, length: int) -> Days:
    """Return the first day of some months and the day after their last; the months since year 0 are
    counted.
    """
    stop = first + length
    return date(first // 12, first % 12 + 1, 1), date(stop // 12, stop % 12 + 1, 1)


def _span(period: int, year: int) -> Days:
    """Return the first day of a month, season or year and the day after its last."""
    if period == _YEAR:
        return _months(12 * year, 12)
    if period < _SEASON:
        return _months(12 * year + period, 1)
    return _months(12 * year + 3 * (period - _SEASON) + 2, 3)


def _last_period(period: int, count: int, today: date) -> Days:
    """Return the last month or season that is over, or that of this year; this winter may have
    begun last year.
    """
    years = [_span(period, today.year - back) for back in range(3)]
    if count:
        return next(days for days in years if days[1] <= today)
    return next((days for days in years if days[0] <= today < days[1]), years[0])


def _counted_back(unit: int, count: int, today: date) -> Days:
    if unit == _YEAR_UNIT:
        return _span(_YEAR, today.year - count)
    if unit == _MONTH_UNIT:
        return _months(12 * today.year + today.month - 1 - count, 1)
    length, behind = (7, today.weekday()) if unit == _WEEK_UNIT else (1, 0)
    first = today - timedelta(length * count + behind)
    return first, first + timedelta(length)


def _days_of(one: _Date, today: date) -> Days | None:
    """Return the first day of a date and the day after its last; None where there is no such day,
    or it is none of photographs.
    """
    try:
        days = one.days or _span(one.period, one.year)
        if one.day:
            first = days[0].replace(day=one.day)
            days = first, first + timedelta(1)
    except (ValueError, OverflowError):
        return None
    is_said = one.days or (one.year and 0 <= one.period < _NO_PERIOD)
    return days if is_said and _OLDEST <= days[0].year <= today.year else None


def _completed(dates: Sequence[_Date], is_range: bool) -> list[_Date]:
    """Return dates with what another says of them: June and July 2019, 14 to 16 July 2019, summer
    2015 and 2016.
    """
    first, last = dates[0], dates[-1]
    complete = []
    for one in dates:
        if one.days is None and one.period == _NO_PERIOD:
            period = last.period if one is not last else first.period
            one = one._replace(period=period, year=one.year or last.year)
        elif one.days is None and not one.year:
            one = one._replace(year=last.year)
        elif one.bare and not is_range and first.period < _YEAR and first.year and not first.day:
            one = one._replace(period=first.period)
        complete.append(one)
    return complete


def _understand(question: Question, one: _Construction, today: date) -> Found | None:
    """Return what a construction means; None where it means nothing that is sure."""
    if one.denied and one.side == "until":
        return None  # "not until 2016" means from then on, or later
    dates = _completed(one.dates, one.is_range)
    if all(part.days is None and not part.year for part in dates):
        said = _any_year(question, one, dates)
        days = None
    else:
        intervals = [days for part in dates if (days := _days_of(part, today))]
        if len(intervals) < len(dates):
            return None
        if one.is_range:
            intervals = [(intervals[0][0], intervals[1][1])]
            if _days_of(dates[1], today)[0] <= intervals[0][0]:  # type: ignore[index]
                return None
        said = _say(one.side if one.side in _OPEN else "", intervals)
        days = _reach(one.side, intervals[0]) if len(intervals) == 1 and not one.denied else None
    if not said:
        return None
    means, test = said
    if one.denied:
        means, test = f"not {means}", f"NOT ({test})"
    return Found(one.start, one.end, means, test, days=days)


def _reach(side: str, days: Days) -> Days:
    """Return the days that a side of an interval reaches over."""
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
    """Return what days on a side of an interval mean, or those of several, and their test."""
    said = [_say_one(side, first, stop) for first, stop in intervals]
    means = " or ".join(dict.fromkeys(words for words, _ in said))
    tests = [test for _, test in said]
    return means, tests[0] if len(tests) == 1 else f"({' OR '.join(f'({test})' for test in tests)})"


def _say_one(side: str, first: date, stop: date) -> tuple[str, str]:
    is_exact = not side and (stop - first).days < 28
    low, high = first.isoformat() if is_exact else _edge(first), _edge(stop)
    signs = {4: "%Y", 7: "%B %Y"}.get(max(len(low), len(high)), "%d %B %Y")
    begin, end = (f"{day:{signs}}".lstrip("0") for day in (first, stop - timedelta(1)))
    if side:
        means = f"{side} {begin if side in ('before', 'since') else end}"
    else:
        means = " to ".join(dict.fromkeys((begin, end)))
    low, high = {
        "before": (_FIRST, low),
        "until": (_FIRST, high),
        "since": (low, _LAST),
        "after": (high, _LAST),
    }.get(side, (low, high))
    # A date that is less exact than the end may lie behind it.
    unsure = [high[:n] for n in (4, 7) if n < len(high) and high[:n] >= low]
    tests = [f"{{0}} >= '{low}'", f"{{0}} < '{high}'", *(f"{{0}} != '{one}'" for one in unsure)]
    return means, " AND ".join(tests)


def _any_year(
    question: Question, one: _Construction, dates: Sequence[_Date]
) -> tuple[str, str] | None:
    """Return what "in July", "June to August" or "on 14 July" mean, of whichever year, and their
    test.
    """
    days, periods = {part.day for part in dates}, [part.period for part in dates]
    if any(period >= _SEASON for period in periods) or one.side not in ("in", "article", ""):
        return None
    names = [f"{date(2000, period + 1, 1):%B}" for period in periods]
    if days != {0}:
        day = dates[0].day
        if len(dates) > 1 or not one.side or not 1 <= day <= 31:
            return None
        pattern = f"____-{periods[0] + 1:02}-{day:02}%"
        return f"{day} {names[0]} of any year", f"{{0}} LIKE '{pattern}'"
    if not one.is_range and question.word(one.lead - 1) not in ("in", "im", "en", "em"):
        return None
    if one.is_range:
        count = (periods[1] - periods[0]) % 12 + 1
        periods = [(periods[0] + n) % 12 for n in range(count)]
    tests = " OR ".join(f"{{0}} LIKE '____-{period + 1:02}%'" for period in periods)
    means = (" to " if one.is_range else " or ").join(names)
    return f"{means} of any year", tests if len(periods) == 1 else f"({tests})"


def _fits(question: Question, one: _Construction, refused: set[int]) -> bool:
    """Return whether what stands around dates leaves them what they are."""
    if question.kind(one.lead) == "eastern":
        before = question.text[: question.words[one.start].start]
        after = question.text[question.words[one.end - 1].end :]
        return not _EASTERN_BEFORE.search(before) and not _EASTERN_AFTER.match(after)
    return _may_follow(question, one, refused) and _may_precede(question, one.end)


def _may_follow(question: Question, one: _Construction, refused: set[int]) -> bool:
    """Return whether dates may stand behind the word that is before them."""
    before, is_led = one.start - 1, one.side not in ("", "article")
    if question.parts_before(one.start):
        in_list = question.word(before) == "," and not is_led
        return not in_list or not (before - 1 in refused or question.kind(before - 1) == "number")
    if question.kind(before) != "word":
        return False
    if question.is_any("and", before):
        return is_led and before - 1 not in refused
    if one.denied:
        return not question.is_any("or", before)
    if question.is_any("spans", before) and one.side in ("before", "after", "of"):
        return False
    if question.is_any("articles", before):
        return is_led
    return not question.is_any("function words", before)


def _may_precede(question: Question, at: int) -> bool:
    """Return whether what follows dates does not go on with them: "2014 or dogs", "2019 to Rome"."""
    if question.parts_after(at):
        return question.word(at) not in DASHES or question.kind(at + 1) not in ("number", "date")
    if question.kind(at) != "word":
        return False
    return not any(
        question.match("hanging", language, at) and question.shows(language, at)
        for language in LANGUAGES
    )


def _is_sure(question: Question, one: _Construction) -> bool:
    """Return whether dates are no attribute of what stands beside them: "a 2019 calendar"."""
    if question.kind(one.lead) == "eastern":
        return True
    is_led = one.side not in ("", "article")
    if all(part.bare for part in one.dates):
        if one.side == "of" and not one.denied:
            return one.start == 0 or question.is_any("photographs", one.start - 1)
        if is_led or one.denied:
            return question.ends(one.end)
        return question.parts_before(one.start) and question.parts_after(one.end)
    is_any_year = all(part.days is None and not part.year for part in one.dates)
    return (is_led and not is_any_year) or question.ends(one.end)
