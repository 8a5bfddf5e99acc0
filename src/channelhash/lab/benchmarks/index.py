"""Indexing of image files beside the encoder alone, and the check of a large folder in which nothing has changed."""

import io
import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.data.records import Records
from channelhash.indexing.encode import index_source
from channelhash.indexing.source import Source, read_source
from channelhash.indexing.state import STATE, state_of_file
from channelhash.lab.benchmarks.images import draw_images
from channelhash.models import MODELS, HashModel
from channelhash.models.photo_encoder import missing_packages
from channelhash.search import open_store
from channelhash.utils.device import pick_device
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare

#: (model, its settings, images on a CPU, images on a GPU); random weights cost the same.
_MODELS: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("small", {}, 2048, 16384),
    ("fitted", {"encoder": "photo", "codes": "sign"}, 512, 16384),
    ("cliphash", {"backbone": "ViT-B-32", "pretrained": None}, 256, 16384),
)
_N_BITS = 64
_BATCH = 128


def benchmark_index(images: list[Path] | None = None, device: str = "auto", files: int = 100_000) -> list[Row]:
    """Measure indexing by each model, and the check of a folder of tiny files that are all unchanged.

    Args:
        images: files to index; None draws noise of 500 × 375 pixels.
        device: where to encode.
        files: number of files that are checked.

    Returns:
        Indexing reads, encodes and writes; its alternative is the encoder on inputs in memory, so a ratio of 0.9 is
        nine tenths of the encoder's own speed.
    """
    place = pick_device(device)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = images or draw_images(folder, 256)
        for name, settings, on_cpu, on_gpu in _MODELS:
            if name == "fitted" and missing_packages():
                continue
            n = on_gpu if place.type == "cuda" else on_cpu
            rows.append(_indexing(name, settings, [paths[i % len(paths)] for i in range(n)], folder, place))
        rows.append(_checking(files, folder))
    return rows


def _indexing(name: str, settings: dict[str, Any], paths: list[Path], folder: Path, device: torch.device) -> Row:
    ids = tuple(f"{i}.jpg" for i in range(len(paths)))
    records = Records(ids, {"image": tuple(paths)}, np.ones((len(paths), 1), dtype=bool), ("label",))
    texts = {"text": tuple(f"sunset {i % 7}" for i in range(len(paths)))}
    torch.manual_seed(0)
    sample = Records(ids, {**records.items, **texts}, records.labels, ("label",)).take(range(min(64, len(paths))))
    model: HashModel = MODELS[name].create(sample, _N_BITS, **settings).to(device).eval()
    source = Source(records, [{"image": str(path)} for path in paths])
    numbers = itertools.count()
    inputs = [model.prepare("image", paths[start : start + _BATCH]) for start in range(0, len(paths), _BATCH)]

    def index() -> None:
        store = open_store(folder / f"{name}{next(numbers)}.store", _N_BITS, model.fingerprint())
        index_source(store, model, source)
        store.close()

    row = compare(
        " ".join(["index,", name, *(str(settings[key]) for key in ("encoder", "backbone") if key in settings)]),
        f"{len(paths)} to {_N_BITS} bits, {device}",
        index,
        "the encoder, inputs in memory",
        partial(_encode, model, inputs),
        repeats=3,
    )
    row["what"] += f" ({len(paths) / row['seconds']:.0f}/s)"
    return row


def _encode(model: HashModel, inputs: list[Tensor]) -> None:
    for batch in inputs:
        model.outputs_prepared({"image": batch})


def _checking(files: int, folder: Path) -> Row:
    photos, store_folder = folder / "photos", folder / "checked.store"
    for path, content in zip(_tiny_paths(photos, files), _tiny_images(), strict=False):
        path.write_bytes(content)
    source = read_source(photos)
    model = MODELS["small"].create(source.records.take(range(2)), _N_BITS, image_size=16, width=8)
    store = open_store(store_folder, _N_BITS, model.fingerprint())
    codes = generator(0, "benchmark index").integers(0, 256, (files, _N_BITS // 8), dtype=np.uint8)
    metadata = [
        {**values, STATE: state_of_file(path)}
        for values, path in zip(source.metadata, source.records.items["image"], strict=True)
    ]
    store.add(source.records.ids, codes, metadata=metadata)
    store.close()

    def check() -> None:
        opened = open_store(store_folder)
        done = index_source(opened, model, read_source(photos))
        assert done.unchanged == files
        opened.close()

    return compare("check, nothing changed", f"{files} files in folders of 1,000", check, repeats=3)


def _tiny_paths(folder: Path, count: int) -> Iterator[Path]:
    for number in range(count):
        path = folder / f"{number // 1000:04d}" / f"{number % 1000:03d}.png"
        if number % 1000 == 0:
            path.parent.mkdir(parents=True)
        yield path


def _tiny_images() -> Iterator[bytes]:
    """Yield images of one pixel, each with other bytes after its end."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "PNG")
    for number in itertools.count():
        yield file.getvalue() + str(number).encode()
