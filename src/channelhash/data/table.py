"""Tables of one row per item, in CSV, TSV, JSONL or Parquet."""

import csv
import difflib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from channelhash.data.cells import image_of, join_captions, label_doubts, split_labels, text_of
from channelhash.data.images import image_problem, locate_image
from channelhash.data.records import (
    DataItem,
    NameList,
    Problems,
    Records,
    label_name,
    records_from_rows,
)
from channelhash.errors import InputError, argument
from channelhash.utils.array_files import check_columns, open_parquet
from channelhash.utils.decode import json_lines, read_text, reading

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
#: What a column holds -> names that say so, in any case.
USUAL_NAMES = {
    "id": ("id",),
    "image": (
        "image",
        "file",
        "file_name",
        "filename",
        "image_name",
        "image_path",
        "path",
        "filepath",
    ),
    "text": (
        "text",
        "caption",
        "captions",
        "description",
        "comment",
        "sentence",
        "sentences",
    ),
    "labels": ("labels", "label", "tags", "tag", "categories", "category", "classes", "class"),
}
#: What a label column may hold for a row that has the label, in any case.
_YES = ("1", "1.0", "true")
#: The same for a row without it.
_NO = ("0", "0.0", "false")


class _BadRowError(Exception):
    """A row that cannot be used.

    Attributes:
        reason: what it is counted under.
        problem: what is wrong with it.
    """

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason
        self.problem = problem


class TableRow(NamedTuple):
    """A row of a table.

    Attributes:
        place: place for messages: ``"line 3"`` (where the row begins) or ``"row 3"``, counted from
            1.
        cells: values by column, as `plain_values` returns them; None where JSON or Parquet has
            none, or NaN.
        problem: what is wrong with a row that cannot be parsed.

    >>> TableRow("line 3", {"id": "a", "text": "a dog"}).cells["text"]
    'a dog'
    """

    place: str
    cells: dict[str, Any]
    problem: _BadRowError | None = None


class RawTable(NamedTuple):
    """A table as it stands in its file."""

    columns: list[str]
    rows: list[TableRow]


@dataclass(frozen=True)
class _Columns:
    """The columns of a table to read.

    Attributes:
        id: column of the ids.
        modalities: modality -> its column.
        labels: column of all labels of a row; None without one.
        flags: instead, columns of 0 and 1, one for each label.
    """

    id: str
    modalities: dict[str, str]
    labels: str | None
    flags: Sequence[str]

    @property
    def of_labels(self) -> list[str]:
        return [*self.flags] if self.labels is None else [self.labels]

    @property
    def names(self) -> list[str]:
        return [*self.modalities.values(), self.id, *self.of_labels]


def load_table(
    path: Path,
    root: Path | None = None,
    id_column: str = "id",
    image_column: str | None = "image",
    text_column: str | None = "text",
    labels_column: str = "labels",
    label_columns: NameList | None = None,
    label_separator: str = ";",
    skip_bad: bool = False,
) -> Records:
    """Read a table with the columns ``id, image, text, labels``, or without ``labels``.

    A column may have another of its usual names, such as ``Caption`` or ``Tags``, where there is
    one such column only. Cells are separated by commas, tabs or semicolons, as the header is.

    A row without labels is kept: it is similar to itself alone (`describe` counts such rows). Rows
    with the same image file are several texts of one image (`Records.pair_ids`).

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        root: folder that image paths are relative to; the table's own folder if None.
        id_column: column of unique ids.
        image_column: column of image paths; ``image`` may be absent from a collection of texts, and
            None reads the texts of a table whose images are not here.
        text_column: column of texts; a list of texts, also in print, is one text with a line for
            each. ``text`` may be absent from a collection of images, and None leaves it out.
        labels_column: column of all labels of a row, separated by ``label_separator`` or a list,
            also a printed one; ``labels`` may be absent from a collection without labels.
        label_columns: instead, one column of 0 and 1 for each label; an empty list for a table
            without labels.
        label_separator: character between two labels.
        skip_bad: leave out bad rows, count them in ``removed`` and list them in ``problems``.

    Raises:
        InputError: the file cannot be read, a column is missing or may be one of several, or a row
            is bad: wrong number of cells, not JSON, no id or a repeated one, missing or empty
            image, empty or no text, label that is not 0 or 1.
    """
    _check_label_settings(label_columns, label_separator)
    wanted = {"image": image_column, "text": text_column}
    modalities = {name: column for name, column in wanted.items() if column is not None}
    labels = labels_column if label_columns is None else None
    columns = _Columns(id_column, modalities, labels, label_columns or ())
    usual = chain.from_iterable(USUAL_NAMES.values())
    table = read_rows(path, [*columns.names, *usual])
    _check_not_empty(path, table)
    columns = _present_columns(path, columns, table.columns)
    separator = label_separator.replace("\\t", "\t")
    reader = _RowReader(columns, root or path.parent, separator)
    problems = Problems(skip_bad)
    items = list(reader.usable(path, table.rows, problems))
    if columns.labels is None:
        return records_from_rows(items, columns.flags, str(path), problems, len(table.rows))
    names = [item.labels for item in items]
    problems.lines += label_doubts(names, separator, f"{path}: the column {columns.labels!r}")
    return records_from_rows(items, None, str(path), problems, len(table.rows))


