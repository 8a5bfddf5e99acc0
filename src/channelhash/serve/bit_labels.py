"""The labels that go with bits, for all requests."""

import threading

from channelhash.explanation.bit_labels import BitLabels
from channelhash.explanation.bit_labels_cache import load_bit_labels
from channelhash.search.store import Store

# Relative change of the number of items after which bit labels are counted again.
_CHANGE = 0.1


class BitLabelCache:
    """The bit labels of a store, counted once, and again when many items have been added or deleted.

    Several threads may call it: the others wait for the one that counts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counted: tuple[int, BitLabels | None] | None = None

    def __call__(self) -> BitLabels | None:
        """Return the bit labels, None where no labels are known."""
        with self._lock:
            n_items = len(self._store)
            if self._counted is None or abs(n_items - self._counted[0]) > _CHANGE * self._counted[0]:
                self._counted = n_items, load_bit_labels(self._store)
            return self._counted[1]
