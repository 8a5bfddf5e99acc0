"""Types of the columns of a Parquet file, by what they may hold: ids, images, texts or labels."""

import pyarrow as pa

from channelhash.utils.plain_values import is_binary, is_list, is_text


def misfit(name: str, kind: pa.DataType) -> str:
    """Return what a column has to hold, if no value of its type is that; else an empty text.

    >>> misfit("text", pa.binary()), misfit("image", pa.binary())
    ('texts', '')
    """
    value = _value_type(name, kind)
    if name in ("image", "text") and is_list(value):
        return "" if _may_be_list(name, value) else "lists of numbers, which are features"
    if name == "image":
        return "" if _may_be_image(value) else "paths or the bytes of image files"
    is_uuid = name == "id" and getattr(kind, "extension_name", "") == "arrow.uuid"
    if is_uuid or not (pa.types.is_nested(value) or is_binary(value)):
        return ""
    return "texts" if name == "text" else "names"


def _value_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of a single value, of labels of a single label."""
    value = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if name == "labels" and is_list(value):
        value = value.value_type
    return value.value_type if pa.types.is_dictionary(value) else value


def _may_be_list(name: str, kind: pa.DataType) -> bool:
    """Return whether lists may be features, or texts."""
    tests = [pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal]
    if name == "text":
        tests.append(is_text)
    return any(test(kind.value_type) for test in tests)


def _may_be_image(kind: pa.DataType) -> bool:
    """Return whether values may be paths, bytes, or structs of either."""
    if not pa.types.is_struct(kind):
        return not pa.types.is_nested(kind)
    return any(field.name in ("bytes", "path") for field in kind)


def is_features(kind: pa.DataType) -> bool:
    """Return whether values are lists of anything but texts.

    >>> is_features(pa.list_(pa.float32())), is_features(pa.list_(pa.string()))
    (True, False)
    """
    return is_list(kind) and not is_text(kind.value_type)


def plain_layout(column: pa.Array) -> pa.Array:
    """Return a column without what wraps its values, such as a dictionary or the shape of a tensor.

    >>> plain_layout(pa.array(["a", "a"]).dictionary_encode()).to_pylist()
    ['a', 'a']
    """
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
