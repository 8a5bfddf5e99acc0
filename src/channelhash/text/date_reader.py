"""Read dates as they are written, in one language at a time."""

import re
from datetime import date, timedelta
from typing import NamedTuple

from channelhash.text.constructions import SIDES
from channelhash.text.questions import DASHES, Days, PhraseMatch, QuestionText

#: Periods below this one are months, from 0 on; seasons begin with it.
SEASON = 12
#: Period of a whole year.
YEAR = 16
#: Period of a date that names none, such as a day alone.
NO_PERIOD = 17
#: Sides of intervals that are open at one end.
OPEN = ("before", "until", "since", "after")
#: Positions of the units in the table ``units``.
_DAY_UNIT, _WEEK_UNIT, _MONTH_UNIT, _YEAR_UNIT = range(4)
#: The largest number of a month.
_N_MONTHS = 12
#: A year, and perhaps a month and a day, with signs or East Asian letters between them.
_YEAR_FIRST = re.compile(r"(\d{4})\D+(?:(\d\d?)(?:\D+(\d\d?))?\D*)?")
#: The first year of a decade, of four digits or of two.
_DECADE = r"(\d{3}0|[3-9]0)"


class WrittenDate(NamedTuple):
    """A date as it is written.

    Attributes:
        end: where it ends in the question.
        period: month, season, `YEAR` or `NO_PERIOD`.
        year: 0 if it names none.
        day: day of the month, 0 if it names none.
        bare: whether it consists of the four digits of a year alone.
        days: its days, if it is counted back from today.
    """

    end: int
    period: int
    year: int = 0
    day: int = 0
    bare: bool = False
    days: Days | None = None


class Construction(NamedTuple):
    """Dates with the words around them.

    Attributes:
        end: where they end in the question.
        side: the preposition, a key of the tables.
        dates: one, several, or the first and the last of a range.
        is_range: whether all days from the first date to the last are meant.
        start: where the first word stands.
        denied: whether the words begin with a negation.
        lead: where the preposition ends.
    """

    end: int
    side: str
    dates: tuple[WrittenDate, ...]
    is_range: bool = False
    start: int = 0
    denied: bool = False
    lead: int = 0


