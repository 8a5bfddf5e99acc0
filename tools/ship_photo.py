"""Make what ships with the encoder ``photo``, in half precision: its network of images, and the
heads of a run.

* ``python tools/ship_photo.py``: image.onnx, EfficientNet-Lite2 as published
* ``python tools/ship_photo.py runs/photo``: config.json, model.safetensors, and bank.npy: the
  outputs of everyday captions
* ``python tools/ship_photo.py runs/photo judged.csv``: into config.json, how likely a photograph
  answers a text, and its reliability into the documentation
"""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save

from channelhash.codes import unit_rows
from channelhash.codes.hubs import Bank
from channelhash.models.backbones import image_layers
from channelhash.models.description import read_arrays, read_description, write_model
from channelhash.models.encoders import open_encoder
from channelhash.models.photo import CAPTIONS, TEMPERATURE, WEIGHTS, open_networks, read_bank
from channelhash.search.match import fit_inputs, understood_shares
from channelhash.text.words import count_words
from channelhash.utils.files import atomic_path

DOCS = Path(__file__).parents[1] / "docs"
RELIABILITY = DOCS / "reference" / "results" / "tables" / "photo-encoder-fits.csv"
LANGUAGES = {
    "en": "English",
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "zh": "Chinese",
    "ar": "Arabic",
}
# Kinds of questions: the name of an object, of two, or of another thing; a phrase; a caption.
KINDS = ("label", "two labels", "thing", "phrase", "caption")
# The least number of answers of which a share is shown.
FEWEST = 30

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
    networks = open_networks().items()
    form["backbones"] = {modality: identity for modality, (*_, identity) in networks}
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
    captions = CAPTIONS.read_text(encoding="utf-8").splitlines()
    with atomic_path(WEIGHTS / "bank.npy") as path, open(path, "wb") as file:
        np.save(file, open_encoder("photo").features("text", captions).astype(np.float16))


def learn_fits(table: Path) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return, for each length of codes, by similarities corrected for hubs and by those that are
    not, the logistic regression of whether an answer is right on what
    `channelhash.search.match.fit_inputs` makes of it, and write how reliable it is: of each half of
    the answers, by the other half. Each kind of question counts as much as any other.

    The table has the columns language, kind, half (0 or 1: of other questions and photographs),
    text, image and fits (0 or 1), an answer a row.
    """
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = encode("text", [row["text"] for row in rows])
    images = encode("image", [table.parent / row["image"] for row in rows])
    n_words = [count_words(row["text"]) for row in rows]
    right = np.array([float(row["fits"]) for row in rows])
    half = np.array([row["half"] == "1" for row in rows])
    kinds = [row["kind"] for row in rows]
    shares = np.array([1 / kinds.count(kind) for kind in kinds])
    fits, plain_fits = {}, {}
    for n_bits in (64, 128, 256):
        vectors, asked, known = (
            unit_rows(rows[:, :n_bits]) for rows in (images, texts, read_bank())
        )
        excesses = Bank(known.astype(np.float16), TEMPERATURE).excesses(vectors)
        cosines = (asked * vectors).sum(axis=1)
        inputs = fit_inputs(cosines, n_words)
        plain_fits[str(n_bits)] = regress(inputs, right, shares).round(4).tolist()
        inputs = fit_inputs(cosines - excesses, n_words)
        fits[str(n_bits)] = regress(inputs, right, shares).round(4).tolist()
    said = np.empty(len(rows))
    for part in (half, ~half):
        learned = regress(inputs[~part], right[~part], shares[~part])
        said[part] = 1 / (1 + np.exp(-inputs[part] @ learned))
    write_reliability(rows, said * understood_shares(texts), right)
    draw_reliability()
    return fits, plain_fits


def encode(modality: str, items: list[Any]) -> NDArray[np.float32]:
    """Return the outputs of items, each different one encoded once."""
    different = list(dict.fromkeys(items))
    place = {item: number for number, item in enumerate(different)}
    return open_encoder("photo").features(modality, different)[[place[item] for item in items]]


def regress(
    inputs: NDArray[np.float64], right: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weights of a logistic regression by Newton's method; rows count by their shares."""
    solution = np.zeros(inputs.shape[1])
    for _ in range(30):
        likely = 1 / (1 + np.exp(-inputs @ solution))
        curvature = inputs.T @ (inputs * (shares * likely * (1 - likely))[:, None])
        solution += np.linalg.solve(curvature, inputs.T @ (shares * (right - likely)))
    return solution


def write_reliability(
    rows: list[dict[str, str]], said: NDArray[np.float64], right: NDArray[np.float64]
) -> None:
    """Write, for each language and kind of question, how many answers lie in each tenth of the
    probability, its mean, and the share that is right.
    """
    tenth = (10 * said).astype(int)
    with atomic_path(RELIABILITY) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["questions", "tenth", "answers", "said", "right"])
        for group in ("all", *LANGUAGES, *KINDS):
            is_in = np.array([group in ("all", row["language"], row["kind"]) for row in rows])
            for number in range(10):
                chosen = is_in & (tenth == number)
                if chosen.any():
                    shares = [f"{values[chosen].mean():.3f}" for values in (said, right)]
                    writer.writerow([group, number, chosen.sum(), *shares])


def draw_reliability() -> None:
    """Draw the share that is right over what was said, a line a language."""
    from matplotlib.figure import Figure

    from channelhash.metrics.plots import legend_below, line, write_figure

    with open(RELIABILITY, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["answers"]) >= FEWEST]
    figure = Figure(figsize=(5.5, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.fill_between([0, 100], [-10, 90], [10, 110], color="0.92")
    axes.axline((0, 0), (100, 100), color="0.6", linewidth=1)
    for number, (language, name) in enumerate(LANGUAGES.items()):
        points = [row for row in rows if row["questions"] == language]
        said, right = ([100 * float(row[column]) for row in points] for column in ("said", "right"))
        line(axes, number, np.array(said), np.array(right), name)
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="said, %", ylabel="right, %")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    write_figure(figure, DOCS / "images", "photo-fits", ["svg"])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        form = read_description(WEIGHTS / "config.json")
        fits, plain_fits = learn_fits(Path(sys.argv[2]))
        form["architecture"] |= {"fits": fits, "plain_fits": plain_fits}
        write_model(WEIGHTS, save, read_arrays(WEIGHTS / "model.safetensors"), form)
    elif len(sys.argv) > 1:
        ship_heads(Path(sys.argv[1]) / "model")
    else:
        _, network = image_layers("package")
        onnx.save(image_graph(network), WEIGHTS / "image.onnx")
