"""Images and texts a second from files to codes.

The alternative has its inputs in memory, so a ratio of 1 means that reading costs nothing. Weights are
random: they cost the same. Images are drawn noise of 500 × 375 pixels.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from channelhash.data.records import Records
from channelhash.models import MODELS
from channelhash.models.hash_model import encode_items
from channelhash.training.inputs import prepare_inputs
from channelhash.utils.environment import pick_device, usable_cores
from measure import draw_images, options, print_rows
from timing import Row, compare

#: name -> (model, its settings, images on a CPU, images on a GPU)
MODELS_MEASURED = {
    "small": ("small", {}, 512, 4096),
    "tdsrdh": ("tdsrdh", {"backbone": "resnet152", "pretrained": None}, 32, 4096),
    "cliphash": ("cliphash", {"backbone": "ViT-B-32", "pretrained": None}, 64, 4096),
    "cliphash-h": ("cliphash", {"backbone": "ViT-H-14-quickgelu", "pretrained": None}, 0, 2048),
}
BITS = 64


def main() -> None:
    """Print a row for each model and modality."""
    given = options(__doc__, device="auto", models=",".join(MODELS_MEASURED))
    device = pick_device(given.device)
    with tempfile.TemporaryDirectory() as name:
        paths = draw_images(Path(name), 256)
        print_rows([row for model in given.models.split(",") for row in encoding(model, paths, device)])


def encoding(name: str, paths: list[Path], device: torch.device) -> list[Row]:
    """Compare both modalities of a model, from files and from memory."""
    kind, settings, on_cpu, on_gpu = MODELS_MEASURED[name]
    n = on_gpu if device.type == "cuda" else on_cpu
    if not n:
        return []
    texts = tuple(f"sunset {i % 7} over the sea with word{i % 97} and more words of a caption" for i in range(n))
    items = {"image": tuple(paths[i % len(paths)] for i in range(n)), "text": texts}
    records = Records(tuple(map(str, range(n))), items, np.ones((n, 1), dtype=bool), ("label",))
    torch.manual_seed(0)
    model = MODELS[kind].create(records, BITS, **settings).to(device).eval()
    rows = []
    for modality in model.modalities:
        inputs = prepare_inputs(model, records, modality)
        ours = partial(encode_items, model, modality, items[modality], usable_cores())
        alone = partial(model.outputs_prepared, {modality: inputs})
        what, size = f"{name}, {modality}s", f"{n} to {BITS} bits, {device}"
        row = compare(what, size, ours, "inputs in memory", alone, repeats=3)
        rows.append({**row, "what": f"{what} ({n / row['seconds']:.0f}/s)"})
    return rows


if __name__ == "__main__":
    main()
