"""Hash codes as bits: binarise, pack, measure; and sets of them with ids and labels, in memory and
as Parquet files.

This is the one place that knows the bit order. Packed codes are ``uint8`` rows of ``ceil(k / 8)``
bytes: bit ``j`` of a code is bit ``7 - j % 8`` of byte ``j // 8`` (most significant first, as
`numpy.packbits` writes them), and the bits past ``k`` are 0.
"""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    import torch

    from channelhash.utils.addresses import Place

__all__ = [
    "CodeSet",
    "binarize",
    "hamming_distances",
    "pack",
    "unpack",
]

PackedCodes = NDArray[np.uint8]
#: Bits ``(n, k)`` or label sets ``(n, c)``.
Booleans = NDArray[np.bool_]


def __dir__() -> list[str]:
    return sorted(__all__)


def binarize(outputs: "NDArray[Any] | torch.Tensor") -> Booleans:
    """Turn real-valued model outputs into bits: ``True`` where ``>= 0``, so sign(0) = +1
    (``protocol.md`` § 4).

    Args:
        outputs: ``(n, k)`` floats, an array or a tensor on any device.

    Returns:
        ``(n, k)`` bool.

    Raises:
        ValueError: an output is NaN; a code made of it would look valid and mean nothing.

    >>> binarize(np.array([[0.3, -0.1, 0.0, -0.0]]))
    array([[ True, False,  True,  True]])
    """
    values = _to_numpy(outputs)
    bad = np.isnan(values)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"{int(bad.any(axis=-1).sum())} of {len(values)} outputs are NaN, the first in row "
            f"{row}"
        )
    return np.asarray(values >= 0)


def pack(bits: "NDArray[Any] | torch.Tensor") -> PackedCodes:
    """Pack bits into codes.

    Args:
        bits: ``(n, k)`` bool, or 0/1 integers; any ``k >= 1``.

    Returns:
        ``(n, ceil(k / 8))`` uint8, padding bits 0.

    >>> pack(np.array([[True, False, False, False, False, False, False, True, True]]))
    array([[129, 128]], dtype=uint8)
    """
    values = _to_numpy(bits)
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(f"bits are an (n, k) array with k >= 1, not {values.shape}")
    if values.dtype != np.bool_ and not np.isin(values, (0, 1)).all():
        raise ValueError(
            "bits are Booleans or 0 and 1; turn real-valued outputs into bits with `binarize` first"
        )
    return np.packbits(values.astype(bool), axis=1)


def unpack(packed: PackedCodes, n_bits: int) -> Booleans:
    """Unpack codes ``(n, ceil(n_bits / 8))`` into bits ``(n, n_bits)`` bool.

    >>> unpack(np.array([[160]], np.uint8), n_bits=3).tolist()
    [[True, False, True]]
    """
    check_packed(packed, n_bits)
    return np.unpackbits(packed, axis=1, count=n_bits).astype(bool)


def hamming_distances(queries: PackedCodes, database: PackedCodes) -> NDArray[np.int64]:
    """Count the differing bits of every query and every database code.

    Args:
        queries: ``(nq, b)`` packed codes.
        database: ``(nd, b)`` packed codes.

    Returns:
        ``(nq, nd)`` int64. This is the whole matrix: for counts or nearest codes over a large
        database use `channelhash.metrics.hamming_histogram` or `channelhash.search`, which never
        build it.

    >>> hamming_distances(np.array([[0]], np.uint8), np.array([[0], [7]], np.uint8)).tolist()
    [[0, 3]]
    """
    if queries.ndim != 2 or database.ndim != 2 or queries.shape[1] != database.shape[1]:
        raise ValueError(
            f"codes differ in length: {queries.shape} queries, {database.shape} database, as (n, "
            "bytes)"
        )
    query_words = words(queries)
    database_words = words(database)
    distances = np.zeros((len(queries), len(database)), dtype=np.int64)
    # one 64-bit word at a time keeps the extra memory at one (nq, nd) array
    for column in range(query_words.shape[1]):
        distances += np.bitwise_count(
            query_words[:, column, None] ^ database_words[None, :, column]
        )
    return distances


