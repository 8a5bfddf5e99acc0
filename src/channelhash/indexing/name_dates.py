"""Read dates in the names of photographs and of their folders.

Only what is surely a date counts. Years alone, impossible days and numbers of other lengths are no
dates, nor is ``05-06-2019``, which may be a day of May or of June. Months may be numbers, or names
in English, German, French, Spanish, Italian, Portuguese and Dutch.
"""

import re
import unicodedata
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from channelhash.search.browsing import file_date

#: The year of the first photograph.
FIRST_YEAR = 1826
#: Folders above a photograph that are read: a year, a month, a day and one of any name.
_DEPTH = 4
#: Characters of a month, as "2019-07".
_MONTH_LENGTH = 7
#: Characters of a day, as "2019-07-14".
_DAY_LENGTH = 10
#: Names of each month, lower-case and without accents.
_MONTHS = (
    "january jan januar janner janvier enero gennaio janeiro januari",
    "february feb februar fevrier febrero febbraio fevereiro februari",
    "march mar marz maerz mrz mars marzo marco maart",
    "april apr avril abril aprile",
    "may mai mayo maggio maio mei",
    "june jun juni juin junio giugno junho",
    "july jul juli juillet julio luglio julho",
    "august aug aout agosto augustus",
    "september sep sept septembre septiembre settembre setembro",
    "october oct oktober okt octobre octubre ottobre outubro",
    "november nov novembre noviembre novembro",
    "december dec dezember dez decembre diciembre dicembre dezembro",
)
#: Name of a month -> its number.
_NUMBERS = dict[str, int]()
for _number, _names in enumerate(_MONTHS, start=1):
    _NUMBERS |= dict.fromkeys(_names.split(), _number)

_YEAR = r"(?P<year>\d{4})"
#: The name of a month.
_NAME = rf"(?<![a-z])(?P<name>{'|'.join(sorted(_NUMBERS, reverse=True))})(?![a-z])"
#: What may stand between the name of a month and a number.
_GAP = r"[ _.,-]{0,2}(?:(?:de|del|di|of)[ _])?"
#: Excludes the end of a longer number, and the last of several days: "14.-20.07.2019",
#: "14 - 20 July".
_ALONE = (
    r"(?<![\dv])(?<!\b\d[-–])(?<!\b\d\d[-–])(?<!\.[-–])"
    r"(?<!\b\d [-–] )(?<!\b\d\d [-–] )(?<!\. [-–] )"
)
#: What may stand between a day and a time.
_BEFORE_TIME = r"(?:[-_.,t ]{1,2}|[ _](?:at|um|a|as|a las|alle|om|kl)[ _])?"
#: Hours, minutes and seconds, and the milliseconds that telephones add.
_CLOCK = (
    r"(?P<hour>\d\d?)(?P<colon>[-_.: ]?)(?P<minute>\d\d)(?P=colon)(?P<second>\d\d)(?:\d{3})?(?!\d)"
)
#: A time of day, perhaps of twelve hours; or nothing.
_TIME = rf"(?:{_BEFORE_TIME}{_CLOCK}(?: ?(?P<half>[ap])m)?)?"
#: A day and a month in either order, joined by points or dashes, or by spaces or underscores.
_TWO_BY_POINTS = r"(?<!\d[-. ])(?P<first>\d\d?)(?P<by>-|\. ?)(?P<last>\d\d?)(?P=by)"
_TWO_BY_SPACES = r"(?<!\d[_ ])(?P<first>\d\d)(?P<by>[_ ])(?P<last>\d\d)(?P=by)"


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.ASCII) for pattern in patterns)


