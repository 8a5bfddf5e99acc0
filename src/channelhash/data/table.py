"""A person's own table: one row an item, in CSV, TSV, JSONL or Parquet."""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from channelhash.data.images import image_problem
from channelhash.data.records import Records, labels_from_names
from channelhash.data.tabular_files import Row, read_rows
from channelhash.errors import InputError
from channelhash.utils.typed_settings import unknown

#: What a column of one label may hold, in any case.
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")

_PROGRESS_EVERY = 100  # rows; drawing a bar takes longer than reading a row


class _BadRowError(Exception):
    """A row that cannot be used: the reason to count it under, and what is wrong with it."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


def load_table(
    path: Path,
    root: Path | None = None,
    id_column: str = "id",
    image_column: str = "image",
    text_column: str = "text",
    labels_column: str = "labels",
    label_columns: list[str] | None = None,
    label_separator: str = ";",
    label_names: list[str] | None = None,
    verify_images: bool = False,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Records:
    """Read a table with the columns ``id, image, text, labels``.

    A row without labels is kept: it is similar to nothing (`describe` counts such rows).

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        root: folder that picture paths are relative to; the table's own folder if None.
        id_column: name of the column with unique ids.
        image_column: name of the column with picture paths. ``image`` may be absent: a collection of texts.
        text_column: name of the column with texts. ``text`` may be absent: a collection of pictures.
        labels_column: name of the column with all labels of a row, separated by ``label_separator`` (or a list).
        label_columns: several columns of 0 and 1 instead, one a label; an empty list for a table without labels.
        label_separator: between two labels.
        label_names: the labels there are; None takes all that occur.
        verify_images: decode every picture instead of only looking whether it is there and not empty.
        skip_bad: leave bad rows out, count them in ``removed`` and list them in ``problems``.
        progress: called with (rows looked at, rows).

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is bad: the wrong number of cells, not JSON,
            without an id, with an id that another row has, a missing or unreadable picture, an empty text, a value
            that is no text, an unknown label, a label column with something else than 0 or 1.
    """
    _check_label_settings(label_columns, label_separator, label_names)
    label_cells = [labels_column] if label_columns is None else label_columns
    columns, rows = read_rows(path, [id_column, image_column, text_column, *label_cells])
    if not rows:
        raise InputError(f"{path}: the table has no rows")
    if not columns and rows[0].problem:
        raise InputError(f"{path}, {rows[0].place}: {rows[0].problem[1]}; no row can be read")
    modalities = _modalities(path, columns, {"image": image_column, "text": text_column})
    for column in (id_column, *label_cells):
        if column not in columns:
            raise InputError(f"{path}: {_no_column(column, columns)}")

    folder = path.parent if root is None else root
    problems = _near_misses(path, columns, modalities, [id_column, *label_cells])
    removed: dict[str, int] = {}
    places: dict[str, str] = {}  # id -> where its row is
    kept: list[tuple[dict[str, str], list[str]]] = []
    for number, row in enumerate(rows, start=1):
        try:
            values = _values(row, {"id": id_column, **modalities})
            name = values["id"]
            if name in places:
                raise _BadRowError("duplicate id", f"the id {name!r} is already that of {places[name]}")
            if "image" in modalities:
                _check_picture(folder / values["image"], verify_images)
            labels = _labels(row, labels_column, label_columns, label_separator, label_names)
            places[name] = row.place
            kept.append((values, labels))
        except _BadRowError as bad:
            identity = str(row.cells.get(id_column) or "").strip()
            line = f"{path}, {row.place}{f' (id {identity})' if identity else ''}: {bad}"
            if not skip_bad:
                raise InputError(f"{line}; mend the row, or leave such rows out with --skip-bad") from None
            removed[bad.reason] = removed.get(bad.reason, 0) + 1
            problems.append(line)
        if progress and (number % _PROGRESS_EVERY == 0 or number == len(rows)):
            progress(number, len(rows))
    if not kept:
        raise InputError(f"{path}: no usable row is left of {len(rows)}; the first problem is {problems[0]}")

    items: dict[str, Any] = {}
    if "image" in modalities:
        items["image"] = tuple(folder / values["image"] for values, _ in kept)
    if "text" in modalities:
        items["text"] = tuple(values["text"] for values, _ in kept)
    names = label_names if label_names is not None else label_columns
    matrix, label_tuple = labels_from_names([labels for _, labels in kept], names, str(path))
    return Records(
        tuple(values["id"] for values, _ in kept), items, matrix, label_tuple, removed, tuple(problems), found=len(rows)
    )


def has_labels(path: Path, labels_column: str = "labels") -> bool:
    """Whether a table has a column of labels."""
    return labels_column in read_rows(path, [labels_column])[0]


def _check_label_settings(label_columns: list[str] | None, separator: str, label_names: list[str] | None) -> None:
    if not separator:
        raise InputError("label_separator: is empty; give the character between two labels")
    for key, names in (("label_columns", label_columns), ("label_names", label_names)):
        if names and (most := Counter(names).most_common(1)[0])[1] > 1:
            raise InputError(f"{key}: lists {most[0]!r} twice; remove one")


def _modalities(path: Path, columns: Sequence[str], asked: Mapping[str, str]) -> dict[str, str]:
    """Modality -> its column, for those that the table has. Only a column that nobody named may be absent."""
    modalities = {modality: column for modality, column in asked.items() if column in columns}
    for modality, column in asked.items():
        if modality not in modalities and column != modality:
            raise InputError(f"{path}: {_no_column(column, columns)}")
    if not modalities:
        raise InputError(
            f"{path}: has neither a column 'image' nor a column 'text', its columns are {_listed(columns)}; "
            "name yours with image_column or text_column"
        )
    return modalities


def _near_misses(path: Path, columns: Sequence[str], modalities: Mapping[str, str], others: Sequence[str]) -> list[str]:
    """A line for a modality without column where another column's name looks like it."""
    unused = [column for column in columns if column not in (*modalities.values(), *others)]
    return [
        f"{path}: has no column {modality!r}; if that is {near[0]!r}, say {modality}_column={near[0]}"
        for modality in ("image", "text")
        if modality not in modalities and (near := difflib.get_close_matches(modality, unused, n=1, cutoff=0.7))
    ]


