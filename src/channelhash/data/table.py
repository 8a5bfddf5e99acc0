"""A person's own table: one row an item, in CSV, TSV, JSONL or Parquet."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from channelhash.data.pictures import picture_problem
from channelhash.data.records import Records, labels_from_names
from channelhash.errors import InputError
from channelhash.settings import unknown

Row = dict[str, Any]


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
) -> Records:
    """Read a table with the columns ``id, image, text, labels``.

    Args:
        path: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.
        root: folder that picture paths are relative to; the table's own folder if None.
        id_column: name of the column with unique ids.
        image_column: name of the column with picture paths. The column may be absent: a collection of texts.
        text_column: name of the column with texts. It may be absent: a collection of pictures.
        labels_column: name of the column with all labels of a row, separated by ``label_separator`` (or a list).
        label_columns: several columns of 0 and 1 instead, one a label; an empty list for a table without labels.
        label_separator: between two labels.
        label_names: the labels there are; None takes all that occur.
        verify_images: decode every picture instead of only looking whether it is there.
        skip_bad: leave bad rows out, count them in ``removed`` and list them in ``problems``.

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is bad: without an id, with an id that
            another row has, a missing or unreadable picture, an empty text, an unknown label.
    """
    rows = _read_rows(path)
    if not rows:
        raise InputError(f"{path}: the table has no rows")
    columns = list(rows[0][1])
    modalities = [m for m, column in (("image", image_column), ("text", text_column)) if column in columns]
    wanted = [id_column, *([labels_column] if label_columns is None else label_columns)]
    for column in wanted if modalities else [image_column, text_column]:
        if column not in columns:
            raise InputError(f"{path}: {unknown(f'column {column!r} asked for', column, columns)}")

    folder = path.parent if root is None else root
    seen: dict[str, str] = {}
    kept: list[tuple[str, Row, list[str]]] = []
    removed: dict[str, int] = {}
    problems: list[str] = []
    for place, row in rows:
        name = "" if row.get(id_column) is None else str(row[id_column])
        labels = _labels(row, labels_column, label_columns, label_separator)
        reason = _row_problem(row, name, seen, modalities, folder, image_column, text_column, verify_images)
        if reason is None and label_names is not None and (strange := [x for x in labels if x not in label_names]):
            reason = "unknown label", unknown(f"label {strange[0]!r}", strange[0], label_names)
        if reason is None:
            seen[name] = place
            kept.append((name, row, labels))
            continue
        line = f"{path}, {place}{f' (id {name})' if name else ''}: {reason[1]}"
        if not skip_bad:
            raise InputError(f"{line}; mend the row, or leave such rows out with --skip-bad")
        removed[reason[0]] = removed.get(reason[0], 0) + 1
        problems.append(line)
    if not kept:
        raise InputError(f"{path}: no usable row is left of {len(rows)}; the first problem is {problems[0]}")

    items: dict[str, Any] = {}
    if "image" in modalities:
        items["image"] = tuple(folder / str(row[image_column]) for _, row, _ in kept)
    if "text" in modalities:
        items["text"] = tuple(str(row[text_column]) for _, row, _ in kept)
    names = label_names if label_names is not None else label_columns
    matrix, label_tuple = labels_from_names([labels for _, _, labels in kept], names, str(path))
    return Records(
        tuple(name for name, _, _ in kept), items, matrix, label_tuple, removed, tuple(problems), found=len(rows)
    )


def _row_problem(
    row: Row,
    name: str,
    seen: dict[str, str],
    modalities: Sequence[str],
    folder: Path,
    image_column: str,
    text_column: str,
    verify_images: bool,
) -> tuple[str, str] | None:
    """(reason to count, what is wrong), or None for a good row."""
    if not name.strip():
        return "no id", "has no id"
    if name in seen:
        return "duplicate id", f"the id {name!r} is already that of {seen[name]}"
    if "text" in modalities and not str(row[text_column] or "").strip():
        return "empty text", f"the column {text_column!r} is empty"
    if "image" in modalities:
        if not str(row[image_column] or "").strip():
            return "missing picture", f"the column {image_column!r} is empty"
        problem = picture_problem(folder / str(row[image_column]), decode=verify_images)
        if problem:
            return ("missing picture" if "no such" in problem else "unreadable picture"), problem
    return None


def _labels(row: Row, labels_column: str, label_columns: list[str] | None, separator: str) -> list[str]:
    if label_columns is not None:
        return [column for column in label_columns if str(row[column]).strip().lower() in ("1", "1.0", "true")]
    value = row.get(labels_column)
    parts = value if isinstance(value, list) else str(value or "").split(separator)
    return [text for part in parts if (text := str(part).strip())]


def has_labels(path: Path, labels_column: str = "labels") -> bool:
    """Whether a table has a column of labels."""
    rows = _read_rows(path)
    return bool(rows) and labels_column in rows[0][1]


def _read_rows(path: Path) -> list[tuple[str, Row]]:
    """(place to name in a message, values by column) of every row."""
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: a table ends in {', '.join(readers)}")
    try:
        return readers[path.suffix.lower()](path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such table") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _read_csv(path: Path) -> list[tuple[str, Row]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        header = next(reader, [])
        rows = []
        for cells in reader:
            place = f"line {reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise InputError(f"{path}, {place}: {len(cells)} cells, but the header has {len(header)}")
            rows.append((place, dict(zip(header, cells, strict=True))))
    return rows


def _read_jsonl(path: Path) -> list[tuple[str, Row]]:
    rows = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: not JSON ({error.msg})") from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: not a JSON object")
            rows.append((f"line {number}", row))
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    return [(place, {column: row.get(column) for column in columns}) for place, row in rows]


def _read_parquet(path: Path) -> list[tuple[str, Row]]:
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        first = " ".join(str(error).split())
        raise InputError(f"{path}: not a readable Parquet file, perhaps truncated ({first})") from None
    return [(f"row {number}", row) for number, row in enumerate(table.to_pylist(), start=1)]