#: Days: 20190714, 2019-7-14, 2019年7月14日, 14.07.2019, 14 07 2019, 14 July 2019, July 14 2019,
#: 2019 July 14.
_DAYS = _compiled(
    rf"(?<!\d){_YEAR}(?P<by>[-_.: ]?)(?P<month>\d\d)(?P=by)(?P<day>\d\d){_TIME}(?!\d)",
    rf"(?<![\w.-]){_YEAR}(?P<by>[-.])(?P<month>\d\d?)(?P=by)(?P<day>\d\d?){_TIME}(?!\d)",
    rf"(?<!\d){_YEAR} ?[年년] ?(?P<month>\d\d?) ?[月월] ?(?P<day>\d\d?) ?[日일]{_TIME}",
    rf"{_ALONE}{_TWO_BY_POINTS}{_YEAR}{_TIME}(?!\d)",
    rf"{_ALONE}{_TWO_BY_SPACES}{_YEAR}{_TIME}(?!\d)",
    rf"{_ALONE}(?P<day>\d\d?)(?:st|nd|rd|th|\.)?{_GAP}{_NAME}{_GAP}{_YEAR}{_TIME}(?!\d)",
    rf"{_NAME}{_GAP}(?P<day>\d\d?)(?:st|nd|rd|th)?[ _.,-]{{1,2}}{_YEAR}{_TIME}(?!\d)",
    rf"(?<!\d){_YEAR}{_GAP}{_NAME}{_GAP}(?P<day>\d\d){_TIME}(?!\d)",
)
#: Months in names of files and folders: July 2019, 2019 July, 2019年7月.
_MONTHS_ANYWHERE = _compiled(
    rf"{_NAME}{_GAP}{_YEAR}(?!\d)",
    rf"(?<!\d){_YEAR}{_GAP}{_NAME}",
    rf"(?<!\d){_YEAR} ?[年년] ?(?P<month>\d\d?) ?[月월]",
)
#: Months in names of files alone: 2019-07 Porto. In "2019-07.jpg", 07 may number the photograph.
_MONTHS_OF_FILES = _compiled(rf"^{_YEAR}-(?P<month>\d\d)[ _](?=[a-z])")
#: Months in names of folders alone: 2019-07, 07-2019.
_MONTHS_OF_FOLDERS = _compiled(
    rf"(?<!\d){_YEAR}[-_. ](?P<month>\d\d)(?![-_.]?\d)",
    rf"(?<!\d)(?<!\d[-_. ])(?P<month>\d\d)[-_.]{_YEAR}(?!\d)",
    rf"^{_YEAR}(?P<month>\d\d)_[_a-z]$",  # of telephones: 201907__
)
#: Nested folders: 2019/07/14, 2019/07, 2019-07/14, 2019/07 July, 2019/14 July, 2019/07-14.
_NESTED = _compiled(
    rf"(?<!\d){_YEAR}/(?P<month>\d\d?)/(?P<day>\d\d?)$",
    rf"(?<!\d){_YEAR}/(?P<month>\d\d)$",
    rf"(?<!\d){_YEAR}[-_. ](?P<month>\d\d)/(?P<day>\d\d)$",
    rf"(?<!\d){_YEAR}/(?:(?P<number>\d\d?)\.?[-_. (]{{1,3}})?{_NAME}\)?(?:/(?P<day>\d\d))?$",
    rf"(?<!\d){_YEAR}/(?P<first>\d\d)(?P<by>[-_. ])(?P<last>\d\d)\.?$",
)
#: Seconds or milliseconds since 1970, as Facebook, WeChat and screenshots write them. Ten digits of
#: other programs are no time.
_STAMP = re.compile(
    r"(?<![a-z])(?:(?:fb_?img|mmexport|wx_camera|micromsg|screenshot)[-_. ]?(\d{10})(?:\d{3})?"
    r"|img[-_. ]?(\d{10})\d{3})(?!\d)",
    re.ASCII,
)


def date_of_name(path: Path) -> str | None:
    """Return the date in a file's name, or else in its folders' names: a second, a day or a month.

    A day is preferred to a month, the file to its folders, and an inner folder to an outer one.
    Return None if there is no date, or one before photography or after the next year.

    >>> date_of_name(Path("IMG_20190714_102030.jpg")), date_of_name(Path("2019/07 Porto/scan.jpg"))
    ('2019-07-14 10:20:30', None)
    >>> date_of_name(Path("Urlaub 14.07.2019.jpg")), date_of_name(Path("2019/07 July/scan.jpg"))
    ('2019-07-14', '2019-07')
    """
    folders = [_fold(name) for name in path.parent.parts[-_DEPTH:]]
    found = [_date_of_file(_fold(path.stem))]
    found += [_date_of_folder(folders[:end]) for end in range(len(folders), 0, -1)]
    dates = list(filter(None, found))
    days = [date for date in dates if len(date) > _MONTH_LENGTH]
    return next(iter(days + dates), None)


