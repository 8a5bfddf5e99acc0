"""all-MiniLM-L6-v2 as an ONNX graph, written from its published weights: token ids to sentence embeddings."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from channelhash.models.onnx_graph import Graph

_WIDTH, _LAYERS, _HEADS, _EPS = 384, 6, 12, 1e-12


def text_graph(weights: Mapping[str, NDArray[Any]]) -> ModelProto:
    """Write the graph from ``tokens`` ``(n, m)`` int64, 0 for padding, to ``features`` ``(n, 384)`` of unit length.

    BERT with 6 layers of width 384, then the mean over a text's tokens, divided by its norm.

    Args:
        weights: of the published file, by their names there.
    """
    graph = Graph()
    add = graph.add

    def normalised(x: str, layer: str) -> str:
        scale, offset = (weights[f"{layer}.LayerNorm.{kind}"] for kind in ("weight", "bias"))
        return add("LayerNormalization", x, scale, offset, axis=-1, epsilon=_EPS)

    def linear(x: str, layer: str, factor: float = 1.0) -> str:
        matrix, offset = (weights[f"{layer}.{kind}"] * np.float32(factor) for kind in ("weight", "bias"))
        return add("Add", add("MatMul", x, matrix.T), offset)

    def in_heads(x: str, order: list[int]) -> str:
        return add("Transpose", add("Reshape", x, np.array([0, 0, _HEADS, _WIDTH // _HEADS])), perm=order)

    real = add("Cast", add("Greater", "tokens", np.int64(0)), to=TensorProto.FLOAT)
    blocked = add("Unsqueeze", add("Mul", add("Sub", np.float32(1), real), np.float32(-1e9)), np.array([1, 2]))
    length = add("Shape", "tokens", start=1, end=2)
    # Every token is of the first segment.
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    places = add("Slice", places, np.array([0]), length, np.array([0]))
    words = add("Gather", weights["embeddings.word_embeddings.weight"], "tokens")
    x = normalised(add("Add", words, places), "embeddings")
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        attention = f"{layer}.attention"
        query = in_heads(linear(x, f"{attention}.self.query", (_WIDTH // _HEADS) ** -0.5), [0, 2, 1, 3])
        key = in_heads(linear(x, f"{attention}.self.key"), [0, 2, 3, 1])
        value = in_heads(linear(x, f"{attention}.self.value"), [0, 2, 1, 3])
        shares = add("Softmax", add("Add", add("MatMul", query, key), blocked), axis=-1)
        seen = add("Transpose", add("MatMul", shares, value), perm=[0, 2, 1, 3])
        seen = linear(add("Reshape", seen, np.array([0, 0, _WIDTH])), f"{attention}.output.dense")
        x = normalised(add("Add", seen, x), f"{attention}.output")
        hidden = linear(x, f"{layer}.intermediate.dense")
        error = add("Erf", add("Div", hidden, np.float32(np.sqrt(2))))
        gelu = add("Mul", add("Mul", hidden, add("Add", error, np.float32(1))), np.float32(0.5))
        x = normalised(add("Add", linear(gelu, f"{layer}.output.dense"), x), f"{layer}.output")
    total = add("ReduceSum", add("Mul", x, add("Unsqueeze", real, np.array([2]))), np.array([1]), keepdims=0)
    # The mean's direction is the sum's.
    norm = add("Max", add("ReduceL2", total, axes=[1], keepdims=1), np.float32(1e-12))
    features = add("Div", total, norm, name="features")
    return graph.model({"tokens": (TensorProto.INT64, ["n", "m"])}, {features: ["n", _WIDTH]})