class DateReader:
    """Reads dates in one language."""

    def __init__(self, question: QuestionText, language: str, today: date) -> None:
        self._question = question
        self._language = language
        self._today = today

    def _match(self, table: str, at: int) -> PhraseMatch | None:
        return self._question.match(table, self._language, at)

    def _skip(self, table: str, at: int) -> int:
        """Return where a phrase of a table ends, or the same place where none begins."""
        match = self._match(table, at)
        return match.end if match else at

    def _match_shown(self, table: str, at: int) -> PhraseMatch | None:
        """Return the phrase of a table that begins here, if its words show the language."""
        match = self._match(table, at)
        return match if match and self._question.shows(self._language, at) else None

    def read(self, start: int) -> Construction | None:
        """Return the longest construction that begins here."""
        at = self._question.after_denial(self._language, start)
        read = [self._after_side("", at)]
        for side in (*SIDES, "from"):
            match = self._match(side, at)
            is_plain = side in ("in", "of", "article") and match and match.end == at + 1
            if match and (not is_plain or self._question.shows(self._language, at)):
                read.append(self._after_side(side, match.end))
        longest = max(filter(None, read), key=lambda one: (one.end, one.lead), default=None)
        return longest and longest._replace(start=start, denied=at > start)

    def _after_side(self, side: str, at: int) -> Construction | None:
        """Read dates behind a preposition: one, a range, a list, or one that a word behind it
        turns into an interval.
        """
        first = self._date(at)
        if not first and side:
            first = self._date(self._skip("article", at))
        if not first:
            return None
        second = self._second(first.end, "and" if side == "between" else "to")
        if second:
            return self._range(side, at, first, second)
        if side in ("between", "from"):
            return None
        closed = self._closed(side, at, first)
        if closed:
            return closed
        dates = [first] if side in OPEN else self._listed(first)
        return Construction(dates[-1].end, side, tuple(dates), lead=at)

    def _range(
        self, side: str, at: int, first: WrittenDate, last: WrittenDate
    ) -> Construction | None:
        if side in ("before", "until", "after"):
            return None
        within = "in" if side else ""
        return Construction(last.end, within, (first, last), is_range=True, lead=at)

    def _second(self, at: int, joint: str) -> WrittenDate | None:
        """Return the date that follows a joint: "to", a dash, or "and"."""
        match = self._match(joint, at)
        if match:
            return self._date(self._skip("article", match.end))
        is_dash = joint == "to" and self._question.word(at) in DASHES
        return self._date(at + 1) if is_dash else None

    def _closed(self, side: str, at: int, first: WrittenDate) -> Construction | None:
        """Return the interval of a date with words behind it: "2016 and later", "from 2016 on"."""
        if side in ("before", "until", "after"):
            return None
        for table, opened in (("onwards", "since"), ("backwards", "until")):
            match = self._match(table, first.end)
            if match and self._closes(side, first.end, match.end):
                return Construction(match.end, opened, (first,), lead=at)
        return None

    def _closes(self, side: str, start: int, end: int) -> bool:
        """Return whether words belong to the date before them; "on" may begin the next phrase."""
        if end - start > 1 or self._question.word(start) not in ("on", "an"):
            return True
        return bool(side) and self._question.parts_after(end)

    def _listed(self, first: WrittenDate) -> list[WrittenDate]:
        """Return a date and those that are joined to it by commas, "and" or "or"."""
        dates = [first]
        n_kept = 1
        while True:
            at = dates[-1].end
            after, is_word = self._after_joint(at)
            following = self._date(self._after_lead(after)) if after > at else None
            if not following:
                return dates[:n_kept]
            dates.append(following)
            if is_word or all(one.bare for one in dates):
                n_kept = len(dates)

    def _after_joint(self, at: int) -> tuple[int, bool]:
        """Return where a comma, "and" or "or" ends, and whether a word is among them."""
        after = at + 1 if self._question.word(at) == "," else at
        word = self._match("or", after) or self._match("and", after)
        return (word.end, True) if word else (after, False)

    def _after_lead(self, at: int) -> int:
        return max(self._skip(side, at) for side in ("in", "of", "article"))

    def _date(self, at: int) -> WrittenDate | None:
        """Return the longest date that begins here."""
        kind = self._question.kind(at)
        if kind in ("date", "eastern"):
            return _read_numbers(self._question.word(at), at + 1)
        forms = (self._of_month(at), self._relative(at), self._decade(at), self._of_year(at))
        return max(filter(None, forms), key=lambda form: form.end, default=None)

    def _number(self, at: int, pattern: str) -> int:
        """Return a number of a form, or 0."""
        if self._question.kind(at) != "number":
            return 0
        match = re.fullmatch(pattern, self._question.word(at))
        return int(match[1]) if match else 0

    def _day(self, at: int) -> tuple[int, int]:
        """Return the day of a month that stands here, or 0, and where it ends."""
        day = self._number(at, r"(\d\d?)(?:st|nd|rd|th|er|re|e|o|a)?")
        return (day, self._after_point(at + 1)) if day else (0, at)

    def _after_point(self, at: int) -> int:
        """Return the place behind a point that ends the word before it, else the same place."""
        return at + (self._question.word(at) == "." and self._question.touches(at))

    def _of_year(self, at: int) -> WrittenDate | None:
        """Read "2019" or "the year 2019"."""
        unit = self._match("units", at)
        after = at
        if unit and unit.place == _YEAR_UNIT:
            after = self._skip("relative of", unit.end)
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
        if name.place >= SEASON:
            year, end = self._year(name.end)
            return None if day else WrittenDate(end, name.place, year)
        end = self._after_point(name.end)
        if not day:
            day, end = self._day(end)
        year, end = self._year(end)
        return WrittenDate(end, name.place, year, day)

    def _day_alone(self, day: int, end: int) -> WrittenDate:
        """Read a day without a month, as in ranges, perhaps with a year: "July 14 to 16, 2019"."""
        has_comma = self._question.word(end) == ","
        year, end = self._year(end) if has_comma else (0, end)
        return WrittenDate(end, NO_PERIOD, year, day)

    def _name(self, at: int) -> PhraseMatch | None:
        """Return the name of a month or season, with its period as the place."""
        month = self._match_shown("months", at)
        season = self._match_shown("seasons", at)
        return month or (season and PhraseMatch(season.end, SEASON + season.place))

    def _year(self, at: int) -> tuple[int, int]:
        """Return the year that follows a month or season, or 0, and where it ends."""
        after = at + 1 if self._question.word(at) == "," else self._skip("relative of", at)
        year = self._of_year(after)
        if year:
            return year.year, year.end
        relative = self._relative(self._skip("article", after))
        if relative and relative.period == YEAR and relative.days:
            return relative.days[0].year, relative.end
        return 0, at

    def _relative(self, at: int) -> WrittenDate | None:
        """Read "yesterday", "last summer", "l'anno scorso", "this week" or "two years ago"."""
        for n_back, table in enumerate(("relative today", "relative yesterday")):
            day = self._match_shown(table, at)
            if day:
                return self._back(day.end, _DAY_UNIT, n_back)
        for table, n_back in (("relative last", 1), ("relative this", 0)):
            match = self._match(table, at)
            if match:
                return self._named(match.end, n_back)
        return self._named_before(at) or self._ago(at)

    def _named(self, at: int, n_back: int) -> WrittenDate | None:
        """Read the month, season or unit behind "last" or "this"."""
        name = self._name(at)
        if name:
            days = last_period(name.place, n_back, self._today)
            is_verb = name.place < SEASON and not n_back  # "this may"
            return None if is_verb else WrittenDate(name.end, name.place, days=days)
        unit = self._match("units", at)
        if not unit or unit.place == _DAY_UNIT:
            return None
        return self._back(unit.end, unit.place, n_back)

    def _named_before(self, at: int) -> WrittenDate | None:
        """Read the month, season or unit in front of "scorso"."""
        named = self._named(at, 1)
        end = self._skip("relative last after", named.end) if named else 0
        return named._replace(end=end) if named and end > named.end else None

    def _ago(self, at: int) -> WrittenDate | None:
        """Read "two years ago", "vor zwei Jahren" or "il y a deux ans"."""
        before = self._match("relative ago before", at)
        if before and not self._question.shows(self._language, at):
            return None
        count, end = self._count(before.end if before else at)
        unit = self._match("units", end)
        if not count or not unit:
            return None
        end = self._skip("relative ago after", unit.end)
        if not before and end == unit.end:
            return None
        return self._back(end, unit.place, count)

    def _count(self, at: int) -> tuple[int, int]:
        """Return the number that stands here in words or digits, or 0, and where it ends."""
        counted = self._match("counts", at)
        if counted:
            return counted.place + 1, counted.end
        return self._number(at, r"(\d{1,3})"), at + 1

    def _back(self, end: int, unit: int, count: int) -> WrittenDate | None:
        """Return the day, week, month or year that is ``count`` before today's."""
        period = YEAR if unit == _YEAR_UNIT else NO_PERIOD
        try:
            return WrittenDate(end, period, days=_counted_back(unit, count, self._today))
        except (ValueError, OverflowError):
            return None

    def _decade(self, at: int) -> WrittenDate | None:
        """Read "1990s", "the 90s", "the nineties", "neunziger Jahre" or "années 90"."""
        noun = self._match("relative decade", at)
        if noun:
            start = noun.end + (self._question.word(noun.end) == "'")
            return _decade_of(start + 1, self._number(start, _DECADE))
        is_german = self._language == "de"
        first, end = self._tens(at, "er" if is_german else "['’]?s")
        unit = self._match("units", end) if is_german else None
        if unit:
            return _decade_of(unit.end, first)
        is_shown = not is_german and self._question.word(at - 1) == "the"  # no 80s of a clip
        return _decade_of(end, first) if is_shown or first > 99 else None

    def _tens(self, at: int, ending: str) -> tuple[int, int]:
        """Return the first year of the decade that stands here, or 0, and where it ends."""
        named = self._match("relative tens", at)
        if named:
            return 30 + 10 * named.place, named.end
        return self._number(at, _DECADE + ending), at + 1


