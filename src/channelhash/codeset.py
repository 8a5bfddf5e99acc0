"""A set of hash codes with ids and labels, in memory and as a Parquet file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.errors import InputError
from channelhash.files import atomic_path

_FORMAT = "channelhash codes 1"


@dataclass(frozen=True)
class CodeSet:
    """``n`` items and their codes.

    Attributes:
        ids: ``n`` names.
        codes: modality -> packed codes ``(n, ceil(n_bits / 8))`` uint8.
        labels: ``(n, c)`` bool, or None for unlabelled items.
        n_bits: code length k.
        label_names: ``c`` names, or empty.
        texts: ``n`` texts to show, or None.
        images: ``n`` picture paths to show, or None.
        model: fingerprint of the model that made the codes, empty if unknown; only codes of one model are comparable.

    Raises:
        ValueError: on lengths or shapes that do not fit together.
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
        n = len(self.ids)
        if not self.codes:
            raise ValueError("a code set has the codes of at least one modality")
        for modality, packed in self.codes.items():
            check_packed(packed, self.n_bits)
            if len(packed) != n:
                raise ValueError(f"{len(packed)} {modality} codes for {n} ids")
        if self.labels is not None and (self.labels.ndim != 2 or len(self.labels) != n):
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
        """The items of ``rows``, in that order."""
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
        """The label names of one item; empty if the names or the labels are not known."""
        if self.labels is None or not self.label_names:
            return []
        return [name for name, has in zip(self.label_names, self.labels[row], strict=True) if has]

    def save(self, path: str | Path) -> None:
        """Write a Parquet file in one step.

        Columns: ``id``; ``code_<modality>`` (binary of fixed size); ``labels`` (list of label numbers);
        ``text``; ``image``. The schema's metadata holds n_bits, number and names of labels, and the model.
        """
        width = -(-self.n_bits // 8)
        columns: dict[str, pa.Array] = {"id": pa.array([str(name) for name in self.ids], pa.string())}
        for modality, packed in self.codes.items():
            data = pa.py_buffer(np.ascontiguousarray(packed).tobytes())
            columns[f"code_{modality}"] = pa.Array.from_buffers(pa.binary(width), len(packed), [None, data])
        if self.labels is not None:
            numbers = [np.flatnonzero(row).astype(np.int32) for row in self.labels]
            columns["labels"] = pa.array(numbers, pa.list_(pa.int32()))
        if self.texts is not None:
            columns["text"] = pa.array(list(self.texts), pa.string())
        if self.images is not None:
            columns["image"] = pa.array([str(image) for image in self.images], pa.string())
        description = {
            "n_bits": self.n_bits,
            "n_labels": None if self.labels is None else self.labels.shape[1],
            "label_names": list(self.label_names),
            "model": self.model,
        }
        metadata = {"channelhash.format": _FORMAT, "channelhash": json.dumps(description)}
        table = pa.table(columns).replace_schema_metadata(metadata)
        with atomic_path(Path(path)) as temporary:
            pq.write_table(table, temporary)

    @classmethod
    def load(cls, path: str | Path) -> "CodeSet":
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing, truncated, or not a file of codes.
        """
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file of codes") from None
        except (pa.ArrowException, OSError) as error:
            first = " ".join(str(error).split())
            raise InputError(
                f"{path}: not a readable Parquet file, perhaps truncated ({first}); encode again"
            ) from None
        metadata = table.schema.metadata or {}
        if metadata.get(b"channelhash.format") != _FORMAT.encode():
            raise InputError(f"{path}: a Parquet file, but not one of codes (written by `channelhash encode`)")
        description = json.loads(metadata[b"channelhash"])
        width = -(-description["n_bits"] // 8)
        codes = {
            name.removeprefix("code_"): _fixed_binary(table.column(name), width)
            for name in table.column_names
            if name.startswith("code_")
        }
        labels = None
        if "labels" in table.column_names:
            labels = _label_matrix(table.column("labels"), description["n_labels"])
        try:
            return cls(
                table.column("id").to_pylist(),
                codes,
                labels,
                description["n_bits"],
                tuple(description["label_names"]),
                table.column("text").to_pylist() if "text" in table.column_names else None,
                table.column("image").to_pylist() if "image" in table.column_names else None,
                description["model"],
            )
        except (ValueError, KeyError) as error:
            raise InputError(f"{path}: {error}") from None


def _fixed_binary(column: pa.ChunkedArray, width: int) -> PackedCodes:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    data = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
    start = array.offset * width
    return data[start : start + len(array) * width].reshape(len(array), width)


def _label_matrix(column: pa.ChunkedArray, n_labels: int) -> NDArray[np.bool_]:
    labels = np.zeros((len(column), n_labels), dtype=bool)
    row = 0
    for chunk in column.chunks:
        offsets = chunk.offsets.to_numpy()
        rows = np.repeat(np.arange(row, row + len(chunk)), np.diff(offsets))
        labels[rows, chunk.values.to_numpy()[offsets[0] : offsets[-1]]] = True
        row += len(chunk)
    return labels
