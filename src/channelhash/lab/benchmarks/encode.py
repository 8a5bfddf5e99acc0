"""Images and texts a second from files to codes, beside what the model does on tensors alone."""

import tempfile
from collections.abc import Mapping
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
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = images or draw_images(Path(folder), 256)
        for name, settings, on_cpu, on_gpu in _MODELS:
            if n := on_gpu if place.type == "cuda" else on_cpu:
                rows += _measure(name, settings, [paths[i % len(paths)] for i in range(n)], place)
    return rows


def _measure(name: str, settings: Mapping[str, Any], paths: list[Path], device: torch.device) -> list[Row]:
    texts = tuple(
        f"sunset {i % 7} over the sea with word{i % 97} and more words of a caption" for i in range(len(paths))
    )
    records = Records(
        tuple(str(i) for i in range(len(paths))),
        {"image": tuple(paths), "text": texts},
        np.ones((len(paths), 1), dtype=bool),
        ("label",),
    )
    torch.manual_seed(0)
    model: HashModel = MODELS[name].create(records, _N_BITS, **settings).to(device).eval()
    title = f"{name} {settings.get('backbone', '')}".strip()
    rows = []
    for modality in model.modalities:
        items, inputs = records.items[modality], prepare_inputs(model, records, modality)
        row = compare(
            f"{title}, {modality}s",
            f"{len(paths)} to {_N_BITS} bits, {device}",
            partial(encode_items, model, modality, items, usable_cores()),
            "inputs in memory",
            partial(model.outputs_prepared, {modality: inputs}),
            repeats=3,
        )
        row["what"] += f" ({len(paths) / row['seconds']:.0f}/s)"
        rows.append(row)
    return rows
