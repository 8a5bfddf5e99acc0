"""Browse the items of a store: their labels, dates and keys of metadata."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import numpy as np
from numpy.typing import NDArray

from channelhash.search.items import Metadata, Order
from channelhash.utils.seeds import generator

#: Metadata keys of a date; the first one that an item has counts.
DATES = ("date", "taken")
#: Metadata key of the state of an item's file, which `channelhash.indexing` writes.
_STATE = "encoded_from"
#: The beginning of a date; cameras without a clock write 0000-00-00.
_YEAR_AND_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])(?!\d)")


@dataclass(frozen=True)
class Catalogue:
    """The items of a store.

    Attributes:
        ids: ``n`` ids, in the order of the store.
        by_name: ``(n,)`` places in ``ids``, ordered by id.
        by_date: ``(n,)`` places in ``ids``, newest first and equal dates by id; items without a
            date come last.
        n_dated: number of items with a date.
        folders: folder -> number of items in it and below it, ordered by name.
        months: ``"2019-07"`` -> number of items, newest first. Dates count if they are written in
            the metadata, as for `date_filter`.

    >>> items = {"2019/b": {"date": "2019-07-14"}, "a": {}, "2019/a": {"taken": "2020-01"}}
    >>> catalogue = Catalogue.of(items.items())
    >>> [catalogue.ids[place] for place in catalogue.places("newest")]
    ['2019/a', '2019/b', 'a']
    >>> catalogue.folders, catalogue.months
    ({'2019': 2}, {'2020-01': 1, '2019-07': 1})
    """

    ids: list[str]
    by_name: NDArray[np.int32]
    by_date: NDArray[np.int32]
    n_dated: int
    folders: dict[str, int]
    months: dict[str, int]

    @classmethod
    def of(cls, items: Iterable[tuple[str, Metadata]]) -> Self:
        """Make the catalogue of items, given as ids and metadata.

        It takes O(n log n) time, and memory for the ids and 8 bytes per item.
        """
        ids = list[str]()
        dates = list[str]()
        folders = Counter[str]()
        months = Counter[str]()
        for name, metadata in items:
            ids.append(name)
            dates.append(date_of(metadata))
            folder = name.rpartition("/")[0]
            while folder:
                folders[folder] += 1
                folder = folder.rpartition("/")[0]
            written = _written_date(metadata)
            if written:
                months[written[:7]] += 1
        by_name = sorted(range(len(ids)), key=ids.__getitem__)
        by_date = sorted(by_name, key=dates.__getitem__, reverse=True)  # stable, also in reverse
        return cls(
            ids,
            np.array(by_name, np.int32),
            np.array(by_date, np.int32),
            n_dated=sum(map(bool, dates)),
            folders=dict(sorted(folders.items())),
            months=dict(sorted(months.items(), reverse=True)),
        )

    def places(
        self, order: Order, seed: int = 0, among: Collection[str] | None = None
    ) -> NDArray[np.int32]:
        """Return all places in ``ids``, or those of the ids ``among``, in an order. O(n log n).

        ``seed`` draws the random order. Adding items to the store does not change the order of the
        others.
        """
        if order == "random":
            drawn = generator(seed, "browse").random(len(self.ids))
            places: NDArray[np.int32] = np.argsort(drawn, kind="stable").astype(np.int32)
        elif order == "oldest":
            places = np.concatenate(
                [self.by_date[: self.n_dated][::-1], self.by_date[self.n_dated :]]
            )
        else:
            places = self.by_name if order == "name" else self.by_date
        if among is None:
            return places
        mask = np.fromiter((name in among for name in self.ids), bool, len(self.ids))
        selected: NDArray[np.int32] = places[mask[places]]
        return selected


#: Passes dates that can be compared as strings: 2019, 2019-07 or 2019-07-14 10:20:30. Others, such
#: as 2019-1-4 and 07/14/2019, cannot, and programs write zeros for no date.
_COMPARABLE = (
    "({0} LIKE '____-0_%' OR {0} LIKE '____-1_%' OR {0} LIKE '____') "
    "AND NOT {0} LIKE '____-1-%' AND {0} BETWEEN '0001' AND '9999'"
)


def date_filter(keys: Iterable[str], test: str) -> str:
    """Return the filter of items whose written date passes a test of ``{0}``; empty without keys.

    Dates that cannot be compared as strings do not pass.

    >>> date_filter(["taken"], "{0} >= '2019-07' AND {0} < '2019-08'")[:49]
    "(taken >= '2019-07' AND taken < '2019-08' AND (ta"
    """
    alternatives = []
    before = ""
    for key in keys:
        alternatives.append(f"({before}{test} AND {_COMPARABLE})".format(key))
        before = f"{key} IS NULL AND "
    return f"({' OR '.join(alternatives)})" if len(alternatives) > 1 else "".join(alternatives)


def date_of(metadata: Metadata) -> str:
    """Return an item's written date, ``"2019-07-14 10:20:30"`` or a prefix; else its file's date.

    >>> date_of({"date": "2019-07", "taken": "2020-01-01"}), date_of({"date": "in July"})
    ('2019-07', '')
    """
    written = _written_date(metadata)
    parts = str(metadata.get(_STATE) or "").split()
    if not written and len(parts) == 4 and parts[1].isdecimal():
        return file_date(int(parts[1])) or ""
    return written


def file_date(changed_ns: int) -> str | None:
    """Return a file's time as a date in the time zone of this machine, as cameras write dates.

    Return None for times after the year 9999, and for those up to the beginning of 1970, which
    programs write for no time.

    >>> file_date(1_563_099_630_000_000_000)[:4], file_date(0)
    ('2019', None)
    """
    try:
        return str(datetime.fromtimestamp(changed_ns // 10**9)) if changed_ns > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _written_date(metadata: Metadata) -> str:
    value = next((metadata[key] for key in DATES if metadata.get(key) is not None), "")
    return value if isinstance(value, str) and _YEAR_AND_MONTH.match(value) else ""
