"""Load, join, filter, match and describe collections.

The collection of a run holds the items of the runs that it extends, then its new ones.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.data import resolve_data_kind
from channelhash.data.cells import MISSING
from channelhash.data.images import image_problem
from channelhash.data.records import (
    UNSEEN,
    Features,
    Labels,
    RawItems,
    Records,
    are_files,
    label_name,
)
from channelhash.data.splits import RowNumbers, Splits
from channelhash.errors import InputError
from channelhash.utils.hashes import file_hash
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.typed_settings import check_kind

#: The last source that was loaded in a block of `loaded_once`, with its records; None outside.
_loaded: dict[str, Records] | None = None


@contextmanager
def loaded_once() -> Iterator[None]:
    """Load a source once in this block, as the runs of a grid share theirs.

    >>> with loaded_once():
    ...     pass
    """
    global _loaded
    _loaded = {}
    try:
        yield
    finally:
        _loaded = None


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

    def load(self, progress: Progress = no_progress) -> Records:
        """Return the records; ``progress`` goes to loaders that report any.

        With ``skip_bad`` among the arguments, images that cannot be decoded are left out.
        """
        global _loaded
        if _loaded is not None and repr(self) in _loaded:
            return _loaded[repr(self)]
        kind = resolve_data_kind(self.kind)
        extra = {"progress": progress} if kind.reports_progress else {}
        loaded = kind.load(**self.arguments, **extra)
        records = check_kind(loaded, Records, f"data.kind {self.kind}")
        if self.arguments.get("skip_bad"):
            records = readable(records, progress)
        records = _with_labels(records, self.only_labels, self.without_labels)
        if _loaded is not None:
            _loaded = {repr(self): records}
        return records


def readable(records: Records, progress: Progress = no_progress) -> Records:
    """Return the records whose images can be decoded; the others are counted and listed."""
    images = records.items.get("image", ())
    if not are_files(images):
        return records
    broken = _decode(images, progress)
    wrong = [broken[image] for image in images]
    problems = [
        f"id {name}: {problem}" for name, problem in zip(records.ids, wrong, strict=True) if problem
    ]
    if len(problems) == len(records):
        raise InputError(
            f"no picture of {len(records)} rows can be read; the first problem is {problems[0]}"
        )
    good = records.take([row for row, problem in enumerate(wrong) if not problem])
    removed = dict(Counter(records.removed) + Counter({"unreadable picture": len(problems)}))
    return replace(good, removed=removed, problems=(*records.problems, *problems))


def _decode(images: Sequence[Path], progress: Progress) -> dict[Path, str | None]:
    """Return each distinct image file with what is wrong with it, or None."""
    distinct = list(dict.fromkeys(images))
    problems: dict[Path, str | None] = {}
    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        for path, problem in zip(distinct, pool.map(image_problem, distinct), strict=True):
            problems[path] = problem
            progress(len(problems), len(distinct))
    return problems


@dataclass(frozen=True)
class Collection:
    """Records of the extended runs, then the new ones.

    Attributes:
        parts: at least one; the last are the new items. Each part has a cache of features of its
            own.

    >>> import numpy as np
    >>> labels = np.ones((1, 1), dtype=bool)
    >>> old, new = (Records((name,), {"text": (name,)}, labels, ("letter",)) for name in "ab")
    >>> collection = Collection((old, new))
    >>> collection.records.ids, collection.n_old
    (('a', 'b'), 1)
    """

    parts: tuple[Records, ...]

    @classmethod
    def load(cls, sources: Sequence[DataSource], progress: Progress = no_progress) -> "Collection":
        """Load the collection of ``sources``, of which the last are the new items."""
        return cls(tuple(source.load(progress) for source in sources))

    @cached_property
    def records(self) -> Records:
        """All rows as one.

        Labels are joined by name, those of the first part first; a row has none of the labels that
        its part does not know. Modalities are those of the first part.

        >>> labels = np.array([[True]])
        >>> dog = Records(("1",), {"text": ("a dog",)}, labels, ("dog",))
        >>> cat = Records(("2",), {"text": ("a cat",)}, labels, ("cat",))
        >>> Collection((dog, cat)).records.labels.tolist()
        [[True, False], [False, True]]
        """
        return reduce(_join_two, self.parts)

    @property
    def new(self) -> Records:
        """The new items."""
        return self.parts[-1]

    @property
    def n_old(self) -> int:
        """Number of rows of the extended runs, 0 if there are none."""
        return sum(len(part) for part in self.parts[:-1])


def _with_labels(
    records: Records, only: Sequence[str] | None = None, without: Sequence[str] | None = None
) -> Records:
    """Return the rows that have a label in ``only`` and none in ``without``.

    The columns of the labels in ``without`` are dropped as well.

    >>> labels = np.array([[True, False], [True, True]])
    >>> records = Records(("a", "b"), {"text": ("dog", "dog and cat")}, labels, ("dog", "cat"))
    >>> dogs = _with_labels(records, without=["cat"])
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
        raise InputError(
            "data.only_labels and data.without_labels leave no row of the collection; choose other "
            "labels"
        )
    columns = np.setdiff1d(np.arange(len(records.label_names)), excluded)
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
            raise InputError(
                f"{key}: the collection has no label {name!r}; it has "
                f"{', '.join(records.label_names)}"
            )
    return [records.label_names.index(label_name(name)) for name in names]


