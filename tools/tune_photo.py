"""Let the networks of the encoder ``photo`` learn from photographs and captions: what predicts the
English features of a sentence from the others, and the last layers of the network of images, beside
heads that are thrown away.

python tools/tune_photo.py WORK captions.csv more.csv  # tables of images and texts; WORK keeps what
is computed

It begins with the image.onnx that `ship_photo.py` makes, and writes prediction.npz and image.onnx.
Their SHA-256 stand in models/photo.py.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from channelhash.data.records import Records
from channelhash.data.table import load_table
from channelhash.losses import ContrastiveLoss
from channelhash.models import MODELS, photo
from channelhash.models.heads import fit_scales

# Layers up to here stay as they are; a step looks at 7 x 7 of the 9 x 9 cells behind them, mirrored
# half of the time.
FROZEN, CELLS, CROP = "Add_175", 9, 7
EPOCHS, ROWS, AVERAGE = 8, 512, 0.99
RATES, DECAYS = {"heads": 2e-3, "layers": 3e-4}, {"heads": 0.5, "layers": 0.05}
FILE = photo.WEIGHTS / "image.onnx"


def last_layers(weights: list[tuple[NDArray[Any], NDArray[Any]]]) -> nn.Sequential:
    """Make the last block, in which the middle convolution is one of each channel, and what widens
    it to features.
    """
    layers: list[nn.Module] = []
    for place, (kernel, offset) in enumerate(weights):
        groups = len(kernel) if kernel.shape[1] == 1 else 1
        layer = nn.Conv2d(
            kernel.shape[1] * groups, len(kernel), kernel.shape[2], padding="same", groups=groups
        )
        layer.weight.data, layer.bias.data = (
            torch.from_numpy(values.astype(np.float32)) for values in (kernel, offset)
        )
        layers += [layer, nn.ReLU6()] if place != 2 else [layer]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(
        memory_format=torch.channels_last
    )


def compute_inputs(
    folder: Path, tables: list[str]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return what the frozen layers make of all images, and both networks' features of all texts;
    they are kept.
    """
    records = [load_table(Path(table), label_columns=[]) for table in tables]
    images, texts = (
        [item for part in records for item in part.items[name]] for name in ("image", "text")
    )
    if not (folder / "texts.npz").exists():
        tokens = (
            photo._token_rows(texts[start : start + 32]) for start in range(0, len(texts), 32)
        )
        english = np.concatenate([photo._english_features(rows) for rows in tokens])
        general = np.stack([photo._use(photo._sentence_pieces()(text)) for text in texts])
        np.savez(folder / "texts.npz", english=english, general=general)
    model, resize = onnx.load(FILE), photo.open_networks()["image"][0]
    model.graph.output.append(
        helper.make_tensor_value_info(FROZEN, TensorProto.FLOAT, ["n", 208, CELLS, CELLS])
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    shape, done = (len(images), 208, CELLS, CELLS), folder / "done.txt"
    cells = np.memmap(
        folder / "cells.f16", np.float16, "r+" if done.exists() else "w+", shape=shape
    )
    for start in range(int(done.read_text()) if done.exists() else 0, len(images), ROWS):
        for row in range(start, min(start + ROWS, len(images)), 8):
            cells[row : row + 8] = session.run(
                [FROZEN], {"pixels": resize.arrays(images[row : row + 8])}
            )[0]
        cells.flush()
        done.write_text(str(start + ROWS))
    with np.load(folder / "texts.npz") as file:
        return cells, file["english"], file["general"]


def fit_prediction(english: NDArray[np.float32], general: NDArray[np.float32]) -> None:
    """Write the linear map, by ridge regression with λ = 1."""
    x, y = general.astype(np.float64), english.astype(np.float64)
    centred = x - x.mean(axis=0)
    matrix = np.linalg.solve(
        centred.T @ centred + np.eye(x.shape[1]), centred.T @ (y - y.mean(axis=0))
    )
    offset = y.mean(axis=0) - x.mean(axis=0) @ matrix
    np.savez(
        photo.WEIGHTS / "prediction.npz",
        matrix=matrix.astype(np.float16),
        offset=offset.astype(np.float16),
    )


def tune(
    cells: NDArray[np.float16], texts: NDArray[np.float32], layers: nn.Sequential, seed: int = 0
) -> None:
    """Train the layers and heads by InfoNCE; the weights are the mean over the last steps."""
    torch.manual_seed(seed)
    draws, n = np.random.default_rng(seed), len(cells)
    batches = (
        torch.from_numpy(cells[row : row + 256].astype(np.float32)) for row in range(0, n, 256)
    )
    with torch.no_grad():
        images = torch.cat([layers(batch) for batch in batches])
    items = {"image": images.numpy(), "text": texts}
    records = Records(tuple(map(str, range(n))), items, np.ones((n, 0), bool), ())
    model = MODELS["aligned"].create(records, 256, "features")
    fit_scales(model, {name: torch.from_numpy(rows) for name, rows in items.items()})
    parts = {"heads": list(model.parameters()), "layers": list(layers.parameters())}
    groups = [{"params": parts[name], "weight_decay": DECAYS[name]} for name in parts]
    optimizer, steps = torch.optim.AdamW(groups), EPOCHS * (n // ROWS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, list(RATES.values()), steps, pct_start=0.1
    )
    loss, mean = ContrastiveLoss(0.06), [values.detach().clone() for values in layers.parameters()]
    model.train()
    for step in range(steps):
        if step % (n // ROWS) == 0:
            order = draws.permutation(n)
        rows = np.sort(order[step % (n // ROWS) * ROWS :][:ROWS])
        top, left = draws.integers(0, CELLS - CROP + 1, 2)
        part = torch.from_numpy(
            cells[rows, :, top : top + CROP, left : left + CROP].astype(np.float32)
        )
        mirrored = torch.from_numpy(draws.random(ROWS) < 0.5)[:, None, None, None]
        part = torch.where(mirrored, part.flip(3), part).contiguous(
            memory_format=torch.channels_last
        )
        inputs = {"image": layers(part), "text": torch.from_numpy(texts[rows])}
        value = loss(
            {name: model.branch(name).head(x) for name, x in inputs.items()}, torch.ones(ROWS, 0)
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        for values, now in zip(mean, layers.parameters(), strict=True):
            values.lerp_(now.detach(), 1 - min(AVERAGE, (1 + step) / (10 + step)))
        if step % 10 == 0:
            print(f"step {step} of {steps}: {value.item():.3f}", flush=True)
    for values, now in zip(mean, layers.parameters(), strict=True):
        now.data.copy_(values)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cells, english, general = compute_inputs(folder, sys.argv[2:])
    fit_prediction(english, general)
    model = onnx.load(FILE)
    arrays = {array.name: array for array in model.graph.initializer}
    nodes = {node.output[0]: node for node in model.graph.node}
    found = [node for node in model.graph.node if node.op_type == "Conv"][-4:]
    names = [(nodes[node.input[1]].input[0], node.input[2]) for node in found]
    layers = last_layers(
        [tuple(numpy_helper.to_array(arrays[name]) for name in pair) for pair in names]
    )
    tune(cells, np.concatenate([english, general], axis=1), layers)
    for layer, pair in zip(
        (layer for layer in layers if isinstance(layer, nn.Conv2d)), names, strict=True
    ):
        for name, values, kind in zip(
            pair, (layer.weight, layer.bias), (np.float16, np.float32), strict=True
        ):
            arrays[name].CopyFrom(
                numpy_helper.from_array(values.detach().numpy().astype(kind), name)
            )
    onnx.save(model, FILE)
