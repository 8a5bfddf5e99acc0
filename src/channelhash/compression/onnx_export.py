"""Compressors as graphs of ONNX."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import unpack
from channelhash.codes.quantizer import Quantizer
from channelhash.compression.compressor import Compressor
from channelhash.errors import JobError
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]

#: Below every length of a float32 vector but 0, which is divided by it instead.
_TINY = 1e-30
#: Version of ONNX's operators, that of exported models.
_OPSET = 17
#: Version of the file format that belongs to these operators.
_IR_VERSION = 8
#: Smallest output, relative to the largest, whose sign rounding cannot change.
_TOLERANCE = 1e-4
#: Largest share of the second stage's bytes that rounding may change.
_CHANGED = 0.01
#: Vectors that a written graph is run with.
_CHECKED_ROWS = 64


@dataclass(frozen=True)
class _Graph:
    """Nodes and constants of a graph that is being written.

    Attributes:
        onnx: the package.
        nodes: in the order of computation.
        constants: arrays that nodes take.
    """

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str | NDArray[Any], **attributes: Any) -> str:
        """Apply an operator to results of others and to constants; return the result's name."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        result = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [result], **attributes))
        return result

    def _constant(self, values: NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Turn a result into another type, as `onnx.TensorProto` calls it."""
        return self.add("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def length(self, rows: str) -> str:
        """Return the length of each row, never 0."""
        lengths = self.add("ReduceL2", rows, axes=[1], keepdims=1)
        return self.add("Max", lengths, np.array(_TINY, np.float32))

    def products(self, rows: str, others: str) -> str:
        """Return the inner product of each row and its counterpart."""
        shares = self.add("Mul", rows, others)
        return self.add("ReduceSum", shares, np.array([1]), keepdims=0)

    def sum_bytes(self, values: str, places: NDArray[np.int64]) -> str:
        """Add the columns that lie in one byte; all are integers, so that floats do it exactly."""
        packing = np.zeros((len(places), places[-1] + 1), np.float32)
        packing[np.arange(len(places)), places] = 1
        return self.cast(self.add("MatMul", self.cast(values, "FLOAT"), packing), "UINT8")


class _Output(NamedTuple):
    """A result that a graph gives: its name outside and inside, type and shape."""

    name: str
    result: str
    kind: str
    shape: Sequence[str | int]


def write_onnx(compressor: Compressor, path: Path) -> None:
    """Write a graph from ``vectors`` ``(n, d)`` float32 to ``codes`` ``(n, ceil(k / 8))`` uint8.

    With a second stage it also gives ``rows``, uint8 without the last two bytes of each row, and
    ``scales`` ``(n,)`` float16, which are those bytes: ONNX has no operator that reads a number's
    bytes. onnxruntime runs the graph, and what it gives is compared before the file gets its name.

    Raises:
        InputError: ``onnx`` or ``onnxruntime`` is not installed.
        JobError: the graph makes other codes.
    """
    onnx = library("onnx", "onnx")
    graph = _Graph(onnx)
    n_code_bytes = -(-compressor.n_bits // 8)
    outputs = [_Output("codes", _add_codes(graph, compressor), "UINT8", ["n", n_code_bytes])]
    quantizer = compressor.quantizer
    if quantizer is not None:
        rows, scales = _add_rows(graph, _add_kept(graph, compressor), quantizer)
        outputs.append(_Output("rows", rows, "UINT8", ["n", quantizer.n_bytes - 2]))
        outputs.append(_Output("scales", scales, "FLOAT16", ["n"]))
    with atomic_path(path) as temporary:
        temporary.write_bytes(_model_of(graph, outputs, compressor).SerializeToString())
        if not _agrees(compressor, temporary):
            raise JobError(f"{path}: the graph makes other codes than the compressor")


def _add_prepared(graph: _Graph, compressor: Compressor, vectors: str = "vectors") -> str:
    """Add `prepare`."""
    if compressor.similarity != "cosine":
        return vectors
    return graph.add("Div", vectors, graph.length(vectors))


def _add_centred(graph: _Graph, compressor: Compressor) -> str:
    """Add prepared vectors without their mean."""
    return graph.add("Sub", _add_prepared(graph, compressor), compressor.mean)


def _add_kept(graph: _Graph, compressor: Compressor) -> str:
    """Add what the second stage keeps."""
    if compressor.centred:
        return _add_prepared(graph, compressor, _add_centred(graph, compressor))
    return _add_prepared(graph, compressor)


def _add_codes(graph: _Graph, compressor: Compressor) -> str:
    """Add the codes."""
    centred = _add_centred(graph, compressor)
    outputs = graph.add("MatMul", centred, compressor.weights)
    bits = graph.cast(graph.add("GreaterOrEqual", outputs, np.array(0, np.float32)), "FLOAT")
    places = np.arange(compressor.n_bits)
    values = (1 << (7 - places % 8)).astype(np.float32)
    return graph.sum_bytes(graph.add("Mul", bits, values), places // 8)


def _add_rows(graph: _Graph, vectors: str, quantizer: Quantizer) -> tuple[str, str]:
    """Add rows and scales of the second stage, as `Quantizer.encode` computes them."""
    tables = quantizer.tables()
    centred = graph.add("Sub", vectors, tables["centre"])
    components = graph.add("MatMul", centred, tables["rotation"])
    directions = graph.add("Div", components, graph.length(components))
    numbers = _add_search(graph, directions, tables["edges"])
    shifted = graph.add("Mul", numbers, 1 << tables["shifts"].astype(np.int64))
    rounded = _add_look_up(graph, tables["levels"], shifted)
    a = graph.products(rounded, rounded)
    b = graph.add("MatMul", rounded, tables["slopes"])
    square = np.array(tables["centre"] @ tables["centre"])
    c = graph.add("Sub", square, graph.products(vectors, vectors))
    discriminant = graph.add("Sub", graph.add("Mul", b, b), graph.add("Mul", a, c))
    zero = np.array(0, np.float32)
    root = graph.add("Sqrt", graph.add("Max", discriminant, zero))
    is_ahead = graph.add(
        "GreaterOrEqual", graph.add("Add", graph.products(components, rounded), b), zero
    )
    chosen = graph.add("Where", is_ahead, root, graph.add("Neg", root))
    scales = graph.add("Div", graph.add("Sub", chosen, b), a)
    return graph.sum_bytes(shifted, tables["places"]), graph.cast(scales, "FLOAT16")


def _add_search(graph: _Graph, values: str, edges: _Floats) -> str:
    """Add the number of edges below each value, by halving: 255 edges take eight steps."""
    numbers: str | NDArray[np.int64] = np.zeros(len(edges), np.int64)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        last = graph.add("Add", numbers, np.array(step - 1))
        above = graph.add("Greater", values, _add_look_up(graph, edges, last))
        size = graph.add("Mul", graph.cast(above, "INT64"), np.array(step))
        numbers = graph.add("Add", numbers, size)
    return str(numbers)


def _add_look_up(graph: _Graph, table: _Floats, columns: str) -> str:
    """Add look-ups of columns ``(n, m)`` in a table ``(m, c)``, of column i in its row i."""
    starts = np.arange(len(table)) * table.shape[1]
    return graph.add("Gather", table.ravel(), graph.add("Add", columns, starts))


def _model_of(graph: _Graph, outputs: Sequence[_Output], compressor: Compressor) -> Any:
    """Return the model that gives these results."""
    helper = graph.onnx.helper
    types = graph.onnx.TensorProto
    width = len(compressor.mean)
    given = helper.make_tensor_value_info("vectors", types.FLOAT, ["n", width])
    shown = []
    for name, result, kind, shape in outputs:
        graph.nodes.append(helper.make_node("Identity", [result], [name]))
        shown.append(helper.make_tensor_value_info(name, getattr(types, kind), shape))
    made = helper.make_graph(graph.nodes, "codes", [given], shown, graph.constants)
    model = helper.make_model(
        made,
        producer_name="channelhash",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    facts = {"n_bits": str(compressor.n_bits), "similarity": compressor.similarity}
    helper.set_model_props(model, facts)
    return model


def _agrees(compressor: Compressor, path: Path) -> bool:
    """Run a graph; return whether it makes the bytes of `Compressor.encode`, to rounding."""
    with naming_extra():
        runtime = onnx_runtime()
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    vectors = _some_vectors(compressor)
    made = session.run(None, {"vectors": vectors})
    codes, rows = compressor.encode(vectors)
    outputs = np.abs(compressor.outputs(vectors))
    certain = outputs > _TOLERANCE * outputs.max()
    n_bits = compressor.n_bits
    if (unpack(made[0], n_bits) != unpack(codes, n_bits))[certain].any():
        return False
    if rows is None:
        return True
    own = np.hstack([made[1], made[2][:, None].astype("<f2").view(np.uint8)])
    return bool((own != rows).mean() <= _CHANGED)


def _some_vectors(compressor: Compressor) -> _Floats:
    """Draw vectors around the mean, and one that is zero."""
    size = (_CHECKED_ROWS, len(compressor.mean))
    drawn = generator(0, "export", "vectors").normal(size=size)
    vectors = compressor.mean + drawn * (np.abs(compressor.mean).max() or 1)
    vectors[0] = 0
    return np.asarray(vectors, np.float32)