def _join_two(first: Records, second: Records) -> Records:
    both = (first, second)
    common = set(first.ids) & set(second.ids)
    if common:
        raise InputError(
            f"{len(common)} ids are in both collections, such as {min(common)!r}; ids tell items "
            "apart"
        )
    names = tuple(dict.fromkeys((*first.label_names, *second.label_names)))
    shown = [modality for modality in first.display if modality in second.display]
    return Records(
        (*first.ids, *second.ids),
        {
            modality: _join_items(modality, values, second.items)
            for modality, values in first.items.items()
        },
        np.concatenate([labels_as(part.labels, part.label_names, names) for part in both]),
        names,
        dict(Counter(first.removed) + Counter(second.removed)),
        (*first.problems, *second.problems),
        sum(map(_n_found, both)),
        {modality: (*first.display[modality], *second.display[modality]) for modality in shown},
    )


def _n_found(records: Records) -> int:
    return len(records) if records.found is None else records.found


def labels_as(labels: Labels, names: Sequence[str], columns: Sequence[str]) -> Labels:
    """Return label sets ``(n, len(names))`` over other columns, which include all of ``names``.

    >>> labels_as(np.array([[True]]), ["dog"], ["cat", "dog"]).tolist()
    [[False, True]]
    """
    place = {name: column for column, name in enumerate(columns)}
    moved = np.zeros((len(labels), len(columns)), dtype=bool)
    moved[:, [place[name] for name in names]] = labels
    return moved


def _join_items(modality: str, first: RawItems, additions: Mapping[str, RawItems]) -> RawItems:
    if modality not in additions:
        raise InputError(
            f"the new items have no {modality}s, the old ones have; give both modalities"
        )
    second = additions[modality]
    if not isinstance(first, Features) and not isinstance(second, Features):
        # A modality has paths or strings, never both.
        return cast(RawItems, (*first, *second))
    kinds = [values.shape[1] if isinstance(values, Features) else 0 for values in (first, second)]
    if kinds[0] != kinds[1]:
        old, new = (f"features of width {width}" if width else "raw items" for width in kinds)
        raise InputError(f"the new {modality}s are {new}, the old ones {old}; give the same kind")
    # Sparse features become dense.
    return cast(RawItems, np.concatenate([np.asarray(first), np.asarray(second)]))


