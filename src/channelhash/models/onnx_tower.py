"""A frozen network that ONNX Runtime computes on the CPU, as a module."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_BATCH = 8  # what fits into a core's cache; more rows at once are not faster, and take more memory


class OnnxTower(nn.Module):
    """Inputs to features by a graph, which is built where it is first run: in each process, forked or not.

    Args:
        graph: returns the graph, an ``onnx.ModelProto`` with one input and features ``(n, d)`` as its first output.
        weights_hash: 16 hex digits that stand for the weights in it; see `backbones.Frozen`.

    >>> OnnxTower(lambda: None, "0123456789abcdef").weights_hash
    '0123456789abcdef'
    """

    def __init__(self, graph: Callable[[], Any], weights_hash: str) -> None:
        super().__init__()
        self.graph, self.weights_hash = graph, weights_hash
        self._running: tuple[int, Any] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features ``(n, d)`` float32 of ``n`` inputs, on the device of these."""
        session = self._session()
        name = session.get_inputs()[0].name
        parts = [session.run(None, {name: part.numpy()})[0] for part in torch.split(inputs.cpu(), _BATCH)]
        return torch.from_numpy(np.concatenate(parts)).to(inputs.device)

    def _session(self) -> Any:
        if self._running is None or self._running[0] != os.getpid():  # the threads of a session stay behind in a fork
            from channelhash.utils.onnx_runtime import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            options.add_session_config_entry(
                "session.intra_op.allow_spinning", "0"
            )  # the cores decode images meanwhile
            graph = self.graph().SerializeToString()
            self._running = os.getpid(), onnxruntime.InferenceSession(graph, options, ["CPUExecutionProvider"])
        return self._running[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_running": None}
