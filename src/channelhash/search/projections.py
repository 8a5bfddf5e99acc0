"""Projections: a model's real-valued outputs, kept as int8 beside the bits, which order what the bits have found.

A row of outputs is scaled so that its largest magnitude is 127, and rounded. Only its direction counts: the score of an
item is the cosine of the angle between the question's outputs and the row, so no scale is kept, nothing is fitted and
nothing is cut off.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError

#: Of a large store, so many of the nearest codes are scored; see `Store.search_projections`.
FIRST = 500

#: Of a store, or of the items that pass a filter, all are scored where there are no more than these.
ALL = 5_000

_LARGEST = 127


class Scored(NamedTuple):
    """The items that questions found, best score first, equal scores by distance, then by id.

    Attributes:
        ids: of each question, the items' ids.
        distances: of each question, the number of bits in which each item's code differs from the question's.
        scores: of each question, the cosine of each item's projection with the question's outputs.

    >>> Scored([["a"]], [np.array([3])], [np.array([0.5])]).ids
    [['a']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]
    scores: list[NDArray[np.float32]]


def quantize(outputs: NDArray[Any]) -> NDArray[np.int8]:
    """Return outputs ``(n, k)`` as projections ``(n, k)``, each row with ±127 in it, or all zero.

    Signs stay: what is below zero stays so. Projections come back as they are.

    >>> quantize(np.array([[0.5, -0.25, -0.0001]])).tolist()
    [[127, -64, -1]]
    """
    rows = np.asarray(outputs, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    scaled = np.rint(rows / np.where(largest > 0, largest, 1) * _LARGEST)
    return np.where(rows < 0, np.minimum(scaled, -1), scaled).astype(np.int8)


def cosines(outputs: NDArray[Any], projections: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the cosine of one question's outputs ``(k,)`` and each of ``(n, k)`` projections; 0 for a row of zeros.

    Equal projections get equal cosines to the last bit, in whichever row they stand.

    >>> cosines(np.array([2.0, 0.0]), np.array([[127, 0], [-127, 127]], np.int8)).round(1)
    array([ 1. , -0.7], dtype=float32)
    """
    rows = projections.astype(np.float32)
    question = np.asarray(outputs, dtype=np.float64)
    question = (question / (np.linalg.norm(question) or 1)).astype(np.float32)
    # Not by a matrix product, in which the order of additions depends on the row.
    scores: NDArray[np.float32] = np.einsum("ij,j->i", rows, question)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    np.divide(scores, norms, out=scores, where=norms > 0)
    return scores


def check_projections(
    projections: NDArray[Any] | Mapping[str, NDArray[Any]] | None, codes: Mapping[str, PackedCodes], n_bits: int
) -> dict[str, NDArray[np.int8]] | None:
    """Return modality -> `quantize` of what was given beside the codes, or None.

    Args:
        projections: modality -> ``(n, n_bits)`` outputs; an array for the only modality.
        codes: modality -> ``(n, ceil(n_bits / 8))``, the signs of these outputs.

    Raises:
        InputError: they are not numbers of this shape, or not those of the codes.

    >>> check_projections(np.array([[0.5, -0.25]]), {"image": np.array([[128]], np.uint8)}, n_bits=2)
    {'image': array([[127, -64]], dtype=int8)}
    """
    if projections is None:
        return None
    given = projections if isinstance(projections, Mapping) else {next(iter(codes)): projections}
    if given.keys() != codes.keys():
        raise InputError(f"projections: of {' and '.join(given) or 'nothing'}, but codes of {' and '.join(codes)}")
    checked = {}
    for modality, packed in codes.items():
        rows = check_outputs(given[modality], n_bits, f"{modality} projections")
        checked[modality] = quantize(rows)
        if len(rows) != len(packed) or (pack(binarize(rows)) != packed).any():
            raise InputError(f"{modality} projections: are not the outputs of which the codes are the signs")
    return checked


def check_outputs(outputs: Any, n_bits: int, what: str) -> NDArray[Any]:
    """Return outputs as an array ``(n, n_bits)`` of finite numbers.

    >>> check_outputs([[0.5, -0.25]], 2, "queries").shape
    (1, 2)
    """
    rows = np.asarray(outputs)
    if rows.ndim != 2 or rows.shape[1] != n_bits or rows.dtype.kind not in "fiu":
        raise InputError(f"{what}: (n, {n_bits}) numbers are expected, not {rows.shape} {rows.dtype}")
    if not np.isfinite(rows).all():
        raise InputError(f"{what}: row {int(np.argmin(np.isfinite(rows).all(axis=1)))} is not finite")
    return rows
