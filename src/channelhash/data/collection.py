"""The collection of a run: the items of the runs that it extends, then its new ones."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from channelhash.data import resolve_data_kind
from channelhash.data.concat import choose_by_labels, join_records
from channelhash.data.images import image_problem
from channelhash.data.records import Records, are_files
from channelhash.errors import InputError
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

        With ``skip_bad`` among the arguments, images that cannot be decoded are left out (`readable`).

        Raises:
            InputError: the data cannot be used.
        """
        kind = resolve_data_kind(self.kind)
        extra = {"progress": progress} if kind.reports_progress else {}
        records = kind.load(**self.arguments, **extra)
        if self.arguments.get("skip_bad"):
            records = readable(records, progress)
        return choose_by_labels(records, self.only_labels, self.without_labels)


def readable(records: Records, progress: Progress | None = None) -> Records:
    """Return the records whose images can be decoded; the others are counted and listed.

    Raises:
        InputError: none is left.

    >>> import numpy as np
    >>> texts = Records(("a",), {"text": ("a dog",)}, np.zeros((1, 0), dtype=bool), ())
    >>> readable(texts) is texts
    True
    """
    images = records.items.get("image", ())
    if not are_files(images):
        return records
    distinct = list(dict.fromkeys(Path(str(image)) for image in images))
    broken: dict[str, str] = {}
    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        for number, (path, problem) in enumerate(
            zip(distinct, pool.map(image_problem, distinct), strict=True), start=1
        ):
            if problem:
                broken[str(path)] = problem
            if progress:
                progress(number, len(distinct))
    bad = [row for row, image in enumerate(images) if str(image) in broken]
    problems = [f"id {records.ids[row]}: {broken[str(images[row])]}" for row in bad]
    good = sorted({*range(len(records))} - {*bad})
    if not good:
        raise InputError(f"no picture of {len(records)} rows can be read; the first problem is {problems[0]}")
    if not problems:
        return records
    reason = "unreadable picture"
    removed = records.removed | {reason: records.removed.get(reason, 0) + len(problems)}
    return replace(records.take(good), removed=removed, problems=(*records.problems, *problems))


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
