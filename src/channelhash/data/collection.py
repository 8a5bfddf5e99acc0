"""The collection of a run: the items of the runs that it extends, then its new ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from channelhash.data import resolve_data_kind
from channelhash.data.concat import choose_by_labels, join_records
from channelhash.data.records import Records
from channelhash.utils.progress import Progress


@dataclass(frozen=True)
class DataSource:
    """Where items come from: the part of a section ``data`` that is not about splits.

    Attributes:
        kind: as in `resolve_data_kind`.
        arguments: arguments of the loader of that kind.
        only_labels: take the rows that have one of these labels; all if None.
        without_labels: leave out the rows that have one of these, and the labels themselves.

    >>> DataSource("table", {"path": "items.csv"}, only_labels=["dog"]).kind
    'table'
    """

    kind: str
    arguments: Mapping[str, Any]
    only_labels: Sequence[str] | None = None
    without_labels: Sequence[str] | None = None

    def load(self, progress: Progress | None = None) -> Records:
        """Return the records; ``progress`` goes to loaders that report any.

        Raises:
            InputError: the data cannot be used.
        """
        kind = resolve_data_kind(self.kind)
        extra = {"progress": progress} if kind.reports_progress else {}
        records = kind.load(**self.arguments, **extra)
        return choose_by_labels(records, self.only_labels, self.without_labels)


@dataclass(frozen=True)
class Collection:
    """Records in the order of their rows: those of the extended runs first, then the new ones.

    Attributes:
        parts: at least one; the last are the new items. Each part has a cache of features of its own.

    >>> import numpy as np
    >>> labels = np.ones((1, 1), dtype=bool)
    >>> old, new = (Records((name,), {"text": (name,)}, labels, ("letter",)) for name in "ab")
    >>> collection = Collection((old, new))
    >>> collection.records.ids, collection.n_old
    (('a', 'b'), 1)
    """

    parts: tuple[Records, ...]

    @cached_property
    def records(self) -> Records:
        """All rows as one, see `data.concat.join_records`."""
        return join_records(self.parts)

    @property
    def new(self) -> Records:
        """The new items."""
        return self.parts[-1]

    @property
    def n_old(self) -> int:
        """Number of rows of the extended runs, 0 if there are none."""
        return sum(len(part) for part in self.parts[:-1])

    def map_parts(self, function: Callable[[Records], Records]) -> Records:
        """Return ``function`` of each part, joined."""
        return join_records([function(part) for part in self.parts])


def load_collection(sources: Sequence[DataSource], progress: Progress | None = None) -> Collection:
    """Load the collection of ``sources``, of which the last are the new items.

    Raises:
        InputError: the data of a source cannot be used, or the sources do not go together (`join_records`).
    """
    return Collection(tuple(source.load(progress) for source in sources))
