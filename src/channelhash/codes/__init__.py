"""Hash codes as bits: binarise, pack, measure. The one place that knows the bit order.

Packed codes are ``uint8`` rows of ``ceil(k / 8)`` bytes: bit ``j`` of a code is bit ``7 - j % 8`` of byte ``j // 8``
(most significant first, as `numpy.packbits` writes them), and the bits past ``k`` are 0.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

PackedCodes = NDArray[np.uint8]


def binarize(outputs: "NDArray[Any] | torch.Tensor") -> NDArray[np.bool_]:
    """Turn real-valued model outputs into bits: ``True`` where ``>= 0``, so sign(0) = +1 (``protocol.md`` § 4).

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
        raise ValueError(f"{int(bad.any(axis=-1).sum())} of {len(values)} outputs are NaN, the first in row {row}")
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
        raise ValueError("bits are Booleans or 0 and 1; turn real-valued outputs into bits with `binarize` first")
    return np.packbits(values.astype(bool), axis=1)


def unpack(packed: PackedCodes, n_bits: int) -> NDArray[np.bool_]:
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
        ``(nq, nd)`` int64. This is the whole matrix: for counts or nearest codes over a large database use
        `channelhash.metrics.hamming_histogram` or `channelhash.search`, which never build it.

    >>> hamming_distances(np.array([[0]], np.uint8), np.array([[0], [7]], np.uint8)).tolist()
    [[0, 3]]
    """
    if queries.ndim != 2 or database.ndim != 2 or queries.shape[1] != database.shape[1]:
        raise ValueError(f"codes differ in length: {queries.shape} queries, {database.shape} database, as (n, bytes)")
    query_words, database_words = words(queries), words(database)
    distances = np.zeros((len(queries), len(database)), dtype=np.int64)
    for column in range(query_words.shape[1]):  # one 64-bit word at a time keeps the extra memory at one (nq, nd) array
        distances += np.bitwise_count(query_words[:, column, None] ^ database_words[None, :, column])
    return distances


def words(packed: PackedCodes) -> NDArray[np.uint64]:
    """Return packed codes as 64-bit words ``(n, ceil(bytes / 8))``, zero-padded: distances stay the same.

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
    """Raise ``ValueError`` unless ``packed`` can hold codes of ``n_bits`` bits: uint8, 2-d, width, zero padding.

    >>> check_packed(np.array([[255]], np.uint8), n_bits=8)
    """
    if n_bits < 1:
        raise ValueError(f"n_bits is {n_bits}; a code has at least 1 bit")
    expected = -(-n_bits // 8)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != expected:
        raise ValueError(f"codes of {n_bits} bits are (n, {expected}) uint8, not {packed.shape} {packed.dtype}")
    if n_bits % 8 and len(packed) and (packed[:, -1] & ((1 << (8 - n_bits % 8)) - 1)).any():
        raise ValueError(f"bits past the {n_bits}th are set; these codes are longer or packed in another bit order")


def _to_numpy(values: Any) -> NDArray[Any]:
    """Return a tensor (any device or dtype), a list or an array as a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return np.asarray(values.numpy() if not values.dtype.is_floating_point else values.double().numpy())
    return np.asarray(values)


def unit_rows(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return rows of length 1; zero rows stay, at cosine 0 to everything."""
    rows = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
