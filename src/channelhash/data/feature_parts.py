"""Feature files whose sets come in parts: ``I_tr, T_tr, L_tr`` beside ``I_te …`` and often ``I_db …``."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.array_files import Arrays

_PREFIXES = {"image": ("I",), "text": ("T", "Y"), "labels": ("L",)}
#: Ending of a part's arrays -> name of the part, the prefix of its rows' ids.
PARTS = {"tr": "train", "train": "train", "db": "database", "te": "query", "test": "query", "query": "query"}


def join_parts(arrays: Arrays, path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """Join the parts of a file, one after the other.

    Many files repeat the training rows inside the database part. Read twice, a row and its copy could land on both
    sides of query and retrieval. Where the database holds every training row, they are therefore read there alone.

    Args:
        arrays: a file's arrays by name.
        path: the file, for messages.

    Returns:
        (``image``, ``text`` and ``labels`` as far as present; ids ``train0 …``, ``database0 …``, ``query0 …``, by which
        `splits.draw_splits` can follow the file). Both are empty if the file has no parts.

    Raises:
        InputError: a part lacks an array that another has, its rows differ in length, or it holds no numbers.

    >>> arrays = {f"{name}_{part}": np.eye(2) for name in "IL" for part in ("tr", "te")}
    >>> joined, ids = join_parts(arrays, Path("f.mat"))
    >>> joined["image"].shape, ids
    ((4, 2), ('train0', 'train1', 'query0', 'query1'))
    """
    names = {
        ending: {
            role: f"{prefix}_{ending}"
            for role, prefixes in _PREFIXES.items()
            for prefix in reversed(prefixes)  # so that T goes before Y
            if f"{prefix}_{ending}" in arrays
        }
        for ending in PARTS
    }
    present = {ending: roles for ending, roles in names.items() if roles}
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
