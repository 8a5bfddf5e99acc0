"""Precomputed features: ``.npz``, ``.mat`` and ``.h5`` files as the field exchanges them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.feature_parts import join_parts
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.utils.array_files import Arrays, read_arrays

_MODALITIES = ("image", "text")

#: Names that an array of the whole set goes by, our own first.
_NAMES = {
    "image": ("image", "IAll", "I", "images", "XAll"),
    "text": ("text", "TAll", "YAll", "T", "texts", "tags"),
    "labels": ("labels", "LAll", "L", "label"),
}

#: Arrays of texts that are displayed with search results: modality -> name.
_DISPLAY = {"image": "pictures", "text": "captions"}


def load_features(
    path: Path,
    image_array: str | None = None,
    text_array: str | None = None,
    labels_array: str | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read features of images and texts ``(n, d)`` (or bags of words), and labels ``(n, c)``.

    Recognised names are ``image, text, labels``; ``IAll, TAll`` or ``YAll, LAll``; and parted sets ``I_tr, T_tr, L_tr``
    with ``I_te`` or ``I_db`` and so on (`feature_parts.join_parts`), whose rows have the ids ``train0 …, query0 …``:
    partitions
    are drawn anew, or with ``data.split_method: given`` as the file has them. Further arrays, all optional: ``id``,
    ``label_names``, and ``image_scale``, ``image_zero`` for quantised features (likewise text): the real value is
    (q − zero) · scale, both a number or one value a column. In sets without parts also ``captions`` and ``pictures``
    (paths relative to the file's folder): strings that are shown with answers, and that nothing is learned from.
    Features of any numeric type become float32. One modality alone will do. Labels of one dimension are class numbers
    (so is a single column in a ``.mat`` file, where MATLAB has no vectors): a column for each number that occurs, named
    ``label`` and the number.

    Args:
        path: the file.
        image_array: name of the image features in the file, where it is none of the recognised ones.
        text_array: likewise of the text features.
        labels_array: likewise of the labels.
        skip_bad: leave rows whose features are not finite out, count and list them.

    Raises:
        InputError: the file is missing, truncated or not such a file; an array is missing, empty or has another number
            of rows; features are not finite; labels are not 0 or 1; an id or a label's name occurs twice.
    """
    arrays = read_arrays(path)
    named = {"image": image_array, "text": text_array, "labels": labels_array}
    for role, name in named.items():
        if name is not None and name not in arrays:
            raise InputError(f"{path}: has no array {name!r} ({role}); it has {', '.join(sorted(arrays))}")
    found, ids = _arrays_by_role(arrays, named, path)
    parted = bool(ids)
    modalities = [name for name in _MODALITIES if name in found]
    if not modalities or "labels" not in found:
        known = "image or text, and labels (or IAll, TAll, LAll; I_tr, T_tr, L_tr …)"
        raise InputError(f"{path}: needs the arrays {known}; it has {', '.join(sorted(arrays)) or 'none'}")
    labels, label_names = label_matrix(found["labels"], path)
    n = len(labels)
    items = {name: _real_values(found[name], arrays, name, n, path) for name in modalities}
    if not ids:
        ids = texts_of(arrays["id"], "id", path) if "id" in arrays else tuple(map(str, range(n)))
    if len(ids) != n:
        raise InputError(f"{path}: id has {len(ids)} entries, labels have {n} rows")
    if twice := _first_twice(ids):
        raise InputError(f"{path}: rows {twice[0]} and {twice[1]} both have the id {ids[twice[0]]!r}")
    if "label_names" in arrays:
        label_names = texts_of(arrays["label_names"], "label_names", path)
    if len(label_names) != labels.shape[1]:
        raise InputError(f"{path}: {len(label_names)} label_names, but labels have {labels.shape[1]} columns")
    if twice := _first_twice(label_names):
        raise InputError(f"{path}: label_names {twice[0]} and {twice[1]} are both {label_names[twice[0]]!r}")
    display = {} if parted else _display(arrays, n, path)
    good, problems = _finite_rows(items, ids, path, skip_bad)
    if not len(good):
        raise InputError(f"{path}: no usable row is left of {n}; the first problem is {problems[0]}")
    removed = {"features not finite": len(problems)} if problems else {}
    records = Records(ids, dict(items), labels, label_names, removed, tuple(problems), found=n, display=display)
    return records.take(good) if problems else records


