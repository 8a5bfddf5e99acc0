"""Precomputed features: ``.npz``, ``.mat`` and ``.h5`` files as the field exchanges them."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.array_files import Arrays, read_arrays
from channelhash.data.records import Records
from channelhash.errors import InputError

_MODALITIES = ("image", "text")

#: Names that an array goes by, our own first: one set, ``IAll``-style, or several parts, ``I_tr``-style.
_NAMES = {
    "image": ("image", "IAll", "I", "images", "XAll"),
    "text": ("text", "TAll", "YAll", "T", "texts", "tags"),
    "labels": ("labels", "LAll", "L", "label"),
}
_PART_PREFIXES = {"image": ("I",), "text": ("T", "Y"), "labels": ("L",)}
#: Ending of a part's arrays -> the part, for files whose sets are parted.
PARTS = {"tr": "train", "train": "train", "db": "database", "te": "query", "test": "query", "query": "query"}


def load_features(
    path: Path,
    image_array: str | None = None,
    text_array: str | None = None,
    labels_array: str | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read features of images and texts ``(n, d)`` (or bags of words), and labels ``(n, c)``.

    Recognised names are ``image, text, labels``; ``IAll, TAll`` or ``YAll, LAll``; and parted sets ``I_tr, T_tr, L_tr``
    with ``I_te`` or ``I_db`` and so on, whose rows are put one part after the other with ids ``train0 …, query0 …``
    (the partitions themselves are drawn anew). Optional arrays of an ``.npz`` file: ``id``, ``label_names``, and
    ``image_scale``, ``image_zero`` for quantised features (likewise text): the real value is (q − zero) · scale, both
    a number or one value a column. Features of any numeric type become float32. One modality alone will do. Labels
    of one dimension are class numbers.

    Args:
        path: the file.
        image_array: name of the image features in the file, where it is none of the above.
        text_array: likewise of the text features.
        labels_array: likewise of the labels.
        skip_bad: leave rows whose features are not finite out, count and list them.

    Raises:
        InputError: the file is missing, truncated or not such a file; an array is missing or has another number of
            rows; features are not finite; labels are not 0 or 1; an id occurs twice.
    """
    arrays = read_arrays(path)
    named = {"image": image_array, "text": text_array, "labels": labels_array}
    for role, name in named.items():
        if name is not None and name not in arrays:
            raise InputError(f"{path}: has no array {name!r} ({role}); it has {', '.join(sorted(arrays))}")
    found, ids = _arrays_by_role(arrays, named)
    modalities = [name for name in _MODALITIES if name in found]
    if not modalities or "labels" not in found:
        known = "image or text, and labels (or IAll, TAll, LAll; I_tr, T_tr, L_tr …)"
        raise InputError(f"{path}: needs the arrays {known}; it has {', '.join(sorted(arrays)) or 'none'}")
    labels = _label_matrix(found["labels"], path)
    n = len(labels)
    items = {name: _real_values(found[name], arrays, name, n, path) for name in modalities}
    ids = ids or (tuple(str(name) for name in arrays["id"].ravel()) if "id" in arrays else tuple(map(str, range(n))))
    if len(ids) != n:
        raise InputError(f"{path}: id has {len(ids)} entries, labels have {n} rows")
    if len(set(ids)) < n:
        raise InputError(f"{path}: the id {Counter(ids).most_common(1)[0][0]!r} occurs twice")
    names = arrays.get("label_names")
    label_names = tuple(f"label {j}" for j in range(labels.shape[1])) if names is None else tuple(map(str, names))
    if len(label_names) != labels.shape[1]:
        raise InputError(f"{path}: {len(label_names)} label_names, but labels have {labels.shape[1]} columns")
    good, problems = _finite_rows(items, ids, path, skip_bad)
    removed = {"features not finite": len(problems)} if problems else {}
    records = Records(ids, dict(items), labels, label_names, removed, tuple(problems), found=n)
    return records.take(good) if problems else records


def _arrays_by_role(arrays: Arrays, named: dict[str, str | None]) -> tuple[Arrays, tuple[str, ...]]:
    """(image, text and labels by role, ids made of the parts if the file is parted)."""
    whole = {}
    for role, given in named.items():
        name = given or next((name for name in _NAMES[role] if name in arrays), None)
        if name is not None:
            whole[role] = arrays[name]
    if "labels" in whole:
        return whole, ()
    parted: dict[str, list[NDArray[Any]]] = {}
    ids: list[str] = []
    for ending, part in PARTS.items():
        rows = {
            role: arrays[f"{prefix}_{ending}"]
            for role, prefixes in _PART_PREFIXES.items()
            for prefix in prefixes
            if f"{prefix}_{ending}" in arrays
        }
        if "labels" in rows:
            for role, values in rows.items():
                parted.setdefault(role, []).append(values)
            ids += [f"{part}{row}" for row in range(len(rows["labels"]))]
    return {role: np.concatenate(values) for role, values in parted.items()}, tuple(ids)


def _label_matrix(labels: NDArray[Any], path: Path) -> NDArray[np.bool_]:
    if labels.ndim == 2 and 1 in labels.shape and len(np.unique(labels)) > 2:
        labels = labels.ravel()  # MATLAB has no vectors: a column of class numbers
    if labels.ndim == 1 and labels.size and np.issubdtype(labels.dtype, np.number):
        classes = np.unique(labels)
        return np.asarray(labels[:, None] == classes[None])
    if labels.ndim != 2 or not len(labels):
        raise InputError(f"{path}: labels are {labels.shape}, expected (n, c) with at least one row")
    wrong = np.argwhere(~np.isin(labels, (0, 1)))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(f"{path}: labels[{row}, {column}] is {labels[row, column]}, expected 0 or 1")
    return labels.astype(bool)


def _real_values(stored: NDArray[Any], arrays: Arrays, name: str, n: int, path: Path) -> NDArray[np.float32]:
    if stored.ndim != 2 or len(stored) != n or not np.issubdtype(stored.dtype, np.number):
        raise InputError(f"{path}: {name} is {stored.shape} {stored.dtype}, expected ({n}, d) numbers")
    zero = np.asarray(arrays.get(f"{name}_zero", 0), dtype=np.float32)
    scale = np.asarray(arrays.get(f"{name}_scale", 1), dtype=np.float32)
    try:
        values: NDArray[np.float32] = (stored.astype(np.float32) - zero) * scale
    except ValueError:
        raise InputError(f"{path}: {name}_zero or {name}_scale does not fit the {stored.shape[1]} columns") from None
    return values


def _finite_rows(
    items: dict[str, NDArray[np.float32]], ids: tuple[str, ...], path: Path, skip_bad: bool
) -> tuple[NDArray[np.int64], list[str]]:
    """(rows whose features are all finite, a line for each of the others)."""
    finite: dict[str, NDArray[np.bool_]] = {
        name: np.asarray(np.isfinite(values).all(axis=1)) for name, values in items.items()
    }
    good: NDArray[np.bool_] = np.asarray(np.stack(list(finite.values())).all(axis=0))
    problems = []
    for row in np.flatnonzero(~good):
        broken = " and ".join(name for name, rows in finite.items() if not rows[row])
        problems.append(f"{path}, row {row} (id {ids[row]}): {broken} features are not finite")
    if problems and not skip_bad:
        raise InputError(f"{problems[0]}, and {len(problems) - 1} more; leave such rows out with --skip-bad")
    return np.flatnonzero(good), problems
