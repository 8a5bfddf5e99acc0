"""Precomputed features: files of arrays in the forms that the field exchanges."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.label_arrays import read_labels, row_ids, texts_of
from channelhash.data.parts import by_rows, is_part, join_parts
from channelhash.data.records import VECTOR, Labels, Problems, Records
from channelhash.errors import InputError, naming
from channelhash.utils.array_files import (
    LABELS,
    Arrays,
    FileArrays,
    SparseRows,
    open_arrays,
    read_arrays,
)
from channelhash.utils.decode import read_text, reading, split_lines
from channelhash.utils.seeds import generator

#: Real values ``(n, d)``.
_RealValues = NDArray[np.float32] | SparseRows
#: Recognised names of an array of the whole set, our own first.
_NAMES = {
    "image": ("image", "IAll", "I", "images", "XAll"),
    "text": ("text", "TAll", "YAll", "T", "texts", "tags", "tagList"),
    "labels": LABELS,
}
_MODALITIES = ("image", "text", VECTOR)
#: Modality -> names of arrays of texts that are displayed with search results; of images their
#: files.
_DISPLAY = {"image": ("pictures", "FAll", "imgList"), "text": ("captions",)}


def load_features(
    path: Path,
    image_array: str | None = None,
    text_array: str | None = None,
    labels_array: str | None = None,
    ids: Path | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read features of images and texts ``(n, d)`` (or bags of words), and labels ``(n, c)`` where
    the file has any.

    Arrays that are stored ``(d, n)``, as MATLAB's users often do, are turned where ``n`` follows
    from the others.

    Recognised names are ``image, text, labels``; ``IAll, TAll`` or ``YAll, LAll``; and parted sets
    ``I_tr, T_tr, L_tr`` with ``I_te`` or ``I_db`` and so on whose rows have the ids ``train0 …,
    query0 …``: partitions are drawn anew, or with ``data.split_method: given`` as in the file. One
    modality alone is enough. The only vectors of a file under another name are the modality
    ``vector``.

    Optional arrays are ``id``, ``label_names``, and ``image_scale``, ``image_zero`` for quantised
    features (likewise text): the real value is (q − zero) · scale, both a number or one value per
    column. Sets without parts may also have ``captions`` and ``pictures`` (paths relative to the
    file's folder): strings that are displayed with search results and never learned from; rows of
    one picture are several texts of one image. Features of any numeric type become float32. Labels
    of one dimension are class numbers (so is a single column in a ``.mat`` file, as MATLAB has no
    vectors): each number becomes a column named ``label`` and the number. Texts are names of
    labels, as in a table. Where there are ``label_names``, labels may be packed bits, as of
    ``np.packbits(labels, axis=1)``.

    MATLAB's sparse matrices become `SparseRows`; so do ``text_indptr, text_indices, text_shape`` as
    of SciPy's ``csr_array``, likewise of other names, with ``text_data`` unless all values are 1.
    Without a name before them, as ``scipy.sparse.save_npz`` writes them, they are the text. Labels,
    and sets in parts, are read dense.

    Args:
        path: a file with an ending of `array_files.ENDINGS`, or a folder of those that are no
            tables, read as one: DCMH's ``imgList.mat``, ``tagList.mat`` and ``labelList.mat``, of
            which the first holds the names of the pictures.
        image_array: name of the image features in the file, if not a recognised one.
        text_array: likewise of the text features.
        labels_array: likewise of the labels.
        ids: text file of ids, one a line, in place of those of the file.
        skip_bad: leave out rows whose features are not finite or of another width, count and list
            them.

    Raises:
        InputError: the file is missing, truncated or not such a file; an array is missing, twice
            there, empty or has another number of rows; features are not finite; labels are not 0 or
            1; an id or a label occurs twice.
    """
    names = {"image": image_array, "text": text_array, "labels": labels_array}
    with open_arrays(path) as arrays:
        return _records(_with_sparse(arrays, path), names, path, skip_bad, ids)


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
    arrays["label_names"] = np.array(class_names)
    return _records(FileArrays(arrays), {}, path, skip_bad)


#: Arrays that a sparse matrix consists of, here and in SciPy's files.
_SPARSE = ("indptr", "indices", "shape", "data", "values", "format", "_is_array")


def _with_sparse(arrays: FileArrays, path: Path) -> FileArrays:
    """Return the arrays with each ``X_indptr, X_indices, X_shape`` and perhaps ``X_data`` as the
    sparse matrix ``X`` alone.

    Without a prefix, as in a single file that SciPy's ``save_npz`` wrote, they are the text.
    """
    _sort_by_rows(arrays, path)
    for starts in [name for name in arrays if name.endswith("indptr")]:
        prefix = starts.removesuffix("indptr")
        name = prefix.removesuffix("_") or "text"
        if name in arrays:
            raise InputError(f"{path}: has {name} and {starts}, features twice; leave one out")
        problem = f"{starts} is not that of a sparse matrix by rows"
        with reading(path, problem, "save that of tocsr()"):
            arrays[name] = _sparse_matrix(arrays, prefix)
        for part in _SPARSE:
            arrays.pop(f"{prefix}{part}", None)
    return arrays