def _arrays_by_role(arrays: Arrays, named: dict[str, str | None], path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """(image, text and labels by role, ids made of the parts if the file is parted)."""
    whole = {}
    for role, given in named.items():
        name = given or next((name for name in _NAMES[role] if name in arrays), None)
        if name is not None:
            whole[role] = arrays[name]
    if "labels" in whole:
        return whole, ()
    joined, ids = join_parts(arrays, path)
    if joined and any(named.values()):
        raise InputError(
            f"{path}: the labels come in parts (L_tr …), but one array is named; name labels_array too, or none"
        )
    return joined, ids


def _display(arrays: Arrays, n: int, path: Path) -> dict[str, tuple[str, ...]]:
    """Captions and picture paths, those that the file has."""
    display = {}
    for modality, name in _DISPLAY.items():
        if name in arrays and arrays[name].dtype.kind in "USO":
            values = texts_of(arrays[name], name, path)
            if len(values) != n:
                raise InputError(f"{path}: {name} has {len(values)} entries, labels have {n} rows")
            display[modality] = tuple(str(path.parent / value) for value in values) if modality == "image" else values
    return display


def texts_of(values: NDArray[Any], what: str, path: Path) -> tuple[str, ...]:
    """The entries of ``id``, ``label_names`` and the like: texts, bytes or integers."""
    try:
        names = [name.decode() if isinstance(name, bytes) else name for name in values.ravel().tolist()]
    except UnicodeDecodeError:
        raise InputError(f"{path}: {what} is not UTF-8 text") from None
    for row, name in enumerate(names):
        if not isinstance(name, str | int):
            raise InputError(f"{path}: {what}[{row}] is {name!r}, expected a text or an integer")
    return tuple(map(str, names))


def _first_twice(names: tuple[str, ...]) -> tuple[int, int] | None:
    """Where the first repeated name is, and where it was before."""
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in seen:
            return seen[name], place
        seen[name] = place
    return None


def label_matrix(labels: NDArray[Any], path: Path) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """The labels as a Boolean matrix ``(n, c)``, and names for its columns in case the file has none."""
    is_mat = path.suffix.lower() == ".mat"
    if is_mat and labels.ndim == 2 and 1 in labels.shape and not np.isin(labels, (0, 1)).all():
        labels = labels.ravel()
    if labels.ndim == 1 and labels.size and labels.dtype.kind in "iuf":
        wrong = np.flatnonzero(~np.isfinite(labels) | (labels != np.round(labels)))
        if len(wrong):
            raise InputError(f"{path}: labels[{wrong[0]}] is {labels[wrong[0]]}, expected the number of a class")
        classes = np.unique(labels)
        return np.asarray(labels[:, None] == classes[None]), tuple(f"label {int(number)}" for number in classes)
    if labels.ndim != 2 or not len(labels):
        raise InputError(f"{path}: labels are {labels.shape}, expected (n, c) with at least one row")
    outside = np.argwhere(~np.isin(labels, (0, 1)))
    if len(outside):
        row, column = outside[0]
        raise InputError(f"{path}: labels[{row}, {column}] is {labels[row, column]}, expected 0 or 1")
    return labels.astype(bool), tuple(f"label {column}" for column in range(labels.shape[1]))


def _real_values(stored: NDArray[Any], arrays: Arrays, name: str, n: int, path: Path) -> NDArray[np.float32]:
    if stored.ndim != 2 or len(stored) != n or not stored.shape[1] or stored.dtype.kind not in "biuf":
        raise InputError(f"{path}: {name} is {stored.shape} {stored.dtype}, expected ({n}, d) numbers with d ≥ 1")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite then is reported with its row
        values: NDArray[np.float32] = stored.astype(np.float32)
        for key, apply in ((f"{name}_zero", np.subtract), (f"{name}_scale", np.multiply)):
            if key in arrays:
                term = arrays[key].squeeze()  # MATLAB's numbers are (1, 1)
                if term.shape not in ((), (stored.shape[1],)) or term.dtype.kind not in "iuf":
                    raise InputError(
                        f"{path}: {key} is {term.shape} {term.dtype}, expected 1 or {stored.shape[1]} numbers"
                    )
                apply(values, term.astype(np.float32), out=values)
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
        more = f", and so are those of {len(problems) - 1} more" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}; mend them, or leave such rows out with --skip-bad")
    return np.flatnonzero(good), problems
