"""Feature files whose sets come in parts: ``I_tr, T_tr, L_tr`` beside ``I_te …`` and often ``I_db …``."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.array_files import Arrays

_PREFIXES = {
    "image": ("I", "X", "image", "img"),
    "text": ("T", "Y", "text", "txt"),
    "labels": ("L", "label", "labels"),
}
#: Ending of a part's arrays -> name of the part, the prefix of its rows' ids.
PARTS = {
    **dict.fromkeys(("tr", "train"), "train"),
    **dict.fromkeys(("db", "database", "retrieval"), "database"),
    **dict.fromkeys(("te", "test", "query"), "query"),
}


def join_parts(arrays: Arrays, path: Path, problems: list[str]) -> tuple[Arrays, tuple[str, ...]]:
    """Join the parts of a file, one after the other.

    Many files repeat the training rows inside the database part. Read twice, a row and its copy could land on both
    sides of query and retrieval. Where the database holds every training row, they are therefore read there alone.

    Args:
        arrays: a file's arrays by name.
        path: the file, for messages. An array's name is ``I_tr``, ``ITrain`` or ``image_train``, in any case.
        problems: gets a line for each array that was turned (`by_rows`).

    Returns:
        (``image``, ``text`` and ``labels`` as far as present; ids ``train0 …``, ``database0 …``, ``query0 …``, by which
        `splits.draw_splits` can follow the file). Both are empty if the file has no parts.

    Raises:
        InputError: a part lacks an array that another has, its rows differ in length, or it holds no numbers.

    >>> arrays = {f"{name}_{part}": np.eye(2) for name in "IL" for part in ("tr", "te")}
    >>> joined, ids = join_parts(arrays, Path("f.mat"), [])
    >>> joined["image"].shape, ids
    ((4, 2), ('train0', 'train1', 'query0', 'query1'))
    """
    lower = {name.lower(): name for name in sorted(arrays)}
    present: dict[str, dict[str, str]] = {}  # ending -> role -> array
    for ending in PARTS:
        for role, prefixes in _PREFIXES.items():
            spellings = (f"{prefix}{dash}{ending}".lower() for prefix in prefixes for dash in ("_", ""))
            if name := next((lower[spelling] for spelling in spellings if spelling in lower), None):
                present.setdefault(ending, {})[role] = name
    for roles in present.values():
        turned = by_rows({role: arrays[name] for role, name in roles.items()}, path, problems)
        arrays = arrays | {name: turned[role] for role, name in roles.items()}
    _check_alike(present, arrays, path)
    parts: dict[str, Arrays] = {}
    for ending, roles in present.items():
        if PARTS[ending] in parts:
            raise InputError(f"{path}: has two {PARTS[ending]} parts, one of them {', '.join(roles.values())}")
        parts[PARTS[ending]] = {role: arrays[name] for role, name in roles.items()}
    sizes = {part: len(np.atleast_1d(next(iter(values.values())))) for part, values in parts.items()}
    ids = {part: [f"{part}{row}" for row in range(n)] for part, n in sizes.items()}
    if "train" in parts and "database" in parts:
        places = _places(parts["train"], parts["database"])
        if places is not None:
            for row, place in enumerate(places):
                ids["database"][place] = f"train{row}"
            del parts["train"], ids["train"]
    joined = {
        role: np.concatenate([values[role] for values in parts.values()]) for role in next(iter(parts.values()), {})
    }
    return joined, tuple(name for part in ids.values() for name in part)


def by_rows(arrays: Arrays, path: Path, problems: list[str]) -> Arrays:
    """Turn arrays that are stored ``(d, n)`` to ``(n, d)``, where the number of rows follows from all of them.

    Args:
        arrays: role -> array, of the same rows.
        path: the file, for messages.
        problems: gets a line for each array that is turned.

    Raises:
        InputError: rows and columns cannot be told apart.

    >>> turned = by_rows({"image": np.zeros((9, 3)), "labels": np.zeros((3, 2))}, Path("f.mat"), [])
    >>> turned["image"].shape
    (3, 9)
    """
    shapes = {role: values.shape for role, values in arrays.items() if values.ndim in (1, 2)}
    if len({shape[0] for shape in shapes.values()}) == 1 or len(shapes) < len(arrays):
        return arrays
    common = set[int].intersection(*map(set, shapes.values()))
    if not common:
        return arrays
    is_square = any(len(shape) == 2 and shape[0] == shape[1] for shape in shapes.values())
    if len(common) > 1 or is_square:
        listed = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
        raise InputError(f"{path}: rows cannot be told from columns ({listed}); save every array with a row an item")
    (n,) = common
    turned = {role: values.T for role, values in arrays.items() if len(values) != n}
    problems += [f"{path}: {role} is {shapes[role]}, read with its columns as rows" for role in turned]
    return arrays | turned


def _check_alike(present: dict[str, dict[str, str]], arrays: Arrays, path: Path) -> None:
    """Check that all parts have the same arrays with the same columns, and one number of rows in each part."""
    first = next(iter(present.values()), {})
    expected = {role for roles in present.values() for role in roles}
    for ending, roles in present.items():
        for role in sorted(expected - roles.keys()):
            raise InputError(f"{path}: has {next(iter(roles.values()))}, but no {_PREFIXES[role][0]}_{ending} ({role})")
        for role, name in roles.items():
            counted = roles["labels"] if "labels" in roles else next(iter(roles.values()))
            values, rows = arrays[name], len(np.atleast_1d(arrays[counted]))
            if values.dtype.kind not in "biuf":
                raise InputError(f"{path}: {name} holds {values.dtype}, expected numbers")
            if values.ndim == 0 or len(values) != rows:
                raise InputError(f"{path}: {name} is {values.shape}, but {counted} has {rows} rows")
            if values.shape[1:] != arrays[first[role]].shape[1:]:
                raise InputError(f"{path}: {name} is {values.shape}, but {first[role]} is {arrays[first[role]].shape}")


def _places(train: Arrays, database: Arrays) -> list[int] | None:
    """Return the database place of each training row, none used twice; None if a row is missing."""
    rows: dict[bytes, list[int]] = {}
    for place, key in enumerate(_row_keys(database, train)):
        rows.setdefault(key, []).append(place)
    places = []
    for key in _row_keys(train, database):
        if not rows.get(key):
            return None
        places.append(rows[key].pop(0))
    return places


def _row_keys(part: Arrays, other: Arrays) -> list[bytes]:
    """Return the bytes of each row, in a type that holds the values of both parts."""
    columns: list[NDArray[Any]] = []
    for role in sorted(part):
        dtype = np.result_type(part[role], other[role])
        columns.append(np.ascontiguousarray(part[role].astype(dtype)).reshape(len(part[role]), -1))
    return [b"".join(values[row].tobytes() for values in columns) for row in range(len(columns[0]))]
