"""Vectors that an encoder has made.

Large files stay on disk: rows of ``.npy``, ``.fvecs`` and uncompressed ``.npz`` files are read when
they are needed.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.features import are_features
from channelhash.data.label_arrays import first_repeated
from channelhash.data.records import Problems
from channelhash.data.table import TABLE_ENDINGS
from channelhash.data.vector_files import FORMATS, VectorFile, describes_items
from channelhash.errors import InputError, argument, naming
from channelhash.utils.decode import read_text, split_lines

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
    """Read vectors ``(n, d)``, with ids and further columns where the file has them.

    Args:
        path: a file with an ending of `vector_files.FORMATS`.
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
    if not path.exists():
        raise InputError(f"{path}: no such file")
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise InputError(f"{path}: a file of vectors ends in {', '.join(FORMATS)}")
    with naming(path):
        if array is not None and form.names is None:
            raise InputError(f"holds one array, without a name; leave {argument('array')} out")
        file = form.read(path, array)
        problem = _shape_problem(file.values)
        if problem:
            raise InputError(problem)
        names = _names(file, ids)
        numbered = ids is None and file.ids is None
        vectors = Vectors(names, file.values, None, file.columns, numbered=numbered)
    return _usable(vectors, file.bad, path, skip_bad)


def holds_vectors(path: Path) -> bool:
    """Return whether a file holds vectors that are not said to be of images or texts, and neither
    images nor texts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "vectors.npy")
    ...     np.save(file, np.eye(3))
    ...     holds_vectors(file), holds_vectors(Path(folder))
    (True, False)
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None or not path.is_file():
        return False
    if form.names is None:
        return True
    with naming(path):
        arrays = form.names(path)
    if path.suffix.lower() in TABLE_ENDINGS:
        is_described = describes_items(arrays)
    else:
        is_described = are_features(arrays)
    return not is_described and any(arrays.values())


def _shape_problem(values: NDArray[Any]) -> str | None:
    """Return why an array holds no vectors."""
    if values.ndim != 2 or not values.size:
        return f"holds an array {values.shape}, expected vectors (n, d), a row each"
    if values.dtype.kind not in "fiu":
        return f"holds {values.dtype.name}, expected real numbers"
    return None


def _names(file: VectorFile, ids: Path | None) -> tuple[str, ...]:
    """Return the ids of all rows."""
    n = len(file.values)
    names = file.ids
    if ids is not None:
        names = [line for line in split_lines(read_text(ids)) if line]
    if names is None:
        return tuple(map(str, range(n)))
    if len(names) != n:
        raise InputError(f"has {n} vectors, but there are {len(names)} ids")
    repeated = first_repeated(names)
    if repeated is not None:
        raise InputError(f"several vectors have the id {repeated!r}")
    return tuple(names)


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
    remedy = f"mend such rows, {len(problems)} in all, or leave them out with "
    for row, problem in sorted(problems.items()):
        line = f"{path}, row {row} (id {vectors.ids[row]}): {problem}"
        listed.add(line, remedy + argument("skip_bad"), problem)
    good = np.setdiff1d(np.arange(len(vectors)), list(problems))
    if not len(good):
        raise InputError(f"{listed.lines[-1]}; none of the {len(vectors)} vectors can be used")
    return replace(vectors.take(good), problems=tuple(listed.lines))


def _row_problems(block: _Floats) -> Iterator[tuple[int, str]]:
    """Yield number and problem of each bad row."""
    for row in np.flatnonzero(~np.isfinite(block).all(axis=1)).tolist():
        yield row, "is not finite, or too large for float32"
    for row in np.flatnonzero(~block.any(axis=1)).tolist():
        yield row, "is zero, which is near nothing"
