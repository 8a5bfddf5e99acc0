"""Precomputed features: ``.npz``, ``.mat`` and ``.h5`` files in the forms that the field
exchanges.
"""

import difflib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.parts import by_rows, join_parts
from channelhash.data.records import Problems, Records, label_name
from channelhash.errors import InputError
from channelhash.utils.array_files import Arrays, SparseRows, read_arrays
from channelhash.utils.decode import read_text, reading, split_lines
from channelhash.utils.seeds import generator

_MODALITIES = ("image", "text")

#: Recognised names of an array of the whole set, our own first.
_NAMES = {
    "image": ("image", "IAll", "I", "images", "XAll"),
    "text": ("text", "TAll", "YAll", "T", "texts", "tags", "tagList"),
    "labels": ("labels", "LAll", "L", "label", "labelList"),
}

#: Arrays of texts that are displayed with search results: modality -> names, in DCMH's files those
#: of the pictures.
_DISPLAY = {"image": ("pictures", "FAll", "imgList"), "text": ("captions",)}


def load_features(
    path: Path,
    image_array: str | None = None,
    text_array: str | None = None,
    labels_array: str | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read features of images and texts ``(n, d)`` (or bags of words), and labels ``(n, c)`` where
    the file has any.

    Arrays that are stored ``(d, n)``, as MATLAB's users often do, are turned where ``n`` follows
    from the others.

    Recognised names are ``image, text, labels``; ``IAll, TAll`` or ``YAll, LAll``; and parted sets
    ``I_tr, T_tr, L_tr`` with ``I_te`` or ``I_db`` and so on whose rows have the ids ``train0 …,
    query0 …``: partitions are drawn anew, or with ``data.split_method: given`` as in the file. One
    modality alone is enough.

    Optional arrays are ``id``, ``label_names``, and ``image_scale``, ``image_zero`` for quantised
    features (likewise text): the real value is (q − zero) · scale, both a number or one value per
    column. Sets without parts may also have ``captions`` and ``pictures`` (paths relative to the
    file's folder): strings that are displayed with search results and never learned from; rows of
    one picture are several texts of one image. Features of any numeric type become float32. Labels
    of one dimension are class numbers (so is a single column in a ``.mat`` file, as MATLAB has no
    vectors): each number becomes a column named ``label`` and the number. Where there are
    ``label_names``, labels may be packed bits, as of ``np.packbits(labels, axis=1)``.

    MATLAB's sparse matrices become `SparseRows`; so do ``text_indptr, text_indices, text_shape`` as
    of SciPy's ``csr_array``, likewise of other names, with ``text_data`` unless all values are 1.
    Without a name before them, as ``scipy.sparse.save_npz`` writes them, they are the text. Labels,
    and sets in parts, are read dense.

    Args:
        path: the file, or a folder of such files and ``.npy`` files, read as one: DCMH's
            ``imgList.mat``, ``tagList.mat`` and ``labelList.mat``, of which the first holds the
            names of the pictures.
        image_array: name of the image features in the file, if not a recognised one.
        text_array: likewise of the text features.
        labels_array: likewise of the labels.
        skip_bad: leave out rows whose features are not finite, count and list them.

    Raises:
        InputError: the file is missing, truncated or not such a file; an array is missing, twice
            there, empty or has another number of rows; features are not finite; labels are not 0 or
            1; an id or a label occurs twice.
    """
    names = {"image": image_array, "text": text_array, "labels": labels_array}
    return _records(_with_sparse(read_arrays(path, sparse=True), path), names, path, skip_bad)


def load_wikipedia(root: Path, skip_bad: bool = False) -> Records:
    """Read the Wikipedia collection (Rasiwasia et al. 2010) as published: 2,173 pairs of an image
    and a text for training and 693 for testing, as 128 visual words and 10 topics, each pair of one
    of 10 classes.

    Rows have the ids ``train0 …`` and ``query0 …``: ``data.split_method: given`` takes the official
    split.

    Args:
        root: folder with ``raw_features.mat``, ``categories.list``, ``trainset_txt_img_cat.list``
            and ``testset_txt_img_cat.list``.
        skip_bad: leave out rows whose features are not finite, count and list them.

    Raises:
        InputError: a file is missing or damaged; a list does not have a line for each row of
            features, or names a class that is not in ``categories.list``.
    """
    path = root / "raw_features.mat"
    arrays = read_arrays(path)
    class_names = read_text(root / "categories.list").split()
    numbers = [str(number) for number in range(1, len(class_names) + 1)]
    for part, ending in (("trainset", "tr"), ("testset", "te")):
        file = root / f"{part}_txt_img_cat.list"
        classes = [(line.split() or [""])[-1] for line in split_lines(read_text(file))]
        n_rows = len(np.atleast_1d(arrays.get(f"I_{ending}", [])))
        if len(classes) != n_rows:
            raise InputError(
                f"{file}: has {len(classes)} lines, but I_{ending} in {path.name} has {n_rows} rows"
            )
        for place, number in enumerate(classes, start=1):
            if number not in numbers:
                expected = f"expected the number of a class in categories.list, 1 to {len(numbers)}"
                raise InputError(f"{file}, line {place}: ends in {number!r}, {expected}")
        arrays[f"L_{ending}"] = np.array(classes)[:, None] == np.array(numbers)
    return _records({**arrays, "label_names": np.array(class_names)}, {}, path, skip_bad)


#: Arrays that a sparse matrix consists of, here and in SciPy's files.
_SPARSE = ("indptr", "indices", "shape", "data", "values", "format", "_is_array")


def _with_sparse(arrays: Arrays, path: Path) -> Arrays:
    """Return the arrays with each ``X_indptr, X_indices, X_shape`` and perhaps ``X_data`` as the
    sparse matrix ``X`` alone.

    Without a prefix, as in a single file that SciPy's ``save_npz`` wrote, they are the text.
    """
    for form in [name for name, values in arrays.items() if np.array_equal(values, b"coo")]:
        with reading(path, f"its {form} is not that of a sparse matrix", "save that of tocsr()"):
            _sort_by_rows(arrays, form.removesuffix("format"))
    for starts in [name for name in arrays if name.endswith("indptr")]:
        prefix = starts.removesuffix("indptr")
        name = prefix.removesuffix("_") or "text"
        if name in arrays:
            raise InputError(f"{path}: has {name} and {starts}, features twice; leave one out")
        with reading(
            path, f"{starts} is not that of a sparse matrix by rows", "save that of tocsr()"
        ):
            arrays[name] = _sparse_matrix(arrays, prefix)
        for part in _SPARSE:
            arrays.pop(f"{prefix}{part}", None)
    return arrays


def _sparse_matrix(arrays: Arrays, prefix: str) -> SparseRows:
    """Return the matrix of which the arrays with a prefix are the parts."""
    indices = arrays[f"{prefix}indices"]
    shape = tuple(arrays[f"{prefix}shape"].ravel().tolist())
    by_columns = np.array_equal(arrays.get(f"{prefix}format", b""), b"csc")
    stored = [arrays.get(f"{prefix}{part}", ()) for part in ("data", "values")]
    data = next((values for values in stored if np.size(values)), np.ones(len(indices), np.float32))
    matrix = SparseRows(data, indices, arrays[f"{prefix}indptr"], shape[not by_columns])
    if by_columns:
        matrix = matrix.T
    if matrix.shape != shape:
        raise ValueError(f"of {len(matrix)} rows")
    return matrix


def _sort_by_rows(arrays: Arrays, prefix: str) -> None:
    """Replace rows and columns of single values by the starts of rows and the indices in them."""
    rows, columns = (arrays.pop(f"{prefix}{name}") for name in ("row", "col"))
    n_rows = int(arrays[f"{prefix}shape"].ravel()[0])
    if not ((rows >= 0) & (rows < n_rows)).all():
        raise ValueError("rows of a sparse matrix that are not in it")
    order = np.lexsort((columns, rows))
    arrays[f"{prefix}indptr"] = np.searchsorted(rows[order], np.arange(n_rows + 1))
    arrays[f"{prefix}indices"] = columns[order]
    arrays[f"{prefix}data"] = arrays[f"{prefix}data"][order]


class _FileArrays(Arrays):
    """The arrays of a file, which remember those that were taken."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays)
        self.taken = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.taken.add(name)
        return super().__getitem__(name)

    def unread(self, path: Path) -> list[str]:
        """Return a line that names the arrays that were not taken; no line without any."""
        names = sorted(self.keys() - self.taken)
        if not names:
            return []
        remedy = "rename them, name them in image_array, text_array or labels_array, or leave them"
        return [f"{path}: not read: {', '.join(names)}; {remedy}"]


def _records(
    arrays: Arrays, names: Mapping[str, str | None], path: Path, skip_bad: bool
) -> Records:
    """Return the records of named arrays; ``names`` maps roles to arrays that have other names than
    the usual.
    """
    arrays = _FileArrays(arrays)
    problems = Problems(skip_bad)
    by_role, ids = _arrays_by_role(arrays, names, path, problems.lines)
    if "labels" in by_role:
        labels, label_names = _read_labels(by_role["labels"], arrays, path)
    else:
        n_rows = len(np.atleast_1d(next(by_role[role] for role in _MODALITIES if role in by_role)))
        labels = np.zeros((n_rows, 0), dtype=bool)
        label_names = ()
    n = len(labels)
    items = {
        name: _real_values(by_role[name], arrays, name, n, path)
        for name in _MODALITIES
        if name in by_role
    }
    display = {} if ids else _display(arrays, n, path)
    ids = ids or (
        _texts_of(arrays["id"], "id", path) if "id" in arrays else tuple(map(str, range(n)))
    )
    if len(ids) != n:
        raise InputError(
            f"{path}: id has {len(ids)} entries, {'labels' if label_names else 'features'} have "
            f"{n} rows"
        )
    if (twice := _repeated(ids)) is not None:
        raise InputError(f"{path}: several rows have the id {twice!r}")
    finite = {name: _finite_rows(values) for name, values in items.items()}
    good = np.logical_and.reduce(list(finite.values()))
    remedy = f"mend such rows, {n - good.sum()} in all, or leave them out with --skip-bad"
    for row in np.flatnonzero(~good):
        broken = " and ".join(name for name, has in finite.items() if not has[row])
        line = f"{path}, row {row} (id {ids[row]}): {broken} features are not finite"
        problems.add(line, remedy, "features not finite")
    if not good.any():
        raise InputError(
            f"{path}: no usable row is left of {n}; the last problem is {problems.lines[-1]}"
        )
    lines = (*problems.lines, *arrays.unread(path))
    records = Records(
        ids, dict(items), labels, label_names, problems.removed, lines, found=n, display=display
    )
    return records if good.all() else records.take(np.flatnonzero(good))


def load_simulated(
    path: Path,
    rows: int = 14_000,
    width: int = 128,
    image_noise: float = 1.6,
    text_noise: float = 2.2,
    simulation_seed: int = 0,
) -> Records:
    """Simulate features of two modalities, each ``labels · W / √c + noise · ε`` with W ``(c,
    width)``, ε ~ N(0, 1).

    Label rows are drawn without replacement among those with at least one label. Features are
    linear in the labels; the noise alone decides how much a modality tells about them.

    Args:
        path: an ``.npz``, ``.mat`` or ``.h5`` file with ``labels`` ``(n, c)`` and perhaps
            ``label_names``.
        rows: number of label rows to draw.
        width: d of both modalities.
        image_noise: spread of the images' noise.
        text_noise: spread of the texts' noise.
        simulation_seed: seed of rows, matrices and noise.

    Raises:
        InputError: the file has no labels, or fewer labelled rows than ``rows``.
    """
    arrays = read_arrays(path)
    if "labels" not in arrays:
        raise InputError(
            f"{path}: has no array 'labels'; it has {', '.join(sorted(arrays)) or 'none'}"
        )
    labels, names = _read_labels(arrays["labels"], arrays, path)
    labelled = np.flatnonzero(labels.any(axis=1))
    if not 1 <= rows <= len(labelled):
        raise InputError(f"data.rows is {rows}, but {path} has {len(labelled)} rows with a label")
    chosen = np.sort(
        generator(simulation_seed, "simulated rows").choice(labelled, size=rows, replace=False)
    )
    drawn = labels[chosen]
    items = {}
    for modality, noise in {"image": image_noise, "text": text_noise}.items():
        random = generator(simulation_seed, "simulated features", modality)
        signal = drawn @ random.standard_normal((labels.shape[1], width)) / np.sqrt(labels.shape[1])
        items[modality] = (signal + noise * random.standard_normal(signal.shape)).astype(np.float32)
    removed = {"no label": len(labels) - len(labelled), "not drawn": len(labelled) - rows}
    return Records(tuple(map(str, chosen)), items, drawn, names, removed=removed, found=len(labels))


def _arrays_by_role(
    arrays: Arrays, names: Mapping[str, str | None], path: Path, problems: list[str]
) -> tuple[Arrays, tuple[str, ...]]:
    """Return (image, text and labels by role, a row an item; the ids of the rows if the file comes
    in parts).
    """
    by_role: Arrays = {}
    array_names: dict[str, str] = {}
    for role in _NAMES:
        setting = names.get(role)
        if setting is not None and setting not in arrays:
            raise InputError(
                f"{path}: has no array {setting!r} ({role}); it has {', '.join(sorted(arrays))}"
            )
        if name := setting or next((name for name in _NAMES[role] if name in arrays), None):
            by_role[role] = np.asarray(arrays[name]) if role == "labels" else arrays[name]
            array_names[role] = name
    if "labels" not in by_role:
        joined, ids = join_parts(arrays, path, problems)
        if joined and any(names.values()):
            raise InputError(
                f"{path}: comes in parts (L_tr …), but one array is named; name labels_array too"
            )
        if joined:
            return joined, ids
    if not by_role.keys() & set(_MODALITIES):
        expected = (
            "image or text (or IAll, TAll; I_tr, T_tr …), and labels (or LAll; L_tr …) if there "
            "are any"
        )
        raise InputError(
            f"{path}: needs the arrays {expected}; it has {', '.join(sorted(arrays)) or 'none'}"
        )
    if "labels" not in by_role:
        for near in difflib.get_close_matches(
            "labels", arrays.keys() - {"label_names"}, n=1, cutoff=0.7
        ):
            raise InputError(
                f"{path}: has no array 'labels'; is it {near!r}? Say labels_array={near}, or "
                "rename it"
            )
    same_rows = {"id": arrays["id"].ravel()} if "id" in arrays else {}
    turned = by_rows(by_role | same_rows, path, problems)
    if path.is_dir() and len({np.shape(turned[role])[:1] for role in array_names}) > 1:
        shapes = ", ".join(f"{name} {turned[role].shape}" for role, name in array_names.items())
        raise InputError(f"{path}: the files differ in their number of rows ({shapes})")
    return {role: turned[role] for role in by_role}, ()


def _display(arrays: Arrays, n: int, path: Path) -> dict[str, tuple[str, ...]]:
    """Return the captions and image paths that the file has."""
    display = {}
    folder = path if path.is_dir() else path.parent
    texts = {name for name, values in arrays.items() if values.dtype.kind in "USO"}
    for modality, names in _DISPLAY.items():
        for name in [name for name in names if name in texts][:1]:
            values = _texts_of(arrays[name], name, path)
            if len(values) != n:
                raise InputError(
                    f"{path}: {name} has {len(values)} entries, expected {n}, one a row"
                )
            display[modality] = (
                tuple(str(folder / value) for value in values) if modality == "image" else values
            )
    return display


def _texts_of(values: NDArray[Any], name: str, path: Path) -> tuple[str, ...]:
    """Return the entries of ``id``, ``label_names`` and the like: texts, bytes or whole numbers."""
    if values.shape == () and values.dtype.kind == "U":
        raise InputError(
            f"{path}: {name} is an object or a structure; in MATLAB, save cellstr({name})"
        )
    try:
        texts = [
            entry.decode() if isinstance(entry, bytes) else entry
            for entry in values.ravel().tolist()
        ]
    except UnicodeDecodeError:
        raise InputError(f"{path}: {name} is not UTF-8 text") from None
    for row, text in enumerate(texts):
        if isinstance(text, float) and text.is_integer():  # MATLAB's numbers
            texts[row] = int(text)
        elif not isinstance(text, str | int):
            raise InputError(f"{path}: {name}[{row}] is {text!r}, expected a text or an integer")
    return tuple(map(str, texts))


def _repeated(names: tuple[str, ...]) -> str | None:
    """Return the first name that occurs twice."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _read_labels(
    labels: NDArray[Any], arrays: Arrays, path: Path
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return labels as a Boolean matrix ``(n, c)``, and the names of its columns.

    >>> matrix, names = _read_labels(np.array([3, 7, 3]), {}, Path("f.npz"))
    >>> names, matrix.tolist()
    (('label 3', 'label 7'), [[True, False], [False, True], [True, False]])
    """
    columns = (
        _texts_of(arrays["label_names"], "label_names", path) if "label_names" in arrays else ()
    )
    if _are_packed(labels, len(columns), path):
        labels = np.unpackbits(labels, axis=1)[:, : len(columns)]
    matrix, names = _label_matrix(labels, len(columns), path)
    names = tuple(map(label_name, columns)) or names
    if len(names) != matrix.shape[1]:
        raise InputError(
            f"{path}: {len(names)} label_names, but labels have {matrix.shape[1]} columns"
        )
    if (twice := _repeated(names)) is not None:
        raise InputError(f"{path}: several label_names are {twice!r}")
    return matrix, names


def _are_packed(labels: NDArray[Any], n_names: int, path: Path) -> bool:
    """Return whether labels are packed bits. One column is so only where it cannot be the numbers
    of the classes, counted from 0 or 1.

    >>> labels = np.packbits(np.eye(3, dtype=bool), axis=1), np.array([[1], [2], [3]], np.uint8)
    >>> [_are_packed(each, 3, Path("f.npz")) for each in labels]
    [True, False]
    """
    width = labels.shape[1] if labels.ndim == 2 else 0
    if labels.dtype != np.uint8 or width == n_names or width != -(-n_names // 8):
        return False
    beyond = bool(np.unpackbits(labels, axis=1)[:, n_names:].any())
    are_classes = width == 1 and bool((labels <= n_names).all())
    if beyond and not are_classes:
        raise InputError(
            f"{path}: labels are packed bits, and some lie beyond the {n_names} label_names"
        )
    if are_classes and not beyond:
        raise InputError(
            f"{path}: labels are one column of bytes: numbers of {n_names} classes, or packed bits "
            "of their names? Save numbers of classes as int64, bits as (n, c) bool"
        )
    return not are_classes


def _whole_numbers(labels: NDArray[Any], path: Path) -> NDArray[Any]:
    """Return labels that are the numbers of classes."""
    wrong = np.flatnonzero(~np.isfinite(labels) | (labels != np.round(labels)))
    if len(wrong):
        raise InputError(
            f"{path}: labels[{wrong[0]}] is {labels[wrong[0]]}, expected the number of a class"
        )
    return labels


def _classes(numbers: NDArray[Any], n_names: int = 0) -> NDArray[Any]:
    """Return the class of each column: those that occur, or where these are fewer than the names
    and can only be counted from 0, or only from 1, all.

    >>> _classes(np.array([1, 3]), 3), _classes(np.array([0, 1]), 3), _classes(np.array([1, 2]), 3)
    (array([1, 2, 3]), array([0, 1, 2]), array([1, 2]))
    """
    present = np.unique(numbers)
    ranges = [np.arange(first, first + n_names) for first in (0, 1)]
    fitting = [classes for classes in ranges if np.isin(present, classes).all()]
    if len(present) < n_names and len(fitting) == 1:
        return fitting[0]
    return present


def _label_matrix(
    labels: NDArray[Any], n_names: int, path: Path
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return labels as a Boolean matrix, and default names of its columns."""
    if labels.dtype.kind not in "biuf":
        raise InputError(f"{path}: labels are {labels.dtype}, expected numbers")
    is_column = labels.ndim == 2 and 1 in labels.shape
    if is_column and (n_names > 1 or not np.isin(labels, (0, 1)).all()):
        labels = labels.ravel()  # numbers of classes, as MATLAB keeps them
    if labels.ndim == 1 and labels.size and labels.dtype.kind in "iuf":
        classes = _classes(_whole_numbers(labels, path), n_names)
        names = tuple(f"label {int(number)}" for number in classes)
        return np.asarray(labels[:, None] == classes[None]), names
    if labels.ndim != 2 or not len(labels):
        raise InputError(
            f"{path}: labels are {labels.shape}, expected (n, c) with at least one row"
        )
    outside = np.argwhere(~np.isin(labels, (0, 1)))
    if len(outside):
        row, column = outside[0]
        raise InputError(
            f"{path}: labels[{row}, {column}] is {labels[row, column]}, expected 0 or 1"
        )
    return labels.astype(bool), tuple(f"label {column}" for column in range(labels.shape[1]))


def _real_values(
    stored: Any, arrays: Arrays, name: str, n: int, path: Path
) -> NDArray[np.float32] | SparseRows:
    if (
        stored.ndim != 2
        or len(stored) != n
        or not stored.shape[1]
        or stored.dtype.kind not in "biuf"
    ):
        raise InputError(
            f"{path}: {name} is {stored.shape} {stored.dtype}, expected ({n}, d) numbers with d ≥ 1"
        )
    if isinstance(stored, SparseRows):
        for key in arrays.keys() & {f"{name}_zero", f"{name}_scale"}:
            raise InputError(
                f"{path}: {name} is sparse, which goes without {key}; store real values"
            )
        return stored.astype(np.float32)
    # values that overflow are reported with their rows
    with np.errstate(over="ignore", invalid="ignore"):
        values: NDArray[np.float32] = stored.astype(np.float32)
        for key, apply in ((f"{name}_zero", np.subtract), (f"{name}_scale", np.multiply)):
            if key in arrays:
                term = arrays[key].squeeze()  # MATLAB's numbers are (1, 1)
                if term.shape not in ((), (stored.shape[1],)) or term.dtype.kind not in "iuf":
                    expected = f"expected 1 or {len(values.T)} numbers"
                    raise InputError(f"{path}: {key} is {term.shape} {term.dtype}, {expected}")
                apply(values, term.astype(np.float32), out=values)
    return values


def _finite_rows(values: NDArray[np.float32] | SparseRows) -> NDArray[np.bool_]:
    """Return which rows are finite."""
    if isinstance(values, SparseRows):
        return ~np.isin(np.arange(len(values)), values.rows[~np.isfinite(values.data)])
    return np.asarray(np.isfinite(values).all(axis=1))
