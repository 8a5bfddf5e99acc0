"""Tables of one row per item, in CSV, TSV, JSONL or Parquet."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from channelhash.data.images import image_problem, locate_image
from channelhash.data.label_cells import label_doubts, split_labels
from channelhash.data.records import Items, Problems, Records, label_name, labels_from_names
from channelhash.data.tabular_files import Row, read_rows
from channelhash.errors import InputError
from channelhash.utils.plain_values import text_of
from channelhash.utils.progress import Progress
from channelhash.utils.typed_settings import unknown

#: Values of a column of one label, in any case.
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")

_PROGRESS_EVERY = 100  # rows; drawing a bar takes longer than reading a row


class _BadRowError(Exception):
    """A row that cannot be used: the reason that it is counted under, and the problem."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class _LabelFormat(NamedTuple):
    """How the labels of a row are written; arguments of `load_table`."""

    column: str
    columns: list[str] | None
    separator: str
    names: list[str] | None

    @property
    def cells(self) -> list[str]:
        """Columns that hold labels."""
        return [self.column] if self.columns is None else self.columns

    def check(self) -> None:
        """Raise `InputError` for an empty separator or a name that is listed twice."""
        if not self.separator:
            raise InputError("label_separator: is empty; give the character between two labels")
        for key, names in (("label_columns", self.columns), ("label_names", self.names)):
            if names and (most := Counter(map(label_name, names)).most_common(1)[0])[1] > 1:
                raise InputError(f"{key}: lists {most[0]!r} twice; remove one")

    def doubts(self, labels: Sequence[Sequence[str]], path: Path) -> list[str]:
        """Return `label_doubts` of a column of any names."""
        if self.columns is not None or self.names is not None:
            return []
        return label_doubts(labels, self.separator, f"{path}: the column {self.column!r}")

    def read(self, row: Row) -> list[str]:
        """Return the labels of a row, from one column or from several."""
        if self.columns is not None:
            labels = [label_name(column) for column in self.columns if _is_set(row, column)]
        else:
            try:
                labels = split_labels(row.cells[self.column], self.separator)
            except ValueError as error:
                raise _BadRowError("not a text", f"the column {self.column!r} {error}") from None
        for label in labels:
            if self.names is not None and label not in map(label_name, self.names):
                raise _BadRowError("unknown label", unknown(f"label {label!r}", label, self.names))
        return labels


class _RowFormat(NamedTuple):
    """How a row is read: role (``id``, ``image``, ``text``) -> column, labels, folder of the images."""

    columns: dict[str, str]
    labels: _LabelFormat
    folder: Path
    verify_images: bool


