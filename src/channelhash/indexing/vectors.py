"""Read files of vectors as items to index: a modality of their own, which needs no encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.data.records import VECTOR, Records
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.indexing.source import Source
from channelhash.search.checks import key_problem
from channelhash.search.items import Value

#: Largest whole number of metadata, and the largest opposite; others become texts.
_LARGEST = 2**63 - 1


def read_vectors(path: Path, array: str | None = None, ids: Path | None = None) -> Source:
    """Read vectors, with the other columns of their table as metadata; bad rows are left out and
    listed in ``records.problems``. Arguments and errors are those of `load_vectors`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rows.jsonl")
    ...     _ = file.write_text('{"id": "a", "embedding": [1, 0.5], "year": 2019}')
    ...     source = read_vectors(file)
    >>> source.records.ids, source.records.items["vector"].tolist(), source.metadata
    (('a',), [[1.0, 0.5]], [{'year': 2019}])
    """
    return source_of(load_vectors(path, array, ids, skip_bad=True), path)


def source_of(vectors: Vectors, path: Path) -> Source:
    """Return vectors that were read from a file as items."""
    problems = [*vectors.problems]
    metadata: list[dict[str, Value]] = [{} for _ in vectors.ids]
    for name, values in (vectors.columns or {}).items():
        problem = key_problem(name.strip())
        if problem:
            problems.append(f"{path}: a column is left out: {problem}")
            continue
        for row, value in enumerate(values):
            if value is not None:
                metadata[row][name] = _as_metadata(value)
    items = vectors.stored if vectors.rows is None else vectors.stored[vectors.rows]
    labels = np.zeros((len(vectors), 0), dtype=bool)
    records = Records(vectors.ids, {VECTOR: items}, labels, (), problems=tuple(problems))
    return Source(records, metadata, numbered=path if vectors.numbered else None)


def _as_metadata(value: Any) -> Value:
    """Return a cell as a value that every store can keep; what is of another type as its text."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return str(value)
    if isinstance(value, str | bool | int | float):
        return value
    if _is_texts(value):
        return list(value)
    return str(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, Sequence | Mapping) and all(isinstance(part, str) for part in value)
