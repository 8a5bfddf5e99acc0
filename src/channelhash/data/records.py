"""Records: the form that every data set is read into."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from channelhash.errors import InputError, argument
from channelhash.utils.array_files import SparseRows
from channelhash.utils.files import cache_folder, write_text
from channelhash.utils.hashes import content_hash, file_hash

#: Label sets ``(n, c)``, a column a label.
Labels = NDArray[np.bool_]
#: Rows of precomputed features ``(n, d)``.
Features = np.ndarray | SparseRows
#: The modality of vectors that are neither said to be of images nor of texts.
VECTOR = "vector"
#: That of vectors that ask, where pairs have taught how these are compared with others.
QUESTION = "question"
#: Raw values of one modality: image files, texts, or features.
RawItems = Sequence[Path] | Sequence[str] | NDArray[np.floating[Any]] | SparseRows


def are_files(items: RawItems) -> TypeGuard[Sequence[Path]]:
    """Return whether the raw values of a modality are image files; False for empty values.

    >>> are_files((Path("a.jpg"),)), are_files(("a dog",))
    (True, False)
    """
    return not isinstance(items, Features) and len(items) > 0 and isinstance(items[0], Path)


@dataclass(frozen=True)
class Records:
    """``n`` samples in columns: ids, raw values of each modality, and labels.

    A row, not an id, is a sample: real collections may hold an id twice. ``items`` maps a modality
    to its ``n`` raw values: image files (``Path``) for ``"image"``, strings for ``"text"``, or a
    float array ``(n, d)`` of precomputed features for either, `SparseRows` if few are not 0.

    >>> labels, names = labels_from_names([["dog", "sea"], ["sea"]], None, "example")
    >>> records = Records(("a", "b"), {"text": ("dog on a beach", "waves")}, labels, names)
    >>> len(records), records.take([1]).items["text"], records.display_values("text")
    (2, ('waves',), ('dog on a beach', 'waves'))

    Raises:
        ValueError: the columns do not have one row for each id.
    """

    ids: tuple[str, ...]
    items: Mapping[str, RawItems]
    labels: Labels  # (n, c)
    label_names: tuple[str, ...]  # c
    removed: dict[str, int] = field(default_factory=dict)  # rows taken out by filters, by reason
    problems: tuple[str, ...] = ()  # a line for each error that was repaired or left out
    found: int | None = None  # rows before any filter; None if there was none
    # with features: texts, image paths
    display: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.ids)
        if self.labels.shape != (n, len(self.label_names)):
            raise ValueError(
                f"labels are {self.labels.shape}, expected ({n}, {len(self.label_names)})"
            )
        for modality, values in (*self.items.items(), *self.display.items()):
            if len(values) != n:
                raise ValueError(f"{len(values)} {modality} values for {n} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> "Records":
        """Return the records of ``rows``, in that order."""
        index = np.asarray(rows, dtype=np.int64)
        items: dict[str, RawItems] = {}
        for modality, values in self.items.items():
            if isinstance(values, Features):
                items[modality] = values.take(index, axis=0)
            else:
                items[modality] = _pick(values, index)
        display = {modality: _pick(values, index) for modality, values in self.display.items()}
        ids = _pick(self.ids, index)
        return replace(self, ids=ids, items=items, labels=self.labels[index], display=display)

    def display_values(self, modality: str) -> tuple[str, ...] | None:
        """Return the texts or image paths to display with a search result; None if there are
        features alone.
        """
        values = self.items.get(modality)
        if values is None or isinstance(values, Features):
            return self.display.get(modality)
        return tuple(str(value) for value in values)

    @property
    def pair_ids(self) -> tuple[str, ...]:
        """The same name for all rows with one image file, which are texts of one image.

        The name is the smallest id of these rows.

        >>> images = {"image": (Path("dog.jpg"), Path("sea.jpg"), Path("dog.jpg"))}
        >>> Records(("1", "2", "3"), images, np.zeros((3, 0), dtype=bool), ()).pair_ids
        ('1', '2', '1')
        """
        images = self.display_values("image")
        return self.ids if images is None else pairs_by_image(self.ids, images)

    def content_hash(self) -> str:
        """Return 64 hex digits that identify the collection by ids and labels, not by places of
        files.
        """
        ids, names = ("\n".join(column).encode() for column in (self.ids, self.label_names))
        return content_hash(ids, names, np.packbits(self.labels).tobytes())

    @cached_property
    def contents(self) -> dict[str, str]:
        """Hashes of everything that was read, by what it is: ``"labels"``, ``"image features"`` …

        They are the same wherever the files lie and however they are stored.

        >>> labels = np.zeros((2, 0), dtype=bool)
        >>> records = Records(("a", "b"), {"text": ("a dog", "waves")}, labels, ())
        >>> list(records.contents), records.contents == records.take([1, 0]).contents
        (['ids', 'labels', 'pairs', 'texts'], False)
        """
        names = "\n".join(self.label_names).encode()
        hashes = {
            "ids": items_hash(self.ids),
            "labels": content_hash(names, np.packbits(self.labels).tobytes()),
            "pairs": items_hash(self.pair_ids),
        }
        for modality, values in self.items.items():
            kind = f"{modality} features" if isinstance(values, Features) else f"{modality}s"
            hashes[kind] = items_hash(values)
        for modality, shown in self.display.items():
            # Of paths the names alone: the collection may move.
            names_shown = [Path(value).name if modality == "image" else value for value in shown]
            hashes[f"{modality}s to display"] = items_hash(names_shown)
        return hashes


#: Rows of features that are hashed at a time.
_HASHED_ROWS = 4096


def _pick(values: Sequence[Any], rows: NDArray[np.int64]) -> tuple[Any, ...]:
    return tuple([values[row] for row in rows])


def items_hash(items: RawItems) -> str:
    """Hash raw values of a modality in their order; 64 hex digits.

    Features are hashed by their values, whatever their number type and whether they are sparse.
    Image files are hashed by their bytes. Reading 200,000 of them takes minutes, so the cache
    keeps the result under what the file system says of the files, until that differs.

    Raises:
        InputError: an image file is missing.

    >>> items_hash(("a dog", "a cat")) == items_hash(("a cat", "a dog"))
    False
    """
    if isinstance(items, Features):
        return content_hash(str(items.shape).encode(), *map(_block_hash, _value_blocks(items)))
    if not are_files(items):
        return content_hash(*(str(item).encode(errors="surrogatepass") for item in items))
    kept = _kept_hash(items)
    if kept is not None and kept.exists():
        return kept.read_text(encoding="utf-8")
    result = content_hash(*(bytes.fromhex(file_hash(path)) for path in items))
    if kept is not None:
        with suppress(OSError):  # a cache that cannot be written to costs time alone
            write_text(kept, result)
    return result


def _value_blocks(values: Features) -> Iterator[NDArray[np.float32]]:
    """Yield the values as float32 in blocks of rows; −0 as 0."""
    for start in range(0, len(values), _HASHED_ROWS):
        yield np.asarray(values[start : start + _HASHED_ROWS], dtype="<f4") + np.float32(0)


def _block_hash(block: NDArray[np.float32]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(block).data).digest()


def _kept_hash(files: Sequence[Path]) -> Path | None:
    """Return the file of the cache that holds the hash of image files while they are unchanged;
    None without a place for a cache.
    """
    listing = []
    for path in files:
        try:
            stat = path.stat()
        except OSError:
            raise InputError(f"{path}: no such picture") from None
        # A file that was replaced by one of its size and date has another node or time of change.
        times = f"{stat.st_mtime_ns} {stat.st_ctime_ns}"
        listing.append(f"{path.resolve()} {stat.st_size} {times} {stat.st_ino}".encode())
    try:
        folder = cache_folder()
    except InputError:  # a user without a home
        return None
    return folder / "features" / f"pictures-{content_hash(*listing)[:16]}.sha256"


@dataclass
class Problems:
    """Bad entries of a data set: the first one raises, or all are listed and those that are left
    out are counted.

    Args:
        skip_bad: list bad entries instead of raising.
        lines: one line for each problem.
        removed: entries left out, by reason.

    >>> problems = Problems(skip_bad=True)
    >>> problems.add("items.csv, line 3: has no id", "mend it", reason="no id")
    >>> problems.lines, problems.removed
    (['items.csv, line 3: has no id'], {'no id': 1})
    """

    skip_bad: bool
    lines: list[str] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)

    def add(self, line: str, remedy: str, reason: str | None = None) -> None:
        """List a problem, and count it under ``reason`` if its entry is left out.

        Raises:
            InputError: bad entries are not skipped; the message ends with ``remedy``.
        """
        if not self.skip_bad:
            raise InputError(f"{line}; {remedy}")
        self.lines.append(line)
        if reason is not None:
            self.count(reason)

    def usable(
        self, bad: Mapping[int, str], ids: Sequence[str], path: Path, reason: str
    ) -> NDArray[np.int64]:
        """List the ``bad`` rows of a file, which are left out; return the others, at least one."""
        remedy = f"mend such rows, {len(bad)} in all, or leave them out with "
        for row, problem in sorted(bad.items()):
            line = f"{path}, row {row} (id {ids[row]}): {problem}"
            self.add(line, remedy + argument("skip_bad"), reason)
        if bad and len(bad) == len(ids):
            raise InputError(
                f"{path}: no usable row is left of {len(ids)}; the last problem is {self.lines[-1]}"
            )
        return np.setdiff1d(np.arange(len(ids)), list(bad))

    def count(self, reason: str) -> None:
        """Count an entry that is left out."""
        self.removed[reason] = self.removed.get(reason, 0) + 1


def pairs_by_image(ids: Sequence[str], images: Sequence[str]) -> tuple[str, ...]:
    """Return for each row the smallest id of the rows that show the same image.

    >>> pairs_by_image(["b", "a", "c"], ["dog.jpg", "dog.jpg", "sea.jpg"])
    ('a', 'a', 'c')
    """
    first: dict[str, str] = {}
    for row, image in zip(ids, images, strict=True):
        first[image] = min(first.get(image, row), row)
    return tuple(first[image] for image in images)


#: Characters that nobody sees: soft hyphens, joiners, directions, byte-order marks.
UNSEEN = "\u00ad\u200b-\u200f\u2060\ufeff"
_AROUND = re.compile(rf"^[\s{UNSEEN}]+|[\s{UNSEEN}]+$")
#: A whole number as programs write it that know decimals only, of no more digits than these keep.
_WRITTEN_AS_DECIMAL = re.compile(r"([-+]?[0-9]{1,15})\.0*")
#: Names of labels or columns in a configuration, where YAML may have read them as numbers.
NameList = list[Annotated[str, Field(coerce_numbers_to_str=True)]]


def label_name(name: str) -> str:
    """Return the name of a label without blanks and unseen characters around it, each accented
    letter as one character (NFC), and a whole number without decimals.

    >>> label_name(" cafe\N{COMBINING ACUTE ACCENT} ") == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    True
    >>> label_name("1.0"), label_name("1.5"), label_name("v1.0")
    ('1', '1.5', 'v1.0')
    """
    text = unicodedata.normalize("NFC", _AROUND.sub("", name))
    number = _WRITTEN_AS_DECIMAL.fullmatch(text)
    return str(int(number[1])) if number else text


def labels_from_names(
    rows: Sequence[Sequence[str]], label_names: Sequence[str] | None, where: str
) -> tuple[Labels, tuple[str, ...]]:
    """Convert the label names of each row to a Boolean matrix ``(n, c)`` and its column names, as
    of `label_name`.

    Args:
        rows: label names of each row.
        label_names: columns in their order; None takes all names that occur, sorted.
        where: the file, named in errors.

    Raises:
        InputError: a row has a name that is not in ``label_names``.

    >>> labels, names = labels_from_names([["sea"], ["dog", "sea"], []], None, "table.csv")
    >>> names, labels.tolist()
    (('dog', 'sea'), [[False, True], [True, True], [False, False]])
    """
    forms = {name: label_name(name) for name in set(chain.from_iterable(rows))}
    if label_names is None:
        names = tuple(sorted(set(forms.values())))
    else:
        names = tuple(dict.fromkeys(map(label_name, label_names)))
    column = {name: j for j, name in enumerate(names)}
    labels = np.zeros((len(rows), len(names)), dtype=bool)
    for i, row in enumerate(rows):
        for name in row:
            if forms[name] not in column:
                raise InputError(
                    f"{where}: row {i + 1} has the unknown label {name!r}; known: "
                    f"{', '.join(names)}"
                )
            labels[i, column[forms[name]]] = True
    return labels, names


class DataItem(NamedTuple):
    """A usable item of a data set.

    Attributes:
        id: its id.
        values: its raw values by modality.
        labels: names of its labels.

    >>> DataItem("a", {"text": "waves"}, ["sea"]).labels
    ['sea']
    """

    id: str
    values: Mapping[str, Any]
    labels: Sequence[str]


def records_from_rows(
    items: Sequence[DataItem],
    label_names: Sequence[str] | None,
    where: str,
    problems: Problems,
    found: int,
) -> Records:
    """Return the records of the items that are left of ``found`` ones.

    Raises:
        InputError: none is left, or as of `labels_from_names`.

    >>> items = [DataItem("a", {"text": "a dog"}, ["dog"]), DataItem("b", {"text": "waves"}, [])]
    >>> records_from_rows(items, None, "table.csv", Problems(skip_bad=False), found=2).items
    {'text': ('a dog', 'waves')}
    """
    if not items:
        first = f"; the first problem is {problems.lines[0]}" if problems.lines else ""
        raise InputError(f"{where}: no usable row is left of {found}: {problems.removed}{first}")
    labels, names = labels_from_names([item.labels for item in items], label_names, where)
    values: dict[str, RawItems] = {}
    for modality in items[0].values:
        values[modality] = tuple([item.values[modality] for item in items])
    ids = tuple([item.id for item in items])
    return Records(ids, values, labels, names, problems.removed, tuple(problems.lines), found)
