"""Cells that hold the labels of a row: lists as Python and JSON print them, and doubts about other notations."""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from channelhash.data.records import label_name
from channelhash.utils.plain_values import text_of

_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
#: Elements of a printed list: texts in quotes, numbers, and missing values of Python, NumPy, pandas and JSON.
_ELEMENT = rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*"|[-+]?\d[\d.]*|None|null|nan|NaN|<NA>"""
_LIST = re.compile(rf"[\[({{]\s*(?:(?:{_ELEMENT})(?:\s*,\s*|\s+|(?=[\])}}])))*[\])}}]")
_MISSING = {"none", "null", "nan", "na", "n/a", "<na>", "nat"}
#: What may stand between two labels; a blank last, as it may also follow another sign.
_SEPARATORS = (",", ";", "|", "#", "\t", "\n", "、", "，", "；", " ")
_BIT = r"[01](?:\.0*)?"
_MULTI_HOT = re.compile(rf"[\[(]?\s*{_BIT}(?:[\s,;|]*{_BIT})+\s*[\])]?")


def split_labels(value: object, separator: str = ";") -> list[str]:
    """Return the label names in a cell: a list, a list in print, a text with separators, or the number of a class.

    >>> split_labels("dog; sea"), split_labels(["dog", None]), split_labels("['dog', 'sea']"), split_labels(1.0)
    (['dog', 'sea'], ['dog'], ['dog', 'sea'], ['1'])

    Raises:
        ValueError: the cell or an entry of its list is no text and no number.
    """
    if isinstance(value, list):
        parts: Iterable[str | None] = map(text_of, value)
    else:
        text = text_of(value)
        parts = _printed_list(text) or text.split(separator)
    return [name for part in parts if part is not None and (name := label_name(part))]


def _printed_list(text: str) -> list[str | None] | None:
    """Return the elements of a list in the notation of Python, NumPy or JSON, [None] if empty; None for other texts."""
    text = text.strip()
    if not _LIST.fullmatch(text):
        return None
    try:
        values = list(json.loads(text))
    except ValueError:  # a tuple, a set, single quotes, or NumPy's blanks
        values = [ast.literal_eval(each) if each[0] in "'\"" else each for each in re.findall(_ELEMENT, text)]
    names = [None if str(value).lower() in _MISSING else str(value) for value in values]
    if any("\ud800" <= sign <= "\udfff" for name in names for sign in name or ""):  # half a character, in no file
        return None
    return names or [None]


def label_doubts(rows: Sequence[Sequence[str]], separator: str, column: str) -> list[str]:
    """Return a line for each sign that a column of labels is in a notation that was not read.

    Args:
        rows: labels of each row, as they were read.
        separator: what they were split at.
        column: the file and the column, for the lines.

    >>> label_doubts([["dog, cat"], ["cat"], ["dog"]], ";", "items.csv: the column 'labels'")
    ["items.csv: the column 'labels' holds 'dog, cat': are these several labels? If so, set label_separator=','"]
    """
    names = Counter(name for row in rows for name in row)
    lines = [
        f"{column} holds {name!r}, which is taken for a label; if it is a missing value, leave these cells empty"
        for name in sorted(names)
        if name.lower() in _MISSING
    ]
    if example := _multi_hot(rows, names):
        lines.append(
            f"{column} holds {example!r}, which looks like a vector with a 0 or 1 for each label; give each label a "
            "column of its own, named in label_columns"
        )
    elif example := next((name for name in names if re.fullmatch(r"\[.*\]|\{.*\}|\(.*\)", name, re.DOTALL)), ""):
        lines.append(f"{column} holds {example!r}; if this is a list, write its labels in quotes, as ['dog', 'cat']")
    elif sign := next((sign for sign in _SEPARATORS if sign != separator and _separates(sign, names)), ""):
        example = max(names, key=lambda name: name.count(sign))
        setting = repr(sign).replace("'", '"') if sign in "\t\n" else repr(sign)  # as YAML reads it
        lines.append(f"{column} holds {example!r}: are these several labels? If so, set label_separator={setting}")
    return lines


def _multi_hot(rows: Sequence[Sequence[str]], names: Collection[str]) -> str:
    """Return a cell if the cells look like vectors of 0 and 1 of one length, else an empty text."""
    if names and all(re.fullmatch(_BIT, name) for name in names):  # split, or a list; numbers of classes do not repeat
        return next((" ".join(row) for row in rows if len(row) > len(set(row))), "")
    lengths = {len(re.findall(_BIT, name)) for name in names}
    if len(lengths) != 1 or not all(_MULTI_HOT.fullmatch(name) for name in names):
        return ""
    # Numbers of classes may happen to have these digits only, but they do not begin with 0.
    return next((name for name in names if not name.isdigit() or name[0] == "0" or len(name) > 3), "")


def _separates(sign: str, names: Collection[str]) -> bool:
    """Return whether names look like lists with ``sign`` between labels: few pieces recur in many combinations.

    Names such as "new york, ny" or "stop sign" have more pieces than there are names; and in names with fixed places
    ("smith, anna"; "paris" and "paris, texas") no piece is now first and now second.
    """
    parts = [[piece.strip() for piece in name.split(sign)] for name in names]
    if sign != " " and 2 * sum(not (pieces[0] and pieces[-1]) for pieces in parts) > len(names):
        return True  # a sign at the end of most cells
    places = defaultdict[str, set[int]](set)
    for pieces in parts:
        for place, piece in enumerate(pieces):
            places[piece].add(place)
    recurring = len(places) < len(names) or 2 * len(places) <= sum(map(len, parts))
    return recurring and (any(len(found) > 1 for found in places.values()) or len(set(map(len, parts))) > 2)
