"""Rows of a table file: CSV, TSV, JSONL or Parquet."""

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from channelhash.errors import InputError
from channelhash.utils.plain_values import plain_values
from channelhash.utils.reading import one_line, read_text, reading

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")

#: Characters, the most that Python's reader can be set to on every system.
_LONGEST_CELL = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        place: place for messages: ``"line 3"`` (where the row begins) or ``"row 3"``, counted from 1.
        cells: values by column, as `plain_values` returns them; None where JSON or Parquet has none, or NaN.
        problem: (reason to count, what is wrong) of a row that cannot be parsed.

    >>> Row("line 3", {"id": "a", "text": "a dog"}).cells["text"]
    'a dog'
    """

    place: str
    cells: dict[str, Any]
    problem: tuple[str, str] | None = None


def read_rows(path: Path, needed: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Read the names of a table's columns, and its rows.

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        needed: columns to read as far as they exist; only Parquet files can leave the others unread.

    Raises:
        InputError: the file is missing, not what its ending says, damaged, not UTF-8 or UTF-16, or has a column twice.
            A single row that cannot be parsed has a ``problem`` instead.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        remedy = "; rename it if its cells are separated by commas or tabs, or it has one JSON object a line"
        raise InputError(f"{path}: a table ends in {', '.join(ENDINGS)}{remedy}")
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder, not a table' if path.is_dir() else 'no such table'}")
    if ending == ".parquet":
        columns, rows = _read_parquet(path, needed)
    elif ending == ".jsonl":
        columns, rows = _read_jsonl(path)
    else:
        columns, rows = _read_csv(path, "\t" if ending == ".tsv" else ",")
    return columns, rows


def _read_csv(path: Path, delimiter: str) -> tuple[list[str], list[Row]]:
    # Strict: a quotation mark out of place must not swallow the rows that follow it.
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    rows, began = [], 1
    try:
        columns = next(reader, [])
        _check_columns(path, columns)
        for other in ",;\t":
            if len(columns) == 1 and other in columns[0] and other != delimiter:
                raise InputError(f"{path}: its cells are separated by {other!r}; save it with {delimiter!r}")
        began = reader.line_num + 1
        for cells in reader:
            place = f"line {began}"
            began = reader.line_num + 1
            if cells and len(cells) != len(columns):
                problem = f"has {len(cells)} cells, but the header has {len(columns)}"
                rows.append(Row(place, {}, ("wrong number of cells", problem)))
            elif cells:  # an empty line is no row
                rows.append(Row(place, dict(zip(columns, cells, strict=True))))
    except csv.Error as error:
        raise InputError(
            f"{path}, line {began}: a quotation mark is not closed, or not doubled inside a cell ({error}); mend it"
        ) from None
    return columns, rows


def _read_jsonl(path: Path) -> tuple[list[str], list[Row]]:
    rows = []
    for number, line in enumerate(io.StringIO(read_text(path)), start=1):
        if not line.strip():
            continue
        cells: dict[str, Any] = {}
        problem: str | None = None
        try:
            cells = _DECODER.decode(line.rstrip())
            if not isinstance(cells, dict):
                cells, problem = {}, "is not a JSON object {…}"
            elif "\\u" in line:
                json.dumps(cells, ensure_ascii=False).encode()  # half an emoji, cut off by a length limit
        except json.JSONDecodeError as error:
            problem = f"is not JSON ({error.msg} at character {error.colno})"
        except _RepeatedKeyError as error:
            problem = f"has the key {error} twice"
        except UnicodeEncodeError:
            cells, problem = {}, "has half of a Unicode character (a lone surrogate)"
        except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets too deep
            problem = f"is not JSON that can be read ({one_line(error)})"
        rows.append(Row(f"line {number}", cells, None if problem is None else ("not JSON", problem)))
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    return columns, [Row(row.place, {c: row.cells.get(c) for c in columns}, row.problem) for row in rows]


def _read_parquet(path: Path, needed: Sequence[str]) -> tuple[list[str], list[Row]]:
    with reading(path, "not a readable Parquet file, perhaps truncated"), pq.ParquetFile(path) as file:
        columns = list(file.schema_arrow.names)
        _check_columns(path, columns)
        table = file.read(columns=[column for column in columns if column in needed])
        names = [column for column in table.column_names if column in needed]
        values = [plain_values(table.column(name)) for name in names]
        cells = zip(*values, strict=True) if names else [()] * table.num_rows
        return columns, [Row(f"row {n}", dict(zip(names, row, strict=True))) for n, row in enumerate(cells, start=1)]


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    named = Counter(filter(str.strip, columns))  # columns without a name are never read
    if named and (most := named.most_common(1)[0])[1] > 1:
        raise InputError(f"{path}: has {most[1]} columns {most[0]!r}; rename or remove all but one")


class _RepeatedKeyError(Exception):
    """An object of JSON has a key twice; which value is meant, nobody knows."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _RepeatedKeyError(repr(Counter(key for key, _ in pairs).most_common(1)[0][0]))
    return values


#: Python writes NaN and infinities into JSON where a number is missing.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=lambda name: None)
