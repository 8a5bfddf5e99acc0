"""Compressors and files: fit one to the vectors in a file, and keep it in a file of its own.

A compressor is one safetensors file: the arrays of the code's map, and those of the second stage
under ``quantizer.…``; its metadata say format, version and the rest.
"""

from os import PathLike
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.quantizer import Quantizer
from channelhash.codes.stage import Similarity
from channelhash.compression.compressor import Compressor
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.errors import InputError, argument
from channelhash.models.description import checked_content, metadata_of, read_checked
from channelhash.utils.decode import reading
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import naming_extra

#: What the metadata of a file call its format.
_FORMAT = "channelhash compressor"
#: Version of the format that is written, and the only one that is read.
_VERSION = "1"
#: What stands before the names of the second stage's arrays.
_QUANTIZER = "quantizer."
#: How the metadata of a file say whether the second stage is centred.
_CENTRED = {"yes": True, "no": False}
_FOREIGN = "not a compressor that `Compressor.save` wrote"
#: Arguments of `Compressor.fit` and `Quantizer.fit` -> what `compress` calls them.
_SPELLED = {"n_bits": "bits", "bits": "second"}


def compress(
    vectors: Vectors | NDArray[Any] | str | PathLike[str],
    bits: int = 128,
    second: float | None = 4,
    similarity: Similarity = "cosine",
    seed: int = 0,
    centred: bool = False,
) -> Compressor:
    """Fit short codes to the vectors of an encoder; `Compressor.encode` makes them.

    A code is the signs of an affine map, fitted by ITQ. A second stage keeps the vector itself in a
    few bits a number and orders what the codes find. Of more than 20,000 vectors, a sample is
    fitted to.

    Args:
        vectors: ``(n, d)``, an array, or a file: ``.npy``, ``.npz``, ``.parquet``, ``.jsonl``,
            ``.h5``, ``.hdf5`` or ``.fvecs``.
        bits: code length k, 1 to d.
        second: mean bits a number of the second stage, above 0 and at most 8; None keeps none.
        similarity: how the encoder means its vectors to be compared.
        seed: of the sample and of rotations.
        centred: whether the second stage keeps vectors without their mean, which gives another
            ranking than the encoder's, for some data a better one; `channelhash compress` measures
            both.

    Raises:
        InputError: the file cannot be read, a number is not finite, there are fewer than two
            different vectors, or ``bits`` or ``second`` is out of its range.

    >>> vectors = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32)
    >>> codes = compress(vectors, bits=32)
    >>> codes.transform(vectors).shape, codes.n_bytes
    ((1000, 38), 38)
    >>> codes.search(vectors[:2], codes.encode(vectors), k=3).rows[:, 0].tolist()
    [0, 1]
    """
    rows = _rows_of(vectors)
    try:
        return Compressor.fit(rows, bits, second, similarity, seed=seed, centred=centred)
    except InputError as error:
        spelled = error.spelled(lambda name: argument(_SPELLED.get(name, name)))
        raise InputError(spelled) from None


def _rows_of(vectors: Vectors | NDArray[Any] | str | PathLike[str]) -> Vectors:
    """Return vectors of which all numbers are finite."""
    if isinstance(vectors, Vectors):
        return vectors
    if isinstance(vectors, str | PathLike):
        return load_vectors(Path(vectors))
    rows = Vectors.of(np.asanyarray(vectors))
    start = 0
    for block in rows.blocks():
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            raise InputError(
                f"{argument('vectors')}: row {start + bad[0]} is not finite, or too large for "
                "float32; leave it out"
            )
        start += len(block)
    return rows


def save(compressor: Compressor, path: str | PathLike[str]) -> None:
    """Write a compressor to a safetensors file, whole or not at all."""
    with naming_extra("photos"):
        from safetensors.numpy import save as save_arrays

    arrays: dict[str, NDArray[Any]] = {"mean": compressor.mean, "weights": compressor.weights}
    if compressor.quantizer is not None:
        for name, values in compressor.quantizer.arrays().items():
            arrays[_QUANTIZER + name] = values
    metadata = {
        "format": _FORMAT,
        "version": _VERSION,
        "similarity": compressor.similarity,
        "centred": "yes" if compressor.centred else "no",
    }
    contiguous = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    with atomic_path(Path(path)) as temporary:
        temporary.write_bytes(checked_content(save_arrays, contiguous, metadata))


def load(path: str | PathLike[str]) -> Compressor:
    """Read a compressor that `save` wrote.

    Raises:
        InputError: the file is missing, damaged, of another format, or of a later version.
    """
    with naming_extra("photos"):
        from safetensors.numpy import load as load_arrays

    content = read_checked(Path(path))
    metadata = metadata_of(content)
    if metadata.get("format") != _FORMAT:
        raise InputError(f"{path}: {_FOREIGN}; name one, or fit it again with `compress`")
    if metadata.get("version") != _VERSION:
        raise InputError(
            f"{path}: of version {metadata.get('version')}, this program reads {_VERSION}; update "
            "channelhash"
        )
    with reading(path, _FOREIGN, "save it again"):
        return _build(load_arrays(content), metadata)


def _build(arrays: dict[str, NDArray[Any]], metadata: dict[str, str]) -> Compressor:
    second = {
        name.removeprefix(_QUANTIZER): values
        for name, values in arrays.items()
        if name.startswith(_QUANTIZER)
    }
    quantizer = Quantizer.from_arrays(second) if second else None
    similarity = _similarity_of(metadata["similarity"])
    centred = _CENTRED[metadata["centred"]]
    return Compressor(arrays["mean"], arrays["weights"], quantizer, similarity, centred)


def _similarity_of(word: str) -> Similarity:
    if word not in get_args(Similarity):
        raise ValueError(f"similarity {word!r}")
    return cast(Similarity, word)
