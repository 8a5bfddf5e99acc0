"""Vectors that an encoder has made.

Large files stay on disk: rows of ``.npy``, ``.fvecs`` and uncompressed ``.npz`` files are read when
they are needed.
"""

import mmap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.data.features import are_features
from channelhash.data.label_arrays import row_ids
from channelhash.data.records import Problems
from channelhash.data.table import TABLE_ENDINGS
from channelhash.errors import InputError, argument, naming
from channelhash.utils.array_files import ENDINGS, IDS, LABELS, FileArrays, has_numbers, open_arrays
from channelhash.utils.decode import json_lines

#: Endings of the files of one array, which has no name.
_UNNAMED = (".npy", ".fvecs")
#: Rows that are read at a time, which bounds memory.
_ROWS = 8192

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Vectors:
    """``n`` vectors of one encoder.

    Attributes:
        ids: ``n`` ids; numbers of rows where the file has none.
        stored: the array of the file, ``(m, d)`` of any numeric type, perhaps not in memory.
        rows: the ``n`` usable rows of it; None if all are.
        columns: name -> ``n`` further values of a table.
        problems: a line for each row that was left out.
        numbered: whether the ids are the numbers of the rows.

    >>> vectors = Vectors.of(np.eye(3, dtype=np.float64))
    >>> len(vectors), vectors.width, vectors[1:].tolist()
    (3, 3, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """

    ids: tuple[str, ...]
    stored: NDArray[Any]
    rows: NDArray[np.int64] | None = None
    columns: Mapping[str, Sequence[Any]] | None = None
    problems: tuple[str, ...] = ()
    numbered: bool = False

    @classmethod
    def of(cls, values: NDArray[Any], ids: Sequence[str] | None = None) -> "Vectors":
        """Take an array ``(n, d)`` as it is.

        Raises:
            InputError: it is not a matrix of real numbers, or has another number of ids.
        """
        problem = _shape_problem(values)
        if problem:
            raise InputError(f"vectors: {problem}")
        names = tuple(map(str, range(len(values)))) if ids is None else tuple(ids)
        if len(names) != len(values):
            raise InputError(f"ids: {len(names)} of them for {len(values)} vectors")
        return cls(names, values)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def width(self) -> int:
        """Numbers a vector, d."""
        return int(self.stored.shape[1])

    def __getitem__(self, rows: Any) -> _Floats:
        """Return the vectors of a slice or of row numbers as float32 ``(n, d)``."""
        _release(self.stored)
        chosen = rows if self.rows is None else self.rows[rows]
        with np.errstate(over="ignore"):  # infinite ones are named by `load_vectors`
            return np.asarray(self.stored[chosen], np.float32)

    def blocks(self, size: int = _ROWS) -> Iterator[_Floats]:
        """Yield all vectors in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def take(self, rows: NDArray[np.int64]) -> "Vectors":
        """Return the vectors of some rows, in that order."""
        columns = None
        if self.columns is not None:
            columns = {}
            for name, values in self.columns.items():
                columns[name] = [values[row] for row in rows.tolist()]
        stored_rows = rows if self.rows is None else self.rows[rows]
        ids = tuple(self.ids[row] for row in rows.tolist())
        return replace(self, ids=ids, rows=stored_rows, columns=columns)


def _release(stored: NDArray[Any]) -> None:
    """Give back the memory of those rows of a mapped file that were read before; rows that someone
    still holds are read again. Where the system cannot, it takes the memory when it is short.
    """
    mapped = getattr(stored, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def load_vectors(
    path: Path, array: str | None = None, ids: Path | None = None, skip_bad: bool = False
) -> Vectors:
    """Read vectors ``(n, d)``, or one ``(d,)`` in a ``.npy`` file, with ids and further columns
    where the file has them.

    Args:
        path: a file with an ending of `array_files.ENDINGS`.
        array: name of the array or column, where several could be meant.
        ids: text file of ids, one a line. By default those of the array or column ``id``; else the
            numbers of the rows.
        skip_bad: leave out bad rows, and list them.

    Raises:
        InputError: the file is missing or damaged, has no array of vectors or several, or another
            number of ids, or an id twice; or a row is bad: zero, not finite, too large for
            float32, missing or of another width.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "vectors.npy")
    ...     np.save(file, np.eye(3)[:2])
    ...     load_vectors(file).ids
    ('0', '1')
    """
    ending = path.suffix.lower()
    with naming(path), open_arrays(path) as arrays:
        if array is not None and ending in _UNNAMED:
            raise InputError(f"holds one array, without a name; leave {argument('array')} out")
        chosen = _choose(arrays, array)
        values = arrays.peek(chosen, in_place=True)
        if values.ndim == 1 and ending in _UNNAMED:
            values = values[None]  # one vector alone
        problem = _shape_problem(values)
        if problem:
            raise InputError(problem)
        names = row_ids(arrays, len(values), ids)
        columns = _further_columns(arrays) if ending in TABLE_ENDINGS else None
        numbers = tuple(map(str, range(len(values))))
        vectors = Vectors(names or numbers, values, None, columns, numbered=names is None)
    return _usable(vectors, arrays.problems.get(chosen, {}), path, skip_bad)


def content_of(path: Path) -> Literal["vectors", "features", "table"]:
    """Return what a file holds: vectors that are not said to be of images or texts, features that
    are, or a table of images or texts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rows.jsonl")
    ...     _ = file.write_text('{"id": "a", "image": [1, 0.5]}')
    ...     content_of(file), content_of(Path("rows.csv"))
    ('features', 'table')
    """
    ending = path.suffix.lower()
    other: Literal["features", "table"] = "table"
    if ending in ENDINGS and ending not in TABLE_ENDINGS:
        other = "features"
    if ending not in ENDINGS or not path.is_file():
        return other
    names, vectors = _names_in(path)
    if are_features(vectors):
        return "features"
    is_described = {"image", "text"} & set(names) if other == "table" else are_features(names)
    return "vectors" if vectors and not is_described else other


def _names_in(path: Path) -> tuple[Collection[str], list[str]]:
    """Return the names of the arrays or columns of a file, and of those that may be vectors."""
    if path.suffix.lower() == ".jsonl":
        columns = _first_columns(path)
        return columns, [name for name in columns if columns[name]]
    with open_arrays(path) as arrays:
        return list(arrays), arrays.vectors


def _first_columns(path: Path) -> dict[str, bool]:
    """Return whether the columns of a file of JSON lines may be vectors, up to the first line that
    says what the file holds.
    """
    columns: dict[str, bool] = {}
    for _, row in json_lines(path):
        for name, cell in row.items() if isinstance(row, dict) else ():
            if cell:
                columns[name] = has_numbers(cell) and name not in LABELS
        if any(columns.values()) or {"image", "text"} & columns.keys():
            break
    return columns


def _further_columns(arrays: FileArrays) -> dict[str, list[Any]]:
    """Return the columns of a table that are neither vectors nor ids."""
    others = [name for name in arrays if name not in (*arrays.vectors, *IDS)]
    return {name: arrays[name].tolist() for name in others}


def _choose(arrays: FileArrays, named: str | None) -> str:
    """Return the name of the one array or column of vectors."""
    if named is not None and named not in arrays:
        raise InputError(f"has no array {named!r}; it has {', '.join(sorted(arrays))}")
    if named is not None:
        return named
    if len(arrays.vectors) == 1:
        return arrays.vectors[0]
    if arrays.vectors:
        raise InputError(
            f"has several arrays of vectors: {', '.join(sorted(arrays.vectors))}; name one with "
            f"{argument('array')}"
        )
    raise InputError(f"has no array of vectors; it has {', '.join(sorted(arrays)) or 'nothing'}")


def _shape_problem(values: NDArray[Any]) -> str | None:
    """Return why an array holds no vectors."""
    if values.ndim != 2 or 0 in values.shape:
        return f"holds an array {values.shape}, expected vectors (n, d), a row each"
    if values.dtype.kind not in "fiu":
        return f"holds {values.dtype.name}, expected real numbers"
    return None


def _usable(vectors: Vectors, bad: Mapping[int, str], path: Path, skip_bad: bool) -> Vectors:
    """Return the vectors without bad rows, or refuse the first of them."""
    problems = dict(bad)
    start = 0
    for block in vectors.blocks():
        for row, problem in _row_problems(block):
            problems.setdefault(start + row, problem)
        start += len(block)
    if not problems:
        return vectors
    listed = Problems(skip_bad)
    good = listed.usable(problems, vectors.ids, path, "bad vector")
    return replace(vectors.take(good), problems=tuple(listed.lines))


def _row_problems(block: _Floats) -> Iterator[tuple[int, str]]:
    """Yield number and problem of each bad row."""
    for row in np.flatnonzero(~np.isfinite(block).all(axis=1)).tolist():
        yield row, "is not finite, or too large for float32"
    for row in np.flatnonzero(~block.any(axis=1)).tolist():
        yield row, "is zero, which is near nothing"
