"""Sets of features that come in parts, such as ``I_tr``, ``I_te`` and ``I_db``."""

from collections import defaultdict
from pathlib import Path

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


def join_parts(arrays: Arrays, path: Path, problems: list[str]) -> tuple[Arrays, tuple[str, ...]]:
    """Return (image, text and labels, part after part; ids ``train0 …``, ``query0 …``); empty if
    there are no parts.

    Many files repeat the training rows inside the database part. Read twice, a row and its copy
    could land on both sides of query and retrieval. Where the database holds every training row,
    they are therefore read there alone; validation rows likewise.

    >>> join_parts({"I_tr": np.eye(2), "I_te": np.ones((1, 2))}, Path("f.npz"), [])[1]
    ('train0', 'train1', 'query0')
    """
    names = _names_of_parts(arrays, path)
    parts: dict[str, Arrays] = {}
    for part, present in names.items():
        values = {role: np.asarray(arrays[name]) for role, name in present.items()}
        parts[part] = by_rows(values, path, problems)
    _check_alike(names, parts, path)
    ids = {
        part: [f"{part}{row}" for row in range(len(next(iter(values.values()))))]
        for part, values in parts.items()
    }
    if "database" in parts:
        _read_repeated_once(parts, ids)
    roles = next(iter(parts.values()), {})
    joined = {role: np.concatenate([values[role] for values in parts.values()]) for role in roles}
    return joined, tuple(name for part in ids.values() for name in part)


def _read_repeated_once(parts: dict[str, Arrays], ids: dict[str, list[str]]) -> None:
    """Drop the parts of which the database holds every row, and give their ids to these rows."""
    taken = set[int]()
    for part in [part for part in _REPEATED if part in parts]:
        places = _places(parts[part], parts["database"], taken)
        if places is None:
            continue
        for row, place in enumerate(places):
            ids["database"][place] = f"{part}{row}"
        taken.update(places)
        del parts[part], ids[part]


def _names_of_parts(arrays: Arrays, path: Path) -> dict[str, dict[str, str]]:
    """Return part -> role -> name of its array."""
    lower = {name.lower(): name for name in sorted(arrays)}
    names: dict[str, dict[str, str]] = {}
    for ending, part in _PARTS.items():
        present = {}
        for role, prefixes in _PREFIXES.items():
            spellings = [
                f"{prefix}{dash}{ending}".lower() for prefix in prefixes for dash in ("_", "")
            ]
            found = [lower[spelling] for spelling in spellings if spelling in lower]
            if found:
                present[role] = found[0]
        if present and part in names:
            raise InputError(
                f"{path}: has two {part} parts, one of them {', '.join(present.values())}"
            )
        if present:
            names[part] = present
    return names


def by_rows(arrays: Arrays, path: Path, problems: list[str]) -> Arrays:
    """Turn arrays of the same rows that are stored ``(d, n)``, where the number of rows follows
    from all of them.

    Raises:
        InputError: rows cannot be told from columns.

    >>> arrays = {"image": np.ones((4, 3)), "labels": np.ones((3, 2))}
    >>> by_rows(arrays, Path("f.npz"), [])["image"].shape
    (3, 4)
    """
    shapes = {role: values.shape for role, values in arrays.items()}
    if not shapes or any(len(shape) not in (1, 2) for shape in shapes.values()):
        return arrays
    common = set[int].intersection(*map(set, shapes.values()))
    if not common or len({shape[0] for shape in shapes.values()}) == 1:
        return arrays
    is_square = any(len(shape) == 2 and shape[0] == shape[1] for shape in shapes.values())
    if len(common) > 1 or is_square:
        listed = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
        raise InputError(
            f"{path}: rows cannot be told from columns ({listed}); save every array with a row an "
            "item"
        )
    (n,) = common
    turned = {role: values.T for role, values in arrays.items() if len(values) != n}
    problems += [
        f"{path}: {role} is {shapes[role]}, read with its columns as rows" for role in turned
    ]
    return arrays | turned


def _check_alike(names: dict[str, dict[str, str]], parts: dict[str, Arrays], path: Path) -> None:
    """Check that all parts have the same arrays with the same columns, and one number of rows in
    each part.
    """
    first = next(iter(names), "")
    expected = {role for roles in names.values() for role in roles}
    for part, roles in names.items():
        counted = "labels" if "labels" in roles else next(iter(roles))
        for role in sorted(expected - roles.keys()):
            ending = next(ending for ending in _PARTS if roles[counted].lower().endswith(ending))
            raise InputError(
                f"{path}: has {next(iter(roles.values()))}, but no {_PREFIXES[role][0]}_{ending} "
                f"({role})"
            )
        n_rows = len(np.atleast_1d(parts[part][counted]))
        for role, name in roles.items():
            values = parts[part][role]
            expected_shape = parts[first][role].shape
            if values.dtype.kind not in "biuf":
                raise InputError(f"{path}: {name} holds {values.dtype}, expected numbers")
            if values.shape[:1] != (n_rows,):
                raise InputError(
                    f"{path}: {name} is {values.shape}, but {roles[counted]} has {n_rows} rows"
                )
            if values.shape[1:] != expected_shape[1:]:
                raise InputError(
                    f"{path}: {name} is {values.shape}, but {names[first][role]} is {expected_shape}"
                )


def _places(part: Arrays, database: Arrays, taken: set[int]) -> list[int] | None:
    """Return the database place of each row of a part, none used twice or ``taken``; None if a row
    is missing.
    """
    rows = defaultdict[bytes, list[int]](list)
    for place, key in enumerate(_row_keys(database)):
        if place not in taken:
            rows[key].append(place)
    free = {key: iter(places) for key, places in rows.items()}
    places = [next(free.get(key, iter(())), None) for key in _row_keys(part)]
    return [place for place in places if place is not None] if None not in places else None


def _row_keys(part: Arrays) -> list[bytes]:
    """Return the bytes of each row, in a type that holds the values of all parts."""
    columns = [part[role].reshape(len(part[role]), -1).astype(np.float64) for role in sorted(part)]
    return [row.tobytes() for row in np.hstack(columns)]
