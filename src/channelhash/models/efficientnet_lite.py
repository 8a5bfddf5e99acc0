"""EfficientNet-Lite as an ONNX graph, written from its published weights (Tan & Le 2019; Liu 2020)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from channelhash.models.onnx_graph import Graph

_EPS = 1e-3
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage

_Layer = tuple[NDArray[np.float32], NDArray[np.float32]]


def image_graph(weights: Sequence[NDArray[Any]], repeats: Sequence[int], size: int) -> ModelProto:
    """Write the graph from ``pixels`` ``(n, 3, s, s)`` uint8 to ``features`` ``(n, 1280)``, after ReLU6 and the mean.

    Batch normalisation is part of the convolutions, whose padding is TensorFlow's ``SAME``.

    Args:
        weights: of the published file, in its order: of each convolution, and of its batch normalisation scale, offset,
            mean, variance and a counter; at the end the classifier's two, which are not used.
        repeats: number of blocks of each of the 7 stages.
        size: side s in pixels.
    """
    graph, layers = Graph(), _folded(weights)

    def convolve(x: str, stride: int = 1, scale: float = 1.0) -> str:
        kernel, bias = next(layers)
        groups = len(kernel) if kernel.shape[1] == 1 else 1
        steps: dict[str, Any] = dict(
            auto_pad="SAME_UPPER", strides=[stride] * 2, kernel_shape=kernel.shape[2:], group=groups
        )
        return graph.add("Conv", x, kernel * np.float32(scale), bias, **steps)

    def clipped(x: str) -> str:
        return graph.add("Clip", x, np.float32(0), np.float32(6))

    # (x - 127) / 128; zeros are padded after the difference.
    x = graph.add("Sub", graph.add("Cast", "pixels", to=TensorProto.FLOAT), np.float32(127))
    x = clipped(convolve(x, 2, 1 / 128))
    for stage, (blocks, stride) in enumerate(zip(repeats, _STRIDES, strict=True)):
        for block in range(blocks):
            inner = clipped(convolve(x)) if stage else x
            inner = clipped(convolve(inner, 1 if block else stride))
            inner = convolve(inner)
            x = graph.add("Add", inner, x) if block else inner
    mean = graph.add("GlobalAveragePool", clipped(convolve(x)))
    features = graph.add("Flatten", mean, name="features")
    if next(layers, None) is not None:
        raise ValueError("more layers than in this network")
    return graph.model({"pixels": (TensorProto.UINT8, ["n", 3, size, size])}, {features: ["n", 1280]})


def _folded(weights: Sequence[NDArray[Any]]) -> Iterator[_Layer]:
    """Yield kernel and bias of each convolution with its batch normalisation in them."""
    *arrays, _, _ = (np.asarray(values, dtype=np.float64) for values in weights if values.ndim)
    for kernel, scale, offset, mean, variance in zip(*(arrays[i::5] for i in range(5)), strict=True):
        factor = scale / np.sqrt(variance + _EPS)
        folded = kernel * factor[:, None, None, None], offset - mean * factor
        yield folded[0].astype(np.float32), folded[1].astype(np.float32)
