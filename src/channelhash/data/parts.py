"""Sets of features that come in parts, such as ``I_tr``, ``I_te`` and ``I_db``.

Errors and problems do not name the file: the caller does.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from channelhash.errors import InputError
from channelhash.utils.array_files import Arrays

_PREFIXES = {
    "image": ("I", "X", "image", "img"),
    "text": ("T", "Y", "text", "txt"),
    "labels": ("L", "label", "labels"),
}
#: Ending of a part's arrays -> name of the part, the prefix of its rows' ids.
_PARTS = {
    **dict.fromkeys(("tr", "train"), "train"),
    **dict.fromkeys(("db", "database", "retrieval"), "database"),
    **dict.fromkeys(("te", "test", "query"), "query"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
}

#: Parts whose rows many files repeat inside the database.
_REPEATED = ("train", "validation")


def join_parts(arrays: Mapping[str, Any], problems: list[str]) -> tuple[Arrays, tuple[str, ...]]:
    """Return the image, text and labels of all parts in turn, and ids ``train0 …``, ``query0 …``.

    Both are empty if there are no parts.

    Many files repeat the training rows inside the database part. Read twice, a row and its copy
    could land on both sides of query and retrieval. If the database holds every training row, these
    are therefore read there alone; likewise validation rows.

    >>> join_parts({"I_tr": np.eye(2), "I_te": np.ones((1, 2))}, [])[1]
    ('train0', 'train1', 'query0')
    """
    names = _names_of_parts(arrays)
    parts: dict[str, Arrays] = {}
    for part, present in names.items():
        values = {role: np.asarray(arrays[name]) for role, name in present.items()}
        parts[part] = by_rows(values, problems)
    _check_alike(names, parts)
    ids: dict[str, list[str]] = {}
    for part, values in parts.items():
        n_rows = len(next(iter(values.values())))
        ids[part] = [f"{part}{row}" for row in range(n_rows)]
    if "database" in parts:
        _read_repeated_once(parts, ids)
    joined = {}
    for role in next(iter(parts.values()), {}):
        joined[role] = np.concatenate([values[role] for values in parts.values()])
    return joined, tuple(chain(*ids.values()))


def _read_repeated_once(parts: dict[str, Arrays], ids: dict[str, list[str]]) -> None:
    """Drop the parts whose rows are all in the database, where they keep their ids."""
    taken = set[int]()
    for part in [part for part in _REPEATED if part in parts]:
        places = _places(parts[part], parts["database"], taken)
        if places is None:
            continue
        for row, place in enumerate(places):
            ids["database"][place] = f"{part}{row}"
        taken.update(places)
        del parts[part], ids[part]


def _names_of_parts(arrays: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return part -> role -> name of its array."""
    lower = {name.lower(): name for name in sorted(arrays)}
    names: dict[str, dict[str, str]] = {}
    for ending, part in _PARTS.items():
        found = {role: _find_array(lower, role, ending) for role in _PREFIXES}
        present = {role: name for role, name in found.items() if name is not None}
        if present and part in names:
            raise InputError(f"has two {part} parts, one of them {', '.join(present.values())}")
        if present:
            names[part] = present
    return names


def _find_array(names: Mapping[str, str], role: str, ending: str) -> str | None:
    """Return the first array with a role in a part; ``names`` are by their lower-case form."""
    for prefix in _PREFIXES[role]:
        for dash in ("_", ""):
            spelling = f"{prefix}{dash}{ending}".lower()
            if spelling in names:
                return names[spelling]
    return None


def is_part(name: str) -> bool:
    """Return whether an array is said to be a part of the images or texts.

    >>> is_part("XTrain"), is_part("L_tr"), is_part("train")
    (True, False, False)
    """
    names = {name.lower(): name}
    return any(_find_array(names, role, ending) for role in ("image", "text") for ending in _PARTS)


def by_rows(arrays: Arrays, problems: list[str]) -> Arrays:
    """Turn arrays that are stored ``(d, n)``, if the number of rows follows from all arrays.

    Raises:
        InputError: rows cannot be told from columns.

    >>> arrays = {"image": np.ones((4, 3)), "labels": np.ones((3, 2))}
    >>> by_rows(arrays, [])["image"].shape
    (3, 4)
    """
    shapes = {role: values.shape for role, values in arrays.items()}
    n = _rows_to_find(shapes)
    if n is None:
        return arrays
    turned = {role: values.T for role, values in arrays.items() if len(values) != n}
    problems += [f"{role} is {shapes[role]}, read with its columns as rows" for role in turned]
    return arrays | turned


def _rows_to_find(shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the number of rows if some arrays have it as number of columns, else None."""
    if not {len(shape) for shape in shapes.values()} <= {1, 2}:
        return None
    common = set.intersection(*map(set, shapes.values()))
    if not common or len({shape[0] for shape in shapes.values()}) == 1:
        return None
    if len(common) > 1 or any(map(_is_square, shapes.values())):
        listed = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
        raise InputError(
            f"rows cannot be told from columns ({listed}); save every array with a row an item"
        )
    return common.pop()


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(set(shape)) < len(shape)


def _check_alike(names: dict[str, dict[str, str]], parts: dict[str, Arrays]) -> None:
    """Check that all parts have the same arrays with the same columns, and one number of rows in
    each part.
    """
    first = next(iter(names), "")
    expected = set(chain(*names.values()))
    for part, roles in names.items():
        counted = "labels" if "labels" in roles else next(iter(roles))
        for role in sorted(expected - roles.keys()):
            ending = next(ending for ending in _PARTS if roles[counted].lower().endswith(ending))
            raise InputError(
                f"has {next(iter(roles.values()))}, but no {_PREFIXES[role][0]}_{ending} ({role})"
            )
        _check_shapes(roles, parts[part], counted, names[first], parts[first])


def _check_shapes(
    names: dict[str, str],
    part: Arrays,
    counted: str,
    first_names: dict[str, str],
    first: Arrays,
) -> None:
    """Check that the arrays of a part have the rows of the ``counted`` one and the first part's
    columns.
    """
    n_rows = len(np.atleast_1d(part[counted]))
    for role, name in names.items():
        values = part[role]
        columns = first[role].shape
        if values.dtype.kind not in "biuf":
            raise InputError(f"{name} holds {values.dtype}, expected numbers")
        problem = ""
        if values.shape[:1] != (n_rows,):
            problem = f"{names[counted]} has {n_rows} rows"
        elif values.shape[1:] != columns[1:]:
            problem = f"{first_names[role]} is {columns}"
        if problem:
            raise InputError(f"{name} is {values.shape}, but {problem}")


def _places(part: Arrays, database: Arrays, taken: set[int]) -> list[int] | None:
    """Return the row of the database that repeats each row of a part, none twice or ``taken``.

    None if the database lacks a row.
    """
    free = defaultdict[bytes, deque[int]](deque)
    for place, key in enumerate(_row_keys(database)):
        if place not in taken:
            free[key].append(place)
    found = []
    for key in _row_keys(part):
        if not free.get(key):
            return None
        found.append(free[key].popleft())
    return found


def _row_keys(part: Arrays) -> list[bytes]:
    """Return the bytes of each row, in a type that holds the values of all parts."""
    columns = [part[role].reshape(len(part[role]), -1).astype(np.float64) for role in sorted(part)]
    return [row.tobytes() for row in np.hstack(columns)]