def _decade_of(end: int, first: int) -> WrittenDate | None:
    """Return the ten years from ``first`` on, whose century may be left out; None for 0."""
    if not first:
        return None
    year = first if first > 99 else 1900 + first
    return WrittenDate(end, NO_PERIOD, days=months(12 * year, 120))


def _read_numbers(text: str, end: int) -> WrittenDate:
    """Read a date in numbers. If day and month may be swapped, it gets no year.

    >>> _read_numbers("14/07/2019", 1)[1:4], _read_numbers("07/08/2019", 1)[1:4]
    ((6, 2019, 14), (17, 0, 0))
    >>> _read_numbers("2019-00-14", 1)[1:4]  # no such day
    (17, 0, 0)
    """
    year_first = _YEAR_FIRST.fullmatch(text)
    if year_first:
        return _numbered(end, *(int(part) for part in year_first.groups() if part))
    first, second, year = map(int, re.split(r"\D", text))
    if "." in text or first == second:  # 1.7.2019 is German
        return _numbered(end, year, second, first)
    if max(first, second) <= _N_MONTHS:
        return WrittenDate(end, NO_PERIOD)
    return _numbered(end, year, *sorted((first, second)))


def _numbered(end: int, year: int, month: int | None = None, day: int | None = None) -> WrittenDate:
    """Return a year, a month or a day; without a year if there is none of these numbers."""
    if month is None:
        return WrittenDate(end, YEAR, year)
    if not 1 <= month <= _N_MONTHS or day == 0:
        return WrittenDate(end, NO_PERIOD)
    return WrittenDate(end, month - 1, year, day or 0)


def months(first: int, length: int) -> Days:
    """Return the days of ``length`` months, from the month ``first`` since year 0."""
    stop = first + length
    return date(first // 12, first % 12 + 1, 1), date(stop // 12, stop % 12 + 1, 1)


def span(period: int, year: int) -> Days:
    """Return the days of a month, season or year."""
    if period == YEAR:
        return months(12 * year, 12)
    if period < SEASON:
        return months(12 * year + period, 1)
    return months(12 * year + 3 * (period - SEASON) + 2, 3)


def last_period(period: int, count: int, today: date) -> Days:
    """Return the last month or season that is over, or for a count of 0 that of this year. This
    winter may have begun last year.
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