def _sparse_matrix(arrays: FileArrays, prefix: str) -> SparseRows:
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


def _sort_by_rows(arrays: FileArrays, path: Path) -> None:
    """Store the sparse matrices of single values by rows: starts of rows, and indices in them."""
    names = [name for name in arrays if name.endswith("format")]
    forms = [name for name in names if np.array_equal(arrays.peek(name), b"coo")]
    for form in forms:
        prefix = form.removesuffix("format")
        with reading(path, f"its {form} is not that of a sparse matrix", "save that of tocsr()"):
            rows = arrays.pop(f"{prefix}row")
            columns = arrays.pop(f"{prefix}col")
            n_rows = int(arrays[f"{prefix}shape"].ravel()[0])
            if not ((rows >= 0) & (rows < n_rows)).all():
                raise ValueError("rows of a sparse matrix that are not in it")
            order = np.lexsort((columns, rows))
            arrays[f"{prefix}indptr"] = np.searchsorted(rows[order], np.arange(n_rows + 1))
            arrays[f"{prefix}indices"] = columns[order]
            arrays[f"{prefix}data"] = arrays[f"{prefix}data"][order]


def _unread(arrays: FileArrays, path: Path) -> list[str]:
    """Return a line that names the arrays that were not read, if there are any."""
    if not arrays.unread:
        return []
    remedy = "rename them, name them in image_array, text_array or labels_array, or leave them"
    return [f"{path}: not read: {', '.join(arrays.unread)}; {remedy}"]


def _records(
    arrays: FileArrays,
    names: Mapping[str, str | None],
    path: Path,
    skip_bad: bool,
    given_ids: Path | None = None,
) -> Records:
    """Return the records of a file; ``names`` maps roles to arrays with unusual names."""
    problems = Problems(skip_bad)
    with naming(path):
        found = _find_roles(arrays, names, path, problems.lines)
        labels, label_names = _labels_of(found, arrays)
        n = len(labels)
        items = {
            name: _real_values(stored, arrays, name, n) for name, stored in found.features.items()
        }
        display = {} if found.part_ids else _display(arrays, n, path)
        ids = _ids_of(found, arrays, n, given_ids)
    problems.lines = [f"{path}: {line}" for line in problems.lines]
    bad = _bad_rows(items)
    for role, name in found.names.items():
        for row, problem in arrays.problems.get(name, {}).items():
            bad[row] = f"{role} {problem}"
    good = problems.usable(bad, ids, path, "bad features")
    lines = (*problems.lines, *_unread(arrays, path))
    records = Records(
        ids, dict(items), labels, label_names, problems.removed, lines, found=n, display=display
    )
    return records.take(good) if bad else records


def _labels_of(found: "_Roles", arrays: FileArrays) -> tuple[Labels, tuple[str, ...]]:
    """Return the labels of all rows and their names, without columns if there are no labels."""
    if found.labels is not None:
        return read_labels(found.labels, arrays)
    first = next(iter(found.features.values()))
    return np.zeros(((*first.shape, 1)[0], 0), dtype=bool), ()


def _ids_of(found: "_Roles", arrays: FileArrays, n: int, given: Path | None) -> tuple[str, ...]:
    if found.part_ids and given is None:
        return found.part_ids
    return row_ids(arrays, n, given) or tuple(map(str, range(n)))


def _bad_rows(items: Mapping[str, _RealValues]) -> dict[int, str]:
    """Return the rows that are not finite in all modalities, and what is wrong with them."""
    finite = {name: _are_finite(values) for name, values in items.items()}
    bad = {}
    for row in np.flatnonzero(~np.logical_and.reduce(list(finite.values()))).tolist():
        broken = " and ".join(name for name, has in finite.items() if not has[row])
        bad[row] = f"{broken} features are not finite"
    return bad


def _are_finite(values: _RealValues) -> NDArray[np.bool_]:
    """Return which rows are finite."""
    if isinstance(values, SparseRows):
        return ~np.isin(np.arange(len(values)), values.rows[~np.isfinite(values.data)])
    return np.asarray(np.isfinite(values).all(axis=1))


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
        raise InputError(f"{path}: has no array 'labels'; it has {_names_of(arrays)}")
    with naming(path):
        labels, names = read_labels(arrays["labels"], arrays)
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


@dataclass(frozen=True)
class _Roles:
    """The arrays of a file by what they hold, a row an item.

    Attributes:
        features: modality -> features.
        labels: the labels, if there are any.
        names: role -> name of its array.
        part_ids: ids of the rows if the file comes in parts.
    """

    features: Arrays
    labels: NDArray[Any] | None
    names: Mapping[str, str]
    part_ids: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, by_role: Arrays, names: Mapping[str, str], part_ids: tuple[str, ...] = ()
    ) -> "_Roles":
        features = {role: by_role[role] for role in _MODALITIES if role in by_role}
        return cls(features, by_role.get("labels"), names, part_ids)


