"""Compressors as models, which stores keep and search by."""

import numpy as np

from channelhash.compression.compressor import Compressor
from channelhash.models.description import COMPRESSOR, FEATURES
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import FittedModel
from channelhash.models.linear_maps import LinearMap


def to_model(compressor: Compressor, modality: str = "vector") -> FittedModel:
    """Return a model whose items are the vectors, with the codes and the second stage of a
    compressor; see `Compressor.of_model` for the way back.

    Without a second stage, a store of the model's codes keeps its outputs.

    Args:
        compressor: what was fitted.
        modality: what the vectors are called.

    >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    >>> compressor = Compressor.fit(vectors, n_bits=8)
    >>> model = to_model(compressor)
    >>> bool((model.encode("vector", vectors) == compressor.encode(vectors).codes).all())
    True
    """
    widths = {modality: len(compressor.mean)}
    architecture = {
        "n_bits": compressor.n_bits,
        "encoder": FEATURES,
        "codes": COMPRESSOR,
        "widths": widths,
        "unit": compressor.similarity == "cosine",
        "similarity": compressor.similarity,
        "centred": compressor.centred,
    }
    fitted = LinearMap(compressor.mean.astype(np.float64), compressor.weights.astype(np.float64))
    quantizers = {} if compressor.quantizer is None else {modality: compressor.quantizer}
    return FittedModel(open_encoder(FEATURES, widths), architecture, {modality: fitted}, quantizers)