def words(packed: PackedCodes) -> NDArray[np.uint64]:
    """Return packed codes as 64-bit words ``(n, ceil(bytes / 8))``, zero-padded: distances stay the
    same.

    >>> words(np.array([[1, 1]], np.uint8)).tolist()
    [[257]]
    """
    n, n_bytes = packed.shape
    n_words = max(1, -(-n_bytes // 8))
    if n_bytes == 8 * n_words:
        return np.ascontiguousarray(packed).view(np.uint64)
    padded = np.zeros((n, 8 * n_words), dtype=np.uint8)
    padded[:, :n_bytes] = packed
    return padded.view(np.uint64)


def check_packed(packed: PackedCodes, n_bits: int) -> None:
    """Raise ``ValueError`` unless ``packed`` can hold codes of ``n_bits`` bits: uint8, 2-d, width,
    zero padding.

    >>> check_packed(np.array([[255]], np.uint8), n_bits=8)
    """
    if n_bits < 1:
        raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
    expected = -(-n_bits // 8)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != expected:
        raise ValueError(
            f"codes of {n_bits} bits are (n, {expected}) uint8, not {packed.shape} {packed.dtype}"
        )
    if n_bits % 8 and len(packed) and (packed[:, -1] & ((1 << (8 - n_bits % 8)) - 1)).any():
        raise ValueError(
            f"bits past the {n_bits}th are set; these codes are longer or packed in another bit "
            "order"
        )


def _to_numpy(values: Any) -> NDArray[Any]:
    """Return a tensor (any device or dtype), a list or an array as a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return np.asarray(
            values.numpy() if not values.dtype.is_floating_point else values.double().numpy()
        )
    return np.asarray(values)


def unit_rows(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return rows of length 1; rows of zeros stay."""
    rows = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))


@dataclass(frozen=True)
class CodeSet:
    """``n`` items and their codes.

    Columns may be given as any sequence and are kept as tuples of str, the same before `save` and
    after `load`.

    Attributes:
        ids: ``n`` names, not necessarily different.
        codes: modality -> packed codes ``(n, ceil(n_bits / 8))`` uint8.
        labels: ``(n, c)`` bool (0 and 1 are taken too), or None for unlabelled items.
        n_bits: code length k.
        label_names: ``c`` names, or empty.
        texts: ``n`` texts to show, or None.
        images: ``n`` image paths to show, or None.
        model: fingerprint of the model that made the codes, empty if unknown; only codes of one
            model are comparable.

    Raises:
        ValueError: on lengths or shapes that do not fit together.

    >>> packed = {"image": np.array([[0], [7]], np.uint8)}
    >>> codes = CodeSet(["a", "b"], packed, np.eye(2), 8, ("cat", "dog"))
    >>> codes.take([1]).ids, codes.names_of(1)
    (('b',), ['dog'])
    """

    ids: Sequence[str]
    codes: dict[str, PackedCodes]
    labels: Booleans | None
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
        if not self.codes:
            raise ValueError("a code set has the codes of at least one modality")
        for modality, packed in self.codes.items():
            check_packed(packed, self.n_bits)
            self._check_length(f"{modality} codes", packed)
        self._check_length("texts", self.texts)
        self._check_length("images", self.images)
        n_labels = 0
        if self.labels is not None:
            object.__setattr__(self, "labels", boolean_labels(self.labels))
            if len(self.labels) != len(self):
                raise ValueError(f"labels are (n, c) with n = {len(self)}, not {self.labels.shape}")
            n_labels = self.labels.shape[1]
        if len(self.label_names) not in (0, n_labels):
            raise ValueError(f"{len(self.label_names)} label names do not fit the labels")

    def _check_length(self, what: str, column: Sized | None) -> None:
        if column is not None and len(column) != len(self):
            raise ValueError(f"{len(column)} {what} for {len(self)} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> "CodeSet":
        """Return the items of ``rows``, in that order."""
        index = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            ids=[self.ids[i] for i in index],
            codes={modality: packed[index] for modality, packed in self.codes.items()},
            labels=None if self.labels is None else self.labels[index],
            texts=self.texts and [self.texts[i] for i in index],
            images=self.images and [self.images[i] for i in index],
        )

    @classmethod
    def join(cls, parts: Sequence["CodeSet"]) -> "CodeSet":
        """Join the items of ``parts``, at least one, in order.

        All have the same labels, names and model, and all or none have texts. If some have image
        paths, the others get empty ones.

        >>> codes = CodeSet(["a"], {"image": np.array([[7]], np.uint8)}, None, n_bits=8)
        >>> CodeSet.join([codes, codes]).ids
        ('a', 'a')
        """
        first = parts[0]
        codes = {}
        for modality in first.codes:
            codes[modality] = np.concatenate([part.codes[modality] for part in parts])
        labels = [part.labels for part in parts if part.labels is not None]
        return replace(
            first,
            ids=_concatenate([part.ids for part in parts]),
            codes=codes,
            labels=np.concatenate(labels) if labels else None,
            texts=None if first.texts is None else _concatenate([part.texts for part in parts]),
            images=_join_images(parts),
        )

    def names_of(self, row: int) -> list[str]:
        """Return the label names of one item; empty if the names or the labels are not known."""
        if self.labels is None or not self.label_names:
            return []
        return [name for name, has in zip(self.label_names, self.labels[row], strict=True) if has]

    def save(self, path: "str | Place") -> None:
        """Write a Parquet file in one step, here or at an address such as
        ``s3://bucket/codes.parquet``.

        Columns: ``id``; ``code_<modality>`` (binary of fixed size); ``labels`` (list of label
        numbers); ``text``; ``image``. The schema's metadata holds n_bits, number and names of
        labels, the model, and checksums of the columns and of itself; pages have their own.
        """
        with naming_extra():  # PyArrow, which codes in memory and in stores do not need
            from channelhash.codes.parquet import write_codes
        write_codes(self, path)

    @classmethod
    def load(cls, path: "str | Place") -> "CodeSet":
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing, damaged, or not a file of codes.
        """
        (codes,) = cls.stream(path)
        return codes

    @classmethod
    def stream(cls, path: "str | Place", rows: int | None = None) -> Iterator["CodeSet"]:
        """Load in parts of at most ``rows`` rows, in order; None is one part.

        Memory does not grow with the file.

        Raises:
            InputError: as `load`; damage further down is found when it is read.
        """
        with naming_extra():
            from channelhash.codes.parquet import read_codes
        return read_codes(path, rows)


def _concatenate(columns: Sequence[Sequence[str] | None]) -> list[str]:
    return list(chain.from_iterable(column or () for column in columns))


def _join_images(parts: Sequence[CodeSet]) -> list[str] | None:
    if not any(part.images for part in parts):
        return None
    return _concatenate([part.images or [""] * len(part) for part in parts])


def boolean_labels(labels: Any) -> Booleans:
    """Convert label sets ``(n, c)`` of bool or of 0 and 1 to bool.

    >>> boolean_labels([[1, 0]]).tolist()
    [[True, False]]
    """
    values = np.asarray(labels)
    if values.ndim != 2:
        raise ValueError(f"labels are (n, c), not {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"labels are bool or 0 and 1, not {values.dtype}")
    if values.dtype == np.bool_:
        return values
    wrong = np.argwhere((values != 0) & (values != 1))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ValueError(
            f"labels are bool or 0 and 1, not {values[row, column]} (row {row}, column {column})"
        )
    return np.asarray(values, dtype=np.bool_)
