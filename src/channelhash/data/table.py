"""Tables of one row per item, in CSV, TSV, JSONL or Parquet, and their cells that hold the labels
of a row.
"""

import ast
import csv
import difflib
import io
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from channelhash.data.images import image_problem, locate_image
from channelhash.data.records import Names, Problems, Records, label_name, records_from_rows
from channelhash.errors import InputError
from channelhash.utils.decode import one_line, read_text, reading
from channelhash.utils.optional_imports import naming_extra

_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
#: Elements of a printed list: texts in quotes, numbers, and missing values of Python, NumPy, pandas
#: and JSON.
_ELEMENT = (
    rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*"|[-+]?\d[\d.]*|None|null|nan|NaN|<NA>"""
)
_LIST = re.compile(rf"[\[({{]\s*(?:(?:{_ELEMENT})(?:\s*,\s*|\s+|(?=[\])}}])))*[\])}}]")
_NUMPY_TEXT = re.compile(rf"\bnp\.str_\(({_ELEMENT})\)")
_NUMPY_ARRAY = re.compile(r"array\((\[.*\])(?:,\s*dtype=[^()]*)?\)", re.DOTALL)
_MISSING = {"none", "null", "nan", "na", "n/a", "<na>", "nat"}
#: What may stand between two labels; a blank last, as it may also follow another sign.
_SEPARATORS = (",", ";", "|", "#", "\t", "\n", "、", "，", "；", " ")
_BIT = r"[01](?:\.0*)?"
_MULTI_HOT = re.compile(rf"[\[(]?\s*{_BIT}(?:[\s,;|]*{_BIT})+\s*[\])]?")


