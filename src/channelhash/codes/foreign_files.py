"""Hash codes of other toolboxes: codes and labels of queries and retrieval set in one file, or in a
folder of ``.npy`` files.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import Booleans, CodeSet, boolean_labels, pack
from channelhash.errors import InputError, argument, naming
from channelhash.utils.array_files import Arrays, read_arrays

_log = logging.getLogger("channelhash.codes")


class _SideNames(NamedTuple):
    """The arrays of the queries, or of the retrieval set.

    Attributes:
        codes: modality -> name of its codes.
        labels: name of the labels.
    """

    codes: dict[str, str]
    labels: str


#: Queries and retrieval set.
_Layout = tuple[_SideNames, _SideNames]
#: Codes of a side: modality -> bits ``(n, k)``.
_BitsByModality = dict[str, Booleans]

#: Recognised names: the plain ones, which do not say the modality, and those of
#: `train/hash_train.py` of github.com/QinLab-WFU/DSPH (the image half alone:
#: github.com/Mahiro2211/DSH-pytorch).
_LAYOUTS = (
    (_SideNames({"query": "B_q"}, "L_q"), _SideNames({"database": "B_r"}, "L_r")),
    (
        _SideNames({"image": "q_img", "text": "q_txt"}, "q_l"),
        _SideNames({"image": "r_img", "text": "r_txt"}, "r_l"),
    ),
)

#: Words in names of arrays for a side, such as ``tst_binary`` for the plain name ``B_q``. The first
#: that occurs counts: some toolboxes call the retrieval set "train", others save the training rows
#: beside it.
_SIDES = {
    "q": ("q", "query", "queries", "test", "tst", "te", "val"),
    "r": ("r", "retrieval", "database", "db", "gallery", "base", "trn", "train", "tr"),
}
#: Words in names of arrays for codes and labels.
_KINDS = {
    "B": ("b", "binary", "code", "codes", "hash"),
    "L": ("l", "label", "labels", "target", "targets"),
}


def read_export(
    path: Path, names: Mapping[str, str] | None = None, task: str | None = None
) -> tuple[CodeSet, CodeSet]:
    """Read queries and retrieval set from another toolbox's file, in one of the `_LAYOUTS`.

    Other names are read as the plain ones if their words say the side and what the array holds:
    ``tst_binary``, ``trn_binary``, ``tst_label`` and ``trn_label``, or ``database_code``, ``qB``,
    ``L_te``.

    Codes are ``(n, k)`` of ±1 or of 0 and 1 (or bool), labels ``(n, c)`` of 0 and 1, or the numbers
    of classes ``(n,)``, of which each becomes a label of its own. A warning names the arrays that
    are not read.

    >>> import tempfile
    >>> codes, labels = np.array([[1, -1], [-1, 1]]), np.eye(2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/theirs.npz", B_q=codes, B_r=codes, L_q=labels, L_r=labels)
    ...     query, database = read_export(Path(folder) / "theirs.npz")
    >>> query.n_bits, database.ids
    (2, ('item0', 'item1'))
    """
    if path.suffix.lower() == ".npy":
        raise InputError(
            f"{path}: is one array of four; name its folder, or save one .npz of B_q, B_r, L_q and "
            "L_r"
        )
    stored = read_arrays(path)
    arrays = _with_plain_names(_rename(stored, names or {}, path))
    with naming(path):
        layout = _layout_of(arrays)
    sides = _with_task(layout, task, path)
    _warn_of_unread(stored, [arrays[name] for name in _names(sides) if name in arrays], path)
    with naming(path):
        codes = [_read_codes(arrays, side) for side in sides]
        n_bits = _common_length(sides, codes)
        rows = [len(next(iter(bits.values()))) for bits in codes]
        labels = _read_labels(arrays, sides, rows)
    # Sides of several modalities have the same names for them, those of one need not.
    query_arrays = [labels[0], *codes[0].values()]
    item_arrays = [labels[1], *codes[1].values()]
    is_same = len(query_arrays) == len(item_arrays) and all(
        map(np.array_equal, query_arrays, item_arrays)
    )
    query = _code_set("item" if is_same else "query", codes[0], labels[0], n_bits)
    return query, _code_set("item", codes[1], labels[1], n_bits)


def _common_length(sides: _Layout, codes: Sequence[_BitsByModality]) -> int:
    """Return the code length of all arrays."""
    lengths = {}
    for side, by_modality in zip(sides, codes, strict=True):
        for modality, bits in by_modality.items():
            lengths[side.codes[modality]] = bits.shape[1]
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(
            f"codes differ in length: {each} columns; a row is an item, a column a bit"
        )
    return int(next(iter(lengths.values())))


def _code_set(role: str, codes: _BitsByModality, labels: Booleans, n_bits: int) -> CodeSet:
    packed = {modality: pack(bits) for modality, bits in codes.items()}
    return CodeSet([f"{role}{row}" for row in range(len(labels))], packed, labels, n_bits)


def _warn_of_unread(stored: Arrays, taken: Sequence[NDArray[Any]], path: Path) -> None:
    read = set(map(id, taken))
    unread = [name for name, values in stored.items() if id(values) not in read]
    if unread:
        _log.warning(
            "%s: not read: %s; `evaluate --array` reads an array as another",
            path,
            ", ".join(unread),
        )


def _bits_of(codes: NDArray[Any]) -> Booleans:
    """Convert codes of ±1, or of 0 and 1, to bits ``(n, k)``: +1 and 1 are True.

    >>> _bits_of(np.array([[-1.0, 1.0]])), _bits_of(np.array([[0, 1]]))
    (array([[False,  True]]), array([[False,  True]]))
    """
    values = np.asarray(codes)
    if values.ndim != 2 or values.shape[1] < 1 or values.dtype.kind not in "biuf":
        raise ValueError(
            f"codes are an (n, k) matrix of numbers, not {values.shape} {values.dtype}"
        )
    negative, zero, positive = (values == number for number in (-1, 0, 1))
    if not (negative | zero | positive).all():
        value = _first(values, ~(negative | zero | positive))
        raise ValueError(
            f"codes are ±1 or 0/1, not {value}; save signs of real values, and packed bits unpacked"
        )
    if negative.any() and zero.any():
        raise ValueError(
            f"codes are ±1 or 0/1, not both: {_first(values, zero)} beside −1, as sign(0) gives"
        )
    return np.asarray(positive)


def _rename(arrays: Arrays, names: Mapping[str, str], path: Path) -> Arrays:
    """Return the arrays under the names of the layouts."""
    layout_names = [*chain(*map(_names, _LAYOUTS))]
    for name, array_name in names.items():
        if name not in layout_names:
            raise InputError(
                f"{argument('names')} {name}={array_name}: {name} is none of "
                f"{', '.join(layout_names)}"
            )
        if array_name not in arrays:
            raise InputError(
                f"{path}: has no array {array_name!r} to read as {name}; it has {_names_in(arrays)}"
            )
    return {**arrays, **{name: arrays[array_name] for name, array_name in names.items()}}


def _with_plain_names(arrays: Arrays) -> Arrays:
    """Return the arrays, also under the plain names that the words in their names stand for.

    Plain names are added only if all of them are found and the arrays have no other layout.
    """
    words = {}
    for name in arrays:
        words[name] = set(map(str.lower, re.findall(r"[A-Z]?[a-z]+|[A-Z]", name)))
    plain: Arrays = {}
    for side, side_words in _SIDES.items():
        for kind, kind_words in _KINDS.items():
            found = _only_name(words, side_words, kind_words)
            if found is not None:
                plain[f"{kind}_{side}"] = arrays[found]
    plain |= arrays
    return arrays if _missing(_LAYOUTS[0], plain) or not _missing(_LAYOUTS[1], arrays) else plain


def _only_name(
    words: Mapping[str, set[str]], side_words: Sequence[str], kind_words: Sequence[str]
) -> str | None:
    """Return the array with a word of the kind and the first word of the side that occurs; None
    without one, or with several.
    """
    for word in side_words:
        found = [
            name for name, own in words.items() if word in own and not own.isdisjoint(kind_words)
        ]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _names(sides: _Layout) -> list[str]:
    return [*sides[0].codes.values(), sides[0].labels, *sides[1].codes.values(), sides[1].labels]


def _missing(sides: _Layout, arrays: Arrays) -> list[str]:
    """Return what the file lacks; of codes, one modality is enough."""
    missing = []
    for side in sides:
        if arrays.keys().isdisjoint(side.codes.values()):
            missing.append(" or ".join(side.codes.values()))
        if side.labels not in arrays:
            missing.append(side.labels)
    return missing


def _layout_of(arrays: Arrays) -> _Layout:
    """Return the one layout that the file is complete in."""
    complete = [sides for sides in _LAYOUTS if not _missing(sides, arrays)]
    titles = [", ".join(_names(sides)) for sides in complete or _LAYOUTS]
    if len(complete) > 1:
        raise InputError(f"holds two exports, one under {' and one under '.join(titles)}")
    if complete:
        return complete[0]
    nearest = max(_LAYOUTS, key=lambda sides: sum(name in arrays for name in _names(sides)))
    problem = f"needs {'; or '.join(titles)}"
    if arrays.keys() & _names(nearest):
        problem = f"lacks {' and '.join(_missing(nearest, arrays))}"
    raise InputError(
        f"{problem}; it has {_names_in(arrays)}. "
        f"{argument('names')} NAME=ARRAY reads an array as another"
    )


def _with_task(sides: _Layout, task: str | None, path: Path) -> _Layout:
    """Return the layout with the modalities of ``task``."""
    if task is None:
        return sides
    if sides is not _LAYOUTS[0]:
        raise InputError(
            f"{argument('task')} {task}: the arrays of {path} name their modalities; leave it out"
        )
    modalities = task.split("->")
    if len(modalities) != 2 or not all(modalities):
        raise InputError(
            f'{argument("task")} {task}: expected two modalities, such as "image->text" (in quotes)'
        )
    query, database = (
        side._replace(codes=dict.fromkeys([modality], *side.codes.values()))
        for side, modality in zip(sides, modalities, strict=True)
    )
    return query, database


def _read_codes(arrays: Arrays, side: _SideNames) -> _BitsByModality:
    """Return the codes of the modalities that the file has, each of at least one row."""
    bits: _BitsByModality = {}
    for modality, name in side.codes.items():
        if name not in arrays:
            continue
        if not arrays[name].size:
            raise InputError(
                f"{name} is empty, {arrays[name].shape}; evaluation takes at least one code"
            )
        with naming(name, ValueError):
            bits[modality] = _bits_of(arrays[name])
        first = next(iter(bits))
        n_rows = len(bits[modality])
        if n_rows != len(bits[first]):
            raise InputError(
                f"{name} has {n_rows} rows, {side.codes[first]} has {len(bits[first])}"
            )
    return bits


def _read_labels(arrays: Arrays, sides: _Layout, rows: list[int]) -> list[Booleans]:
    """Return label sets of both sides, with the same columns.

    ``rows`` says how many codes each side has.
    """
    names = [side.labels for side in sides]
    labels = [_label_array(arrays, name, n) for name, n in zip(names, rows, strict=True)]
    if labels[0].ndim == labels[1].ndim == 1:
        return _labels_of_classes(arrays, names, labels)
    widths = [(*values.shape, 1)[1] for values in labels]
    if widths[0] != widths[1]:
        raise InputError(f"{names[0]} has {widths[0]} columns (labels), {names[1]} has {widths[1]}")
    sets = []
    for name, values in zip(names, labels, strict=True):
        with naming(name, ValueError):
            sets.append(boolean_labels(values))
    return sets


def _label_array(arrays: Arrays, name: str, n: int) -> NDArray[Any]:
    """Return labels ``(n, c)`` or ``(n,)``."""
    values = np.asarray(arrays[name])
    if values.shape in ((n, 1), (1, n)):  # MATLAB has no vectors
        values = values.ravel()
    if values.ndim not in (1, 2) or len(values) != n:
        raise InputError(f"{n} codes, but {name} is {values.shape}; both have one row an item")
    return values


def _labels_of_classes(
    arrays: Arrays, names: Sequence[str], numbers: Sequence[NDArray[Any]]
) -> list[Booleans]:
    """Return label sets with a column for each class number that occurs on either side."""
    for name, values in zip(names, numbers, strict=True):
        is_number = values.dtype.kind in "biuf"
        if not is_number or not (np.isfinite(values) & (values == np.round(values))).all():
            raise InputError(f"{name} is one column, but not of whole numbers (classes)")
    classes = np.unique(np.concatenate(numbers))
    are_columns = any(arrays[name].ndim == 2 for name in names)
    if are_columns and set(classes.tolist()) <= {0, 1}:
        both = " and ".join(names)
        raise InputError(f"{both} are one column of 0 and 1; save two columns for two classes")
    return [np.asarray(values[:, None] == classes) for values in numbers]


def _first(values: NDArray[Any], wrong: Booleans) -> str:
    """Return the first value that is ``wrong``, and where it is."""
    row, column = divmod(int(wrong.argmax()), wrong.shape[1])
    return f"{values[row, column]} (row {row}, column {column})"


def _names_in(arrays: Arrays) -> str:
    return ", ".join(sorted(arrays)) or "no arrays"
