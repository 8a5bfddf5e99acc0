"""Records: what every data set becomes, whatever its files look like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.files import content_hash

#: Raw values of one modality: picture files, texts, or rows of precomputed features ``(n, d)``.
Items = Sequence[Path] | Sequence[str] | NDArray[np.floating[Any]]


def are_files(items: Items) -> bool:
    """Return whether the raw values of a modality are image files; empty values are not.

    >>> are_files((Path("a.jpg"),)), are_files(("a dog",))
    (True, False)
    """
    return not isinstance(items, np.ndarray) and len(items) > 0 and isinstance(items[0], Path)


@dataclass(frozen=True)
class Records:
    """``n`` samples in columns: who they are, what was seen of each modality, and which labels they carry.

    A row, not an id, is a sample: real collections hold an id twice. ``items`` maps a modality to its ``n`` raw
    values: picture files (``Path``) for ``"image"``, strings for ``"text"``, or a float array ``(n, d)`` for
    precomputed features of either.
    """

    ids: tuple[str, ...]
    items: Mapping[str, Items]
    labels: NDArray[np.bool_]  # (n, c)
    label_names: tuple[str, ...]  # c
    removed: dict[str, int] = field(default_factory=dict)  # what a filter took out: reason -> rows
    problems: tuple[str, ...] = ()  # what is wrong and was left out or repaired, a line each
    found: int | None = None  # rows before any filter; None means "as many as here"
    display: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # with features: texts, image paths

    def __post_init__(self) -> None:
        n = len(self.ids)
        if self.labels.shape != (n, len(self.label_names)):
            raise ValueError(f"labels are {self.labels.shape}, expected ({n}, {len(self.label_names)})")
        for modality, values in (*self.items.items(), *self.display.items()):
            if len(values) != n:
                raise ValueError(f"{len(values)} {modality} values for {n} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> "Records":
        """The records of ``rows``, in that order."""
        index = np.asarray(rows, dtype=np.int64)
        items: dict[str, Items] = {
            modality: values[index] if isinstance(values, np.ndarray) else tuple(values[i] for i in index)
            for modality, values in self.items.items()
        }
        display = {modality: tuple(values[i] for i in index) for modality, values in self.display.items()}
        return replace(
            self, ids=tuple(self.ids[i] for i in index), items=items, labels=self.labels[index], display=display
        )

    def display_values(self, modality: str) -> tuple[str, ...] | None:
        """Return the texts or image paths to display with a search result; None where there are features alone."""
        values = self.items.get(modality)
        if values is None or isinstance(values, np.ndarray):
            return self.display.get(modality)
        return tuple(str(value) for value in values)

    def content_hash(self) -> str:
        """Identifies the collection by its ids and labels (not by where its files lie); 64 hex digits."""
        return content_hash(
            "\n".join(self.ids).encode(), "\n".join(self.label_names).encode(), np.packbits(self.labels).tobytes()
        )


def labels_from_names(
    rows: Sequence[Sequence[str]], label_names: Sequence[str] | None, where: str
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Turn a list of label names per row into a Boolean matrix ``(n, c)`` and its column names.

    ``label_names`` fixes the columns and their order; without it they are all names that occur, sorted. A name that
    is not among the given ones raises `InputError` naming the row (``where`` is the file).
    """
    names = tuple(label_names) if label_names is not None else tuple(sorted({name for row in rows for name in row}))
    column = {name: j for j, name in enumerate(names)}
    labels = np.zeros((len(rows), len(names)), dtype=bool)
    for i, row in enumerate(rows):
        for name in row:
            if name not in column:
                raise InputError(
                    f"{where}: row {i + 1} has the unknown label {name!r}; known labels are {', '.join(names)}"
                )
            labels[i, column[name]] = True
    return labels, names
