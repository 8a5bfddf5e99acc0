"""Write ONNX graphs by hand: operations with their weights, without a network to trace."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

#: Of all graphs of this package.
OPSET, _IR = 17, 8


class Graph:
    """Operations one after the other; each gives the name of its output.

    >>> graph = Graph()
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
        """Return the graph as a model.

        Args:
            inputs: name -> (type, shape); a string in a shape is any number.
            outputs: name -> shape; all are float32.
        """
        taken = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, "tower", taken, given, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR)

    def _weight(self, values: NDArray[Any]) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
        return name
