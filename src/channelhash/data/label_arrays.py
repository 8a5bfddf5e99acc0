"""Labels and names in arrays of numbers, bits or texts.

Errors do not name the file: the caller does, see `errors.naming`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.cells import split_labels, text_of
from channelhash.data.records import Labels, label_name, labels_from_names
from channelhash.errors import InputError
from channelhash.utils.array_files import IDS
from channelhash.utils.decode import read_text, split_lines


def texts_of(values: NDArray[Any], name: str) -> tuple[str, ...]:
    """Return the entries of ``id``, ``label_names`` and the like: texts, bytes or numbers; an empty
    text for a missing one.

    >>> texts_of(np.array([1.0, 2.0]), "id")
    ('1', '2')
    """
    if values.shape == () and values.dtype.kind == "U":
        raise InputError(f"{name} is an object or a structure; in MATLAB, save cellstr({name})")
    texts = []
    for row, entry in enumerate(values.ravel().tolist()):
        if isinstance(entry, bytes):
            entry = entry.decode(errors="surrogateescape")
        try:
            texts.append(text_of(entry))
        except ValueError as error:
            raise InputError(f"{name}[{row}] {error}") from None
    return tuple(texts)


def row_ids(arrays: Mapping[str, Any], n: int, ids: Path | None = None) -> tuple[str, ...] | None:
    """Return the ids of ``n`` rows: the lines of a file ``ids``, or else what the arrays hold; None
    without either.

    >>> row_ids({"id": np.array([7, 8])}, 2), row_ids({}, 2)
    (('7', '8'), None)
    """
    name = next(filter(arrays.__contains__, IDS), None)
    if ids is not None:
        names = tuple(filter(None, split_lines(read_text(ids))))
    elif name is not None:
        names = texts_of(arrays[name], name)
    else:
        return None
    if len(names) != n:
        raise InputError(f"has {n} rows, but there are {len(names)} ids")
    if "" in names:
        raise InputError(f"row {names.index('')} has no {name}; give every row one")
    repeated = first_repeated(names)
    if repeated is not None:
        raise InputError(f"several rows have the id {repeated!r}")
    return names


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs twice.

    >>> first_repeated(["a", "b", "b", "a"])
    'a'
    """
    return next((name for name, count in Counter(names).items() if count > 1), None)


def read_labels(labels: NDArray[Any], arrays: Mapping[str, Any]) -> tuple[Labels, tuple[str, ...]]:
    """Return labels as a Boolean matrix ``(n, c)``, and the names of its columns.

    Of objects, each is a number of a class, a list of 0 and 1, or names as `split_labels` reads
    them.

    >>> matrix, names = read_labels(np.array([3, 7, 3]), {})
    >>> names, matrix.tolist()
    (('label 3', 'label 7'), [[True, False], [False, True], [True, False]])
    """
    given: tuple[str, ...] = ()
    if "label_names" in arrays:
        given = texts_of(arrays["label_names"], "label_names")
    if labels.dtype.kind in "UO" and labels.ndim:
        cells = labels.ravel().tolist()
        if not any(_is_row(cell) or _is_number(cell) for cell in cells):
            return labels_from_names(list(_names_in(cells)), given or None, "labels")
        labels = _numbers_in(cells)
    return _read_numbers(labels, given)


def _names_in(cells: Sequence[Any]) -> Iterator[list[str]]:
    """Yield the names in each cell."""
    for row, cell in enumerate(cells):
        try:
            yield split_labels(cell)
        except ValueError as error:
            raise InputError(f"labels[{row}] {error}") from None


def _numbers_in(cells: Sequence[Any]) -> NDArray[Any]:
    """Return the numbers of classes, or of each row, in cells of one kind."""
    width = next((len(cell) for cell in cells if _is_row(cell)), None)
    for row, cell in enumerate(cells):
        if width is None and not _is_number(cell):
            raise InputError(f"labels[{row}] is {cell!r}, expected the number of a class")
        if width is not None and not (_is_row(cell) and len(cell) == width):
            raise InputError(f"labels[{row}] is {cell!r}, expected {width} numbers, each 0 or 1")
    return np.array(cells)


def _is_row(cell: Any) -> bool:
    return isinstance(cell, list) and bool(cell) and all(map(_is_number, cell))


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float)