def text_of(value: Any) -> str:
    """Return a plain value as text, as JSON writes it; a missing value as the empty text.

    >>> text_of("a dog"), text_of(1.0), text_of(True), text_of(None)
    ('a dog', '1', 'true', '')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) else str(value)
    if not isinstance(value, str):
        names = {"dict": "an object", "bytes": "bytes"}
        raise ValueError(
            f"holds {names.get(type(value).__name__, f'a {type(value).__name__}')}, expected a text"
        )
    if "\0" in value:
        raise ValueError("holds a NUL; take it out")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("is not UTF-8 text")
    return value.lstrip("\ufeff")  # a mark of the file that it was copied from


def captions_of(value: object) -> list[str]:
    """Return the captions in a cell: a text, a list of texts, or a list in print.

    A text that merely begins with a bracket is one caption.

    >>> captions_of("['a dog', 'it runs']"), captions_of("[laughing] a man")
    (['a dog', 'it runs'], ['[laughing] a man'])
    """
    if isinstance(value, list):
        return [text_of(part) for part in value]
    text = text_of(value)
    parts = _printed_list(text)
    if parts is None or text.lstrip().startswith("{"):
        return [text]
    are_numbers = not re.search("['\"]", text) and any(parts)
    in_parentheses = text.lstrip().startswith("(") and len(parts) == 1
    return [text] if are_numbers or in_parentheses else [text_of(part) for part in parts]


def join_captions(value: object) -> str:
    """Return the captions in a cell as one text, a line each.

    >>> join_captions('["a dog", "it runs"]')
    'a dog\\nit runs'
    """
    return "\n".join(text for text in captions_of(value) if text.strip())


def split_labels(value: object, separator: str = ";") -> list[str]:
    """Return the label names in a cell: a list, a list in print, a text with separators, or the
    number of a class.

    >>> split_labels("dog; sea"), split_labels(["dog", None]), split_labels("['dog', 'sea']"), split_labels(1.0)
    (['dog', 'sea'], ['dog'], ['dog', 'sea'], ['1'])
    """
    if isinstance(value, list):
        parts: Iterable[str | None] = map(text_of, value)
    else:
        text = text_of(value)
        parts = _printed_list(text) or text.split(separator)
    return [name for part in parts if part is not None and (name := label_name(part))]


def _printed_list(text: str) -> list[str | None] | None:
    """Return the elements of a list in the notation of Python, NumPy or JSON, [None] if empty; None
    for other texts.
    """
    text = _NUMPY_TEXT.sub(r"\1", text.strip())
    if array := _NUMPY_ARRAY.fullmatch(text):
        text = array[1]
    if not _LIST.fullmatch(text):
        return None
    try:
        values = list(json.loads(text))
    except ValueError:  # a tuple, a set, single quotes, or NumPy's blanks
        values = [
            ast.literal_eval(each) if each[0] in "'\"" else each
            for each in re.findall(_ELEMENT, text)
        ]
    names = [None if str(value).lower() in _MISSING else str(value) for value in values]
    # half a character, in no file
    if any("\ud800" <= sign <= "\udfff" for name in names for sign in name or ""):
        return None
    return names or [None]


def _label_doubts(rows: Sequence[Sequence[str]], separator: str, column: str) -> list[str]:
    """Return a line for each sign that a column of labels is in a notation that was not read.

    >>> _label_doubts([["dog, cat"], ["cat"], ["dog"]], ";", "items.csv: the column 'labels'")
    ["items.csv: the column 'labels' holds 'dog, cat': are these several labels? If so, set label_separator=','"]
    """
    names = Counter(name for row in rows for name in row)
    lines = [
        (
            f"{column} holds {name!r}, which is taken for a label; if it is a missing value, leave "
            "these cells empty"
        )
        for name in sorted(names)
        if name.lower() in _MISSING
    ]
    if example := _multi_hot(rows, names):
        remedy = "give each label a column of its own, named in label_columns"
        lines.append(
            f"{column} holds {example!r}, which looks like a vector with a 0 or 1 for each label; "
            f"{remedy}"
        )
    elif example := next(
        (name for name in names if re.fullmatch(r"\[.*\]|\{.*\}|\(.*\)", name, re.DOTALL)), ""
    ):
        lines.append(
            f"{column} holds {example!r}; if this is a list, write its labels in quotes, as "
            "['dog', 'cat']"
        )
    elif sign := next(
        (sign for sign in _SEPARATORS if sign != separator and _separates(sign, names)), ""
    ):
        example = max(names, key=lambda name: name.count(sign))
        setting = repr(sign).replace("'", '"') if sign in "\t\n" else repr(sign)  # as YAML reads it
        lines.append(
            f"{column} holds {example!r}: are these several labels? If so, set "
            f"label_separator={setting}"
        )
    return lines


def _multi_hot(rows: Sequence[Sequence[str]], names: Collection[str]) -> str:
    """Return a cell if the cells look like vectors of 0 and 1 of one length, else an empty text."""
    # split, or a list; numbers of classes do not repeat
    if names and all(re.fullmatch(_BIT, name) for name in names):
        return next((" ".join(row) for row in rows if len(row) > len(set(row))), "")
    lengths = {len(re.findall(_BIT, name)) for name in names}
    if len(lengths) != 1 or not all(_MULTI_HOT.fullmatch(name) for name in names):
        return ""
    # Numbers of classes may happen to have these digits only, but they do not begin with 0.
    return next(
        (name for name in names if not name.isdigit() or name[0] == "0" or len(name) > 3), ""
    )


def _separates(sign: str, names: Collection[str]) -> bool:
    """Return whether names look like lists with ``sign`` between labels: few pieces recur in many
    combinations.

    Names such as "new york, ny" or "stop sign" have more pieces than there are names; and in names
    with fixed places ("smith, anna"; "paris" and "paris, texas") no piece is now first and now
    second.
    """
    parts = [[piece.strip() for piece in name.split(sign)] for name in names]
    if sign != " " and 2 * sum(not (pieces[0] and pieces[-1]) for pieces in parts) > len(names):
        return True  # a sign at the end of most cells
    places = defaultdict[str, set[int]](set)
    for pieces in parts:
        for place, piece in enumerate(pieces):
            places[piece].add(place)
    recurring = len(places) < len(names) or 2 * len(places) <= sum(map(len, parts))
    return recurring and (
        any(len(marks) > 1 for marks in places.values()) or len(set(map(len, parts))) > 2
    )


TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")

#: Values of a column of one label, in any case.
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        place: place for messages: ``"line 3"`` (where the row begins) or ``"row 3"``, counted from
            1.
        cells: values by column, as `plain_values` returns them; None where JSON or Parquet has
            none, or NaN.
        problem: (reason to count, what is wrong) of a row that cannot be parsed.

    >>> Row("line 3", {"id": "a", "text": "a dog"}).cells["text"]
    'a dog'
    """

    place: str
    cells: dict[str, Any]
    problem: tuple[str, str] | None = None


