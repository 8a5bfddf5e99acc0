"""Images and texts a second from files to codes, beside what the model does on tensors alone."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from channelhash.data.records import Records
from channelhash.lab.benchmarks.images import draw_images
from channelhash.models import MODELS, HashModel
from channelhash.models.encode_records import encode_items
from channelhash.training.batches import prepare_inputs
from channelhash.utils.device import pick_device
from channelhash.utils.environment import usable_cores
from channelhash.utils.timing import Row, compare

#: (model, its settings, images on a CPU, images on a GPU). Weights are random: they cost the same.
_MODELS: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("small", {}, 512, 4096),
    ("tdsrdh", {"backbone": "resnet152", "pretrained": None}, 32, 4096),
    ("cliphash", {"backbone": "ViT-B-32", "pretrained": None}, 64, 4096),
    ("cliphash", {"backbone": "ViT-H-14-quickgelu", "pretrained": None}, 0, 2048),
)
_N_BITS = 64


def benchmark_encode(images: list[Path] | None = None, device: str = "auto") -> list[Row]:
    """Measure each model on images and texts from files to codes, beside the same without reading.

    Args:
        images: files to read; None draws noise of 500 × 375 pixels, the size of MIRFLICKR's.
        device: where to encode. ViT-H is measured on a GPU only.

    Returns:
        The alternative has its inputs as tensors, so a ratio of 1 means that reading costs nothing, and 1 over the
        ratio is how much longer the whole way takes.
    """
    place = pick_device(device)
    with tempfile.TemporaryDirectory() as folder:
        paths = images or draw_images(Path(folder), 256)
        return [row for drawn in drawn_models(paths, device) for row in _measure(*drawn, place)]


def drawn_models(paths: list[Path], device: str) -> Iterator[tuple[str, HashModel, Records]]:
    """Yield models with random weights by name, each with the images and texts to measure it on.

    Args:
        paths: images, repeated where they are fewer than a model is measured on.
        device: where to encode. ViT-H is measured on a GPU only.
    """
    place = pick_device(device)
    for name, settings, on_cpu, on_gpu in _MODELS:
        if n := on_gpu if place.type == "cuda" else on_cpu:
            records = Records(
                tuple(str(i) for i in range(n)),
                {
                    "image": tuple(paths[i % len(paths)] for i in range(n)),
                    "text": tuple(
                        f"sunset {i % 7} over the sea with word{i % 97} and more words of a caption" for i in range(n)
                    ),
                },
                np.ones((n, 1), dtype=bool),
                ("label",),
            )
            torch.manual_seed(0)
            model: HashModel = MODELS[name].create(records, _N_BITS, **settings).to(place).eval()
            yield f"{name} {settings.get('backbone', '')}".strip(), model, records


def _measure(title: str, model: HashModel, records: Records, device: torch.device) -> list[Row]:
    rows = []
    for modality in model.modalities:
        items, inputs = records.items[modality], prepare_inputs(model, records, modality)
        row = compare(
            f"{title}, {modality}s",
            f"{len(items)} to {_N_BITS} bits, {device}",
            partial(encode_items, model, modality, items, usable_cores()),
            "inputs in memory",
            partial(model.outputs_prepared, {modality: inputs}),
            repeats=3,
        )
        row["what"] += f" ({len(items) / row['seconds']:.0f}/s)"
        rows.append(row)
    return rows
