"""Collections: chosen by labels, joined one after another, and rows of the same items in two of them.

That of a run holds the items of the runs that it extends, then its new ones.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.data import resolve_data_kind
from channelhash.data.images import image_problem
from channelhash.data.records import Items, Records, are_files, label_name
from channelhash.data.splits import Rows, Splits
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
        extra = {"progress": progress} if progress and kind.reports_progress else {}
        records = kind.load(**self.arguments, **extra)
        if self.arguments.get("skip_bad"):
            records = readable(records, progress)
        return _choose_by_labels(records, self.only_labels, self.without_labels)


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
    broken: dict[Path, str | None] = {}
    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        for path, problem in zip(distinct, pool.map(image_problem, distinct), strict=True):
            broken[path] = problem
            if progress:
                progress(len(broken), len(distinct))
    wrong = [broken[Path(str(image))] for image in images]
    problems = [f"id {name}: {problem}" for name, problem in zip(records.ids, wrong, strict=True) if problem]
    if len(problems) == len(records):
        raise InputError(f"no picture of {len(records)} rows can be read; the first problem is {problems[0]}")
    if not problems:
        return records
    good = records.take([row for row, problem in enumerate(wrong) if not problem])
    reason = "unreadable picture"
    removed = records.removed | {reason: records.removed.get(reason, 0) + len(problems)}
    return replace(good, removed=removed, problems=(*records.problems, *problems))


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
        """All rows as one, see `join_records`."""
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


def _choose_by_labels(
    records: Records, only: Sequence[str] | None = None, without: Sequence[str] | None = None
) -> Records:
    """Return the rows that have one of the labels ``only``, without those that have one of ``without``.

    The columns of labels in ``without``, which no row has any more, are dropped as well.

    Raises:
        InputError: there is no such label, or no row is left.

    >>> labels = np.array([[True, False], [True, True]])
    >>> records = Records(("a", "b"), {"text": ("dog", "dog and cat")}, labels, ("dog", "cat"))
    >>> dogs = _choose_by_labels(records, without=["cat"])
    >>> dogs.ids, dogs.label_names
    (('a',), ('dog',))
    """
    if only is None and without is None:
        return records
    required = _columns(records, only or (), "data.only_labels")
    excluded = _columns(records, without or (), "data.without_labels")
    mask = ~records.labels[:, excluded].any(axis=1)
    if only is not None:
        mask &= records.labels[:, required].any(axis=1)
    if not mask.any():
        raise InputError("data.only_labels and data.without_labels leave no row of the collection; choose other labels")
    columns = [column for column in range(len(records.label_names)) if column not in excluded]
    chosen = records.take(np.flatnonzero(mask))
    return replace(
        chosen,
        labels=chosen.labels[:, columns],
        label_names=tuple(records.label_names[column] for column in columns),
        removed={**records.removed, "labels not chosen": int((~mask).sum())},
    )


def _columns(records: Records, names: Sequence[str], key: str) -> list[int]:
    for name in names:
        if label_name(name) not in records.label_names:
            raise InputError(f"{key}: the collection has no label {name!r}; it has {', '.join(records.label_names)}")
    return [records.label_names.index(label_name(name)) for name in names]


def join_records(parts: Sequence[Records]) -> Records:
    """Join several collections to one, row after row.

    Labels are joined by name, those of the first collection first; a row has none of the labels that its collection
    does not know. Modalities are those of the first collection.

    Args:
        parts: at least one.

    Raises:
        InputError: a collection lacks a modality of the first, or has another kind of it; or two have the same id.

    >>> labels = np.array([[True]])
    >>> dog, cat = (Records((name,), {"text": (name,)}, labels, (name,)) for name in ("dog", "cat"))
    >>> join_records([dog, cat]).labels.tolist()
    [[True, False], [False, True]]
    """
    return reduce(_join_two, parts)


def _join_two(first: Records, second: Records) -> Records:
    both = (first, second)
    if common := set(first.ids) & set(second.ids):
        raise InputError(f"{len(common)} ids are in both collections, such as {min(common)!r}; ids tell items apart")
    names = tuple(dict.fromkeys((*first.label_names, *second.label_names)))
    shown = [modality for modality in first.display if modality in second.display]
    return Records(
        (*first.ids, *second.ids),
        {modality: _items(modality, values, second.items) for modality, values in first.items.items()},
        np.concatenate([labels_as(part.labels, part.label_names, names) for part in both]),
        names,
        dict(Counter(first.removed) + Counter(second.removed)),
        (*first.problems, *second.problems),
        sum(len(part) if part.found is None else part.found for part in both),
        {modality: (*first.display[modality], *second.display[modality]) for modality in shown},
    )


def labels_as(labels: NDArray[np.bool_], names: Sequence[str], columns: Sequence[str]) -> NDArray[np.bool_]:
    """Return label sets ``(n, len(names))`` over other columns, which include all of ``names``.

    >>> labels_as(np.array([[True]]), ["dog"], ["cat", "dog"]).tolist()
    [[False, True]]
    """
    place = {name: column for column, name in enumerate(columns)}
    moved = np.zeros((len(labels), len(columns)), dtype=bool)
    moved[:, [place[name] for name in names]] = labels
    return moved


def _items(modality: str, first: Items, others: Mapping[str, Items]) -> Items:
    if modality not in others:
        raise InputError(f"the new items have no {modality}s, the old ones have; give both modalities")
    second = others[modality]
    if not isinstance(first, np.ndarray) and not isinstance(second, np.ndarray):
        return cast(Items, (*first, *second))  # paths with paths, strings with strings: a modality is one or the other
    kinds = [values.shape[1] if isinstance(values, np.ndarray) else 0 for values in (first, second)]
    if kinds[0] != kinds[1]:
        old, new = (f"features of width {width}" if width else "raw items" for width in kinds)
        raise InputError(f"the new {modality}s are {new}, the old ones {old}; give the same kind")
    joined: NDArray[Any] = np.concatenate([first, second])
    return joined


def join_splits(first: Splits, second: Splits, n_first: int) -> Splits:
    """Return the splits of two joined collections, of which the first has ``n_first`` rows.

    >>> rows = (np.array([row]) for row in range(5))
    >>> splits = Splits(*rows)
    >>> join_splits(splits, splits, n_first=5).train.tolist()
    [2, 7]
    """
    return Splits(
        **{name: np.concatenate([rows, getattr(second, name) + n_first]) for name, rows in vars(first).items()}
    )


@dataclass(frozen=True)
class Partners:
    """Rows of two collections that are the same item.

    Attributes:
        of_student: ``(n_student,)`` the teacher's row, or −1.
        of_teacher: ``(n_teacher,)`` the student's row, or −1.
        unmatched: a line for each item that only one of the two has.

    >>> partners = Partners(np.array([1, 0]), np.array([1, 0]), unmatched=())  # the same items in another order
    >>> partners.splits(Splits(*(np.array([row]) for row in (0, 1, 1, 0, 1)))).query.tolist()
    [1]
    """

    of_student: Rows
    of_teacher: Rows
    unmatched: tuple[str, ...]

    def splits(self, teacher: Splits) -> Splits:
        """Return the teacher's partitions as rows of the student; items that only the student has are in none.

        Raises:
            InputError: no query or no database item is left.
        """
        parts = {}
        for name, rows in vars(teacher).items():
            student_rows = self.of_teacher[rows]
            parts[name] = np.sort(student_rows[student_rows >= 0])
        for name in ("query", "retrieval"):
            if not len(parts[name]):
                raise InputError(f"none of the teacher's {name} items is in the student's data")
        return Splits(**parts)


def find_partners(student: Records, teacher: Records) -> Partners:
    """Match two collections by id. Time and memory O(n).

    Raises:
        InputError: they have no id in common, or an id occurs twice although the lists of ids differ.

    >>> student, teacher = (Records(ids, {}, np.zeros((2, 0), dtype=bool), ()) for ids in (("a", "b"), ("b", "c")))
    >>> partners = find_partners(student, teacher)
    >>> partners.of_student.tolist(), partners.of_teacher.tolist(), len(partners.unmatched)
    ([-1, 0], [1, -1], 2)
    """
    if student.ids == teacher.ids:
        same = np.arange(len(student), dtype=np.int64)
        return Partners(same, same, ())
    for whose, ids in (("student", student.ids), ("teacher", teacher.ids)):
        name, count = Counter(ids).most_common(1)[0]
        if count > 1:
            raise InputError(f"the {whose}'s data has the id {name!r} twice; rows are joined by id")
    of_student, of_teacher = (np.full(len(records), -1, dtype=np.int64) for records in (student, teacher))
    _, ours, theirs = np.intersect1d(student.ids, teacher.ids, assume_unique=True, return_indices=True)
    of_student[ours], of_teacher[theirs] = theirs, ours
    if not len(ours):
        raise InputError(f"no id is in both data, as {student.ids[0]!r} and {teacher.ids[0]!r}; rows are joined by id")
    unmatched = [f"item {student.ids[row]}: only in the student's data" for row in np.flatnonzero(of_student < 0)]
    unmatched += [f"item {teacher.ids[row]}: only in the teacher's data" for row in np.flatnonzero(of_teacher < 0)]
    return Partners(of_student, of_teacher, tuple(unmatched))
