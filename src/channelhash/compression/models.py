"""Compressors of files, and as models, which stores keep and search by."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.stage import Similarity
from channelhash.compression.compressor import Compressor
from channelhash.data.records import QUESTION, VECTOR
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.errors import InputError, argument
from channelhash.models import load_model
from channelhash.models.description import COMPRESSOR, FEATURES
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import FittedModel
from channelhash.models.linear_maps import LinearMap

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
            ``.h5``, ``.hdf5``, ``.mat`` or ``.fvecs``.
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
    ((1000, 40), 40)
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


def to_model(compressor: Compressor) -> FittedModel:
    """Return a model whose items are the vectors, with the codes and the second stage of a
    compressor; see `Compressor.of_model` for the way back.

    Without a second stage, a store of the model's codes keeps its outputs.

    >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    >>> compressor = Compressor.fit(vectors, n_bits=8)
    >>> model = to_model(compressor)
    >>> bool((model.encode("vector", vectors) == compressor.encode(vectors).codes).all())
    True
    """
    widths = {VECTOR: len(compressor.mean)}
    architecture = {
        "n_bits": compressor.n_bits,
        "encoder": FEATURES,
        "codes": COMPRESSOR,
        "widths": widths,
        "unit": compressor.similarity == "cosine",
        "similarity": compressor.similarity,
        "centred": compressor.centred,
    }
    maps = {
        VECTOR: LinearMap(compressor.mean.astype(np.float64), compressor.weights.astype(np.float64))
    }
    if compressor.question_map is not None:
        width = len(compressor.question_map)
        widths[QUESTION] = width
        maps[QUESTION] = LinearMap(np.zeros(width), compressor.question_map.astype(np.float64))
    quantizers = {} if compressor.quantizer is None else {VECTOR: compressor.quantizer}
    return FittedModel(open_encoder(FEATURES, widths), architecture, maps, quantizers)


def load(path: str | PathLike[str]) -> Compressor:
    """Read the compressor of a saved model, or of a store's; errors as in `load_model`.

    Raises:
        InputError: the model was trained, or is of several modalities none of which are vectors.
    """
    model = load_model(Path(path))
    if isinstance(model, FittedModel):
        modality = VECTOR if VECTOR in model.maps else next(iter(model.maps), "")
        if len(model.maps) == 1 or modality == VECTOR:
            return Compressor.of_model(model, modality)
    raise InputError(f"{path}: holds no compressor of vectors; fit one with `compress`")