def are_features(names: Collection[str]) -> bool:
    """Return whether the arrays of a file are said to be of images, texts or codes.

    >>> are_features(["I_tr", "L_tr"]), are_features(["embeddings", "id"])
    (True, False)
    """
    known = {*_NAMES["image"], *_NAMES["text"]}
    return any(
        name in known or name.startswith(("I_", "T_", "B_")) or is_part(name) for name in names
    )


def _find_roles(
    arrays: FileArrays, settings: Mapping[str, str | None], path: Path, problems: list[str]
) -> _Roles:
    """Find image, text and labels by the ``settings``, by recognised names, or in parts."""
    names = _find_names(arrays, settings)
    if "labels" not in names:
        joined, ids = join_parts(arrays, problems)
        if joined:
            if any(settings.values()):
                raise InputError(
                    "comes in parts (L_tr …), but one array is named; name labels_array too"
                )
            return _Roles.of(joined, {}, ids)
    _check_names(names, arrays)
    by_role = {role: arrays[name] for role, name in names.items()}
    if "labels" in names:
        by_role["labels"] = np.asarray(by_role["labels"])
    same_rows = {"id": arrays["id"].ravel()} if "id" in arrays else {}
    turned = by_rows(by_role | same_rows, problems)
    if path.is_dir():
        _check_rows({name: turned[role].shape for role, name in names.items()})
    return _Roles.of(turned, names)


def _check_rows(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the arrays of a folder have one number of rows."""
    if len({shape[:1] for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(f"the files differ in their number of rows ({listed})")


def _find_names(arrays: FileArrays, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return role -> name of its array, for the roles that the file has."""
    names = {}
    for role, recognised in _NAMES.items():
        setting = settings.get(role)
        if setting is not None and setting not in arrays:
            raise InputError(
                f"has no array {setting!r} ({role}); it has {', '.join(sorted(arrays))}"
            )
        for name in (setting,) if setting else recognised:
            if name in arrays:
                names[role] = name
                break
    if len(arrays.vectors) == 1 and names.keys().isdisjoint(_MODALITIES):
        names[VECTOR] = arrays.vectors[0]
    return names


def _check_names(names: Mapping[str, str], arrays: FileArrays) -> None:
    """Check that there are features, and labels unless no name is like theirs."""
    if names.keys().isdisjoint(_MODALITIES):
        expected = (
            "image or text (or IAll, TAll; I_tr, T_tr …), and labels (or LAll; L_tr …) if there "
            "are any"
        )
        raise InputError(f"needs the arrays {expected}; it has {_names_of(arrays)}")
    if "labels" in names:
        return
    others = arrays.keys() - {"label_names"}
    for near in difflib.get_close_matches("labels", others, n=1, cutoff=0.7):
        raise InputError(
            f"has no array 'labels'; is it {near!r}? Say labels_array={near}, or rename it"
        )


def _names_of(arrays: Mapping[str, Any]) -> str:
    return ", ".join(sorted(arrays)) or "none"


def _display(arrays: FileArrays, n: int, path: Path) -> dict[str, tuple[str, ...]]:
    """Return the captions and image paths that the file has."""
    display = {}
    for modality, names in _DISPLAY.items():
        name = next(filter(arrays.__contains__, names), None)
        if name is None or arrays.peek(name).dtype.kind not in "USO":
            continue
        values = texts_of(arrays[name], name)
        if len(values) != n:
            raise InputError(f"{name} has {len(values)} entries, expected {n}, one a row")
        if modality == "image":
            folder = path if path.is_dir() else path.parent
            values = tuple(str(folder / value) for value in values)
        display[modality] = values
    return display


def _real_values(stored: Any, arrays: FileArrays, name: str, n: int) -> _RealValues:
    """Return features ``(n, d)`` as real values, of quantised ones (q − zero) · scale."""
    is_matrix = stored.ndim == 2 and len(stored) == n and stored.shape[1] > 0
    if not is_matrix or stored.dtype.kind not in "biuf":
        raise InputError(
            f"{name} is {stored.shape} {stored.dtype}, expected ({n}, d) numbers with d ≥ 1"
        )
    steps = {f"{name}_zero": np.subtract, f"{name}_scale": np.multiply}
    if isinstance(stored, SparseRows):
        for key in arrays.keys() & steps:
            raise InputError(f"{name} is sparse, which goes without {key}; store real values")
        return stored.astype(np.float32)
    # Values that overflow are reported with their rows.
    with np.errstate(over="ignore", invalid="ignore"):
        values: NDArray[np.float32] = stored.astype(np.float32)
        for key, apply in steps.items():
            if key in arrays:
                apply(values, _quantisation(arrays[key], key, values.shape[1]), out=values)
    return values


def _quantisation(stored: Any, key: str, width: int) -> NDArray[np.float32]:
    """Return a number, or one for each of ``width`` columns."""
    term = stored.squeeze()  # MATLAB's numbers are (1, 1)
    if term.shape not in ((), (width,)) or term.dtype.kind not in "iuf":
        raise InputError(f"{key} is {term.shape} {term.dtype}, expected 1 or {width} numbers")
    return np.asarray(term.astype(np.float32))
