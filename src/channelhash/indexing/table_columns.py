"""The further columns of a table as metadata: values as a store keeps them, and what has to be left out."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from channelhash.data.records import Records
from channelhash.data.tabular_files import Row, read_rows
from channelhash.search.items import Value, key_problem
from channelhash.utils.plain_values import text_of

#: Columns of a table that `load_table` reads; all others become metadata.
_READ = ("id", "image", "text", "labels")

#: A number as JSON writes it: ``007``, ``+5``, ``1_000`` and ``0x10`` are texts.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(?P<fraction>(\.\d+)?([eE][-+]?\d+)?)", re.ASCII)
_INTEGERS, _MOST_DIGITS = range(-(2**63), 2**63), 20


def further_columns(path: Path, records: Records) -> tuple[Records, list[dict[str, Value]]]:
    """Return the items of a table and the values of its further columns.

    A row with a value that no store can hold is left out and listed in ``problems``; so is a column without a usable
    name, and one of which no value can be held.
    """
    columns, _ = read_rows(path, [])
    problems, further = list[str](), list[str]()
    for place, column in enumerate(columns, start=1):
        if column not in _READ:
            if problem := key_problem(column.strip()):
                problems.append(f"{path}: column {place} is left out: {problem}")
            else:
                further.append(column)
    rows = _rows_of(path, further, records)
    metadata: list[dict[str, Value]] = [{} for _ in rows]
    wrong: dict[int, str] = {}
    for column in further:
        cells = [row.cells[column] for row in rows]
        values, reasons = _values(_numbers(cells) if path.suffix.lower() in (".csv", ".tsv") else cells)
        if reasons and all(value is None for value in values):
            first = min(reasons)
            problems.append(f"{path}: the column {column!r} is left out: its {rows[first].place} {reasons[first]}")
            continue
        for row, value in enumerate(values):
            metadata[row][column] = value
        wrong |= {row: f"the column {column!r} {reason}" for row, reason in reasons.items() if row not in wrong}
    problems += [f"{path}, {rows[row].place} (id {records.ids[row]}): {wrong[row]}" for row in sorted(wrong)]
    removed = records.removed | ({"value that cannot be stored": len(wrong)} if wrong else {})
    good = [row for row in range(len(rows)) if row not in wrong]
    records = replace(records.take(good), removed=removed, problems=(*records.problems, *problems))
    return records, [metadata[row] for row in good]


def _rows_of(path: Path, columns: Sequence[str], records: Records) -> list[Row]:
    """Return the row of each item: the first of its id that was not left out."""
    place = re.compile(re.escape(f"{path}, ") + r"((?:line|row) \d+)")
    left_out = {found[1] for line in records.problems if (found := place.match(line))}
    rows: dict[str, Row] = {}
    for row in read_rows(path, ["id", *columns])[1]:
        if row.place not in left_out:
            rows.setdefault(text_of(row.cells["id"]), row)
    return [rows[name] for name in records.ids]


def _values(cells: Sequence[Any]) -> tuple[list[Value], dict[int, str]]:
    """Return a column's values as a store keeps them, None for those that it cannot: row -> reason."""
    values: list[Value] = []
    reasons: dict[int, str] = {}
    for row, cell in enumerate(cells):
        try:
            values.append(_value(cell))
        except ValueError as error:
            values.append(None)
            reasons[row] = str(error)
    return values, reasons


def _numbers(cells: Sequence[str]) -> Sequence[str | int | float]:
    """Return the numbers of a column of texts, if it holds nothing else, so that filters compare them as such."""
    numbers = [_number(cell) if cell else "" for cell in cells]
    return cells if None in numbers else [number for number in numbers if number is not None]


def _number(cell: str) -> int | float | str | None:
    """Return the number that a text is, None if it is none; one of more digits than 64 bits hold stays a text."""
    form = _NUMBER.fullmatch(cell)
    if form is None:
        return None
    if form["fraction"]:
        return float(cell) if math.isfinite(float(cell)) else None
    return int(cell) if len(cell) <= _MOST_DIGITS else cell


def _value(cell: Any) -> Value:
    """Return a plain value as a store keeps it; ValueError where it cannot."""
    if cell is None or cell == "" or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if isinstance(cell, list):
        return [text_of(part) for part in cell if part is not None]
    if isinstance(cell, bool | float) or (isinstance(cell, int) and cell in _INTEGERS):
        return cell
    return text_of(cell)
