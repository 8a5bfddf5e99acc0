"""What a store has to browse in: its items in an order, of a label, a folder or a month; counted once a version."""

import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.search.catalogue import KEYS, Catalogue, Order, make_catalogue, month_filter
from channelhash.search.store import Store

# Selections that are kept, 4 bytes an item each.
_KEPT = 8
# A catalogue that takes longer to make than this is made again when it is this many times as old: an indexing run
# changes the store every few seconds.
_QUICK, _TIMES = 0.2, 10


class Browser:
    """The catalogue of a store, and the selections that were asked for last. Several threads may call it.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None
        self._version, self._made, self._seconds = -1, 0.0, 0.0
        self._kept: dict[tuple[str | None, Order, int], NDArray[np.int32]] = {}
        #: Whether the catalogue is being made.
        self.busy = False

    def catalogue(self) -> Catalogue:
        """Return the catalogue as of now; of a large store that is being written to, as of some seconds ago."""
        with self._lock:
            version, age = self._store.version, time.monotonic() - self._made
            due = self._seconds < _QUICK or age > _TIMES * self._seconds
            if self._catalogue is None or (version != self._version and due):
                self._make(version)
            assert self._catalogue is not None
            return self._catalogue

    def forget(self) -> None:
        """Make the catalogue again at its next use."""
        with self._lock:
            self._version, self._seconds = -1, 0.0

    def select(self, where: str | None, order: Order, seed: int, part: slice) -> tuple[int, list[str]]:
        """Return how many items pass a filter, and the ids of some of them in an order; see `Catalogue.places`."""
        catalogue, key = self.catalogue(), (where, order, seed if order == "random" else 0)
        with self._lock:
            places = self._kept.get(key) if catalogue is self._catalogue else None
        if places is None:
            among = None if where is None else set(self._store.ids(where))
            places = catalogue.places(order, seed, among)
            with self._lock:
                if catalogue is self._catalogue:
                    self._kept[key] = places
                    if len(self._kept) > _KEPT:
                        del self._kept[next(iter(self._kept))]
        return len(places), [catalogue.ids[place] for place in places[part].tolist()]

    def narrow(self, where: str | None, labels: Sequence[str], folder: str | None, month: str | None) -> str | None:
        """Return the filter of all of these together; None where there are none.

        Args:
            where: a filter.
            labels: items of any of these.
            folder: items in or below it.
            month: items of a month, a year or a day.

        Raises:
            InputError: the filter is wrong, or no item has a date.
        """
        parts = []
        if labels:
            parts.append(f"label IN ({', '.join(map(_quoted, labels))})")
        if folder:
            parts.append(f"(id >= {_quoted(f'{folder}/')} AND id < {_quoted(f'{folder}0')})")  # 0 comes after /
        if month:
            parts.append(month_filter(month, self.catalogue().date_keys))
            if not parts[-1]:
                raise InputError("month: no item of this store has a date")
        if where and parts:
            self._store.check_filter(where)  # alone: what is unbalanced may be balanced among the others
            parts.append(f"({where})")
        return " AND ".join(parts) or where or None

    def _make(self, version: int) -> None:
        start, self.busy = time.monotonic(), True
        try:
            self._catalogue = make_catalogue(self._store.metadata(KEYS))
        finally:
            self.busy = False
        self._version, self._made, self._kept = version, time.monotonic(), {}
        self._seconds = self._made - start


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