def _check_label_settings(label_columns: NameList | None, separator: str) -> None:
    if not separator:
        raise InputError("label_separator: is empty; give the character between two labels")
    for name, count in Counter(map(label_name, label_columns or ())).most_common(1):
        if count > 1:
            raise InputError(f"label_columns: lists {name!r} twice; remove one")


def _check_not_empty(path: Path, table: RawTable) -> None:
    if not table.rows:
        raise InputError(f"{path}: the table has no rows")
    first = table.rows[0]
    if first.problem and not table.columns:
        raise InputError(f"{path}, {first.place}: {first.problem}; no row can be read")


def usual_columns(role: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that say in their name that they hold ids, images, texts or labels: the
    one of that name, or else all of `USUAL_NAMES`.

    >>> usual_columns("text", ["ID", "Caption", "Comment"]), usual_columns("id", ["ID", "Caption"])
    (['Caption', 'Comment'], ['ID'])
    """
    plain = {column: column.strip().lower() for column in columns}
    found: list[str] = []
    for names in ((role,), USUAL_NAMES[role]):
        found = found or [column for column, name in plain.items() if name in names]
    return [role] if role in columns else found


def _present_columns(path: Path, wanted: _Columns, columns: Sequence[str]) -> _Columns:
    """Return the wanted columns as the table has them.

    Only ``image``, ``text`` and ``labels`` may be absent.
    """
    modalities = {}
    for role, name in wanted.modalities.items():
        found = _find_column(path, role, name, columns)
        if found is not None:
            modalities[role] = found
    if not modalities:
        raise InputError(
            f"{path}: has no column 'image' or 'text', but {_listed(columns)}; set image_column or "
            "text_column"
        )
    labels = wanted.labels and _find_column(path, "labels", wanted.labels, columns)
    for column in wanted.flags:
        if column not in columns:
            raise _missing(path, "label_columns", column, columns)
    ids = _find_column(path, "id", wanted.id, columns)
    return _Columns(ids or "id", modalities, labels, wanted.flags)


def _find_column(path: Path, role: str, name: str, columns: Sequence[str]) -> str | None:
    """Return the column ``name``, or if that is the role's own, the one that the table has in its
    place; None without any.
    """
    if name in columns:
        return name
    found = usual_columns(role, columns) if name == role else []
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"{path}: has no column {role!r}, but {' and '.join(map(repr, found))}; name one with "
            f"{argument('overrides')} data.{role}_column={found[0]}"
        )
    if name == role == "labels":
        _check_spelling(path, columns)
    if name != role or role == "id":
        raise _missing(path, f"{role}_column", name, columns)
    return None


def _missing(path: Path, key: str, name: str, columns: Sequence[str]) -> InputError:
    return InputError(
        f"{path}: has no column {name!r}, its columns are {_listed(columns)}; name one with "
        f"{argument('overrides')} data.{key}=…"
    )


def _check_spelling(path: Path, columns: Sequence[str]) -> None:
    """Raise `InputError` if a column is probably meant to be ``labels``."""
    lower = [column.lower() for column in columns]
    for near in difflib.get_close_matches("labels", lower, n=1, cutoff=0.7):
        raise InputError(
            f"{path}: has no column 'labels', but {near!r}; name it in labels_column, or say "
            "label_columns=[]"
        )


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns)) or "none"


class _CellKind(NamedTuple):
    """How a cell with one value is read."""

    read: Callable[[Any], str]
    #: What a row with an empty cell is counted under.
    empty: str


def _image_path(cell: Any) -> str:
    image = image_of(cell)
    if isinstance(image, bytes):
        raise ValueError(
            "holds the picture itself, expected a path; `channelhash encode` reads such a file "
            "into a folder of codes"
        )
    return image


_CELL_KINDS = {
    "id": _CellKind(text_of, "no id"),
    "image": _CellKind(_image_path, "missing picture"),
    "text": _CellKind(join_captions, "empty text"),
}


class _RowReader:
    """Reads the items of a table from its rows.

    Args:
        columns: the columns that the table has.
        root: folder that image paths are relative to.
        separator: character between two labels.
    """

    def __init__(self, columns: _Columns, root: Path, separator: str) -> None:
        self._columns = columns
        self._values = {"id": columns.id, **columns.modalities}
        self._flags = {column: label_name(column) for column in columns.flags}
        self._root = root
        self._split = partial(split_labels, separator=separator)
        #: id -> where its row is.
        self._places: dict[str, str] = {}

    def usable(
        self, path: Path, rows: Sequence[TableRow], problems: Problems
    ) -> Iterator[DataItem]:
        """Yield the items of the usable rows and list the other rows as problems."""
        for row in rows:
            try:
                yield self._item(row)
            except _BadRowError as bad:
                cell = row.cells.get(self._columns.id) or ""
                name = str(cell).encode(errors="replace").decode().strip()
                place = f"{path}, {row.place}{f' (id {name})' if name else ''}"
                remedy = f"mend the row, or leave such rows out with {argument('skip_bad')}"
                problems.add(f"{place}: {bad.problem}", remedy, bad.reason)

    def _item(self, row: TableRow) -> DataItem:
        if row.problem:
            raise row.problem
        values: dict[str, Any] = {
            role: _read_value(row, role, column) for role, column in self._values.items()
        }
        labels = []
        if self._columns.labels is not None:
            labels = _read_cell(row, self._columns.labels, self._split)
        name = values.pop("id")
        if name in self._places:
            problem = f"the id {name!r} is already that of {self._places[name]}"
            raise _BadRowError("duplicate id", problem)
        if "image" in values:
            values["image"] = _image_file(self._root, values["image"])
        labels += [label for column, label in self._flags.items() if _has_label(row, column)]
        self._places[name] = row.place
        return DataItem(name, values, labels)


def _read_cell(row: TableRow, column: str, read: Callable[[Any], Any]) -> Any:
    try:
        return read(row.cells[column])
    except ValueError as error:
        raise _BadRowError("not a text", f"the column {column!r} {error}") from None


def _read_value(row: TableRow, role: str, column: str) -> str:
    """Return the row's id, image path or text, which must not be empty."""
    kind = _CELL_KINDS[role]
    value: str = _read_cell(row, column, kind.read)
    if not value.strip():
        problem = "has no id" if role == "id" else f"the column {column!r} is empty"
        raise _BadRowError(kind.empty, problem)
    return value


def _image_file(root: Path, name: str) -> Path:
    image = locate_image(root, name)
    problem = image_problem(image, full=False)
    if problem:
        reason = "unreadable picture" if image.is_file() else "missing picture"
        raise _BadRowError(reason, problem)
    return image


def _has_label(row: TableRow, column: str) -> bool:
    cell = row.cells[column]
    value = str(cell).strip().lower()
    if cell is not None and value not in _YES + _NO:
        problem = f"the label column {column!r} holds {cell!r}, not 0 or 1"
        raise _BadRowError("label not 0 or 1", problem)
    return value in _YES


def read_rows(path: Path, needed: Sequence[str]) -> RawTable:
    """Read the rows of a table; of a Parquet file, the ``needed`` columns alone."""
    ending = path.suffix.lower()
    if ending not in TABLE_ENDINGS:
        raise InputError(
            f"{path}: a table ends in {', '.join(TABLE_ENDINGS)}; rename it if its cells are "
            "separated by commas or tabs, or it has one JSON object a line"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a table")
    if not path.is_file():
        raise InputError(f"{path}: no such table")
    if ending == ".parquet":
        return _read_parquet(path, needed)
    if ending == ".jsonl":
        return _read_jsonl(path)
    return _read_csv(path, "\t,;" if ending == ".tsv" else ",;\t")


def _read_csv(path: Path, signs: str) -> RawTable:
    text = read_text(path)
    lines = csv_rows(path, text, separator_of(text, signs))
    _, columns = next(lines, (1, []))
    check_columns(path, columns)
    rows = []
    for line, cells in lines:
        if cells and len(cells) != len(columns):
            problem = f"has {len(cells)} cells, but the header has {len(columns)}"
            rows.append(
                TableRow(f"line {line}", {}, _BadRowError("wrong number of cells", problem))
            )
        elif cells:  # an empty line is no row
            rows.append(TableRow(f"line {line}", dict(zip(columns, cells, strict=True))))
    return RawTable(columns, rows)


def separator_of(text: str, signs: str) -> str:
    """Return the sign between the cells of a table: most frequent in its header, of equals the
    first.

    >>> separator_of("id;image\\n1;a,b,c.jpg", ",;")
    ';'
    """
    header = text.lstrip("\r\n").partition("\n")[0]
    return max(signs, key=header.count)


def csv_rows(
    path: Path, text: str, delimiter: str, quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the line where it begins, cells) of each row of a text.

    Errors name ``path``. Quotation marks are part of cells unless these may be ``quoted``; then a
    blank behind each delimiter of the header is part of no cell.

    >>> list(csv_rows(Path("t.csv"), 'id,text\\n1,"two\\nlines"\\n2,b', ","))
    [(1, ['id', 'text']), (2, ['1', 'two\\nlines']), (4, ['2', 'b'])]
    """
    # characters of a cell, the most that it can be set to on every system
    csv.field_size_limit(2**31 - 1)
    # Strict: a quotation mark out of place must not swallow the rows that follow it.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    lines = io.StringIO(text, newline="")
    header = text.partition("\n")[0]
    has_blanks = quoted and 0 < header.count(delimiter) == header.count(f"{delimiter} ")
    reader = csv.reader(
        lines, delimiter=delimiter, quoting=quoting, strict=True, skipinitialspace=has_blanks
    )
    began = 1
    try:
        for cells in reader:
            yield began, cells
            began = reader.line_num + 1
    except csv.Error as error:
        problem = f"a quotation mark is not closed or not doubled ({error})"
        raise InputError(f"{path}, line {began}: {problem}; mend it") from None


def _read_jsonl(path: Path) -> RawTable:
    rows = []
    for place, row in json_lines(path):
        rows.append(
            TableRow(place, {}, _BadRowError("not JSON", row))
            if isinstance(row, str)
            else TableRow(place, row)
        )
    empty: dict[str, Any] = {}
    for table_row in rows:
        empty |= dict.fromkeys(table_row.cells)
    return RawTable(list(empty), [row._replace(cells=empty | row.cells) for row in rows])


def _read_parquet(path: Path, needed: Sequence[str]) -> RawTable:
    with (
        reading(path, "not a readable Parquet file, perhaps truncated"),
        open_parquet(path) as file,
    ):
        from channelhash.utils.plain_values import plain_values

        columns = list(file.schema_arrow.names)
        names = [column for column in columns if {column, column.strip().lower()} & {*needed}]
        table = file.read(columns=names)
        values = [plain_values(table.column(name)) for name in names]
        cells = zip(*values, strict=True) if names else [()] * table.num_rows
        rows = [
            TableRow(f"row {number}", dict(zip(names, row, strict=True)))
            for number, row in enumerate(cells, start=1)
        ]
        return RawTable(columns, rows)
