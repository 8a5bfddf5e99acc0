"""A set of hash codes with ids and labels, in memory and as a Parquet file."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.codes.column_checksums import ColumnChecksum, column_checksums
from channelhash.errors import InputError
from channelhash.utils.checked_json import dump_checked, load_checked
from channelhash.utils.files import atomic_path
from channelhash.utils.reading import reading

_FORMAT = "channelhash codes 1"


@dataclass(frozen=True)
class CodeSet:
    """``n`` items and their codes.

    Columns may be given as any sequence and are kept as tuples of str, the same before `save` and after `load`.

    Attributes:
        ids: ``n`` names, not necessarily different.
        codes: modality -> packed codes ``(n, ceil(n_bits / 8))`` uint8.
        labels: ``(n, c)`` bool (0 and 1 are taken too), or None for unlabelled items.
        n_bits: code length k.
        label_names: ``c`` names, or empty.
        texts: ``n`` texts to show, or None.
        images: ``n`` picture paths to show, or None.
        model: fingerprint of the model that made the codes, empty if unknown; only codes of one model are comparable.

    Raises:
        ValueError: on lengths or shapes that do not fit together.

    >>> codes = CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, np.eye(2), 8, ("cat", "dog"))
    >>> codes.take([1]).ids, codes.names_of(1)
    (('b',), ['dog'])
    """

    ids: Sequence[str]
    codes: dict[str, PackedCodes]
    labels: NDArray[np.bool_] | None
    n_bits: int
    label_names: tuple[str, ...] = ()
    texts: Sequence[str] | None = None
    images: Sequence[str] | None = None
    model: str = ""

    def __post_init__(self) -> None:
        for name in ("ids", "label_names", "texts", "images"):
            column = getattr(self, name)
            if column is not None:
                object.__setattr__(self, name, tuple(str(value) for value in column))
        n = len(self.ids)
        if not self.codes:
            raise ValueError("a code set has the codes of at least one modality")
        for modality, packed in self.codes.items():
            check_packed(packed, self.n_bits)
            if len(packed) != n:
                raise ValueError(f"{len(packed)} {modality} codes for {n} ids")
        if self.labels is not None:
            object.__setattr__(self, "labels", boolean_labels(self.labels))
            if len(self.labels) != n:
                raise ValueError(f"labels are (n, c) with n = {n}, not {self.labels.shape}")
        if self.label_names and (self.labels is None or len(self.label_names) != self.labels.shape[1]):
            raise ValueError(f"{len(self.label_names)} label names do not fit the labels")
        for name in ("texts", "images"):
            column = getattr(self, name)
            if column is not None and len(column) != n:
                raise ValueError(f"{len(column)} {name} for {n} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> "CodeSet":
        """Return the items of ``rows``, in that order."""
        index = np.asarray(rows, dtype=np.int64)
        return CodeSet(
            [self.ids[i] for i in index],
            {modality: packed[index] for modality, packed in self.codes.items()},
            None if self.labels is None else self.labels[index],
            self.n_bits,
            self.label_names,
            None if self.texts is None else [self.texts[i] for i in index],
            None if self.images is None else [self.images[i] for i in index],
            self.model,
        )

    def names_of(self, row: int) -> list[str]:
        """Return the label names of one item; empty if the names or the labels are not known."""
        if self.labels is None or not self.label_names:
            return []
        return [name for name, has in zip(self.label_names, self.labels[row], strict=True) if has]

    def save(self, path: str | Path) -> None:
        """Write a Parquet file in one step.

        Columns: ``id``; ``code_<modality>`` (binary of fixed size); ``labels`` (list of label numbers);
        ``text``; ``image``. The schema's metadata holds n_bits, number and names of labels, the model, and checksums of
        the columns and of itself; pages have their own.
        """
        width = -(-self.n_bits // 8)
        columns: dict[str, pa.Array] = {"id": pa.array(self.ids, pa.string())}
        for modality, packed in self.codes.items():
            data = pa.py_buffer(np.ascontiguousarray(packed).tobytes())
            columns[f"code_{modality}"] = pa.Array.from_buffers(pa.binary(width), len(packed), [None, data])
        if self.labels is not None:
            ends = np.concatenate([[0], np.cumsum(self.labels.sum(axis=1))]).astype(np.int32)
            columns["labels"] = pa.ListArray.from_arrays(ends, np.nonzero(self.labels)[1].astype(np.int32))
        if self.texts is not None:
            columns["text"] = pa.array(self.texts, pa.string())
        if self.images is not None:
            columns["image"] = pa.array(self.images, pa.string())
        table = pa.table(columns)
        description = {
            "n_bits": self.n_bits,
            "n_labels": None if self.labels is None else self.labels.shape[1],
            "label_names": list(self.label_names),
            "model": self.model,
            "columns": column_checksums(table),
        }
        metadata = {"channelhash.format": _FORMAT, "channelhash": dump_checked(description)}
        with atomic_path(Path(path)) as temporary:
            pq.write_table(table.replace_schema_metadata(metadata), temporary, write_page_checksum=True)

    @classmethod
    def load(cls, path: str | Path) -> "CodeSet":
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing, damaged, or not a file of codes. A file of version 0.1 has no checksums.
        """
        with _open(path) as (file, description):
            table = file.read()
            codes = _from_table(table, description)
            _check_columns(description, _checksums(table, description, {}))
            return codes

    @classmethod
    def stream(cls, path: str | Path, rows: int) -> Iterator["CodeSet"]:
        """Load in parts of at most so many rows, in order: memory does not grow with the file.

        Raises:
            InputError: as `load`; damage further down is found when it is read.
        """
        with _open(path) as (file, description):
            found = _checksums(file.schema_arrow.empty_table(), description, {})
            for batch in file.iter_batches(rows):
                table = pa.Table.from_batches([batch])
                yield _from_table(table, description)
                found = _checksums(table, description, found)
            _check_columns(description, found)


