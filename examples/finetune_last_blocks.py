"""Fine-tune the last blocks of EfficientNet-Lite2 on a table of pictures and texts, against its
frozen features.

    python examples/finetune_last_blocks.py items.csv images
    python examples/finetune_last_blocks.py items.csv images --loss talr:published

The blocks that stay frozen are computed once: their outputs are the images of a features file, and
a model of one's own (`MODEL`) holds the other blocks. So an epoch costs a fraction of what it takes
with ``model.unfreeze_blocks: 4``, by which images would be trained alike. Texts are embeddings of
all-MiniLM-L6-v2. Runs are written into the folder it runs in.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import channelhash as ch
from channelhash.config import make_config
from channelhash.data.images import Resize
from channelhash.data.records import Records
from channelhash.data.table import load_table
from channelhash.models import Branch, HashModel, ModelKind
from channelhash.models.backbones import image_layers
from channelhash.models.encoders import open_encoder
from channelhash.models.hash_model import feature_rows
from channelhash.models.heads import _Standardize as Standardize, hash_head
from channelhash.models.paper import PartlyFrozen, _blocks as blocks
from channelhash.runs.train import start_run
from channelhash.training.validation import selection_score
from channelhash.utils.typed_settings import trusting

SIZE, LAST = 96, 4  # pixels, blocks
RESIZE = Resize(SIZE, short_side=round(SIZE * 232 / 224))


def halves() -> tuple[nn.Module, nn.Module]:
    """Return the network up to its last blocks, and the rest."""
    normalize, net = image_layers("package")
    row = [block for stage in net.blocks for block in stage]
    before = nn.Sequential(normalize, net.conv_stem, net.bn1, *row[:-LAST]).eval()
    return before, nn.Sequential(
        nn.Sequential(*row[-LAST:]), net.conv_head, net.bn2, net.global_pool
    ).eval()


def build(n_bits: int, shape: list[int], text: int, tuned: bool) -> dict[str, Branch]:
    """Build the branches: the last blocks and a head for images, a head for texts."""
    encoder = nn.Sequential(nn.Unflatten(1, tuple(shape)), halves()[1])
    encoder = PartlyFrozen(encoder, len(list(blocks(encoder)))).requires_grad_(tuned)
    rows = {"image": int(np.prod(shape)), "text": text}
    heads = {
        name: nn.Sequential(Standardize(d), hash_head([d, 1024, n_bits]))
        for name, d in (("image", 1280), ("text", text))
    }
    encoders = {"image": encoder, "text": nn.Identity()}
    return {
        name: Branch(
            partial(feature_rows, modality=name, width=d),
            encoders[name],
            heads[name],
            pretrained=name == "image",
        )
        for name, d in rows.items()
    }


def create(train: Records, n_bits: int, tuned: bool = True) -> HashModel:
    """Create the model, its heads' inputs standardized over the training rows; ``tuned`` trains the
    last blocks.
    """
    side, items = (
        SIZE // 32,
        {name: torch.from_numpy(np.asarray(rows)).float() for name, rows in train.items.items()},
    )
    shape = [items["image"].shape[1] // side**2, side, side]
    architecture: dict[str, Any] = dict(
        n_bits=n_bits, shape=shape, text=items["text"].shape[1], tuned=tuned
    )
    model = HashModel("own", n_bits, architecture, build(**architecture)).eval()
    for name, branch in model.branches.items():
        with torch.no_grad():
            branch.head[0].fit(torch.cat([branch.encoder(part) for part in items[name].split(128)]))
    return model


MODEL = ModelKind(create, build)


def write_features(table: Path, root: Path, path: Path) -> None:
    """Write what the frozen blocks make of the images, and the embeddings of the texts."""
    records = load_table(table, root)
    before, last = halves()
    images, rows = records.items["image"], []
    with torch.no_grad():
        for start in range(0, len(images), 64):
            pixels = RESIZE(images[start : start + 64])
            rows.append(before(pixels).flatten(1))
        torch.testing.assert_close(
            last(before(pixels)), image_layers("package").eval()(pixels), atol=1e-4, rtol=1e-3
        )
    text = open_encoder("photo-backbones").features("text", list(records.items["text"]))
    names = {"id": np.array(records.ids), "label_names": np.array(records.label_names)}
    np.savez(path, image=torch.cat(rows).numpy(), text=text, labels=records.labels, **names)


def run(loss: str, seed: int, tuned: bool, backbone: float, head: float) -> tuple[float, Path]:
    """Train, and return the validation of the epoch that is kept, and the run's folder.

    ``loss`` is a name, perhaps with the form of its weights: ``talr:published``.
    """
    name, _, form = loss.partition(":")
    train = {
        "epochs": 5,
        "batch_size": 64,
        "learning_rate": head,
        "rates": {"backbone": backbone},
        "seed": seed,
    }
    train |= {
        "schedule": "cosine",
        "clip_gradient": 1.0,
        "validate_every": 5,
        "keep": "best",
        "device": "cpu",
    }
    sections: dict[str, dict[str, Any]] = {
        "data": {
            "kind": "features",
            "path": "features.npz",
            "queries": 500,
            "train": 2000,
            "validation_queries": 400,
        },
        "model": {"name": "python:finetune_last_blocks:MODEL", "n_bits": 64, "tuned": tuned},
        "loss": {"name": name} | ({form: True} if form else {}),
        "train": train,
    }
    blocks_are = "tuned" if tuned else "frozen"
    folder = Path("runs", name, f"{blocks_are}-{backbone:g}-{head:g}-{seed}")
    trained = start_run(make_config(sections), folder, resume=(folder / "config.yaml").exists())
    score = selection_score(trained.validation)
    print(loss, folder.name, f"validation {100 * score:.2f}", flush=True)
    return score, folder


def main(table: Path, root: Path, loss: str) -> None:
    """Choose the head's rate without and the backbone's rate with its blocks on validation; test
    both with 3 seeds.
    """
    if not Path("features.npz").exists():
        write_features(table, root, Path("features.npz"))
    head = max((1e-3, 3e-3), key=lambda rate: run(loss, 0, False, 0.0, rate)[0])
    backbone = max((1e-4, 1e-3, 3e-3), key=lambda rate: run(loss, 0, True, rate, head)[0])
    for seed in range(3):
        for tuned, rate in ((False, 0.0), (True, backbone)):
            folder = run(loss, seed, tuned, rate, head)[1]
            for leak_free in (False, True):
                tasks = ch.evaluate(folder, leak_free=leak_free, trust_code=True)
                scores = {
                    task: round(100 * values["map_tie_aware"], 2) for task, values in tasks.items()
                }
                print(
                    "database without training rows" if leak_free else "database",
                    scores,
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("table", type=Path, help="columns id, image, text, labels")
    parser.add_argument("root", type=Path, help="folder of the images")
    parser.add_argument("--loss", default="dsch:recommended", help="NAME, NAME:published, …")
    arguments = parser.parse_args()
    with trusting(True):
        main(arguments.table, arguments.root, arguments.loss)