@dataclass(frozen=True)
class Partners:
    """Rows of two collections that are the same item.

    Attributes:
        of_student: ``(n_student,)`` the teacher's row, or −1.
        of_teacher: ``(n_teacher,)`` the student's row, or −1.
        unmatched: a line for each item that only one of the two has.

    >>> swapped = np.array([1, 0])  # the same items in another order
    >>> partners = Partners(swapped, swapped, unmatched=())
    >>> partners.splits(Splits(*(np.array([row]) for row in (0, 1, 1, 0, 1)))).query.tolist()
    [1]
    """

    of_student: RowNumbers
    of_teacher: RowNumbers
    unmatched: tuple[str, ...]

    @classmethod
    def match(cls, student: Records, teacher: Records) -> "Partners":
        """Match two collections by id. Time and memory O(n).

        >>> student = Records(("a", "b"), {}, np.zeros((2, 0), dtype=bool), ())
        >>> teacher = Records(("b", "c"), {}, np.zeros((2, 0), dtype=bool), ())
        >>> partners = Partners.match(student, teacher)
        >>> partners.of_student.tolist(), partners.of_teacher.tolist(), len(partners.unmatched)
        ([-1, 0], [1, -1], 2)
        """
        if student.ids == teacher.ids:
            same = np.arange(len(student), dtype=np.int64)
            return cls(same, same, ())
        for whose, ids in (("student", student.ids), ("teacher", teacher.ids)):
            name, count = Counter(ids).most_common(1)[0]
            if count > 1:
                raise InputError(
                    f"the {whose}'s data has the id {name!r} twice; rows are joined by id"
                )
        of_student = np.full(len(student), -1, dtype=np.int64)
        of_teacher = np.full(len(teacher), -1, dtype=np.int64)
        _, rows, teacher_rows = np.intersect1d(
            student.ids, teacher.ids, assume_unique=True, return_indices=True
        )
        of_student[rows] = teacher_rows
        of_teacher[teacher_rows] = rows
        if not len(rows):
            examples = f"{student.ids[0]!r} and {teacher.ids[0]!r}"
            raise InputError(f"no id is in both data, as {examples}; rows are joined by id")
        unmatched = []
        for whose, ids, partners in (
            ("student", student.ids, of_student),
            ("teacher", teacher.ids, of_teacher),
        ):
            for row in np.flatnonzero(partners < 0):
                unmatched.append(f"item {ids[row]}: only in the {whose}'s data")
        return cls(of_student, of_teacher, tuple(unmatched))

    def splits(self, teacher: Splits) -> Splits:
        """Return the teacher's partitions as rows of the student.

        Items that only the student has are in none.
        """
        student_rows = {name: self.of_teacher[rows] for name, rows in vars(teacher).items()}
        parts = {name: np.sort(rows[rows >= 0]) for name, rows in student_rows.items()}
        for name in ("query", "retrieval"):
            if not len(parts[name]):
                raise InputError(f"none of the teacher's {name} items is in the student's data")
        return Splits(**parts)


#: Distinct label sets that are compared with all others at once; a collection may have 50,000.
_BLOCK = 1024


def describe(
    records: Records,
    splits: Splits | None = None,
    expected: dict[str, int] | None = None,
    decoded: Progress | None = None,
) -> dict[str, Any]:
    """Count a collection and list its problems, each with its remedy.

    If ``decoded`` is given, images are decoded to find those that cannot be read, and it is told of
    each.

    >>> labels = np.array([[True, False], [True, True], [False, False]])
    >>> texts = ("a dog", "a dog swims", "nothing")
    >>> summary = describe(Records(tuple("abc"), {"text": texts}, labels, ("dog", "sea")))
    >>> summary["labels"], summary["words_per_text"]["median"], round(summary["chance"], 2)
    ({'dog': 2, 'sea': 1}, 2.0, 0.33)
    >>> summary["problems"][0].partition(":")[0]
    '1 of 3 samples have no label'
    """
    counts = {"found": _n_found(records), "usable": len(records)}
    partitions = splits.counts() if splits else {}
    expected = expected or {}
    protocol = _recognise(records.labels)
    problems = list(records.problems)
    if not protocol or counts["usable"] == expected.get("usable"):
        problems += _count_problems(counts | partitions, expected)
    problems += [*row_problems(records), *_repeated_ids(records.ids)]
    images = records.items.get("image", ())
    if decoded and are_files(images):
        problems += _image_problems(images, decoded)
    measures = {"map": bool(records.label_names), "recall": len(records.items) > 1}
    return {
        **counts,
        "labels": dict(zip(records.label_names, records.labels.sum(axis=0).tolist(), strict=True)),
        "partitions": partitions,
        "expected": dict(expected),
        "removed": dict(records.removed),
        "problems": problems,
        "labels_per_item": _summary(records.labels.sum(axis=1)),
        "words_per_text": _count_words(records.items.get("text", ())),
        "chance": _chance(records.labels),
        "protocol": protocol,
        "measures": [name for name, is_possible in measures.items() if is_possible],
    }


