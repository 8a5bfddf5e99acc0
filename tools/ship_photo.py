"""Make what ships with the encoder ``photo``: its network of images, and the heads of a run of the preset ``photo``.

python tools/ship_photo.py           # image.onnx: EfficientNet-Lite2 as published, matrices in half precision
python tools/ship_photo.py runs/photo # config.json and model.safetensors, in half precision
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save

from channelhash.models.description import read_arrays, read_description, write_model
from channelhash.models.photo import WEIGHTS
from channelhash.models.pretrained import image_layers

SIZE = 260
# Blocks of each stage, and the stride of its first one.
STAGES = ((1, 1), (3, 2), (3, 2), (4, 2), (4, 1), (5, 2), (1, 1))


def image_graph(network: Any) -> onnx.ModelProto:
    """Write the graph from ``pixels`` ``(n, 3, s, s)`` uint8 to ``features`` ``(n, 1280)``, after ReLU6 and the mean.

    Batch normalisation is part of the convolutions, whose padding is TensorFlow's ``SAME``. A convolution's kernel,
    and its normalisation's weights, mean and variance follow each other in the network's state.
    """
    values = [array.double().numpy() for array in network.state_dict().values() if array.ndim]
    layers, nodes, weights = zip(*(values[i::5] for i in range(5)), strict=True), [], []

    def add(operation: str, *inputs: Any, **attributes: Any) -> str:
        names = [value if isinstance(value, str) else f"{operation}_{len(nodes)}_{i}" for i, value in enumerate(inputs)]
        arrays = zip(names, inputs, strict=True)
        weights.extend(numpy_helper.from_array(values, name) for name, values in arrays if not isinstance(values, str))
        output = "features" if operation == "Flatten" else f"{operation}_{len(nodes)}"
        nodes.append(helper.make_node(operation, names, [output], **attributes))
        return output

    def convolve(x: str, stride: int = 1, scale: float = 1.0) -> str:
        kernel, weight, offset, mean, variance = next(layers)
        factor = weight / np.sqrt(variance + 1e-3)
        folded = (kernel * factor[:, None, None, None] * scale).astype(np.float32).astype(np.float16)
        steps: dict[str, Any] = dict(auto_pad="SAME_UPPER", strides=[stride] * 2, kernel_shape=kernel.shape[2:])
        groups, widened = len(kernel) if kernel.shape[1] == 1 else 1, add("Cast", folded, to=TensorProto.FLOAT)
        return add("Conv", x, widened, (offset - mean * factor).astype(np.float32), group=groups, **steps)

    def clipped(x: str) -> str:
        return add("Clip", x, np.array(0, np.float32), np.array(6, np.float32))

    # (x - 127) / 128; zeros are padded after the difference.
    x = add("Sub", add("Cast", "pixels", to=TensorProto.FLOAT), np.array(127, np.float32))
    x = clipped(convolve(x, 2, 1 / 128))
    for stage, (blocks, stride) in enumerate(STAGES):
        for block in range(blocks):
            inner = clipped(convolve(x)) if stage else x
            inner = convolve(clipped(convolve(inner, 1 if block else stride)))
            x = add("Add", inner, x) if block else inner
    add("Flatten", add("GlobalAveragePool", clipped(convolve(x))))
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", 3, SIZE, SIZE])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 1280])
    graph = helper.make_graph(nodes, "efficientnet-lite2", [pixels], [features], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ship_heads(run: Path) -> None:
    """Write the heads of a saved model ``aligned`` as a saved model ``fitted``."""
    form = read_description(run / "config.json")
    weights, layers = {}, [0, *(3 * n + 3 for n in range(len(form["architecture"]["hidden"])))]
    for name, values in read_arrays(run / "model.safetensors").items():
        modality, _, name = name.removeprefix("branches.").partition(".head.")
        part = name.split(".", 1)[1]
        if part.startswith("mlp."):
            _, layer, kind = part.split(".")
            part = f"mlp.{layers.index(int(layer))}.{kind}"
        weights[f"{modality}.head.{part}"] = values.astype(np.float16)
    n_bits, nested = form["n_bits"], form["architecture"]["nested"]
    fit = dict(n_bits=n_bits, encoder="photo", codes="learned", seed=0, fitted_on=0, unit=False, nested=nested)
    fit["widths"] = dict.fromkeys(form["architecture"]["widths"], n_bits)
    form |= {"name": "fitted", "architecture": fit}
    write_model(WEIGHTS, save, weights, form)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ship_heads(Path(sys.argv[1]) / "model")
    else:
        _, network = image_layers("package")
        onnx.save(image_graph(network), WEIGHTS / "image.onnx")
