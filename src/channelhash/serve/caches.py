"""What is counted over all items of a store: kept, and counted again when they have changed."""

import threading
import time

from channelhash.explanation.bits import BitLabels
from channelhash.search.browsing import Catalogue
from channelhash.search.items import Order
from channelhash.search.store import Item, Store

#: Relative change of the number of items after which bit labels are counted again.
_CHANGE = 0.1
#: A catalogue that takes fewer seconds is made again at every change.
_QUICK = 0.2
#: Any other is kept for at least this many times as long as it took to make: an indexing run
#: changes the store every few seconds.
_TIMES = 10


class LabelCache:
    """Keep the labels that go with bits. Several threads may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._n_items = -1
        self._labels: BitLabels | None = None

    def bit_labels(self) -> BitLabels | None:
        """Return the labels, counted at their first use and again after many items have changed."""
        with self._lock:  # others wait for the thread that counts
            n_items = len(self._store)
            if abs(n_items - self._n_items) > _CHANGE * self._n_items:
                self._labels = BitLabels.load(self._store)
                self._n_items = n_items
            return self._labels


class Browser:
    """Keep the catalogue of a store. Several threads may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None
        self._version = -1
        self._due = 0.0

    def catalogue(self) -> Catalogue:
        """Return the catalogue as of now, or, of a large store that is being written to, as of some
        seconds ago.
        """
        with self._lock:
            version = self._store.version
            is_due = version != self._version and time.monotonic() >= self._due
            if self._catalogue is None or is_due:
                # processor time: a busy machine does not make a store large
                start = time.thread_time()
                self._catalogue = Catalogue.of(
                    (item.id, item.metadata) for item in self._store.listed()
                )
                seconds = time.thread_time() - start
                self._version = version
                self._due = time.monotonic() + (0 if seconds < _QUICK else _TIMES * seconds)
            return self._catalogue

    def read(
        self, where: str | None, order: Order, seed: int, part: slice
    ) -> tuple[int, list[Item]]:
        """Return how many items pass a filter, and some of them in an order, see
        `Catalogue.places`. If one of these was deleted since the catalogue was made, a new one is
        used.
        """
        total, ids = self._select(where, order, seed, part)
        items = self._store.get(ids, missing_ok=True)
        if len(items) < len(ids):
            with self._lock:
                self._catalogue = None
            total, ids = self._select(where, order, seed, part)
            items = self._store.get(ids, missing_ok=True)
        return total, items

    def _select(
        self, where: str | None, order: Order, seed: int, part: slice
    ) -> tuple[int, list[str]]:
        catalogue = self.catalogue()
        places = catalogue.places(
            order, seed, None if where is None else set(self._store.ids(where))
        )
        return len(places), [catalogue.ids[place] for place in places[part].tolist()]
