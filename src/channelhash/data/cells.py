"""Cells of a table: the text, captions, label names or image that one holds."""

import ast
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, filterfalse
from typing import Any

from channelhash.data.records import label_name

_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
#: Elements of a printed list: texts in quotes, numbers, and missing values of Python, NumPy, pandas
#: and JSON.
_ELEMENT = (
    rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*"|[-+]?\d[\d.]*|None|null|nan|NaN|<NA>"""
)
_LIST = re.compile(rf"[\[({{]\s*(?:(?:{_ELEMENT})(?:\s*,\s*|\s+|(?=[\])}}])))*[\])}}]")
_NUMPY_TEXT = re.compile(rf"\bnp\.str_\(({_ELEMENT})\)")
_NUMPY_ARRAY = re.compile(r"array\((\[.*\])(?:,\s*dtype=[^()]*)?\)", re.DOTALL)
#: Words for a missing value, in lower case.
MISSING = {"none", "null", "nan", "na", "n/a", "<na>", "nat"}
#: What may stand between two labels; a blank last, as it may also follow another sign.
_SEPARATORS = (",", ";", "|", "#", "\t", "\n", "、", "，", "；", " ")
#: Signs that no prose has between two letters.
_TIGHT = {sign: re.compile(rf"[^\W\d_]{re.escape(sign)}[^\W\d_]") for sign in ",;|"}
#: A bit of a vector with a 0 or 1 for each label.
_BIT = re.compile(r"[01](?:\.0*)?")
_MULTI_HOT = re.compile(rf"[\[(]?\s*{_BIT.pattern}(?:[\s,;|]*{_BIT.pattern})+\s*[\])]?")
_IN_BRACKETS = re.compile(r"\[.*\]|\{.*\}|\(.*\)", re.DOTALL)
#: Half of a surrogate pair: no character, and no file can hold it.
_SURROGATE = re.compile("[\ud800-\udfff]")


