"""Dates with a time of day, as filters and metadata write them (ISO 8601).

Stores compare strings, but one moment has many spellings, such as ``2019-07-14T10:20`` and
``2019-07-14 10:20:00.000``. A filter therefore asks for all of them, or for what comes before or
after all of them.
"""

import re
from itertools import product
from typing import NamedTuple

#: A date with a time of day.
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?)?"
    r"(?P<zone> ?[Zz]| ?[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
#: Other times of ISO 8601: without hyphens or colons, by week or by day of the year.
_OTHER_TIME = re.compile(r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|W[0-9]{2}-?[0-9]|[0-9]{3})[Tt][0-9]{2}")
#: Numbers of digits with which programs write a fraction.
_FRACTIONS = (3, 6, 9)
#: More digits than any program writes.
_MOST_DIGITS = 12
#: Spellings of UTC.
_UTC = ("Z", "+00:00", "+0000", "+00")


class Time(NamedTuple):
    """A date with a time of day.

    Attributes:
        date: ``2019-07-14``.
        clock: ``10:20:30``, without a fraction.
        fraction: its digits, without zeros at the end.
        zone: ``Z`` or an offset; empty without one.

    >>> Time.read("2019-07-14T10:20")
    Time(date='2019-07-14', clock='10:20:00', fraction='', zone='')
    """

    date: str
    clock: str
    fraction: str
    zone: str

    @classmethod
    def read(cls, text: str) -> "Time | None":
        """Read a text; return None if it is no date with a time."""
        match = _TIME.fullmatch(text)
        if match is None:
            return None
        clock = ":".join(match[part] or "00" for part in ("hour", "minute", "second"))
        fraction = (match["fraction"] or "").rstrip("0")
        return cls(match["date"], clock, fraction, (match["zone"] or "").strip().upper())

    def first(self) -> str:
        """Return the shortest spelling of the clock, which is the first in the order of strings.

        >>> Time("2019-07-14", "10:20:00", "", "").first()
        '10:20'
        """
        if self.fraction:
            return f"{self.clock}.{self.fraction}"
        return re.sub("(:00)+$", "", self.clock)

    def last(self) -> str:
        """Return a spelling of the clock after all others in the order of strings."""
        return f"{self.clock}.{self.fraction.ljust(_MOST_DIGITS, '0')}"

    def writings(self) -> list[str]:
        """Return every usual spelling of the moment, in the same zone.

        >>> Time.read("2019-07-14 10:20:30.5").writings()[:2]
        ['2019-07-14 10:20:30.5', '2019-07-14 10:20:30.500']
        """
        clocks = [self.first()]
        if not self.fraction:
            shortest = len(self.first())
            full = len(self.clock)
            clocks = [self.clock[:end] for end in range(shortest, full + 1, len(":00"))]
        clocks += [f"{self.clock}.{self.fraction.ljust(digits, '0')}" for digits in _FRACTIONS]
        zones = _UTC if self.zone in _UTC else (self.zone,)
        starts = (f"{self.date} ", f"{self.date}T")
        return list(map("".join, product(starts, clocks, zones)))


def order_problem(text: str) -> str:
    """Return why a time cannot be ordered among those of a store; empty if it can or is no time.

    >>> order_problem("2019-07-14T10:20:30Z")[:15], order_problem("2019-07-14T10:20:30")
    ('has a time zone', '')
    """
    example = "write it as 2019-07-14 10:20:30"
    time = Time.read(text)
    if time and time.zone:
        return f"has a time zone, and the times of a store are ordered by their clocks; {example}"
    if time is None and _OTHER_TIME.match(text):
        return f"is a time in a writing that cannot be ordered; {example}"
    return ""