class _BadRowError(Exception):
    """A row that cannot be used: the reason that it is counted under, and the problem."""


def load_table(
    path: Path,
    root: Path | None = None,
    id_column: str = "id",
    image_column: str | None = "image",
    text_column: str | None = "text",
    labels_column: str = "labels",
    label_columns: Names | None = None,
    label_separator: str = ";",
    skip_bad: bool = False,
) -> Records:
    """Read a table with the columns ``id, image, text, labels``, or without ``labels``.

    A row without labels is kept: it is similar to itself alone (`describe` counts such rows). Rows
    with the same image file are several texts of one image (`Records.pair_ids`).

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        root: folder that image paths are relative to; the table's own folder if None.
        id_column: column of unique ids.
        image_column: column of image paths; ``image`` may be absent from a collection of texts, and
            None reads the texts of a table whose images are not here.
        text_column: column of texts; a list of texts, also in print, is one text with a line for
            each. ``text`` may be absent from a collection of images, None
            leaves it out.
        labels_column: column of all labels of a row, separated by ``label_separator`` or a list,
            also one that Python or JSON printed; ``labels`` may be absent from a collection without
            labels.
        label_columns: instead, one column of 0 and 1 for each label; an empty list for a table
            without labels.
        label_separator: character between two labels.
        skip_bad: leave out bad rows, count them in ``removed`` and list them in ``problems``.

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is bad: wrong number of
            cells, not JSON, no id or a repeated one, missing or empty image, empty or no text,
            label that is not 0 or 1.
    """
    if not label_separator:
        raise InputError("label_separator: is empty; give the character between two labels")
    if label_columns and (most := Counter(map(label_name, label_columns)).most_common(1)[0])[1] > 1:
        raise InputError(f"label_columns: lists {most[0]!r} twice; remove one")
    chosen = {
        name: column
        for name, column in (("image", image_column), ("text", text_column))
        if column is not None
    }
    label_cells = [labels_column] if label_columns is None else label_columns
    columns, rows = read_rows(path, [*chosen.values(), id_column, *label_cells])
    listed = ", ".join(map(repr, columns)) or "none"
    if not rows:
        raise InputError(f"{path}: the table has no rows")
    if not columns and rows[0].problem:
        raise InputError(f"{path}, {rows[0].place}: {rows[0].problem[1]}; no row can be read")
    modalities = {modality: column for modality, column in chosen.items() if column in columns}
    if label_cells == ["labels"] and "labels" not in columns:
        label_columns, label_cells = [], []
        unused = (
            column.lower() for column in columns if column not in (id_column, *modalities.values())
        )
        for near in difflib.get_close_matches("labels", unused, n=1, cutoff=0.7):
            remedy = "name it in labels_column, or say label_columns=[]"
            raise InputError(f"{path}: has no column 'labels', but {near!r}; {remedy}")
    for column in (*chosen.values(), id_column, *label_cells):
        # only `image` and `text` may be absent
        if column not in columns and chosen.get(column) != column:
            raise InputError(f"{path}: has no column {column!r}, its columns are {listed}")
    if not modalities:
        raise InputError(
            f"{path}: has no column 'image' or 'text', but {listed}; set image_column or "
            "text_column"
        )
    separator = label_separator.replace("\\t", "\t")
    problems = Problems(skip_bad)
    roles = {"id": id_column, **modalities} | (
        {"labels": labels_column} if label_columns is None else {}
    )
    # id, values by modality, names of labels
    usable: list[tuple[str, dict[str, Any], list[str]]] = []
    places: dict[str, str] = {}  # id -> where its row is
    for row in rows:
        try:
            values = _values(row, roles, separator)
            name = values.pop("id")
            if place := places.get(name):
                raise _BadRowError("duplicate id", f"the id {name!r} is already that of {place}")
            if "image" in values:
                values["image"] = image = locate_image(root or path.parent, values["image"])
                if problem := image_problem(image, full=False):
                    raise _BadRowError(
                        "unreadable picture" if image.is_file() else "missing picture", problem
                    )
            named = [label_name(column) for column in label_columns or () if _is_set(row, column)]
            labels = values.pop("labels", named)
            usable.append((name, values, labels))
            places[name] = row.place
        except _BadRowError as bad:
            reason, problem = bad.args
            identity = str(row.cells.get(id_column) or "").encode(errors="replace").decode().strip()
            line = f"{path}, {row.place}{f' (id {identity})' if identity else ''}: {problem}"
            problems.add(line, "mend the row, or leave such rows out with --skip-bad", reason)
    if label_columns is None:
        cells = [labels for *_, labels in usable]
        problems.lines += _label_doubts(cells, separator, f"{path}: the column {labels_column!r}")
    return records_from_rows(usable, label_columns, str(path), problems, len(rows))


