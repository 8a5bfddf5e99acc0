"""A model that nobody trained, and collections to put into stores with it."""

from pathlib import Path

from channelhash.models import MODELS, HashModel
from picture_runs import picture_records, write_pictures


def small_model(folder: Path, n_bits: int = 12, seed: int = 0) -> HashModel:
    """An untrained model of pictures and texts, saved in ``folder/model``: its codes differ, and no more is needed."""
    import torch

    torch.manual_seed(seed)
    records = picture_records(folder / "data")
    model = MODELS["small"].create(records, n_bits, image_size=16, width=8)
    model.save_pretrained(folder / "model")
    return model.eval()


def picture_folder(folder: Path, n: int = 9) -> Path:
    """``n`` pictures at two depths: ``0.png``, ``deep/er/1.png``, ``2.png``, …"""
    write_pictures(folder, n)
    (folder / "items.csv").unlink()
    (folder / "deep" / "er").mkdir(parents=True)
    for i in range(n):
        (folder / "images" / f"{i}.png").rename(folder / (f"deep/er/{i}.png" if i % 2 else f"{i}.png"))
    (folder / "images").rmdir()
    return folder