def _read_numbers(labels: NDArray[Any], given: tuple[str, ...]) -> tuple[Labels, tuple[str, ...]]:
    """Return the same of numbers or packed bits, with the ``given`` names of columns."""
    if _are_packed(labels, len(given)):
        labels = np.unpackbits(labels, axis=1)[:, : len(given)]
    matrix, names = _label_matrix(labels, len(given))
    names = tuple(map(label_name, given)) or names
    if len(names) != matrix.shape[1]:
        raise InputError(f"{len(names)} label_names, but labels have {matrix.shape[1]} columns")
    repeated = first_repeated(names)
    if repeated is not None:
        raise InputError(f"several label_names are {repeated!r}")
    return matrix, names


def _are_packed(labels: NDArray[Any], n_names: int) -> bool:
    """Return whether labels are packed bits.

    One column is packed bits only if it cannot be the numbers of the classes, counted from 0 or 1.

    >>> _are_packed(np.packbits(np.eye(3, dtype=bool), axis=1), 3)
    True
    >>> _are_packed(np.array([[1], [2], [3]], np.uint8), 3)
    False
    """
    width = labels.shape[1] if labels.ndim == 2 else 0
    if labels.dtype != np.uint8 or width == n_names or width != -(-n_names // 8):
        return False
    beyond = bool(np.unpackbits(labels, axis=1)[:, n_names:].any())
    are_classes = width == 1 and bool((labels <= n_names).all())
    if beyond == are_classes:
        return not are_classes
    if beyond:
        raise InputError(f"labels are packed bits, and some lie beyond the {n_names} label_names")
    raise InputError(
        f"labels are one column of bytes: numbers of {n_names} classes, or packed bits of "
        "their names? Save numbers of classes as int64, bits as (n, c) bool"
    )


def _label_matrix(labels: NDArray[Any], n_names: int) -> tuple[Labels, tuple[str, ...]]:
    """Return labels as a Boolean matrix, and default names of its columns."""
    if labels.dtype.kind not in "biuf":
        raise InputError(f"labels are {labels.dtype}, expected numbers or names")
    if _are_matlab_classes(labels, n_names):
        labels = labels.ravel()
    if labels.ndim == 1 and labels.size and labels.dtype.kind in "iuf":
        classes = _classes(labels, n_names)
        return np.asarray(labels[:, None] == classes[None]), _default_names(classes)
    if labels.ndim != 2 or not len(labels):
        raise InputError(f"labels are {labels.shape}, expected (n, c) with at least one row")
    _check_binary(labels)
    return labels.astype(bool), _default_names(range(labels.shape[1]))


def _default_names(numbers: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"label {int(number)}" for number in numbers)


def _check_binary(labels: NDArray[Any]) -> None:
    outside = np.argwhere(~np.isin(labels, (0, 1)))
    if len(outside):
        row, column = outside[0]
        raise InputError(f"labels[{row}, {column}] is {labels[row, column]}, expected 0 or 1")


def _are_matlab_classes(labels: NDArray[Any], n_names: int) -> bool:
    """Return whether labels are one column with the numbers of classes, as MATLAB keeps them."""
    if labels.ndim != 2 or 1 not in labels.shape:
        return False
    return n_names > 1 or not np.isin(labels, (0, 1)).all()


def _classes(labels: NDArray[Any], n_names: int) -> NDArray[Any]:
    """Return the class of each column.

    These are the numbers that occur. If they are fewer than the names, and can only be counted from
    0 or only from 1, they are all numbers from there.

    >>> _classes(np.array([1, 3]), 3), _classes(np.array([0, 1]), 3)
    (array([1, 2, 3]), array([0, 1, 2]))
    >>> _classes(np.array([1, 2]), 3)
    array([1, 2])
    """
    wrong = np.flatnonzero(~np.isfinite(labels) | (labels != np.round(labels)))
    if len(wrong):
        raise InputError(
            f"labels[{wrong[0]}] is {labels[wrong[0]]}, expected the number of a class"
        )
    present = np.unique(labels)
    ranges = [np.arange(first, first + n_names) for first in (0, 1)]
    fitting = [classes for classes in ranges if np.isin(present, classes).all()]
    if len(present) < n_names and len(fitting) == 1:
        return fitting[0]
    return present
