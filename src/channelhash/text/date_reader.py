"""Dates as they are written, in one language at a time: what is said, and where it ends."""

import re
from datetime import date, timedelta
from typing import NamedTuple

from channelhash.text.constructions import SIDES
from channelhash.text.questions import DASHES, Days, Question

#: Periods: months from 0 on, seasons from 12 on, a year, nothing that is said.
SEASON = 12
YEAR = 16
NO_PERIOD = 17
#: Sides of an interval that reach on without an end.
OPEN = ("before", "until", "since", "after")
# Units that are counted back.
DAY_UNIT, _WEEK_UNIT, _MONTH_UNIT, _YEAR_UNIT = range(4)
_N_MONTHS = 12
_MAX_DAY = 31
_EASTERN = re.compile(r"(\d{4})\D+(?:(\d\d?)\D+(?:(\d\d?)\D*)?)?")


class WrittenDate(NamedTuple):
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


class Construction(NamedTuple):
    """Dates with the words around them; ``lead`` is where those before them end."""

    end: int
    side: str
    dates: tuple[WrittenDate, ...]
    is_range: bool = False
    start: int = 0
    denied: bool = False
    lead: int = 0


class DateReader:
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

    def read(self, start: int) -> Construction | None:
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

    def _after_side(self, side: str, at: int) -> Construction | None:
        """Read dates after a preposition: one, a range, a list, or one that is opened behind."""
        first = self._date(at)
        if not first and side:
            first = self._date(self._skip("article", at))
        if not first:
            return None
        second = self._second(first.end, "and" if side == "between" else "to")
        if second:
            is_range = side not in ("before", "until", "after")
            both = (first, second)
            within = "in" if side else ""
            return Construction(second.end, within, both, is_range=True) if is_range else None
        if side in ("between", "from"):
            return None
        if closed := self._closed(side, first):
            return closed
        dates = [first] if side in OPEN else self._listed(first)
        return Construction(dates[-1].end, side, tuple(dates))

    def _second(self, at: int, joint: str) -> WrittenDate | None:
        """Return the date that follows "to" or a dash, or "and"."""
        if match := self._match(joint, at):
            return self._date(self._skip("article", match[0]))
        is_dash = joint == "to" and self._question.word(at) in DASHES
        return self._date(at + 1) if is_dash else None

    def _closed(self, side: str, first: WrittenDate) -> Construction | None:
        """Return a date that is opened by what follows: "2016 and later", "from 2016 on"."""
        if side in ("before", "until", "after"):
            return None
        for table, opened in (("onwards", "since"), ("backwards", "until")):
            match = self._match(table, first.end)
            if match and self._closes(side, first.end, match[0]):
                return Construction(match[0], opened, (first,))
        return None

    def _closes(self, side: str, start: int, end: int) -> bool:
        """Return whether words belong to the date before them: "on" may begin what follows."""
        if end - start > 1 or self._question.word(start) not in ("on", "an"):
            return True
        return bool(side) and self._question.parts_after(end)

    def _listed(self, first: WrittenDate) -> list[WrittenDate]:
        """Return a date and those that are joined to it by commas, "and" or "or"."""
        dates = [first]
        n_kept = 1
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

    def _date(self, at: int) -> WrittenDate | None:
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

    def _of_year(self, at: int) -> WrittenDate | None:
        """Read "2019" or "the year 2019"."""
        unit = self._match("units", at)
        after = at
        if unit and unit[1] == _YEAR_UNIT:
            after = self._skip("relative of", unit[0])
        year = self._number(after, r"(\d{4})")
        return WrittenDate(after + 1, YEAR, year, bare=after == at) if year else None

    def _of_month(self, at: int) -> WrittenDate | None:
        """Read "July 2019", "14 July 2019", "July 14, 2019" or "summer of last year", also without
        the year; or a day alone.
        """
        day, end = self._day(at)
        name = self._name(self._skip("relative of", end) if day else end)
        if not name:
            return self._day_alone(day, end) if day else None
        end, period = name
        if period >= SEASON:
            year, end = self._year(end)
            return None if day else WrittenDate(end, period, year)
        if self._question.word(end) == "." and self._question.touches(end):
            end += 1
        if not day:
            day, end = self._day(end)
        year, end = self._year(end)
        return WrittenDate(end, period, year, day)

    def _day_alone(self, day: int, end: int) -> WrittenDate:
        """Read a day as it stands in ranges, perhaps with a year: "July 14 to 16, 2019"."""
        has_comma = self._question.word(end) == ","
        year, end = self._year(end) if has_comma else (0, end)
        return WrittenDate(end, NO_PERIOD, year, day)

    def _name(self, at: int) -> tuple[int, int] | None:
        """Return where the name of a month or season ends, and its period."""
        for table, first in (("months", 0), ("seasons", SEASON)):
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
        if relative and relative.period == YEAR and relative.days:
            return relative.days[0].year, relative.end
        return 0, at

    def _relative(self, at: int) -> WrittenDate | None:
        """Read "yesterday", "last summer", "l'anno scorso", "this week" or "two years ago"."""
        for table, count in (("relative today", 0), ("relative yesterday", 1)):
            match = self._match(table, at)
            if match and self._question.shows(self._language, at):
                return self._back(match[0], DAY_UNIT, count)
        if match := self._match("relative last", at):
            return self._named(match[0], True, 1)
        if match := self._match("relative this", at):
            return self._named(match[0], True, 0)
        return self._named(at, False, 1) or self._ago(at)

    def _named(self, at: int, is_before: bool, count: int) -> WrittenDate | None:
        """Read a month, season or unit behind "last" or "this", or in front of "scorso"."""
        name = self._name(at)
        unit = self._match("units", at)
        found = name or unit
        if not found or (not name and found[1] == DAY_UNIT):
            return None
        end = found[0]
        if not is_before:
            last = self._match("relative last after", end)
            if not last:
                return None
            end = last[0]
        if not name:
            return self._back(end, found[1], count)
        if found[1] < SEASON and not count:
            return None  # "this may" is no month
        return WrittenDate(end, found[1], days=last_period(found[1], count, self._today))

    def _ago(self, at: int) -> WrittenDate | None:
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

    def _back(self, end: int, unit: int, count: int) -> WrittenDate | None:
        """Return the day, week, month or year so many before today's."""
        period = YEAR if unit == _YEAR_UNIT else NO_PERIOD
        try:
            return WrittenDate(end, period, days=_counted_back(unit, count, self._today))
        except (ValueError, OverflowError):
            return None

    def _decade(self, at: int) -> WrittenDate | None:
        """Read "1990s", "the 90s", "the nineties", "neunziger Jahre" or "années 90"."""
        noun = self._match("relative decade", at)
        if noun:
            start = noun[0] + (self._question.word(noun[0]) == "'")
            return _decade_of(start + 1, self._number(start, r"(\d{3}0|[3-9]0)"))
        named = self._match("relative tens", at)
        is_german = self._language == "de"
        form = r"(\d{3}0|[3-9]0)er" if is_german else r"(\d{3}0|[3-9]0)['’]?s"
        first = 10 * named[1] + 30 if named else self._number(at, form)
        end = named[0] if named else at + 1
        if is_german:
            unit = self._match("units", end)
            return _decade_of(unit[0] if unit else end, first if unit or first > 99 else 0)
        is_said = first > 99 or self._question.word(at - 1) == "the"  # no 80s of a clip
        return _decade_of(end, first if is_said else 0)


