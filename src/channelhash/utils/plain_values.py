"""Cells of typed tables as plain values, the ones that JSON has."""

import math
from collections.abc import Callable
from itertools import chain, islice
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: Units of durations in a second.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return an Arrow column's values as JSON has them: None, bool, int, float, str, list and dict;
    and bytes.

    NaN and infinities are missing values. Decimals are numbers, durations are seconds. Dates and
    times are texts such as ``2019-07-14 10:20:30+02:00``, which sort by time.

    >>> plain_values(pa.array([1.5, float("nan")]))
    [1.5, None]
    """
    if isinstance(column, pa.ChunkedArray):
        return list(chain.from_iterable(map(plain_values, column.chunks)))
    for tests, convert in _CONVERSIONS:
        if any(test(column.type) for test in tests):
            return convert(column)
    raise ValueError(f"values of type {column.type} cannot be read")


def is_list(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are lists, of any layout."""
    return any(test(kind) for test in _LISTS)


def are_vectors(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are lists of numbers."""
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return is_list(stored) and any(test(stored.value_type) for test in _NUMBERS)


def flat_numbers(column: pa.Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the numbers in the lists of an Arrow column one after another, and the lengths of the
    lists.

    >>> flat_numbers(pa.array([[1, None], None, [0.5]]))
    (array([1. , nan, 0.5], dtype=float32), array([2, 0, 1], dtype=int32))
    """
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    flat = stored.flatten().cast("float32", safe=False).fill_null(math.nan)
    lengths = pc.fill_null(pc.list_value_length(stored), 0)
    return flat.to_numpy(zero_copy_only=False), lengths.to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are texts, of any layout."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return any(test(kind) for test in _TEXTS)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are bytes."""
    return any(test(kind) for test in _BINARY)


def _floats(column: pa.Array) -> list[float | None]:
    return [
        None if value is None or not math.isfinite(value) else float(value)
        for value in column.to_pylist()
    ]


def _decimals(column: pa.Array) -> list[int | float | None]:
    number = float if column.type.scale > 0 else int
    return [None if value is None else number(value) for value in column.to_pylist()]


def _texts(column: pa.Array) -> list[str | None]:
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:  # `text_of` refuses the cells that are no UTF-8, and only those
        contents = column.cast(pa.binary()).to_pylist()
        texts = [
            None if content is None else content.decode(errors="surrogateescape")
            for content in contents
        ]
    return texts


def _times(column: pa.Array) -> list[str | None]:
    has_date = pa.types.is_timestamp(column.type)
    zone = getattr(column.type, "tz", None)
    form = ("%Y-%m-%d " if has_date else "") + "%H:%M:%S" + ("%z" if zone else "")
    texts = pc.strftime(column, form)
    texts = pc.replace_substring_regex(texts, r"\.0+($|[-+])", r"\1")
    if zone:
        texts = pc.replace_substring_regex(texts, r"([-+]\d\d)(\d\d)$", r"\1:\2")
    return list(texts.to_pylist())


def _durations(column: pa.Array) -> list[int | float | None]:
    unit = _UNITS[column.type.unit]
    seconds: list[int | float | None] = []
    for count in column.cast(pa.int64()).to_pylist():
        if count is None:
            seconds.append(None)
        else:
            seconds.append(count / unit if count % unit else count // unit)
    return seconds


def _lists(column: pa.Array) -> list[list[Any] | None]:
    parts = iter(plain_values(column.flatten()))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else list(islice(parts, length)) for length in lengths]


def _map(column: pa.Array) -> list[Any]:
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    return _lists(column.cast(pa.list_(entry)))


def _structs(column: pa.Array) -> list[dict[str, Any] | None]:
    names = [field.name for field in column.type]
    fields = [plain_values(column.field(place)) for place in range(len(names))]
    rows = zip(*fields, strict=True) if names else iter([()] * len(column))
    valid = column.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if present else None
        for row, present in zip(rows, valid, strict=True)
    ]


def _extensions(column: pa.Array) -> list[Any]:
    values = plain_values(column.storage)
    convert = _EXTENSIONS.get(getattr(column.type, "extension_name", ""))
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


#: Extension types whose values are not those of their storage.
_EXTENSIONS: dict[str, Callable[[Any], Any]] = {
    "arrow.uuid": lambda value: str(UUID(bytes=value)),
    "arrow.bool8": bool,
}
_types = pa.types
_LISTS = (
    _types.is_list,
    _types.is_large_list,
    _types.is_fixed_size_list,
    _types.is_list_view,
    _types.is_large_list_view,
)
_NUMBERS = (_types.is_integer, _types.is_floating, _types.is_decimal)
_TEXTS = (_types.is_string, _types.is_large_string, _types.is_string_view)
_BINARY = (
    _types.is_binary,
    _types.is_large_binary,
    _types.is_fixed_size_binary,
    _types.is_binary_view,
)
_CONVERSIONS: tuple[tuple[tuple[Callable[[Any], bool], ...], Callable[[Any], list[Any]]], ...] = (
    ((lambda kind: isinstance(kind, pa.BaseExtensionType),), _extensions),
    ((_types.is_dictionary,), lambda column: plain_values(column.dictionary_decode())),
    ((_types.is_run_end_encoded,), lambda column: plain_values(pc.run_end_decode(column))),
    (
        (_types.is_null, _types.is_boolean, _types.is_integer, *_BINARY),
        lambda column: column.to_pylist(),
    ),
    ((_types.is_floating,), _floats),
    ((_types.is_decimal,), _decimals),
    (_TEXTS, _texts),
    ((_types.is_date,), lambda column: column.cast(pa.string()).to_pylist()),
    ((_types.is_time, _types.is_timestamp), _times),
    ((_types.is_duration,), _durations),
    ((_types.is_map,), _map),
    (_LISTS, _lists),
    ((_types.is_struct,), _structs),
)