def load_table(
    path: Path,
    root: Path | None = None,
    id_column: str = "id",
    image_column: str | None = "image",
    text_column: str | None = "text",
    labels_column: str = "labels",
    label_columns: list[str] | None = None,
    label_separator: str = ";",
    label_names: list[str] | None = None,
    verify_images: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Records:
    """Read a table with the columns ``id, image, text, labels``, or without ``labels``.

    A row without labels is kept: it is similar to itself alone (`describe` counts such rows). Rows with the same image
    file are several texts of one image (`Records.pair_ids`).

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        root: folder that image paths are relative to; the table's own folder if None.
        id_column: column of unique ids.
        image_column: column of image paths; ``image`` may be absent from a collection of texts, and None reads the
            texts of a table whose images are not here.
        text_column: column of texts; ``text`` may be absent from a collection of images, None leaves it out.
        labels_column: column of all labels of a row, separated by ``label_separator`` or a list, also one that Python
            or JSON printed; ``labels`` may be absent from a collection without labels.
        label_columns: instead, one column of 0 and 1 for each label; an empty list for a table without labels.
        label_separator: character between two labels.
        label_names: the allowed labels; None takes all that occur.
        verify_images: decode every image instead of only checking that it is there and not empty.
        skip_bad: leave out bad rows, count them in ``removed`` and list them in ``problems``.
        progress: called with (rows read, rows).

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is bad: wrong number of cells, not JSON, no
            id or a repeated one, missing or unreadable image, empty or no text, label that is unknown or not 0 or 1.
    """
    labels = _LabelFormat(labels_column, label_columns, label_separator.replace("\\t", "\t"), label_names)
    labels.check()
    cells = [id_column, *labels.cells]
    wanted = {name: column for name, column in (("image", image_column), ("text", text_column)) if column is not None}
    columns, rows = _readable_rows(path, [*wanted.values(), *cells])
    modalities = _modalities(path, columns, wanted)
    if labels.cells == ["labels"] and _no_labels(path, columns, [id_column, *modalities.values()]):
        label_columns, cells = [], [id_column]
        labels = labels._replace(columns=[])
    if missing := next((column for column in cells if column not in columns), None):
        raise InputError(f"{path}: {_no_column(missing, columns)}")
    row_format = _RowFormat({"id": id_column, **modalities}, labels, root or path.parent, verify_images)
    problems = Problems(skip_bad, _near_misses(path, columns, wanted, cells))
    samples = _usable_samples(path, rows, row_format, problems, progress)
    if not samples:
        raise InputError(f"{path}: no usable row is left of {len(rows)}; the first problem is {problems.lines[0]}")
    values, names_of_rows = zip(*samples, strict=True)
    ids, items = _ids_and_items(values, modalities, row_format.folder)
    matrix, names = labels_from_names(names_of_rows, label_columns if label_names is None else label_names, str(path))
    problems.lines += labels.doubts(names_of_rows, path)
    return Records(ids, items, matrix, names, problems.removed, tuple(problems.lines), found=len(rows))


def _readable_rows(path: Path, wanted: list[str]) -> tuple[list[str], list[Row]]:
    """Return columns and rows of a table that has at least one."""
    columns, rows = read_rows(path, wanted)
    if not rows:
        raise InputError(f"{path}: the table has no rows")
    if not columns and rows[0].problem:
        raise InputError(f"{path}, {rows[0].place}: {rows[0].problem[1]}; no row can be read")
    return columns, rows


def _ids_and_items(
    rows: Sequence[Mapping[str, str]], modalities: Iterable[str], folder: Path
) -> tuple[tuple[str, ...], dict[str, Items]]:
    """Return ids, and modality -> texts, or paths of images below ``folder``."""
    items: dict[str, Items] = {modality: tuple(row[modality] for row in rows) for modality in modalities}
    if "image" in items:
        items["image"] = tuple(locate_image(folder, row["image"]) for row in rows)
    return tuple(row["id"] for row in rows), items


def _usable_samples(
    path: Path, rows: Sequence[Row], row_format: _RowFormat, problems: Problems, progress: Progress | None
) -> list[tuple[dict[str, str], list[str]]]:
    """Return (id, image path and text by role; labels) of every usable row, and add the others to ``problems``."""
    places: dict[str, str] = {}  # id -> where its row is
    samples = []
    for number, row in enumerate(rows, start=1):
        try:
            values = _values(row, row_format.columns)
            if place := places.get(values["id"]):
                raise _BadRowError("duplicate id", f"the id {values['id']!r} is already that of {place}")
            if "image" in values:
                _check_image(locate_image(row_format.folder, values["image"]), row_format.verify_images)
            samples.append((values, row_format.labels.read(row)))
            places[values["id"]] = row.place
        except _BadRowError as bad:
            identity = str(row.cells.get(row_format.columns["id"]) or "").encode(errors="replace").decode().strip()
            line = f"{path}, {row.place}{f' (id {identity})' if identity else ''}: {bad}"
            problems.add(line, "mend the row, or leave such rows out with --skip-bad", bad.reason)
        if progress and (number % _PROGRESS_EVERY == 0 or number == len(rows)):
            progress(number, len(rows))
    return samples


def has_labels(path: Path, labels_column: str = "labels") -> bool:
    """Return whether a table has a column of labels.

    Raises:
        InputError: the file is not a readable table.
    """
    return labels_column in read_rows(path, [labels_column])[0]


def _modalities(path: Path, columns: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return modality -> column for those that the table has. Only a column with its default name may be absent."""
    modalities = {modality: column for modality, column in settings.items() if column in columns}
    for modality, column in settings.items():
        if modality not in modalities and column != modality:
            raise InputError(f"{path}: {_no_column(column, columns)}")
    if not modalities:
        raise InputError(
            f"{path}: has neither a column 'image' nor a column 'text', its columns are {_listed(columns)}; "
            "name yours with image_column or text_column"
        )
    return modalities


def _no_labels(path: Path, columns: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether a table has no column ``labels``; an error where another column's name resembles it."""
    unused = [column for column in columns if column not in others]
    if "labels" not in columns and (near := _nearest("labels", [column.lower() for column in unused], 0.7)):
        column = next(column for column in unused if column.lower() == near)
        raise InputError(
            f"{path}: has no column 'labels'; if that is {column!r}, say labels_column={column}; label_columns=[] "
            "reads the table without labels"
        )
    return "labels" not in columns


def _nearest(name: str, names: Sequence[str], cutoff: float) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def _near_misses(path: Path, columns: Sequence[str], wanted: Mapping[str, str], others: Sequence[str]) -> list[str]:
    """Return a line for each wanted modality without a column where the name of another column resembles it."""
    unused = [column for column in columns if column not in (*wanted.values(), *others)]
    return [
        f"{path}: has no column {modality!r}; if that is {near!r}, say {modality}_column={near}"
        for modality, column in wanted.items()
        if column not in columns and (near := _nearest(modality, unused, 0.7))
    ]


def _no_column(column: str, columns: Sequence[str]) -> str:
    near = _nearest(column, columns, 0.5)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"has no column {column!r}, its columns are {_listed(columns)}{hint}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns)) or "none"


def _values(row: Row, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the row's id, image path and text, as far as in ``columns``; none of them is blank."""
    if row.problem:
        raise _BadRowError(*row.problem)
    blank = {"id": "no id", "image": "missing picture", "text": "empty text"}
    values = {}
    for role, column in columns.items():
        try:
            value = image_of(row.cells[column]) if role == "image" else text_of(row.cells[column])
        except ValueError as error:
            raise _BadRowError("not a text", f"the column {column!r} {error}") from None
        if isinstance(value, bytes):
            remedy = "expected a path; `channelhash encode` reads such a file into a folder of codes"
            raise _BadRowError("not a text", f"the column {column!r} holds the picture itself, {remedy}")
        values[role] = value
        if not values[role].strip():
            raise _BadRowError(blank[role], "has no id" if role == "id" else f"the column {column!r} is empty")
    return values


def _check_image(path: Path, decode: bool) -> None:
    problem = image_problem(path, decode)
    if problem:
        raise _BadRowError("unreadable picture" if path.is_file() else "missing picture", problem)


def image_of(value: Any) -> bytes | str:
    """Return the path, or the bytes, of the image that a cell of a table holds; empty if it holds none.

    Files of Hugging Face's datasets hold structs of both. Older programs write paths as bytes: no image file is all
    printable text.

    >>> image_of({"bytes": None, "path": "a.png"}), image_of(b"a.png"), image_of(b"\\x89PNG")
    ('a.png', 'a.png', b'\\x89PNG')

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, dict) and value.keys() & {"bytes", "path"}:
        value = value.get("bytes") or value.get("path")
    if not isinstance(value, bytes):
        return text_of(value)
    try:
        path = value.decode()
    except UnicodeDecodeError:
        return value
    return path if path.isprintable() else value


def _is_set(row: Row, column: str) -> bool:
    cell = row.cells[column]
    value = str(cell).strip().lower()
    if cell is not None and value not in _YES + _NO:
        raise _BadRowError("label not 0 or 1", f"the label column {column!r} holds {cell!r}, not 0 or 1")
    return value in _YES