def _fold(text: str) -> str:
    """Return a text in lower case, without accents, and with ASCII digits."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(sign for sign in parts if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", letters)  # composes Hangul again


def _date_of_file(stem: str) -> str | None:
    """Return the first day in the name of a file, else the month in it."""
    stamp = _STAMP.search(stem)
    if stamp:
        return _date_of_stamp(int(stamp[1] or stamp[2]))
    days = _dates_in(stem, _DAYS)
    return days[0] if days else _month_in(stem, _MONTHS_ANYWHERE + _MONTHS_OF_FILES)


def _date_of_folder(folders: list[str]) -> str | None:
    """Return the date in the name of the last folder, alone or together with those around it."""
    days = _dates_in(folders[-1], _DAYS)
    if days:
        return _common_date(days)
    nested = _dates_in("/".join(folders), _NESTED)
    if nested:
        return nested[0]
    return _month_in(folders[-1], _MONTHS_ANYWHERE + _MONTHS_OF_FOLDERS)


def _common_date(days: list[str]) -> str | None:
    """Return the first of several times if all are of one day, else the month that they share."""
    if len({day[:_DAY_LENGTH] for day in days}) == 1:
        return days[0]
    months = {day[:_MONTH_LENGTH] for day in days}
    return months.pop() if len(months) == 1 else None


def _dates_in(text: str, patterns: tuple[re.Pattern[str], ...]) -> list[str]:
    """Return the dates that patterns find in a text, in order."""
    found = list[tuple[int, str]]()
    for pattern in patterns:
        for match in pattern.finditer(text):
            date = _date_of(match)
            if date is not None:
                found.append((match.start(), date))
    return [date for _, date in sorted(found, key=itemgetter(0))]


def _month_in(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    """Return the month in a text; None if there are several: "June and July 2019"."""
    months = set(_dates_in(text, patterns))
    numbers = {_NUMBERS[match["name"]] for match in re.finditer(_NAME, text)}
    numbers |= {int(month[5:]) for month in months}
    return months.pop() if len(months) == len(numbers) == 1 else None


def _date_of(match: re.Match[str]) -> str | None:
    """Return the day of a match, perhaps with a time, or its month; None if it does not exist."""
    parts = {key: value for key, value in match.groupdict().items() if value}
    month, day = _month_and_day(parts)
    try:
        date = datetime(int(parts["year"]), month, 1 if day is None else day)
    except ValueError:
        return None
    if not _is_possible(date.year):
        return None
    return f"{date:%Y-%m}" if day is None else f"{date:%Y-%m-%d}{_time(parts)}"


def _month_and_day(parts: dict[str, str]) -> tuple[int, int | None]:
    """Return the numbers of a month, 0 if it is uncertain, and of a day, None without one."""
    if "first" in parts:
        return _order(int(parts["first"]), int(parts["last"]), parts["by"].startswith("."))
    month = _NUMBERS[parts["name"]] if "name" in parts else int(parts["month"])
    day = int(parts["day"]) if "day" in parts else None
    number = int(parts.get("number", month))
    if number == month:
        return month, day
    # "2019/14 July" is a day. "2019/06 July" may be June, or 6 July.
    return (month, number) if day is None and number > 12 else (0, day)


def _order(first: int, last: int, dotted: bool) -> tuple[int, int]:
    """Return which of two numbers is the month, and which the day; 0 for an uncertain month.

    With dots between them, the day comes first.
    """
    if last > 12:
        return first, last
    return (last, first) if dotted or first > 12 or first == last else (0, first)


def _time(parts: dict[str, str]) -> str:
    """Return the time of day, after a space; an empty text if it is missing or impossible."""
    digits = parts.get("hour", "")
    if not digits or (len(digits) == 1 and "colon" not in parts):
        return ""
    hour, minute, second = (int(parts[key]) for key in ("hour", "minute", "second"))
    if "half" in parts:
        hour = hour % 12 + 12 * (parts["half"] == "p")
    if hour >= 24 or minute >= 60 or second >= 60:
        return ""
    return f" {hour:02}:{minute:02}:{second:02}"


def _date_of_stamp(seconds: int) -> str | None:
    """Return the time after so many seconds since 1970, in the time zone of this machine; None
    after the next year.
    """
    date = file_date(seconds * 10**9)
    return date if date and _is_possible(int(date[:4])) else None


def _is_possible(year: int) -> bool:
    """Return whether a photograph may be of a year. Clocks may be wrong by one."""
    return FIRST_YEAR <= year <= datetime.today().year + 1
