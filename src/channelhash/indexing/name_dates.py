"""Dates that the names of photographs and of their folders say.

What is not surely a date is none: years alone, impossible days, numbers of other lengths, and
``05-06-2019``, which is a day of May or of June. Months are read by their names in English, German,
French, Spanish, Italian, Portuguese and Dutch, and by numbers.
"""

import re
import unicodedata
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from channelhash.search.browsing import file_date

#: The year of the first photograph.
FIRST_YEAR = 1826
# Folders above a photograph that are looked at: a year, a month, a day and one of any name.
_DEPTH = 4
# Characters of a month, as "2019-07".
_MONTH_LENGTH = 7
# Names of the months in small letters without accents.
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
_NUMBERS = dict[str, int]()
for _number, _names in enumerate(_MONTHS, start=1):
    _NUMBERS |= dict.fromkeys(_names.split(), _number)

_YEAR = r"(?P<year>\d{4})"
_NAME = rf"(?<![a-z])(?P<name>{'|'.join(sorted(_NUMBERS, reverse=True))})(?![a-z])"
_GAP = r"[ _.,-]{0,2}(?:(?:de|del|di|of)[ _])?"
# Not the end of a longer number, nor the last of several days: "14.-20.07.2019", "14 - 20 July".
_ALONE = (
    r"(?<![\dv])(?<!\b\d[-–])(?<!\b\d\d[-–])(?<!\.[-–])"
    r"(?<!\b\d [-–] )(?<!\b\d\d [-–] )(?<!\. [-–] )"
)
# Telephones add milliseconds to the time.
_TIME = (
    r"(?:(?:[-_.,t ]{1,2}|[ _](?:at|um|a|as|a las|alle|om|kl)[ _])?(?P<hour>\d\d?)(?P<colon>[-_.: ]?)"
    r"(?P<minute>\d\d)(?P=colon)(?P<second>\d\d)(?:\d{3})?(?!\d)(?: ?(?P<half>[ap])m)?)?"
)


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.ASCII) for pattern in patterns)


# ``first`` and ``last`` are a day and a month in either order.
_DAYS = _compiled(
    rf"(?<!\d){_YEAR}(?P<by>[-_.: ]?)(?P<month>\d\d)(?P=by)(?P<day>\d\d){_TIME}(?!\d)",
    rf"(?<![\w.-]){_YEAR}(?P<by>[-.])(?P<month>\d\d?)(?P=by)(?P<day>\d\d?){_TIME}(?!\d)",
    rf"(?<!\d){_YEAR} ?[年년] ?(?P<month>\d\d?) ?[月월] ?(?P<day>\d\d?) ?[日일]{_TIME}",
    rf"{_ALONE}(?<!\d[-. ])(?P<first>\d\d?)(?P<by>-|\. ?)(?P<last>\d\d?)(?P=by){_YEAR}{_TIME}(?!\d)",
    rf"{_ALONE}(?<!\d[_ ])(?P<first>\d\d)(?P<by>[_ ])(?P<last>\d\d)(?P=by){_YEAR}{_TIME}(?!\d)",
    rf"{_ALONE}(?P<day>\d\d?)(?:st|nd|rd|th|\.)?{_GAP}{_NAME}{_GAP}{_YEAR}{_TIME}(?!\d)",
    rf"{_NAME}{_GAP}(?P<day>\d\d?)(?:st|nd|rd|th)?[ _.,-]{{1,2}}{_YEAR}{_TIME}(?!\d)",
    rf"(?<!\d){_YEAR}{_GAP}{_NAME}{_GAP}(?P<day>\d\d){_TIME}(?!\d)",
)
_MONTHS_ANYWHERE = _compiled(
    rf"{_NAME}{_GAP}{_YEAR}(?!\d)",
    rf"(?<!\d){_YEAR}{_GAP}{_NAME}",
    rf"(?<!\d){_YEAR} ?[年년] ?(?P<month>\d\d?) ?[月월]",
)
# The number of a photograph may stand after a year, so that "2019-07.jpg" is none.
_MONTHS_OF_FILES = _compiled(rf"^{_YEAR}-(?P<month>\d\d)[ _](?=[a-z])")
_MONTHS_OF_FOLDERS = _compiled(
    rf"(?<!\d){_YEAR}[-_. ](?P<month>\d\d)(?![-_.]?\d)",
    rf"(?<!\d)(?<!\d[-_. ])(?P<month>\d\d)[-_.]{_YEAR}(?!\d)",
    rf"^{_YEAR}(?P<month>\d\d)_[_a-z]$",  # of telephones: 201907__
)
# Folders in each other: 2019/07, 2019/07/14, 2019-07/14, 2019/07 July, 2019/14 July, 2019/07-14.
_NESTED = _compiled(
    rf"(?<!\d){_YEAR}/(?P<month>\d\d?)/(?P<day>\d\d?)$",
    rf"(?<!\d){_YEAR}/(?P<month>\d\d)$",
    rf"(?<!\d){_YEAR}[-_. ](?P<month>\d\d)/(?P<day>\d\d)$",
    rf"(?<!\d){_YEAR}/(?:(?P<number>\d\d?)\.?[-_. (]{{1,3}})?{_NAME}\)?(?:/(?P<day>\d\d))?$",
    rf"(?<!\d){_YEAR}/(?P<first>\d\d)(?P<by>[-_. ])(?P<last>\d\d)\.?$",
)
# Seconds or milliseconds since 1970, as Facebook, WeChat and screenshots have them; others have
# numbers of ten digits that are no time.
_STAMP = re.compile(
    r"(?<![a-z])(?:(?:fb_?img|mmexport|wx_camera|micromsg|screenshot)[-_. ]?(\d{10})(?:\d{3})?"
    r"|img[-_. ]?(\d{10})\d{3})(?!\d)",
    re.ASCII,
)


