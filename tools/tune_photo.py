"""Let the encoder ``photo`` learn from photographs and captions: what predicts the English features
of a sentence from the others, the last stages of the network of images, and the heads.

python tools/tune_photo.py WORK captions.csv more.csv  # tables of images and texts; WORK keeps what
is computed

It begins with the image.onnx that `ship_photo.py` makes. Several runs (`RUNS`) begin with the same
heads; the weights are the mean of theirs. It writes prediction.npz and image.onnx, whose SHA-256
stand in models/photo.py, and the heads as WORK/heads, a saved model that `ship_photo.py` ships.
"""

import copy
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from channelhash.data.records import Records
from channelhash.data.table import load_table
from channelhash.losses import ContrastiveLoss
from channelhash.models import photo
from channelhash.models.hash_model import HashModel
from channelhash.models.heads import create_aligned_model, fit_scales, rotate_outputs

# Layers up to here stay as they are; behind them are 17 x 17 cells of 88 channels.
FROZEN, CHANNELS, CELLS = "Add_96", 88, 17
BATCH, CHUNK, AVERAGE = 1024, 128, 0.98
# Of the heads that all runs begin with.
EPOCHS_OF_HEADS, BATCH_OF_HEADS, RATE_OF_HEADS = 8, 512, 3e-3
HEAD_RATE, HEAD_DECAY, DECAY, TEMPERATURE = 1.5e-3, 0.5, 0.05, 0.06
# Rows of the first table that nothing learns from: their recall is printed.
HELD_OUT = 2000
FILE = photo.WEIGHTS / "image.onnx"


class Run(NamedTuple):
    """A run of training.

    Attributes:
        first: the first block that learns: 0 is that after `FROZEN`, 4 the first of the next stage.
        rate: learning rate of the last layer; that of each block before it is ``fall`` times that
            of the next.
        fall: see ``rate``.
        sides: of the squares of cells that a step looks at, one drawn for each chunk.
        drop: share of the blocks that are left out (stochastic depth, Huang et al. 2016).
        predicted: share of texts whose English features are predicted, as those of other languages.
        epochs: number of epochs.
    """

    first: int
    rate: float
    fall: float
    sides: tuple[int, ...]
    drop: float
    predicted: float
    epochs: int


SIDES = (9, 11, 13, 15, 17)
RUNS = (
    Run(first=4, rate=3e-4, fall=1, sides=SIDES, drop=0.1, predicted=0.3, epochs=8),
    Run(first=4, rate=4e-4, fall=1, sides=SIDES, drop=0.2, predicted=0.3, epochs=8),
    Run(first=0, rate=3e-4, fall=0.9, sides=SIDES, drop=0.15, predicted=0.3, epochs=6),
)


class Texts(NamedTuple):
    """Features ``(n, 896)`` of texts: as they are read, and with the English ones predicted."""

    read: NDArray[np.float32]
    predicted: NDArray[np.float32]

    def take(self, rows: NDArray[Any]) -> "Texts":
        """Return those of some texts."""
        return Texts(self.read[rows], self.predicted[rows])