def _count_problems(counts: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    """Return a line for each count that differs from that of the official collection."""
    return [
        f"{name}: {count} samples, the official collection has {expected[name]}; is the archive "
        "complete?"
        for name, count in counts.items()
        if expected.get(name, count) != count
    ]


def _count_words(texts: RawItems) -> dict[str, float]:
    if isinstance(texts, Features) or not texts:
        return {}
    return _summary(np.array([len(str(text).split()) for text in texts]))


def row_problems(records: Records) -> list[str]:
    """Return a line for each problem of texts and labels.

    >>> texts = {"text": ("a dog", "nan")}
    >>> for line in row_problems(Records(("a", "b"), texts, np.ones((2, 1), dtype=bool), ("x",))):
    ...     print(line)
    1 of 2 texts are words for a missing value, such as 'nan'; empty these cells
    label 'x' is on all samples that have any: no two of them differ; give others, or leave it out
    """
    problems = _text_problems(records.display_values("text") or ())
    unlabelled = int((~records.labels.any(axis=1)).sum())
    if unlabelled and records.label_names:
        problems.append(
            f"{unlabelled} of {len(records)} samples have no label: they are similar to nothing "
            "and never relevant; label them or leave them out"
        )
    for name, count in zip(records.label_names, records.labels.sum(axis=0), strict=True):
        if not count:
            problems.append(f"label {name!r} never occurs; leave it out of the labels")
        elif count == len(records) - unlabelled:
            problems.append(
                f"label {name!r} is on all samples that have any: no two of them differ; give "
                "others, or leave it out"
            )
    problems += _spelling_problems(records.label_names)
    if not records.label_names and len(records.items) < 2:
        problems.append(
            "no labels and no pairs of an image and a text: nothing can be learned or measured; "
            "add either"
        )
    return problems


def _text_problems(texts: Sequence[str]) -> list[str]:
    missing = [text for text in texts if text.strip().lower() in MISSING]
    if not missing:
        return []
    count = f"{len(missing)} of {len(texts)} texts are words for a missing value"
    return [f"{count}, such as {missing[0]!r}; empty these cells"]


def _repeated_ids(ids: Sequence[str]) -> list[str]:
    repeated = sorted(name for name, count in Counter(ids).items() if count > 1)
    stay = "occurs more than once: its rows stay on one side of query and retrieval"
    return [f"id {name} {stay}" for name in repeated]


def _spelling_problems(names: Sequence[str]) -> list[str]:
    spellings = defaultdict[str, list[str]](list)
    for name in names:
        plain = re.sub(f"[{UNSEEN}]", "", name.casefold())
        spellings[" ".join(plain.split())].append(repr(name))
    differ = "differ in capitals, blanks or unseen characters only; write one label one way"
    several = [alike for alike in spellings.values() if len(alike) > 1]
    return [f"labels {' and '.join(alike)} {differ}" for alike in several]


def _image_problems(images: Sequence[Path], progress: Progress) -> list[str]:
    """Return a line for every image that cannot be decoded or repeats an earlier one."""
    problems = []
    first: dict[str, Path] = {}
    for path, problem in _decode(images, progress).items():
        if problem:
            problems.append(f"{problem}; leave it out (skip_bad), or get it again")
            continue
        original = first.setdefault(file_hash(path), path)
        if original != path:
            problems.append(f"picture {path} is the same file as {original}; leave one of them out")
    return problems


def _summary(values: NDArray[Any]) -> dict[str, float]:
    return {name: float(getattr(np, name)(values)) for name in ("min", "median", "mean", "max")}


def _chance(labels: Labels) -> float:
    """Return the probability that two different samples share a label."""
    sets, counts = np.unique(labels, axis=0, return_counts=True)
    # Products of float32 run in BLAS, and are exact below 2^24.
    columns = sets.astype(np.float32).T
    weights = counts.astype(np.float32)
    pairs = -int(counts[sets.any(axis=1)].sum())  # a sample makes no pair with itself
    for start in range(0, len(sets), _BLOCK):
        block = slice(start, start + _BLOCK)
        # How many samples share a label with each set.
        related = np.minimum(columns[:, block].T @ columns, 1) @ weights
        pairs += int(counts[block] @ related.astype(np.int64))
    n = len(labels)
    return pairs / (n * (n - 1)) if n > 1 else 0.0


def _recognise(labels: Labels) -> str:
    """Return a line on the protocol of the literature that a collection follows, empty if unknown.

    For variants of other projects it names repository, commit and file.

    >>> _recognise(np.ones((20015, 24), dtype=bool)).split(":")[0]
    'MIRFLICKR-25k, 24 labels, 20,015 images'
    >>> _recognise(np.ones((10, 24), dtype=bool))
    ''
    """
    images, width = labels.shape
    counts = [str(count) for count in (width, images, images - int(labels.any(axis=1).sum()))]
    with open(Path(__file__).with_name("protocols.csv"), encoding="utf-8", newline="") as file:
        for *variant, name, note in csv.reader(file):
            if variant == counts:
                return f"{name}, {width} labels, {images:,} images: {note}"
    return ""