def _values(row: Row, columns: Mapping[str, str], separator: str) -> dict[str, Any]:
    """Return the row's id, image path, text and labels, as far as in ``columns``; only labels may
    be missing.
    """
    if row.problem:
        raise _BadRowError(*row.problem)
    readers: dict[str, Callable[[Any], Any]] = {
        "id": text_of,
        "image": image_of,
        "text": join_captions,
    }
    readers["labels"] = lambda cell: split_labels(cell, separator)
    values = {}
    for role, column in columns.items():
        try:
            values[role] = value = readers[role](row.cells[column])
        except ValueError as error:
            raise _BadRowError("not a text", f"the column {column!r} {error}") from None
        if isinstance(value, bytes):
            remedy = (
                "expected a path; `channelhash encode` reads such a file into a folder of codes"
            )
            raise _BadRowError(
                "not a text", f"the column {column!r} holds the picture itself, {remedy}"
            )
        if role != "labels" and not value.strip():
            reason = {"id": "no id", "image": "missing picture", "text": "empty text"}[role]
            raise _BadRowError(
                reason, "has no id" if role == "id" else f"the column {column!r} is empty"
            )
    return values


def _is_set(row: Row, column: str) -> bool:
    cell = row.cells[column]
    value = str(cell).strip().lower()
    if cell is not None and value not in _YES + _NO:
        raise _BadRowError(
            "label not 0 or 1", f"the label column {column!r} holds {cell!r}, not 0 or 1"
        )
    return value in _YES


def image_of(value: Any) -> bytes | str:
    """Return the path, or the bytes, of the image that a cell of a table holds; empty if it holds
    none.

    Files of Hugging Face's datasets hold structs of both. Older programs write paths as bytes: no
    image file is all printable text.

    >>> image_of({"bytes": None, "path": "a.png"}), image_of(b"a.png"), image_of(b"\\x89PNG")
    ('a.png', 'a.png', b'\\x89PNG')
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


def read_rows(path: Path, needed: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Read the names of a table's columns, and its rows."""
    ending = path.suffix.lower()
    if ending not in TABLE_ENDINGS:
        remedy = (
            "; rename it if its cells are separated by commas or tabs, or it has one JSON object "
            "a line"
        )
        raise InputError(f"{path}: a table ends in {', '.join(TABLE_ENDINGS)}{remedy}")
    if not path.is_file():
        raise InputError(
            f"{path}: {'is a folder, not a table' if path.is_dir() else 'no such table'}"
        )
    if ending == ".parquet":
        return _read_parquet(path, needed)
    return (
        _read_jsonl(path)
        if ending == ".jsonl"
        else _read_csv(path, "\t" if ending == ".tsv" else ",")
    )


