"""Make what ships with the encoder ``photo``, in half precision: its network of images, and the
heads of a run.

python tools/ship_photo.py                              # image.onnx: EfficientNet-Lite2 as
published python tools/ship_photo.py runs/photo                   # config.json and
model.safetensors python tools/ship_photo.py runs/photo validation.csv    # into config.json, how
likely a photograph fits a caption
"""

import sys
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save

from channelhash.codes import unit_rows
from channelhash.data.table import load_table
from channelhash.models.backbones import image_layers
from channelhash.models.description import read_arrays, read_description, write_model
from channelhash.models.encoders import open_encoder
from channelhash.models.photo import WEIGHTS

SIZE = 260
# Blocks of each stage, and the stride of its first one.
STAGES = ((1, 1), (3, 2), (3, 2), (4, 2), (4, 1), (5, 2), (1, 1))


def image_graph(network: Any) -> onnx.ModelProto:
    """Write the graph from ``pixels`` ``(n, 3, s, s)`` uint8 to ``features`` ``(n, 1280)``, after
    ReLU6 and the mean.

    Batch normalisation is part of the convolutions, whose padding is TensorFlow's ``SAME``. A
    convolution's kernel, and its normalisation's weights, mean and variance follow each other in
    the network's state.
    """
    values = [array.double().numpy() for array in network.state_dict().values() if array.ndim]
    layers, nodes, weights = zip(*(values[i::5] for i in range(5)), strict=True), [], []

    def add(operation: str, *inputs: Any, **attributes: Any) -> str:
        names = [
            value if isinstance(value, str) else f"{operation}_{len(nodes)}_{i}"
            for i, value in enumerate(inputs)
        ]
        arrays = zip(names, inputs, strict=True)
        weights.extend(
            numpy_helper.from_array(values, name)
            for name, values in arrays
            if not isinstance(values, str)
        )
        output = "features" if operation == "Flatten" else f"{operation}_{len(nodes)}"
        nodes.append(helper.make_node(operation, names, [output], **attributes))
        return output

    def convolve(x: str, stride: int = 1, scale: float = 1.0) -> str:
        kernel, weight, offset, mean, variance = next(layers)
        factor = weight / np.sqrt(variance + 1e-3)
        folded = (
            (kernel * factor[:, None, None, None] * scale).astype(np.float32).astype(np.float16)
        )
        steps: dict[str, Any] = dict(
            auto_pad="SAME_UPPER", strides=[stride] * 2, kernel_shape=kernel.shape[2:]
        )
        groups, widened = (
            len(kernel) if kernel.shape[1] == 1 else 1,
            add("Cast", folded, to=TensorProto.FLOAT),
        )
        return add(
            "Conv", x, widened, (offset - mean * factor).astype(np.float32), group=groups, **steps
        )

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
    fit = dict(
        n_bits=n_bits,
        encoder="photo",
        codes="learned",
        seed=0,
        fitted_on=0,
        unit=False,
        nested=nested,
    )
    fit["widths"] = dict.fromkeys(form["architecture"]["widths"], n_bits)
    form |= {"name": "fitted", "architecture": fit}
    write_model(WEIGHTS, save, weights, form)


def learn_fits(table: Path) -> dict[str, list[float]]:
    """Return, for each length of codes, the logistic regression of whether a photograph is a
    caption's own on 1, their cosine and the length of the caption's outputs
    (`channelhash.search.match`).

    A caption's other photographs together count three times as much as its own. The ten nearest
    photographs to each text that means nothing count, of all such texts together, as much as the
    captions' own.
    """
    encoder, records = open_encoder("photo"), load_table(table, label_columns=[])
    image, text = (encoder.features(name, records.items[name]) for name in ("image", "text"))
    nothing = encoder.features("text", nonsense(200))
    n, fits = len(image), {}
    answers = np.concatenate([np.eye(n).ravel(), np.zeros(10 * len(nothing))])
    weights = np.concatenate(
        [
            np.where(np.eye(n), 1, 3 / (n - 1)).ravel(),
            np.full(10 * len(nothing), n / 10 / len(nothing)),
        ]
    )
    for n_bits in (64, 128, 256):
        units, columns = unit_rows(image[:, :n_bits]), []
        for outputs, most in ((text, n), (nothing, 10)):
            cosines = unit_rows(outputs[:, :n_bits]) @ units.T
            lengths = np.linalg.norm(outputs[:, :n_bits], axis=1).repeat(most)
            chosen = cosines if most == n else np.sort(cosines, axis=1)[:, -most:]
            columns.append([np.ones(chosen.size), chosen.ravel(), lengths])
        inputs, solution = np.concatenate(columns, axis=1).T, np.zeros(3)
        for _ in range(30):  # Newton's method
            likely = 1 / (1 + np.exp(-inputs @ solution))
            curvature = inputs.T @ (inputs * (weights * likely * (1 - likely))[:, None])
            solution += np.linalg.solve(curvature, inputs.T @ (weights * (answers - likely)))
        fits[str(n_bits)] = solution.round(4).tolist()
    return fits


def nonsense(n: int) -> list[str]:
    """Return texts that mean nothing: in turn random letters and keys side by side."""
    random, rows = np.random.default_rng(0), ["qwertyuiop", "asdfghjkl", "zxcvbnm"]
    texts = []
    for place in range(n):
        words = [
            "".join(random.choice(list(ascii_lowercase), size))
            for size in random.integers(3, 10, 3)
        ]
        if place % 2:
            chosen = random.choice(rows, random.integers(1, 5))
            words = [row[random.integers(5) :][: random.integers(3, 7)] for row in chosen]
        texts.append(" ".join(words))
    return texts


if __name__ == "__main__":
    if len(sys.argv) > 2:
        form = read_description(WEIGHTS / "config.json")
        form["architecture"]["fits"] = learn_fits(Path(sys.argv[2]))
        write_model(WEIGHTS, save, read_arrays(WEIGHTS / "model.safetensors"), form)
    elif len(sys.argv) > 1:
        ship_heads(Path(sys.argv[1]) / "model")
    else:
        _, network = image_layers("package")
        onnx.save(image_graph(network), WEIGHTS / "image.onnx")