def _no_column(column: str, columns: Sequence[str]) -> str:
    near = difflib.get_close_matches(column, columns, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"has no column {column!r}, its columns are {_listed(columns)}{hint}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns)) or "none"


def _values(row: Row, columns: Mapping[str, str]) -> dict[str, str]:
    """The row's id, picture path and text, whichever of them are in ``columns``; none of them blank."""
    if row.problem:
        raise _BadRowError(*row.problem)
    blank = {"id": "no id", "image": "missing picture", "text": "empty text"}
    values = {}
    for role, column in columns.items():
        value = row.cells[column]
        if not isinstance(value, str | int | float | None):
            raise _BadRowError("not a text", f"the column {column!r} holds a {type(value).__name__}, expected a text")
        values[role] = "" if value is None else str(value)
        if not values[role].strip():
            raise _BadRowError(blank[role], "has no id" if role == "id" else f"the column {column!r} is empty")
    return values


def _check_picture(path: Path, decode: bool) -> None:
    problem = image_problem(path, decode)
    if problem:
        raise _BadRowError("unreadable picture" if path.is_file() else "missing picture", problem)


def _labels(
    row: Row, labels_column: str, label_columns: list[str] | None, separator: str, label_names: list[str] | None
) -> list[str]:
    """The row's labels, from one column or from several."""
    if label_columns is not None:
        labels = [column for column in label_columns if _is_set(row, column)]
    else:
        labels = split_labels(row.cells[labels_column], separator)
    for label in labels:
        if label_names is not None and label not in label_names:
            raise _BadRowError("unknown label", unknown(f"label {label!r}", label, label_names))
    return labels


def split_labels(value: Any, separator: str = ";") -> list[str]:
    """The label names in one cell: a list, or a text with separators; None holds none."""
    parts = value if isinstance(value, list) else [] if value is None else str(value).split(separator)
    return [text for part in parts if part is not None and (text := str(part).strip())]


def _is_set(row: Row, column: str) -> bool:
    value = str(row.cells[column]).strip().lower()
    if value not in _YES + _NO:
        raise _BadRowError("label not 0 or 1", f"the label column {column!r} holds {row.cells[column]!r}, not 0 or 1")
    return value in _YES
