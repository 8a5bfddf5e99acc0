"""What bits mean, for all requests: counted once, and again when many items have come or gone."""

import threading

from channelhash.explanation.bit_labels import Meanings
from channelhash.explanation.bit_labels_cache import meanings_of
from channelhash.search.store import Store

# Share of items by which a store has to grow or shrink.
_CHANGE = 0.1


class MeaningCache:
    """`meanings_of` a store, kept in memory. Safe to call from several threads: others wait for the one that counts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counted: tuple[int, Meanings | None] | None = None

    def __call__(self) -> Meanings | None:
        """The meanings, None where no labels are known."""
        with self._lock:
            items = len(self._store)
            if self._counted is None or abs(items - self._counted[0]) > _CHANGE * self._counted[0]:
                self._counted = items, meanings_of(self._store)
            return self._counted[1]
