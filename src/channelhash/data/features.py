"""Precomputed features in one ``.npz`` file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.records import Records
from channelhash.errors import InputError

_MODALITIES = ("image", "text")


def load_features(path: Path) -> Records:
    """Read arrays ``image`` and ``text`` ``(n, d)``, ``labels`` ``(n, c)``, and optionally ``id`` and ``label_names``.

    Features of any numeric type become float32. Quantised ones carry ``<modality>_scale`` and ``<modality>_zero``:
    the real value is (q − zero) · scale, both a number or one value a column. One modality alone will do.

    Raises:
        InputError: the file is missing, truncated or not such a file; an array is missing or has another number of
            rows; features are not finite; labels are not 0 or 1; an id occurs twice.
    """
    arrays = _read(path)
    modalities = [name for name in _MODALITIES if name in arrays]
    if not modalities or "labels" not in arrays:
        raise InputError(f"{path}: needs the arrays image or text, and labels; it has {', '.join(sorted(arrays))}")
    labels = arrays["labels"]
    n = len(labels) if labels.ndim else 0
    if labels.ndim != 2 or not n:
        raise InputError(f"{path}: labels are {labels.shape}, expected (n, c) with at least one row")
    wrong = np.argwhere(~np.isin(labels, (0, 1)))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(f"{path}: labels[{row}, {column}] is {labels[row, column]}, expected 0 or 1")
    items = {name: _dequantised(arrays, name, n, path) for name in modalities}
    ids = tuple(str(name) for name in arrays["id"]) if "id" in arrays else tuple(str(row) for row in range(n))
    if len(ids) != n:
        raise InputError(f"{path}: id has {len(ids)} entries, labels have {n} rows")
    if len(set(ids)) < n:
        double = next(name for i, name in enumerate(ids) if name in ids[:i])
        raise InputError(f"{path}: the id {double!r} occurs twice")
    names = arrays.get("label_names")
    label_names = tuple(str(name) for name in names) if names is not None else _numbered(labels.shape[1])
    if len(label_names) != labels.shape[1]:
        raise InputError(f"{path}: {len(label_names)} label_names, but labels have {labels.shape[1]} columns")
    return Records(ids, dict(items), labels.astype(bool), label_names)


def _dequantised(arrays: dict[str, NDArray[Any]], name: str, n: int, path: Path) -> NDArray[np.float32]:
    stored = arrays[name]
    if stored.ndim != 2 or len(stored) != n or not np.issubdtype(stored.dtype, np.number):
        raise InputError(f"{path}: {name} is {stored.shape} {stored.dtype}, expected ({n}, d) numbers")
    zero = np.asarray(arrays.get(f"{name}_zero", 0), dtype=np.float32)
    scale = np.asarray(arrays.get(f"{name}_scale", 1), dtype=np.float32)
    try:
        values: NDArray[np.float32] = (stored.astype(np.float32) - zero) * scale
    except ValueError:
        raise InputError(f"{path}: {name}_zero or {name}_scale does not fit the {stored.shape[1]} columns") from None
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise InputError(
            f"{path}: {name} has {int(bad.sum())} rows that are not finite, the first is row {bad.argmax()}"
        )
    return values


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise InputError(f"{path}: a single array, expected an .npz file with several")
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable .npz file, perhaps truncated ({error})") from None


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"label {number}" for number in range(count))
