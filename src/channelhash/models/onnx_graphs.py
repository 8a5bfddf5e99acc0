"""ONNX graphs written by hand: the networks of the encoder ``photo``, and a tower joined with an exported head."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, compose, helper, numpy_helper

#: Of all graphs of this package.
OPSET, _IR = 17, 8


class _Graph:
    """Operations one after the other; each gives the name of its output.

    >>> graph = _Graph()
    >>> model = graph.model({"x": (TensorProto.FLOAT, ["n", 2])}, {graph.add("Mul", "x", np.float32(2)): ["n", 2]})
    >>> [node.op_type for node in model.graph.node]
    ['Mul']
    """

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, operation: str, *inputs: str | NDArray[Any] | np.generic, name: str = "", **attributes: Any) -> str:
        """Append an operation on named values and on arrays, and return the name of its output, ``name`` if given."""
        names = [value if isinstance(value, str) else self._weight(np.asarray(value)) for value in inputs]
        output = name or f"{operation}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, names, [output], **attributes))
        return output

    def model(self, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, list[Any]]) -> onnx.ModelProto:
        """Return the graph as a model."""
        taken = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, "tower", taken, infos, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR)

    def _weight(self, values: NDArray[Any]) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
        return name


_WIDTH, _LAYERS, _HEADS, _EPS = 384, 6, 12, 1e-12


def text_graph(weights: Mapping[str, NDArray[Any]]) -> ModelProto:
    """Write the graph from ``tokens`` ``(n, m)`` int64, 0 for padding, to ``features`` ``(n, 384)`` of unit length.

    BERT with 6 layers of width 384, then the mean over a text's tokens, divided by its norm.
    """
    graph = _Graph()
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


_BATCHNORM_EPS = 1e-3
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage

_Layer = tuple[NDArray[np.float32], NDArray[np.float32]]


def image_graph(weights: Sequence[NDArray[Any]], repeats: Sequence[int], size: int) -> ModelProto:
    """Write the graph from ``pixels`` ``(n, 3, s, s)`` uint8 to ``features`` ``(n, 1280)``, after ReLU6 and the mean.

    Batch normalisation is part of the convolutions, whose padding is TensorFlow's ``SAME``.
    """
    graph, layers = _Graph(), _folded(weights)

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
        factor = scale / np.sqrt(variance + _BATCHNORM_EPS)
        folded = kernel * factor[:, None, None, None], offset - mean * factor
        yield folded[0].astype(np.float32), folded[1].astype(np.float32)


def joined(tower: ModelProto, head: ModelProto) -> ModelProto:
    """Return tower and head as one graph, from the tower's input, renamed ``inputs``, to the head's ``outputs``."""
    tower, input_name = _rounded(tower), tower.graph.input[0].name
    for node in tower.graph.node:
        node.input[:] = ["inputs" if name == input_name else name for name in node.input]
    tower.graph.input[0].name = "inputs"
    head = compose.add_prefix(head, "head/", rename_outputs=False)
    head.ir_version = tower.ir_version
    return compose.merge_models(tower, head, io_map=[("features", "head/inputs")])


def _rounded(model: ModelProto) -> ModelProto:
    """Return a model whose tables are int8 with a scale a row, and whose other matrices and kernels are float16.

    A runtime makes float32 of matrices when it opens the file, and of a table only of the rows that an input
    names. Vectors stay as they are.
    """
    proto = ModelProto()
    proto.CopyFrom(model)
    graph = proto.graph
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    weights: list[TensorProto] = []
    widened: list[NodeProto] = []

    def stored(values: Any, name: str) -> str:
        weights.append(numpy_helper.from_array(values, name))
        return name

    for weight in graph.initializer:
        values, name = numpy_helper.to_array(weight), weight.name
        if values.ndim < 2:
            weights.append(weight)
        elif name in tables:
            scale = np.maximum(np.abs(values).max(axis=1, keepdims=True) / 127, np.float32(1e-30))
            stored(np.round(values / scale).astype(np.int8), f"{name}/int8")
            stored(scale, f"{name}/scale")
        else:
            half = stored(values.astype(np.float16), f"{name}/float16")
            widened.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
    rounded_tables = {weight.name for weight in graph.initializer} & tables
    nodes = [*widened]
    for node in graph.node:
        nodes += _looked_up(node) if node.op_type == "Gather" and node.input[0] in rounded_tables else [node]
    for field, content in ((graph.initializer, weights), (graph.node, nodes)):
        del field[:]
        field.extend(content)
    onnx.checker.check_model(proto)
    return proto


def _looked_up(gather: NodeProto) -> list[NodeProto]:
    """Return a look-up in a table of float32 rows as one in its int8 rows and one in their scales."""
    (table, places), (rows,) = gather.input, gather.output
    return [
        helper.make_node("Gather", [f"{table}/int8", places], [f"{rows}/int8"]),
        helper.make_node("Cast", [f"{rows}/int8"], [f"{rows}/number"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{table}/scale", places], [f"{rows}/scale"]),
        helper.make_node("Mul", [f"{rows}/number", f"{rows}/scale"], [rows]),
    ]