class _Depthwise(torch.autograd.Function):
    """A convolution of each channel alone, of ``(n, c, h, w)``, whose kernels do not learn.

    The gradient of its input is such a convolution, too: PyTorch's own, with that of the kernels,
    takes twenty times as long in half precision. Sides are odd where the stride is 2.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, kernel: Tensor, offset: Tensor, stride: int) -> Tensor:
        context.save_for_backward(kernel)
        context.stride, context.shape = stride, x.shape
        return F.conv2d(x, kernel, offset, stride, kernel.shape[2] // 2, 1, len(kernel))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        (kernel,) = context.saved_tensors
        if context.stride == 2:
            spread = gradient.new_zeros(context.shape)
            spread = spread.contiguous(memory_format=torch.channels_last)
            spread[:, :, ::2, ::2] = gradient
            gradient = spread
        back = F.conv2d(gradient, kernel.flip(2, 3), None, 1, kernel.shape[2] // 2, 1, len(kernel))
        return back, None, None, None


class Block(nn.Module):
    """Widen, a convolution of each channel, narrow; added to what came in if ``adds``."""

    def __init__(self, widen: nn.Conv2d, middle: nn.Conv2d, narrow: nn.Conv2d) -> None:
        super().__init__()
        self.widen, self.narrow = widen, narrow
        self.adds = False
        self.drop = 0.0
        self.stride = middle.stride[0]
        self.kernel = nn.Buffer(middle.weight.detach().bfloat16())
        self.offset = nn.Buffer(offset_of(middle).detach().bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self.widen(x)).bfloat16()
        middle = F.relu6(_Depthwise.apply(wide, self.kernel, self.offset, self.stride))  # type: ignore[no-untyped-call]
        y: Tensor = self.narrow(middle)
        if not self.adds:
            return y
        if self.training and self.drop:
            stays = torch.rand(len(y), 1, 1, 1) >= self.drop
            y = y * stays.to(y) / (1 - self.drop)
        return x + y


def offset_of(layer: nn.Conv2d) -> Tensor:
    """Return the offset of a convolution."""
    assert layer.bias is not None
    return layer.bias


def learned_layers(model: onnx.ModelProto) -> tuple[nn.Sequential, list[tuple[str, str]]]:
    """Return the layers after `FROZEN`, and the names of the kernel and the offset of each
    convolution in the graph.
    """
    arrays = {array.name: array for array in model.graph.initializer}
    nodes = {node.output[0]: node for node in model.graph.node}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Add")]
    start = [node.output[0] for node in layers].index(FROZEN) + 1
    blocks: list[Block] = []
    waiting: list[nn.Conv2d] = []
    names = []
    for node in layers[start:]:
        if node.op_type == "Add":
            blocks[-1].adds = True
            continue
        pair = nodes[node.input[1]].input[0], node.input[2]
        strides = next(part.ints for part in node.attribute if part.name == "strides")
        names.append(pair)
        waiting.append(
            convolution(*(numpy_helper.to_array(arrays[name]) for name in pair), strides)
        )
        if len(waiting) == 3:
            blocks.append(Block(*waiting))
            waiting = []
    last = [*waiting, nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*blocks, *last).to(memory_format=torch.channels_last), names


def convolution(kernel: NDArray[Any], offset: NDArray[Any], strides: Sequence[int]) -> nn.Conv2d:
    """Make a convolution, of each channel alone where its kernel has one."""
    groups = len(kernel) if kernel.shape[1] == 1 else 1
    side = kernel.shape[2]
    layer = nn.Conv2d(
        kernel.shape[1] * groups, len(kernel), side, strides[0], side // 2, groups=groups
    )
    layer.weight.data = torch.from_numpy(kernel.astype(np.float32))
    layer.bias = nn.Parameter(torch.from_numpy(offset.astype(np.float32)))
    return layer


def compute_inputs(
    folder: Path, images: Sequence[Any], texts: Sequence[str]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return what the frozen layers make of all images, and both networks' features of all texts;
    they are kept.
    """
    if not (folder / "texts.npz").exists():
        tokens = (
            photo._token_rows(texts[start : start + 32]) for start in range(0, len(texts), 32)
        )
        english = np.concatenate([photo._english_features(rows) for rows in tokens])
        general = np.stack([photo._use(photo._sentence_pieces()(text)) for text in texts])
        np.savez(folder / "texts.npz", english=english, general=general)
    model, resize = onnx.load(FILE), photo.open_networks()["image"][0]
    shape = (len(images), CHANNELS, CELLS, CELLS)
    model.graph.output.append(
        helper.make_tensor_value_info(FROZEN, TensorProto.FLOAT, ["n", *shape[1:]])
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    done = folder / "done.txt"
    cells = np.memmap(
        folder / "cells.f16", np.float16, "r+" if done.exists() else "w+", shape=shape
    )
    for start in range(int(done.read_text()) if done.exists() else 0, len(images), 512):
        for row in range(start, min(start + 512, len(images)), 8):
            pixels = resize.arrays(images[row : row + 8])
            cells[row : row + 8] = session.run([FROZEN], {"pixels": pixels})[0]
        cells.flush()
        done.write_text(str(start + 512))
    with np.load(folder / "texts.npz") as file:
        return cells, file["english"], file["general"]


def fit_prediction(english: NDArray[np.float32], general: NDArray[np.float32]) -> NDArray[Any]:
    """Write the linear map, by ridge regression with λ = 1; return the English features as it
    predicts them.
    """
    x, y = general.astype(np.float64), english.astype(np.float64)
    centred = x - x.mean(axis=0)
    matrix = np.linalg.solve(
        centred.T @ centred + np.eye(x.shape[1]), centred.T @ (y - y.mean(axis=0))
    )
    offset = y.mean(axis=0) - x.mean(axis=0) @ matrix
    half = {"matrix": matrix.astype(np.float16), "offset": offset.astype(np.float16)}
    np.savez(photo.WEIGHTS / "prediction.npz", **half)
    rows = general @ half["matrix"].astype(np.float32) + half["offset"]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def compute(layers: nn.Sequential, cells: NDArray[Any]) -> Tensor:
    """Return the features of cells ``(n, c, h, w)``, in half precision."""
    part = torch.from_numpy(cells).bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        return layers(part).float()


@torch.no_grad()
def compute_all(layers: nn.Sequential, cells: NDArray[Any], rows: NDArray[Any]) -> Tensor:
    """Return the features of some images, without dropping anything."""
    layers.eval()
    parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    features = torch.cat([compute(layers, cells[part]) for part in parts])
    layers.train()
    return features


def batches(n: int, size: int, epochs: int, draws: np.random.Generator) -> Iterator[NDArray[Any]]:
    """Yield sorted row numbers; the last ones of an epoch that fill no batch are left out."""
    for _ in range(epochs):
        order = draws.permutation(n)
        for start in range(0, n - size + 1, size):
            yield np.sort(order[start : start + size])


def loss_of(heads: HashModel, images: Tensor, texts: NDArray[np.float32]) -> Tensor:
    """Return the loss of pairs of features."""
    outputs = heads({"image": images, "text": torch.from_numpy(texts)})
    return ContrastiveLoss(TEMPERATURE)(outputs, torch.ones(len(images), 0))


def start_heads(heads: HashModel, images: Tensor, texts: NDArray[np.float32]) -> None:
    """Train the heads that all runs begin with, on the features of the network as published."""
    draws = np.random.default_rng(0)
    fit_scales(heads, {"image": images, "text": torch.from_numpy(texts)})
    optimizer = torch.optim.AdamW(heads.parameters(), weight_decay=HEAD_DECAY)
    steps = EPOCHS_OF_HEADS * (len(texts) // BATCH_OF_HEADS)
    heads.train()
    for step, rows in enumerate(batches(len(texts), BATCH_OF_HEADS, EPOCHS_OF_HEADS, draws)):
        for group in optimizer.param_groups:
            group["lr"] = RATE_OF_HEADS * (1 + math.cos(math.pi * 0.7 * step / steps)) / 2
        value = loss_of(heads, images[rows], texts[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def groups_of(run: Run, heads: HashModel, layers: nn.Sequential) -> list[dict[str, Any]]:
    """Return the parameters that learn, with their rates; the others learn no more."""
    learned = [layer for layer in layers if list(layer.parameters())]
    for layer in learned[: run.first]:
        layer.requires_grad_(False)
    groups = [{"params": list(heads.parameters()), "weight_decay": HEAD_DECAY, "rate": HEAD_RATE}]
    for depth, layer in enumerate(reversed(learned[run.first :])):
        rate = run.rate * run.fall**depth
        parameters = list(layer.parameters())
        groups.append({"params": parameters, "weight_decay": DECAY, "rate": rate})
    return groups


def tune(
    run: Run,
    seed: int,
    cells: NDArray[np.float16],
    texts: Texts,
    layers: nn.Sequential,
    heads: HashModel,
) -> None:
    """Train the layers and heads by InfoNCE; their weights become the mean over the last steps."""
    torch.manual_seed(seed)
    draws, n = np.random.default_rng(seed), len(cells)
    groups = groups_of(run, heads, layers)
    for layer in layers:
        if isinstance(layer, Block):
            layer.drop = run.drop
    optimizer, steps = torch.optim.AdamW(groups, lr=0.0), run.epochs * (n // BATCH)
    learned = [values for group in groups for values in group["params"]]
    mean = [values.detach().clone() for values in learned]
    heads.train()
    layers.train()
    for step, rows in enumerate(batches(n, BATCH, run.epochs, draws)):
        share = (step + 1) / steps
        factor = min(10 * share, (1 + math.cos(math.pi * max(0, share - 0.1) / 0.9)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * factor
        parts = [rows[start : start + CHUNK] for start in range(0, BATCH, CHUNK)]
        images = torch.cat([compute(layers, draw_part(cells[part], run, draws)) for part in parts])
        predicted = draws.random(BATCH)[:, None] < run.predicted
        part = texts.take(rows)
        value = loss_of(heads, images, np.where(predicted, part.predicted, part.read))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for values, now in zip(mean, learned, strict=True):
                values.lerp_(now, 1 - min(AVERAGE, (1 + step) / (10 + step)))
        if step % 10 == 0:
            print(f"step {step} of {steps}: {value.item():.3f}", flush=True)
    with torch.no_grad():
        for values, now in zip(mean, learned, strict=True):
            now.copy_(values)


def draw_part(cells: NDArray[Any], run: Run, draws: np.random.Generator) -> NDArray[Any]:
    """Return a square of the cells of some images, half of them mirrored; it begins at an even
    cell, as the next stage takes every second one.
    """
    side = int(draws.choice(run.sides))
    top, left = 2 * draws.integers(0, (CELLS - side) // 2 + 1, 2)
    part = cells[:, :, top : top + side, left : left + side]
    mirrored = draws.random(len(part)) < 0.5
    return np.where(mirrored[:, None, None, None], part[..., ::-1], part)


@torch.no_grad()
def recall(heads: HashModel, images: Tensor, texts: NDArray[np.float32]) -> float:
    """Return the share of texts whose own image is among the first ten, in percent."""
    heads.eval()
    outputs = heads({"image": images, "text": torch.from_numpy(texts)})
    rows = {name: F.normalize(values, dim=1) for name, values in outputs.items()}
    similarities = rows["text"] @ rows["image"].T
    nearer = (similarities > similarities.diagonal()[:, None]).sum(dim=1)
    return 100 * (nearer < 10).float().mean().item()


def write_network(
    model: onnx.ModelProto, layers: nn.Sequential, names: list[tuple[str, str]]
) -> None:
    """Write image.onnx with the layers that learned."""
    arrays = {array.name: array for array in model.graph.initializer}
    learned = [name for place, name in enumerate(names) if place % 3 != 1]  # not those in blocks
    convolutions = [layer for layer in layers.modules() if isinstance(layer, nn.Conv2d)]
    for layer, pair in zip(convolutions, learned, strict=True):
        values = (layer.weight, np.float16), (offset_of(layer), np.float32)
        for name, (weights, kind) in zip(pair, values, strict=True):
            rounded = weights.detach().numpy().astype(kind)
            arrays[name].CopyFrom(numpy_helper.from_array(rounded, name))
    onnx.save(model, FILE)


def main(folder: Path, tables: list[str]) -> None:
    """Train on the rows of all tables but `HELD_OUT` rows of the first, and write the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [load_table(Path(table), label_columns=[]) for table in tables]
    images, texts = (
        [item for part in parts for item in part.items[name]] for name in ("image", "text")
    )
    cells, english, general = compute_inputs(folder, images, texts)
    predicted = fit_prediction(english, general)
    every = Texts(*(np.concatenate([part, general], axis=1) for part in (english, predicted)))
    kept = np.random.default_rng(7).permutation(len(parts[0].ids))[:HELD_OUT]
    rows = np.setdiff1d(np.arange(len(texts)), kept)
    learned, unseen = every.take(rows), every.take(kept).read
    model = onnx.load(FILE)
    layers, names = learned_layers(model)
    records = Records(("a",), {"image": images[:1], "text": texts[:1]}, np.ones((1, 0), bool), ())
    torch.manual_seed(0)
    model_of_heads = create_aligned_model(records, 256, nested=[64, 128])
    heads = model_of_heads.on_features()
    start_heads(heads, compute_all(layers, cells, rows), learned.read)
    start = copy.deepcopy(heads.state_dict())
    tuned: list[dict[str, Tensor]] = []
    for seed, run in enumerate(RUNS):
        layers, _ = learned_layers(model)
        heads.load_state_dict(start)
        tune(run, seed, cells[rows], learned, layers, heads)
        found = recall(heads, compute_all(layers, cells, kept), unseen)
        print(f"run {seed}: {found:.1f} % of {len(kept)}", flush=True)
        tuned.append(copy.deepcopy(nn.ModuleList([layers, heads]).state_dict()))
    both = nn.ModuleList([layers, heads])
    both.load_state_dict(mean_of(tuned))
    images_learned = compute_all(layers, cells, rows)
    inputs = {"image": images_learned, "text": torch.from_numpy(learned.read)}
    found = recall(heads, compute_all(layers, cells, kept), unseen)
    print(f"their mean: {found:.1f} %")
    rotate_outputs(heads, inputs, torch.arange(len(rows)), [64, 128], seed=0)
    write_network(model, layers, names)
    model_of_heads.save_pretrained(folder / "heads" / "model")


def mean_of(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of the weights of several runs, by name."""
    return {
        name: torch.stack([state[name].float() for state in states]).mean(dim=0)
        for name in states[0]
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