def date_of_name(path: Path) -> str | None:
    """Return the date that a file's name says, else its folders': of a second, a day or a month.

    A day comes before a month, the file before its folders, and an inner folder before an outer
    one. It is None where none says any, and for years before photography or after the next one.

    >>> date_of_name(Path("IMG_20190714_102030.jpg")), date_of_name(Path("2019/07 Porto/scan.jpg"))
    ('2019-07-14 10:20:30', None)
    >>> date_of_name(Path("Urlaub 14.07.2019.jpg")), date_of_name(Path("2019/07 July/scan.jpg"))
    ('2019-07-14', '2019-07')
    """
    folders = [_fold(name) for name in path.parent.parts[-_DEPTH:]]
    said = [_date_of_file(_fold(path.stem))]
    said += [_date_of_folder(folders[:end]) for end in range(len(folders), 0, -1)]
    dates = [date for date in said if date]
    days = [date for date in dates if len(date) > _MONTH_LENGTH]
    return next(iter(days + dates), None)


def _fold(text: str) -> str:
    """Return small letters without accents, and digits of any width as ASCII."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(sign for sign in parts if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", letters)  # Hangul is decomposed, too


def _date_of_file(stem: str) -> str | None:
    """Return the first day in the name of a file, else the month in it."""
    if stamp := _STAMP.search(stem):
        return _date_of_stamp(int(stamp[1] or stamp[2]))
    days = _dates_in(stem, _DAYS)
    return days[0] if days else _month_in(stem, _MONTHS_ANYWHERE + _MONTHS_OF_FILES)


def _date_of_folder(folders: list[str]) -> str | None:
    """Return the date that the last folder says, alone or with those around it.

    Of a folder of several days, the month that they share is known.
    """
    days = _dates_in(folders[-1], _DAYS)
    if days:
        first, last = min(days), max(days)
        if first[:10] == last[:10]:
            return days[0]
        return first[:_MONTH_LENGTH] if first[:_MONTH_LENGTH] == last[:_MONTH_LENGTH] else None
    nested = _dates_in("/".join(folders), _NESTED)
    if nested:
        return nested[0]
    return _month_in(folders[-1], _MONTHS_ANYWHERE + _MONTHS_OF_FOLDERS)


def _dates_in(text: str, patterns: tuple[re.Pattern[str], ...]) -> list[str]:
    """Return the dates that patterns find in a text, in its order."""
    found = list[tuple[int, str]]()
    for pattern in patterns:
        for match in pattern.finditer(text):
            date = _date_of(match)
            if date is not None:
                found.append((match.start(), date))
    return [date for _, date in sorted(found, key=itemgetter(0))]


def _month_in(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    """Return the month in a text; None for several: "June and July 2019", "2019-07 June"."""
    months = set(_dates_in(text, patterns))
    numbers = {_NUMBERS[match["name"]] for match in re.finditer(_NAME, text)}
    numbers |= {int(month[5:]) for month in months}
    return months.pop() if len(months) == len(numbers) == 1 else None


def _date_of(match: re.Match[str]) -> str | None:
    """Return the date of a match, of a month if it says no day; None if it cannot be."""
    said = {key: value for key, value in match.groupdict().items() if value}
    month, day = _month_and_day(said)
    try:
        date = datetime(int(said["year"]), month, day or 1)
    except ValueError:
        return None
    if not _is_possible(date.year):
        return None
    return f"{date:%Y-%m-%d}{_time(said)}" if day else f"{date:%Y-%m}"


def _month_and_day(said: dict[str, str]) -> tuple[int, int]:
    """Return the numbers of a month and of a day, 0 if that is not said; no month where it may be
    another.
    """
    if "first" in said:
        return _order(int(said["first"]), int(said["last"]), said["by"].startswith("."))
    month = _NUMBERS[said["name"]] if "name" in said else int(said["month"])
    number = int(said.get("number", month))
    if number == month:
        return month, int(said.get("day", 0))
    # 2019/14 July; 2019/06 July is of June, or of its sixth day.
    return (0, 0) if "day" in said or number <= 12 else (month, number)


def _order(first: int, last: int, dotted: bool) -> tuple[int, int]:
    """Return which of two numbers is the month, and which the day; zeros if either may be.

    With dots between, the day comes first.
    """
    if last > 12:
        return first, last
    return (last, first) if dotted or first > 12 or first == last else (0, 0)


def _time(said: dict[str, str]) -> str:
    """Return the time of day after a space; nothing for none, and for one that cannot be."""
    digits = said.get("hour", "")
    if not digits or (len(digits) == 1 and "colon" not in said):
        return ""
    hour, minute, second = (int(said[key]) for key in ("hour", "minute", "second"))
    if "half" in said:
        hour = hour % 12 + 12 * (said["half"] == "p")
    if hour >= 24 or minute >= 60 or second >= 60:
        return ""
    return f" {hour:02}:{minute:02}:{second:02}"


def _date_of_stamp(seconds: int) -> str | None:
    """Return a time since 1970 in the time zone of this machine; None after the next year."""
    date = file_date(seconds * 10**9)
    return date if date and _is_possible(int(date[:4])) else None


def _is_possible(year: int) -> bool:
    """Return whether a photograph may be of a year: a clock may be wrong by one."""
    return FIRST_YEAR <= year <= datetime.today().year + 1
