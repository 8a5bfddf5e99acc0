"""Put the graph of a tower before an exported head, with the tower's weights in fewer bytes."""

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, compose, helper, numpy_helper


def joined(tower: ModelProto, head: ModelProto) -> ModelProto:
    """Return tower and head as one graph, from the tower's input, renamed ``inputs``, to the head's ``outputs``.

    Args:
        tower: gives ``features``.
        head: takes them as ``inputs``.
    """
    tower, given = rounded(tower), tower.graph.input[0].name
    for node in tower.graph.node:
        node.input[:] = ["inputs" if name == given else name for name in node.input]
    tower.graph.input[0].name = "inputs"
    head = compose.add_prefix(head, "head/", rename_outputs=False)
    head.ir_version = tower.ir_version
    return compose.merge_models(tower, head, io_map=[("features", "head/inputs")])


def rounded(model: ModelProto) -> ModelProto:
    """Return a model whose tables are int8 with a scale a row, and whose other matrices and kernels are float16.

    A runtime makes float32 of matrices when it opens the file, and of a table only of the rows that an input
    names. Vectors stay as they are.
    """
    found = ModelProto()
    found.CopyFrom(model)
    graph = found.graph
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
    onnx.checker.check_model(found)
    return found


def _looked_up(gather: NodeProto) -> list[NodeProto]:
    """Return a look-up in a table of float32 rows as one in its int8 rows and one in their scales."""
    (table, places), (rows,) = gather.input, gather.output
    return [
        helper.make_node("Gather", [f"{table}/int8", places], [f"{rows}/int8"]),
        helper.make_node("Cast", [f"{rows}/int8"], [f"{rows}/number"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{table}/scale", places], [f"{rows}/scale"]),
        helper.make_node("Mul", [f"{rows}/number", f"{rows}/scale"], [rows]),
    ]