def joined(parts: Sequence[CodeSet]) -> CodeSet:
    """Join the items of ``parts``, in order; at least one part, all of the same columns, names and model.

    >>> codes = CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8)
    >>> joined([codes, codes]).ids
    ('a', 'a')
    """
    first = parts[0]
    labels, texts, images = ([getattr(part, name) for part in parts] for name in ("labels", "texts", "images"))
    return CodeSet(
        list(chain.from_iterable(part.ids for part in parts)),
        {modality: np.concatenate([part.codes[modality] for part in parts]) for modality in first.codes},
        None if first.labels is None else np.concatenate(labels),
        first.n_bits,
        first.label_names,
        None if first.texts is None else list(chain.from_iterable(texts)),
        None if first.images is None else list(chain.from_iterable(images)),
        first.model,
    )


@contextmanager
def _open(path: str | Path) -> Iterator[tuple[pq.ParquetFile, dict[str, Any]]]:
    """Open a file of codes and the description in its metadata; raise `InputError` that names what is wrong."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file of codes")
    with (
        reading(path, "not a readable file of codes, perhaps truncated", "encode again"),
        pq.ParquetFile(path, page_checksum_verification=True) as file,
    ):
        metadata = file.schema_arrow.metadata or {}
        written_as = metadata.get(b"channelhash.format", b"").decode(errors="replace")
        if not written_as.startswith("channelhash codes "):
            raise InputError(f"{path}: a Parquet file, but not one of codes (written by `channelhash encode`)")
        if written_as != _FORMAT:
            raise InputError(f"{path}: written as {written_as!r}, this version reads {_FORMAT!r}; encode again")
        with reading(path, "the description in its metadata is damaged", "encode again"):
            description = dict(json.loads(metadata.get(b"channelhash", b"")))
            if "columns" in description or "checksum" in description:
                description = load_checked(metadata[b"channelhash"].decode())
        yield file, description


def _checksums(
    table: pa.Table, description: dict[str, Any], before: dict[str, ColumnChecksum]
) -> dict[str, ColumnChecksum]:
    """Return the checksums of the rows so far; of a file of version 0.1 none."""
    return column_checksums(table, before) if "columns" in description else {}


def _check_columns(description: dict[str, Any], found: dict[str, ColumnChecksum]) -> None:
    expected = description.get("columns", {})
    if names := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        raise ValueError(f"damaged: the column {names[0]} is not as it was written")


def is_code_file(path: Path) -> bool:
    """Return whether a file is one of codes by what its head says; `CodeSet.load` says what is wrong with it.

    >>> is_code_file(Path("photos.csv"))
    False
    """
    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return b"channelhash.format" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def boolean_labels(labels: Any) -> NDArray[np.bool_]:
    """Convert label sets ``(n, c)`` of bool or of 0 and 1 to bool.

    Raises:
        ValueError: another shape, or other values: −1 for "no", or NaN, would count as a label that every item has.

    >>> boolean_labels([[1, 0]]).tolist()
    [[True, False]]
    """
    values = np.asarray(labels)
    if values.ndim != 2:
        raise ValueError(f"labels are (n, c), not {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"labels are bool or 0 and 1, not {values.dtype}")
    if values.dtype != np.bool_:
        wrong = np.argwhere((values != 0) & (values != 1))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise ValueError(f"labels are bool or 0 and 1, not {values[row, column]} (row {row}, column {column})")
    return values.astype(bool, copy=False)


def _from_table(table: pa.Table, description: dict[str, Any]) -> CodeSet:
    """Return the set in a table of our format; an error where the two do not fit together."""
    if "id" not in table.column_names:
        raise ValueError("the column id is missing")
    for name in table.column_names:
        if table.column(name).null_count:
            raise ValueError(f"the column {name} has empty cells")
    n_bits = description["n_bits"]
    texts, images = (
        table.column(name).to_pylist() if name in table.column_names else None for name in ("text", "image")
    )
    return CodeSet(
        table.column("id").to_pylist(),
        {
            name.removeprefix("code_"): _packed_codes(table.column(name), name, n_bits)
            for name in table.column_names
            if name.startswith("code_")
        },
        _label_matrix(table.column("labels"), description["n_labels"]) if "labels" in table.column_names else None,
        n_bits,
        tuple(description["label_names"]),
        texts,
        images,
        description["model"],
    )


def _packed_codes(column: pa.ChunkedArray, name: str, n_bits: int) -> PackedCodes:
    width = -(-n_bits // 8)
    if column.type != pa.binary(width):
        raise ValueError(f"the column {name} is {column.type}; codes of {n_bits} bits are {pa.binary(width)}")
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype=np.uint8, count=len(chunk) * width, offset=chunk.offset * width)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([*parts, np.empty(0, np.uint8)]).reshape(len(column), width)


def _label_matrix(column: pa.ChunkedArray, n_labels: int) -> NDArray[np.bool_]:
    if not pa.types.is_list(column.type) or not pa.types.is_integer(column.type.value_type):
        raise ValueError(f"the column labels is {column.type}; expected lists of label numbers")
    labels = np.zeros((len(column), n_labels), dtype=bool)
    row = 0
    for chunk in column.chunks:
        offsets = chunk.offsets.to_numpy()
        rows = np.repeat(np.arange(row, row + len(chunk)), np.diff(offsets))
        numbers = chunk.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
        if not ((numbers >= 0) & (numbers < n_labels)).all():
            raise ValueError(f"the column labels has numbers outside 0 … {n_labels - 1}")
        labels[rows, numbers] = True
        row += len(chunk)
    return labels