def _read_csv(path: Path, delimiter: str) -> tuple[list[str], list[Row]]:
    table = csv_rows(path, read_text(path), delimiter)
    _, columns = next(table, (1, []))
    _check_columns(path, columns)
    for other in ",;\t":
        if len(columns) == 1 and other in columns[0] and other != delimiter:
            raise InputError(
                f"{path}: its cells are separated by {other!r}; save it with {delimiter!r}"
            )
    rows = []
    for line, cells in table:
        if cells and len(cells) != len(columns):
            problem = f"has {len(cells)} cells, but the header has {len(columns)}"
            rows.append(Row(f"line {line}", {}, ("wrong number of cells", problem)))
        elif cells:  # an empty line is no row
            rows.append(Row(f"line {line}", dict(zip(columns, cells, strict=True))))
    return columns, rows


def csv_rows(
    path: Path, text: str, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the line where it begins, cells) of each row of a text; ``path`` is named in
    errors.

    >>> list(csv_rows(Path("t.csv"), 'id,text\\n1,"two\\nlines"\\n2,b', ","))
    [(1, ['id', 'text']), (2, ['1', 'two\\nlines']), (4, ['2', 'b'])]
    """
    # characters of a cell, the most that it can be set to on every system
    csv.field_size_limit(2**31 - 1)
    # Strict: a quotation mark out of place must not swallow the rows that follow it.
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True
    )
    began = 1
    try:
        for cells in reader:
            yield began, cells
            began = reader.line_num + 1
    except csv.Error as error:
        problem = f"a quotation mark is not closed or not doubled ({error})"
        raise InputError(f"{path}, line {began}: {problem}; mend it") from None


def _read_jsonl(path: Path) -> tuple[list[str], list[Row]]:
    rows = []
    for number, line in enumerate(io.StringIO(read_text(path)), start=1):
        if not line.strip():
            continue
        try:
            # Python writes NaN and infinities into JSON where a number is missing.
            cells = json.loads(line, parse_constant=lambda name: None)
            problem = "" if isinstance(cells, dict) else "is not a JSON object {…}"
        except (ValueError, RecursionError) as error:
            problem = f"is not JSON that can be read ({one_line(error)})"
        rows.append(
            Row(f"line {number}", {}, ("not JSON", problem))
            if problem
            else Row(f"line {number}", cells)
        )
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    return columns, [
        Row(row.place, {c: row.cells.get(c) for c in columns}, row.problem) for row in rows
    ]


def _read_parquet(path: Path, needed: Sequence[str]) -> tuple[list[str], list[Row]]:
    with naming_extra():
        import pyarrow.parquet as pq

        from channelhash.utils.plain_values import plain_values
    with (
        reading(path, "not a readable Parquet file, perhaps truncated"),
        pq.ParquetFile(path) as file,
    ):
        columns = list(file.schema_arrow.names)
        _check_columns(path, columns)
        table = file.read(columns=[column for column in columns if column in needed])
        names = [column for column in table.column_names if column in needed]
        values = [plain_values(table.column(name)) for name in names]
        cells = zip(*values, strict=True) if names else [()] * table.num_rows
        return columns, [
            Row(f"row {n}", dict(zip(names, row, strict=True)))
            for n, row in enumerate(cells, start=1)
        ]


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    named = Counter(filter(str.strip, columns))  # columns without a name are never read
    if named and (most := named.most_common(1)[0])[1] > 1:
        raise InputError(f"{path}: has {most[1]} columns {most[0]!r}; rename or remove all but one")