def text_of(value: Any) -> str:
    """Return a plain value as text, as JSON writes it; a missing value as the empty text.

    Raises:
        ValueError: the value is an object, bytes or a list, or no valid text.

    >>> text_of("a dog"), text_of(1.0), text_of(True), text_of(None)
    ('a dog', '1', 'true', '')
    """
    if isinstance(value, str):
        return _valid_text(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        return str(int(value)) if value.is_integer() else str(value)
    kind = type(value).__name__
    name = {"dict": "an object", "bytes": "bytes"}.get(kind, f"a {kind}")
    raise ValueError(f"holds {name}, expected a text")


def _valid_text(text: str) -> str:
    """Return a text without the byte-order mark of the file that it was copied from."""
    if "\0" in text:
        raise ValueError("holds a NUL; take it out")
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError("is not UTF-8 text")
    return text.lstrip("\ufeff")


def captions_of(value: object) -> list[str]:
    """Return the captions in a cell: a text, a list of texts, or a printed list.

    A text that merely begins with a bracket is one caption.

    >>> captions_of("['a dog', 'it runs']"), captions_of("[laughing] a man")
    (['a dog', 'it runs'], ['[laughing] a man'])
    """
    if isinstance(value, list):
        return list(map(text_of, value))
    text = text_of(value)
    parts = _printed_list(text)
    if parts is None or not _are_captions(parts, text.lstrip()):
        return [text]
    return list(map(text_of, parts))


def _are_captions(parts: Sequence[str | None], text: str) -> bool:
    """Return whether a printed list holds captions; else it is a caption in brackets."""
    if text[0] == "{" or (text[0] == "(" and len(parts) == 1):
        return False
    is_quoted = "'" in text or '"' in text
    return is_quoted or not any(parts)


def join_captions(value: object) -> str:
    """Return the captions in a cell as one text, a line each.

    >>> join_captions('["a dog", "it runs"]')
    'a dog\\nit runs'
    """
    return "\n".join(text for text in captions_of(value) if text.strip())


def split_labels(value: object, separator: str = ";") -> list[str]:
    """Return the label names in a cell: a list, a printed list, a text with separators, or the
    number of a class.

    >>> split_labels("dog; sea"), split_labels(["dog", None]), split_labels(1.0)
    (['dog', 'sea'], ['dog'], ['1'])
    >>> split_labels("['dog', 'sea']")
    ['dog', 'sea']
    """
    if isinstance(value, list):
        parts: Iterable[str | None] = map(text_of, value)
    else:
        text = text_of(value)
        parts = _printed_list(text) or text.split(separator)
    return list(filter(None, [label_name(part) for part in parts if part is not None]))


def image_of(value: Any) -> bytes | str:
    """Return the path, or the bytes, of the image that a cell holds; empty if it holds none.

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


def _printed_list(text: str) -> list[str | None] | None:
    """Return the elements of a list in the notation of Python, NumPy or JSON, [None] if empty; None
    for other texts.
    """
    text = _NUMPY_TEXT.sub(r"\1", text.strip())
    array = _NUMPY_ARRAY.fullmatch(text)
    if array:
        text = array[1]
    if not _LIST.fullmatch(text):
        return None
    names = [None if value.lower() in MISSING else value for value in _elements(text)]
    if any(map(_SURROGATE.search, filter(None, names))):
        return None
    return names or [None]


def _elements(text: str) -> list[str]:
    try:
        return list(map(str, json.loads(text)))
    except ValueError:  # a tuple, a set, single quotes, or NumPy's blanks
        values = re.findall(_ELEMENT, text)
        return [str(ast.literal_eval(value)) if value[0] in "'\"" else value for value in values]


def label_doubts(rows: Sequence[Sequence[str]], separator: str, column: str) -> list[str]:
    """Return a line for each sign that a column of labels is in a notation that was not read.

    >>> label_doubts([["dog, cat"], ["cat"], ["dog"]], ";", "t.csv:")
    ["t.csv: holds 'dog, cat': are these several labels? If so, set data.label_separator=','"]
    """
    names = Counter(chain.from_iterable(rows))
    doubts = [
        f"{name!r}, which is taken for a label; if it is a missing value, leave these cells empty"
        for name in sorted(names)
        if name.lower() in MISSING
    ]
    doubts.append(_notation_doubt(rows, names, separator))
    return [f"{column} holds {doubt}" for doubt in doubts if doubt]


def _notation_doubt(rows: Sequence[Sequence[str]], names: Collection[str], separator: str) -> str:
    """Return why the labels are probably vectors, lists, or separated by another sign; empty if
    they are not.
    """
    example = _multi_hot(rows, names)
    if example:
        return (
            f"{example!r}, which looks like a vector with a 0 or 1 for each label; give each label "
            "a column of its own, named in label_columns"
        )
    example = next(filter(_IN_BRACKETS.fullmatch, names), "")
    if example:
        return f"{example!r}; if this is a list, write its labels in quotes, as ['dog', 'cat']"
    for sign in _SEPARATORS:
        if sign != separator and _separates(sign, names):
            example = max(names, key=lambda name: name.count(sign))
            # YAML reads escapes in double quotes only.
            setting = repr(sign).replace("'", '"') if sign in "\t\n" else repr(sign)
            return (
                f"{example!r}: are these several labels? If so, set data.label_separator={setting}"
            )
    return ""


def _multi_hot(rows: Sequence[Sequence[str]], names: Collection[str]) -> str:
    """Return a cell if the cells look like vectors of 0 and 1 of one length, else an empty text."""
    if names and all(map(_BIT.fullmatch, names)):
        # The vectors were split, or are lists; numbers of classes do not repeat in a row.
        return next((" ".join(row) for row in rows if len(row) > len(set(row))), "")
    lengths = {len(_BIT.findall(name)) for name in names}
    if len(lengths) == 1 and all(map(_MULTI_HOT.fullmatch, names)):
        return next(filterfalse(_is_class_number, names), "")
    return ""


def _is_class_number(name: str) -> bool:
    """Return whether digits 0 and 1 may be the number of a class, which does not begin with 0."""
    return name.isdigit() and name[0] != "0" and len(name) <= 3


def _separates(sign: str, names: Collection[str]) -> bool:
    """Return whether names look like lists with ``sign`` between labels: it stands between letters
    without a blank, or few pieces recur in many combinations.

    Names such as "new york, ny" or "stop sign" have more pieces than there are names. In names with
    fixed places ("smith, anna"; "paris" and "paris, texas") a piece is either always first or
    always second.
    """
    if _is_between_letters(sign, names):
        return True
    lists = [list(map(str.strip, name.split(sign))) for name in names]
    n_open = sum("" in (pieces[0], pieces[-1]) for pieces in lists)
    if sign != " " and 2 * n_open > len(names):
        return True  # a sign at the end of most cells
    places = _places_of(lists)
    recurs = len(places) < len(names) or 2 * len(places) <= sum(map(len, lists))
    changes_place = max(map(len, places.values()), default=0) > 1
    return recurs and (changes_place or len(set(map(len, lists))) > 2)


def _is_between_letters(sign: str, names: Collection[str]) -> bool:
    return sign in _TIGHT and any(map(_TIGHT[sign].search, names))


def _places_of(lists: Iterable[Sequence[str]]) -> Mapping[str, set[int]]:
    """Return each piece with its places in the lists."""
    places = defaultdict[str, set[int]](set)
    for pieces in lists:
        for place, piece in enumerate(pieces):
            places[piece].add(place)
    return places
