"""Read files of vectors as items to index: a modality of their own, which needs no encoder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.data.cells import join_captions, split_labels, text_of
from channelhash.data.records import VECTOR, Records
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.indexing.columns import value_of
from channelhash.indexing.source import Source
from channelhash.search.checks import key_problem
from channelhash.search.items import Value


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
    for name, cells in (vectors.columns or {}).items():
        try:
            values = _values_of(path, name, cells)
        except ValueError as error:
            problems.append(f"{path}: the column {name!r} is left out: {error}")
            continue
        for row, value in enumerate(values):
            if value is not None:
                metadata[row][name] = value
    items = vectors.stored if vectors.rows is None else vectors.stored[vectors.rows]
    labels = np.zeros((len(vectors), 0), dtype=bool)
    records = Records(vectors.ids, {VECTOR: items}, labels, (), problems=tuple(problems))
    return Source(records, metadata, numbered=path if vectors.numbered else None)


def _values_of(path: Path, name: str, cells: Sequence[Any]) -> list[Value]:
    """Return the values of a column as `Hit` and the other tables mean them. Raise ValueError if
    its name cannot be a key, or a store cannot keep one of them.
    """
    problem = key_problem(name.strip())
    if problem:
        raise ValueError(problem)
    if name == "labels":
        return [split_labels(cell) or None for cell in cells]
    if name == "text":
        return [join_captions(cell) or None for cell in cells]
    if name == "image":
        files = map(text_of, cells)
        return [os.path.abspath(path.parent / file) if file else None for file in files]
    return list(map(value_of, cells))