def _decade_of(end: int, first: int) -> WrittenDate | None:
    """Return the ten years from one on, of which two digits may be left out; None from 0 on."""
    if not first:
        return None
    year = first if first > 99 else 1900 + first
    return WrittenDate(end, NO_PERIOD, days=months(12 * year, 120))


def _read_numbers(text: str, end: int) -> WrittenDate:
    """Read a date in numbers; one that may be two different days has no year.

    >>> _read_numbers("14/07/2019", 1)[1:4], _read_numbers("07/08/2019", 1)[1:4]
    ((6, 2019, 14), (17, 0, 0))
    """
    if match := _EASTERN.fullmatch(text):
        year, month, day = (int(part or 0) for part in match.groups())
        return _numbered(end, year, month, day) if month else WrittenDate(end, YEAR, year)
    first, second, *others = (int(part) for part in re.split(r"\D", text))
    if first > _MAX_DAY:
        return _numbered(end, first, second, *others)
    day = first
    month = second
    has_order = "." in text or first == second  # 1.7.2019 is German
    if not has_order and second > _N_MONTHS:
        day = second
        month = first
    is_clear = has_order or max(first, second) > _N_MONTHS
    return _numbered(end, others[0], month, day) if is_clear else WrittenDate(end, NO_PERIOD)


def _numbered(end: int, year: int, month: int, day: int = 0) -> WrittenDate:
    """Return a month or a day; without a year where there is no such month."""
    is_month = 1 <= month <= _N_MONTHS
    return WrittenDate(end, month - 1, year, day) if is_month else WrittenDate(end, NO_PERIOD)


def months(first: int, length: int) -> Days:
    """Return the first day of some months and the day after their last; the months since year 0 are
    counted.
    """
    stop = first + length
    return date(first // 12, first % 12 + 1, 1), date(stop // 12, stop % 12 + 1, 1)


def span(period: int, year: int) -> Days:
    """Return the first day of a month, season or year and the day after its last."""
    if period == YEAR:
        return months(12 * year, 12)
    if period < SEASON:
        return months(12 * year + period, 1)
    return months(12 * year + 3 * (period - SEASON) + 2, 3)


def last_period(period: int, count: int, today: date) -> Days:
    """Return the last month or season that is over, or that of this year; this winter may have
    begun last year.
    """
    years = [span(period, today.year - back) for back in range(3)]
    if count:
        return next(days for days in years if days[1] <= today)
    return next((days for days in years if days[0] <= today < days[1]), years[0])


def _counted_back(unit: int, count: int, today: date) -> Days:
    if unit == _YEAR_UNIT:
        return span(YEAR, today.year - count)
    if unit == _MONTH_UNIT:
        return months(12 * today.year + today.month - 1 - count, 1)
    length, behind = (7, today.weekday()) if unit == _WEEK_UNIT else (1, 0)
    first = today - timedelta(length * count + behind)
    return first, first + timedelta(length)
