"""Dates of photographs: as cameras write them into files, and as people and programs write them into names."""

import re
from datetime import datetime
from pathlib import Path

# Year, month and day, then perhaps hour, minute and perhaps second, each but the year of one or two digits.
_WRITTEN = re.compile(r"\s*(\d{4})\D?(\d\d?)\D?(\d\d?)(?:[T\s]+(\d\d?)\D?(\d\d?)(?:\D?(\d\d?))?)?", re.ASCII)
# The same in a name: with one separator or none, not within a longer number; telephones add milliseconds to the time.
_NAMED = re.compile(
    r"(?<!\d)(\d{4})([-_.: ]?)(\d\d)\2(\d\d)"
    r"(?:(?:[-_.T ]|_at_|\sat\s)?(\d\d?)([-_.: ]?)(\d\d)\6(\d\d)(?:\d{3})?(?!\d)(?:\s?([AP])M)?)?(?!\d)"
)
# A month, or a day, as a folder or as folders in each other: 2019-07, 2019/07, 2019/07/14.
_FOLDERS = re.compile(r"(?<!\d)(\d{4})(?:[-_. ](\d\d)(?!\d)|/(\d\d)(?:/(\d\d))?(?=/|$))")
_FIRST_PHOTOGRAPH = 1826


def parse_date(written: object) -> str | None:
    """Return a camera's date as ``"2019-07-14 10:20:30"``; None for zeros, spaces and dates that cannot be.

    Any separators do, and seconds or the whole time may be missing. Time zones and fractions of seconds are left out, a
    time that cannot be, too. Hour 24 is how some telephones write the first hour of a day.

    >>> parse_date("2019:07:14 10:20"), parse_date("2019-07-14T24:20:30.5+02:00"), parse_date("0000:00:00 00:00:00")
    ('2019-07-14 10:20:00', '2019-07-14 00:20:30', None)
    """
    text = written.decode(errors="replace") if isinstance(written, bytes) else str(written)
    if not (match := _WRITTEN.match(text)):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        date = datetime(year, month, day)
    except ValueError:
        return None
    if hour <= 24 and minute < 60 and second <= 60:
        date = date.replace(hour=hour % 24, minute=minute, second=min(second, 59))
    return str(date) if year >= _FIRST_PHOTOGRAPH else None


def date_of_name(path: Path) -> str | None:
    """Return the date that a file's name says, else its folders': of a second, a day or a month; None where none does.

    Impossible dates, years before photography or after the next one, and years alone are none.

    >>> date_of_name(Path("IMG_20190714_102030.jpg")), date_of_name(Path("2019/07 Porto/scan.jpg"))
    ('2019-07-14 10:20:30', None)
    >>> date_of_name(Path("IMG-20190714-WA0001.jpg")), date_of_name(Path("2019/07/scan.jpg"))
    ('2019-07-14', '2019-07')
    """
    folders = "/".join(path.parent.parts[-3:])
    for text in (path.stem, *reversed(folders.split("/"))):
        for year, _, month, day, hour, _, minute, second, half in _NAMED.findall(text):
            if date := _day(year, month, day):
                return f"{date}{_time(hour, minute, second, half)}"
    found = [_day(year, one or other, day) for year, one, other, day in _FOLDERS.findall(folders)]
    return next((date for date in reversed(found) if date), None)


def _day(year: str, month: str, day: str) -> str | None:
    """Return a day, or a month where no day is said; None for those that cannot be."""
    try:
        date = datetime(int(year), int(month), int(day or 1))
    except ValueError:
        return None
    if not _FIRST_PHOTOGRAPH <= date.year <= datetime.today().year + 1:
        return None
    return f"{date:%Y-%m-%d}" if day else f"{date:%Y-%m}"


def _time(hour: str, minute: str, second: str, half: str) -> str:
    """Return the time of day with a space before it; nothing for none, and for one that cannot be."""
    if not hour:
        return ""
    of_day = int(hour) % 12 + 12 * (half == "P") if half else int(hour)
    return f" {of_day:02}:{minute}:{second}" if of_day < 24 and int(minute) < 60 and int(second) < 60 else ""
