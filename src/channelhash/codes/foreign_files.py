"""Hash codes of other toolboxes: a ``.mat``, ``.npz`` or ``.h5`` file, or ``.npy`` files, of both
sides and labels.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import CodeSet, boolean_labels, pack
from channelhash.errors import InputError, naming
from channelhash.utils.array_files import Arrays, read_arrays

_log = logging.getLogger("channelhash.codes")


class _Side(NamedTuple):
    """The array names of the queries, or of the retrieval set: modality -> its codes, and the
    labels.
    """

    codes: dict[str, str]
    labels: str


_Sides = tuple[_Side, _Side]

#: What is recognised: the plain names, whose modality is not said, and those of
#: `train/hash_train.py` of github.com/QinLab-WFU/DSPH (the image half alone:
#: github.com/Mahiro2211/DSH-pytorch).
_LAYOUTS = (
    (_Side({"query": "B_q"}, "L_q"), _Side({"database": "B_r"}, "L_r")),
    (
        _Side({"image": "q_img", "text": "q_txt"}, "q_l"),
        _Side({"image": "r_img", "text": "r_txt"}, "r_l"),
    ),
)

#: Words in names of arrays that stand for the plain names, such as ``tst_binary`` for ``B_q``. The
#: first that occurs counts: some toolboxes call the retrieval set "train", others save the training
#: rows beside it.
_SIDES = {
    "q": ("q", "query", "queries", "test", "tst", "te", "val"),
    "r": ("r", "retrieval", "database", "db", "gallery", "base", "trn", "train", "tr"),
}
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
    arrays = _with_plain_names(_renamed(stored, names or {}, path))
    sides = _with_task(_layout_of(arrays, path), task, path)
    _warn_of_unread(stored, [arrays[name] for name in _names(sides) if name in arrays], path)
    codes = [_read_codes(arrays, side, path) for side in sides]
    lengths: dict[str, int] = {}
    for side, of_side in zip(sides, codes, strict=True):
        lengths |= {side.codes[modality]: bits.shape[1] for modality, bits in of_side.items()}
    n_bits = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(
            f"{path}: codes differ in length: {each} columns; a row is an item, a column a bit"
        )
    labels = _read_labels(arrays, sides, [len(next(iter(side.values()))) for side in codes], path)
    # Sides of several modalities have the same names for them, those of one need not.
    query_arrays, item_arrays = (
        [sets, *side.values()] for sets, side in zip(labels, codes, strict=True)
    )
    once = len(query_arrays) == len(item_arrays) and all(
        map(np.array_equal, query_arrays, item_arrays)
    )
    packed = [{modality: pack(bits) for modality, bits in side.items()} for side in codes]
    query, database = (
        CodeSet([f"{role}{row}" for row in range(len(sets))], side, sets, n_bits)
        for role, side, sets in zip(
            ("item" if once else "query", "item"), packed, labels, strict=True
        )
    )
    return query, database


def _warn_of_unread(stored: Arrays, taken: list[NDArray[Any]], path: Path) -> None:
    unread = [name for name, values in stored.items() if not any(values is each for each in taken)]
    if unread:
        _log.warning("%s: not read: %s; --array reads an array as another", path, ", ".join(unread))


def _bits_of(codes: NDArray[Any]) -> NDArray[np.bool_]:
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


def _renamed(arrays: Arrays, names: Mapping[str, str], path: Path) -> Arrays:
    """Return the arrays under the names of the layouts."""
    layout_names = [name for layout in _LAYOUTS for name in _names(layout)]
    for name, array_name in names.items():
        if name not in layout_names:
            raise InputError(
                f"--array {name}={array_name}: {name} is none of {', '.join(layout_names)}"
            )
        if array_name not in arrays:
            raise InputError(
                f"{path}: has no array {array_name!r} to read as {name}; it has {_listed(arrays)}"
            )
    return {**arrays, **{name: arrays[array_name] for name, array_name in names.items()}}


def _with_plain_names(arrays: Arrays) -> Arrays:
    """Return the arrays, those under other words for the plain names also under these if they are
    all there.
    """
    words = {
        name: {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]", name)} for name in arrays
    }
    plain: Arrays = {}
    for side, sides in _SIDES.items():
        for kind, kinds in _KINDS.items():
            by_word = [
                [name for name in arrays if word in words[name] and words[name] & {*kinds}]
                for word in sides
            ]
            first = next(filter(None, by_word), [])
            if len(first) == 1:
                plain[f"{kind}_{side}"] = arrays[first[0]]
    plain |= arrays
    return arrays if _missing(_LAYOUTS[0], plain) or not _missing(_LAYOUTS[1], arrays) else plain


def _names(sides: _Sides) -> list[str]:
    return [name for side in sides for name in (*side.codes.values(), side.labels)]


def _missing(sides: _Sides, arrays: Arrays) -> list[str]:
    """Return what the file would have to hold besides; of codes, one modality is enough."""
    needs = [names for side in sides for names in (side.codes.values(), (side.labels,))]
    return [" or ".join(names) for names in needs if not arrays.keys() & names]


def _layout_of(arrays: Arrays, path: Path) -> _Sides:
    """Return the one layout that the file is complete in."""
    complete = [sides for sides in _LAYOUTS if not _missing(sides, arrays)]
    titles = [", ".join(_names(sides)) for sides in complete or _LAYOUTS]
    if len(complete) > 1:
        raise InputError(f"{path}: holds two exports, one under {' and one under '.join(titles)}")
    if complete:
        return complete[0]
    nearest = max(_LAYOUTS, key=lambda sides: sum(name in arrays for name in _names(sides)))
    problem = f"needs {'; or '.join(titles)}"
    if arrays.keys() & _names(nearest):
        problem = f"lacks {' and '.join(_missing(nearest, arrays))}"
    raise InputError(
        f"{path}: {problem}; it has {_listed(arrays)}. --array NAME=ARRAY reads an array as another"
    )


def _with_task(sides: _Sides, task: str | None, path: Path) -> _Sides:
    """Return the layout with the modalities of ``task``."""
    if task is None:
        return sides
    if sides is not _LAYOUTS[0]:
        raise InputError(f"--task {task}: the arrays of {path} name their modalities; leave it out")
    modalities = task.split("->")
    if len(modalities) != 2 or not all(modalities):
        raise InputError(
            f'--task {task}: expected two modalities, such as "image->text" (in quotes)'
        )
    query, database = (
        side._replace(codes=dict.fromkeys([modality], *side.codes.values()))
        for side, modality in zip(sides, modalities, strict=True)
    )
    return query, database


def _read_codes(arrays: Arrays, side: _Side, path: Path) -> dict[str, NDArray[np.bool_]]:
    """Return modality -> bits ``(n, k)`` of the modalities that the file has; n >= 1 for all."""
    bits: dict[str, NDArray[np.bool_]] = {}
    for modality, name in side.codes.items():
        if name not in arrays:
            continue
        if not arrays[name].size:
            raise InputError(
                f"{path}: {name} is empty, {arrays[name].shape}; evaluation takes at least one code"
            )
        with naming(f"{path}: {name}", ValueError):
            bits[modality] = _bits_of(arrays[name])
        first = next(iter(bits))
        if len(bits[modality]) != len(bits[first]):
            rows = (
                f"{name} has {len(bits[modality])} rows, {side.codes[first]} has {len(bits[first])}"
            )
            raise InputError(f"{path}: {rows}")
    return bits


def _read_labels(
    arrays: Arrays, sides: _Sides, rows: list[int], path: Path
) -> list[NDArray[np.bool_]]:
    """Return label sets of both sides, with the same columns; ``rows`` says how many codes each
    side has.
    """
    names = [side.labels for side in sides]
    labels = []
    for name, n in zip(names, rows, strict=True):
        values = arrays[name]
        if values.shape in ((n, 1), (1, n)):  # MATLAB has no vectors
            values = values.ravel()
        if values.ndim not in (1, 2) or len(values) != n:
            raise InputError(
                f"{path}: {n} codes, but {name} is {values.shape}; both have one row an item"
            )
        labels.append(values)
    # a column for each number that occurs on either side
    if all(values.ndim == 1 for values in labels):
        for name, values in zip(names, labels, strict=True):
            if (
                values.dtype.kind not in "biuf"
                or not (np.isfinite(values) & (values == np.round(values))).all()
            ):
                raise InputError(
                    f"{path}: {name} is one column, but not of whole numbers (classes)"
                )
        classes = np.unique(np.concatenate(labels))
        if 2 in [arrays[name].ndim for name in names] and set(classes.tolist()) <= {0, 1}:
            both = " and ".join(names)
            raise InputError(
                f"{path}: {both} are one column of 0 and 1; save two columns for two classes"
            )
        return [np.asarray(values[:, None] == classes) for values in labels]
    widths = [values.shape[1] if values.ndim == 2 else 1 for values in labels]
    if widths[0] != widths[1]:
        raise InputError(
            f"{path}: {names[0]} has {widths[0]} columns (labels), {names[1]} has {widths[1]}"
        )
    sets = []
    for name, values in zip(names, labels, strict=True):
        with naming(f"{path}: {name}", ValueError):
            sets.append(boolean_labels(values))
    return sets


def _first(values: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    """Return the first value that is ``wrong``, and where it is."""
    row, column = divmod(int(wrong.argmax()), wrong.shape[1])
    return f"{values[row, column]} (row {row}, column {column})"


def _listed(arrays: Arrays) -> str:
    return ", ".join(sorted(arrays)) or "no arrays"
