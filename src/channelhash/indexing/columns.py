"""Read the columns of a table that become metadata of its items."""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from channelhash.data.cells import text_of
from channelhash.data.records import Records
from channelhash.data.table import USUAL_NAMES, TableRow, read_rows, usual_columns
from channelhash.search.checks import key_problem
from channelhash.search.items import Value

#: A number as JSON writes it: ``007``, ``+5``, ``1_000`` and ``0x10`` are texts.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(?P<fraction>(\.\d+)?([eE][-+]?\d+)?)", re.ASCII)
#: Whole numbers that every store can keep; others become texts.
_INTEGERS = range(-(2**63), 2**63)
#: Characters of the longest such number, with its sign.
_MOST_DIGITS = 20


def add_columns(
    path: Path, records: Records, metadata: list[dict[str, Value]]
) -> tuple[Records, list[dict[str, Value]]]:
    """Add the further columns of a table to the metadata of its items.

    A row with a value that no store can hold is left out and listed in ``problems``. So is a column
    without a usable name, and a column none of whose values can be held.
    """
    columns, problems = _further_columns(path)
    rows = _rows_of(path, columns, records)
    reasons_by_row: dict[int, str] = {}
    for column in columns:
        values, reasons = _values_of(path, [row.cells[column] for row in rows])
        if reasons and _is_empty(values):
            problems.append(_left_out(path, column, rows, reasons))
            continue
        for row, value in values.items():
            metadata[row][column] = value
        for row, reason in reasons.items():
            reasons_by_row.setdefault(row, f"the column {column!r} {reason}")
    for row, reason in sorted(reasons_by_row.items()):
        problems.append(f"{path}, {rows[row].place} (id {records.ids[row]}): {reason}")
    records = replace(records, problems=(*records.problems, *problems))
    return _without_rows(records, metadata, reasons_by_row.keys())


def _without_rows(
    records: Records, metadata: list[dict[str, Value]], bad: Set[int]
) -> tuple[Records, list[dict[str, Value]]]:
    good = [row for row in range(len(metadata)) if row not in bad]
    removed = dict(records.removed)
    if bad:
        removed["value that cannot be stored"] = len(bad)
    return replace(records.take(good), removed=removed), [metadata[row] for row in good]


def _is_empty(values: Mapping[int, Value]) -> bool:
    return all(value is None for value in values.values())


def _left_out(path: Path, column: str, rows: Sequence[TableRow], reasons: Mapping[int, str]) -> str:
    first = min(reasons)
    return f"{path}: the column {column!r} is left out: its {rows[first].place} {reasons[first]}"


def _further_columns(path: Path) -> tuple[list[str], list[str]]:
    """Return the columns that become metadata, and a line for each whose name cannot be a key."""
    further = []
    problems = []
    columns = read_rows(path, []).columns
    found = [usual_columns(role, columns) for role in USUAL_NAMES]
    for place, column in enumerate(columns, start=1):
        if [column] in found:  # `load_any` reads it
            continue
        problem = key_problem(column.strip())
        if problem:
            problems.append(f"{path}: column {place} is left out: {problem}")
        else:
            further.append(column)
    return further, problems


def _values_of(path: Path, cells: Sequence[Any]) -> tuple[dict[int, Value], dict[int, str]]:
    """Return row -> value of a column, and row -> reason for the values that cannot be stored."""
    values: dict[int, Value] = {}
    reasons: dict[int, str] = {}
    if path.suffix.lower() in (".csv", ".tsv"):
        cells = _numbers(cells)
    for row, cell in enumerate(cells):
        try:
            values[row] = value_of(cell)
        except ValueError as error:
            reasons[row] = str(error)
    return values, reasons


def _rows_of(path: Path, columns: Sequence[str], records: Records) -> list[TableRow]:
    """Return the row of each item: the first of its id that was not left out."""
    place = re.compile(re.escape(f"{path}, ") + r"((?:line|row) \d+)")
    left_out = {match[1] for match in map(place.match, records.problems) if match}
    rows: dict[str, TableRow] = {}
    table = read_rows(path, ["id", *columns])
    [name] = usual_columns("id", table.columns)
    for row in table.rows:
        if row.place not in left_out:
            rows.setdefault(text_of(row.cells[name]), row)
    return [rows[name] for name in records.ids]


def _numbers(cells: Sequence[str]) -> Sequence[str | int | float]:
    """Convert the cells of a column if all are numbers, so that filters compare them as such."""
    numbers = [_number(cell) if cell else "" for cell in cells]
    return cells if None in numbers else [number for number in numbers if number is not None]


def _number(cell: str) -> int | float | str | None:
    """Convert a text to a number; None if it is none. A number of more than 64 bits stays a
    text.
    """
    form = _NUMBER.fullmatch(cell)
    if form is None:
        return None
    if form["fraction"]:
        return float(cell) if math.isfinite(float(cell)) else None
    return int(cell) if len(cell) <= _MOST_DIGITS else cell


def value_of(cell: Any) -> Value:
    """Return a plain value as a store keeps it. Raise ValueError if none can.

    >>> value_of(2**70), value_of([1, None, "dog"]), value_of(float("nan"))
    ('1180591620717411303424', ['1', 'dog'], None)
    """
    if cell in (None, ""):
        return None
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, list):
        return [text_of(part) for part in cell if part is not None]
    if isinstance(cell, int) and cell in _INTEGERS:  # True and False, too
        return cell
    return text_of(cell)
